"""
Conditions on moments: the store has ticks of 100 ns, Python has microseconds, and what is read can be asked for.

A datetime in a condition stands for the ten ticks of its microsecond.
"""

import datetime as dt
import operator
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tableorm import Access, Database, DecodeError, Entity, Index, Mapped, RowKey, Timestamp, field
from tableorm.models.property_bag import bag_of_row
from tableorm.protocol.edm import MAX_TICKS, text_from_ticks, ticks_from_datetime
from tests.databases import memory_database
from tests.rows import replace_row

UTC = dt.UTC
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=UTC)
MICROSECOND = dt.timedelta(microseconds=1)
T = ticks_from_datetime(NOON)


class Measured(Entity, table="Moments", partition_key="p", row_key="{n:03d}", kind=None):
    n: Mapped[int]
    at: Mapped[dt.datetime | None] = field(default=None)


class Up(Entity, table="MomentsUp", partition_key="p", row_key="{at:ticks}", kind=None):
    at: Mapped[dt.datetime]


class Down(Entity, table="MomentsDown", partition_key="p", row_key="{at:ticks_desc}", kind=None):
    at: Mapped[dt.datetime]


class Noted(Entity, table="MomentsNoted", partition_key="p", row_key="n_{n:03d}"):
    n: Mapped[int]
    at: Mapped[dt.datetime]

    by_at = Index(row_key="at_{at:ticks}_{n:03d}", building=False)


TICKS = [T + number for number in (-20, -13, -10, -1, 0, 1, 4, 9, 10, 11, 20)]


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    """A database with a row for each of `TICKS`, as a property and as a key."""
    async with memory_database(Measured, Up, Down, Noted) as db:
        for n, ticks in enumerate(TICKS):
            await store(
                db, "Moments", RowKey=f"{n:03d}", at=text_from_ticks(ticks), **{"at@odata.type": "Edm.DateTime"}
            )
            await store(db, "MomentsUp", RowKey=f"{ticks:019d}")
            await store(db, "MomentsDown", RowKey=f"{MAX_TICKS - ticks:019d}")
        await store(db, "Moments", RowKey="999")
        yield db


async def store(db: Database, table: str, **members: str) -> None:
    """Insert a row as another program would."""
    await db.insert(bag_of_row(table, {"PartitionKey": "p", **members}))


@pytest.mark.parametrize("model", [Up, Down])
async def test_a_key_leads_back_to_its_row_or_says_that_it_does_not(db: Database, model: Any) -> None:
    """What is read from a key is found by `get`; what no datetime makes is rejected, with the key and what to do."""
    for ticks in TICKS:
        key = f"{ticks if model is Up else MAX_TICKS - ticks:019d}"
        query = db.select(model).where(RowKey == key)
        if ticks % 10:
            with pytest.raises(DecodeError, match=rf"{key}.*as an int in the format ticks.*PropertyBag"):
                await query.all()
        else:
            (found,) = await query.all()
            assert await db.get(model, at=found.at) == found


async def test_the_newest_row_is_not_found_again(db: Database) -> None:
    """A program that asks for what was written since the newest row gets later rows alone."""
    for n in range(100, 120):
        newest = Measured(n=n)
        await db.insert(newest)
        assert newest.timestamp is not None
        assert await db.select(Measured).where(Timestamp > newest.timestamp).count() == 0
        assert await db.select(Measured).where(Timestamp == newest.timestamp).count() >= 1


async def test_a_moment_in_a_key_is_one_request(db: Database) -> None:
    """`==` on a key field stays a point."""
    query = db.select(Up).where(Up.at == NOON)

    assert query.explain().access is Access.POINT
    assert [each.at for each in await query.all()] == [NOON]


async def test_a_literal_in_the_text_of_a_filter_is_one_tick(db: Database) -> None:
    """A value stands for its microsecond, as elsewhere."""
    raw = db.select_raw("Moments").allow_scan()
    tick = f"datetime'{text_from_ticks(T)}'"

    assert await raw.where(f"at eq {tick}").count() == 1
    assert await raw.where("at eq {}", NOON).count() == 4
    assert await raw.where(f"at gt {tick}").count() == 6
    assert await raw.where("{} lt at", NOON).count() == 3


async def test_an_index_and_the_primary_key_agree_about_a_moment(db: Database) -> None:
    """The entry of an index holds the microsecond, the row all digits: a condition means the same in both."""
    await db.insert(Noted(n=1, at=NOON))
    (bag,) = await db.select_raw("MomentsNoted").where("RowKey eq {}", "n_001").allow_scan().all()
    await replace_row(db, "MomentsNoted", {**bag.row, "at": text_from_ticks(T + 7)})
    for name in ("eq", "lt", "le", "gt", "ge"):
        for value in (NOON - MICROSECOND, NOON, NOON + MICROSECOND):
            condition = getattr(operator, name)(Noted.at, value)
            by_index = await db.select(Noted.by_at).where(condition).count()
            assert await db.select(Noted).where(Noted.n >= 0, condition).count() == by_index
