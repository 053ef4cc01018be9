"""
Sweeps: what has expired is deleted with all that is derived from it, and nothing else is.
"""

import asyncio
import datetime as dt
import random
from collections.abc import Awaitable, Callable

import pytest

from tableorm import (
    AccessDenied,
    Count,
    CursorError,
    Database,
    Entity,
    EntityNotFound,
    Index,
    Mapped,
    ModelError,
    PreconditionFailed,
    PropertyBag,
    SweepReport,
    TableNotFound,
    field,
    upgrade,
    utc_now,
)
from tableorm.stores import CLOCK, QueueStore, Row, RowPage, RowQuery
from tests.database.between import Between
from tests.databases import database_fixture, memory_database
from tests.rows import insert_row
from tests.torture import seeds

pytestmark = pytest.mark.usefixtures("stopped_clock")

HOUR = dt.timedelta(hours=1)


class Expiring(Entity, abstract=True):
    id: Mapped[int]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)


class Ticket(Expiring, table="SweptTickets", partition_key="{show}", row_key="ticket_{id:05d}"):
    show: Mapped[str]
    holder: Mapped[str]
    scans: Mapped[int] = field(default=0, maintained=True)

    by_holder = Index(row_key="holder_{holder}_{id:05d}", unique=True)
    counted = Count(lambda: Show.tickets, create=True, show="{show}")


class Show(Entity, table="SweptTickets", partition_key="{show}", row_key="show"):
    show: Mapped[str]
    tickets: Mapped[int] = field(default=0, maintained=True)


class Scan(Entity, table="SweptTickets", partition_key="{show}", row_key="scan_{ticket:05d}"):
    show: Mapped[str]
    ticket: Mapped[int]

    counted = Count(lambda: Ticket.scans, show="{show}", id="{ticket}")


class Plain(Expiring, table="SweptPlain", partition_key="{part}", row_key="{id:05d}"):
    part: Mapped[str]


class Timed(Expiring, table="SweptTimed", partition_key="{part}", row_key="{id:05d}"):
    part: Mapped[str]

    by_expiry = Index(partition_key="expiry", row_key="at_{expires:ticks}_{part}_{id:05d}", consistency="eventual")


db = database_fixture(Ticket, Show, Scan, Plain, Timed)


async def insert_plain(db: Database, parts: str, count: int) -> None:
    """Insert entities of several partitions; of each partition every second one has expired."""
    async with db.bulk(errors="report") as bulk:
        for part in parts:
            for number in range(count):
                await bulk.insert(Plain(part=part, id=number, expires=utc_now() if number % 2 else None))
    assert not bulk.report.failures


async def rows(db: Database, table: str) -> int:
    return await db.select_raw(table).allow_scan().count()


async def test_only_expired_rows_are_sent(db: Database) -> None:
    """The service is asked for rows that have expired, and for their keys and times alone."""
    await insert_plain(db, "ab", 10)

    with db.observe() as seen:
        report = await db.sweep(Plain, parallel=1)

    queries = [each for each in seen.requests if each.operation == "query"]
    assert (report.entities, report.deleted) == (10, 10)
    assert [each.select for each in queries] == [("PartitionKey", "RowKey", "EntityType", "expires")]
    assert await rows(db, "SweptPlain") == 10


class Meanwhile(Between):
    """A store where somebody else writes after each page that was read."""

    act: Callable[[list[Row]], Awaitable[object]] | None = None

    @property
    def queues(self) -> QueueStore | None:
        return self.inner.queues

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        page = await super().query(table, query, limit, continuation)
        if self.act is not None and page.rows:
            await self.act(page.rows)
        return page


class Stopped(Exception):
    """Whoever swept was interrupted."""


async def test_it_goes_on_from_a_cursor(db: Database) -> None:
    """A sweep that is interrupted goes on where it was, and its report counts what was done before."""
    await insert_plain(db, "abcdefgh", 100)
    cursors: list[str] = []

    def stop(report: SweepReport) -> None:
        if report.cursor is not None and report.deleted >= 150:
            cursors.append(report.cursor)
            raise Stopped

    with pytest.raises(Stopped):
        await db.sweep(Plain, parallel=2, rate=1e9, on_progress=stop)
    left = await rows(db, "SweptPlain")
    assert 400 < left < 800

    report = await db.sweep(Plain, parallel=2, rate=1e9, cursor=cursors[0])

    assert 150 <= report.deleted <= 400 and report.cursor is None
    assert await rows(db, "SweptPlain") == 400
    with pytest.raises(CursorError):
        await db.sweep(Ticket, cursor=cursors[0])


async def test_by_an_index(db: Database) -> None:
    """By an index that begins with the time only entries and their entities are read; nothing visits the table."""
    ends = {1: None, 2: utc_now() - HOUR, 3: utc_now(), 4: utc_now() + HOUR}
    for number, each in ends.items():
        await db.insert(Timed(part="ab"[number % 2], id=number, expires=each))
    await insert_plain(db, "a", 1)

    with db.observe() as seen:
        report = await db.sweep(Timed)

    queries = [each for each in seen.requests if each.operation == "query" and each.table == "SweptTimed"]
    assert all("PartitionKey eq 'expiry'" in (each.filter or "") for each in queries) and queries
    assert (report.entities, report.deleted, report.cursor) == (2, 2, None)
    assert sorted(each.id for each in await db.select(Timed).allow_scan().all()) == [1, 4]
    async with db.worker(Timed) as worker:
        await worker.drain()
    assert await rows(db, "SweptTimed") == 3
    assert (await db.audit(Timed)).clean


async def test_an_entry_that_is_old_deletes_nothing(db: Database) -> None:
    """What the entity says counts: an entry may be left of a time that was put off."""
    entity = Timed(part="a", id=1, expires=utc_now() + HOUR)
    await db.insert(entity)
    (entry,) = [each for each in await db.select_raw("SweptTimed").allow_scan().all() if each.partition_key == "expiry"]
    late = entry.row_key.replace(entry.row_key.split("_")[1], "0" * 19)
    await insert_row(db, "SweptTimed", {**entry.row, "RowKey": late})

    report = await db.sweep(Timed)

    assert (report.entities, report.deleted) == (1, 0)
    assert await db.get(Timed, part="a", id=1) == entity


async def test_an_index_that_is_not_complete(db: Database) -> None:
    """It is passed over: the table is visited."""
    async with memory_database("SweptTimed") as other:
        await other.insert(Timed(part="a", id=1, expires=utc_now()))

        report = await other.sweep(Timed)

        assert report.deleted == 1


async def test_an_entity_that_others_need(db: Database) -> None:
    """It cannot be deleted: the sweep reports it, goes on, and deletes it when nothing needs it any more."""
    for number in (1, 2):
        await db.insert(Ticket(show="A", id=number, holder=f"h{number}", expires=utc_now()))
    scan = Scan(show="A", ticket=1)
    await db.insert(scan)

    report = await db.sweep(Ticket)

    assert (report.deleted, report.failed) == (1, 1)
    assert "('A', 'ticket_00001') in table SweptTickets: Conflict: " in str(report.failures[0])
    assert ", 1 failed, in" in str(report)
    await db.delete(scan)
    assert (await db.sweep(Ticket)).deleted == 1


async def test_rows_that_do_not_fit(db: Database) -> None:
    """A row whose time is no time is reported, where the service sends it, and stays; others are swept."""
    await insert_plain(db, "a", 4)
    row = {"PartitionKey": "a", "RowKey": "x", "EntityType": "Plain", "expires": "1999"}
    row["expires@odata.type"] = "Edm.DateTime"
    row["expires"] = "1999-01-01T00:00:00Z"
    await insert_row(db, "SweptPlain", row)

    report = await db.sweep(Plain)

    assert (report.deleted, report.failed) == (2, 1)
    assert report.failures[0].startswith("('a', 'x') in table SweptPlain: DecodeError: ")


class Visit(Expiring, table="SweptVisits", partition_key="p", row_key="{id:03d}", version=2): ...


@upgrade(Visit, from_version=1)
def _rename(bag: PropertyBag) -> PropertyBag:
    bag["expires"] = bag.pop("ends", None)
    return bag


async def test_versions() -> None:
    """A row of an older version expires as what it is upgraded to; one of a newer version is left to newer programs."""
    async with memory_database(Visit) as db:
        for kind, name, hours in (
            ("Visit", "ends", -1),
            ("Visit", "ends", 1),
            ("Visit:2", "expires", -1),
            ("Visit:3", "expires", -1),
        ):
            number = await rows(db, "SweptVisits")
            ends = f"{utc_now() + hours * HOUR:%Y-%m-%dT%H:%M:%SZ}"
            row = {"PartitionKey": "p", "RowKey": f"{number:03d}", "EntityType": kind, name: ends}
            await insert_row(db, "SweptVisits", {**row, f"{name}@odata.type": "Edm.DateTime"})

        report = await db.sweep(Visit)

        assert (report.entities, report.deleted) == (4, 2)
        left = await db.select_raw("SweptVisits").allow_scan().all()
        assert [bag.row_key for bag in left] == ["001", "003"]


class Parcel(Entity, table="SweptParcels", abstract=True, partition_key="p", discriminator="row_key"):
    id: Mapped[int]


class Box(Parcel, row_key="box_{id}"):
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)


class Bag(Parcel, row_key="bag_{id}", version=2):
    ends: Mapped[dt.datetime | None] = field(default=None, expiry=True)


class Letter(Parcel, row_key="letter_{id}"): ...


async def test_several_kinds() -> None:
    """A base stands for its classes that expire; their kinds may be told by their keys."""
    async with memory_database(Box, Bag, Letter) as db:
        await db.insert(Box(id=1, expires=utc_now()))
        await db.insert(Bag(id=1, ends=utc_now()))
        await db.insert(Bag(id=2))
        await db.insert(Letter(id=1))

        report = await db.sweep(Parcel)

        assert report.deleted == 2
        assert await db.select(Parcel).all() == [Bag(id=2), Letter(id=1)]


async def test_refusals(db: Database) -> None:
    """What cannot be swept is named, with what to do."""
    with pytest.raises(
        ModelError, match=r"sweep\(Show\) is rejected: its entities never expire, and it has no change feed; declare"
    ):
        await db.sweep(Plain, Show)
    with pytest.raises(ModelError, match=r"sweep\(\) needs at least one model"):
        await db.sweep()
    with pytest.raises(ModelError, match=r"sweep\(rate=0\) is rejected: give a number of rows"):
        await db.sweep(Plain, rate=0)
    with pytest.raises(ModelError, match=r"sweep\(parallel=0\) is rejected"):
        await db.sweep(Plain, parallel=0)
    with pytest.raises(AccessDenied, match="sweep"):
        await db.scope(part="a").sweep(Plain)
    await db.drop_table(Plain)
    with pytest.raises(TableNotFound):
        await db.sweep(Plain)


@seeds(1, 60)
async def test_sweepers_beside_writers(seed: int) -> None:
    """
    While the clock goes on, writers prolong lives and insert over what has expired, and sweepers delete: an entity that
    was written is found until its time, and every count is right in the end.
    """
    choose = random.Random(seed)
    backend = Meanwhile()
    async with Database(backend) as db:
        await db.create_tables(Ticket, Show)
        over = False

        async def pause(_: list[Row] | None = None) -> None:
            for _turn in range(choose.randrange(4)):
                await asyncio.sleep(0)

        backend.act = pause

        async def write(number: int) -> None:
            ticket: Ticket | None = None
            for _ in range(12):
                await pause()
                ends = utc_now() + choose.randrange(1, 4) * HOUR
                if ticket is None:
                    ticket = Ticket(show="A", id=number, holder=f"h{number}", expires=ends)
                    await db.insert(ticket)
                else:
                    ticket.expires = ends
                    try:
                        await db.save(ticket)
                    except (EntityNotFound, PreconditionFailed):  # it was swept
                        ticket = None
                        continue
                found = await db.get_or_none(Ticket, show="A", id=number)
                assert found == ticket or utc_now() >= ends
                await pause()
                ticket = await db.get_or_none(Ticket, show="A", id=number)
                assert ticket is not None or utc_now() >= ends

        async def tick() -> None:
            while not over:
                await pause()
                CLOCK.advance(dt.timedelta(minutes=choose.randrange(40)))

        async def sweep() -> None:
            while not over:
                report = await db.sweep(Ticket, parallel=1)
                assert not report.failed, report.failures
                await pause()

        others = [asyncio.create_task(each) for each in (tick(), sweep(), sweep())]
        await asyncio.gather(*(write(number) for number in range(4)))
        over = True
        await asyncio.gather(*others)
        live = await db.select(Ticket).where(Ticket.show == "A").all()
        assert len(live) == await db.select(Ticket).where(Ticket.show == "A").count()
        await db.sweep(Ticket)
        show = await db.get_or_none(Show, show="A")
        assert (0 if show is None else show.tickets) == len(live)
        assert (await db.audit(Ticket, Show)).clean
