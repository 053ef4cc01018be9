"""
Segments of an audit: what is reported after each, and what is read again for its candidates.
"""

from collections.abc import Callable

import pytest

from tableorm import AuditReport, Database, Entity, Index, Mapped
from tableorm.audit import audit as auditing
from tableorm.audit import segment
from tableorm.jobs import scan
from tableorm.stores import Verb
from tests.audit.foreign import Employee, everyone, write
from tests.database.between import Awkward, Between, Shuffled
from tests.rows import delete_row, insert_row

PARTITIONS = 6
ROWS = 15  # of a partition: five entities, and their index entries


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition has about two pages, and is a segment."""
    monkeypatch.setattr(auditing, "SEGMENT", 5)
    monkeypatch.setattr(scan, "MAX_PAGE", 8)


async def fill(db: Database) -> None:
    await db.create_tables(Employee)
    for number in range(PARTITIONS):
        for employee in everyone(f"D{number}"):
            await db.insert(employee)


async def test_each_segment_is_reported(db: Database) -> None:
    """After each, a report has its entities, and goes on behind it."""
    await fill(db)
    reports: list[AuditReport] = []

    whole = await db.audit(Employee, parallel=1, on_progress=reports.append)

    assert len(reports) == PARTITIONS
    assert [report.entities for report in reports] == [5, 10, 15, 20, 25, 30]
    for report in reports[:-1]:
        rest = await db.audit(Employee, parallel=1, cursor=report.cursor)
        assert rest.entities == whole.entities
        assert rest.derived_rows == whole.derived_rows
        assert rest.requests < whole.requests + 3
    assert reports[-1].cursor is None


@pytest.mark.parametrize("damaged", ["D0", "D3", "D5"])
async def test_candidates_are_looked_for_in_their_segment(db: Database, damaged: str) -> None:
    """Damage costs the pages of one partition, and not those before and behind it."""
    await fill(db)
    clean = await db.audit(Employee, parallel=1)
    await write(db, Verb.DELETE, damaged, "email_e1@x")

    report = await db.audit(Employee, parallel=1)

    assert report.counts == {"missing": 1}
    assert [finding.partition_key for finding in report.findings] == [damaged]
    pages = 2 * 2  # of the partition, once for each phase of its candidates
    looks = 4 + 1  # at the entity and its index entries, and once more at the entity
    assert report.requests <= clean.requests + pages + looks


@pytest.mark.parametrize("repair", [False, True])
async def test_requests_are_counted(db: Database, repair: bool) -> None:
    """A report says how many were sent: for pages, for looks at rows, and for the deletes of index entries."""
    await fill(db)
    for name in ("D1", "D4"):
        await write(db, Verb.DELETE, name, "empid_000001")
    before = db.stats.requests

    report = await db.audit(Employee, repair=repair)

    assert report.counts == {"orphan": 6}
    assert report.requests == db.stats.requests - before


@pytest.mark.parametrize(
    ("store", "steps"), [(lambda: Awkward(3), PARTITIONS), (Shuffled, 1)], ids=["awkward", "shuffled"]
)
async def test_a_segment_ends_where_a_partition_does(store: Callable[[], Between], steps: int) -> None:
    """Whatever pages a store gives, empty ones too; where it has no order all rows are one segment."""
    async with Database(store()) as db:
        await fill(db)
        await write(db, Verb.DELETE, "D3", "email_e1@x")
        reports: list[AuditReport] = []

        report = await db.audit(Employee, parallel=1, on_progress=reports.append)

    assert (report.counts, report.undecided) == ({"missing": 1}, 0)
    assert (report.entities, len(reports)) == (5 * PARTITIONS, steps)


class Guest(Entity, table="SegmentGuests", partition_key="{house}", row_key="guest_{id}"):
    house: Mapped[str]
    id: Mapped[int]
    city: Mapped[str]

    by_city = Index(partition_key="city_{city}", row_key="in_{house}_{id}", consistency="eventual")


async def test_what_is_wrong_twice_does_not_make_up_for_itself(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entity without its entry and an entry without an entity are found, also where their claims are added up."""
    monkeypatch.setattr(segment, "_SUMS", 1)
    monkeypatch.setattr(segment, "_ZEROS", bytes(8))
    await db.create_tables(Guest)
    await db.insert(Guest(house="a", id=1, city="Rome"))
    keys = {"PartitionKey": "city_Rome", "RowKey": "in_a_1"}
    await delete_row(db, "SegmentGuests", keys)
    stray = {"PartitionKey": "city_Rome", "RowKey": "in_b_2", "EntityType": "Guest#by_city"}
    await insert_row(db, "SegmentGuests", {**stray, "_of": '["SegmentGuests","b","guest_2"]'})

    report = await db.audit(Guest, parallel=1)

    assert report.counts == {"missing": 1, "orphan": 1}
