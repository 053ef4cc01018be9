"""
Turns of writers at rows: in order, at any rows, cancelled at any moment, and none that is left behind.
"""

import asyncio
import random
from contextvars import Context

import pytest

from tableorm.connection import turns as module
from tableorm.connection.turns import Turn, Turns
from tableorm.stores import RowAddress
from tests.torture import seeds


def row(name: object) -> RowAddress:
    return RowAddress("Table", "p", str(name))


async def pause(times: int) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


@seeds(3, 1000)
async def test_a_row_has_one_writer_whatever_others_take_and_whoever_is_cancelled(seed: int) -> None:
    """Writers take some rows, and sometimes more; all who are not cancelled end, and no line is left."""
    draw, turns = random.Random(seed), Turns()
    taken: dict[RowAddress, int] = {}

    async def write(number: int) -> None:
        rows = [row(name) for name in draw.sample(range(5), draw.randint(1, 3))]
        with turns.begin() as turn:
            await turn.take(rows)
            if draw.random() < 0.4:
                rows += [row(name) for name in draw.sample(range(5), 2)]
                await turn.take(rows)  # may give back those that it has, and take them again
            assert taken.keys().isdisjoint(rows)
            taken.update(dict.fromkeys(rows, number))
            try:
                await pause(draw.randrange(4))
            finally:
                for each in set(rows):
                    assert taken.pop(each) == number

    tasks = [asyncio.create_task(write(number)) for number in range(40)]
    for task in draw.sample(tasks, 12):
        await pause(draw.randrange(5))
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert not [each for each in results if each is not None and not isinstance(each, asyncio.CancelledError)]
    assert not turns.lines


async def test_turns_begin_in_the_order_in_which_they_came() -> None:
    """Who wants several rows does not fall behind those who want one of them."""
    turns, order = Turns(), list[int]()

    async def write(number: int, *names: str) -> None:
        with turns.begin() as turn:
            await turn.take([row(name) for name in names])
            order.append(number)
            await pause(2)

    await asyncio.gather(write(0, "a"), write(1, "a", "b"), write(2, "b"), write(3, "a"), write(4, "a", "b"))
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert [each for each in order if each != 2] == [0, 1, 3, 4]
    assert order.index(1) < order.index(2) < order.index(4)


async def test_a_turn_that_does_not_begin_in_time_is_no_more_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer goes on without, also the next time that it would wait; others keep their turns."""
    monkeypatch.setattr(module, "LONGEST_WAIT", 0.01)
    turns = Turns()

    async def late() -> None:
        with turns.begin() as turn:
            await turn.take([row("a")])
            await turn.take([row("b")])

    with turns.begin() as first:
        await first.take([row("a")])
        await asyncio.create_task(late(), context=Context())
        assert list(turns.lines) == [row("a")]
    assert not turns.lines


async def test_a_task_that_outlives_the_block_has_a_turn_of_its_own() -> None:
    """It was begun within the block, and so has its context."""
    turns, begun = Turns(), asyncio.Event()
    seen: list[Turn] = []

    async def later() -> None:
        await begun.wait()
        with turns.begin() as turn:
            await turn.take([row("b")])
            seen.append(turn)

    with turns.begin() as outer:
        await outer.take([row("a")])
        with turns.begin() as inner:
            assert inner is outer
        task = asyncio.create_task(later())
    begun.set()
    await task
    assert seen[0] is not outer
    assert not turns.lines


async def test_a_row_is_handed_on_to_the_next_writer_alone_and_not_for_ever() -> None:
    """Now and then it has to be read, so that writers who take no turns find time to write."""
    turns, known = Turns(), list[bool]()

    async def write() -> None:
        with turns.begin() as turn:
            await turn.take([row("a")])
            known.append(row("a") in turn.known)
            await pause(1)
            if turn.is_awaited(row("a")):
                turn.hand_on(row("a"), {})

    await asyncio.gather(*(write() for _ in range(20)))
    assert [number for number, each in enumerate(known) if not each] == [0, 9, 18]
