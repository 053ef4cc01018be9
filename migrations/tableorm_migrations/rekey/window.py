"""
The window of a re-key: rows that several workers of a process have read, and that are written together, so that those
of one partition share transactions.

Rows that are near each other by the older key are often far from each other by the newer one. So each worker reads some
thousand rows, and waits until the others have done so too; then all of them are written, in the order of their newer
partitions. While they wait they are kept as bytes, which take a tenth of the memory.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager

import attrs
import msgspec

from tableorm.audit.ranges import AuditRange
from tableorm.connection.tasks import stop_tasks
from tableorm.stores import Row

from ..runs.process import RunSteps
from ..runs.rows import RunCounts

__all__ = ["MOST_RANGES", "WINDOW", "Window", "work_in_batches"]

WINDOW = 64_000
"""How many rows wait in all."""

MOST_RANGES = 48
"""
How many ranges a table is divided into: more than a process has workers, so that one which comes later finds some, and
few enough that all rows of a small table are written together.
"""

_CHUNK = 8_000  # how many rows are written at a time

_PAUSE = 0.05  # seconds without a worker that comes, before what all of them have read is written

_Waiting = tuple[str, bytes]


async def work_in_batches(
    part: AuditRange,
    found: AsyncGenerator[Sequence[Row], None],
    act: Callable[[list[Row]], Awaitable[RunCounts]],
    most: int,
    *,
    ordered: bool,
) -> RunSteps:
    """
    Deal with the rows of a range, many at a time.

    Args:
        part: The range.
        found: The rows that are left of it, by pages; it is closed at the end.
        act: Does it with some rows, and returns what was counted.
        most: How many rows it gets at least, unless no more are left.
        ordered: Whether the store returns rows in the order of keys. Otherwise a range that was not read to its end is
            read again from its beginning.
    """
    batch, held = list[Row](), RunCounts()
    async with aclosing(found):
        async for rows in found:
            batch += rows
            if len(batch) >= most:
                held = held.plus(await act(batch))
                last, batch = batch[-1], []
                if ordered:
                    part = attrs.evolve(part, partition=last["PartitionKey"], row=last["RowKey"])
                    yield part, held
                    held = RunCounts()
    if batch:
        held = held.plus(await act(batch))
    yield attrs.evolve(part, done=True), held


class Window:
    """
    Collects what several workers have read, and writes it together.

    Args:
        write: Writes some rows, and returns what was counted.
    """

    def __init__(self, write: Callable[[list[Row]], Awaitable[RunCounts]]) -> None:
        self._write_rows = write
        self._members = 0
        self._waiting: list[tuple[Sequence[_Waiting], asyncio.Future[RunCounts]]] = []
        self._tasks = set[asyncio.Task[None]]()  # one at most
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def join(self) -> AsyncGenerator[None]:
        """
        Be one of the workers, for whom the others wait. When the last one leaves, because it is done or has failed,
        nothing is written behind its back.
        """
        self._members += 1
        self._begin_soon()
        try:
            yield
        finally:
            self._members -= 1
            self._begin_soon()
            if not self._members:
                await stop_tasks(self._tasks)

    async def write(self, rows: Sequence[tuple[str, Row]]) -> RunCounts:
        """
        Write rows, with those that the other workers have.

        Args:
            rows: Each with its newer PartitionKey; those of one are written at a time.

        Returns:
            What was counted of all of them, for one of the workers; nothing for the others.

        Raises:
            Exception: What `write` raised.
        """
        future: asyncio.Future[RunCounts] = asyncio.get_running_loop().create_future()
        self._waiting.append(([(partition, msgspec.json.encode(row)) for partition, row in rows], future))
        self._begin_soon()
        return await future

    def _begin_soon(self) -> None:
        """
        Begin when no worker has come for a moment: they take their ranges one after the other, and the first one may
        have read all of its range before the last one comes.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_PAUSE, self._begin)

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
        self._begin_soon()

    async def _write(self, items: list[_Waiting], futures: "list[asyncio.Future[RunCounts]]") -> None:
        counts = RunCounts()
        try:
            for chunk in _chunks(items):
                counts = counts.plus(await self._write_rows([msgspec.json.decode(row) for _, row in chunk]))
        except BaseException as error:
            for future in futures:
                if not future.done():
                    future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            raise
        for future in futures:
            if not future.done():  # otherwise that worker was cancelled
                future.set_result(counts)
                counts = RunCounts()


def _chunks(items: list[_Waiting]) -> Iterator[list[_Waiting]]:
    """Yield the rows in parts, in the order of partitions; a partition is divided only if it is larger than a part."""
    items.sort(key=lambda item: item[0])
    start = 0
    while start < len(items):
        end = min(start + _CHUNK, len(items))
        if end < len(items):
            end = next((at for at in range(end, start, -1) if items[at - 1][0] != items[at][0]), end)
        yield items[start:end]
        start = end
