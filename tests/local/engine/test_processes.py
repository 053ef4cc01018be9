"""
Several processes on one file: all arrive, in turn; a table may vanish under a reader; a lock may be held too long.
"""

import asyncio
import subprocess
from pathlib import Path

import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Operation, Verb
from tableorm.testing.contract.base import everything
from tableorm_local.engine import Engine
from tests.local.engine.conftest import Child, opened
from tests.local.engine.rows import row
from tests.rows import insert_row


def told(process: "subprocess.Popen[str]", line: str) -> None:
    """Send a line."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def heard(process: "subprocess.Popen[str]") -> str:
    """Wait for a line."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.one_of(2, group="processes")
async def test_four_writers(engine: Engine, path: Path, child: Child) -> None:
    """Four processes write at once: every row arrives once, no ETag occurs twice, none waits for the others' end."""
    count = 120
    children = [child("write_rows", path, run, count) for run in "abcd"]
    for process in children:
        assert heard(process) == "ready"
    for process in children:
        told(process, "go")
    await asyncio.gather(*(asyncio.to_thread(process.wait) for process in children))
    tags = [line.split()[2] for process in children if process.stdout is not None for line in process.stdout]

    rows = await everything(engine, "Shared")
    assert len(rows) == 4 * count
    assert sorted(tags) == sorted(each["odata.etag"] for each in rows)
    assert len(set(tags)) == 4 * count
    # Each finishes its first half before any other has written twice as much as that.
    order = [each["PartitionKey"] for each in sorted(rows, key=lambda each: str(each["Timestamp"]))]
    for run in "abcd":
        half = [place for place, each in enumerate(order) if each == run][count // 2]
        others = [order[:half].count(other) for other in "abcd" if other != run]
        assert max(others) <= count


@pytest.mark.parametrize("verb", [Verb.INSERT, Verb.INSERT_OR_MERGE])
@pytest.mark.parametrize("count", [1, 2])
async def test_recreated_by_another_engine(engine: Engine, path: Path, verb: Verb, count: int) -> None:
    """A table that was deleted and made again elsewhere is the new one, for reads, writes and transactions, or none."""
    await insert_row(engine, "Shared", row("old"))
    async with opened(path) as other:
        await other.delete_table("shared")
        await other.create_table("shared")
        operations = [Operation(verb, row(f"new{number}")) for number in range(count)]

        async def write() -> None:
            await (engine.write("Shared", operations[0]) if count == 1 else engine.transact("Shared", operations))

        await write()
        assert [each["RowKey"] for each in await everything(engine, "Shared")] == ["new0", "new1"][:count]
        await other.delete_table("shared")
    for _ in range(2):
        with pytest.raises(Fault) as caught:
            await write()
        assert (caught.value.code, caught.value.message) == (
            Code.TABLE_NOT_FOUND,
            "The table specified does not exist.",
        )


def hold(child: Child, path: Path) -> subprocess.Popen[str]:
    """Start a process that holds the lock."""
    holder = child("hold", path)
    assert heard(holder) == "held"
    return holder


async def test_held_lock(engine: Engine, path: Path, child: Child) -> None:
    """While another process holds the lock, reads go on and writes wait; they go on when it is given back."""
    holder = hold(child, path)
    writes = [asyncio.ensure_future(insert_row(engine, "Shared", row(str(n)))) for n in range(20)]
    await asyncio.sleep(0.05)

    assert not any(write.done() for write in writes)
    assert await everything(engine, "Shared") == []
    writes[3].cancel()
    told(holder, "go")
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert isinstance(outcomes[3], asyncio.CancelledError)
    assert len(await everything(engine, "Shared")) == 19


async def test_lock_held_too_long(path: Path, child: Child) -> None:
    """A write that waited its time-out is rejected, naming file and cause; it does not happen later."""
    async with opened(path, "Shared", patience=0.1) as engine:
        holder = hold(child, path)
        with pytest.raises(Fault) as caught:
            await insert_row(engine, "Shared", row("late"))

        assert caught.value.code == Code.SERVER_BUSY
        assert str(path) in caught.value.message
        assert "another process holds the write lock" in caught.value.message
        told(holder, "go")
        holder.wait()
        await insert_row(engine, "Shared", row("after"))
        assert [each["RowKey"] for each in await everything(engine, "Shared")] == ["after"]


async def test_close_while_another_process_holds_the_lock(path: Path, child: Child) -> None:
    """Closing waits for queued writes no longer than their time-out, and then ends."""
    async with opened(path, "Shared", patience=0.1) as engine:
        holder = hold(child, path)
        write = asyncio.ensure_future(insert_row(engine, "Shared", row("late")))
        await asyncio.sleep(0)

    with pytest.raises(Fault, match="another process"):
        await write
    told(holder, "go")
