"""
Tasks that work together: all end when one fails.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

__all__ = ["stop_tasks", "work_together"]


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
