"""
Retries: how often, and after which pauses, a call is repeated that failed for a reason which passes.

Reads are repeated here, around the store. Writes are repeated in `tableorm.writes.stages.lost_replies`, because after a
lost reply somebody has to find out what happened.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import attrs

from ..protocol.codes import Code, Fault
from ..stores import Capabilities, Operation, Row, RowPage, RowQuery, TableStore, note_repetition

__all__ = ["RetryBudget", "RetryPolicy", "RetryingStore", "pause_after"]

T = TypeVar("T")


@attrs.frozen
class RetryPolicy:
    """
    When a request is sent again that met a transient fault: throttling, a time-out, a reset connection, a 5xx.

    The n-th pause is a random time up to `base * 2**n` seconds, never more than `cap`, and never less than what the
    service asked for in Retry-After.

    Args:
        deadline: Seconds from the first attempt after which none is begun.
        attempts: Attempts at most, the first included.
        base: Seconds; see above.
        cap: Seconds that a pause takes at most, unless the service asks for more.
    """

    deadline: float = 30.0
    attempts: int = 12
    base: float = 0.05
    cap: float = 5.0


def pause_after(failures: int, policy: RetryPolicy) -> float:
    """Seconds to wait after so many failures: a random share of a time that doubles, up to `cap`."""
    return random.random() * min(policy.cap, policy.base * 2.0 ** min(failures, 60))


class RetryBudget:
    """
    The attempts at one call: how many are left, and until when.

    Args:
        policy: The policy.
        begun: When the first attempt began, by the loop's clock; now if not given.
    """

    def __init__(self, policy: RetryPolicy, begun: float | None = None) -> None:
        self._policy = policy
        self._until = (asyncio.get_running_loop().time() if begun is None else begun) + policy.deadline
        self._failures = 0

    async def another(self, fault: Fault) -> bool:
        """Wait until it is time for another attempt; False, at once, if there is none."""
        self._failures += 1
        pause = max(pause_after(self._failures, self._policy), fault.retry_after or 0.0)
        late = asyncio.get_running_loop().time() + pause > self._until
        if late or self._failures >= self._policy.attempts:
            return False
        note_repetition(fault.code)
        await asyncio.sleep(pause)
        return True


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
