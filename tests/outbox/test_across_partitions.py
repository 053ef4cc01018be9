"""
Counts, sums and copies across partitions: what is right when nothing is left to do, and what an audit repairs.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from tableorm import (
    AuditReport,
    Conflict,
    Count,
    Damage,
    Database,
    DecodeError,
    Embedded,
    Entity,
    EntityNotFound,
    Index,
    Mapped,
    ModelError,
    PropertyBag,
    ReferenceNotFound,
    Sum,
    field,
)
from tableorm.stores import Row
from tableorm.testing.contract.base import everything
from tests.databases import memory_database
from tests.rows import delete_row, insert_row, merge_row, replace_row
from tests.torture import Rounds, seeds

pytestmark = pytest.mark.usefixtures("quick_workers")


class Office(Entity, table="Offices", partition_key="offices", row_key="office_{name}"):
    name: Mapped[str]
    title: Mapped[str]
    staff: Mapped[int] = field(default=0, maintained=True)
    pay: Mapped[int] = field(default=0, maintained=True)


OFFICE = Office.key(name="a")


class Titled(Entity, abstract=True):
    id: Mapped[int]
    title: Mapped[str | None] = field(default=None, maintained=True)


class Clerk(Titled, table="Clerks", partition_key="{town}", row_key="clerk_{id:05d}"):
    town: Mapped[str] = field(default="Bern")
    office: Mapped[str | None]
    salary: Mapped[int] = field(default=0)
    rank: Mapped[int] = field(default=0)

    counted = Count(lambda: Office.staff, name="{office}", consistency="eventual")
    paid = Sum("salary", lambda: Office.pay, name="{office}", consistency="eventual")
    by_office = Index(
        table="ByOffice",
        partition_key="{office}",
        row_key="clerk_{rank}_{town}_{id:05d}",
        include="keys",
        consistency="eventual",
    )
    works = Embedded(lambda: Office, {"title": "title"}, name="{office}", via=by_office, consistency="eventual")


class Branch(Titled, table="Branches", partition_key="{office}", row_key="branch_{id:05d}"):
    """Its own keys tell to which office it belongs."""

    office: Mapped[str]

    belongs = Embedded(lambda: Office, {"title": "title"}, name="{office}", consistency="eventual")


class Desk(Titled, table="Branches", partition_key="{office}", row_key="desk_{id:05d}"):
    """It is found by an index of its own partition."""

    office: Mapped[str]

    by_id = Index(row_key="by_{id:05d}", include="keys")
    stands = Embedded(lambda: Office, {"title": "title"}, name="{office}", consistency="eventual", via=by_id)


class Firm(Entity, table="Firms", partition_key="firms", row_key="{kind}_{name}", discriminator="row_key"):
    """A key tells its kind."""

    name: Mapped[str]
    title: Mapped[str]
    sites: Mapped[int] = field(default=0, maintained=True)


class Site(Titled, table="Sites", partition_key="{firm}", row_key="site_{id:05d}"):
    firm: Mapped[str]

    counted = Count(lambda: Firm.sites, name="{firm}", consistency="eventual")
    belongs = Embedded(lambda: Firm, {"title": "title"}, name="{firm}", consistency="eventual")


MODELS = (Office, Clerk, Branch, Desk)
TOWNS, OFFICES = ("Bern", "Oslo", "Rome"), ("a", "b", "c")


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with memory_database(*MODELS) as database:
        for name in OFFICES:
            await database.insert(Office(name=name, title=name))
        yield database


async def settle(db: Database) -> None:
    async with db.worker(*MODELS) as worker:
        await worker.drain()


async def settle_and_count(db: Database) -> int:
    """Return how many clerks workers read by their keys."""
    with db.observe() as seen:
        await settle(db)
    return sum(str(each).startswith("GET Clerks(PartitionKey='") for each in seen.requests)


async def repair(db: Database) -> AuditReport:
    return await db.audit(Clerk, Office, repair=True)


async def rename_office(db: Database) -> None:
    await db.modify(OFFICE, lambda office: office.evolve(title="new"))


async def find_wrong(db: Database) -> list[str]:
    """Return which totals and copies are wrong."""
    offices = {each.name: each async for each in db.select(Office).where(Office.name >= "")}
    clerks = [each async for each in db.select(Clerk).allow_scan()]
    branches = [each async for each in db.select(Branch, Desk).allow_scan()]
    staff, pay = Counter(each.office for each in clerks), Counter[str | None]()
    for each in clerks:
        pay[each.office] += each.salary
    wrong = [str(each) for each in offices.values() if (each.staff, each.pay) != (staff[each.name], pay[each.name])]
    titles: dict[str | None, str] = {name: each.title for name, each in offices.items()}
    holders: list[Clerk | Branch | Desk] = [*clerks, *branches]
    return wrong + [str(each) for each in holders if each.title != titles.get(each.office)]


async def insert_clerks(db: Database, count: int, offices: Sequence[str] = ("a", "b")) -> None:
    async with db.bulk() as bulk:
        for number in range(count):
            clerk = Clerk(town=TOWNS[number % 3], id=number, office=offices[number % len(offices)], salary=number)
            await bulk.insert(clerk)


@seeds(1, 60)
async def test_writers_that_race(seed: int, db: Database) -> None:
    """Whatever several tasks do with clerks and offices, totals and copies are right when nothing is left to do."""
    await insert_clerks(db, 12)
    rng = random.Random(seed)

    async def write() -> None:
        for _ in range(12):
            town, number = rng.choice(TOWNS), rng.randrange(12)
            clerk = await db.get_or_none(Clerk, town=town, id=number)
            with suppress(Conflict, EntityNotFound):
                match rng.randrange(6):
                    case 0:
                        office = await db.get(Office, name=rng.choice(OFFICES))
                        office.title = f"{rng.random()}"
                        await db.save(office)
                    case 1 if clerk is not None:
                        await db.delete(clerk)
                    case 2 if clerk is not None:
                        await db.move(clerk, town=rng.choice([each for each in TOWNS if each != town]))
                    case _ if clerk is None:
                        await db.insert(
                            Clerk(town=town, id=number, office=rng.choice(OFFICES), salary=rng.randrange(9))
                        )
                    case _:
                        clerk.office, clerk.salary = rng.choice((*OFFICES, None)), rng.randrange(9)
                        clerk.rank = rng.randrange(3)
                        await db.save(clerk)

    await asyncio.gather(*(write() for _ in range(4)))
    await settle(db)

    assert await find_wrong(db) == []
    assert (await db.audit(*MODELS)).findings == ()


async def test_a_new_title_while_clerks_change(db: Database, rounds: Rounds) -> None:
    """All holders get a new title, page by page, while others change their office; whoever stops, others go on."""
    count = rounds(240, 10_000)
    await insert_clerks(db, count)
    await rename_office(db)

    async def change() -> None:
        for number in range(0, 100, 2):
            async with asyncio.timeout(60):
                await db.modify(
                    Clerk.key(town=TOWNS[number % 3], id=number), lambda clerk: setattr(clerk, "office", "c")
                )

    changing = asyncio.create_task(change())
    for _ in range(3):
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1), db.worker(*MODELS) as worker:
                await worker.drain()
    await changing
    await settle(db)

    assert await find_wrong(db) == []


class _StopError(Exception):
    """A worker is ended."""


async def test_a_worker_goes_on_where_another_has_stopped(db: Database) -> None:
    """A page of holders that was noted is not read again by the worker that comes after."""
    await insert_clerks(db, 250, ["a"])
    await rename_office(db)
    titles = [each.title async for each in db.select(Clerk).allow_scan()]
    with suppress(_StopError):
        async with db.worker(*MODELS):
            while not any("Progress" in row for row in await everything(db.store, "Offices")):  # noqa: ASYNC110 - by workers
                await asyncio.sleep(0)
            raise _StopError
    read = await settle_and_count(db)

    assert titles.count("new") == 200  # by the writer
    assert 0 < read <= 50
    assert await find_wrong(db) == []


async def test_a_holder_of_a_newer_program_holds_up_no_others(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """All others get their copies, on pages before and after it; it gets its own when a program knows it."""
    monkeypatch.setattr("tableorm.outbox.worker._PUT_BACK_SECONDS", 1)
    await insert_clerks(db, 450, ["a"])
    bag = PropertyBag("Clerks", TOWNS[99 % 3], "clerk_00099", {"EntityType": "Clerk:2"})
    await db.merge(bag, if_match="*")
    await rename_office(db)
    await settle(db)

    titles = {each.id: each.title async for each in db.select(Clerk).allow_scan()}
    assert [number for number, title in titles.items() if title != "new"] == [99]
    read = await settle_and_count(db)
    assert 0 < read <= 200  # the page with it alone
    await db.merge(PropertyBag("Clerks", bag.partition_key, bag.row_key, {"EntityType": "Clerk"}), if_match="*")
    await settle(db)
    assert await find_wrong(db) == []


async def test_holders_in_the_partition_of_their_source(db: Database) -> None:
    """Holders whose PartitionKey tells their source are found by their keys, or by an index of that partition."""
    async with db.bulk() as bulk:
        for number in range(5):
            await bulk.insert(Branch(office="a", id=number))
            await bulk.insert(Desk(office="a", id=number))
    await rename_office(db)

    assert await find_wrong(db) == []


async def test_a_source_that_goes_and_comes_back(db: Database) -> None:
    """Copies of an office that is deleted become None, and follow an office that is inserted again."""
    await db.insert(Branch(office="c", id=1))
    await db.delete(await db.get(Office, name="c"))
    gone = await db.get(Branch, office="c", id=1)
    await db.insert(Office(name="c", title="again"))
    again = await db.get(Branch, office="c", id=1)

    assert (gone.title, again.title) == (None, "again")
    again.title = "again"
    await db.save(again)
    assert (await db.audit(*MODELS)).findings == ()


@pytest.mark.parametrize(
    "change", [{"Value": "x"}, {"Value": 1.5}, {"Field": "?"}, {"EntityType": "Odd"}, {"_of": "?"}]
)
async def test_a_damaged_row_of_a_count_lowers_no_total(db: Database, change: Row) -> None:
    """No worker or audit believes what it cannot read; when that is deleted, an audit sets the total right."""
    await insert_clerks(db, 6, ["a"])
    rows = await db.select_raw("Offices").where("EntityType eq '#_share'").allow_scan().all()
    damaged = next(row for row in rows if "staff" in row["Field"])
    await db.merge(PropertyBag("Offices", "offices", damaged.row_key, change), if_match="*")
    for number, town in enumerate(TOWNS):
        await db.insert(Clerk(town=town, id=10 + number, office="a"))
    await settle(db)
    report = await repair(db)

    assert (await db.get(OFFICE)).staff == 8
    assert report.undecided
    await db.delete(damaged, if_match="*")
    await repair(db)
    await repair(db)
    assert await find_wrong(db) == []


@pytest.mark.parametrize("change", [{"Value": "x"}, {"EntityType": "Odd"}])
async def test_a_damaged_subtotal_is_found(db: Database, change: Row) -> None:
    """Writes that would add to it are rejected, and the total stays; when it is deleted, an audit makes it anew."""
    await insert_clerks(db, 6, ["a"])
    rows = await db.select_raw("Clerks").where("EntityType eq '#_subtotal'").allow_scan().all()
    damaged = next(row for row in rows if "staff" in row["Field"])
    bag = PropertyBag("Clerks", damaged.partition_key, damaged.row_key, change)
    await db.merge(bag, if_match="*")
    with pytest.raises(DecodeError, match=r"~n_.*should be the row of a count"):
        await db.insert(Clerk(town=damaged.partition_key, id=10, office="a"))
    report = await repair(db)

    assert (await db.get(OFFICE)).staff == 6
    assert {each.damage for each in report.findings} <= {Damage.FOREIGN, Damage.BLOCKED}
    assert report.findings
    await db.delete(bag, if_match="*")
    await repair(db)
    assert await find_wrong(db) == []


async def test_what_is_counted_needs_an_office(db: Database) -> None:
    """An office that does not exist is rejected before anything is sent; one in which clerks are counted stays."""
    with pytest.raises(ReferenceNotFound, match="office_x"):
        await db.insert(Clerk(id=1, office="x"))
    await db.insert(Clerk(id=1, office="a"))
    with pytest.raises(Conflict, match="counted in it"):
        await db.delete(await db.get(OFFICE))


async def damage(db: Database, table: str, find: dict[str, str], change: Row | None) -> None:
    """Merge something into the first row with these properties, or delete it."""
    row = next(each for each in await everything(db.store, table) if all(each.get(n) == v for n, v in find.items()))
    keys = {"PartitionKey": row["PartitionKey"], "RowKey": row["RowKey"]}
    if change is None:
        await delete_row(db, table, keys)
    else:
        await merge_row(db, table, {**keys, **change})


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("table", "find", "change"),
    [
        pytest.param("Offices", {"RowKey": "office_a"}, {"staff": 77, "pay": 3}, id="a total"),
        pytest.param("Clerks", {"EntityType": "#_subtotal"}, {"Value@odata.type": "Edm.Int64", "Value": "9"}, id="sub"),
        pytest.param("Clerks", {"EntityType": "#_subtotal"}, None, id="no subtotal"),
        pytest.param("Offices", {"EntityType": "#_share"}, {"Value@odata.type": "Edm.Int64", "Value": "9"}, id="share"),
        pytest.param("Offices", {"EntityType": "#_share"}, None, id="no share"),
        pytest.param("Clerks", {"EntityType": "Clerk", "office": "a"}, {"title": "old"}, id="a copy"),
        pytest.param("Clerks", {"EntityType": "Clerk", "office": "a"}, None, id="a clerk"),
        pytest.param("Clerks", {"EntityType": "Clerk", "office": "a"}, {"_ix": "{}"}, id="a manifest"),
        pytest.param("Offices", {"RowKey": "office_a"}, {"_ix": "{}"}, id="the manifest of a source"),
    ],
)
async def test_an_audit_repairs(db: Database, table: str, find: dict[str, str], change: Row | None) -> None:
    """Wrong totals, subtotals and copies are found, and right after a repair; what is right nobody reports."""
    await insert_clerks(db, 9)
    assert (await db.audit(*MODELS)).findings == ()
    await damage(db, table, find, change)

    assert (await db.audit(*MODELS)).findings != ()
    for _ in range(2):
        await db.audit(*MODELS, repair=True)
    assert (await db.audit(*MODELS)).findings == ()
    assert await find_wrong(db) == []


class Room(Entity, table="Sites", partition_key="sites", row_key="room_{name}"):
    name: Mapped[str]
    guests: Mapped[int] = field(default=0, maintained=True)


class House(Entity, table="Sites", partition_key="sites", row_key="house_{name}"):
    name: Mapped[str]
    visitors: Mapped[int] = field(default=0, maintained=True)


class Guest(Entity, table="Guests", partition_key="{town}", row_key="guest_{id:05d}"):
    town: Mapped[str]
    id: Mapped[int]

    in_room = Count(lambda: Room.guests, name="a", consistency="eventual")
    in_house = Count(lambda: House.visitors, name="a", consistency="eventual")


async def test_an_audit_of_two_models_with_totals_in_one_table(db: Database) -> None:
    """What one of them has of a subtotal is not taken for what the other one has."""
    await db.create_tables(Room, House, Guest)
    await db.insert(Room(name="a"))
    await db.insert(House(name="a"))
    for number in range(3):
        await db.insert(Guest(town="Bern", id=number))

    assert (await db.audit(Guest, repair=True)).findings == ()
    assert (await db.get(House, name="a")).visitors == 3

    for row_key, change in ("house_a", {"visitors": 7}), ("room_a", {"guests": 9}):
        await damage(db, "Sites", {"RowKey": row_key}, change)
    assert len((await db.audit(Guest, repair=True)).findings) == 2
    assert ((await db.get(House, name="a")).visitors, (await db.get(Room, name="a")).guests) == (3, 3)


async def test_what_was_there_before(db: Database) -> None:
    """A build counts clerks, and gives copies to those, that were there before the declarations."""
    for number in range(30):
        row = {"PartitionKey": "Bern", "RowKey": f"clerk_{number:05d}", "EntityType": "Clerk", "office": "a"}
        number_row: dict[str, Any] = {"salary": "2", "salary@odata.type": "Edm.Int64", "rank": 0}
        await insert_row(db, "Clerks", {**row, **number_row})
    for declared in (Clerk.by_office, Clerk.counted, Clerk.paid, Clerk.works):
        await db.build_index(declared, no_older_writers=True)

    assert await find_wrong(db) == []
    office = await db.get(OFFICE)
    assert (office.staff, office.pay) == (30, 60)


def declare_far() -> type[Entity]:
    class Far(Entity, table="Far", partition_key="{town}", row_key="far_{id}"):
        town: Mapped[str]
        id: Mapped[int]

        counted = Count(lambda: Office.staff, name="a")

    return Far


def declare_lost() -> type[Entity]:
    class Lost(Titled, table="Lost", partition_key="{town}", row_key="lost_{id}"):
        town: Mapped[str]
        office: Mapped[str]

        works = Embedded(lambda: Office, {"title": "title"}, name="{office}", consistency="eventual")

    return Lost


@pytest.mark.parametrize(
    ("declare", "remedy"),
    [(declare_far, "add consistency='eventual'"), (declare_lost, "give via= an index with partition_key='{office}'")],
)
def test_refused_declarations(declare: Callable[[], type[Entity]], remedy: str) -> None:
    """What cannot be kept right is rejected when it is declared, with what to do instead."""
    with pytest.raises(ModelError, match=re.escape(remedy)):
        declare()


@pytest.mark.parametrize("kind", ["Other", "Office#_forward"])
@pytest.mark.parametrize("made", [lambda: Clerk(id=1, office="d"), lambda: Branch(office="d", id=1)])
async def test_a_row_of_another_kind_is_no_source(db: Database, kind: str, made: Callable[[], Entity]) -> None:
    """What refers to its key is rejected, and the row stays as it is."""
    await db.insert(PropertyBag("Offices", "offices", "office_d", {"EntityType": kind, "title": "of others"}))
    before = await db.store.get("Offices", "offices", "office_d")
    with pytest.raises(ReferenceNotFound, match="does not exist"):
        await db.insert(made())

    await settle(db)
    assert await db.store.get("Offices", "offices", "office_d") == before


async def test_a_source_that_becomes_another_kind(db: Database) -> None:
    """An audit says that what copies it refers to nothing."""
    await db.insert(Branch(office="a", id=1))
    row = await db.store.get("Offices", "offices", "office_a")
    await replace_row(db, "Offices", {**row, "EntityType": "Other"})

    assert {each.damage.value for each in (await db.audit(Branch)).findings} == {"dangling"}


async def test_what_becomes_another_kind_is_counted_no_more(db: Database) -> None:
    """Also where only its former class declares the count."""

    class Letter(Entity, table="Letters", partition_key="{town}", row_key="letter_{id}", abstract=True):
        town: Mapped[str]
        id: Mapped[int]
        office: Mapped[str]

    class Unread(Letter):
        counted = Count(lambda: Office.staff, name="{office}", consistency="eventual")

    class Read(Letter):
        pass

    await db.create_tables(Unread, Read)
    for number in range(2):
        await db.insert(Unread(town="Bern", id=number, office="a"))
    await db.save((await db.get(Unread, town="Bern", id=1)).become(Read))

    assert (await db.get(OFFICE)).staff == 1
    await db.delete(await db.get(Read, town="Bern", id=1))
    assert (await db.get(OFFICE)).staff == 1


async def test_kinds_that_keys_tell() -> None:
    """A source or total may have no property that tells its kind: it is found, and an audit is content."""
    async with memory_database(Firm, Site) as db:
        await db.insert(Firm(name="a", title="first"))
        await db.insert(Site(firm="a", id=1))
        firm = await db.get(Firm, name="a")
        firm.title = "second"
        await db.save(firm)

        site, firm = await db.get(Site, firm="a", id=1), await db.get(Firm, name="a")
        assert (site.title, firm.sites, (await db.audit(Site, Firm)).findings) == ("second", 1, ())
