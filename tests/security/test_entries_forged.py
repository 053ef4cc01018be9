"""
Index entries that a token has forged: what one says in its key is not what it says in its properties, or in `_of`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tableorm import Database, Entity, Index, Mapped, TableOrmError, connect, field
from tableorm.protocol.sas import TableSas, sign_sas
from tableorm.protocol.shared_key import decode_key
from tableorm.stores import Operation, Verb
from tableorm_local.server import DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY
from tests.security.world import serve_file


class Listed(Entity, table="ForgedEntries", partition_key="{country}", row_key="listed_{tenant}_{id}"):
    country: Mapped[str]
    tenant: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="unknown")
    note: Mapped[str | None] = field(default=None)

    by_name = Index(row_key="name_{tenant}_{id}_{name}")
    partly = Index(row_key="part_{tenant}_{id}_{name}", include=["name"])
    elsewhere = Index(
        partition_key="at_{country}", row_key="entry_{tenant}_{id}", include=["name"], consistency="eventual"
    )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[tuple[str, Database]]:
    async with serve_file(tmp_path / "entries.tables") as (_, api):
        url = f"{api.root}/{DEVELOPMENT_ACCOUNT}"
        async with connect(url, key=DEVELOPMENT_KEY) as owner:
            await owner.create_tables(Listed)
            await owner.insert(Listed(country="SE", tenant="other", id=1, name="Ann"))
            yield url, owner


async def forge(url: str, partition: str, head: str, row_key: str, **members: Any) -> None:
    """Insert an entry by a token for the keys of one tenant's entries."""
    sas = TableSas(
        sv="2019-02-02", tn="ForgedEntries", se="2099-01-01", sp="a",
        spk=partition, srk=f"{head}_acme_", epk=partition, erk=f"{head}_acme_~",
    )  # fmt: skip
    async with connect(url, sas=sign_sas(sas, DEVELOPMENT_ACCOUNT, decode_key(DEVELOPMENT_KEY))) as forger:
        row = {"PartitionKey": partition, "RowKey": row_key, "name": "Ann", **members}
        await forger.store.write("ForgedEntries", Operation(Verb.INSERT, row))


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


@pytest.mark.one_of(3)
@pytest.mark.parametrize("write", [delete_each, delete_in_bulk, delete_found, refresh], ids=lambda each: each.__name__)
@pytest.mark.parametrize("index", ["by_name", "partly", "elsewhere"])
async def test_an_entry_is_of_the_entity_whose_fields_it_has(
    world: tuple[str, Database], index: str, write: Callable[[Database, Any], Awaitable[None]]
) -> None:
    """What an owner does to an entity of one tenant, as an entry shows it, is not done to another tenant's row."""
    url, owner = world
    if index == "elsewhere":
        of = '["ForgedEntries","SE","listed_other_1"]'
        await forge(url, "at_SE", "entry", "entry_acme_9", EntityType="Listed#elsewhere", _of=of)
        query = owner.select(Listed.elsewhere).where(Listed.country == "SE", Listed.tenant == "acme").verify(False)
    else:
        head = index[-4:] if index == "by_name" else "part"
        kind = f"Listed#{index}"
        await forge(url, "SE", head, f"{head}_acme_9_Ann", EntityType=kind, _of="listed_other_1")
        query = owner.select(getattr(Listed, index)).where(Listed.country == "SE", Listed.tenant == "acme")
    with suppress(TableOrmError):
        await write(owner, query)
    assert await owner.get_or_none(Listed, country="SE", tenant="other", id=1) is not None


class Bank(Entity, table="ForgedEntries", partition_key="{country}", row_key="bank_{tenant}"):
    country: Mapped[str]
    tenant: Mapped[str]
    amount: Mapped[int]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("write", [delete_each, delete_in_bulk, delete_found], ids=lambda each: each.__name__)
@pytest.mark.parametrize("index", ["by_name", "partly", "elsewhere"])
async def test_an_entry_is_of_no_row_of_another_model(
    world: tuple[str, Database], index: str, write: Callable[[Database, Any], Awaitable[None]]
) -> None:
    """An entry without any field, which names a row of another model, does not get that deleted."""
    _, owner = world
    await owner.insert(Bank(country="SE", tenant="other", amount=5))
    keys = {
        "by_name": ("SE", "name_acme_9_unknown"),
        "partly": ("SE", "part_acme_9_unknown"),
        "elsewhere": ("at_SE", "entry_acme_9"),
    }
    partition, row_key = keys[index]
    row = {"PartitionKey": partition, "RowKey": row_key, "EntityType": f"Listed#{index}"}
    row["_of"] = '["ForgedEntries","SE","bank_other"]' if index == "elsewhere" else "bank_other"
    await owner.store.write("ForgedEntries", Operation(Verb.INSERT, row))
    query = owner.select(getattr(Listed, index)).where(Listed.country == "SE", Listed.tenant == "acme")
    query = query.verify(False) if index == "elsewhere" else query
    with suppress(TableOrmError):
        await write(owner, query)
    assert await owner.get_or_none(Bank, country="SE", tenant="other") is not None


class Named(Entity, table="ForgedNames", partition_key="{country}", row_key="named_{id}"):
    country: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]
    note: Mapped[str | None] = field(default=None)

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
    index: str, write: Callable[[Database, Any], Awaitable[None]]
) -> None:
    """
    An entry whose key says another name than its properties leads to no write of the entity whose properties it has:
    whoever may write the entries of one name would have others delete entities of all names.
    """
    async with connect("local::memory:") as db:
        await db.create_tables(Named)
        await db.insert(Named(country="SE", id=1, name="Ann"))
        partition, head, of = "SE", "name" if index == "by_name" else "part", "named_1"
        if index == "elsewhere":
            partition, head, of = "at_SE", "entry", '["ForgedNames","SE","named_1"]'
        row = {"PartitionKey": partition, "RowKey": f"{head}_x_1", "EntityType": f"Named#{index}", "name": "Ann"}
        await db.store.write("ForgedNames", Operation(Verb.INSERT, {**row, "_of": of}))
        query = db.select(getattr(Named, index)).where(Named.country == "SE", Named.name == "x")
        query = query.verify(False) if index == "elsewhere" else query
        assert len(await query.all()) == 1
        before = await db.store.get("ForgedNames", "SE", "named_1")
        with suppress(TableOrmError):
            await write(db, query)
        assert await db.store.get("ForgedNames", "SE", "named_1") == before
        honest = db.select(getattr(Named, index)).where(Named.country == "SE", Named.name == "Ann")
        honest = honest.verify(False) if index == "elsewhere" else honest
        await write(db, honest)
        found = await db.get_or_none(Named, country="SE", id=1)
        assert found is None or found.note is not None
