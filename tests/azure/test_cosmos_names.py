"""
Names that Cosmos DB reserves: a row with such a property is never sent there, since the table could not be read after.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tableorm import Database, Entity, Mapped, PropertyBag, TableOrmError, connect, field
from tests.azure.cosmos import URL, serve_cosmos
from tests.databases import memory_database


class Parcel(Entity, table="Parcels", partition_key="{shop}", row_key="{id}"):
    """Its key holds a field with a reserved name, which is no property."""

    shop: Mapped[str]
    id: Mapped[int]
    tag: Mapped[str | None] = field(default=None, name="ETag")


@pytest.fixture
async def sent() -> list[str]:
    return []


@pytest.fixture
async def cosmos(sent: list[str]) -> AsyncIterator[Database]:
    async with serve_cosmos(verbs=sent) as options, connect(URL, **options) as db:
        await db.create_tables(Parcel)
        sent.clear()
        yield db


async def in_transaction(db: Database, parcel: Parcel) -> None:
    async with db.transaction() as tx:
        tx.insert(Parcel(shop=parcel.shop, id=9))
        tx.upsert(parcel)


async def in_bulk(db: Database, parcel: Parcel) -> None:
    async with db.bulk() as bulk:
        await bulk.insert(parcel)
    for failure in bulk.report.failed:
        raise failure.error


WRITES: dict[str, Callable[[Database, Parcel], Awaitable[object]]] = {
    "insert": lambda db, parcel: db.insert(parcel),
    "merge": lambda db, parcel: db.merge(parcel, if_match="*"),
    "replace": lambda db, parcel: db.replace(parcel, if_match="*", drop_extra=True),
    "upsert": lambda db, parcel: db.upsert(parcel),
    "transaction": in_transaction,
    "bulk": in_bulk,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_reserved_name_is_refused_before_anything_is_sent(
    cosmos: Database, sent: list[str], write: Callable[[Database, Parcel], Awaitable[object]]
) -> None:
    """Every verb names the model, the field and the remedy."""
    with pytest.raises(TableOrmError) as caught:
        await write(cosmos, Parcel(shop="a", id=1, tag="x"))

    said = str(caught.value)
    for words in ("Parcel ('a', '1')", "field Parcel.tag", "reserves the property name 'ETag'", "field(name='ETag_')"):
        assert words in said
    assert sent == []


@pytest.mark.parametrize("name", ["id", "Id", "ID", "rid", "etag", "ETag", "ResourceId", "resourceid"])
async def test_reserved_names_of_bags(cosmos: Database, sent: list[str], name: str) -> None:
    """The names are reserved in any letter case, as what the service does with each of them is the same."""
    with pytest.raises(TableOrmError, match=f"reserves the property name '{name}'"):
        await cosmos.upsert(PropertyBag("Parcels", "a", "b", {name: 1}))

    assert sent == []


async def test_other_names_are_sent(cosmos: Database) -> None:
    """A field that is held by a key is no property; and what has no value has none."""
    await cosmos.insert(Parcel(shop="a", id=1))
    await cosmos.insert(PropertyBag("Parcels", "a", "b", {"id_": 1, "Ident": 2, "_id": 3}))

    assert await cosmos.get(Parcel, shop="a", id=1) == Parcel(shop="a", id=1)
    assert dict(await cosmos.get(PropertyBag.key("Parcels", "a", "b"))) == {"id_": 1, "Ident": 2, "_id": 3}


async def test_other_stores_have_no_such_names() -> None:
    """Azure Storage and the embedded engine store such a property as any other."""
    async with memory_database(Parcel) as db:
        await db.insert(Parcel(shop="a", id=1, tag="x"))

        assert (await db.get(Parcel, shop="a", id=1)).tag == "x"
