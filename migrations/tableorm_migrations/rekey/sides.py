"""
The jobs of re-keys: all rows of one table, and then of the other, are read by pages and dealt with; or they are written
through a window: rows that several workers of a process have read, and that are written together, so that those of one
partition share transactions.

Rows that are near each other by the older key are often far from each other by the newer one. So each worker reads some
thousand rows, and waits until the others have done so too; then all of them are written, in the order of their newer
partitions. While they wait they are kept as bytes, which take a tenth of the memory.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing

import attrs
import msgspec

from tableorm import DecodeError, RunReport
from tableorm.connection.connection import Connection
from tableorm.connection.tasks import stop_tasks
from tableorm.jobs.counts import JobCounts
from tableorm.jobs.plan import plan_ranges
from tableorm.jobs.process import Crew, Job, RunJob
from tableorm.jobs.ranges import JobRange
from tableorm.jobs.scan import Steps, pages, walk
from tableorm.models.kinds import KindSet
from tableorm.models.marker_rows import FORWARD, TENTATIVE, is_marker
from tableorm.models.reserved import ENTITY_TYPE
from tableorm.models.schema import Schema
from tableorm.protocol.filters import Filter
from tableorm.rekey.chunks import WindowReport
from tableorm.stores import Row
from tableorm.writes.bulk.pacing import Pace

from .phases import OnlineRekey

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

WriteAll = Callable[[Iterable[Row], JobCounts], Awaitable[None]]
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
        write: WriteAll,
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


Write = Callable[[Iterable[Row]], Awaitable[WindowReport]]
"""Does something with rows, and returns what became of them."""

Deal = Callable[[list[Row], JobCounts], Awaitable[None]]
"""Deals with the rows of a page, and counts."""


@attrs.frozen(kw_only=True, eq=False)
class Side:
    """
    What a job does with the rows of a table.

    Args:
        db: Where they are.
        schema: The model whose rows are read.
        where: The condition of these rows; None for all of the table.
        deal: Deals with them, page by page; or a window, which deals with those of all workers together.
        ranges: How many ranges the table is divided into at most.
    """

    db: Connection
    schema: Schema
    where: Filter | None
    deal: Deal | Window
    ranges: int = MOST_RANGES

    def work(self, verb: str, part: JobRange, pace: Pace | None) -> Steps[JobCounts]:
        """Deal with the rows of a range."""
        if isinstance(self.deal, Window):
            return self.deal.walk(self.db, part, self.where, verb, pace)
        deal, counts = self.deal, JobCounts()

        async def deal_and_count(rows: list[Row]) -> None:
            await deal(rows, counts)

        return walk(self.db, part, self.where, deal_and_count, counts, verb, pace)


def written_side(
    rekey: OnlineRekey,
    kinds: KindSet,
    where: Filter | None,
    write: Write,
    parallel: int,
    partition_of: Callable[[Row], str] | None = None,
    *,
    ranges: int = MOST_RANGES,
    chunk: int = CHUNK,
) -> Side:
    """
    Return a side whose rows are written, together with those of the other workers.

    Args:
        rekey: The re-key.
        kinds: The model whose rows are read. Where keys tell its kind, a store returns rows of others too, which are
            passed over.
        where: The condition of these rows.
        write: Writes them.
        parallel: How many workers there are.
        partition_of: Returns the partition whose rows are best written at a time; None for that of the row, whose rows
            come together, so that few of them wait.
        ranges: How many ranges the table is divided into at most.
        chunk: How many rows are written at a time.
    """

    async def write_rows(rows: Iterable[Row], counts: JobCounts) -> None:
        report = await write(rows)
        for each in (*report.collisions, *report.failures):
            counts.fail(each.place, str(each.error))
        counts.written += report.moved
        counts.count("transactions", report.transactions)
        counts.count("operations in these", report.operations)

    async def sort(rows: Sequence[Row], counts: JobCounts) -> list[tuple[str, Row]]:
        found: list[tuple[str, Row]] = []
        for number, row in enumerate(rows):
            if number % 100 == 99:
                await rekey.connection.yield_to_loop(1)
            if _is_of(kinds, row):
                found.append((row["PartitionKey"] if partition_of is None else partition_of(row), row))
        counts.entities += len(found)
        return found

    (schema,) = kinds.schemas
    most = max(1, (CHUNK if partition_of is None else WINDOW) // parallel)
    window = Window(sort, write_rows, most, rekey.crew, chunk)
    return Side(db=rekey.connection, schema=schema, where=where, deal=window, ranges=ranges)


def _is_of(kinds: KindSet, row: Row) -> bool:
    """Return whether a row is an entity of a model, or a marker row of one."""
    (schema,) = kinds.schemas
    if is_marker(row):
        return str(row[ENTITY_TYPE]).partition(":")[0] in (f"{schema.kind}{TENTATIVE}", f"{schema.kind}{FORWARD}")
    try:
        return kinds.resolve(row) is not None
    except DecodeError:  # who reads it as an entity tells what is wrong
        return True


def make_job(
    verb: str,
    what: str,
    purpose: str,
    *sides: Side,
    crew: Crew | None = None,
    prepare: Callable[[], Awaitable[object]] | None = None,
    judge: Callable[[JobCounts], Awaitable[object]] | None = None,
) -> Job[JobCounts, RunReport]:
    """
    Return a job that deals with all rows of one side, and then with all of the other, if there are two.

    Args:
        verb: Name of the function that was called.
        what: What it does, for people.
        purpose: A hash of that, and of the models.
        sides: One side or two.
        crew: The workers of the process, if they wait for each other.
        prepare: What is done before the run begins.
        judge: Adds to what was counted what only all ranges together show.
    """

    async def plan() -> list[JobRange]:
        ranges: list[JobRange] = []
        for number, side in enumerate(sides, 1):
            tables = [(side.schema.table_name(), [side.schema])]
            found = await plan_ranges(side.db, verb, tables, most=side.ranges)
            ranges += [attrs.evolve(each, building=number < len(sides)) for each in found]
        if prepare is not None:
            await prepare()
        return ranges

    return RunJob(
        verb=verb,
        what=what,
        purpose=purpose,
        tables={side.schema.table_name() for side in sides},
        plan=plan,
        work=lambda part, pace: (sides[0] if part.building else sides[-1]).work(verb, part, pace),
        judge=judge,
        crew=crew or Crew(),
    )


def rekey_job(
    rekey: OnlineRekey, what: str, *sides: Side, judge: Callable[[JobCounts], Awaitable[object]] | None = None
) -> Job[JobCounts, RunReport]:
    """Return a job of an online re-key, as `make_job` does."""
    return make_job(rekey.verb, f"{what} {rekey}", rekey.rekeying.digest, *sides, crew=rekey.crew, judge=judge)
