"""
Marker rows in a table: tentative rows, forwards and decision rows, which nothing takes for entities.
"""

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from tableorm import (
    Count,
    Database,
    EncodeError,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    IndexList,
    Mapped,
    PropertyBag,
    TransactionFailed,
    WrongKind,
    field,
)
from tests.databases import memory_database
from tests.rows import insert_row, replace_row
from tests.writes.verbs import write

TENTATIVE, FORWARD, DECISION = "Person#_tentative", "Person#_forward", "#_decision"


class Team(Entity, table="Staff", partition_key="{team}", row_key="team"):
    team: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Person(Entity, table="Staff", partition_key="{team}", row_key="person_{id:03d}"):
    team: Mapped[str] = field(default="red")
    id: Mapped[int]
    name: Mapped[str] = field(default="")
    email: Mapped[str | None] = field(default=None)

    by_email = Index(row_key="email_{email}", unique=True)
    by_name = IndexList(row_key="name_{name}")
    counted = Count(lambda: Team.size, team="{team}")


class Animal(
    Entity, table="Zoo", partition_key="zoo", row_key="{kind}_{id:03d}", abstract=True, discriminator="row_key"
):
    id: Mapped[int]
    name: Mapped[str]


class Lion(Animal, kind="LION"): ...


class Note(Entity, table="Notes", partition_key="{topic}", row_key="note_{id:03d}", kind=None):
    topic: Mapped[str]
    id: Mapped[int]


class Written(Entity, abstract=True):
    topic: Mapped[str]
    name: Mapped[str]
    text: Mapped[str] = field(default="")


class Page(Written, table="MarkerPages", partition_key="{topic}", row_key="{name}"):
    pass


class Draft(Written, table="MarkerPages", partition_key="{topic}", row_key="{name}", kind=None):
    pass


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    """Team red has one live person, a tentative one, a forward, a tentative entry, and a decision row."""
    async with memory_database(Team, Person, Animal, Note, Page) as db:
        await db.insert(Team(team="red"))
        await db.insert(Person(id=1, name="Ann", email="ann@x"))
        await plant(db, "person_002", TENTATIVE, name="Bo")
        await plant(db, "person_003", FORWARD)
        await plant(db, "email_bo@x", "Person#by_email#_tentative", name="Bo", _of="person_002")
        await plant(db, "~o_abc", DECISION)
        yield db


async def plant(db: Database, row_key: str, kind: str, *, table: str = "Staff", part: str = "red", **more: Any) -> None:
    await insert_row(db, table, {"PartitionKey": part, "RowKey": row_key, "EntityType": kind, **more})


async def stored(db: Database) -> dict[str, str]:
    return {bag.row_key: str(bag.etag) async for bag in db.select_raw("Staff").where("PartitionKey eq 'red'")}


@pytest.mark.parametrize("number", [2, 3])
async def test_a_read_by_key_finds_nothing(db: Database, number: int) -> None:
    """A tentative row and a forward are not found, as if there were no row."""
    key = Person.key(team="red", id=number)

    with pytest.raises(EntityNotFound, match=f"there is no Person .*person_00{number}"):
        await db.get(key)
    assert await db.get_or_none(Person, team="red", id=number) is None
    assert await db.get_many([key, Person.key(team="red", id=1)]) == [None, await db.get(Person, team="red", id=1)]
    assert not await db.exists(key)
    with pytest.raises(EntityNotFound):
        await db.refresh(Person(id=number))


async def test_queries_leave_marker_rows_out(db: Database) -> None:
    """Queries, counts and projections find the live entity alone; `select_raw` shows every row."""
    query = db.select(Person).where(Person.team == "red")

    assert [each.id for each in await query.all()] == [1]
    assert [each.id for each in await query.only(Person.id).all()] == [1]
    assert (await query.count(), await query.exists()) == (1, True)
    assert [
        each.id for each in await db.select(Person).where(Person.team == "red", Person.id.in_([1, 2, 3])).all()
    ] == [1]
    both = await db.select(Team, Person).where(Person.team == "red").all()
    assert [type(each) for each in both] == [Person, Team]
    raw = [bag.row_key async for bag in db.select_raw("Staff").where("PartitionKey eq 'red'")]
    assert {"person_002", "person_003", "email_bo@x", "~o_abc"} < set(raw)


async def test_kinds_that_keys_tell(db: Database) -> None:
    """Where the RowKey tells the kind, a marker row has the key of an entity, and is none all the same."""
    await db.insert(Lion(id=1, name="Leo"))
    for number, mark in enumerate(("_tentative", "_forward"), 2):
        await plant(db, f"LION_00{number}", f"LION#{mark}", table="Zoo", part="zoo")
    query = db.select(Animal).where(Animal.id > 0)

    assert [each.id for each in await query.all()] == [1]
    assert [each.id for each in await query.only(Animal.id).all()] == [1]
    assert await query.count() == 1
    assert await db.get_many([Lion.key(id=2), Lion.key(id=3)]) == [None, None]
    assert not await db.exists(Lion, id=2)


@pytest.mark.parametrize("number", [2, 3])
async def test_writes_change_no_marker_row(db: Database, number: int) -> None:
    """No verb of a model writes a tentative row or a forward: to an insert they are rows that exist."""
    key, person = Person.key(team="red", id=number), Person(id=number, name="new")
    before = await stored(db)

    taken: list[Awaitable[object]] = [db.insert(person), db.upsert(person), db.get_or_insert(person)]
    for call in [*taken, db.upsert(person, mode="merge")]:
        with pytest.raises(EntityExists):
            await call
    with pytest.raises(EntityExists, match="an entity is being moved to or from that key; try again when the move has"):
        await db.modify(key, rename, create=person)
    absent: list[Awaitable[object]] = [
        db.replace(person, if_match="*"),
        db.merge(person, only=[Person.name], if_match="*"),
        db.delete(key, if_match="*"),
        db.modify(key, rename),
    ]
    for call in absent:
        with pytest.raises(EntityNotFound):
            await call
    await db.delete(key, if_match="*", missing_ok=True)
    async with db.transaction() as tx:
        with pytest.raises(EntityNotFound):
            await tx.get(key)
    async with db.bulk(errors="report") as bulk:
        await bulk.upsert(person)
    assert [type(each.error) for each in bulk.report.failed] == [EntityExists]
    assert await stored(db) == before


def rename(person: Person) -> None:
    person.name = "renamed"


async def test_query_deletes_leave_marker_rows(db: Database) -> None:
    """A delete by a query deletes no marker row, although it deletes rows of any other kind."""
    await db.insert(PropertyBag("Staff", "red", "other", {"A": 1}))
    await db.select(Team, Person, PropertyBag).where(Person.team == "red").delete()

    assert set(await stored(db)) == {"person_002", "person_003", "email_bo@x", "~o_abc", "name_Ann~"}


async def test_nobody_is_counted_in_a_marker_row(db: Database) -> None:
    """A write that would change what a marker row keeps is rejected."""
    row = await db.store.get("Staff", "red", "team")
    await replace_row(db, "Staff", {**row, "EntityType": "Team#_forward"})
    before = await stored(db)

    with pytest.raises(WrongKind, match="should be of kind 'Team', and is of 'Team#_forward'"):
        await db.insert(Person(id=4))
    with pytest.raises(TransactionFailed, match=r"operation 1: insert of Person .* be of kind 'Team'") as failed:
        async with db.transaction() as tx:
            tx.insert(PropertyBag("Staff", "red", "other"))
            tx.insert(Person(id=4))
    assert (failed.value.index, type(failed.value.__cause__)) == (1, WrongKind)
    with pytest.raises(WrongKind, match="should be of kind of an entity"):
        await db.delete(await db.get(PropertyBag.key("Staff", "red", "person_001")))
    assert await stored(db) == before


async def test_an_audit_passes_over_marker_rows(db: Database) -> None:
    """An audit finds nothing wrong with marker rows and repairs none; it counts the live entities alone."""
    before = await stored(db)
    report = await db.audit(Team, Person, repair=True)

    assert (report.findings, report.entities) == ((), 2)
    assert await stored(db) == before


@pytest.mark.parametrize("model", [Page, Draft])
async def test_no_model_writes_a_decision_row(db: Database, model: type[Page | Draft]) -> None:
    """Where no declaration tells that there are decision rows, as after moves, no verb takes one for an entity."""
    row_key = "~o_aaaaaaaaaaaa"
    await plant(db, row_key, DECISION, table="MarkerPages", part="red")
    (before,) = [bag async for bag in db.select_raw("MarkerPages").allow_scan()]
    page, key = model(topic="red", name=row_key, text="x"), model.key(topic="red", name=row_key)

    assert await db.get_or_none(key) is None
    assert (await db.select(model).allow_scan().all(), await db.select(model).allow_scan().count()) == ([], 0)
    if model is Page:
        assert (await db.audit(Page)).entities == 0
    anything = {"if_match": "*"}
    calls = [
        *(write(db, verb, page) for verb in ("insert", "upsert", "upsert over", "get_or_insert")),
        *(write(db, f"upsert in a {place}", page) for place in ("transaction", "bulk")),
        *(write(db, verb, page, **anything) for verb in ("merge", "replace", "delete")),
        *(write(db, verb, key, **anything) for verb in ("delete", "delete in a transaction", "delete in a bulk")),
    ]
    for call in calls:
        with pytest.raises(EncodeError, match=f"'{row_key}' begins with '~o_', .*; give the entity another key"):
            await call
    with pytest.raises(EntityNotFound):
        await db.modify(key, lambda found: None)
    await db.select(model).allow_scan().delete()
    assert [bag async for bag in db.select_raw("MarkerPages").allow_scan()] == [before]
    await db.delete(before)
