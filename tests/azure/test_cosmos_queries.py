"""
Queries on an endpoint that promises no order: results are sorted here, or refused by name; never a wrong "newest ten".
"""

import datetime as dt
from collections.abc import AsyncIterator

import pytest

from tableorm import Database, Entity, Mapped, NotSupported, connect
from tests.azure.cosmos import URL, CosmosStub
from tests.azure.stub import KEY, Stub


class Expense(Entity, table="Expenses", partition_key="{employee}", row_key="{at:ticks_desc}"):
    employee: Mapped[str]
    at: Mapped[dt.datetime]


START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
async def cosmos() -> AsyncIterator[Database]:
    async with Stub() as stub:
        stub.handler = CosmosStub().answer
        proxies = {"http": f"http://127.0.0.1:{stub.port}"}
        async with connect(URL, key=KEY, retry_backoff_factor=0.001, proxies=proxies) as db:
            await db.create_tables(Expense)
            async with db.bulk() as bulk:
                for employee in ("e1", "e2"):
                    for day in range(150):
                        await bulk.insert(Expense(employee=employee, at=START + dt.timedelta(days=day)))
            yield db


async def test_the_newest_ten_are_the_newest_ten(cosmos: Database) -> None:
    """Also the first one, all in order, pages and cursors, and several partitions."""
    query = cosmos.select(Expense).where(Expense.employee == "e1")
    newest = [START + dt.timedelta(days=149 - n) for n in range(150)]

    assert [e.at for e in await query.limit(10).all()] == newest[:10]
    first = await query.first()
    assert first is not None and first.at == newest[0]
    assert [e.at async for e in query] == newest
    assert [e.at async for page in query.pages(40) for e in page.items] == newest
    both = cosmos.select(Expense).where(Expense.employee.in_(["e1", "e2"]))
    assert [e.at for e in await both.all()] == newest * 2
    assert await both.count() == 300 and len([e async for e in both.unordered()]) == 300


async def test_more_than_can_be_sorted_is_refused(cosmos: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, with the way out."""
    monkeypatch.setattr("tableorm.running._MOST_SORTED", 100)
    query = cosmos.select(Expense).where(Expense.employee == "e1")

    with pytest.raises(NotSupported, match=r"no order.*\.unordered\(\)"):
        await query.first()
    assert len([e async for e in query.unordered()]) == 150
