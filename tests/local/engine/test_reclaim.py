"""
Giving back: what is deleted while one looks for the deleted is found too.
"""

import asyncio
from pathlib import Path

import pytest

from tableorm.stores import Operation, Verb
from tableorm_local.engine import Engine
from tableorm_local.engine.sqlite import Connection


async def test_deletion_during_the_last_look(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that ends after a look began, and before its end is known, is looked for again."""
    loop, engine, again = asyncio.get_running_loop(), Engine(path), asyncio.Event()
    looks = 0

    def look(connection: Connection, rows: int) -> bool:
        nonlocal looks
        looks += 1
        loop.call_soon_threadsafe(engine.reclaim if looks == 1 else again.set)
        return False

    monkeypatch.setattr("tableorm_local.engine.reclaim._RECLAIMERS", (look,))
    await engine.open()
    engine.reclaim()
    async with asyncio.timeout(60):
        await again.wait()
    await engine.close()

    assert looks == 2


async def test_all_that_was_deleted_is_freed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tables, queues and containers, deleted by a program that ends before it frees anything, leave nothing."""
    engine = Engine(path)
    with monkeypatch.context() as patch:
        patch.setattr("tableorm_local.engine.reclaim._RECLAIMERS", ())
        await engine.open()
        for name in ("first", "second", "third"):
            await engine.create_table(name)
            await engine.write(name, Operation(Verb.INSERT, {"PartitionKey": "p", "RowKey": "r"}))
            await engine.delete_table(name)
            await engine.queues.create_queue(name)
            await engine.queues.put(name, b"message")
            await engine.queues.delete_queue(name)
            await engine.blobs.create_container(name)
            await engine.blobs.put(name, "blob", b"data")
            await engine.blobs.delete_container(name)
        await engine.close()
    left = """SELECT (SELECT count(*) FROM sqlite_schema WHERE name GLOB 'gone_*') + (SELECT count(*) FROM messages)
        + (SELECT count(*) FROM queues) + (SELECT count(*) FROM containers) + (SELECT count(*) FROM blobs)
        + (SELECT count(*) FROM contents) + (SELECT count(*) FROM chunks)"""
    await engine.open()
    before = await engine.read(lambda connection: connection.execute(left).get)
    async with asyncio.timeout(60):
        while await engine.read(lambda connection: connection.execute(left).get):  # noqa: ASYNC110 - it happens in the background
            await asyncio.sleep(0.01)
    await engine.close()

    assert before > 0
