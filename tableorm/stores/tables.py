"""
What a backend is: the stores that the mapper asks, in the neutral form that every backend shares.

A row is the service's own OData object, parsed: `PartitionKey`, `RowKey`, `Timestamp`, `odata.etag`, then the
user's properties, each with a sibling `NAME@odata.type` where JSON does not tell the type. The wire has it, the
embedded engine stores it as it is, and one generated encoder and decoder per model serves every backend. Only backends
make or read bytes.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Protocol

import attrs
import msgspec

from ..protocol.edm import Edm
from ..protocol.filters import And, Compare, Constant, Filter, Op
from .capabilities import Capabilities

__all__ = ["Bounds", "Operation", "Row", "RowPage", "RowQuery", "TableStore", "Verb"]

Row = dict[str, Any]
"""A stored entity as JSON: see the module."""


class Verb(StrEnum):
    """What an operation does to its row. Source: Table service REST, "Operations on entities"."""

    INSERT = "insert"
    MERGE = "merge"
    REPLACE = "replace"
    INSERT_OR_MERGE = "insert-or-merge"
    INSERT_OR_REPLACE = "insert-or-replace"
    DELETE = "delete"


class Operation(msgspec.Struct, frozen=True, gc=False):
    """
    One write of one row.

    Args:
        verb: What to do.
        row: PartitionKey, RowKey and the properties to write, in canonical form; for a delete the keys alone.
            The store does not change it.
        if_match: For merge, replace and delete: the ETag the row must have, or "*" for any. None otherwise.
        canonical: Whether names and values are right and not null for sure: only keys and size are left to check.
    """

    verb: Verb
    row: Row
    if_match: str | None = None
    canonical: bool = False


@attrs.frozen
class Bounds:
    """
    An interval of one key in UTF-16 order; a bound of None is open. Equal bounds mean that very key.
    """

    lower: str | None = None
    upper: str | None = None
    lower_open: bool = False
    upper_open: bool = False

    @classmethod
    def only(cls, key: str) -> "Bounds":
        """The interval that holds `key` alone."""
        return cls(key, key)

    @property
    def point(self) -> bool:
        """Whether the interval holds one key."""
        return self.lower is not None and self.lower == self.upper and not (self.lower_open or self.upper_open)

    def conditions(self, key: str) -> list[Filter]:
        """The interval as conditions on `PartitionKey` or `RowKey`; none if it holds every key."""
        if self.point and self.lower is not None:
            return [Compare(key, Op.EQ, Constant(Edm.STRING, self.lower))]
        found: list[Filter] = []
        if self.lower is not None:
            found.append(Compare(key, Op.GT if self.lower_open else Op.GE, Constant(Edm.STRING, self.lower)))
        if self.upper is not None:
            found.append(Compare(key, Op.LT if self.upper_open else Op.LE, Constant(Edm.STRING, self.upper)))
        return found


@attrs.frozen
class RowQuery:
    """
    A query of one table: keys within both bounds, and `where` holds.

    Args:
        partition: Which PartitionKeys.
        row: Which RowKeys, in each of those partitions.
        where: What else must hold.
        select: Properties to return, None for all. An absent one comes back as None; `odata.etag` always comes.
    """

    partition: Bounds = Bounds()
    row: Bounds = Bounds()
    where: Filter | None = None
    select: tuple[str, ...] | None = None

    @property
    def filter(self) -> Filter | None:
        """All of it as one condition, which is how a service gets it; None if every row satisfies it."""
        terms = [*self.partition.conditions("PartitionKey"), *self.row.conditions("RowKey")]
        if self.where is not None:
            terms += self.where.terms if isinstance(self.where, And) else [self.where]
        return None if not terms else terms[0] if len(terms) == 1 else And(tuple(terms))


@attrs.frozen
class RowPage:
    """
    Rows in key order, perhaps none, and where to go on: None after the last page.
    """

    rows: list[Row]
    continuation: str | None


class TableStore(Protocol):
    """
    Tables of rows. Every method raises `tableorm.protocol.codes.Fault` with the service's code and nothing else
    (besides `asyncio.CancelledError`); cancelling a call leaves no half-state: it happened in full or not at all.

    A write that may have happened although it failed (a time-out, a reset connection, a 5xx) is a Fault with `doubt`.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do."""
        ...

    async def create_table(self, table: str) -> None:
        """Create a table. Fault TableAlreadyExists if one has that name in any letter case."""
        ...

    async def delete_table(self, table: str) -> None:
        """Delete a table and its rows. Fault ResourceNotFound if there is none."""
        ...

    async def list_tables(self) -> list[str]:
        """Names of all tables as created, ordered without regard to case."""
        ...

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        """One row. Fault ResourceNotFound or TableNotFound. `select` as in `RowQuery`."""
        ...

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        """
        One page of at most `limit` (1 to 1000) rows, in key order if the store is ordered.

        Args:
            table: Name, in any letter case.
            query: What to find.
            limit: Rows at most; fewer, even none, may come and more still follow.
            continuation: Of the page before; opaque, valid after a restart and while rows come and go.
        """
        ...

    async def write(self, table: str, operation: Operation) -> str | None:
        """Do one operation; the row's new ETag, None after a delete. Durable when it returns."""
        ...

    async def transact(self, table: str, operations: Sequence[Operation]) -> list[str | None]:
        """
        Do 1 to 100 operations of one partition, each row once, in order and all or nothing.

        Returns:
            What `write` returns, for each.

        Raises:
            Fault: `index` names the operation that failed; nothing was applied.
        """
        ...
