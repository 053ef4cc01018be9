"""
The window of a re-key: entities that several workers of a process write, so that those of one partition share
transactions.

Entities that are near each other by the older key are often far from each other by the newer one. So each worker reads
some thousand rows, and waits until the others have done so too; then all of them are written at once.
"""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from tableorm import Database

__all__ = ["WINDOW", "Window", "Written"]

WINDOW = 16_000
"""How many entities wait in all."""


@attrs.frozen
class Written:
    """
    What became of the entities of one worker.

    Args:
        failed: Those that could not be written, each with the reason; None if it was not kept.
        requests: Transactions that were sent for all workers together; only one of them is told, the others get 0.
    """

    failed: Sequence[tuple[Any, Exception | None]]
    requests: int


_Waiting = list[tuple[Sequence[Any], "asyncio.Future[Written]"]]


class Window:
    """
    Inserts entities for several workers, a bulk at a time.

    Args:
        db: Where they are written.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._members = 0
        self._waiting: _Waiting = []
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def join(self) -> Generator[None]:
        """Be one of the workers, for whom the others wait."""
        self._members += 1
        try:
            yield
        finally:
            self._members -= 1
            self._send()

    async def insert(self, entities: Sequence[Any]) -> Written:
        """
        Insert entities, with those of the other workers.

        Raises:
            TableOrmError: The store cannot be reached.
        """
        future: asyncio.Future[Written] = asyncio.get_running_loop().create_future()
        self._waiting.append((entities, future))
        self._send()
        return await future

    def _send(self) -> None:
        """Write what waits, if nothing is being written, and every worker waits."""
        self._waiting = [each for each in self._waiting if not each[1].done()]
        if self._task is None and self._waiting and len(self._waiting) >= self._members:
            waiting, self._waiting = self._waiting, []
            self._task = asyncio.create_task(self._insert(waiting))
            self._task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # each worker was told
        self._send()

    async def _insert(self, waiting: _Waiting) -> None:
        refused: dict[int, Exception] = {}
        try:
            async with self._db.bulk() as bulk:
                for entities, _ in waiting:
                    for entity in entities:
                        try:
                            await bulk.insert(entity)
                        except Exception as error:  # noqa: BLE001 - what one entity cannot be written for concerns no other
                            refused[id(entity)] = error
        except BaseException as error:
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            raise
        refused |= {id(each.entity): each.error for each in bulk.report.failed}
        requests = bulk.report.requests
        for entities, future in waiting:
            if not future.done():  # otherwise that worker was cancelled
                # What was written has an ETag. A bulk keeps but the first of its errors.
                failed = [(each, refused.get(id(each))) for each in entities if each.etag is None]
                future.set_result(Written(failed, requests))
                requests = 0
