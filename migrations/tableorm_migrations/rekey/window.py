"""
The window of a re-key: rows that several workers of a process have read, and that are written together, so that those
of one partition share transactions.

Rows that are near each other by the older key are often far from each other by the newer one. So each worker reads some
thousand rows, and waits until the others have done so too; then all of them are written at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

__all__ = ["WINDOW", "Window"]

T = TypeVar("T")
R = TypeVar("R")

WINDOW = 16_000
"""How many rows wait in all."""


class Window(Generic[T, R]):
    """
    Collects what several workers have, and writes it together.

    Args:
        write: Writes what all of them have, and returns what became of it.
    """

    def __init__(self, write: Callable[[list[T]], Awaitable[R]]) -> None:
        self._write_all = write
        self._members = 0
        self._waiting: list[tuple[Sequence[T], asyncio.Future[tuple[R, bool]]]] = []
        self._tasks = set[asyncio.Task[None]]()  # one at most

    @contextmanager
    def join(self) -> Generator[None]:
        """Be one of the workers, for whom the others wait."""
        self._members += 1
        try:
            yield
        finally:
            self._members -= 1
            self._begin()

    async def write(self, items: Sequence[T]) -> tuple[R, bool]:
        """
        Write something, with what the other workers have.

        Returns:
            What became of all of it, and whether this worker is the one that counts it.

        Raises:
            Exception: What `write` raised.
        """
        future: asyncio.Future[tuple[R, bool]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, future))
        self._begin()
        return await future

    def _begin(self) -> None:
        """Write what waits, if nothing is being written, and every worker waits."""
        self._waiting = [each for each in self._waiting if not each[1].done()]
        if not self._tasks and self._waiting and len(self._waiting) >= self._members:
            waiting, self._waiting = self._waiting, []
            futures = [future for _, future in waiting]
            everything = [item for items, _ in waiting for item in items]
            task = asyncio.create_task(self._write(everything, futures))
            self._tasks.add(task)
            task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # each worker was told
        self._begin()

    async def _write(self, items: list[T], futures: "list[asyncio.Future[tuple[R, bool]]]") -> None:
        try:
            found = await self._write_all(items)
        except BaseException as error:
            for future in futures:
                if not future.done():
                    future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            raise
        counts = True
        for future in futures:
            if not future.done():  # otherwise that worker was cancelled
                future.set_result((found, counts))
                counts = False
