"""
The window of a re-key: what its workers have begun to write when they are cancelled.
"""

import asyncio
from collections.abc import Iterable, Sequence

from tableorm.jobs.counts import JobCounts
from tableorm.jobs.process import Crew
from tableorm.stores import Row
from tableorm_migrations.rekey.window import Window


async def sort(rows: Sequence[Row], counts: JobCounts) -> list[tuple[str, Row]]:
    counts.entities += len(rows)
    return [(row["newer"], row) for row in rows]


def row(key: str, newer: str) -> Row:
    return {"PartitionKey": "p", "RowKey": key, "newer": newer}


async def test_nothing_is_written_after_the_workers_have_left() -> None:
    """If the workers of a process are cancelled, what they have begun to write ends before they do."""
    begun, ends = asyncio.Event(), list[str]()

    async def write(rows: Iterable[Row], counts: JobCounts) -> None:
        del counts
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ends.extend(row["RowKey"] for row in rows)
        raise AssertionError

    window = Window(sort, write, 10, Crew())

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
