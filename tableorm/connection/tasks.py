"""
Tasks that work together: all end when one fails.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

__all__ = ["map_together", "stop_tasks", "work_together"]

A = TypeVar("A")
B = TypeVar("B")

_AT_ONCE = 16


async def stop_tasks(tasks: Iterable["asyncio.Task[Any] | None"]) -> None:
    """Wait for cancelled tasks to end: nothing runs on behind the caller's back."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    if running:
        await asyncio.gather(*running, return_exceptions=True)


async def work_together(work: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
    """Run some workers until all are done; the first error ends the others, and is raised."""
    workers = [asyncio.create_task(work()) for _ in range(count)]
    try:
        await asyncio.gather(*workers)
    finally:
        await stop_tasks(workers)


async def map_together(function: Callable[[A], Awaitable[B]], items: Sequence[A]) -> list[B]:
    """Return what a function gives for each item, some at a time; the first error ends the others, and is raised."""
    if len(items) == 1:
        return [await function(items[0])]
    turn = asyncio.Semaphore(_AT_ONCE)

    async def call(item: A) -> B:
        async with turn:
            return await function(item)

    tasks = [asyncio.create_task(call(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await stop_tasks(tasks)
