"""
Calls of several tasks that are made together.
"""

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from tableorm.connection.tasks import Batcher, map_together, work_off, work_together

Batch = tuple[str, list[int]]


class Recorder:
    """Makes calls when it is told to, and notes which of them it made together; the call 13 fails."""

    def __init__(self, most: int = 100) -> None:
        self.batches: list[Batch] = []
        self.go = asyncio.Event()
        self.batcher = Batcher(self._make, most)

    async def _make(self, key: str, items: Sequence[int]) -> list[Exception | None]:
        self.batches.append((key, list(items)))
        await self.go.wait()
        if key == "broken":
            raise RuntimeError("no way")
        return [ValueError(f"{item} fails") if item == 13 else None for item in items]

    def start(self, key: str, *items: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.batcher.call(key, item)) for item in items]


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_calls_that_come_together_are_made_together() -> None:
    """Those of tasks that are ready are made at once, by key; what comes meanwhile is made next."""
    recorder = Recorder()
    tasks = [*recorder.start("a", 1, 2, 3), *recorder.start("b", 4)]
    await turns()
    tasks += recorder.start("a", 5, 6)
    await turns()
    assert recorder.batches == [("a", [1, 2, 3]), ("b", [4])]
    recorder.go.set()
    await asyncio.gather(*tasks)
    assert recorder.batches[2:] == [("a", [5, 6])]


async def test_a_batch_has_a_limit() -> None:
    """More calls than a batch may have are made by several."""
    recorder = Recorder(most=2)
    recorder.go.set()
    await asyncio.gather(*recorder.start("a", 1, 2, 3, 4, 5))
    assert recorder.batches == [("a", [1, 2]), ("a", [3, 4]), ("a", [5])]


async def test_what_fails_is_raised_where_it_was_called() -> None:
    """A call that fails concerns no other; what ends a batch is raised in all of its callers."""
    recorder = Recorder()
    recorder.go.set()
    outcomes = await asyncio.gather(
        *recorder.start("a", 1, 13), *recorder.start("broken", 2, 3), return_exceptions=True
    )
    assert [str(each) for each in outcomes] == ["None", "13 fails", "no way", "no way"]


@pytest.mark.parametrize("cancelled", [0, 1, 2])
async def test_a_cancelled_call_ends_no_other(cancelled: int) -> None:
    """Whether it makes the batch, is in it, or waits for the next one: the others are made."""
    recorder = Recorder()
    tasks = recorder.start("a", 0, 1)
    await turns()
    tasks += recorder.start("a", 2)
    await turns()
    tasks[cancelled].cancel()
    await turns()
    recorder.go.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in outcomes if each is not None] == [asyncio.CancelledError]
    made = [item for _, items in recorder.batches for item in items]
    assert {0, 1, 2} - {cancelled} <= {*made}
    assert await asyncio.gather(*recorder.start("a", 7)) == [None]


async def test_a_worker_ends_what_it_does_at_its_end() -> None:
    """Workers of one call are cancelled once, also those that are still at it when the first has ended."""
    ended: list[int] = []

    async def work() -> None:
        number = len(started)
        started.append(number)
        try:
            await asyncio.sleep(3600)
        finally:
            for _ in range(number):
                await asyncio.sleep(0)
            ended.append(number)

    started: list[int] = []
    task = asyncio.create_task(work_together(work, 4))
    await asyncio.sleep(0.01)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [0, 1, 2, 3]


async def test_many_items_need_few_tasks() -> None:
    """Each gets its result in order, whichever ends first; an error ends the others."""
    seen = set[asyncio.Task[None] | None]()

    async def double(item: int) -> int:
        seen.add(asyncio.current_task())
        for _ in range(item % 7):
            await asyncio.sleep(0)
        if item == 777:
            raise ValueError("no way")
        return 2 * item

    assert await map_together(double, range(500)) == [2 * item for item in range(500)]
    assert len(seen) <= 16
    assert await map_together(double, []) == []
    with pytest.raises(ValueError, match="no way"):
        await map_together(double, range(1000))


async def test_items_are_asked_for_when_their_turn_comes() -> None:
    """A generator of many items is never far ahead of the calls; each is made."""
    begun, ended = list[int](), list[int]()
    most = 0

    def items() -> Iterator[int]:
        for number in range(100):
            begun.append(number)
            yield number

    async def call(number: int) -> None:
        nonlocal most
        most = max(most, len(begun) - len(ended))
        await asyncio.sleep(0)
        ended.append(number)

    await work_off(call, items())

    assert sorted(ended) == [*range(100)]
    assert most <= 16


async def test_a_call_that_fails_ends_the_others() -> None:
    """Its error is raised, and no more items are asked for."""
    asked = list[int]()

    def items() -> Iterator[int]:
        for number in range(100):
            asked.append(number)
            yield number

    async def call(number: int) -> None:
        await asyncio.sleep(0)
        if number == 3:
            raise ValueError("no way")

    with pytest.raises(ValueError, match="no way"):
        await work_off(call, items())

    assert len(asked) < 100
