"""
The engine and its event loop: nothing blocks it, cancelling and closing leave nothing behind.
"""
# ruff: noqa: ASYNC240 - a test may look at its files

import asyncio
import gc
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.filters import Compare, Op, constant
from tableorm.stores import Bounds, Operation, RowQuery, Verb
from tableorm_local.engine import Engine
from tableorm_local.engine.files import Files, open_file
from tableorm_local.engine.worker import ThreadWorker
from tests.local.engine.conftest import opened
from tests.local.engine.rows import row
from tests.local.engine.turns import Turns
from tests.rows import insert_row
from tests.torture import Rounds


async def threads_end(path: Path) -> None:
    """Wait until no thread of an engine with this file runs."""
    for thread in threading.enumerate():
        if thread.name.startswith("tableorm") and str(path) in thread.name:
            await asyncio.to_thread(thread.join, 30)
            assert not thread.is_alive()


async def fill(engine: Engine, count: int, **properties: object) -> None:
    for start in range(0, count, 100):
        numbers = range(start, min(start + 100, count))
        await engine.transact("Shared", [Operation(Verb.INSERT, row(f"{n:06d}", N=n, **properties)) for n in numbers])


async def test_loop_turns_between_reads(engine: Engine) -> None:
    """A task that reads row after row, or page after page, lets others run, though no read by itself has to wait."""
    await fill(engine, 2000)
    turns = Turns()
    for number in range(2000):
        await engine.get("Shared", "p", f"{number:06d}")
    points = turns.count
    for _ in range(100):
        await engine.query("Shared", RowQuery(), limit=500)

    assert points >= 5
    assert await turns.stop() >= points + 5


async def test_a_few_reads_wait_for_nobody(engine: Engine) -> None:
    """Reads that together take less than a millisecond give their answers without a turn of the event loop."""
    await fill(engine, 50)
    turns = Turns()
    before = turns.count
    for number in range(50):
        await engine.get("Shared", "p", f"{number:06d}")

    assert turns.count == before
    await turns.stop()


async def test_loop_turns_during_a_skipping_scan(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row bounds in many partitions are looked for in slices too."""
    monkeypatch.setattr("tableorm_local.engine.engine._SLICE_SECONDS", 0.0002)
    for first in range(100):
        rows = [{"PartitionKey": f"{first:03d}", "RowKey": f"{second:02d}"} for second in range(100)]
        await engine.transact("Shared", [Operation(Verb.INSERT, each) for each in rows])
    query = RowQuery(row=Bounds("50", "51"))
    turns = Turns()
    page = await engine.query("Shared", query)

    assert len(page.rows) == 200
    assert await turns.stop() >= 3


async def test_large_transaction_lets_others_run(engine: Engine) -> None:
    """Merging into large rows, a hundred in one transaction, is not done in one go on the event loop."""
    large = {f"P{number}": "x" * 3000 for number in range(10)}
    await fill(engine, 100, **large)
    turns = Turns()
    merges = [Operation(Verb.MERGE, row(f"{n:06d}", **large), "*") for n in range(100)]
    await engine.transact("Shared", merges)

    assert await turns.stop() >= 3


async def test_continuation_of_another_table(engine: Engine) -> None:
    """A continuation leads nowhere but in its own table; the spelling of that does not matter."""
    await engine.create_table("Other")
    await fill(engine, 10)
    page = await engine.query("Shared", RowQuery(), limit=5)

    assert len((await engine.query("SHARED", RowQuery(), continuation=page.continuation)).rows) == 5
    with pytest.raises(Fault, match="of another table") as caught:
        await engine.query("Other", RowQuery(), continuation=page.continuation)
    assert caught.value.code == Code.INVALID_INPUT


async def test_continuation_does_not_widen_a_query(engine: Engine) -> None:
    """With the continuation of another query, nothing outside of this one's bounds is returned."""
    await fill(engine, 20)
    page = await engine.query("Shared", RowQuery(), limit=2)

    narrow = RowQuery(Bounds.only("p"), Bounds("000010", "000012"))
    rows = (await engine.query("Shared", narrow, continuation=page.continuation)).rows
    assert [each["RowKey"] for each in rows] == ["000010", "000011", "000012"]


async def test_bounds_with_the_forbidden_nul(engine: Engine) -> None:
    """A bound may hold U+0000, as in "just after this key", though no key does."""
    await fill(engine, 4)
    after = RowQuery(Bounds("p\0", None))
    until = RowQuery(Bounds(None, "p\0", upper_open=True), Bounds("000001\0", "000002\0"))
    never = RowQuery(Bounds.only("p\0"))

    assert (await engine.query("Shared", after)).rows == []
    assert [each["N"] for each in (await engine.query("Shared", until)).rows] == [2]
    assert (await engine.query("Shared", never)).rows == []


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (("a\ud800", "r"), r"PartitionKey 'a\ud800' has a lone surrogate U+D800 at position 1."),
        (("p", "a\ud800"), r"RowKey 'a\ud800' has a lone surrogate U+D800 at position 1."),
        (("a/", "r"), "PartitionKey 'a/' has the forbidden character U+002F at position 1."),
        (("p", "a/"), "RowKey 'a/' has the forbidden character U+002F at position 1."),
    ],
)
async def test_a_point_read_of_a_key_that_no_row_can_have(memory: Engine, keys: tuple[str, str], said: str) -> None:
    """It says which key that is and why, and not that the row is missing."""
    with pytest.raises(Fault) as caught:
        await memory.get("Shared", *keys)
    assert (caught.value.code, caught.value.message) == (Code.KEY_OUT_OF_RANGE, said)


async def test_close_during_writes(engine: Engine) -> None:
    """Closing finishes what was asked for; what is asked for later gets a clear fault."""
    writes = [asyncio.create_task(insert_row(engine, "Shared", row(str(n)))) for n in range(50)]
    await asyncio.sleep(0)
    await asyncio.gather(engine.close(), engine.close())
    assert all([isinstance(await write, str) for write in writes])

    for call in (engine.get("Shared", "p", "1"), engine.list_tables(), engine.query("Shared", RowQuery())):
        with pytest.raises(Fault, match="is closed"):
            await call
    with pytest.raises(Fault, match="is closed"):
        await insert_row(engine, "Shared", row("x"))
    await engine.open()
    assert len((await engine.query("Shared", RowQuery())).rows) == 50


async def test_close_during_deletions(engine: Engine) -> None:
    """What was asked to be deleted before the engine is closed is deleted, and whoever asked for it is told so."""
    await engine.create_table("Other")
    await engine.queues.create_queue("queue")
    for name in ("container", "other"):
        await engine.blobs.create_container(name)
        await engine.blobs.put(name, "blob", b"data")
    calls = (
        engine.delete_table("Other"),
        engine.queues.delete_queue("queue"),
        engine.blobs.delete_container("container"),
        engine.blobs.delete("other", "blob"),
    )
    deletions = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0)
    await engine.close()

    assert await asyncio.gather(*deletions) == [None] * 4
    await engine.open()
    assert await engine.list_tables() == ["Shared"]
    assert await engine.queues.list_queues() == []
    assert await engine.blobs.list_containers() == ["other"]
    assert (await engine.blobs.list_blobs("other")).blobs == []


async def test_close_during_a_query(engine: Engine) -> None:
    """A page under way when the engine is closed ends with a clear fault."""
    await fill(engine, 20_000, Text="x" * 200)
    query = RowQuery(where=Compare("N", Op.LT, constant(0)))
    pages = asyncio.create_task(engine.query("Shared", query))
    await asyncio.sleep(0)
    await engine.close()

    with pytest.raises(Fault, match="is closed"):
        await pages


async def test_close_during_reclaim(engine: Engine, path: Path) -> None:
    """Closing does not wait until a large deleted table is given back; nothing is left running."""
    await fill(engine, 2000, Text="x" * 1000)
    await engine.delete_table("Shared")
    await asyncio.sleep(0)
    await engine.close()

    await threads_end(path)


async def test_not_open(path: Path) -> None:
    """Before open() every call says what is missing; opening twice is opening once."""
    engine = Engine(path)
    with pytest.raises(Fault, match=r"call open\(\) first"):
        await engine.list_tables()
    await asyncio.gather(engine.open(), engine.open())
    await engine.open()

    assert await engine.list_tables() == []
    await engine.close()
    await engine.close()


async def test_opened_by_two_tasks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks that open one engine at once open its file once: nobody would close the other one."""
    opened: list[str] = []

    def open_and_count(path: str, patience: float, *, create: bool) -> Files:
        opened.append(path)
        return open_file(path, patience, create=create)

    monkeypatch.setattr("tableorm_local.engine.engine.open_file", open_and_count)
    engine = Engine(path)
    await asyncio.gather(engine.open(), engine.open())
    await engine.close()

    assert opened == [str(path)]
    await threads_end(path)


async def test_other_event_loop(engine: Engine) -> None:
    """A call from another loop is rejected, saying so."""

    def elsewhere() -> str:
        with pytest.raises(Fault) as caught:
            asyncio.run(engine.get("Shared", "p", "r"))
        return caught.value.message

    assert "belongs to another event loop" in await asyncio.to_thread(elsewhere)


@pytest.mark.parametrize("content", [b"", b"no database"], ids=["opened", "refused"])
async def test_open_that_is_cancelled_when_it_is_done(
    path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """Between the result of the thread and the task that waits for it: the file is closed, and the thread ends."""
    path.write_bytes(content)
    run = ThreadWorker.run

    def cancel_after(self: ThreadWorker, job: Callable[[], Any], done: Callable[[Any], object]) -> None:
        def cancel(result: Any) -> None:
            done(result)
            opening.cancel()

        run(self, job, cancel)

    monkeypatch.setattr(ThreadWorker, "run", cancel_after)
    engine = Engine(path)
    opening = asyncio.create_task(engine.open())
    await asyncio.wait([opening])
    assert opening.cancelled()
    await threads_end(path)


async def test_cancelled_open(path: Path) -> None:
    """Cancelling open() at any moment leaves nothing open, and the file usable."""
    for turns in range(6):
        engine = Engine(path)
        opening = asyncio.create_task(engine.open())
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        await engine.close()
    async with opened(path, "Fine"):
        pass

    await threads_end(path)
    assert {each.name for each in path.parent.iterdir()} == {path.name, path.name + "-lock"}


def test_loop_that_ends_under_writes(path: Path, rounds: Rounds) -> None:
    """If the loop ends with writes under way and nobody closes, nothing is printed, stays locked or is half done."""
    script = """
import asyncio, sys
from tableorm.stores import Operation, Verb
from tableorm_local.engine import Engine

async def main():
    engine = Engine(sys.argv[1])
    await engine.open()
    await engine.create_table("Shared")
    for group in range(20):
        inserts = [Operation(Verb.INSERT, {"PartitionKey": str(group), "RowKey": str(n)}) for n in range(50)]
        asyncio.create_task(engine.transact("Shared", inserts))
    await asyncio.sleep(0.001 * int(sys.argv[2]))
    return engine

engine = asyncio.run(main())
if len(sys.argv) > 3:
    raise SystemExit  # with the engine alive to the end

async def again():
    from tableorm.stores import RowQuery
    other = Engine(sys.argv[1], timeout=5)
    await other.open()
    await other.create_table("After")
    rows, token = [], None
    while True:
        page = await other.query("Shared", RowQuery(), continuation=token)
        rows += [row["PartitionKey"] for row in page.rows]
        token = page.continuation
        if token is None:
            break
    print(all(rows.count(key) == 50 for key in set(rows)))
    await other.close()

asyncio.run(again())
"""
    for delay in range(0, 4, rounds(3, 1)):
        file = path.with_name(f"data{delay}")
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-c", script, str(file), str(delay)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert (done.stdout, done.stderr) == ("True\n", "")


async def test_forgotten_engine(path: Path) -> None:
    """An engine that nobody closes or keeps ends its thread."""
    engine = Engine(path)
    await engine.open()
    await engine.create_table("Shared")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del engine
        gc.collect()
        await threads_end(path)
    async with opened(path) as again:
        assert await again.list_tables() == ["Shared"]
