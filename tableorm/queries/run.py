"""
Running queries: their requests one after the other or at the same time, page by page, into entities.

While the caller works with a page, the next one is fetched. Of several requests as many run at once as are allowed; for
each no more rows wait than one full page has, so that memory does not depend on how much there is to read.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any, cast

import attrs
import msgspec
from msgspec import structs

from ..connection.connection import TURN, Connection
from ..connection.tasks import stop_tasks, work_together
from ..connection.translate import translate
from ..errors import CursorError, NotSupported
from ..models.reserved import COPY_OF
from ..models.state import set_state, state_of
from ..protocol.codes import Code, Fault
from ..protocol.edm import utf16_key
from ..protocol.limits import MAX_PAGE
from ..stores import Row, RowPage
from .planning.index_following import is_current
from .planning.plan import Access, Point, QueryPlan, Range

__all__ = ["CONCURRENCY", "FetchedPage", "Loader", "Pace", "QueryExecution", "Source", "batches", "parts"]

CONCURRENCY = 16
"""Requests of a query that run at the same time, unless it says otherwise."""

# Pages that wait for the caller, of one request: so many, while they have no more rows than a full one.
_PAGES_AHEAD = 32

# A store without an order gives rows that are sorted here, if they are no more than this.
_MOST_SORTED = 10_000

_FIRST_PART = 4

_PART_SECONDS = 0.002  # longer than this no part shall keep the event loop

Loader = Callable[[Row], Any]
"""A row to an entity; None if it is no result, the row itself if it has to be read again, in full."""


@attrs.define(eq=False)
class QueryExecution:
    """
    One query while it runs.

    Args:
        db: Where.
        plan: What.
        load: Rows to entities, in order.
        left: Entities that are still wanted; None for all.
        name: What is read, for messages.
        resumed: Where a cursor says that the store goes on; None if it says nothing.
        most: Requests at the same time, beside those of other queries; None if only all together are bounded.
        running: How many of its requests run, or wait with what they got.
        ordered: Whether its results are to come in key order.
        one_by_one: Whether they do so although those of others come in between: one request after the other.
        confirm: Of a query by an index, what a primary must satisfy that was read after its copy.
    """

    db: Connection
    plan: QueryPlan
    load: Callable[[list[Row]], list[Any]]
    left: int | None
    name: str
    resumed: str | None = None
    most: int | None = None
    running: int = 0
    ordered: bool = True
    one_by_one: bool = False
    confirm: Callable[[Row], bool | None] | None = None

    @property
    def busy(self) -> bool:
        """Whether no more of its requests may run now."""
        return self.running > 0 if self.one_by_one else self.most is not None and self.running >= self.most

    async def fetch(self, request: Point | Range, continuation: str | None, *, full: bool = False) -> RowPage:
        """
        One page of one request; `full`, whatever the limit.

        Raises:
            TableOrmError: The store refused it.
            CursorError: It refused what a cursor said.
        """
        db, plan, table = self.db, self.plan, self.plan.kinds.table
        store = db.require_open()
        db.stats.requests += 1
        try:
            if isinstance(request, Point):
                try:
                    row = await store.get(table, request.partition_key, request.row_key, plan.select)
                except Fault as fault:
                    if fault.code != Code.RESOURCE_NOT_FOUND:
                        raise
                    await db.yield_to_loop(1)  # an embedded store answers without waiting
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
        kinds = set(map(type, found))
        if dict in kinds:
            old = iter([index for index, each in enumerate(found) if type(each) is dict])

            async def read_again() -> None:
                for index in old:
                    found[index] = await self._in_full(cast("Row", found[index]))

            await work_together(read_again, CONCURRENCY)
        elif type(None) not in kinds:
            return found
        return [entity for entity in found if entity is not None]

    async def _in_full(self, row: Row) -> Any:
        kinds, key = self.plan.kinds, row["RowKey"]
        if self.confirm is not None:
            kinds, key = kinds.primaries or kinds, row[COPY_OF]
        point = Point(row["PartitionKey"], key)
        whole = QueryExecution(self.db, QueryPlan(kinds, Access.POINT, (point,)), self.load, None, self.name)
        rows = (await whole.fetch(point, None)).rows
        if self.confirm is not None:  # it may have changed since its copy was read
            rows = [each for each in rows if is_current(row, each) and self.confirm(each)]
        entity = next(iter(kinds.load_all(rows)), None)
        if self.confirm is not None and entity is not None:
            set_state(entity, structs.replace(state_of(entity), found_at=row["RowKey"]))
        return entity


class FetchedPage(msgspec.Struct, frozen=True, eq=False):
    """
    A page that came; a struct, since pages can be short, and there are many.

    Args:
        run: Of which query.
        request: Of which of its requests.
        index: Its number among those that were given.
        rows: What came.
        continuation: Where that request goes on; None if it is done.
    """

    run: QueryExecution
    request: Point | Range
    index: int
    rows: list[Row]
    continuation: str | None


Source = tuple[QueryExecution, Point | Range, str | None]
"""A request of a query, and where it starts."""


class _Prefetcher:
    """
    The pages of one request, which are fetched ahead of their use.

    Args:
        source: The request.
        index: Its number.
        arrived: Called when there is a page, or an error, to take; None if somebody waits for `next`.
    """

    def __init__(self, source: Source, index: int, arrived: "Callable[[_Prefetcher], object] | None" = None) -> None:
        self.run, self._request, self._continuation = source
        self.run.running += 1
        self._index, self._arrived = index, arrived
        self._pages: deque[RowPage] = deque()
        self._rows = 0  # in these pages
        self._ended = self._used = False
        self._task: asyncio.Task[None] | None = None
        self._news: asyncio.Future[None] | None = None

    @property
    def done(self) -> bool:
        """Whether nothing more is wanted or to be had of it."""
        return self.run.left == 0 or (self._ended and not self._pages)

    def start(self) -> None:
        """Begin to fetch pages."""
        self._task = asyncio.create_task(self._fetch_on())

    async def _fetch_on(self) -> None:
        """
        Fetch a page, and others while they have room: in one go, so that a request waits for no work of the others.
        An error is left in the task: whoever takes the next page gets it.
        """
        try:
            while True:
                page = await self._fetch()
                self._keep(page)
                if not self._has_room(len(page.rows)):
                    self._task = None
                    return
                self._tell()
        finally:
            self._tell()

    async def _fetch(self) -> RowPage:
        run, request = self.run, self._request
        in_order = self._arrived is None or run.one_by_one
        if in_order and isinstance(request, Range) and not run.db.store.capabilities.ordered:
            return await run.sorted_page(request)
        return await run.fetch(request, self._continuation)

    def _tell(self) -> None:
        if self._arrived is not None:
            self._arrived(self)
        elif self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _keep(self, page: RowPage) -> None:
        self._pages.append(page)
        self._rows += len(page.rows)
        self._continuation, self._ended = page.continuation, page.continuation is None

    def _has_room(self, size: int) -> bool:
        """Whether there is one more page, and room for it beside those that wait if it is of that size."""
        if self._ended or not self._pages:
            return not self._ended
        # Where a limit may be reached, or pages are used one after the other, one is enough.
        one = self.run.left is not None or (self._used and self._arrived is None)
        return not one and len(self._pages) < _PAGES_AHEAD and self._rows + size <= MAX_PAGE

    async def next(self) -> FetchedPage:
        """The next page, which there is unless it is done."""
        self._used = True
        if not self._pages:
            task = self._task
            if task is None:
                self._keep(await self._fetch())
            elif not task.done():
                self._news = asyncio.get_running_loop().create_future()
                await self._news
        return self.take()

    def take(self) -> FetchedPage:
        """The page that came. Raises what came instead."""
        if not self._pages and self._task is not None:
            self._task.result()
        page = self._pages.popleft()
        self._rows -= len(page.rows)
        left = self.run.left
        if (left is None or left > len(page.rows)) and self._task is None and self._has_room(len(page.rows)):
            self.start()
        return FetchedPage(self.run, self._request, self._index, page.rows, page.continuation)

    def go_on(self) -> None:
        """Fetch the next page, if the one that was taken could have been enough for a limit, and was not."""
        if not self._pages and self._task is None and not self.done:
            self.start()

    def cancel(self) -> "asyncio.Task[None] | None":
        """Stop fetching; the task that ends, if there is one."""
        self.run.running -= 1
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        return task


class _Waiting:
    """Requests that have not begun, by query."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._by_run: dict[int, deque[Source]] = {}
        for source in sources:
            self._by_run.setdefault(id(source[0]), deque()).append(source)

    def next(self, *, ordered: bool) -> Source | None:
        """The next that may begin: in order none before the ones that were given before it."""
        for number, left in list(self._by_run.items()):
            if left[0][0].left == 0:
                del self._by_run[number]  # its query has all that it wants
            elif not left[0][0].busy:
                source = left.popleft()
                if not left:
                    del self._by_run[number]
                return source
            elif ordered:
                return None
        return None


def batches(sources: Iterable[Source], concurrency: int, *, ordered: bool) -> AsyncGenerator[FetchedPage, None]:
    """
    The pages of some requests.

    Args:
        sources: The requests.
        concurrency: How many run at the same time.
        ordered: One request after the other, as given; otherwise as they come.
    """
    waiting = _Waiting(sources)
    return _in_order(waiting, concurrency) if ordered else _as_they_come(waiting, concurrency)


async def _in_order(waiting: _Waiting, concurrency: int) -> AsyncGenerator[FetchedPage, None]:
    running: deque[_Prefetcher] = deque()
    index = 0
    try:
        while True:
            while len(running) < concurrency and (source := waiting.next(ordered=True)) is not None:
                stream = _Prefetcher(source, index)
                index += 1
                running.append(stream)
                if len(running) > 1:  # the first is awaited at once
                    stream.start()
            if not running:
                return
            while not running[0].done:
                yield await running[0].next()
            await stop_tasks([running.popleft().cancel()])
    finally:
        await stop_tasks([stream.cancel() for stream in running])


async def _as_they_come(waiting: _Waiting, concurrency: int) -> AsyncGenerator[FetchedPage, None]:
    running: set[_Prefetcher] = set()
    came: asyncio.Queue[_Prefetcher] = asyncio.Queue()
    index = 0
    try:
        while True:
            while len(running) < concurrency and (source := waiting.next(ordered=False)) is not None:
                stream = _Prefetcher(source, index, came.put_nowait)
                index += 1
                running.add(stream)
                stream.start()
            if not running:
                return
            stream = await came.get()
            if stream in running and not stream.done:
                yield stream.take()
                stream.go_on()
            # What ends a query ends all of its requests.
            done = [each for each in running if each.done] if stream.run.left == 0 else [stream] * stream.done
            for each in done:
                if each in running:
                    running.remove(each)
                    await stop_tasks([each.cancel()])
    finally:
        await stop_tasks([stream.cancel() for stream in running])


class Pace:
    """How many rows are made into entities between two turns of the event loop."""

    def __init__(self) -> None:
        self.size = _FIRST_PART

    async def load(self, run: QueryExecution, request: Point | Range, part: list[Row]) -> list[Any]:
        """The entities of `size` rows; the next part is smaller if they took long, or larger."""
        await run.db.yield_to_loop(len(part))
        begun = time.perf_counter()
        loaded = await run.entities(request, part)
        # Rows differ: of some a thousand, of others a few keep the event loop for as long.
        quick = time.perf_counter() - begun < _PART_SECONDS
        self.size = min(self.size * 2, TURN) if quick else max(self.size // 2, 1)
        if not quick:
            await asyncio.sleep(0)
        return loaded


async def parts(sources: Sequence[Source], concurrency: int, *, ordered: bool) -> AsyncGenerator[list[Any], None]:
    """
    The entities of some requests, some at a time; other tasks get turns between them.

    Args:
        sources: The requests.
        concurrency: How many run at the same time.
        ordered: In key order; otherwise as they come.
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
                yield loaded
                if run.left == 0:
                    break
    finally:
        await pages.aclose()
