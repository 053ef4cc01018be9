"""
What a write is on its way to the store: frozen values.
"""

from typing import Any

import attrs

from ..errors import TableOrmError, TransactionFailed
from ..schema import Schema
from ..stores import Operation, Row

__all__ = ["Change", "PlannedWrite", "WritePlan", "in_transaction"]


@attrs.frozen(eq=False)
class Change:
    """
    A verb and what it is applied to.

    Args:
        verb: As the user called it: "insert", "save", "delete".
        subject: The entity, bag or key.
        schema: Its schema; None for bags and keys of bags.
        table: Name of the table.
        partition_key: As stored, or to be stored.
        row_key: Likewise.
        if_match: ETag to send, "*", or None for an insert.
    """

    verb: str
    subject: Any
    schema: Schema | None
    table: str
    partition_key: str
    row_key: str
    if_match: str | None

    def __str__(self) -> str:
        model = self.schema.name if self.schema is not None else "PropertyBag"
        return f"{self.verb} of {model} ({self.partition_key!r}, {self.row_key!r})"


@attrs.frozen(eq=False)
class PlannedWrite:
    """
    One operation on one row, and where it came from.

    Args:
        operation: What the store is asked.
        change: The user's change that it serves.
        index: Position of that change among the user's.
        after: The row as it will be, without ETag and Timestamp; None after a delete.
        weight: Characters of everything of varying size; None if not measured.
    """

    operation: Operation
    change: Change
    index: int
    after: Row | None
    weight: int | None


@attrs.frozen(eq=False)
class WritePlan:
    """
    What is sent: one transaction, or a single operation if there is one.

    Args:
        table: Name of the table.
        partition_key: Its partition.
        writes: The operations, in order.
    """

    table: str
    partition_key: str
    writes: tuple[PlannedWrite, ...]


def in_transaction(change: Change, index: int, error: TableOrmError, after: str = "") -> TransactionFailed:
    """
    The error of a transaction of which one change failed with `error`, to be raised from that.

    Args:
        change: The change.
        index: Its position among the user's.
        error: What it would have raised by itself.
        after: What to add to the message.
    """
    message = f"operation {index}: {error}{after}"
    return TransactionFailed(message, error.code, index=index, operation=change.verb, entity=change.subject)
