"""
Repetitions of reads, around a store that does not repeat them itself.

Writes are repeated in `tableorm.writes.stages.lost_replies`, because after a
lost reply somebody has to find out what happened.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ..protocol.codes import Code, Fault
from ..stores import Capabilities, Operation, RetryBudget, RetryPolicy, Row, RowPage, RowQuery, TableStore

__all__ = ["RetryingStore"]

T = TypeVar("T")


class RetryingStore:
    """
    A `TableStore` that repeats reads, and changes of tables, after transient faults; writes of rows pass through.

    Args:
        store: The store itself.
        policy: How often.
        failed: Called after every fault.
        repeated: Called before every repetition.
    """

    def __init__(
        self,
        store: TableStore,
        policy: RetryPolicy,
        failed: Callable[[Fault], None],
        repeated: Callable[[], None],
    ) -> None:
        self._store, self._policy, self._failed, self._repeated = store, policy, failed, repeated
        self.capabilities: Capabilities = store.capabilities

    async def create_table(self, table: str) -> None:
        """Create a table; one that an earlier request without a reply may have created counts as created."""
        await self._change(lambda: self._store.create_table(table), Code.TABLE_EXISTS)

    async def delete_table(self, table: str) -> None:
        """Delete a table; one that is gone after an earlier request without a reply counts as deleted."""
        await self._change(lambda: self._store.delete_table(table), Code.RESOURCE_NOT_FOUND)

    async def list_tables(self) -> list[str]:
        """Return the names of all tables; again after a failure that passes."""
        return await self._repeat(self._store.list_tables)

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        """Read a row; again after a failure that passes."""
        return await self._repeat(lambda: self._store.get(table, partition_key, row_key, select))

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        """Read a page of rows; again after a failure that passes."""
        return await self._repeat(lambda: self._store.query(table, query, limit, continuation))

    async def write(self, table: str, operation: Operation) -> str | None:
        """Send an operation once: whoever sends it finds out what a lost reply left."""
        return await self._store.write(table, operation)

    async def transact(self, table: str, operations: Sequence[Operation]) -> list[str | None]:
        """Send a transaction once, as `write` does."""
        return await self._store.transact(table, operations)

    async def _repeat(self, call: Callable[[], Awaitable[T]]) -> T:
        budget = RetryBudget(self._policy)
        while True:
            try:
                return await call()
            except Fault as fault:
                self._failed(fault)
                if not fault.transient or not await budget.another(fault):
                    raise
            self._repeated()

    async def _change(self, call: Callable[[], Awaitable[None]], done: Code) -> None:
        doubt = False

        async def change() -> None:
            nonlocal doubt
            try:
                await call()
            except Fault as fault:
                if not (doubt and fault.code == done):
                    doubt = doubt or fault.doubt
                    raise

        await self._repeat(change)
