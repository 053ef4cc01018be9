"""
Running queries: their requests one after the other or at the same time, page by page, into entities.

While the caller works with a page, the next one is fetched. Of several requests as many run at once as are allowed;
each is at most a page ahead, so that memory does not depend on how much there is to read.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, cast

import attrs

from .connection import TURN, Connection
from .errors import CursorError, NotSupported
from .following import is_current
from .planner import Access, Point, QueryPlan, Range
from .protocol.codes import Code, Fault
from .protocol.edm import utf16_key
from .protocol.limits import MAX_PAGE
from .reserved import COPY_OF
from .stores import Row, RowPage
from .translate import translate

__all__ = ["CONCURRENCY", "Batch", "Pace", "Run", "batches", "entities", "work_together"]

CONCURRENCY = 16
"""Requests of a query that run at the same time, unless it says otherwise."""

# A store without an order gives rows that are sorted here, if they are no more than this.
_MOST_SORTED = 10_000
_FIRST_PART = 4
_PART_SECONDS = 0.002  # longer than this no part shall keep the event loop

Loader = Callable[[Row], Any]
"""A row to an entity; None if it is no result, the row itself if it has to be read again, in full."""


@attrs.define(eq=False)
class Run:
    """
    One query while it runs.

    Args:
        db: Where.
        plan: What.
        load: Rows to entities, in order.
        left: Entities that are still wanted; None for all.
        name: What is read, for messages.
        resumed: Where a cursor says that the store goes on; None if it says nothing.
        confirm: Of a query by an index, what a primary must satisfy that was read after its copy.
    """

    db: Connection
    plan: QueryPlan
    load: Callable[[list[Row]], list[Any]]
    left: int | None
    name: str
    resumed: str | None = None
    confirm: Callable[[Row], bool | None] | None = None

    async def fetch(self, request: Point | Range, continuation: str | None, *, full: bool = False) -> RowPage:
        """
        One page of one request; `full`, whatever the limit.

        Raises:
            TableOrmError: The store refused it.
            CursorError: It refused what a cursor said.
        """
        db, plan, table = self.db, self.plan, self.plan.kinds.table
        store = db.usable()
        db.stats.requests += 1
        try:
            if isinstance(request, Point):
                try:
                    row = await store.get(table, request.partition_key, request.row_key, plan.select)
                except Fault as fault:
                    if fault.code != Code.RESOURCE_NOT_FOUND:
                        raise
                    await db.take_turn(1)  # an embedded store answers without waiting
                    return RowPage([], None)
                db.stats.rows += 1
                return RowPage([row], None)
            # Rows can be dropped here, so a small limit does not ask for as few rows when conditions are left over.
            size = MAX_PAGE if full or self.left is None or request.local else max(1, min(self.left, MAX_PAGE))
            if continuation is not None and plan.kinds.filter is None and not plan.kinds.bags:
                size = MAX_PAGE  # the first rows were of other kinds, which only the rows tell
            page = await store.query(table, request.query, size, continuation)
        except Fault as fault:
            if fault.code == Code.INVALID_INPUT and continuation is not None and continuation == self.resumed:
                raise CursorError(
                    f"query of {self.name}: the cursor names a place that the store does not know; begin anew without "
                    "a cursor",
                    fault.code,
                ) from fault
            raise translate(fault, f"query of {self.name}", table) from fault
        db.stats.rows += len(page.rows)
        return page

    async def sorted_page(self, request: Range) -> RowPage:
        """
        All rows of a request to a store that promises no order, in key order.

        Raises:
            NotSupported: There are too many to sort here.
        """
        rows: list[Row] = []
        continuation: str | None = None
        while True:
            page = await self.fetch(request, continuation, full=True)
            rows += page.rows
            if len(rows) > _MOST_SORTED:
                raise NotSupported(
                    f"query of {self.name}: this store gives rows in no order, and would have to sort more than "
                    f"{_MOST_SORTED} of them here; narrow the query, or take them as they come with .unordered()"
                )
            continuation = page.continuation
            if continuation is None:
                break
        rows.sort(key=lambda row: (utf16_key(row["PartitionKey"]), utf16_key(row["RowKey"])))
        return RowPage(rows, None)

    def passing(self, request: Point | Range, rows: list[Row]) -> list[Row]:
        """The rows that satisfy what the store could not be asked."""
        if isinstance(request, Range):
            for local in request.local:
                test = local.test
                rows = [row for row in rows if test(row)]
        return rows

    async def entities(self, request: Point | Range, rows: list[Row]) -> list[Any]:
        """The entities of rows, in order; rows that have to be read in full are."""
        found = self.load(self.passing(request, rows))
        old = iter([index for index, each in enumerate(found) if type(each) is dict])

        async def read_again() -> None:
            for index in old:
                found[index] = await self._in_full(cast("Row", found[index]))

        if any(type(each) is dict for each in found):
            await work_together(read_again, CONCURRENCY)
        return [entity for entity in found if entity is not None]

    async def _in_full(self, row: Row) -> Any:
        kinds, key = self.plan.kinds, row["RowKey"]
        if self.confirm is not None:
            kinds, key = kinds.primaries or kinds, row[COPY_OF]
        point = Point(row["PartitionKey"], key)
        whole = Run(self.db, QueryPlan(kinds, Access.POINT, (point,)), self.load, None, self.name)
        rows = (await whole.fetch(point, None)).rows
        if self.confirm is not None:  # it may have changed since its copy was read
            rows = [each for each in rows if is_current(row, each) and self.confirm(each)]
        entity = next(iter(kinds.load_all(rows)), None)
        if self.confirm is not None and entity is not None:
            entity.__dict__["_found_at"] = row["RowKey"]  # from where a cursor goes on
        return entity


@attrs.frozen(eq=False)
class Batch:
    """
    A page that came.

    Args:
        run: Of which query.
        request: Of which of its requests.
        index: Its number among those that were given.
        rows: What came.
        continuation: Where that request goes on; None if it is done.
    """

    run: Run
    request: Point | Range
    index: int
    rows: list[Row]
    continuation: str | None


Source = tuple[Run, Point | Range, str | None]
"""A request of a query, and where it starts."""


class _Stream:
    """The pages of one request, of which the next is fetched while one is used."""

    def __init__(self, source: Source, index: int) -> None:
        self._run, self._request, self._continuation = source
        self._index = index
        self._begun = False
        self._task: asyncio.Task[RowPage] | None = None

    @property
    def done(self) -> bool:
        """Whether nothing more of it is wanted."""
        return self._run.left == 0

    def start(self) -> None:
        """Begin to fetch the next page."""
        self._task = asyncio.create_task(self._fetch())

    async def _fetch(self) -> RowPage:
        run, request = self._run, self._request
        if isinstance(request, Range) and not run.db.store.capabilities.ordered:
            return await run.sorted_page(request)
        return await run.fetch(request, self._continuation)

    async def next(self) -> Batch | None:
        """The next page; None after the last."""
        if self._begun and self._continuation is None:
            return None
        if self._task is None:
            page = await self._fetch()
        else:
            page = await self._task
            self._task = None
        self._begun, self._continuation = True, page.continuation
        left = self._run.left
        if page.continuation is not None and (left is None or left > len(page.rows)):
            self.start()
        return Batch(self._run, self._request, self._index, page.rows, page.continuation)

    def cancel(self) -> "asyncio.Task[RowPage] | None":
        """Stop fetching; the task that ends, if there is one."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        return task


async def _stop(tasks: Iterable["asyncio.Task[Any] | None"]) -> None:
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
        await _stop(workers)


def batches(sources: Iterable[Source], concurrency: int, *, ordered: bool) -> AsyncGenerator[Batch, None]:
    """
    The pages of some requests.

    Args:
        sources: The requests.
        concurrency: How many run at the same time.
        ordered: One request after the other, as given; otherwise as they come.
    """
    return _in_order(iter(sources), concurrency) if ordered else _as_they_come(iter(sources), concurrency)


async def _in_order(sources: Iterator[Source], concurrency: int) -> AsyncGenerator[Batch, None]:
    running: deque[_Stream] = deque()
    index = 0
    try:
        while True:
            while len(running) < concurrency and (source := next(sources, None)) is not None:
                if source[0].left == 0:
                    continue
                stream = _Stream(source, index)
                index += 1
                running.append(stream)
                if len(running) > 1:  # the first is awaited at once
                    stream.start()
            if not running:
                return
            if running[0].done:
                await _stop([running.popleft().cancel()])
                continue
            while (batch := await running[0].next()) is not None:
                yield batch
                if batch.run.left == 0:
                    break
            await _stop([running.popleft().cancel()])
    finally:
        await _stop([stream.cancel() for stream in running])


async def _as_they_come(sources: Iterator[Source], concurrency: int) -> AsyncGenerator[Batch, None]:
    # One place: each request waits with its page until that is taken.
    pages: asyncio.Queue[Batch | BaseException | None] = asyncio.Queue(1)
    numbered = enumerate(sources)

    async def work() -> None:
        try:
            for index, (run, request, start) in numbered:
                continuation = start
                while run.left != 0:
                    page = await run.fetch(request, continuation)
                    continuation = page.continuation
                    await pages.put(Batch(run, request, index, page.rows, continuation))
                    if continuation is None:
                        break
        except Exception as error:  # noqa: BLE001 - raised where the pages are taken
            await pages.put(error)
        else:
            await pages.put(None)

    workers = [asyncio.create_task(work()) for _ in range(concurrency)]
    try:
        ended = 0
        while ended < len(workers):
            found = await pages.get()
            if found is None:
                ended += 1
            elif isinstance(found, BaseException):
                raise found
            elif found.run.left != 0:
                yield found
    finally:
        await _stop(workers)


class Pace:
    """How many rows are made into entities between two turns of the event loop."""

    def __init__(self) -> None:
        self.size = _FIRST_PART

    async def load(self, run: Run, request: Point | Range, part: list[Row]) -> list[Any]:
        """The entities of `size` rows; the next part is smaller if they took long, or larger."""
        await run.db.take_turn(len(part))
        begun = time.perf_counter()
        loaded = await run.entities(request, part)
        # Rows differ: of some a thousand, of others a few keep the event loop for as long.
        quick = time.perf_counter() - begun < _PART_SECONDS
        self.size = min(self.size * 2, TURN) if quick else max(self.size // 2, 1)
        if not quick:
            await asyncio.sleep(0)
        return loaded


async def entities(
    sources: Sequence[Source], concurrency: int, *, ordered: bool, seen: Callable[[Any], None] | None = None
) -> AsyncGenerator[Any, None]:
    """
    The entities of some requests, one by one; other tasks get turns between them.

    Args:
        sources: The requests.
        concurrency: How many run at the same time.
        ordered: In key order; otherwise as they come.
        seen: Called with each before it is given away.
    """
    pace = Pace()
    pages = batches(sources, min(concurrency, len(sources)), ordered=ordered)
    try:
        async for batch in pages:
            run, request, rows, start = batch.run, batch.request, batch.rows, 0
            while start < len(rows):
                part = rows[start : start + pace.size]
                start += len(part)
                loaded = await pace.load(run, request, part)
                if run.left is not None:
                    loaded = loaded[: run.left]
                    run.left -= len(loaded)
                for entity in loaded:
                    if seen is not None:
                        seen(entity)
                    yield entity
                if run.left == 0:
                    break
    finally:
        await pages.aclose()
