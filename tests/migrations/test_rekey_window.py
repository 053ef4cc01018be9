"""
The window of a re-key: what several workers have read is written together.
"""

import asyncio

from tableorm.stores import Row
from tableorm_migrations.rekey.window import Window
from tableorm_migrations.runs.rows import RunCounts


async def test_a_worker_that_comes_a_little_later_shares_the_window() -> None:
    """Workers take their ranges one after the other; the first one does not write its few rows by themselves."""
    written = list[list[str]]()

    async def write(rows: list[Row]) -> RunCounts:
        written.append([row["RowKey"] for row in rows])
        return RunCounts.of(entities=0, written=len(rows), failed=0, failures=[])

    window = Window(write)

    async def work(number: int, turns: int) -> RunCounts:
        for _ in range(turns):
            await asyncio.sleep(0)
        async with window.join():
            return await window.write([("p", {"PartitionKey": "p", "RowKey": str(number)})])

    counts = await asyncio.gather(work(1, 0), work(2, 20))

    assert [sorted(rows) for rows in written] == [["1", "2"]]
    assert sum(each.written for each in counts) == 2


async def test_nothing_is_written_after_the_workers_have_left() -> None:
    """If the workers of a process are cancelled, what they have begun to write ends before they do."""
    begun, ends = asyncio.Event(), list[str]()

    async def write(rows: list[Row]) -> RunCounts:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ends.append(rows[0]["RowKey"])
        raise AssertionError

    window = Window(write)

    async def work() -> None:
        async with window.join():
            await window.write([("p", {"PartitionKey": "p", "RowKey": "1"})])

    worker = asyncio.create_task(work())
    await begun.wait()
    worker.cancel()
    await asyncio.wait([worker])

    assert worker.cancelled()
    assert ends == ["1"]
