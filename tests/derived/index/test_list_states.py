"""
States of what finds entities: an index or a list is read when the store says that each entity is in it, wherever it is.
"""

from typing import Any

import pytest

from tableorm import Database, Entity, Index, IndexList, Mapped, NotSupported, PropertyBag, Scope
from tableorm.connection.connection import connection_of
from tests.derived.index.programs import db, other

__all__ = ["db", "other"]  # fixtures

TABLE, CITIES = "ListStates", "ListStatesCities"


class AnyGuest(Entity, table=TABLE, partition_key="{house}", row_key="guest_{id:03d}", abstract=True):
    house: Mapped[str]
    id: Mapped[int]
    city: Mapped[str]


class Older(AnyGuest, kind="Guest"):
    """What a program declared before there was a list."""


class Guest(AnyGuest):
    """With lists in the partition of the entities."""

    in_city = IndexList(row_key="city_{city}")


class GuestByIndex(AnyGuest, kind="Guest"):
    """With an index in place of the lists."""

    in_city = Index(row_key="city_{city}_{id:03d}")


class GuestElsewhere(AnyGuest, kind="Guest"):
    """With lists in another table."""

    in_city = IndexList(table=CITIES, partition_key="{city}", row_key="{house}", consistency="eventual")


class GuestInBlobs(AnyGuest, kind="Guest"):
    """With lists in blobs."""

    in_city = IndexList(row_key="city_{city}", blob=True, consistency="eventual")


every_place = pytest.mark.parametrize("model", [Guest, GuestByIndex, GuestElsewhere, GuestInBlobs])


async def look_up(db: Any, model: Any) -> list[int]:
    """Look up the guests of a city, in a database or a scope of one house."""
    house: dict[str, Any] = {} if isinstance(db, Scope) else {"house": "a"}
    if model is GuestByIndex:
        houses = [] if isinstance(db, Scope) else [model.house == "a"]
        return [guest.id for guest in await db.select(model.in_city).where(*houses, model.city == "Oslo").all()]
    return [guest.id for guest in await db.lookup(model.in_city, **house, city="Oslo")]


async def fill(db: Database, model: Any) -> None:
    """Make the table, with guests of the older program, and one of the newer."""
    await db.create_tables(Older)
    for number in range(3):
        await db.insert(Older(house="a", id=number, city="Oslo"))
    await db.create_tables(model)
    await db.insert(model(house="a", id=9, city="Oslo"))


@every_place
async def test_a_list_is_looked_up_when_it_was_built(db: Database, other: Database, model: Any) -> None:
    """Not before a clean build beside which no older program writes; other programs learn of it within a minute."""
    await fill(db, model)
    remedy = rf"in_city is not read: .* run db\.build_index\({model.__name__}\.in_city, no_older_writers=True\)"
    for each in (db, other, db.scope(house="a")):
        with pytest.raises(NotSupported, match=remedy):
            await look_up(each, model)

    built = await db.build_index(model.in_city)
    assert (built.complete, built.readable) == (True, False)
    assert str(built).endswith(
        "It is not read yet: build it with no_older_writers=True when every program that writes declares it."
    )
    with pytest.raises(NotSupported, match="is not read"):
        await look_up(db, model)
    built = await db.build_index(model.in_city, no_older_writers=True)

    assert (built.complete, built.readable) == (True, True)
    assert str(built).endswith(" s")
    assert await look_up(db, model) == [0, 1, 2, 9]
    with pytest.raises(NotSupported, match="is not read"):
        await look_up(other, model)
    known = connection_of(other).known_states
    assert known.asked is not None
    known.asked -= 60
    assert await look_up(other, model) == [0, 1, 2, 9]


@every_place
async def test_states_name_the_tables_of_lists(db: Database, model: Any) -> None:
    """Of lists in blobs that of the entities. A table takes its states with it."""
    await fill(db, model)
    lists = CITIES if model is GuestElsewhere else TABLE

    listed = await db.index_states()

    assert [(s.model, s.declaration, s.table, s.entry_table, s.state) for s in listed] == [
        (model.__name__, "in_city", TABLE, lists, "write-only")
    ]
    await db.drop_table(lists)
    assert await db.index_states() == []


@every_place
async def test_an_incomplete_list_lacks_entities_without_damage(db: Database, model: Any) -> None:
    """An audit reports missing entities of a list that is complete, and of none that is not; nor does it add them."""
    await fill(db, model)
    report = await db.audit(model, repair=True)
    assert (report.found, report.repaired) == (0, 0)
    await db.build_index(model.in_city, no_older_writers=True)
    await db.insert(Older(house="a", id=7, city="Oslo"))

    assert (await db.audit(model)).counts == {"missing": 1}
    assert (await db.audit(model, repair=True)).repaired == 1
    assert await look_up(db, model) == [0, 1, 2, 7, 9]


async def test_what_manifests_say_counts_in_an_incomplete_list(db: Database) -> None:
    """An entity whose manifest names its list is missing in it, also while others may be."""
    await fill(db, Guest)
    await db.delete(PropertyBag.key(TABLE, "a", "city_Oslo~"), if_match="*")

    assert [(str(each.damage), each.row_key) for each in (await db.audit(Guest)).findings] == [("missing", "guest_009")]
