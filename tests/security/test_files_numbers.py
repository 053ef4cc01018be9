"""
Database files made by somebody else whose numbers are the largest that SQLite has, or stand for something that is in
the way: who meets them gets an error of his own, and undoes no write of others.
"""

import asyncio
from pathlib import Path

import pytest

from tableorm.protocol.codes import Fault
from tableorm.protocol.limits import MAX_MESSAGE_BYTES
from tableorm.stores import Operation, Verb
from tableorm_local.engine import Engine
from tests.security.test_files import craft, path, reads, refused

__all__ = ["path"]

_LARGEST = 2**63 - 1
_ROW = Operation(Verb.INSERT, {"PartitionKey": "p", "RowKey": "new"})


async def put_two(path: Path) -> None:
    """Put two messages into a queue of the file."""
    engine = Engine(path)
    await engine.open()
    await engine.queues.create_queue("queue")
    await engine.queues.put("queue", b"x")
    await engine.queues.put("queue", b"y")
    await engine.close()


async def test_a_table_without_a_name(path: Path) -> None:
    """A table of rows that no name stands for is damage: the next table could not be made, nor any after it."""
    craft(path, "UPDATE catalog SET id = 2, folded = 'other', name = 'Other'")
    problem = f"{str(path)!r} is damaged (it has the table 't1', which has no name); restore it from a backup."
    assert str(await refused(path)) == problem


@pytest.mark.parametrize("change", ["UPDATE messages SET count =", "UPDATE queues SET length ="])
async def test_counts_that_cannot_grow(path: Path, change: str) -> None:
    """Messages are put and taken although one was taken, or a queue is long, as often as SQLite can count."""
    await put_two(path)
    craft(path, f"{change} {_LARGEST}")
    engine = Engine(path)
    await engine.open()
    taken = engine.queues.take("queue", 2)
    put = engine.queues.put("queue", b"z")
    written = engine.write("Things", _ROW)
    assert len((await asyncio.gather(taken, put, written))[0]) == 2
    await engine.close()


def used_up(path: Path, table: str, number: object) -> str:
    """The message of a file that has no number left."""
    problem = f"{table} has given the number {number}, and none would be left"
    return f"{str(path)!r} is damaged ({problem}); restore it from a backup."


@pytest.mark.parametrize("table", ["catalog", "queues", "messages", "containers"])
@pytest.mark.parametrize("number", [str(_LARGEST), str(2**62 + 1), "'x'"])
async def test_numbers_that_are_used_up(path: Path, table: str, number: str) -> None:
    """A file that has no number left for the next message or table is damaged: to insert one would undo all writes."""
    await put_two(path)
    craft(path, f"DELETE FROM sqlite_sequence WHERE name = '{table}'")
    craft(path, f"INSERT INTO sqlite_sequence VALUES ('{table}', {number})")
    assert str(await refused(path)) == used_up(path, table, number.strip("'"))


async def test_numbers_that_are_half_used_up(path: Path) -> None:
    """A file opens as long as half of the numbers are left."""
    await put_two(path)
    craft(path, f"UPDATE sqlite_sequence SET seq = {2**62}")
    assert await reads(path) == ["a", "b"]


@pytest.mark.parametrize("table", ["queues", "messages"])
async def test_a_row_with_the_last_number(path: Path, table: str) -> None:
    """So is one that has a row with that number."""
    await put_two(path)
    craft(path, f"UPDATE {table} SET id = {_LARGEST} WHERE id = 1")
    assert str(await refused(path)) == used_up(path, table, _LARGEST)


_LONG = "replace(hex(zeroblob(100000)), '0', 'x')"


@pytest.mark.parametrize("change", [f"name = {_LONG}", f"""metadata = CAST('{{"a":"' || {_LONG} || '"}}' AS BLOB)"""])
async def test_blobs_with_too_large_parts(path: Path, change: str) -> None:
    """Many blobs are listed at once, so a name or metadata that is larger than any is not read, and is damage."""
    engine = Engine(path)
    await engine.open()
    await engine.blobs.create_container("container")
    await engine.blobs.put("container", "name", b"x", metadata={f"n{n}": '"' * 100 for n in range(78)})
    await engine.blobs.put("container", "Ω" * 1024, b"x")
    assert len((await engine.blobs.list_blobs("container")).blobs) == 2
    await engine.close()
    craft(path, f"UPDATE blobs SET {change} WHERE name = 'name'")
    await engine.open()
    with pytest.raises(Fault, match="damaged"):
        await engine.blobs.list_blobs("container")
    await engine.close()


@pytest.mark.parametrize("call", ["peek", "take"])
async def test_messages_that_are_too_large(path: Path, call: str) -> None:
    """Nor is a message, of which many are taken at once; one of the largest size is."""
    await put_two(path)
    craft(path, f"UPDATE messages SET body = zeroblob({MAX_MESSAGE_BYTES}) WHERE id = 1")
    craft(path, f"UPDATE messages SET body = zeroblob({MAX_MESSAGE_BYTES + 1}) WHERE id = 2")
    engine = Engine(path)
    await engine.open()
    assert len(await getattr(engine.queues, call)("queue", 1)) == 1
    with pytest.raises(Fault, match="damaged"):
        await getattr(engine.queues, call)("queue", 2)
    await engine.close()


async def test_a_message_with_a_number_of_many_digits(path: Path) -> None:
    """A message is renewed and deleted whatever its number is, and a number that there is not is of no message."""
    engine = Engine(path)
    await engine.open()
    await engine.queues.create_queue("queue")
    await engine.queues.put("queue", b"first")
    await engine.close()
    craft(path, "UPDATE sqlite_sequence SET seq = 2000000000000000000 WHERE name = 'messages'")
    await engine.open()
    await engine.queues.put("queue", b"second")
    taken = await engine.queues.take("queue", 2)
    assert [len(message.id) for message in taken] == [1, 19]
    for message in taken:
        await engine.queues.delete("queue", await engine.queues.renew("queue", message, 30))
    assert await engine.queues.length("queue") == 0
    await engine.close()


async def test_a_write_that_fails_undoes_no_other(path: Path) -> None:
    """Where SQLite refuses what one caller writes, the writes of others in the same transaction are done."""
    engine = Engine(path)
    await engine.open()
    written = asyncio.create_task(engine.write("Things", _ROW))
    failed = asyncio.create_task(
        engine.submit(lambda session: session.connection.execute("UPDATE clock SET tick = 0.5"))
    )
    with pytest.raises(Fault, match="cannot store REAL value"):
        await failed
    assert (await engine.get("Things", "p", "new"))["odata.etag"] == await written
    await engine.close()
