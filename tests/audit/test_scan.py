"""
Pages of an audit: where the last partition of a page begins, and how fast pages are read.
"""

import asyncio

import pytest

from tableorm import Database, PropertyBag
from tableorm.audit.ranges import RangeCounts
from tableorm.audit.scan import pages, partition_start
from tableorm.connection.connection import connection_of
from tableorm.keys.ranges import KeyRegion
from tableorm.stores import Bounds
from tableorm.writes.bulk.pacing import Pace


@pytest.mark.parametrize(
    ("keys", "before", "start"),
    [
        ("aab", None, 2),
        ("abb", None, 1),
        ("abb", "a", 1),
        ("bbb", "a", 0),
        ("bbb", "b", None),
        ("bbb", None, None),
        ("abcc", "a", 2),
    ],
)
def test_the_last_partition_of_a_page(keys: str, before: str | None, start: int | None) -> None:
    """It begins behind the last row of another partition, which may be the row before the page."""
    assert partition_start([{"PartitionKey": key} for key in keys], before) == start


class Counted(Pace):
    """A pace that takes no time, and tells for how many rows it was asked."""

    def __init__(self) -> None:
        super().__init__(2.0)
        self.rows: list[int] = []

    async def wait(self, count: int) -> bool:
        self.rows.append(count)
        return True


async def test_a_pace_counts_the_rows_of_each_page(db: Database) -> None:
    """
    Before a page is given out, the pace is asked for as many rows as the page has, which are those of a second; and the
    statistics count them.
    """
    await connection_of(db).store.create_table("ScannedRows")
    for number in range(5):
        await db.insert(PropertyBag("ScannedRows", "p", f"{number}"))
    pace = Counted()
    given: list[int] = []

    regions = [KeyRegion(Bounds.only("p"))]
    async for rows in pages(connection_of(db), "ScannedRows", None, regions, None, "audit", pace):
        given.append(len(rows))
        assert pace.rows == given

    assert given == [2, 2, 1]
    assert db.stats.counts["query", ""].rows == 5


async def test_properties_that_are_not_asked_for_are_not_read(db: Database) -> None:
    """Rows have those that are, as a sweep asks for the few that it needs."""
    await connection_of(db).store.create_table("ScannedProperties")
    await db.insert(PropertyBag("ScannedProperties", "p", "r", {"Note": "long", "Kind": "x"}))

    found = pages(connection_of(db), "ScannedProperties", None, [KeyRegion()], None, "sweep", select=("Kind",))

    assert [[*row] for rows in [rows async for rows in found] for row in rows] == [["odata.etag", "Kind"]]


@pytest.mark.parametrize(("ahead", "sent"), [(True, [2, 3, 3]), (False, [1, 2, 3])])
async def test_the_next_page_is_read_ahead_if_that_is_asked_for(db: Database, ahead: bool, sent: list[int]) -> None:
    """While a page is worked on, the next one is on its way, or nothing is: each page is asked for once."""
    await connection_of(db).store.create_table("ScannedAhead")
    for number in range(5):
        await db.insert(PropertyBag("ScannedAhead", "p", f"{number}"))
    counts, seen = RangeCounts(), list[int]()

    regions = [KeyRegion(Bounds.only("p"))]
    async for rows in pages(connection_of(db), "ScannedAhead", None, regions, counts, "audit", Counted(), ahead=ahead):
        await asyncio.sleep(0)  # a task that was begun sends its request
        seen.append(counts.requests)
        assert rows

    assert seen == sent


async def test_a_reader_that_stops_leaves_no_request(db: Database) -> None:
    """The page that was asked for ahead is given up, without an error."""
    await connection_of(db).store.create_table("ScannedInPart")
    for number in range(3):
        await db.insert(PropertyBag("ScannedInPart", "p", f"{number}"))
    scan = pages(connection_of(db), "ScannedInPart", None, [KeyRegion(Bounds.only("p"))], None, "audit", Counted())
    assert len(await anext(scan)) == 2
    before = asyncio.all_tasks()

    await scan.aclose()

    assert len(before - asyncio.all_tasks()) == 1
