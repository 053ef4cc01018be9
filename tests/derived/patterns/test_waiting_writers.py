"""
Many writers of one database that change the same derived rows: they wait for each other, and lose no races.
"""

import asyncio
import datetime as dt
import random
from collections.abc import AsyncIterator

import pytest

from tableorm import Count, Database, Entity, Feed, Index, Mapped, Sum, field
from tableorm.connection.connection import connection_of
from tests.databases import memory_database
from tests.torture import seeds


class Till(Entity, table="Tills", partition_key="{shop}", row_key="till_{number}"):
    shop: Mapped[str]
    number: Mapped[int]
    taken: Mapped[int] = field(default=0, maintained=True)
    sales: Mapped[int] = field(default=0, maintained=True)
    note: Mapped[str] = field(default="")

    by_note = Index(row_key="note_{note}_{number}")


class Sale(Entity, table="Tills", partition_key="{shop}", row_key="sale_{id:05d}"):
    shop: Mapped[str] = field(default="a")
    id: Mapped[int]
    till: Mapped[int] = field(default=1)
    other: Mapped[int] = field(default=1)
    price: Mapped[int] = field(default=1)

    paid = Sum("price", lambda: Till.taken, shop="{shop}", number="{till}")
    counted = Count(lambda: Till.sales, shop="{shop}", number="{other}")
    changes = Feed(keep=dt.timedelta(days=7))


@pytest.fixture
async def shop() -> AsyncIterator[Database]:
    async with memory_database(Till) as db:
        for number in (1, 2, 3):
            await db.insert(Till(shop="a", number=number))
        yield db
        assert not connection_of(db).turns.lines


async def test_many_inserts_send_little_more_than_themselves(shop: Database) -> None:
    """300 inserts at once, of which each changes a sum and a feed, send at most 700 requests; nothing is lost."""
    before = shop.stats.requests
    await asyncio.gather(*(shop.insert(Sale(id=number)) for number in range(300)))

    assert shop.stats.requests - before <= 700
    till = await shop.get(Till, shop="a", number=1)
    assert (till.taken, till.sales) == (300, 300)
    noted = [change async for change in shop.changes(Sale, shop="a")]
    assert len(noted) == 300


@seeds(2, 300)
async def test_writers_of_several_rows_neither_wait_for_ever_nor_lose_anything(shop: Database, seed: int) -> None:
    """Single writes, transactions and bulks that change the same rows in any order, some of them cancelled."""
    draw = random.Random(seed)
    ids = iter(range(100_000))

    def sale() -> Sale:
        return Sale(id=next(ids), till=draw.randint(1, 3), other=draw.randint(1, 3), price=draw.randint(1, 9))

    def noted(till: Till) -> None:
        till.note += "x"

    async def write() -> None:
        match draw.randrange(5):
            case 0:
                await shop.insert(sale())
            case 1:
                async with shop.transaction() as tx:
                    for _ in range(3):
                        tx.insert(sale())
            case 2:
                async with shop.bulk() as bulk:
                    for _ in range(3):
                        await bulk.insert(sale())
                assert not bulk.report.failures
            case 3:
                await shop.modify(Till, noted, shop="a", number=draw.randint(1, 3))
            case _:
                one = sale()
                await shop.insert(one)
                one.price, one.till = 5, draw.randint(1, 3)
                await shop.save(one)
                await shop.delete(one)

    tasks = [asyncio.create_task(write()) for _ in range(60)]
    for task in draw.sample(tasks, 8):
        for _ in range(draw.randrange(8)):
            await asyncio.sleep(0)
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert not [each for each in results if each is not None and not isinstance(each, asyncio.CancelledError)]
    await asyncio.sleep(0.05)  # a write that was given up may still come
    sales = await shop.select(Sale).where(Sale.shop == "a").all()
    for till in await shop.select(Till).where(Till.shop == "a").all():
        assert till.taken == sum(each.price for each in sales if each.till == till.number)
        assert till.sales == sum(each.other == till.number for each in sales)
    assert (await shop.audit(Till, Sale)).found == 0


async def test_a_holder_that_is_modified_meanwhile_gets_its_turn(shop: Database) -> None:
    """It is not overtaken by the inserts that are counted in it: one attempt is enough."""

    def note(till: Till) -> None:
        till.note = "closed"

    inserts = [shop.insert(Sale(id=number)) for number in range(100)]
    modified = shop.modify(Till, note, attempts=1, shop="a", number=1)
    await asyncio.gather(*inserts[:50], modified, *inserts[50:])

    till = await shop.get(Till, shop="a", number=1)
    assert (till.taken, till.note) == (100, "closed")
