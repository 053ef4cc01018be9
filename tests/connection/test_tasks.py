"""
Calls of several tasks that are made together, and what a cancelled one leaves.
"""

import asyncio
from collections.abc import Sequence

import pytest

from tableorm.connection.tasks import Batcher, work_together

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
