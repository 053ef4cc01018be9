"""
Tasks that work together: all end when one fails; and calls of several tasks that are made together.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import attrs

A = TypeVar("A")
B = TypeVar("B")
K = TypeVar("K", bound=Hashable)

_AT_ONCE = 16


async def stop_tasks(tasks: Iterable["asyncio.Task[Any] | None"]) -> None:
    """Wait for cancelled tasks to end: nothing runs on behind the caller's back."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    if running:
        await asyncio.gather(*running, return_exceptions=True)


def take_error(task: "asyncio.Task[Any]") -> None:
    """Let nobody be told of the error of a task that others waited for: if they were cancelled, it is nobody's."""
    if not task.cancelled():
        task.exception()


async def finish(work: Coroutine[Any, Any, None]) -> None:
    """
    Do something to its end, also if the caller is cancelled meanwhile: it is cancelled afterwards. A second
    cancellation ends it at once.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def work_together(work: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
    """
    Run some workers until all are done; the first error ends the others, and is raised. Each is cancelled once, so that
    it can still await what it does at its end.
    """
    workers = [asyncio.create_task(work()) for _ in range(count)]
    try:
        if workers:
            await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        for worker in workers:
            if worker.done():
                worker.result()
    finally:
        await stop_tasks(workers)


async def map_together(function: Callable[[A], Awaitable[B]], items: Sequence[A]) -> list[B]:
    """Return what a function gives for each item, some at a time; the first error ends the others, and is raised."""
    if len(items) == 1:
        return [await function(items[0])]
    found = dict[int, B]()
    left = iter(enumerate(items))  # of all workers: a task for each of many items would take longer than the item

    async def work() -> None:
        for number, item in left:
            found[number] = await function(item)

    await work_together(work, min(len(items), _AT_ONCE))
    return [found[number] for number in range(len(items))]


async def work_off(function: Callable[[A], Awaitable[object]], items: Iterable[A], at_once: int = _AT_ONCE) -> None:
    """
    Call a function for each item, some at a time; the first error ends the others, and is raised. The next item is
    asked for when its turn comes, so that a generator of large ones holds few of them.
    """
    left = iter(items)

    async def work() -> None:
        for item in left:
            await function(item)

    await work_together(work, at_once)


@attrs.define(eq=False)
class _Call(Generic[A]):
    """An item that waits, and what came of it."""

    item: A
    done: bool = False
    error: Exception | None = None


@attrs.frozen(eq=False)
class _Line(Generic[A]):
    """The calls for one key, in the order in which they get their turn."""

    turn: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    calls: list[_Call[A]] = attrs.field(factory=list[_Call[A]])


class Batcher(Generic[K, A]):
    """
    Makes calls together that several tasks make for one key.

    While some are made, further ones gather for the next batch; so none waits for company. The task whose turn it is
    makes the calls of all that wait. If it is cancelled, the next one makes the others': a call may be made twice.

    Args:
        make: Makes calls of a key, and returns what went wrong with each, None if nothing. What it raises went wrong
            with all.
        most: How many calls it makes at a time.
    """

    def __init__(self, make: Callable[[K, Sequence[A]], Awaitable[Sequence[Exception | None]]], most: int) -> None:
        self._make, self._most = make, most
        self._lines: dict[K, _Line[A]] = {}

    async def call(self, key: K, item: A) -> None:
        """Make a call. Raises what went wrong with it."""
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        mine = _Call(item)
        line.calls.append(mine)
        try:
            async with line.turn:
                if not mine.done:
                    await asyncio.sleep(0)  # so that the tasks that are ready now join
                    await self._make_calls(key, [call for call in line.calls if not call.done][: self._most])
        finally:
            line.calls.remove(mine)
            if not line.calls:
                del self._lines[key]
        if mine.error is not None:
            raise mine.error

    async def _make_calls(self, key: K, calls: Sequence[_Call[A]]) -> None:
        errors: Sequence[Exception | None]
        try:
            errors = await self._make(key, [call.item for call in calls])
        except Exception as error:  # noqa: BLE001 - raised in each caller
            errors = [error] * len(calls)
        for call, failure in zip(calls, errors, strict=True):
            call.done, call.error = True, failure
