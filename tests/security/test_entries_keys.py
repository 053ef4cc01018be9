"""
Rows with the fields of one entity under the key of another one: what they say is proven by no key.

Whoever may write one key of a partition writes a row there that has the fields, and the manifest, of the entity of
another key; then the owner writes or deletes that row.
"""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import pytest

from tableorm import Database, DecodeError, Entity, EntityExists, Index, Key, Mapped, field
from tests.rows import insert_row
from tests.security.world import write_row


class Sold(Entity, abstract=True):
    shop: Mapped[str]
    name: Mapped[str]
    note: Mapped[str | None] = field(default=None)


class Item(Sold, table="KeyedEntries", partition_key="{shop}", row_key="item_{id}"):
    id: Mapped[int]

    by_name = Index(row_key="items_{name}_{id}")


class Person(Sold, table="KeyedEntries", partition_key="{shop}", row_key="person_{nick:lower}"):
    nick: Mapped[str]

    by_name = Index(row_key="people_{name}_{nick}")


class Profile(Sold, table="KeyedEntries", partition_key="{shop}", row_key="profile"):
    by_name = Index(row_key="profiles_{name}")


HONEST: list[Any] = [
    Item(shop="a", id=5, name="Ann"),
    Person(shop="a", nick="Jo", name="Ann"),
    Profile(shop="a", name="Ann"),
]


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Item)
    for each in HONEST:
        await db.insert(each.evolve())
    return db


async def rows_of(db: Database) -> dict[str, dict[str, Any]]:
    """Return the rows by RowKey, without their write tokens."""
    bags = await db.select_raw("KeyedEntries").allow_scan().all()
    return {bag.row_key: {name: value for name, value in bag.items() if name != "_w"} for bag in bags}


async def save_note(db: Database, key: Key[Any]) -> None:
    entity = await db.get(key)
    entity.note = "changed"
    await db.save(entity)


async def save_name(db: Database, key: Key[Any]) -> None:
    entity = await db.get(key)
    entity.name = "Bob"
    await db.save(entity)


async def upsert(db: Database, key: Key[Any]) -> None:
    entity = await db.get(key)
    entity.note = "changed"
    await db.upsert(entity)


async def delete_entity(db: Database, key: Key[Any]) -> None:
    await db.delete(await db.get(key))


async def delete_by_key(db: Database, key: Key[Any]) -> None:
    await db.delete(key, if_match="*")


async def delete_in_bulk(db: Database, key: Key[Any]) -> None:
    async with db.bulk() as bulk:
        await bulk.delete(await db.get(key))


async def delete_found(db: Database, key: Key[Any]) -> None:
    report = await db.select(key.model).where(key.model.note == "forged").allow_scan().delete()
    for failure in report.failed:
        raise failure.error


WRITES = [save_note, save_name, upsert, delete_entity, delete_by_key, delete_in_bulk, delete_found]


@pytest.mark.parametrize(
    ("model", "row_key"),
    [(Item, "item_05"), (Item, "item_0000000005"), (Person, "person_evil"), (Profile, "profilex"), (Profile, "evil")],
)
@pytest.mark.parametrize("write", WRITES, ids=lambda each: each.__name__)
async def test_a_row_under_another_key_has_no_entries_of_the_entity(
    db: Database, model: type[Any], row_key: str, write: Callable[[Database, Key[Any]], Awaitable[None]]
) -> None:
    """
    The entry names the entity under its own key, so it is neither deleted nor replaced. A row whose key no fields make
    is not even read.
    """
    own = next(each for each in HONEST if type(each) is model).key
    forged = await db.store.get("KeyedEntries", "a", own.row_key)
    before = await rows_of(db)
    await insert_row(db, "KeyedEntries", {**forged, "RowKey": row_key, "note": "forged", "_w": None})
    expected: Any = nullcontext()
    if model is Item and write is not delete_by_key:
        expected = pytest.raises(DecodeError, match=rf"{row_key}.* keys hold 5 as '5'")
    elif write in (save_note, upsert):
        expected = pytest.raises(EntityExists, match=own.row_key)
    with expected:
        await write(db, Key(model, "KeyedEntries", "a", row_key))
    after = await rows_of(db)
    assert {name: after.get(name) for name in before} == before


async def test_a_key_that_another_program_has_spelled_keeps_its_entries(db: Database) -> None:
    """Where no other entity has its fields, the entries of such a row follow it as those of any other row."""
    await write_row(db, "KeyedEntries", "a", "person_EVA", EntityType="Person", nick="Eva", name="Eva")
    before = (await rows_of(db)).keys() - {"person_EVA"}
    key = Key(Person, "KeyedEntries", "a", "person_EVA")
    for write, entry in ((save_note, "people_Eva_Eva"), (upsert, "people_Eva_Eva"), (save_name, "people_Bob_Eva")):
        await write(db, key)
        assert (await rows_of(db)).keys() - before == {"person_EVA", entry}
    await delete_entity(db, key)
    assert (await rows_of(db)).keys() == before
