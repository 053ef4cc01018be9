"""
The window of a re-key: rows that several workers of a process have read, and that are written together, so that those
of one partition share transactions.

Rows that are near each other by the older key are often far from each other by the newer one. So each worker reads some
thousand rows, and waits until the others have done so too; then all of them are written, in the order of their newer
partitions. While they wait they are kept as bytes, which take a tenth of the memory.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Protocol

import attrs
import msgspec

from tableorm.audit.ranges import AuditRange
from tableorm.connection.tasks import stop_tasks
from tableorm.stores import Row

from ..runs.process import Crew, RunSteps
from ..runs.rows import RunCounts

__all__ = ["CHUNK", "MOST_RANGES", "ROWS", "WINDOW", "Batch", "PageBatch", "Window", "work_in_batches"]

WINDOW = 64_000
"""How many rows wait in all."""

MOST_RANGES = 48
"""How many ranges a table is divided into at most: more than a process has workers, so that another finds some."""

ROWS = 1_000
"""How many rows each of them has at least: what a range costs besides is little then."""

CHUNK = 8_000
"""How many rows are written at a time."""

_PAUSE = 0.02  # seconds until the window looks again whether another worker will come

_Waiting = tuple[str, bytes]


class Batch(Protocol):
    """What a worker has read, and has not dealt with."""

    @property
    def full(self) -> bool:
        """Whether it is to be dealt with before more is read."""
        ...

    async def add(self, rows: Sequence[Row]) -> None:
        """Add a page of rows."""
        ...

    async def act(self) -> RunCounts:
        """Deal with it, and return what was counted since the last time; it is empty then."""
        ...


@attrs.define(eq=False)
class PageBatch:
    """
    The rows of one page.

    Args:
        deal: Deals with them, and returns what was counted.
    """

    deal: Callable[[list[Row]], Awaitable[RunCounts]]
    _rows: list[Row] = attrs.field(init=False, factory=list[Row])

    @property
    def full(self) -> bool:
        """See `Batch`."""
        return True

    async def add(self, rows: Sequence[Row]) -> None:
        """See `Batch`."""
        self._rows += rows

    async def act(self) -> RunCounts:
        """See `Batch`."""
        rows, self._rows = self._rows, []
        return await self.deal(rows) if rows else RunCounts()


async def work_in_batches(
    part: AuditRange, found: AsyncGenerator[Sequence[Row], None], batch: Batch, *, ordered: bool
) -> RunSteps:
    """
    Deal with the rows of a range, many at a time.

    Args:
        part: The range.
        found: The rows that are left of it, by pages; it is closed at the end.
        batch: Deals with them.
        ordered: Whether the store returns rows in the order of keys. Otherwise a range that was not read to its end is
            read again from its beginning.
    """
    held = RunCounts()
    async with aclosing(found):
        async for rows in found:
            if not rows:
                continue
            partition, row = rows[-1]["PartitionKey"], rows[-1]["RowKey"]
            await batch.add(rows)
            del rows  # the batch may keep them in less memory, and wait long
            if batch.full:
                held = held.plus(await batch.act())
                if ordered:
                    part = attrs.evolve(part, partition=partition, row=row)
                    yield part, held
                    held = RunCounts()
    held = held.plus(await batch.act())
    yield attrs.evolve(part, done=True), held


Sort = Callable[[Sequence[Row]], Awaitable[tuple[list[tuple[str, Row]], RunCounts]]]
"""Returns those of some rows that are to be written, each with its newer PartitionKey, and what was counted of all."""


class Window:
    """
    Collects what several workers have read, and writes it together.

    Args:
        sort: Says which rows are written, and in which order.
        write: Writes some rows, in the order of newer partitions, and returns what was counted. Each row is decoded
            when it is asked for.
        most: How many rows each worker reads at least, unless there are no more.
        crew: The workers of the process.
        chunk: How many rows are written at a time.
    """

    def __init__(
        self,
        sort: Sort,
        write: Callable[[Iterable[Row]], Awaitable[RunCounts]],
        most: int,
        crew: Crew,
        chunk: int = CHUNK,
    ) -> None:
        self._sort, self._write_rows, self._most, self._crew, self._chunk = sort, write, most, crew, chunk
        self._members = 0
        self._waiting: list[tuple[Sequence[_Waiting], asyncio.Future[RunCounts]]] = []
        self._tasks = set[asyncio.Task[None]]()  # one at most
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def join(self) -> AsyncGenerator[Batch]:
        """
        Be one of the workers, for whom the others wait; what it reads goes into the batch. When the last one leaves,
        because it is done or has failed, nothing is written behind its back.
        """
        self._members += 1
        try:
            yield _WindowBatch(self, self._sort, self._most)
        finally:
            self._members -= 1
            self._begin_soon()
            if not self._members:
                await stop_tasks(self._tasks)

    async def write(self, items: Sequence[_Waiting]) -> RunCounts:
        """
        Write rows, with those that the other workers have.

        Args:
            items: Each encoded, with its newer PartitionKey; those of one are written at a time.

        Returns:
            What was counted of all of them, for one of the workers; nothing for the others.

        Raises:
            Exception: What `write` raised.
        """
        future: asyncio.Future[RunCounts] = asyncio.get_running_loop().create_future()
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

    async def _write(self, items: list[_Waiting], futures: "list[asyncio.Future[RunCounts]]") -> None:
        counts = RunCounts()
        try:
            for chunk in _chunks(items, self._chunk):
                counts = counts.plus(await self._write_rows(msgspec.json.decode(row) for _, row in chunk))
        except BaseException as error:
            for future in futures:
                if not future.done():
                    future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            raise
        for future in futures:
            if not future.done():  # otherwise that worker was cancelled
                future.set_result(counts)
                counts = RunCounts()


class _WindowBatch:
    """
    What a worker has read for a window, as bytes.

    Args:
        window: Writes it.
        sort: As the window has it.
        most: As the window has it.
    """

    def __init__(self, window: Window, sort: Sort, most: int) -> None:
        self._window, self._sort, self._most = window, sort, most
        self._items: list[_Waiting] = []
        self._rows, self._counts = 0, RunCounts()

    @property
    def full(self) -> bool:
        """See `Batch`."""
        return self._rows >= self._most

    async def add(self, rows: Sequence[Row]) -> None:
        """See `Batch`."""
        found, counts = await self._sort(rows)
        self._items += [(partition, msgspec.json.encode(row)) for partition, row in found]
        self._rows, self._counts = self._rows + len(rows), self._counts.plus(counts)

    async def act(self) -> RunCounts:
        """See `Batch`."""
        items, counts = self._items, self._counts
        self._items, self._rows, self._counts = [], 0, RunCounts()
        return counts.plus(await self._window.write(items)) if items else counts


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
