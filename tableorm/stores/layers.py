"""
Layers around a store: each passes every request on, and does something of its own before, after or instead.

A layer around tables is a subclass of `StoreLayer` with one method, `send`. It gets a request as a value, whichever
method of the store was called, and sends it, or another one, to the store below it. A layer around queues or blobs is a
subclass of `LayerBeside`, likewise.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from .capabilities import Capabilities
from .tables import Operation, Row, RowPage, RowQuery, TableStore


class StoreRequest(msgspec.Struct, frozen=True, gc=False):
    """
    A call of a method of a `TableStore`.

    Args:
        method: Name of the method.
        table: Name of the table; "" if it is about none.
        arguments: The arguments after the table, in order.
    """

    method: str
    table: str = ""
    arguments: tuple[Any, ...] = ()

    @property
    def operations(self) -> Sequence[Operation]:
        """What it writes; nothing if it does not write rows."""
        if self.method == "write":
            return self.arguments
        found: Sequence[Operation] = self.arguments[0] if self.method == "transact" else ()
        return found

    @property
    def name(self) -> str:
        """What `ObservedRequest` calls it: the verb of a write, "transaction", "create-table" and so on."""
        if self.method == "write":
            return str(self.arguments[0].verb)
        return "transaction" if self.method == "transact" else self.method.replace("_", "-")

    @property
    def keys(self) -> tuple[str, str] | None:
        """The PartitionKey and RowKey of the row that it reads; None if it reads no single row."""
        return self.arguments[:2] if self.method == "get" else None

    def sent_to(self, store: TableStore) -> Awaitable[Any]:
        """Call the method of a store."""
        place = () if self.method == "list_tables" else (self.table,)
        answer: Awaitable[Any] = getattr(store, self.method)(*place, *self.arguments)
        return answer


class StoreLayer:
    """
    A `TableStore` that is a layer around another one.

    Args:
        below: The store below it.
    """

    def __init__(self, below: TableStore) -> None:
        self.below = below

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lstrip('_')} of {self.below!r}>"

    @property
    def capabilities(self) -> Capabilities:
        """What the store below can do."""
        return self.below.capabilities

    async def send(self, request: StoreRequest) -> Any:
        """Send a request to the store below; return what that returns, and raise what it raises."""
        return await request.sent_to(self.below)

    async def create_table(self, table: str) -> None:
        """See `TableStore`."""
        await self.send(StoreRequest("create_table", table))

    async def delete_table(self, table: str) -> None:
        """See `TableStore`."""
        await self.send(StoreRequest("delete_table", table))

    async def list_tables(self) -> list[str]:
        """See `TableStore`."""
        names: list[str] = await self.send(StoreRequest("list_tables"))
        return names

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        """See `TableStore`."""
        row: Row = await self.send(StoreRequest("get", table, (partition_key, row_key, select)))
        return row

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        """See `TableStore`."""
        page: RowPage = await self.send(StoreRequest("query", table, (query, limit, continuation)))
        return page

    async def write(self, table: str, operation: Operation) -> str | None:
        """See `TableStore`."""
        etag: str | None = await self.send(StoreRequest("write", table, (operation,)))
        return etag

    async def transact(self, table: str, operations: Sequence[Operation]) -> list[str | None]:
        """See `TableStore`."""
        etags: list[str | None] = await self.send(StoreRequest("transact", table, (operations,)))
        return etags


LISTS_OF_PLACES = frozenset({"list_queues", "list_containers"})
"""The methods whose first argument is no queue or container, but what the names of these begin with."""


class LayerBeside:
    """
    A `QueueStore` or a `BlobStore` that is a layer around another one.

    Args:
        below: The store below it, whose members that are not methods the layer has too.
    """

    def __init__(self, below: Any) -> None:
        self.below = below

    async def send(self, method: str, given: tuple[Any, ...], call: Callable[..., Awaitable[Any]]) -> Any:
        """
        Send a request to the store below; return what that returns, and raise what it raises.

        Args:
            method: Name of the method. Of `get`, the request is the one that opens the stream, which it returns.
            given: Its arguments without those that are named. The first is the queue or container, or what the names of
                these begin with. None are given where that is left out.
            call: Sends it with these arguments, or others in their place.
        """
        del method
        return await call(*given)

    def __getattr__(self, method: str) -> Any:
        found: Any = getattr(self.below, method)
        if not callable(found):
            return found

        async def call(*given: Any, **named: Any) -> Any:
            return await self.send(method, *_as_sent(found, given, named))

        @asynccontextmanager
        async def open_stream(*given: Any, **named: Any) -> AsyncGenerator[Any]:
            given, enter = _as_sent(found, given, named)
            async with AsyncExitStack() as opened:
                stream = await self.send(method, given, lambda *args: opened.enter_async_context(enter(*args)))
                close = getattr(stream.chunks, "aclose", None)  # a layer may have put a generator around the bytes
                if close is not None:
                    opened.push_async_callback(close)
                yield stream

        return open_stream if method == "get" else call


def _as_sent(
    found: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], Callable[..., Any]]:
    """Return the arguments of a call, the place of the request first, and what takes them in their place."""
    given = given or tuple(named.pop(name) for name in ("queue", "container", "prefix") if name in named)
    return given, partial(found, **named)
