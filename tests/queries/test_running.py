"""
Running queries: pages ahead, several requests at once, and nothing left behind when a query is left.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from tableorm import (
    Database,
    Entity,
    Mapped,
    ModelError,
    NotSupported,
    Select,
    TableNotFound,
    TableOrmError,
    connect,
    field,
)
from tableorm.protocol.codes import Code, Fault
from tableorm.queries import run as running
from tableorm.stores import Bounds, Row, RowPage, RowQuery
from tests.database.between import Between, Gated, Recorded, Shuffled, Slow

pytestmark = pytest.mark.limit(10)  # what hangs shall fail soon


class Item(Entity, table="Items", partition_key="{group}", row_key="{number:05d}"):
    group: Mapped[str]
    number: Mapped[int]
    text: Mapped[str] = field(default="")
    note: Mapped[str | None] = field(default=None)


PARTS = "abcd"

in_order_or_not = pytest.mark.parametrize("ordered", [True, False])


async def fill(db: Database, count: int, *groups: str) -> None:
    await db.create_tables(Item)
    for group in groups:
        for start in range(0, count, 100):
            async with db.transaction() as tx:
                for number in range(start, min(start + 100, count)):
                    tx.insert(Item(group=group, number=number))


def of_parts(db: Database, parts: str = PARTS) -> Select[Item]:
    """Select the items of some of the four partitions."""
    return db.select(Item).where(Item.group.in_([*parts]))


def names(items: list[Item]) -> list[str]:
    return [f"{item.group}{item.number}" for item in items]


@pytest.fixture
def gated() -> Gated:
    """A backend whose reads wait at a gate once it is shut; two rows are a page."""
    return Gated(2)


@pytest.fixture
async def parts(gated: Gated) -> AsyncIterator[Database]:
    """A database on it: four partitions of five rows."""
    async with Database(gated) as db:
        await fill(db, 5, *PARTS)
        yield db


def others() -> set["asyncio.Task[Any]"]:
    """The tasks besides this one."""
    current = asyncio.current_task()
    return {task for task in asyncio.all_tasks() if task is not current}


async def until(condition: Callable[[], bool]) -> None:
    """Let everything else go on until the condition holds."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - of what the event loop does itself there is no event
            await asyncio.sleep(0)


async def settled() -> None:
    """Let everything that can go on do so: what waits at the gate stays there."""
    for _ in range(50):
        await asyncio.sleep(0)


def ahead(backend: Recorded, count: int) -> bool:
    return len(backend.asked) >= count


async def test_one_page_is_fetched_ahead() -> None:
    """While the caller works with a page, the next one is fetched, and not the one after it."""
    async with Database(backend := Recorded(10)) as db:
        await fill(db, 100, "a")
        asked: list[int] = []
        async for item in of_parts(db, "a"):
            if item.number % 10 == 0:
                await until(partial(ahead, backend, min(item.number // 10 + 2, 10)))
            asked.append(len(backend.asked))

    assert asked == [min(number // 10 + 2, 10) for number in range(100)]


async def test_a_limit_fetches_no_page_ahead_that_it_does_not_need() -> None:
    """Neither before nor behind the last row."""
    async with Database(backend := Recorded(10)) as db:
        await fill(db, 100, "a")
        items = await of_parts(db, "a").limit(20).all()

    assert (len(items), len(backend.asked)) == (20, 2)


async def test_leaving_a_stream_cancels_what_is_outstanding(gated: Gated, parts: Database) -> None:
    """At once, and no task is left behind."""
    before = others()
    gated.shut = True
    gated.permit()  # for the first page of the first partition, which the caller waits for
    async with of_parts(parts).stream() as stream:
        first = await anext(aiter(stream))
        await gated.until_waiting(4)  # the next page of the first partition, and the first of the others
        assert first.number == 0

    assert others() == before
    assert (gated.cancelled, gated.waiting) == (4, 0)


async def test_leaving_a_stream_before_the_first_row(gated: Gated, parts: Database) -> None:
    """What the caller waits for can be given up: by a timeout, or by a cancellation; all requests end."""
    gated.shut = True
    before = others()
    query = of_parts(parts)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await query.all()

    assert (gated.cancelled, gated.waiting, others()) == (4, 0, before)
    task = asyncio.create_task(query.unordered().all())
    await gated.until_waiting(4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (gated.cancelled, gated.waiting, others()) == (8, 0, before)


async def test_breaking_out_of_a_plain_loop_leaves_nothing_for_long(gated: Gated, parts: Database) -> None:
    """Python closes the iterator when it is collected, and with it end its requests."""
    before = others()
    async for _ in of_parts(parts):
        gated.shut = True
        break
    gc.collect()
    await until(lambda: others() == before)

    assert gated.waiting == 0


@in_order_or_not
async def test_an_error_ends_the_other_requests(gated: Gated, parts: Database, ordered: bool) -> None:
    """It comes out as one of tableorm, and nothing runs on."""
    gated.shut = True
    gated.faults = {"a": Fault(Code.SERVER_BUSY, "The server is busy.")}
    before = others()
    query = of_parts(parts)
    task = asyncio.create_task((query if ordered else query.unordered()).all())
    await gated.until_waiting(4)
    gated.permit()
    with pytest.raises(TableOrmError, match="busy"):
        await task

    assert (gated.waiting, others()) == (0, before)


async def test_a_missing_table_is_named(db: Database) -> None:
    """By every way to run a query."""
    query = of_parts(db)
    for run in (query.all, query.count, query.first, query.exists, query.page, query.unordered().all, query.one):
        with pytest.raises(TableNotFound, match="Items"):
            await run()


@in_order_or_not
async def test_concurrency_is_bounded(gated: Gated, parts: Database, ordered: bool) -> None:
    """As many requests run at the same time as are allowed, and no more."""
    gated.shut = True
    query = of_parts(parts).concurrency(3)
    task = asyncio.create_task((query if ordered else query.unordered()).all())
    await gated.until_waiting(3)
    await settled()
    assert gated.waiting == 3
    gated.permit(1000)
    found = await task

    assert gated.most == 3
    assert sorted(names(found)) == [f"{group}{n}" for group in PARTS for n in range(5)]


async def test_sixteen_requests_run_at_once_by_default() -> None:
    """Of points as of ranges."""
    async with Database(gated := Gated()) as db:
        await fill(db, 40, "a")
        gated.shut = True
        task = asyncio.create_task(db.select(Item).where(Item.group == "a", Item.number.in_(range(40))).all())
        await gated.until_waiting(16)
        gated.permit(1000)

        assert len(await task) == 40
        assert gated.most == 16


async def rows_ahead(page: int, rows: int, *, ordered: bool) -> dict[str, int]:
    """Of each partition the most rows that were fetched, and not given yet, while the caller works."""
    most = dict.fromkeys(PARTS[:3], 0)
    async with Database(backend := Recorded(page)) as db:
        await fill(db, rows, *most)
        query = db.select(Item).where(Item.group.in_(list(most)))
        found: Counter[str] = Counter()
        async for item in query if ordered else query.unordered():
            found[item.group] += 1
            if found.total() % 97 == 1:
                await settled()
                for group in most:
                    most[group] = max(most[group], min(backend.counts[group] * page, rows) - found[group])
    assert found == dict.fromkeys(most, rows)
    return most


@in_order_or_not
async def test_short_pages_are_read_ahead_until_a_full_one_waits(ordered: bool) -> None:
    """A partition that waits for its turn does not stop after a page of a few rows."""
    ahead = await rows_ahead(50, 1_200, ordered=ordered)

    assert min(ahead["b"], ahead["c"]) >= 900
    assert max(ahead.values()) <= 1_000 + 50


@in_order_or_not
async def test_exactly_as_many_rows_wait_as_a_full_page_has(ordered: bool) -> None:
    """Two pages of 500 rows wait of each partition whose turn has not come; there is no room for a third."""
    ahead = await rows_ahead(500, 2_500, ordered=ordered)

    assert min(ahead["b"], ahead["c"]) >= 1_000
    assert max(ahead.values()) <= 1_000 + 500


class Turns(Between):
    """Answers each request one turn later, from rows that were read before; says what happened in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[Row]] = {}
        self.said: list[str] = []

    async def hold(self, db: Database, count: int) -> None:
        """Fill two partitions, and read the rows."""
        await fill(db, count, "a", "b")
        for group in "ab":
            self.rows[group] = (await self.inner.tables.query("Items", RowQuery(Bounds.only(group)))).rows

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        group, start = query.partition.lower or "", int(continuation or 0)
        rows = self.rows[group]
        self.said.append(f"{group} asked")
        await asyncio.sleep(0)
        self.said.append(f"{group} answered")
        return RowPage(rows[start : start + 2], None if start + 2 >= len(rows) else str(start + 2))


async def test_a_request_goes_on_without_waiting_for_the_work_of_others() -> None:
    """Of answers that come in one turn, each is followed by the next request before another is looked at."""
    async with Database(backend := Turns()) as db:
        await backend.hold(db, 5)
        found = await of_parts(db, "ab").unordered().all()

    assert sorted(names(found)) == [f"{group}{n}" for group in ("a", "b") for n in range(5)]
    assert backend.said[:5] == ["a asked", "b asked", "a answered", "a asked", "b answered"]


async def test_pages_that_came_before_an_error_are_given() -> None:
    """What was fetched ahead of a request that failed comes first, then the error."""

    class Broken(Turns):
        async def query(
            self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None
        ) -> RowPage:
            if continuation == "4":
                raise Fault(Code.INTERNAL_ERROR, "Broken.")
            return await super().query(table, query, limit, continuation)

    async with Database(backend := Broken()) as db:
        await backend.hold(db, 6)
        backend.rows["a"] = backend.rows["a"][:3]
        given: list[Item] = []
        with pytest.raises(TableOrmError, match="Broken"):
            async for item in of_parts(db, "ab"):
                await settled()
                given.append(item)

    assert names(given) == ["a0", "a1", "a2", "b0", "b1", "b2", "b3"]


async def test_pages_without_rows_are_not_read_ahead_without_end() -> None:
    """A scan that finds nothing yet waits for its turn after some requests, not at the end of the table."""
    async with Database(backend := Recorded(1)) as db:
        await fill(db, 100, "a", "b")
        query = of_parts(db, "ab")
        async for item in query:
            await settled()
            if item.number == 0 and item.group == "a":
                assert backend.counts["b"] <= 33


@in_order_or_not
async def test_a_union_sends_no_more_of_a_query_than_it_allows(gated: Gated, parts: Database, ordered: bool) -> None:
    """Each query's own concurrency holds beside that of the union."""
    gated.shut = True
    few = of_parts(parts, "ab").concurrency(1)
    more = of_parts(parts, "cd")
    union = parts.union(few, more)
    task = asyncio.create_task((union if ordered else union.unordered()).all())
    await gated.until_waiting(1 if ordered else 3)
    await settled()
    # In order, what comes later does not begin before what comes first.
    assert gated.waiting == (1 if ordered else 3)
    gated.permit(1000)
    found = await task

    assert sorted(names(found)) == [f"{group}{n}" for group in PARTS for n in range(5)]
    if ordered:
        assert names(found) == [f"{group}{n}" for group in PARTS for n in range(5)]


async def test_unordered_gives_what_comes_first() -> None:
    """One partition does not wait for another."""
    async with Database(Slow("a", 1)) as db:
        await fill(db, 2, "a", "b")
        found = await of_parts(db, "ab").unordered().all()

    assert names(found) == ["b0", "b1", "a0", "a1"]


async def test_a_limit_that_is_reached_waits_for_nobody(gated: Gated, parts: Database) -> None:
    """What was asked ahead of need is cancelled."""
    before = others()
    found: list[Item] = []
    async with asyncio.timeout(30):
        async for item in of_parts(parts).limit(2):
            found.append(item)
            gated.shut = True

    assert names(found) == ["a0", "a1"]
    assert (gated.waiting, others()) == (0, before)


async def test_counting_to_a_limit_leaves_nothing_behind(gated: Gated, parts: Database) -> None:
    """What runs when the answer is known is cancelled before it is given."""
    before = others()
    for _ in range(5):
        assert await of_parts(parts).limit(1).count() == 1
        assert others() == before
        assert await of_parts(parts).exists()
        assert others() == before


async def test_a_stream_is_used_once_and_in_its_block(db: Database) -> None:
    """Another use is rejected, and says what to do."""
    await fill(db, 1, "a")
    stream = of_parts(db, "a").stream()
    with pytest.raises(ModelError, match="not open"):
        aiter(stream)
    async with stream:
        assert [item.number async for item in stream] == [0]
    with pytest.raises(ModelError, match="already used"):
        async with stream:
            pass


async def test_too_many_rows_without_order_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do instead."""
    monkeypatch.setattr(running, "_MOST_SORTED", 100)
    async with Database(Shuffled(50)) as db:
        await fill(db, 110, "a")
        query = of_parts(db, "a")
        with pytest.raises(NotSupported, match=r"query of Item.*unsorted rows.*at most 100.*\.unordered\(\)"):
            await query.first()

        assert await query.count() == 110
        assert await query.limit(5).count() == 5 and await query.exists()
        assert len(await query.unordered().limit(5).all()) == 5


async def test_a_closed_database_refuses() -> None:
    """Also a query that was made before."""
    async with connect("local::memory:") as db:
        query = of_parts(db, "a")
    with pytest.raises(NotSupported, match="the database is closed"):
        await query.all()
