"""
Running queries: the requests of a plan, the pages that they give, and the entities of their rows.

    sources -> pages, fetched ahead of their use -> parts of a page -> entities

While the caller works with a page, the next one is fetched. As many requests run at once as are allowed; for each no
more rows wait than one full page has, so that memory does not depend on how much there is to read.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from ..connection.blob_fields import bind_blobs
from ..connection.connection import TURN
from ..connection.period_tables import NO_TABLE
from ..connection.tasks import stop_tasks, work_together
from ..connection.translate import translate, with_fault
from ..errors import CursorError, DecodeError, NotSupported, TableOrmError, without_own_frames
from ..keys.ranges import KeyPosition
from ..protocol.codes import Code, Fault
from ..protocol.edm import utf16_key
from ..protocol.limits import MAX_PAGE
from ..stores import Row, RowAddress, RowPage, row_keys
from .cursors import cursor_behind_misfit
from .execution import FetchedPage, QueryExecution, UnsentRequest
from .kindless import hint_at_rows_without_kind
from .merge import Merger
from .misfits import Misfit, is_of_row, load_each, misfit_of, take_last_misfit, without_taken
from .planning.plan import AnyRequest, MergedRequests, Point, Range
from .progress import ReadProgress

# Ranges that are read ahead of a limit, which may be reached before they are needed.
_AHEAD_OF_A_LIMIT = 4
# A store without an order gives rows that are sorted here, if they are no more than this.
_MOST_SORTED = 10_000
# Pages that wait for the caller, of one request: so many, while they have no more rows than a full one.
_PAGES_AHEAD = 32

_FIRST_PART = 4
_ROUNDS_OF_A_PART = 4  # requests one after the other, of each that are sent at the same time, between two parts
_PART_SECONDS = 0.002  # no part shall keep the event loop for longer than this

# Requests


def requests_ahead(run: QueryExecution) -> int:
    """Return how many requests of a query are sent at the same time."""
    if run.wanted is None:
        return run.concurrency
    if run.wanted and all(isinstance(request, Point) for request in run.plan.requests):
        return min(run.concurrency, run.wanted)
    return min(run.concurrency, _AHEAD_OF_A_LIMIT)


async def _fetch_in_turn(
    run: QueryExecution, request: Point | Range, continuation: str | None, *, in_order: bool = True
) -> RowPage:
    """Fetch one page as `fetch_request` does, when there is a turn for it."""
    if run.turns is None:
        return await fetch_request(run, request, continuation, in_order=in_order)
    async with run.turns:
        return await fetch_request(run, request, continuation, in_order=in_order)


async def fetch_request(
    run: QueryExecution, request: Point | Range, continuation: str | None, *, in_order: bool = True, full: bool = False
) -> RowPage:
    """
    Fetch one page of one request.

    Args:
        run: The query.
        request: The request.
        continuation: Where it goes on; None for its start.
        in_order: Whether its rows are wanted in key order, which not every store gives.
        full: Whether a full page is wanted, whatever the limit.

    Raises:
        TableOrmError: The store refused it.
        CursorError: The store refused what a cursor said.
        NotSupported: There are too many rows to sort here.
    """
    target = run.plan.target
    if isinstance(request, Point):
        address = RowAddress(target.table, request.partition_key, request.row_key)
        return RowPage(await _fetch_point(run, address, run.plan.select), None)
    if in_order and run.sorted_here:
        return await _fetch_sorted(run, request)
    size = MAX_PAGE if full or run.wanted is None or not request.drops_few else max(1, min(run.wanted, MAX_PAGE))
    if continuation is not None and (request.client_filters or target.drops_rows):
        size = MAX_PAGE  # of the first rows some were dropped here, or are of other kinds, which only the rows tell
    store, counts = run.db.sending("query", run.name, work=run.work)
    try:
        page = await store.query(target.table, request.query, size, continuation)
    except Fault as fault:
        if run.may_lack_table and fault.code in NO_TABLE:
            await asyncio.sleep(0)  # an embedded store answers without waiting
            return RowPage([], None)
        if fault.code == Code.INVALID_INPUT and continuation is not None and continuation == run.position.continuation:
            error = CursorError(
                f"query of {run.name}: the store rejects the position in the cursor; start again without a cursor",
                fault.code,
            )
            raise with_fault(error, fault) from None
        raise translate(fault, f"query of {run.name}", target.table) from None
    counts.rows += len(page.rows)
    if run.db.watch.advises and not page.rows and page.continuation is None and continuation is None:
        await hint_at_rows_without_kind(run, request)
    return page


async def _fetch_point(run: QueryExecution, address: RowAddress, select: tuple[str, ...] | None) -> list[Row]:
    """Return the row at an address, if there is one."""
    store, counts = run.db.sending("get", run.name, work=run.work)
    try:
        row = await store.get(address.table, address.partition_key, address.row_key, select)
    except Fault as fault:
        if fault.code == Code.RESOURCE_NOT_FOUND or (run.may_lack_table and fault.code in NO_TABLE):
            await run.db.yield_to_loop(1)  # an embedded store answers without waiting
            return []
        raise translate(fault, f"query of {run.name}", address.table) from None
    counts.rows += 1
    return [row]


async def _fetch_sorted(run: QueryExecution, request: Range) -> RowPage:
    """Fetch all rows of a request to a store that promises no order, and sort them."""
    rows: list[Row] = []
    continuation: str | None = None
    while True:
        page = await fetch_request(run, request, continuation, in_order=False, full=True)
        rows += page.rows
        if len(rows) > _MOST_SORTED:
            raise NotSupported(
                f"query of {run.name}: this store returns unsorted rows, and tableorm sorts at most {_MOST_SORTED}; "
                f"narrow the query, or accept any order with .unordered()"
            )
        continuation = page.continuation
        if continuation is None:
            rows.sort(key=lambda row: (utf16_key(row["PartitionKey"]), utf16_key(row["RowKey"])))
            return RowPage(rows, None)


# Pages


class _Prefetcher:
    """
    What fetches the pages of one request ahead of their use.

    Args:
        source: The request.
        index: The number of the request.
        on_page: Called when there is a page, or an error, to take; None if the caller waits for `next`.
    """

    def __init__(
        self, source: UnsentRequest, index: int, on_page: "Callable[[_Prefetcher], object] | None" = None
    ) -> None:
        self.run, self._request, self._continuation = source.run, source.request, source.continuation
        self._merger: Merger | None = None
        self.run.allowance.running += 1
        self._index, self._on_page = index, on_page
        self._pages: deque[RowPage] = deque()
        self._rows = 0  # in these pages
        self._ended = self._used = False
        self._task: asyncio.Task[None] | None = None
        self._page_came: asyncio.Future[None] | None = None

    @property
    def done(self) -> bool:
        """Whether no more pages of it are wanted, or there are none."""
        return self.run.wanted == 0 or (self._ended and not self._pages)

    def start(self) -> None:
        """Begin to fetch pages."""
        self._task = asyncio.create_task(self._fetch_ahead())

    async def _fetch_ahead(self) -> None:
        """
        Fetch a page, and others while they have room: in one go, so that a request does not wait for work of others.

        An error is left in the task: the next `take` raises it.
        """
        try:
            while True:
                page = await self._fetch()
                self._keep(page)
                if not self._has_room(len(page.rows)):
                    self._task = None
                    return
                self._notify()
        finally:
            self._notify()

    async def _fetch(self) -> RowPage:
        if isinstance(self._request, MergedRequests):
            return await self._merge(self._request)
        in_order = self._on_page is None or self.run.one_by_one
        return await _fetch_in_turn(self.run, self._request, self._continuation, in_order=in_order)

    async def _merge(self, requests: MergedRequests) -> RowPage:
        if self._merger is None:
            self._merger = Merger(self.run, requests, partial(_fetch_in_turn, self.run))
        return await self._merger.next_page()

    def _notify(self) -> None:
        if self._on_page is not None:
            self._on_page(self)
        elif self._page_came is not None and not self._page_came.done():
            self._page_came.set_result(None)

    def _keep(self, page: RowPage) -> None:
        self._pages.append(page)
        self._rows += len(page.rows)
        self._continuation, self._ended = page.continuation, page.continuation is None

    def _has_room(self, size: int) -> bool:
        """Return whether there is one more page, and room for it beside those that wait if it has `size` rows."""
        if self._ended or not self._pages:
            return not self._ended
        # Where a limit may be reached, or pages are used one after the other, one is enough.
        one = self.run.wanted is not None or (self._used and self._on_page is None)
        return not one and len(self._pages) < _PAGES_AHEAD and self._rows + size <= MAX_PAGE

    async def next(self) -> FetchedPage:
        """Return the next page, which there is unless it is done. Raises what came instead."""
        self._used = True
        if not self._pages:
            task = self._task
            if task is None:
                self._keep(await self._fetch())
            elif not task.done():
                self._page_came = asyncio.get_running_loop().create_future()
                await self._page_came
        return self.take()

    def take(self) -> FetchedPage:
        """Return the page that came. Raises what came instead."""
        if not self._pages and self._task is not None:
            self._task.result()
        page = self._pages.popleft()
        self._rows -= len(page.rows)
        wanted = self.run.wanted
        if (wanted is None or wanted > len(page.rows)) and self._task is None and self._has_room(len(page.rows)):
            self.start()
        return FetchedPage(self.run, self._request, self._index, page.rows, page.continuation)

    def go_on(self) -> None:
        """Fetch the next page, if the one that was taken could have been enough for a limit, and was not."""
        if not self._pages and self._task is None and not self.done:
            self.start()

    def cancel(self) -> "list[asyncio.Task[Any]]":
        """Stop fetching. Returns the tasks that end."""
        self.run.allowance.running -= 1
        task, self._task = self._task, None
        tasks: list[asyncio.Task[Any]] = [] if self._merger is None else [*self._merger.tasks()]
        if task is not None:
            task.cancel()
            tasks.append(task)
        return tasks


class _SourceQueue:
    """Requests that have not begun, by query."""

    def __init__(self, sources: Iterable[UnsentRequest]) -> None:
        self._by_query: dict[int, deque[UnsentRequest]] = {}
        for source in sources:
            self._by_query.setdefault(id(source.run.allowance), deque()).append(source)

    def next(self, *, ordered: bool) -> UnsentRequest | None:
        """Return the next that may begin; None if there is none now. In order none overtakes one before it."""
        for number, sources in list(self._by_query.items()):
            allowed = sources[0].run.allowance
            if allowed.wanted == 0:
                del self._by_query[number]  # its query has all that it wants
            elif allowed.max_requests is None or allowed.running < allowed.max_requests:
                source = sources.popleft()
                if not sources:
                    del self._by_query[number]
                return source
            elif ordered:
                return None
        return None


def fetch_pages(
    sources: Iterable[UnsentRequest], concurrency: int, *, ordered: bool
) -> AsyncGenerator[FetchedPage, None]:
    """
    Fetch the pages of some requests.

    Args:
        sources: The requests.
        concurrency: How many run at the same time.
        ordered: Whether pages come request by request, as given; otherwise as they arrive.
    """
    queue = _SourceQueue(sources)
    return _fetch_in_order(queue, concurrency) if ordered else _fetch_as_they_come(queue, concurrency)


async def _fetch_in_order(queue: _SourceQueue, concurrency: int) -> AsyncGenerator[FetchedPage, None]:
    running: deque[_Prefetcher] = deque()
    index = 0
    try:
        while True:
            while len(running) < concurrency and (source := queue.next(ordered=True)) is not None:
                prefetcher = _Prefetcher(source, index)
                index += 1
                running.append(prefetcher)
                if len(running) > 1:  # the first is awaited at once
                    prefetcher.start()
            if not running:
                return
            while not running[0].done:
                yield await running[0].next()
            await _stop([running.popleft()])
    except TableOrmError as error:
        raise error.with_traceback(None) from error.__cause__
    finally:
        await _stop(running)


async def _fetch_as_they_come(queue: _SourceQueue, concurrency: int) -> AsyncGenerator[FetchedPage, None]:
    running: set[_Prefetcher] = set()
    came: asyncio.Queue[_Prefetcher] = asyncio.Queue()
    index = 0
    try:
        while True:
            while len(running) < concurrency and (source := queue.next(ordered=False)) is not None:
                prefetcher = _Prefetcher(source, index, came.put_nowait)
                index += 1
                running.add(prefetcher)
                prefetcher.start()
            if not running:
                return
            prefetcher = await came.get()
            if prefetcher in running and not prefetcher.done:
                yield prefetcher.take()
                prefetcher.go_on()
            # The end of a query ends all of its requests.
            ended = running if prefetcher.run.wanted == 0 else running & {prefetcher}
            done = [each for each in ended if each.done]
            running.difference_update(done)
            await _stop(done)
    except TableOrmError as error:
        raise error.with_traceback(None) from error.__cause__
    finally:
        await _stop(running)


async def _stop(prefetchers: Iterable[_Prefetcher]) -> None:
    """Stop fetching, and wait for the tasks that end."""
    tasks = [task for each in prefetchers for task in each.cancel()]
    if tasks:
        await stop_tasks(tasks)


# Entities


def apply_filters(request: AnyRequest, rows: list[Row]) -> list[Row]:
    """Return the rows that satisfy what the store could not be asked."""
    if isinstance(request, MergedRequests):
        return [row for row in rows if request.keeps(row)] if request.filters else rows
    if isinstance(request, Range):
        for each in request.client_filters:
            test = each.test
            rows = [row for row in rows if test(row)]
    return rows


async def load_rows(run: QueryExecution, request: AnyRequest, rows: list[Row]) -> list[Any]:
    """
    Return the entities of rows, in order. Rows that have to be read in full are read again.

    Of rows that do not fit their model none is among them, except for one that ends the query: its misfit comes last.
    """
    rows = apply_filters(request, rows)
    try:
        found = run.load(rows)
    except Exception:  # noqa: BLE001 - once more, to find the row that raises it
        found = load_each(run.load, rows)
    types = set(map(type, found))
    if dict in types:
        incomplete = iter([index for index, each in enumerate(found) if type(each) is dict])

        async def read_again() -> None:
            for index in incomplete:
                row = cast("Row", found[index])
                try:
                    found[index] = await _read_again(run, row)
                except Exception as error:
                    if not is_of_row(error):
                        raise
                    found[index] = misfit_of(row, error)

        await work_together(read_again, run.concurrency)
        types = set(map(type, found))
    if run.plan.target.kinds.uploads:
        bind_blobs(run.db, found)
    if type(None) in types:
        found = [entity for entity in found if entity is not None]
    return without_taken(found, run.take_misfit, run.wanted) if Misfit in types else found


async def _read_again(run: QueryExecution, row: Row) -> Any:
    """Return the entity of a row of which too little was read, or of an index entry; None if it is not a result."""
    target = run.plan.target
    if run.primaries is not None:
        return await run.primaries.read(row, partial(_fetch_known, run), run.plan.once)
    rows = await _fetch_known(run, RowAddress.of_row(target.table, row), None)
    return next(iter(target.kinds.load_all(rows)), None)


async def _fetch_known(run: QueryExecution, address: RowAddress, select: tuple[str, ...] | None) -> list[Row]:
    """Return the row at an address, if there is one: as a range of keys has brought it, else by a request."""
    keys = address.partition_key, address.row_key
    asked = None if run.primaries is None else run.primaries.select
    if keys not in run.found_nearby or select != asked:
        return await _fetch_point(run, address, select)
    found = run.found_nearby[keys]
    return [] if found is None else [found.copy()]  # several entries can be of one entity


async def find_nearby(run: QueryExecution, request: AnyRequest, rows: list[Row]) -> None:
    """Read by ranges of keys what `load_rows` would read for these rows one by one, where it lies close together."""
    if run.nearby is None:
        return
    keys: list[KeyPosition] = []
    for start in range(0, len(rows), TURN):
        part = apply_filters(request, rows[start : start + TURN])
        await run.db.yield_to_loop(len(part))
        for row in part:
            with suppress(Exception):  # what is wrong with a row is said when it is loaded
                found = _keys_to_read(run, row)
                if found is not None:
                    keys.append(found)
    run.found_nearby = await run.nearby.read(keys)


def _keys_to_read(run: QueryExecution, row: Row) -> KeyPosition | None:
    if run.primaries is not None:
        return run.primaries.keys_of(row, run.db.boundary)
    found = run.plan.target.kinds.resolve(row)
    return row_keys(row) if found is not None and found[1] < found[0].version else None


class LoadPacer:
    """What decides how many rows are made into entities between two turns of the event loop."""

    def __init__(self) -> None:
        self.size = _FIRST_PART
        self._sought = 0  # of the rows of a page, up to where primaries were sought that lie close together

    async def load(self, page: FetchedPage, start: int) -> tuple[list[Row], list[Any]]:
        """Return the next rows of a page, of those from `start` on, and their entities."""
        run = page.run
        if run.nearby is not None and (start == 0 or start >= self._sought):
            soon = page.rows[start:] if run.wanted is None else page.rows[start : start + max(1, run.wanted)]
            self._sought = start + len(soon)
            await find_nearby(run, page.request, soon)
        if not run.plan.target.fetches_primaries:
            part = page.rows[start : start + self.size]
            return part, await self._load(run, page.request, part)
        most = run.concurrency * _ROUNDS_OF_A_PART  # a request for each, which are sent at the same time
        part = page.rows[start : min(start + most, self._sought)]
        await run.db.yield_to_loop(len(part))
        return part, await load_rows(run, page.request, part)

    async def _load(self, run: QueryExecution, request: AnyRequest, part: list[Row]) -> list[Any]:
        """Return the entities of some rows. The next part is smaller if they took long, or larger."""
        await run.db.yield_to_loop(len(part))
        begun = time.perf_counter()
        loaded = await load_rows(run, request, part)
        # Rows differ: a thousand of one kind keep the event loop for as long as a few of another.
        quick = time.perf_counter() - begun < _PART_SECONDS
        self.size = min(self.size * 2, TURN) if quick else max(self.size // 2, 1)
        if not quick:
            await asyncio.sleep(0)
        return loaded


async def load_entities(
    sources: Sequence[UnsentRequest], concurrency: int, *, ordered: bool, progress: ReadProgress | None = None
) -> AsyncGenerator[list[Any], None]:
    """
    Load the entities of some requests, some at a time; other tasks get turns between them.

    Args:
        sources: The requests.
        concurrency: How many run at the same time.
        ordered: Whether they come in key order; otherwise as they arrive.
        progress: Is told whose entities come; None if nobody asks.

    Raises:
        DecodeError: A row does not fit its model, and was not taken. The entities before it have been given.
    """
    pacer = LoadPacer()
    pages = fetch_pages(sources, concurrency, ordered=ordered)
    try:
        async for page in pages:
            run, start = page.run, 0
            while start < len(page.rows):
                part, loaded = await pacer.load(page, start)
                start += len(part)
                misfit = take_last_misfit(loaded)
                wanted = run.wanted
                if wanted is not None:
                    loaded = loaded[:wanted]
                    run.wanted = wanted - len(loaded)
                if progress is not None and loaded:
                    progress.run = run
                yield loaded
                if wanted is not None and run.wanted == 0:
                    break
                if misfit is not None:
                    run.misfit_at = misfit.position
                    if isinstance(misfit.error, DecodeError):
                        misfit.error.cursor = cursor_behind_misfit(run)
                    raise without_own_frames(misfit.error)
    finally:
        await pages.aclose()
