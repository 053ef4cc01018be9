"""
Queries and the event loop: whatever one of them reads, others wait for slices of it, not for all.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from tableorm.protocol.filters import Compare, Filter, Op, Or, constant
from tableorm.stores import Row, RowQuery
from tableorm_local.engine import Engine, scan
from tableorm_local.engine.catalog import Table
from tableorm_local.engine.scan import PageScan, count_comparisons
from tableorm_local.engine.sqlite import Connection
from tableorm_local.engine.writes import decode
from tests.local.engine.rows import insert_rows, make_rows
from tests.local.engine.turns import Turns

_SECONDS = 30  # so that what hangs fails
_NOTHING = Compare("N", Op.LT, constant(0))


class Clock:
    """A clock that shows the work that was done: so much for each byte that is decoded, and for each comparison."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, byte: float = 0.0, comparison: float = 0.0) -> None:
        self.now = 0.0
        self.slices: list[float] = []
        advance = PageScan.advance

        def work(body: bytes) -> Row:
            self.now += byte * len(body)
            return decode(body)

        def compile_filter(where: Filter) -> object:
            cost = comparison * count_comparisons(where)

            def test(_: Row) -> bool:
                self.now += cost
                return False

            return test

        def measure(page: PageScan, connection: Connection, table: Table, seconds: float) -> bool:
            before = self.now
            done = advance(page, connection, table, seconds)
            self.slices.append(self.now - before)
            return done

        monkeypatch.setattr(scan, "time", SimpleNamespace(perf_counter=lambda: self.now))
        monkeypatch.setattr(scan, "decode", work)
        monkeypatch.setattr(scan, "matcher", compile_filter)
        monkeypatch.setattr(PageScan, "advance", measure)


def before_slices(monkeypatch: pytest.MonkeyPatch, note: Callable[[PageScan], None]) -> None:
    """Call a function with the page before each slice of it."""
    advance = PageScan.advance

    def noted(page: PageScan, *given: Any) -> bool:
        note(page)
        return advance(page, *given)

    monkeypatch.setattr(PageScan, "advance", noted)


async def test_a_costly_filter_is_evaluated_in_slices(memory: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter of 2,000 comparisons takes a millisecond a row; a slice ends after that row, not after fifty."""
    await insert_rows(memory, make_rows("p", 200, N=0, T="x"))
    clock = Clock(monkeypatch, comparison=0.0000005)
    await memory.query("Shared", RowQuery(where=Or((_NOTHING,) * 2000)))

    assert len(clock.slices) >= 100
    assert max(clock.slices) < 0.0025


@pytest.mark.parametrize("small", [{3, 53}, set[int]()], ids=["small among large", "all large"])
async def test_large_rows_are_read_in_slices(memory: Engine, monkeypatch: pytest.MonkeyPatch, small: set[int]) -> None:
    """Rows that take long to decode end a slice, also where small ones stand among them."""
    rows = make_rows("p", 100, N=0, T="x" * 30_000)
    await insert_rows(memory, [row | {"T": "x"} if number in small else row for number, row in enumerate(rows)])
    clock = Clock(monkeypatch, byte=0.00000002)
    await memory.query("Shared", RowQuery(where=_NOTHING))

    assert len(clock.slices) >= 20
    assert max(clock.slices) < 0.0025


async def test_a_page_ends_after_a_second_of_work(memory: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has what was found until then, and says where to go on."""
    await insert_rows(memory, make_rows("p", 200, N=0, T="x"))
    clock = Clock(monkeypatch, comparison=1 / 64 / 2048)
    page = await memory.query("Shared", RowQuery(where=Or((_NOTHING,) * 2048)))

    assert sum(clock.slices) == 1 + 1 / 64
    assert page.continuation is not None


async def test_one_slice_is_read_at_a_time(memory: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred queries one has a slice in each turn of the event loop, and a read by key waits for one of these."""
    await insert_rows(memory, make_rows("p", 4000, N=0, T="x"))
    turns, slices = Turns(), Counter[int]()

    def note(_: PageScan) -> None:
        slices[turns.count] += 1

    async def read() -> int:
        before = slices.total()
        await memory.get("Shared", "p", "0100")
        return slices.total() - before

    before_slices(monkeypatch, note)
    queries = [asyncio.create_task(memory.query("Shared", RowQuery(where=_NOTHING))) for _ in range(100)]
    waited = list[int]()
    while slices.total() < 200:
        waited.append(await asyncio.create_task(read()))
        await asyncio.sleep(0)
    for query in queries:
        query.cancel()
    await asyncio.wait(queries)
    await turns.stop()

    assert max(slices.values()) == 1
    assert len(waited) > 50
    assert max(waited) <= 1


async def test_queries_go_on_in_order(memory: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries have their slices one after the other, and one that is cancelled holds up none."""
    await insert_rows(memory, make_rows("p", 2000, N=0, T="x"))
    order = list[PageScan]()
    before_slices(monkeypatch, order.append)
    monkeypatch.setattr("tableorm_local.engine.engine._SLICE_SECONDS", 0.0001)
    queries = [asyncio.create_task(memory.query("Shared", RowQuery(where=_NOTHING))) for _ in range(5)]
    while len(order) < 10:  # noqa: ASYNC110 - it is the order of turns that counts
        await asyncio.sleep(0)
    assert order[:5] == order[5:10]
    assert len(set(order)) == 5
    queries[2].cancel()
    async with asyncio.timeout(_SECONDS):
        await asyncio.wait(queries)
    assert [query.cancelled() for query in queries] == [False, False, True, False, False]


async def test_steps_take_turns(memory: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the work in steps that there is at once, one slice is done in each turn of the loop, first ones included."""
    clock = SimpleNamespace(perf_counter=itertools.count().__next__)  # each step takes a second
    monkeypatch.setattr("tableorm_local.engine.engine.time", clock)
    turns, done = Turns(), Counter[int]()

    def work() -> Generator[None, None, str]:
        for _ in range(5):
            done[turns.count] += 1
            yield
        return "done"

    await asyncio.sleep(0)
    async with asyncio.timeout(_SECONDS):
        results = await asyncio.gather(*(memory.take_turns(work()) for _ in range(8)))
    await turns.stop()

    assert results == ["done"] * 8
    assert sorted(done.values()) == [1] * (8 * 5)
