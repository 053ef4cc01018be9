"""
Sweeps trim change feeds; and entities that expire are noted as others are.
"""

import datetime as dt

import pytest

from tableorm import Database, Entity, Feed, Index, Mapped, PropertyBag, SweepReport, field, utc_now
from tableorm.stores import CLOCK
from tests.databases import database_fixture
from tests.derived.feed.staff import KEEP

DAY = dt.timedelta(days=1)


pytestmark = pytest.mark.usefixtures("stopped_clock")


class Seat(Entity, table="FedSeats", partition_key="{show}", row_key="seat_{id:03d}"):
    show: Mapped[str] = field(default="A")
    id: Mapped[int]
    holder: Mapped[str | None] = field(default=None)
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)

    by_holder = Index(row_key="holder_{holder}", unique=True)
    changes = Feed(keep=KEEP)


class Note(Entity, table="FedSeats", partition_key="{show}", row_key="note_{id:03d}"):
    show: Mapped[str] = field(default="A")
    id: Mapped[int]

    changes = Feed(keep=KEEP)


class Timed(Entity, table="FedTimed", partition_key="{part}", row_key="{id:03d}"):
    part: Mapped[str] = field(default="p")
    id: Mapped[int]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)

    by_expiry = Index(partition_key="expiry", row_key="at_{expires:ticks}_{part}_{id:03d}", consistency="eventual")
    changes = Feed(keep=KEEP)


db = database_fixture(Seat, Timed)


def let_changes_age() -> None:
    CLOCK.advance(KEEP + DAY)


async def noted(db: Database, model: type[Seat | Note | Timed] = Seat, **partition: str) -> list[list[str]]:
    """Return what each change that is kept says."""
    found = [change async for change in db.changes(model, **(partition or {"show": "A"}))]
    assert (
        [change.number for change in found] == [*range(found[0].number, found[0].number + len(found))]
        if found
        else True
    )
    return [[f"{each.verb} {each.key.row_key}" for each in change.entities] for change in found]


async def test_what_a_sweep_deletes_is_noted_and_what_is_old_is_trimmed(db: Database) -> None:
    """Both by one scan, whichever model of the table is swept; the report counts both."""
    for show in "ABC":
        await db.insert(Seat(show=show, id=1, holder="x", expires=utc_now() + DAY))
        await db.insert(Seat(show=show, id=2, expires=utc_now() + DAY))
        await db.insert(Note(show=show, id=3))
    let_changes_age()
    await db.insert(Seat(id=4, holder="x2"))

    report = await db.sweep(Seat, Note)

    assert (report.deleted, report.trimmed, report.failed, report.entities) == (6, 9, 0, 6)
    assert str(report).startswith("6 expired entities deleted, 9 changes trimmed, in ")
    assert await noted(db) == [["insert seat_004"], ["delete seat_001", "delete seat_002"]]
    assert await noted(db, show="B") == [["delete seat_001", "delete seat_002"]]
    assert (await db.audit(Seat, Note)).clean
    assert (await db.sweep(Note)).trimmed == 0
    let_changes_age()
    assert (await db.sweep(Note)).trimmed == 4


async def test_an_insert_over_an_expired_entity_is_an_update(db: Database) -> None:
    """The row was there, and is replaced; alone, in a transaction, and with its unique value."""
    await db.insert(Seat(id=1, holder="x", expires=utc_now() + DAY))
    await db.insert(Seat(id=2, expires=utc_now() + DAY))
    CLOCK.advance(2 * DAY)

    await db.insert(Seat(id=1, holder="x"))
    async with db.transaction() as tx:
        tx.insert(Seat(id=2, holder="y"))
        tx.insert(Seat(id=3))

    assert (await noted(db))[2:] == [["update seat_001"], ["update seat_002", "insert seat_003"]]
    assert (await db.audit(Seat)).clean


async def test_a_bulk_over_expired_entities_notes_each_once(db: Database) -> None:
    """Whatever the bulk has to repeat for those that are there."""
    for number in range(0, 20, 3):
        await db.insert(Seat(id=number, expires=utc_now() + DAY))
    CLOCK.advance(2 * DAY)
    async with db.bulk(errors="report") as bulk:
        for number in range(20):
            await bulk.insert(Seat(id=number))

    assert (bulk.report.written, bulk.report.failures) == (20, 0)
    changes = [each for change in (await noted(db))[7:] for each in change]
    assert sorted(changes) == sorted(
        f"{'insert' if number % 3 else 'update'} seat_{number:03d}" for number in range(20)
    )
    assert (await db.audit(Seat)).clean


async def test_a_sweep_by_an_index_trims_too(db: Database) -> None:
    """Entities are found by the index, and counters by a scan for nothing else."""
    for number in range(3):
        await db.insert(Timed(id=number, expires=utc_now() + DAY))
    let_changes_age()

    report = await db.sweep(Timed, parallel=1)

    assert (report.deleted, report.trimmed, report.entities) == (3, 3, 3)
    assert await noted(db, Timed, part="p") == [["delete 000", "delete 001", "delete 002"]]


async def test_a_damaged_counter_stops_no_other_feed(db: Database) -> None:
    """The report names it."""
    for show in "AB":
        await db.insert(Note(show=show, id=1))
    bag = await db.get(PropertyBag.key("FedSeats", "A", "~f_counter"))
    bag["Last"] = -1
    await db.save(bag)
    let_changes_age()

    report = await db.sweep(Note)

    assert (report.trimmed, report.failed) == (1, 1)
    assert str(report.failures[0]).startswith("('A', '~f_counter') in table FedSeats: DecodeError: ")


async def test_a_sweep_that_is_resumed_counts_each_change_once(db: Database) -> None:
    """From the cursor of any report."""
    for number in range(30):
        await db.insert(Note(show=f"{number:02d}", id=1))
    let_changes_age()
    cursors: list[str] = []

    def note(report: SweepReport) -> None:
        if report.trimmed and report.cursor is not None:
            cursors.append(report.cursor)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        await db.sweep(Note, parallel=2, on_progress=note)
    resumed = await db.sweep(Note, parallel=2, cursor=cursors[0])

    assert resumed.trimmed == 30
    assert await noted(db, Note, show="17") == []


async def test_a_limit_of_deletes_in_a_second_limits_transactions(db: Database) -> None:
    """None has more changes than may be deleted in a second."""
    for number in range(60):
        await db.insert(Note(id=number))
    let_changes_age()

    report = await db.sweep(Note, parallel=1, rate=1000)
    assert report.trimmed == 60
    for number in range(5):
        await db.insert(Note(id=100 + number))
    let_changes_age()
    with db.observe() as seen:
        assert (await db.sweep(Note, parallel=1, rate=40)).trimmed == 5
    assert [len(each.operations) for each in seen.requests if each.operation == "transaction"] == [6]
