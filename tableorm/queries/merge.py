"""
Merging: the rows of several partitions in the order of their RowKeys.

The first pages of all partitions are fetched at the same time, and the least RowKeys of them come first. A partition
whose rows were all given gets its next page, which is fetched ahead unless a limit may be reached before. So no more
than two pages of a partition wait.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from ..errors import Unavailable
from ..protocol.edm import utf16_key
from ..protocol.limits import MAX_PAGE
from ..stores import Row, RowPage
from .execution import QueryExecution
from .planning.plan import MergedRequests, Point, Range

FetchRows = Callable[[Point | Range, str | None], Awaitable[RowPage]]
"""Takes a request and where it goes on, and fetches a page of it, in key order."""


class Merger:
    """
    What fetches the rows of merged requests, page by page.

    Args:
        run: The query.
        requests: The requests.
        fetch: Fetches a page of one of them.
    """

    def __init__(self, run: QueryExecution, requests: MergedRequests, fetch: FetchRows) -> None:
        turns = asyncio.Semaphore(run.concurrency)
        self._run = run
        self._lanes: list[_Lane] = [_Lane(run.name, each, fetch, turns) for each in requests.by_partition.values()]

    async def next_page(self) -> RowPage:
        """Return the next rows, no more than a page has; there are none only if no more follow."""
        await self._fill_lanes()
        most = MAX_PAGE if self._run.wanted is None else max(1, min(self._run.wanted, MAX_PAGE))
        rows: list[Row] = []
        while self._lanes and len(rows) < most and all(lane.count for lane in self._lanes):
            rows += self._take_rows(max(1, (most - len(rows)) // len(self._lanes)))
            self._lanes = [lane for lane in self._lanes if lane.count or not lane.ended]
        return RowPage(rows, "more" if self._lanes else None)

    async def _fill_lanes(self) -> None:
        """Fetch rows of each partition of which none wait, and begin to fetch what follows."""
        empty = [lane for lane in self._lanes if not lane.count]
        for lane in empty:
            lane.begin()
        for lane in empty:
            await lane.fill()
        self._lanes = [lane for lane in self._lanes if lane.count]
        wanted = self._run.wanted
        if wanted is None or wanted > sum(lane.count for lane in self._lanes):
            for lane in self._lanes:
                lane.begin()

    def _take_rows(self, share: int) -> list[Row]:
        """Take the next rows, in order: `share` of one partition or all of it that wait, and no more of any other."""
        ends = [(end, at) for at, lane in enumerate(self._lanes) if (end := lane.key_of(share)) is not None]
        until, last = min(ends, default=(None, 0))
        keys: list[bytes] = []
        rows: list[Row] = []
        for at, lane in enumerate(self._lanes):
            # Of equal RowKeys that in the first partition comes first: lanes are in the order of PartitionKeys.
            lane.take(until, keys, rows, included=at <= last)
        return [rows[at] for at in sorted(range(len(rows)), key=keys.__getitem__)]

    def tasks(self) -> "list[asyncio.Task[list[Row]]]":
        """Return the tasks that fetch, to be stopped."""
        return [lane.task for lane in self._lanes if lane.task is not None]


class _Lane:
    """
    The rows of one partition that wait to be merged.

    Args:
        name: Of what the rows are, for messages.
        requests: The requests within that partition, in key order.
        fetch: Fetches a page of one of them.
        turns: Bounds how many requests of all lanes run at the same time.
    """

    def __init__(
        self, name: str, requests: Sequence[Point | Range], fetch: FetchRows, turns: asyncio.Semaphore
    ) -> None:
        self._name, self._fetch_rows, self._turns = name, fetch, turns
        self._requests = deque(requests)
        self._continuation: str | None = None
        self._rows: list[Row] = []
        self._keys: list[bytes] = []
        self._start = 0
        self.task: asyncio.Task[list[Row]] | None = None

    @property
    def count(self) -> int:
        """How many rows wait."""
        return len(self._rows) - self._start

    @property
    def ended(self) -> bool:
        """Whether no rows follow those that wait."""
        return self.task is None and not self._requests

    def begin(self) -> None:
        """Begin to fetch the rows behind those that wait, unless that has begun."""
        if self.task is None and self._requests:
            self.task = asyncio.create_task(self._fetch())

    async def _fetch(self) -> list[Row]:
        """Fetch the next rows; none only if there are no more."""
        while self._requests:
            async with self._turns:
                page = await self._fetch_rows(self._requests[0], self._continuation)
            self._continuation = page.continuation
            if page.continuation is None:
                self._requests.popleft()
            if page.rows:
                return page.rows
        return []

    async def fill(self) -> None:
        """Let the rows that were fetched wait, where none do. Raises Unavailable."""
        if self.task is not None:
            self._rows, self._start = await self.task, 0
            self._keys = [utf16_key(row["RowKey"]) for row in self._rows]
            self.task = None
            if self._keys != sorted(self._keys):  # no row may be next then, and the query would never end
                raise Unavailable(f"query of {self._name}: the store returned rows that are not in RowKey order")

    def key_of(self, number: int) -> bytes | None:
        """Return the sort key of the row with this number, or of the last before others follow; None if none do."""
        if number < self.count:
            return self._keys[self._start + number - 1]
        return None if self.ended else self._keys[-1]

    def take(self, until: bytes | None, keys: list[bytes], rows: list[Row], *, included: bool) -> None:
        """
        Take the rows up to a RowKey, with their sort keys.

        Args:
            until: The sort key of the last RowKey; None takes all rows.
            keys: Gets the sort keys.
            rows: Gets the rows.
            included: Whether that RowKey itself is taken.
        """
        end = len(self._rows)
        if until is not None:
            end = (bisect_right if included else bisect_left)(self._keys, until, self._start)
        keys += self._keys[self._start : end]
        rows += self._rows[self._start : end]
        self._start = end
