"""
Callers and the event loop: whatever one of them asks for, others wait for slices of it, not for all.
"""

import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest

from tableorm.protocol.filters import Compare, Filter, Op, Or, constant
from tableorm.stores import Row, RowQuery
from tableorm_local.engine import CALLER, Engine, FairSlots, FairTurns, scan
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
        monkeypatch.setattr(scan, "_compile_filter", compile_filter)
        monkeypatch.setattr(PageScan, "advance", measure)


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


async def test_a_page_that_takes_no_time_waits_for_nobody(memory: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer comes without a turn of the event loop."""
    await insert_rows(memory, make_rows("p", 20, N=0, T="x"))
    Clock(monkeypatch)
    turns = Turns()
    before = turns.count
    for _ in range(5):
        await memory.query("Shared", RowQuery())

    assert turns.count == before
    await turns.stop()


async def test_a_callers_queries_take_turns(memory: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two slices of one caller's query another caller has two at most, however many queries it has."""
    await insert_rows(memory, make_rows("p", 4000, N=0, T="x"))
    callers: list[str] = []
    advance = PageScan.advance

    def note(page: PageScan, connection: Connection, table: Table, seconds: float) -> bool:
        callers.append(CALLER.get())
        return advance(page, connection, table, seconds)

    async def ask(caller: str) -> None:
        CALLER.set(caller)
        await memory.query("Shared", RowQuery(where=_NOTHING))

    monkeypatch.setattr(PageScan, "advance", note)
    greedy = [asyncio.create_task(ask("greedy")) for _ in range(40)]
    await asyncio.sleep(0)
    await asyncio.create_task(ask("modest"))
    first, last = callers.index("modest"), len(callers) - callers[::-1].index("modest")
    for task in greedy:
        task.cancel()
    await asyncio.wait(greedy)

    modest = callers[first:last].count("modest")
    assert modest >= 3
    assert callers[:last].count("greedy") <= 2 * modest + 2


async def hold(slots: FairSlots, caller: str, until: asyncio.Event) -> None:
    async with slots.hold(caller):
        await until.wait()


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_slots_are_left_for_others() -> None:
    """One caller holds half of the slots, the next one half of the rest, so that somebody new finds one free."""
    slots, end = FairSlots(32), asyncio.Event()
    tasks = [asyncio.create_task(hold(slots, caller, end)) for caller in "abcde" for _ in range(40)]
    await turn()

    assert [slots.held(caller) for caller in "abcde"] == [16, 8, 4, 2, 1]
    assert (slots.free, slots.waiting) == (1, 169)
    async with asyncio.timeout(_SECONDS), slots.hold("new"):
        assert slots.free == 0
    end.set()
    await asyncio.wait_for(asyncio.gather(*tasks), _SECONDS)
    assert (slots.free, slots.waiting) == (32, 0)


async def test_a_free_slot_goes_to_whoever_holds_fewest() -> None:
    """Those that wait for the only slot get it caller by caller, however often one of them has asked."""
    slots, order = FairSlots(1), list[str]()

    async def work(caller: str) -> None:
        async with slots.hold(caller):
            order.append(caller)
            await asyncio.sleep(0)

    async with asyncio.timeout(_SECONDS):
        await asyncio.gather(*map(work, "aaaaabbc"))

    assert order == list("aabcabaa")
    assert Counter(order) == Counter("aaaaabbc")


async def test_slots_that_become_free_are_left_for_others() -> None:
    """A caller that waits gets no more than half of the slots when others give theirs back."""
    slots, end, first = FairSlots(8), asyncio.Event(), asyncio.Event()
    greedy = [asyncio.create_task(hold(slots, "greedy", end)) for _ in range(10)]
    modest = [asyncio.create_task(hold(slots, "modest", first)) for _ in range(2)]
    await turn()
    first.set()
    await asyncio.wait_for(asyncio.gather(*modest), _SECONDS)

    assert (slots.held("greedy"), slots.free, slots.waiting) == (4, 4, 6)
    end.set()
    await asyncio.wait_for(asyncio.gather(*greedy), _SECONDS)


async def test_who_may_have_a_slot_waits_behind_nobody_who_may_not() -> None:
    """A slot that becomes free goes to a caller that holds few, also if one that holds many has waited for longer."""
    slots, end, first = FairSlots(8), asyncio.Event(), asyncio.Event()
    asked = [*[("greedy", end)] * 5, ("modest", first), *[("modest", end)] * 2]
    tasks = [asyncio.create_task(hold(slots, *each)) for each in asked]
    await turn()
    assert (slots.held("greedy"), slots.held("modest"), slots.waiting) == (4, 2, 2)
    first.set()
    await turn()

    assert (slots.held("greedy"), slots.held("modest"), slots.waiting) == (4, 2, 1)
    end.set()
    await asyncio.wait_for(asyncio.gather(*tasks), _SECONDS)


@pytest.mark.parametrize("cancelled", range(4))
async def test_who_stops_waiting_keeps_no_slot(cancelled: int) -> None:
    """A wait that is cancelled, also at the moment the slot comes, leaves the slot to others."""
    slots, end = FairSlots(1), asyncio.Event()
    tasks = [asyncio.create_task(hold(slots, caller, end)) for caller in "abab"]
    await turn()
    end.set()
    await asyncio.sleep(0)
    tasks[cancelled].cancel()
    async with asyncio.timeout(_SECONDS):
        await asyncio.wait(tasks)
        async with slots.hold("c"):
            pass

    assert (slots.free, slots.waiting) == (1, 0)


async def test_who_stops_waiting_is_no_longer_counted() -> None:
    """The number of those that wait says at once that one of them was cancelled, while the slot is still held."""
    slots, end = FairSlots(1), asyncio.Event()
    tasks = [asyncio.create_task(hold(slots, caller, end)) for caller in "abb"]
    await turn()
    tasks[1].cancel()
    await turn()

    assert slots.waiting == 1
    end.set()
    async with asyncio.timeout(_SECONDS):
        await asyncio.wait(tasks)
    assert (slots.free, slots.waiting) == (1, 0)


@pytest.mark.parametrize("cancelled", range(3))
async def test_who_stops_waiting_keeps_no_turn(cancelled: int) -> None:
    """A wait for a turn that is cancelled, also at the moment the turn comes, leaves the turn to the next one."""
    turns, order = FairTurns(), list[int]()

    async def work(number: int) -> None:
        await turns.wait("a")
        order.append(number)
        turns.end("a")

    assert turns.begin("a")
    assert not turns.begin("a")
    assert turns.begin("b")
    waiting = [asyncio.create_task(work(number)) for number in range(3)]
    await turn()
    turns.end("a")
    waiting[cancelled].cancel()
    async with asyncio.timeout(_SECONDS):
        await asyncio.wait(waiting)

    assert order == [number for number in range(3) if number != cancelled]
    assert turns.begin("a")
    assert not turns.begin("b")


async def test_whoever_works_on_many_bytes_is_the_last_in_that_turn() -> None:
    """A caller has 256 KiB in each turn of the event loop, in any number of pieces; then it waits for the next."""
    turns, order, most = FairTurns(), list[str](), 256 * 1024

    async def work(caller: str, size: int) -> None:
        await turns.work(caller, size)
        order.append(f"{caller} {size}")

    for _ in range(2):  # what was worked on in one turn is forgotten in the next
        turns.count("a", most - 1)
        assert not turns.is_over("a")
        turns.count("a", 1)
        assert turns.is_over("a")
        assert not turns.is_over("b")
        await turn()
        assert not turns.is_over("a")
    async with asyncio.timeout(_SECONDS):
        await asyncio.gather(
            work("a", most),
            work("a", most),
            work("a", 5),
            work("a", 0),
            work("b", most - 1),
            work("b", 1),
            work("b", 0),
        )
    assert order == ["a 262144", "b 262143", "b 1", "a 262144", "b 0", "a 5", "a 0"]
    assert not turns.is_over("a")
    assert not turns.is_over("b")
