"""
The window of a re-key: what its workers have begun to write when they are cancelled.
"""

import asyncio
from collections.abc import Iterable, Sequence

from tableorm import Database, PropertyBag
from tableorm.connection.connection import connection_of
from tableorm.jobs.counts import JobCounts
from tableorm.jobs.process import Crew
from tableorm.jobs.ranges import JobRange
from tableorm.stores import Bounds, Row
from tableorm_migrations.rekey.sides import Window


async def sort(rows: Sequence[Row], counts: JobCounts) -> list[tuple[str, Row]]:
    counts.entities += len(rows)
    return [(row["newer"], row) for row in rows]


async def test_nothing_is_written_after_the_workers_have_left(db: Database) -> None:
    """If the workers of a process are cancelled, what they have begun to write ends before they do."""
    begun, ends = asyncio.Event(), list[str]()

    async def write(rows: Iterable[Row], counts: JobCounts) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ends.extend(row["RowKey"] for row in rows)
        raise AssertionError

    connection = connection_of(db)
    await connection.create_table("WindowRows")
    await db.insert(PropertyBag("WindowRows", "p", "1", {"newer": "n"}))
    window = Window(sort, write, 10, Crew())

    async def work() -> None:
        part = JobRange(table="WindowRows", partitions=Bounds())
        async for _ in window.walk(connection, part, None, "test", None):
            pass

    worker = asyncio.create_task(work())
    await begun.wait()
    worker.cancel()
    await asyncio.wait([worker])

    assert worker.cancelled()
    assert ends == ["1"]
