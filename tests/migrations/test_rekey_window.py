"""
The window of a re-key: what several workers have read is written together.
"""

import asyncio
from collections.abc import Iterable, Sequence

from tableorm.stores import Row
from tableorm_migrations.rekey.window import Window
from tableorm_migrations.runs.process import Crew
from tableorm_migrations.runs.rows import RunCounts


class Written:
    """Notes what a window writes at a time: the RowKeys, in order."""

    def __init__(self) -> None:
        self.chunks: list[list[str]] = []

    async def sort(self, rows: Sequence[Row]) -> tuple[list[tuple[str, Row]], RunCounts]:
        counts = RunCounts.of(entities=len(rows), written=0, failed=0, failures=[])
        return [(row["newer"], row) for row in rows], counts

    async def write(self, rows: Iterable[Row]) -> RunCounts:
        self.chunks.append([row["RowKey"] for row in rows])
        return RunCounts.of(entities=0, written=len(self.chunks[-1]), failed=0, failures=[])


def row(key: str, newer: str) -> Row:
    return {"PartitionKey": "p", "RowKey": key, "newer": newer}


async def test_a_worker_that_is_expected_shares_the_window() -> None:
    """Workers take their ranges one after the other; the first one does not write its few rows by themselves."""
    written, crew, coming = Written(), Crew(), 2
    crew.expects_more = lambda working: working < coming
    window = Window(written.sort, written.write, 10, crew)

    async def work(number: int, pause: float) -> RunCounts:
        await asyncio.sleep(pause)
        async with window.join() as batch:
            await batch.add([row(str(number), "n")])
            return await batch.act()

    counts = await asyncio.gather(work(1, 0), work(2, 0.1))

    assert [sorted(keys) for keys in written.chunks] == [["1", "2"]]
    assert sum(each.written for each in counts) == 2
    assert [each.entities for each in counts] == [1, 1]


async def test_nobody_waits_for_a_worker_that_does_not_come() -> None:
    """A range that another process takes first brings no worker into the window."""
    written, crew, coming = Written(), Crew(), [2]
    crew.expects_more = lambda working: working < coming[0]
    window = Window(written.sort, written.write, 10, crew)
    async with window.join() as batch:
        await batch.add([row("1", "n")])
        writing = asyncio.create_task(batch.act())
        await asyncio.sleep(0.05)
        assert not written.chunks
        coming[0] = 1

        assert (await writing).written == 1


async def test_rows_are_written_in_the_order_of_newer_partitions() -> None:
    """A partition is divided between two chunks only if it is larger than a chunk."""
    written = Written()
    window = Window(written.sort, written.write, 10, Crew(), chunk=4)
    async with window.join() as batch:
        await batch.add([row(str(number), "abbaacccccc"[number]) for number in range(11)])
        assert batch.full
        counts = await batch.act()

    assert written.chunks == [["0", "3", "4"], ["1", "2"], ["5", "6", "7", "8"], ["9", "10"]]
    assert (counts.entities, counts.written) == (11, 11)


async def test_nothing_is_written_after_the_workers_have_left() -> None:
    """If the workers of a process are cancelled, what they have begun to write ends before they do."""
    begun, ends = asyncio.Event(), list[str]()

    async def write(rows: Iterable[Row]) -> RunCounts:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ends.extend(row["RowKey"] for row in rows)
        raise AssertionError

    window = Window(Written().sort, write, 10, Crew())

    async def work() -> None:
        async with window.join() as batch:
            await batch.add([row("1", "n")])
            await batch.act()

    worker = asyncio.create_task(work())
    await begun.wait()
    worker.cancel()
    await asyncio.wait([worker])

    assert worker.cancelled()
    assert ends == ["1"]
