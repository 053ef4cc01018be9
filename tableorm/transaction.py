"""
Transactions: operations collected in a block, sent as one entity group transaction when it ends.
"""

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .bag import PropertyBag
from .entity import Entity
from .errors import NotSupported
from .keys import Key
from .writes.change import Change, delete_change, insert_change, save_change
from .writes.encode import encode
from .writes.plan import PlannedWrite

if TYPE_CHECKING:
    from .database import Database

__all__ = ["Transaction"]


class Transaction:
    """
    The operations of one transaction, in order. Made by `db.transaction()`.
    """

    def __init__(self, db: "Database") -> None:
        self._db = db
        self._count = 0
        self._writes: list[PlannedWrite] = []
        self._state = "new"

    def insert(self, entity: Entity | PropertyBag) -> None:
        """Insert a new entity, as it is now, when the block ends. Raises what `db.insert` raises of its values."""
        self._add(insert_change(entity))

    def save(self, entity: Entity) -> None:
        """Write what has changed since the entity was read, as it is now, when the block ends. Raises as `db.save`."""
        self._add(save_change(entity))

    def delete(self, target: Entity | PropertyBag | Key[Any], *, if_match: str | None = None) -> None:
        """Delete a row when the block ends. Raises as `db.delete`; a missing row fails the transaction."""
        self._add(delete_change(target, if_match))

    def _add(self, change: Change) -> None:
        if self._state != "open":
            raise NotSupported(f"the transaction is {self._state}; use it inside `async with db.transaction() as tx:`")
        # Now: what is changed later in the block belongs to another write.
        write = encode(change, self._count)
        self._count += 1
        if write is not None:
            self._writes.append(write)

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise NotSupported("the transaction was used already; begin another with db.transaction()")
        self._state = "open"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state = "closed"
        if kind is None and self._writes:
            await self._db.run_writes(self._writes)
