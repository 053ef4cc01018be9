"""
Queries on an endpoint that promises no order: results are sorted here, or refused by name; never a wrong "newest ten".
"""

import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tableorm import Database, Entity, Mapped, NotSupported, connect
from tests.azure.cosmos import URL, serve_cosmos


class Expense(Entity, table="Expenses", partition_key="{employee}", row_key="{at:ticks_desc}"):
    employee: Mapped[str]
    at: Mapped[dt.datetime]


START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


async def fill(db: Database) -> None:
    await db.create_tables(Expense)
    async with db.bulk() as bulk:
        for employee in ("e1", "e2"):
            for day in range(150):
                await bulk.insert(Expense(employee=employee, at=START + dt.timedelta(days=day)))


@pytest.fixture
async def cosmos() -> AsyncIterator[Database]:
    async with serve_cosmos() as options, connect(URL, **options) as db:
        await fill(db)
        yield db


@pytest.fixture
async def sorted_store() -> AsyncIterator[Database]:
    """The same rows where they come in order."""
    async with connect("local::memory:") as db:
        await fill(db)
        yield db


E1 = Expense.employee == "e1"
BOTH = Expense.employee.in_(["e2", "e1"])
LATE = Expense.at > START + dt.timedelta(days=100)


async def _by_cursors(db: Database, size: int) -> list[Expense]:
    query, found, cursor = db.select(Expense).where(BOTH, LATE), list[Expense](), None
    while True:
        page = await query.page(size, cursor)
        assert len(page.items) <= size
        found += page.items
        cursor = page.cursor
        if cursor is None:
            return found


async def _streamed(db: Database) -> list[Expense]:
    """Left in the middle, and gone on with."""
    query = db.select(Expense).where(BOTH)
    found: list[Expense] = []
    async with query.stream() as stream:
        async for each in stream:
            found.append(each)
            if len(found) == 170:
                break
        cursor = stream.cursor
    async with query.stream(cursor) as stream:
        return found + [each async for each in stream]


async def _split(db: Database, parts: int) -> list[Expense]:
    queries = db.select(Expense).where(Expense.employee > "e0").allow_scan().split(parts)
    return [each for query in queries for each in await query.all()]


ASKED: dict[str, Callable[[Database], Awaitable[object]]] = {
    "all": lambda db: db.select(Expense).where(E1).all(),
    "limit of several partitions": lambda db: db.select(Expense).where(BOTH).limit(151).all(),
    "limit of a scan": lambda db: db.select(Expense).where(LATE).allow_scan().limit(60).all(),
    "filtered": lambda db: db.select(Expense).where(E1, LATE).limit(5).all(),
    "in part": lambda db: db.select(Expense).where(BOTH).only(Expense.at).limit(160).all(),
    "first": lambda db: db.select(Expense).where(BOTH, LATE).first(),
    "one": lambda db: db.select(Expense).where(E1, Expense.at == START).one(),
    "pages": lambda db: _by_cursors(db, 7),
    "large pages": lambda db: _by_cursors(db, 70),
    "stream": _streamed,
    "split": lambda db: _split(db, 5),
    "union": lambda db: db.union(db.select(Expense).where(E1, LATE), db.select(Expense).where(BOTH).limit(3)).all(),
    "raw": lambda db: db.select_raw("Expenses").where("PartitionKey eq {} and RowKey gt {}", "e1", "2").limit(9).all(),
}


@pytest.mark.one_of(5)
@pytest.mark.parametrize("name", list(ASKED))
async def test_answers_are_those_of_an_ordered_store(cosmos: Database, sorted_store: Database, name: str) -> None:
    """Whatever is asked, the same entities come in the same order."""
    found = await ASKED[name](cosmos)

    assert found == await ASKED[name](sorted_store)
    assert found


async def test_what_needs_no_order_is_not_sorted(cosmos: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts, deletions, existence and unordered results are of any size; the rest is rejected, not wrong."""
    monkeypatch.setattr("tableorm.queries.run._MOST_SORTED", 100)
    query = cosmos.select(Expense).where(BOTH)

    assert await query.count() == 300 and await query.exists()
    assert len(await query.unordered().limit(250).all()) == 250
    asked: list[Awaitable[object]] = [query.limit(10).all(), query.first(), query.page(5), query.all()]
    asked.append(cosmos.union(query, query).all())
    for call in asked:
        with pytest.raises(NotSupported, match=r"\.unordered\(\)"):
            await call
    report = await cosmos.select(Expense).where(E1).delete()
    assert (report.written, report.failures) == (150, 0)
    assert await query.count() == 150
