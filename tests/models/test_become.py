"""An entity that becomes one of another class of its family."""

import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tableorm import (
    Count,
    Database,
    Entity,
    Feed,
    Index,
    Mapped,
    ModelError,
    NotLoaded,
    PreconditionFailed,
    PropertyBag,
    UniqueViolation,
    encrypted,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.models.manifest import manifest_of
from tableorm.stores import RowAddress
from tests.databases import memory_database


class Team(Entity, table="Staff", partition_key="{team}", row_key="team"):
    team: Mapped[str]
    count: Mapped[int] = field(default=0, maintained=True)


class Member(Entity, abstract=True):
    team: Mapped[str] = field(default="t")
    id: Mapped[str] = field(default="1")


class Person(Member, table="Staff", partition_key="{team}", row_key="id_{id}", abstract=True):
    name: Mapped[str] = field(default="Ann")


class Worker(Person, abstract=True):
    by_name = Index(row_key="name_{name}_{id}")
    counted = Count(lambda: Team.count, team="{team}")


class Clerk(Worker):
    desk: Mapped[int | None] = field(default=None)


CLERK = Clerk.key(team="t", id="1")


class Boss(Worker):
    level: Mapped[int]


class Former(Person):
    """Nothing is derived from it."""


class Watched(Person):
    changes = Feed(keep=dt.timedelta(days=1))


class Lead(Person):
    pupils: Mapped[int] = field(default=0, maintained=True)


class Pupil(Member, table="Staff", partition_key="{team}", row_key="pupil_{id}"):
    lead: Mapped[str]

    counted = Count(lambda: Lead.pupils, team="{team}", id="{lead}")


class Named(Person, row_key="named_{id}"):
    pass


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with memory_database(Team, Clerk, Boss) as database:
        await database.insert(Team(team="t"))
        yield database


async def test_it_keeps_its_key_and_etag(db: Database) -> None:
    """A save replaces the row: fields of the old class go, unknown properties stay, entries and counts follow."""
    clerk = Clerk(desk=7)
    clerk.extra["Newer"] = 5
    await db.insert(clerk)
    clerk = await db.get(CLERK)
    boss = clerk.become(Boss, level=2)
    assert (boss.key.row_key, boss.etag, boss.name, dict(boss.extra)) == ("id_1", clerk.etag, "Ann", {"Newer": 5})
    await db.save(boss)
    assert await db.get(Boss, team="t", id="1") == Boss(level=2)
    row = await db.store.get("Staff", "t", "id_1")
    assert ("desk" in row, row["EntityType"], row["Newer"]) == (False, "Boss", "5")
    assert [each.level for each in await db.select(Boss.by_name).where(Boss.team == "t").all()] == [2]
    assert await db.select(Clerk.by_name).where(Clerk.team == "t").all() == []
    assert (await db.get(Team, team="t")).count == 1
    for model in (Team, Boss, Clerk):
        assert (await db.audit(model)).clean
    with pytest.raises(PreconditionFailed):
        await db.save(clerk.become(Boss, level=3))
    back = boss.become(Clerk)
    await db.save(back)
    assert (await db.get(PropertyBag.key("Staff", "t", "id_1")))["Newer"] == 5
    assert Clerk(id="2", name="Bo").become(Boss, level=1) == Boss(id="2", name="Bo", level=1)


async def test_a_class_that_is_not_counted(db: Database) -> None:
    """What becomes one of it is counted no more, and has no entries; and again when it comes back."""
    await db.create_tables(Former)
    await db.insert(Clerk())
    await db.insert(Clerk(id="2", name="Bo"))
    former = (await db.get(CLERK)).become(Former)
    await db.save(former)
    assert (await db.get(Team, team="t")).count == 1
    assert [each.id for each in await db.select(Clerk.by_name).where(Clerk.team == "t").all()] == ["2"]

    await db.save(former.become(Boss, level=1))
    assert (await db.get(Team, team="t")).count == 2
    assert (await db.audit(Team, Clerk, Boss)).clean


async def test_who_is_counted_in_it_is_not_forgotten(db: Database) -> None:
    """An entity in which others are counted becomes none that has no count of them."""
    await db.create_tables(Lead, Pupil)
    await db.insert(Lead())
    await db.insert(Pupil(lead="1"))
    with pytest.raises(ModelError, match="its pupils is 1: other entities are counted in it"):
        (await db.get(Lead, team="t", id="1")).become(Former)

    await db.delete(Pupil, team="t", id="1", if_match="*")
    await db.save((await db.get(Lead, team="t", id="1")).become(Former))
    assert (await db.audit(Lead, Former, Pupil)).clean


async def test_what_cannot_become_another_is_refused(db: Database) -> None:
    """Another family, abstract, another key, a field that is missing, no feed any more, and what was read in part."""
    clerk = Clerk()
    await db.insert(clerk)
    for model, problem in (
        (Team, "not of the same family"),
        (Worker, "Worker is abstract"),
        (Named, "its key would be another"),
        (Boss, "needs 'level'"),
    ):
        with pytest.raises(ModelError, match=problem):
            clerk.become(model)
    with pytest.raises(ModelError, match="Watched has a change feed and Former has none"):
        Watched().become(Former)
    assert Former().become(Watched).id == "1"
    with pytest.raises(ModelError, match="has no field 'rank'"):
        clerk.become(Boss, rank=1)
    part = await db.select(Clerk).where(Clerk.team == "t").only(Clerk.desk).one()
    with pytest.raises(NotLoaded, match="not read in full"):
        part.become(Boss, level=1)


class Desk(Entity, table="Desks", partition_key="{name}", row_key="desk"):
    name: Mapped[str]
    users: Mapped[int] = field(default=0, maintained=True)


class Van(Entity, table="Vans", partition_key="{name}", row_key="van"):
    name: Mapped[str]
    users: Mapped[int] = field(default=0, maintained=True)


class User(Member, table="Users", partition_key="{team}", row_key="user_{id}", abstract=True):
    place: Mapped[str]

    by_place = Index(partition_key="{place}", row_key="user_{team}_{id}", table="Places", consistency="eventual")
    by_id = Index(partition_key="{id}", row_key="user", table="UserIds", consistency="eventual", unique=True)


class Sitting(User):
    counted = Count(lambda: Desk.users, name="{place}", consistency="eventual")


class Typing(User):
    counted = Count(lambda: Desk.users, name="{place}", consistency="eventual")


class Driving(User):
    counted = Count(lambda: Van.users, name="{place}", consistency="eventual")


async def test_rows_in_other_partitions_follow(db: Database) -> None:
    """The entry that it had as another class goes, and counts in one model agree; in two, it is rejected."""
    await db.create_tables(Desk, Van, Sitting, Typing, Driving)
    for name in "ab":
        await db.insert(Desk(name=name))
    await db.insert(Sitting(place="a"))
    async with db.worker(Sitting, Typing) as worker:
        await worker.drain()
        sitting = await db.get(Sitting, team="t", id="1")
        with pytest.raises(ModelError, match=r"Sitting\.counted and Driving\.counted count in different models"):
            sitting.become(Driving)

        await db.save(sitting.become(Typing, place="b"))
        await worker.drain()

    # Work of the former class that comes late leaves the entry of the new one alone.
    row = await db.store.get("Users", "t", "user_1")
    late: Any = Sitting.__schema__.derived["by_place"]
    await late.reconcile(connection_of(db), RowAddress("Users", "t", "user_1"), [manifest_of(row)["by_place"]])

    rows = [(bag.partition_key, bag["EntityType"]) for bag in await db.select_raw("Places").allow_scan().all()]
    assert rows == [("b", "Typing#by_place")]
    assert [(await db.get(Desk, name=name)).users for name in "ab"] == [0, 1]
    assert (await db.audit(Desk, Sitting, Typing)).clean


@pytest.mark.parametrize("repair", [False, True])
async def test_a_unique_value_is_found_by_the_new_class(db: Database, *, repair: bool) -> None:
    """Also if an earlier version has left the row that reserves it as it was, once an audit has repaired it."""
    await db.create_tables(Desk, Sitting, Typing)
    await db.insert(Desk(name="a"))
    await db.insert(Sitting(place="a"))
    async with db.worker(Sitting, Typing) as worker:
        await worker.drain()
        await db.save((await db.get(Sitting, team="t", id="1")).become(Typing))
        await worker.drain()
    if repair:
        await db.merge(PropertyBag("UserIds", "1", "user", {"EntityType": "Sitting#by_id"}), if_match="*")
        assert (await db.audit(Sitting, Typing, repair=True)).repaired == 1

    assert (await db.get(Typing.by_id, id="1")).place == "a"
    assert len(await db.select(Typing.by_id).where(Typing.id == "1").all()) == 1
    assert (await db.audit(Desk, Sitting, Typing)).clean
    with pytest.raises(UniqueViolation):
        await db.insert(Sitting(place="a"))
    with pytest.raises(UniqueViolation):
        await db.insert(Sitting(team="u", place="a"))


class Invoice(Member, table="Invoices", partition_key="{team}", row_key="{id}"):
    name: Mapped[str]
    level: Mapped[int] = field(default=0)
    total: Mapped[int]


class ClerkNote(Member, table="Notes", partition_key="{team}", row_key="id_{id}"):
    name: Mapped[str]
    level: Mapped[int] = field(default=0)


class SealedNote(Member, table="Notes", partition_key="{team}", row_key="sealed_{id}"):
    name: Mapped[str] = encrypted()


async def test_a_copy_has_the_fields_that_both_models_have(db: Database) -> None:
    """It is a new entity that is not stored; under other keys a warning names the unknown properties left behind."""
    await db.create_tables(Invoice)
    clerk = Clerk(desk=7)
    clerk.extra["Old"] = 5
    await db.insert(clerk)
    found = await db.get(CLERK)

    with pytest.warns(UserWarning, match=r"Clerk.copy_as\(Invoice\) leaves behind Old"):
        invoice = found.copy_as(Invoice, total=3)

    assert invoice == Invoice(name="Ann", total=3)
    assert invoice.etag is None and not invoice.extra
    await db.insert(invoice)
    assert await db.get(CLERK) == clerk
    assert (await db.get(CLERK)).etag == found.etag


async def test_unknown_properties_go_along_under_the_same_keys(db: Database) -> None:
    """What neither model knows is in the copy; what only the other one knows is named, and never dropped silently."""
    await db.create_tables(ClerkNote)
    clerk = Clerk()
    clerk.extra["Old"] = 5
    await db.insert(clerk)
    found = await db.get(CLERK)

    note = found.copy_as(ClerkNote)
    await db.insert(note)

    assert dict((await db.get(ClerkNote, team="t", id="1")).extra) == {"Old": 5}
    found.extra["level"] = 9
    with pytest.warns(UserWarning, match="leaves behind level"):
        assert found.copy_as(ClerkNote).level == 0


async def test_what_cannot_be_copied_is_refused(db: Database) -> None:
    """A field that is missing, one that would be stored in the clear, and an entity that was read in part."""
    await db.insert(Clerk())

    with pytest.raises(TypeError, match="total"):
        Clerk().copy_as(Invoice)
    with pytest.raises(ModelError, match="'name' is not encrypted there"):
        SealedNote(name="Ann").copy_as(Invoice, total=1)
    partial = await db.select(Clerk).where(Clerk.team == "t").only(Clerk.desk).one()
    with pytest.raises(NotLoaded, match=r"refresh\(\) it first"):
        partial.copy_as(Invoice, total=1)
