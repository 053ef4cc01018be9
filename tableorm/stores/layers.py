"""
Layers around a store of tables: each passes every request on, and does something of its own before, after or instead.

A layer is a subclass of `StoreLayer` with one method, `send`. It gets a request as a value, whichever method of the
store was called, and sends it, or another one, to the store below it.
"""

from collections.abc import Awaitable, Sequence
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
