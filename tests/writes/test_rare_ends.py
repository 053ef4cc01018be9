"""
Ends of writes that are seldom seen: rows that are gone or of another kind, chunks refused as a whole, rows in doubt.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm import (
    Database,
    EncodeError,
    Entity,
    Index,
    Mapped,
    ModelError,
    OutcomeUnknown,
    PropertyBag,
    WrongKind,
    field,
    upgrade,
)
from tableorm.testing import MemoryStore
from tests.faults import QUICK, Fate, FaultyBackend, FaultyStore
from tests.rows import insert_row, merge_row, put_row, replace_row


class Paper(Entity, table="Things", partition_key="{group}", abstract=True):
    group: Mapped[str] = field(default="g")


class Thing(Paper, row_key="thing_{name}"):
    name: Mapped[str]
    number: Mapped[int] = field(default=0)


class Listed(Paper, row_key="listed_{name}"):
    name: Mapped[str]
    number: Mapped[int] = field(default=0)

    by_number = Index(row_key="number_{number:06d}_{name}")


class Deed(Paper, row_key="deed_{name}", version=2):
    name: Mapped[str]
    title: Mapped[str] = field(default="")
    more: Mapped[str] = field(default="")


@upgrade(Deed, from_version=1)
def rename(bag: PropertyBag) -> PropertyBag:
    bag["title"] = bag.pop("name_of_old")
    return bag


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with Database(FaultyBackend(MemoryStore()), retry=QUICK) as database:
        await database.create_tables(Thing, Listed)
        yield database


async def test_an_upgraded_entity_over_a_row_of_another_kind(db: Database) -> None:
    """Somebody has put it there since; it is not written over by force."""
    keys = {"PartitionKey": "g", "RowKey": "deed_a"}
    await insert_row(db, "Things", {**keys, "EntityType": "Deed", "name_of_old": "x"})
    deed = await db.get(Deed, group="g", name="a")
    await replace_row(db, "Things", {**keys, "EntityType": "Note"})
    with pytest.raises(WrongKind, match=r"the row with its key is not of this model: it has .*Note"):
        await db.merge(deed, [Deed.more], if_match="*")

    assert (await db.store.get("Things", "g", "deed_a"))["EntityType"] == "Note"


async def test_a_bag_without_a_property_that_was_read(db: Database) -> None:
    """A merge of all of it would leave the property in the table."""
    await db.insert(PropertyBag("Things", "g", "x", {"n": 1, "m": 2}))
    bag = await db.get(PropertyBag.key("Things", "g", "x"))
    del bag["m"]
    with pytest.raises(EncodeError, match=r"PropertyBag.m: .*a merge cannot remove a property") as raised:
        await db.merge(bag)
    assert raised.value.misuse


async def test_an_abstract_model_names_no_row(db: Database) -> None:
    """One of its classes does."""
    with pytest.raises(ModelError, match="Paper is abstract: name one of its concrete classes, or give a Key"):
        await db.modify(Paper, lambda each: None, group="g")
    async with db.transaction() as tx:
        with pytest.raises(ModelError, match="Paper is abstract"):
            await tx.get(Paper, group="g")


async def test_a_row_in_doubt_that_is_of_another_kind() -> None:
    """It is shown as a bag, since the model cannot read it."""
    network = FaultyStore(MemoryStore())
    keys = {"PartitionKey": "g", "RowKey": "thing_a"}

    async def others() -> None:
        row = {**keys, "EntityType": "Thing", "number": "many"}
        await put_row(network.store, "Things", row)

    async with Database(FaultyBackend(network), retry=QUICK) as database:
        await database.create_tables(Thing)
        network.plan(Fate.LOST_REPLY)
        network.meanwhile = others
        with pytest.raises(OutcomeUnknown) as caught:
            await database.insert(Thing(name="a"))

    found = caught.value.found
    assert isinstance(found, PropertyBag)
    assert found["number"] == "many"


async def test_an_entity_that_does_not_fit_its_model_is_deleted(db: Database) -> None:
    """By its key: its index entries go too, after they were read, since nothing proves what its manifest says."""
    await db.insert(Listed(name="a"))
    keys = {"PartitionKey": "g", "RowKey": "listed_a"}
    await merge_row(db, "Things", {**keys, "number": "many"})
    await db.delete(Listed.key(group="g", name="a"), if_match="*")

    assert [bag.row_key async for bag in db.select_raw("Things").allow_scan()] == []
