"""
Prefetching: the pages of several requests, fetched one after the other or at the same time.

While the caller works with a page, the next one is fetched. As many requests run at once as are allowed; for each no
more rows wait than one full page has, so that memory does not depend on how much there is to read.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

import msgspec

from ..connection.tasks import stop_tasks
from ..protocol.limits import MAX_PAGE
from ..stores import Row, RowPage
from .merge import Merger
from .planning.plan import AnyRequest, MergedRequests
from .run import QueryExecution, Source

__all__ = ["FetchedPage", "fetch_pages"]

# Pages that wait for the caller, of one request: so many, while they have no more rows than a full one.
_PAGES_AHEAD = 32


class FetchedPage(msgspec.Struct, frozen=True, eq=False):
    """
    A page that was fetched; a struct, since pages can be short, and there are many.

    Args:
        run: The query that it belongs to.
        request: The request of that query.
        index: The number of that request among those that were given.
        rows: The rows that came.
        continuation: Where the request goes on; None if it is done.
    """

    run: QueryExecution
    request: AnyRequest
    index: int
    rows: list[Row]
    continuation: str | None


class _Prefetcher:
    """
    What fetches the pages of one request ahead of their use.

    Args:
        source: The request.
        index: The number of the request.
        on_page: Called when there is a page, or an error, to take; None if the caller waits for `next`.
    """

    def __init__(self, source: Source, index: int, on_page: "Callable[[_Prefetcher], object] | None" = None) -> None:
        self.run, self._request, self._continuation = source.run, source.request, source.continuation
        self._merger: Merger | None = None
        self.run.running += 1
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
        return await self.run.fetch_in_turn(self._request, self._continuation, in_order=in_order)

    async def _merge(self, requests: MergedRequests) -> RowPage:
        if self._merger is None:
            self._merger = Merger(self.run, requests)
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
        self.run.running -= 1
        task, self._task = self._task, None
        tasks: list[asyncio.Task[Any]] = [] if self._merger is None else [*self._merger.tasks()]
        if task is not None:
            task.cancel()
            tasks.append(task)
        return tasks


class _SourceQueue:
    """Requests that have not begun, by query."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._by_run: dict[int, deque[Source]] = {}
        for source in sources:
            self._by_run.setdefault(id(source.run), deque()).append(source)

    def next(self, *, ordered: bool) -> Source | None:
        """Return the next that may begin; None if there is none now. In order none overtakes one before it."""
        for number, sources in list(self._by_run.items()):
            run = sources[0].run
            if run.wanted == 0:
                del self._by_run[number]  # its query has all that it wants
            elif not run.busy:
                source = sources.popleft()
                if not sources:
                    del self._by_run[number]
                return source
            elif ordered:
                return None
        return None


def fetch_pages(sources: Iterable[Source], concurrency: int, *, ordered: bool) -> AsyncGenerator[FetchedPage, None]:
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
    finally:
        await _stop(running)


async def _stop(prefetchers: Iterable[_Prefetcher]) -> None:
    """Stop fetching, and wait for the tasks that end."""
    tasks = [task for each in prefetchers for task in each.cancel()]
    if tasks:
        await stop_tasks(tasks)
