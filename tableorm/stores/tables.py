"""
The interface of a store of tables, and the neutral form of rows, operations and queries that every backend shares.

A row is the service's own OData object, parsed: `PartitionKey`, `RowKey`, `Timestamp`, `odata.etag`, then the
user's properties, each with a sibling `NAME@odata.type` where JSON does not tell the type. The wire has this form, the
embedded engine stores it unchanged, and one generated encoder and decoder per model serves every backend. Only backends
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

Row = dict[str, Any]
"""A stored entity as a JSON object; the module's docstring describes it."""


class Verb(StrEnum):
    """The effect of an operation on its row. Source: Table service REST, "Operations on entities"."""

    __hash__ = str.__hash__  # an enum's own is a Python function, several times slower

    INSERT = "insert"
    MERGE = "merge"
    REPLACE = "replace"
    INSERT_OR_MERGE = "insert-or-merge"
    INSERT_OR_REPLACE = "insert-or-replace"
    DELETE = "delete"


METHODS = {
    Verb.INSERT: "POST",
    Verb.MERGE: "PATCH",
    Verb.REPLACE: "PUT",
    Verb.INSERT_OR_MERGE: "PATCH",
    Verb.INSERT_OR_REPLACE: "PUT",
    Verb.DELETE: "DELETE",
}
"""The HTTP method of each operation."""


class Operation(msgspec.Struct, frozen=True, gc=False):
    """
    One write of one row.

    Args:
        verb: What to do.
        row: PartitionKey, RowKey and the properties to write, in canonical form; for a delete the keys alone.
            The store does not change this dictionary.
        if_match: For merge, replace and delete: the ETag that the row must have, or "*" for any. None otherwise.
        canonical: The caller vouches that names and values are valid and not null, so that the store checks only the
            keys and the size.
    """

    verb: Verb
    row: Row
    if_match: str | None = None
    canonical: bool = False


@attrs.frozen
class Bounds:
    """
    An interval of one key in UTF-16 order. A bound of None is no limit; two equal bounds mean that one key.

    Args:
        lower: The first key.
        upper: The last key.
        lower_open: Whether `lower` itself is left out.
        upper_open: Whether `upper` itself is left out.
    """

    lower: str | None = None
    upper: str | None = None
    lower_open: bool = False
    upper_open: bool = False

    @classmethod
    def only(cls, key: str) -> "Bounds":
        """Return the interval that holds `key` alone."""
        return cls(key, key)

    @classmethod
    def of(cls, op: Op, key: str) -> "Bounds":
        """Return the interval of the keys that are compared with `key` as the operator says; all keys for `ne`."""
        lower = key if op in (Op.EQ, Op.GE, Op.GT) else None
        upper = key if op in (Op.EQ, Op.LE, Op.LT) else None
        return cls(lower, upper, op is Op.GT, op is Op.LT)

    @property
    def point(self) -> bool:
        """Whether the interval holds exactly one key."""
        return self.lower is not None and self.lower == self.upper and not (self.lower_open or self.upper_open)

    def conditions(self, key: str) -> list[Filter]:
        """Return the interval as conditions on `PartitionKey` or `RowKey`; an empty list if it holds every key."""
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
    A query of one table: it finds the rows whose keys lie within both bounds, and for which `where` holds.

    Args:
        partition: Bounds of the PartitionKey.
        row: Bounds of the RowKey, in each of those partitions.
        where: What else must hold.
        select: Properties to return, None for all. An absent one comes back as None; `odata.etag` always comes.
    """

    partition: Bounds = Bounds()
    row: Bounds = Bounds()
    where: Filter | None = None
    select: tuple[str, ...] | None = None

    @property
    def filter(self) -> Filter | None:
        """Bounds and `where` as one condition, which is what a service is sent; None if every row satisfies it."""
        terms = [*self.partition.conditions("PartitionKey"), *self.row.conditions("RowKey")]
        if self.where is not None:
            terms += self.where.terms if isinstance(self.where, And) else [self.where]
        return None if not terms else terms[0] if len(terms) == 1 else And(tuple(terms))


@attrs.frozen
class RowPage:
    """
    A page of rows in key order, perhaps none. `continuation` leads to the next page; None after the last one.
    """

    rows: list[Row]
    continuation: str | None


class TableStore(Protocol):
    """
    Tables of rows.

    Every method raises `tableorm.protocol.codes.Fault` with the service's code and nothing else (besides
    `asyncio.CancelledError`). A call that is cancelled happened in full or not at all. A write that may have happened
    although it failed (a time-out, a reset connection, a 5xx) raises a Fault with `doubt`.
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
        """List the names of all tables as they were created, ordered without regard to case."""
        ...

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        """Read one row. Fault ResourceNotFound or TableNotFound. `RowQuery` describes `select`."""
        ...

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        """
        Read one page of at most `limit` (1 to 1000) rows, in key order if the store is ordered.

        Args:
            table: The table's name, in any letter case.
            query: What to find.
            limit: How many rows a page has at most; it may have fewer, even none, while more still follow.
            continuation: The one of the page before. It is opaque, and valid after a restart and while rows come and
                go.
        """
        ...

    async def write(self, table: str, operation: Operation) -> str | None:
        """Do one operation and return the row's new ETag, None after a delete. It is durable when the call returns."""
        ...

    async def transact(self, table: str, operations: Sequence[Operation]) -> list[str | None]:
        """
        Do 1 to 100 operations on different rows of one partition, in order and all or nothing.

        Returns:
            What `write` returns, for each operation.

        Raises:
            Fault: `index` names the operation that failed; nothing was applied.
        """
        ...
