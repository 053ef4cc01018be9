"""
The window of a re-key: rows that several workers of a process have read, and that are written together, so that those
of one partition share transactions.

Rows that are near each other by the older key are often far from each other by the newer one. So each worker reads some
thousand rows, and waits until the others have done so too; then all of them are written, in the order of their newer
partitions. While they wait they are kept as bytes, which take a tenth of the memory.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing

import attrs
import msgspec

from tableorm.connection.connection import Connection
from tableorm.connection.tasks import stop_tasks
from tableorm.jobs.counts import JobCounts
from tableorm.jobs.process import Crew
from tableorm.jobs.ranges import JobRange
from tableorm.jobs.scan import Steps, pages
from tableorm.protocol.filters import Filter
from tableorm.stores import Row
from tableorm.writes.bulk.pacing import Pace

WINDOW = 64_000
"""How many rows wait in all."""

MOST_RANGES = 48
"""How many ranges a table is divided into at most: more than a process has workers, so that another finds some."""

CHUNK = 8_000
"""How many rows are written at a time."""

_PAUSE = 0.02  # seconds until the window looks again whether another worker will come

_Waiting = tuple[str, bytes]


Sort = Callable[[Sequence[Row], JobCounts], Awaitable[list[tuple[str, Row]]]]
"""Returns those of some rows that are to be written, each with its newer PartitionKey; counts all of them."""

Write = Callable[[Iterable[Row], JobCounts], Awaitable[None]]
"""Writes rows, and counts what became of them."""


class Window:
    """
    Collects what several workers have read, and writes it together.

    Args:
        sort: Says which rows are written, and in which order.
        write: Writes some rows, in the order of newer partitions. Each row is decoded when it is asked for.
        most: How many rows each worker reads at least, unless there are no more.
        crew: The workers of the process.
        chunk: How many rows are written at a time.
    """

    def __init__(
        self,
        sort: Sort,
        write: Write,
        most: int,
        crew: Crew,
        chunk: int = CHUNK,
    ) -> None:
        self._sort, self._write_rows, self._most, self._crew, self._chunk = sort, write, most, crew, chunk
        self._members = 0
        self._waiting: list[tuple[Sequence[_Waiting], asyncio.Future[JobCounts]]] = []
        self._tasks = set[asyncio.Task[None]]()  # one at most
        self._timer: asyncio.TimerHandle | None = None

    async def walk(
        self, db: Connection, part: JobRange, where: Filter | None, verb: str, pace: Pace | None
    ) -> Steps[JobCounts]:
        """
        Deal with the rows of a range, together with the other workers. Yield how far it is, and what was counted.

        Args:
            db: Where the rows are.
            part: The range, without what is done of it.
            where: The condition that the rows satisfy; None for all rows.
            verb: Name of the operation, for messages.
            pace: Limits how many rows are read in a second; None for any number.
        """
        counts, items, read = JobCounts(), list[_Waiting](), 0
        found = pages(db, part.table, where, part.left, None, verb, pace, ahead=False)
        self._members += 1
        try:
            async with aclosing(found):
                async for rows in found:
                    if not rows:
                        continue
                    reached = part.up_to(rows[-1])
                    # They wait long: as bytes, for which the rows themselves are given up.
                    items += [(key, msgspec.json.encode(row)) for key, row in await self._sort(rows, counts)]
                    read += len(rows)
                    del rows
                    if read >= self._most:
                        counts.add(await self._write_together(items))
                        items, read = [], 0
                        # Without an order, a range that was not read to its end is read again from its beginning.
                        if db.store.capabilities.ordered:
                            part = reached
                            yield part, counts.take()
            counts.add(await self._write_together(items))
            yield attrs.evolve(part, done=True), counts.take()
        finally:
            # When the last worker leaves, because it is done or has failed, nothing is written behind its back.
            self._members -= 1
            self._begin_soon()
            if not self._members:
                await stop_tasks(self._tasks)

    async def _write_together(self, items: Sequence[_Waiting]) -> JobCounts:
        """
        Write rows, with those that the other workers have.

        Args:
            items: Each encoded, with its newer PartitionKey; those of one are written at a time.

        Returns:
            What was counted of all of them, for one of the workers; nothing for the others.

        Raises:
            Exception: What `write` raised.
        """
        if not items:
            return JobCounts()
        future: asyncio.Future[JobCounts] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, future))
        self._begin_soon()
        return await future

    def _begin_soon(self, pause: float = 0.0) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(pause, self._begin)

    def _begin(self) -> None:
        """
        Write what waits, if nothing is being written, and every worker waits: also those that take their ranges only
        now, as the first one may have read all of its range before the last one comes.
        """
        self._waiting = [each for each in self._waiting if not each[1].done()]
        if self._tasks or not self._waiting or len(self._waiting) < self._members:
            return
        if self._crew.expects_more(self._members):
            self._begin_soon(_PAUSE)
            return
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
        self._begin_soon()

    async def _write(self, items: list[_Waiting], futures: "list[asyncio.Future[JobCounts]]") -> None:
        counts = JobCounts()
        try:
            for chunk in _chunks(items, self._chunk):
                await self._write_rows((msgspec.json.decode(row) for _, row in chunk), counts)
        except BaseException as error:
            for future in futures:
                if not future.done():
                    future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            raise
        for future in futures:
            if not future.done():  # otherwise that worker was cancelled
                future.set_result(counts)
                counts = JobCounts()


def _chunks(items: list[_Waiting], size: int) -> Iterator[list[_Waiting]]:
    """Yield the rows in parts, in the order of partitions; a partition is divided only if it is larger than a part."""
    items.sort(key=lambda item: item[0])
    start = 0
    while start < len(items):
        end = min(start + size, len(items))
        if end < len(items):
            end = next((at for at in range(end, start, -1) if items[at - 1][0] != items[at][0]), end)
        yield items[start:end]
        start = end
