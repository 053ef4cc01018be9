"""
The database: what an application opens once and shares between its tasks.
"""

from typing import Any

from .bag import PropertyBag
from .entity import Entity
from .errors import EntityNotFound
from .keys import Key
from .reader import Reader
from .transaction import Transaction
from .writes import plan_writes
from .writes.change import Change, delete_change, insert_change, save_change
from .writes.encode import encode
from .writes.execute import execute
from .writes.plan import PlannedWrite

__all__ = ["Database"]


class Database(Reader):
    """
    A set of tables, opened by `connect`. Safe to share between the tasks of one event loop; another loop gets an error.

    Use it as `async with connect(url) as db`, or call `open` and `close`.
    """

    async def insert(self, entity: Entity | PropertyBag) -> None:
        """
        Insert a new entity; it gets its ETag and timestamp.

        Raises:
            EntityExists: There is a row with its key.
            EncodeError: A value does not fit its field.
            LimitExceeded: A limit of the service would be passed; nothing was sent.
            TableNotFound: There is no such table.
        """
        await self._write(insert_change(entity))

    async def save(self, entity: Entity) -> None:
        """
        Write what changed since the entity was read or written, if it is still as it was then.

        Merges the changed properties; a field set to None is removed, by a replace that keeps what the model does not
        know. An upgraded entity is replaced in full. Sends nothing when nothing changed.

        Raises:
            PreconditionFailed: The row has changed, or the entity was never read.
            EntityNotFound: The row is gone.
            EncodeError: A value does not fit its field, or a key field was changed.
        """
        await self._write(save_change(entity))

    async def delete(
        self, target: Entity | PropertyBag | Key[Any], *, if_match: str | None = None, missing_ok: bool = False
    ) -> None:
        """
        Delete a row.

        Args:
            target: An entity or bag that was read, or a `Key`.
            if_match: ETag that the row must have, or "*" for any; default is the one it was read with.
            missing_ok: Say nothing if there is no such row.

        Raises:
            PreconditionFailed: The row has changed, or there is no ETag.
            EntityNotFound: There is no such row.
        """
        try:
            await self._write(delete_change(target, if_match))
        except EntityNotFound:
            if not missing_ok:
                raise

    async def _write(self, change: Change) -> None:
        store = self.usable()
        write = encode(change, 0)
        if write is not None:
            plan = plan_writes((write,))
            self.stats.requests += 1
            self.stats.operations += 1
            await execute(store, plan, transaction=False)

    def transaction(self) -> Transaction:
        """
        An entity group transaction: `async with db.transaction() as tx: tx.insert(...)`.

        What is collected is sent when the block ends, all or nothing; nothing if the block raises. One table, one
        partition, at most 100 operations and 4 MiB.

        Raises:
            TransactionFailed: When the block ends: an operation failed, nothing was applied; `index` says which.
        """
        return Transaction(self)

    async def run_writes(self, writes: list[PlannedWrite]) -> None:
        """Send encoded changes as one transaction."""
        store = self.usable()
        plan = plan_writes(writes, transaction=True)
        self.stats.requests += 1
        self.stats.operations += len(plan.writes)
        await execute(store, plan, transaction=True)
