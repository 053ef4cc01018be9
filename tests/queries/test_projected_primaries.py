"""
Projections where a query reads a non-covering index: the primaries are fetched in part, as any entity is.
"""

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest

from tableorm import (
    Database,
    Entity,
    Index,
    Mapped,
    NotLoaded,
    Observation,
    PropertyBag,
    RowKey,
    Select,
    field,
    upgrade,
)
from tableorm.models.entity import schema_of
from tableorm.stores import Row
from tests.databases import memory_database
from tests.rows import replace_row


class Clerk(Entity, table="Office", partition_key="{office}", row_key="id_{id:03d}", version=2):
    office: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="", name="FullName")
    age: Mapped[int | None]
    pay: Mapped[Decimal | None]
    note: Mapped[str]

    by_name = Index(row_key="name_{name}_{id:03d}", include="keys")
    by_id = Index(row_key="number_{id}", unique=True)


class Desk(Entity, table="Office", partition_key="{office}", row_key="desk_{name}"):
    office: Mapped[str]
    name: Mapped[str]
    number: Mapped[int]
    floor: Mapped[str]

    by_number = Index(row_key="desknumber_{number:03d}", unique=True, include="keys")


@upgrade(Clerk, from_version=1)
def years_to_age(bag: PropertyBag) -> PropertyBag:
    bag["age"] = bag.pop("years", None)
    return bag


SELECTED = {"PartitionKey", "RowKey", "EntityType", "_ix", "_mv", "_w", "FullName"}
"""What every primary is asked for: keys, what tells its kind, and the field of the condition, which is looked at."""


def selected(seen: Observation) -> list[tuple[str, ...] | None]:
    """Return what each point read asked for."""
    return [request.select for request in seen.requests if request.operation == "get"]


@pytest.fixture
async def office() -> AsyncIterator[Database]:
    """An office with an Ann and two of the name Li."""
    async with memory_database(Clerk) as db:
        for number, name in enumerate(("Ann", "Li", "Li")):
            await db.insert(
                Clerk(office="Oslo", id=number, name=name, age=20 + number, pay=Decimal(number), note="long")
            )
        yield db


def loaded(entity: Entity) -> dict[str, Any]:
    return {name: getattr(entity, name) for name in schema_of(type(entity)).fields if hasattr(entity, name)}


def of_name(db: Database, name: str) -> list[Select[Clerk]]:
    """Queries of a name by the index: all of the conditions, and one after the other."""
    found = db.select(Clerk.by_name)
    return [
        found.where(Clerk.office == "Oslo", Clerk.name == name),
        found.where(Clerk.office == "Oslo").where(Clerk.name == name),
    ]


async def test_keys_alone_are_not_chosen(office: Database) -> None:
    """An index without other fields costs a request for each entity: it is used if it is named, or for one value."""
    query = office.select(Clerk).where(Clerk.office == "Oslo", Clerk.name == "Li", Clerk.note == "long")
    with office.observe() as seen:
        assert len(await query.all()) == 2

    assert query.explain().path == "primary key"
    assert selected(seen) == []
    desk = office.select(Desk).where(Desk.office == "Oslo")
    assert desk.where(Desk.number == 1, Desk.floor == "first").explain().path == "index Desk.by_number"
    assert desk.where(Desk.number > 1).explain().path == "primary key"
    assert desk.where(Desk.floor == "first").explain().path == "primary key"


async def test_primaries_are_fetched_in_part(office: Database) -> None:
    """Nothing is loaded that was not asked for, nor is it sent."""
    for query in of_name(office, "Li"):
        with office.observe() as seen:
            found = await query.only(Clerk.age).all()

        assert [loaded(each) for each in found] == [{"office": "Oslo", "id": n, "age": 20 + n} for n in (1, 2)]
        assert [set(each or ()) for each in selected(seen)] == 2 * [SELECTED | {"age"}]
        with pytest.raises(NotLoaded, match=r"Clerk\.note"):
            _ = found[0].note
        assert [each.etag for each in found] == [(await office.get(each.key)).etag for each in found]
        with office.observe() as seen:
            await query.all()
        assert selected(seen)[-1] is None


async def test_a_primary_of_an_older_version_is_read_in_full(office: Database) -> None:
    """Its upgrade may need any property; it costs one more request."""
    row = await office.store.get("Office", "Oslo", "id_000")
    kept = {name: row[name] for name in ("PartitionKey", "RowKey", "FullName", "note", "_ix")}
    old: Row = kept | {"EntityType": "Clerk", "years": 60}
    await replace_row(office, "Office", old)
    for query in of_name(office, "Ann"):
        with office.observe() as seen:
            ann = await query.only(Clerk.note).one()

        assert (ann.age, ann.note) == (60, "long")
        assert [each is None for each in selected(seen)] == [False, True]


async def test_what_primaries_are_asked_is_explained(office: Database) -> None:
    """Conditions that entries do not hold are evaluated here, and each entry that is found costs a request."""
    query = office.select(Clerk.by_name).where(Clerk.office == "Oslo", Clerk.name == "Li", Clerk.note == "long")
    explained, hidden = query.explain(), query._explain(query._plan(query._select), show_values=False)  # pyright: ignore[reportPrivateUsage]

    assert explained.primary_conditions == ("Clerk.note == 'long'",)
    assert explained.client_side == (*explained.requests[0].client_side, "Clerk.note == 'long'")
    assert str(explained).splitlines()[-2:] == [
        "    then here: Clerk.note == 'long'",
        "  cost: 1 storage transaction at least, one more for each 1,000 rows found, up to one more for each of them",
    ]
    assert hidden.primary_conditions == ("a condition on note",)
    assert query.limit(0).explain().client_side == ()
    assert of_name(office, "Li")[0].explain().primary_conditions == ()


async def test_a_count_reads_no_more_than_it_needs(office: Database) -> None:
    """Of each primary the keys, what tells its kind, and what conditions are on."""
    for query in of_name(office, "Li"):
        with office.observe() as seen:
            assert await query.count() == 2
        assert {"age", "note", "pay"}.isdisjoint(name for each in selected(seen) for name in each or ("age",))


async def test_a_negated_condition_on_stored_keys_takes_the_primary_key(office: Database) -> None:
    """Index entries have other keys; so it is with the condition itself."""
    named = office.select(Clerk).where(Clerk.office == "Oslo", Clerk.name == "Li")
    for condition in (RowKey != "id_001", ~(RowKey == "id_001"), ~((RowKey == "id_001") | (Clerk.age == 0))):
        query = named.where(condition)

        assert query.explain().path == "primary key"
        assert [each.id for each in await query.all()] == [2]


async def test_what_is_fetched_is_shown(office: Database) -> None:
    """The explanation names the properties, and bounds the requests: an old version costs one more."""
    for query in of_name(office, "Li"):
        whole, part = query.explain(), query.only(Clerk.age).explain()

        assert whole.primary_select is None
        assert set(part.primary_select or ()) == SELECTED | {"age"}
        assert "GET the rows that they are copies of, by ranges" in str(whole) and "?$select" not in str(whole)
        assert "GET the rows that they are copies of, with $select=PartitionKey,RowKey," in str(part)
        assert set(part.requests[0].select or ()) == {"PartitionKey", "RowKey", "EntityType", "_of", "_w"}
