"""
Writes of entities that have a table for each period: the first one of a period makes its table.
"""

import asyncio
import datetime as dt

import pytest

from tableorm import (
    AccessDenied,
    Conflict,
    Database,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    Mapped,
    NotSupported,
    PropertyBag,
    TableNotFound,
    TransactionFailed,
    field,
)
from tableorm.connection import period_tables
from tableorm.testing import Faults
from tests.databases import database_fixture

UTC = dt.UTC
DAY = dt.timedelta(days=1)
NOON = dt.datetime(2024, 3, 1, 12, tzinfo=UTC)


class Sale(Entity, table="WrittenSales{at:%Y%m%d}", partition_key="{shop}", row_key="{at:ticks}"):
    shop: Mapped[str] = field(default="a")
    at: Mapped[dt.datetime]
    cents: Mapped[int] = field(default=0)


class Listed(Entity, table="WrittenListed{at:%Y%m%d}", partition_key="{shop}", row_key="sale_{at:ticks}"):
    shop: Mapped[str]
    at: Mapped[dt.datetime]
    item: Mapped[str] = field(default="tea")

    by_item = Index(row_key="item_{item}_{at:ticks}", building=False)


db = database_fixture()


@pytest.fixture
def faults(db: Database, monkeypatch: pytest.MonkeyPatch) -> Faults:
    for name in ("_FIRST_PAUSE", "_LONGEST_PAUSE"):
        monkeypatch.setattr(period_tables, name, 0.001)
    monkeypatch.setattr(period_tables, "_LONGEST_WAIT", 0.003)
    return Faults(db)


async def test_the_first_write_makes_the_table(db: Database) -> None:
    """An insert that finds no table makes it and is sent again; the next one finds it."""
    with db.observe() as seen:
        await db.insert(Sale(at=NOON))
        await db.insert(Sale(shop="b", at=NOON))

    assert [request.operation for request in seen.requests] == ["insert", "create-table", "insert", "insert"]
    assert await db.tables() == ["WrittenSales20240301"]


async def test_writes_at_the_same_time_make_it_once(db: Database) -> None:
    """Writers that miss a table together send one request to make it, and each of them writes."""
    with db.observe() as seen:
        await asyncio.gather(*(db.insert(Sale(shop=str(number), at=NOON)) for number in range(20)))

    assert [request.operation for request in seen.requests].count("create-table") == 1
    assert await db.select(Sale).where(Sale.at >= NOON, Sale.at <= NOON).allow_scan().count() == 20


async def test_a_writer_that_is_cancelled_leaves_the_others_alone(db: Database) -> None:
    """Whoever began to make the table may be cancelled: the others still get it."""
    first = asyncio.create_task(db.insert(Sale(shop="first", at=NOON)))
    second = asyncio.create_task(db.insert(Sale(shop="second", at=NOON)))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)

    await second

    assert await db.exists(Sale, shop="second", at=NOON)


async def test_each_verb_makes_rows_or_finds_none(db: Database) -> None:
    """Verbs that make rows make the table; those that change one find none, and make no table."""
    sale = Sale(at=NOON)
    for call in (db.merge(sale, if_match="*"), db.replace(sale, if_match="*"), db.delete(sale, if_match="*")):
        with pytest.raises(EntityNotFound):
            await call
    await db.delete(Sale.key(shop="a", at=NOON), if_match="*", missing_ok=True)
    with pytest.raises(EntityNotFound):
        await db.get(Sale, shop="a", at=NOON)
    assert not await db.exists(Sale, shop="a", at=NOON)
    assert await db.get_many([sale.key]) == [None]
    assert await db.tables() == []

    await db.upsert(sale)
    await db.upsert(Listed(shop="a", at=NOON + DAY))
    made, new = await db.get_or_insert(Sale(at=NOON + 2 * DAY))
    modified = await db.modify(Sale.key(shop="a", at=NOON), lambda found: setattr(found, "cents", 5))

    assert (new, modified.cents) == (True, 5)
    assert await db.tables() == ["WrittenListed20240302", "WrittenSales20240301", "WrittenSales20240303"]
    assert made.key.table == "WrittenSales20240303"


async def test_the_life_of_an_entity_in_its_table(db: Database) -> None:
    """An entity that was read is saved, refreshed and deleted in its table, with its index entry."""
    await db.insert(Listed(shop="a", at=NOON))
    found = await db.get(Listed, shop="a", at=NOON)
    found.item = "rice"
    await db.save(found)
    await db.refresh(found)

    assert (await db.get(Listed.by_item, shop="a", item="rice", at=NOON)).key == found.key
    assert await db.get_or_none(Listed.by_item, shop="a", item="tea", at=NOON) is None
    with pytest.raises(EntityExists):
        await db.insert(Listed(shop="a", at=NOON))
    await db.delete(found)
    assert await db.select_raw("WrittenListed20240301").allow_scan().all() == []


async def test_a_new_period_is_a_new_key(db: Database) -> None:
    """A changed field of the key is rejected by `save`, and no move leads to another period or partition."""
    sale = Listed(shop="a", at=NOON)
    await db.insert(sale)

    with pytest.raises(NotSupported, match="cannot be moved to another partition or period"):
        await db.move(sale, at=NOON + DAY)
    with pytest.raises(NotSupported, match="a table for each period"):
        await db.move(sale, shop="b")
    await db.move(sale, at=NOON + dt.timedelta(hours=1))
    assert sale.key.table == "WrittenListed20240301"
    assert await db.exists(Listed, shop="a", at=NOON + dt.timedelta(hours=1))


async def test_transactions_are_of_one_period(db: Database) -> None:
    """The entities of one partition in one period are written together, in a table made for it; others are rejected."""
    async with db.transaction() as tx:
        tx.insert(Sale(at=NOON))
        tx.insert(Sale(at=NOON + dt.timedelta(seconds=1)))
    assert await db.tables() == ["WrittenSales20240301"]

    with pytest.raises(TransactionFailed, match=r"table WrittenSales20240302.*table WrittenSales20240301"):
        async with db.transaction() as tx:
            tx.insert(Sale(at=NOON + dt.timedelta(seconds=2)))
            tx.insert(Sale(at=NOON + DAY))
    assert await db.tables() == ["WrittenSales20240301"]


async def test_a_table_that_is_being_deleted_is_waited_for(db: Database, faults: Faults) -> None:
    """A write to a period that was just dropped waits until the table can be made, and then says that it cannot."""
    with faults.fail_next("create-table", with_="TableBeingDeleted"):
        await db.insert(Sale(at=NOON))
    with faults.fail_next("insert", with_="TableBeingDeleted"):
        await db.insert(Sale(shop="b", at=NOON))
    assert await db.exists(Sale, shop="b", at=NOON)

    planned = faults.fail_next("create-table", with_="TableBeingDeleted", times=99)
    with pytest.raises(Conflict, match="'WrittenSales20240302' is still being deleted after") as refused:
        await db.insert(Sale(at=NOON + DAY))
    planned.left = 0
    assert refused.value.code == "TableBeingDeleted"


async def test_who_may_not_make_tables_is_told(db: Database, faults: Faults) -> None:
    """A client that may not make tables is told what makes them in time."""
    with (
        faults.fail_next("create-table", with_=403),
        pytest.raises(AccessDenied, match=r"no table 'WrittenSales20240301' .*db.prepare_periods\(\) in time"),
    ):
        await db.insert(Sale(at=NOON))


async def test_a_table_that_never_comes(db: Database, faults: Faults) -> None:
    """A write is sent five times; then what the store says is its error."""
    planned = faults.fail_next("insert", with_="TableNotFound", times=99)

    with pytest.raises(TableNotFound):
        await db.insert(Sale(at=NOON))
    assert planned.left == 99 - 5


async def test_a_read_that_is_refused_is_no_absence(db: Database, faults: Faults) -> None:
    """A row is absent with the table of its period; not if it may not be read, nor if a plain table is missing."""
    assert await db.get_or_none(Sale, shop="a", at=NOON) is None
    with faults.fail_next("get", with_=403), pytest.raises(AccessDenied):
        await db.get_or_none(Sale, shop="a", at=NOON)
    with pytest.raises(TableNotFound):
        await db.get_or_none(PropertyBag.key("WrittenNowhere", "a", "b"))
