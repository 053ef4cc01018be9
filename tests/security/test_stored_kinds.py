"""
Rows that one client has stored with a damaged kind, version or value: they stop no write and no query-delete of others.
"""

from decimal import Decimal
from typing import Any

import pytest

from tableorm import Database, DecodeError, Entity, Index, Mapped, PropertyBag, TableOrmError, field, upgrade
from tableorm.stores import Verb
from tests.security.world import write_row


class Guest(Entity, table="Guests", partition_key="{house}", row_key="guest_{id}", version=2):
    house: Mapped[str]
    id: Mapped[int]
    name: Mapped[str | None] = field(default=None)
    fee: Mapped[Decimal | None] = field(default=None)

    by_name = Index(row_key="name_{name}_{id}", include="keys")


@upgrade(Guest, from_version=1)
def from_one(bag: PropertyBag) -> PropertyBag:
    bag["name"] = bag["first"]
    return bag


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Guest)
    for number in range(1, 4):
        await db.insert(Guest(house="a", id=number, name=f"n{number}"))
    return db


async def plant(db: Database, key: str, **members: Any) -> None:
    await write_row(db, "Guests", "a", key, Verb.INSERT_OR_REPLACE, **members)


@pytest.mark.parametrize("kind", ["Guest:x", "Guest:0", "Guest:99999999999", "Guest:1"])
async def test_a_kind_stops_no_query_delete(db: Database, kind: str) -> None:
    """What is said of a row that has no model is reported with the row; all others are deleted."""
    await plant(db, "guest_9", EntityType=kind)
    report = await db.select(Guest).where(Guest.house == "a").delete()

    assert report.written == (4 if kind == "Guest:1" else 3)  # that one can be deleted without being read
    assert await db.select(Guest.by_name).where(Guest.house == "a").all() == []
    if kind != "Guest:1":
        assert [str(each.entity) for each in report.failed] == ["PropertyBag ('a', 'guest_9') in table Guests"]
        assert isinstance(report.failed[0].error, DecodeError)


@pytest.mark.parametrize("kind", ["Guest:x", "Guest:1"])
async def test_a_condition_on_a_damaged_row_stops_no_query_delete(db: Database, kind: str) -> None:
    """A condition that is evaluated here is asked of each row by itself."""
    await plant(db, "guest_9", EntityType=kind, name="n9", fee="sNaN")
    report = await db.select(Guest).where(Guest.house == "a", Guest.fee.is_none() | (Guest.fee > Decimal(1))).delete()

    assert report.written == 3


async def test_a_damaged_primary_stops_no_delete_by_an_index(db: Database) -> None:
    """An entity that cannot be read is reported with its row; those before and behind it are deleted."""
    row = dict(await db.store.get("Guests", "a", "guest_2"))
    await plant(db, "guest_2", **{**row, "fee": "no number"})
    report = await db.select(Guest.by_name).where(Guest.house == "a").delete()

    assert report.written == 2
    assert [each.error.__class__ for each in report.failed] == [DecodeError]
    assert [
        guest.id for guest in await db.select(Guest.by_name).where(Guest.name == "n1", Guest.house == "a").all()
    ] == []


async def test_an_upgrade_that_fails_stops_no_bulk(db: Database) -> None:
    """Its error is the cause of that of its entity."""
    await plant(db, "guest_9", EntityType="Guest")
    async with db.bulk(errors="report") as bulk:
        for number in range(4, 8):
            await bulk.upsert(Guest(house="a", id=number, name="x"))
        await bulk.upsert(Guest(house="a", id=9, name="x"))

    assert bulk.report.written == 4
    assert isinstance(bulk.report.failed[0].error.__cause__, KeyError)
    assert "guest_9" in str(bulk.report.failed[0].error)


@pytest.mark.parametrize("manifest", ["x" * 30_000, '{"gone":{"later":"' + "x" * 30_000 + '"}}'])
async def test_what_is_stored_is_quoted_in_part(db: Database, manifest: str) -> None:
    """A message has no more of it than the beginning."""
    await plant(db, "guest_9", EntityType="Guest:2", _ix=manifest)
    with pytest.raises(TableOrmError) as refused:
        await db.delete(Guest, house="a", id=9, if_match="*")

    assert len(str(refused.value)) < 1_000


@pytest.mark.parametrize("kind", ["Guest:" + "x" * 30_000, "x" * 30_000])
async def test_a_kind_is_quoted_in_part(db: Database, kind: str) -> None:
    """So is the kind of a row, and its version."""
    await plant(db, "guest_9", EntityType=kind, _ix="damaged")
    with pytest.raises(TableOrmError) as refused:
        await db.get(Guest, house="a", id=9)

    assert len(str(refused.value)) < 1_000


def test_entities_with_a_signaling_nan_are_compared() -> None:
    """Such a value is equal to nothing, as any other NaN."""
    one, two = (Guest(house="a", id=1, fee=Decimal("sNaN")) for _ in range(2))

    assert one != two
