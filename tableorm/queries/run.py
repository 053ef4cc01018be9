"""
Running queries: one query while it runs, and each of its requests.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import attrs
import msgspec

from ..connection.connection import Connection
from ..connection.observe import QueryWork
from ..connection.tasks import work_together
from ..connection.translate import translate
from ..errors import CursorError, NotSupported
from ..protocol.codes import Code, Fault
from ..protocol.edm import utf16_key
from ..protocol.limits import MAX_PAGE
from ..stores import Row, RowPage
from .planning.index_following import PrimaryFetch
from .planning.plan import AnyRequest, MergedRequests, Point, QueryPlan, Range

__all__ = ["CONCURRENCY", "QueryExecution", "Source"]

CONCURRENCY = 16
"""Requests of a query that run at the same time, unless it says otherwise."""

# Ranges that are read ahead of a limit, which may be reached before they are needed.
_AHEAD_OF_A_LIMIT = 4
# A store without an order gives rows that are sorted here, if they are no more than this.
_MOST_SORTED = 10_000


@attrs.define(eq=False, kw_only=True)
class QueryExecution:
    """
    One query while it runs.

    Args:
        db: The database.
        plan: The plan of the query.
        load: Makes rows into entities, in order: None for what is not a result, the row itself if it has to be read
            again, in full.
        wanted: How many entities are still wanted; None for all.
        name: What is read, for messages.
        concurrency: Requests at the same time, at most.
        ordered: Whether its results are to come in key order.
        sorted_here: Whether rows are sorted here for that, since the store gives them in no order.
        one_by_one: Whether its results come in key order although those of other queries come in between.
        resumed_at: Where a cursor says that the store goes on; None if it says nothing.
        max_requests: Requests at the same time, beside those of other queries; None if only all together are bounded.
        running: How many of its requests run, or wait with what they got.
        primaries: How the primaries of index entries are fetched after them; None if primary rows are read.
        work: Its requests, for who is warned of slow queries; None if nobody is.
        turns: Bounds the requests of several queries that run together; None if the caller bounds them.
    """

    db: Connection
    plan: QueryPlan
    load: Callable[[list[Row]], list[Any]]
    wanted: int | None
    name: str
    concurrency: int = CONCURRENCY
    ordered: bool = True
    sorted_here: bool = False
    one_by_one: bool = False
    resumed_at: str | None = None
    max_requests: int | None = None
    running: int = 0
    primaries: PrimaryFetch | None = None
    work: QueryWork | None = None
    turns: asyncio.Semaphore | None = None

    @property
    def busy(self) -> bool:
        """Whether no more of its requests may run now."""
        return self.max_requests is not None and self.running >= self.max_requests

    def sources(self, *, in_order: bool = True) -> "list[Source]":
        """
        Return all requests of the query, from their starts.

        Args:
            in_order: Whether the order of rows counts, so that those of some partitions may have to be merged.
        """
        if in_order and self.plan.merged:
            return [Source(self, MergedRequests(self.plan.requests), None)]
        return [Source(self, request, None) for request in self.plan.requests]

    def requests_ahead(self) -> int:
        """Return how many of its requests are sent at the same time."""
        if self.wanted is None:
            return self.concurrency
        if self.wanted and all(isinstance(request, Point) for request in self.plan.requests):
            return min(self.concurrency, self.wanted)
        return min(self.concurrency, _AHEAD_OF_A_LIMIT)

    async def fetch_in_turn(
        self, request: Point | Range, continuation: str | None, *, in_order: bool = True
    ) -> RowPage:
        """Fetch one page as `fetch` does, when there is a turn for it."""
        if self.turns is None:
            return await self.fetch(request, continuation, in_order=in_order)
        async with self.turns:
            return await self.fetch(request, continuation, in_order=in_order)

    async def fetch(
        self, request: Point | Range, continuation: str | None, *, in_order: bool = True, full: bool = False
    ) -> RowPage:
        """
        Fetch one page of one request.

        Args:
            request: The request.
            continuation: Where it goes on; None for its start.
            in_order: Whether its rows are wanted in key order, which not every store gives.
            full: Whether a full page is wanted, whatever the limit.

        Raises:
            TableOrmError: The store refused it.
            CursorError: The store refused what a cursor said.
            NotSupported: There are too many rows to sort here.
        """
        target = self.plan.target
        if isinstance(request, Point):
            keys = request.partition_key, request.row_key
            return RowPage(await self._fetch_point(target.table, *keys, self.plan.select), None)
        if in_order and self.sorted_here:
            return await self._fetch_sorted(request)
        size = MAX_PAGE if full or self.wanted is None or not request.drops_few else max(1, min(self.wanted, MAX_PAGE))
        if continuation is not None and (request.client_filters or target.drops_rows):
            size = MAX_PAGE  # of the first rows some were dropped here, or are of other kinds, which only the rows tell
        store, counts = self.db.sending("query", self.name, work=self.work)
        try:
            page = await store.query(target.table, request.query, size, continuation)
        except Fault as fault:
            if fault.code == Code.INVALID_INPUT and continuation is not None and continuation == self.resumed_at:
                raise CursorError(
                    f"query of {self.name}: the cursor names a place that the store does not know; begin anew without "
                    "a cursor",
                    fault.code,
                ) from fault
            raise translate(fault, f"query of {self.name}", target.table) from fault
        counts.rows += len(page.rows)
        return page

    async def _fetch_point(
        self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None
    ) -> list[Row]:
        """Return the row with these keys, if there is one."""
        store, counts = self.db.sending("get", self.name, work=self.work)
        try:
            row = await store.get(table, partition_key, row_key, select)
        except Fault as fault:
            if fault.code == Code.RESOURCE_NOT_FOUND:
                await self.db.yield_to_loop(1)  # an embedded store answers without waiting
                return []
            raise translate(fault, f"query of {self.name}", table) from fault
        counts.rows += 1
        return [row]

    async def _fetch_sorted(self, request: Range) -> RowPage:
        """Fetch all rows of a request to a store that promises no order, and sort them."""
        rows: list[Row] = []
        continuation: str | None = None
        while True:
            page = await self.fetch(request, continuation, in_order=False, full=True)
            rows += page.rows
            if len(rows) > _MOST_SORTED:
                raise NotSupported(
                    f"query of {self.name}: this store gives rows in no order, and would have to sort more than "
                    f"{_MOST_SORTED} of them here; narrow the query, or take them as they come with .unordered()"
                )
            continuation = page.continuation
            if continuation is None:
                rows.sort(key=lambda row: (utf16_key(row["PartitionKey"]), utf16_key(row["RowKey"])))
                return RowPage(rows, None)

    def apply_filters(self, request: AnyRequest, rows: list[Row]) -> list[Row]:
        """Return the rows that satisfy what the store could not be asked."""
        if isinstance(request, MergedRequests):
            return [row for row in rows if request.keeps(row)] if request.filters else rows
        if isinstance(request, Range):
            for each in request.client_filters:
                test = each.test
                rows = [row for row in rows if test(row)]
        return rows

    async def load_rows(self, request: AnyRequest, rows: list[Row]) -> list[Any]:
        """Return the entities of rows, in order. Rows that have to be read in full are read again."""
        found = self.load(self.apply_filters(request, rows))
        types = set(map(type, found))
        if dict in types:
            incomplete = iter([index for index, each in enumerate(found) if type(each) is dict])

            async def read_again() -> None:
                for index in incomplete:
                    found[index] = await self._read_again(cast("Row", found[index]))

            await work_together(read_again, self.concurrency)
        elif type(None) not in types:
            return found
        return [entity for entity in found if entity is not None]

    async def _read_again(self, row: Row) -> Any:
        """Return the entity of a row of which too little was read, or of an index entry; None if it is not a result."""
        primaries, target = self.primaries, self.plan.target
        if primaries is None:
            rows = await self._fetch_point(target.table, row["PartitionKey"], row["RowKey"], None)
            return next(iter(target.kinds.load_all(rows)), None)
        return await primaries.read(row, self._fetch_point)


class Source(msgspec.Struct, frozen=True, eq=False):
    """
    A request of a query that has not begun.

    Args:
        run: The query.
        request: The request.
        continuation: Where the store goes on; None for the start of the request.
    """

    run: QueryExecution
    request: AnyRequest
    continuation: str | None
