"""
Index entries that a token has forged: what one says in its key is not what it says in its properties, or in `_of`.
"""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from tableorm import Database, Entity, Index, Mapped, PropertyBag, TableOrmError, field
from tests.rows import insert_row, merge_row


class Noted(Entity, abstract=True):
    country: Mapped[str]
    id: Mapped[int]
    note: Mapped[str | None] = field(default=None)


class Listed(Noted, table="ForgedEntries", partition_key="{country}", row_key="listed_{tenant}_{id}"):
    tenant: Mapped[str]
    name: Mapped[str]

    by_name = Index(row_key="name_{tenant}_{id}_{name}")
    partly = Index(row_key="part_{tenant}_{id}_{name}", include=["name"])
    elsewhere = Index(
        partition_key="at_{country}", row_key="entry_{tenant}_{id}", include=["name"], consistency="eventual"
    )


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Listed, Named)
    await db.insert(Listed(country="SE", tenant="other", id=1, name="Ann"))
    return db


async def forge(db: Database, index: str, partition: str, row_key: str, **members: Any) -> None:
    """Insert an entry, as a token for the keys of entries can."""
    row = {"PartitionKey": partition, "RowKey": row_key, "EntityType": index, **members}
    table = "ForgedNames" if index.startswith("Named") else "ForgedEntries"
    await insert_row(db, table, row)


async def delete_each(db: Database, query: Any) -> None:
    for each in await query.all():
        if each.tenant == "acme":
            await db.delete(each)


async def delete_in_bulk(db: Database, query: Any) -> None:
    async with db.bulk() as bulk:
        for each in await query.all():
            if each.tenant == "acme":
                await bulk.delete(each)


async def delete_found(db: Database, query: Any) -> None:
    await query.delete()


async def refresh(db: Database, query: Any) -> None:
    for each in await query.all():
        if each.tenant == "acme":
            await db.refresh(each)
            assert each.tenant == "acme"


class Bank(Entity, table="ForgedEntries", partition_key="{country}", row_key="bank_{tenant}"):
    country: Mapped[str]
    tenant: Mapped[str]
    amount: Mapped[int]


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("victim", "members"), [("listed_other_1", {"name": "Ann"}), ("bank_other", {})])
@pytest.mark.parametrize("write", [delete_each, delete_in_bulk, delete_found, refresh], ids=lambda each: each.__name__)
@pytest.mark.parametrize("index", ["by_name", "partly", "elsewhere"])
async def test_an_entry_is_of_the_entity_whose_fields_it_has(
    db: Database,
    index: str,
    write: Callable[[Database, Any], Awaitable[None]],
    victim: str,
    members: dict[str, str],
) -> None:
    """
    What an owner does to an entity of one tenant, as an entry shows it, is not done to another tenant's row; nor, by an
    entry without any field, to a row of another model.
    """
    await db.insert(Bank(country="SE", tenant="other", amount=5))
    name = members.get("name", "unknown")
    partition, row_key, of = "SE", f"{'name' if index == 'by_name' else 'part'}_acme_9_{name}", victim
    if index == "elsewhere":
        partition, row_key, of = "at_SE", "entry_acme_9", json.dumps(["ForgedEntries", "SE", victim])
    await forge(db, f"Listed#{index}", partition, row_key, _of=of, **members)
    query = db.select(getattr(Listed, index)).where(Listed.country == "SE", Listed.tenant == "acme")
    with suppress(TableOrmError):
        await write(db, query.verify(False) if index == "elsewhere" else query)
    assert await db.exists(PropertyBag.key("ForgedEntries", "SE", victim))


class Named(Noted, table="ForgedNames", partition_key="{country}", row_key="named_{id}"):
    name: Mapped[str]

    by_name = Index(row_key="name_{name}_{id}")
    partly = Index(row_key="part_{name}_{id}", include=["name"])
    elsewhere = Index(
        partition_key="at_{country}", row_key="entry_{name}_{id}", include=["name"], consistency="eventual"
    )


async def save_each(db: Database, query: Any) -> None:
    for each in await query.all():
        each.note = "found as x"
        await db.save(each)


async def delete_in_transaction(db: Database, query: Any) -> None:
    for each in await query.all():
        async with db.transaction() as tx:
            tx.delete(each)


WRITES = [delete_found, save_each, delete_in_transaction]


@pytest.mark.parametrize("write", WRITES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("index", ["by_name", "partly", "elsewhere"])
async def test_an_entity_has_no_entry_at_another_key(
    db: Database, index: str, write: Callable[[Database, Any], Awaitable[None]]
) -> None:
    """
    An entry whose key says another name than its properties leads to no write of the entity whose properties it has:
    whoever may write the entries of one name would have others delete entities of all names.
    """
    await db.insert(Named(country="SE", id=1, name="Ann"))
    partition, head, of = "SE", "name" if index == "by_name" else "part", "named_1"
    if index == "elsewhere":
        partition, head, of = "at_SE", "entry", '["ForgedNames","SE","named_1"]'
    await forge(db, f"Named#{index}", partition, f"{head}_x_1", name="Ann", _of=of)
    named, honest = (
        db.select(getattr(Named, index)).where(Named.country == "SE", Named.name == name).verify(index != "elsewhere")
        for name in ("x", "Ann")
    )
    assert len(await named.all()) == 1
    before = await db.store.get("ForgedNames", "SE", "named_1")
    with suppress(TableOrmError):
        await write(db, named)
    assert await db.store.get("ForgedNames", "SE", "named_1") == before
    await write(db, honest)
    found = await db.get_or_none(Named, country="SE", id=1)
    assert found is None or found.note is not None


class Tagged(Noted, table="ForgedTags", partition_key="{country}", row_key="tagged_{id}"):
    tags: Mapped[list[str]]

    by_tag = Index(row_key="tag_{tags:each}_{id}")


async def test_a_row_that_a_manifest_names_beside_the_right_entries_stays(db: Database) -> None:
    """It is read before it would be deleted as the entry of an element that went: it may be any row."""
    await db.create_tables(Tagged)
    for number in (1, 2):
        await db.insert(Tagged(country="SE", id=number, tags=["new"]))
    forged = json.dumps({"by_tag": {"each": [["tag_new_2", "tagged_1"]]}})
    await merge_row(db, "ForgedTags", {"PartitionKey": "SE", "RowKey": "tagged_2", "_ix": forged})
    entity = await db.get(Tagged, country="SE", id=2)
    entity.note = "other"
    await db.save(entity)

    assert await db.exists(Tagged, country="SE", id=1)
