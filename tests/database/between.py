"""
Backends for tests: the embedded engine, with something between it and the mapper that a test decides.

Every request passes through a method of `Between`, as that of any `StoreLayer`; subclasses override those of reads.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tableorm.stores import (
    BlobStore,
    Capabilities,
    QueueStore,
    Row,
    RowPage,
    RowQuery,
    StoreLayer,
    StoreRequest,
    TableStore,
)
from tableorm_local import LocalBackend


class Between(StoreLayer):
    """A backend, and its own table store, in front of the embedded engine."""

    def __init__(self, path: str | None = None) -> None:
        self.inner = LocalBackend(path)
        super().__init__(self.inner.tables)

    @classmethod
    def handles(cls, url: str) -> bool:
        return False

    @classmethod
    def from_url(cls, url: str, *, timeout: float, options: dict[str, Any]) -> "Between":
        raise NotImplementedError

    @property
    def tables(self) -> TableStore:
        return self

    @property
    def queues(self) -> QueueStore | None:
        return None

    @property
    def blobs(self) -> BlobStore | None:
        return None

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()


class Meanwhile(Between):
    """Somebody else does something once, after the next read of a row."""

    others: Callable[[], Awaitable[object]] | None = None
    happened = False

    async def send(self, request: StoreRequest) -> Any:
        try:
            return await super().send(request)
        finally:
            if request.method == "get" and self.others is not None:
                others, self.others = self.others, None
                await others()
                self.happened = True


class Awkward(Between):
    """Pages of a few rows, and sometimes none with more to follow: what a service may do at any time."""

    def __init__(self, seed: int, most: int = 3, empty: float = 0.3) -> None:
        super().__init__()
        self._random, self._most, self._empty = random.Random(seed), most, empty

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        if self._random.random() < self._empty:
            return RowPage([], "empty:" + (continuation or ""))
        real = (continuation or "").removeprefix("empty:")
        while real.startswith("empty:"):
            real = real.removeprefix("empty:")
        size = min(limit, self._random.randint(1, self._most))
        return await super().query(table, query, size, real or None)


def partition_of(request: StoreRequest) -> str | None:
    """Return the first PartitionKey that a read of rows is about; None for another request."""
    if request.method == "query":
        return request.arguments[0].partition.lower or ""
    return request.arguments[0] if request.method == "get" else None


class Recorded(Between):
    """Pages of at most `size` rows; what was asked is in `asked`, by the first PartitionKey that it is about."""

    def __init__(self, size: int = 1000) -> None:
        super().__init__()
        self.size = size
        self.asked: list[str] = []

    @property
    def counts(self) -> Counter[str]:
        """How often each was asked."""
        return Counter(self.asked)

    async def send(self, request: StoreRequest) -> Any:
        partition = partition_of(request)
        if partition is not None:
            self.asked.append(partition)
        if request.method == "query":
            query, limit, continuation = request.arguments
            request = StoreRequest("query", request.table, (query, min(limit, self.size), continuation))
        return await super().send(request)


class Gated(Recorded):
    """
    Reads wait until the test lets them through: `open` all, or one `permit` each.

    `waiting` of them wait now, `most` did at once; `cancelled` were cancelled while they waited.
    """

    def __init__(self, size: int = 1000) -> None:
        super().__init__(size)
        self.gate = asyncio.Semaphore(0)
        self.shut = False
        self.waiting = self.most = self.cancelled = 0
        self.faults: dict[str, Exception] = {}
        self._changed = asyncio.Condition()

    async def send(self, request: StoreRequest) -> Any:
        partition = partition_of(request)
        if self.shut and partition is not None:
            await self._pass(partition)
        return await super().send(request)

    async def _pass(self, partition_key: str) -> None:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        async with self._changed:
            self._changed.notify_all()
        try:
            await self.gate.acquire()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1
        if partition_key in self.faults:
            raise self.faults[partition_key]

    async def until_waiting(self, count: int) -> None:
        """Return when so many wait."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.waiting >= count)

    def permit(self, count: int = 1) -> None:
        for _ in range(count):
            self.gate.release()


class Slow(Recorded):
    """The partition `slow` answers when so many other requests were answered."""

    def __init__(self, slow: str, others: int) -> None:
        super().__init__()
        self._slow, self._left, self._enough = slow, others, asyncio.Event()

    async def send(self, request: StoreRequest) -> Any:
        if request.method != "query":
            return await super().send(request)
        if partition_of(request) == self._slow:
            await self._enough.wait()
        page = await super().send(request)
        self._left -= 1
        if self._left == 0:
            self._enough.set()
        return page


class Shuffled(Between):
    """A store that promises no order, and keeps none: rows come by the hash of their keys."""

    def __init__(self, size: int = 3) -> None:
        super().__init__()
        self._size = size

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(ordered=False)

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        rows: list[Row] = []
        more: str | None = None
        for _ in range(len(query.partition.lower or "")):
            await asyncio.sleep(0)  # as a network does; partitions with short names answer first
        while True:
            page = await super().query(table, query, 1000, more)
            rows += page.rows
            more = page.continuation
            if more is None:
                break
        rows.sort(key=lambda row: random.Random(f"{row['PartitionKey']}\0{row['RowKey']}").random())
        start, size = int(continuation or 0), min(limit, self._size)
        end = start + size
        return RowPage(rows[start:end], str(end) if end < len(rows) else None)
