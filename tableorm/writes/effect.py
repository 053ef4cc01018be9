"""
The interface of an effect: what a write does to another row of its partition.
"""

from typing import TYPE_CHECKING

from ..models.reserved import WRITE_TOKENS
from ..stores import Operation, Row, Verb
from .write_tokens import tokens_of, with_token

if TYPE_CHECKING:
    from .plan import PlannedWrite

__all__ = ["Effect", "touch_operation", "with_tokens_of"]


class Effect:
    """
    What becomes of a derived row.

    Attributes:
        address: Its RowKey, in the partition of what it is derived from.
        origin: The write that it comes from, which is named if it fails.
        reads: Whether it must know the row as it is stored.
    """

    __slots__ = ()
    address: str
    origin: "PlannedWrite"
    reads = False

    def merge_with(self, other: "Effect") -> "Effect":
        """
        This effect and another one of the same transaction on the same row as one, whichever came first.

        Raises:
            TableOrmError: They exclude each other.
        """
        raise NotImplementedError

    def route(self, stored: Row | None) -> "list[Effect]":
        """Itself, if it is of this row as it is stored; otherwise effects on the rows that it is really of."""
        del stored
        return [self]

    def operation(self, stored: Row | None, token: str) -> Operation | None:
        """
        What the store is asked; None if there is nothing to do.

        Args:
            stored: The row as it is stored, None if there is none; what has not to be read is taken to be as the
                primaries say.
            token: The write token of the transaction.

        Raises:
            TableOrmError: The row must be there.
        """
        raise NotImplementedError

    def apply_to(self, write: "PlannedWrite") -> "PlannedWrite":
        """
        The write of the same row, by the user in the same transaction, with the effect.

        Raises:
            TableOrmError: The row cannot be both.
        """
        raise NotImplementedError

    def after_conflict(self, code: str, stored: Row | None) -> "Effect":
        """
        The effect on the row as it really is, after the store has refused what was taken to be.

        Args:
            code: Why it refused.
            stored: The row; None if there is none.

        Raises:
            TableOrmError: It must not be.
        """
        del code, stored
        return self  # it is read again


def touch_operation(stored: Row, token: str) -> Operation:
    """A merge of nothing, which fails if the row has changed since it was read."""
    keys = {"PartitionKey": stored["PartitionKey"], "RowKey": stored["RowKey"]}
    return Operation(Verb.MERGE, {**keys, WRITE_TOKENS: with_token(tokens_of(stored), token)}, stored["odata.etag"])


def with_tokens_of(row: Row, write: "PlannedWrite") -> Row:
    """A derived row, made for this, with the tokens of what it is derived from: whichever is found proves the rest."""
    tail = write.operation.row.get(WRITE_TOKENS) or (write.after or {}).get(WRITE_TOKENS)
    if tail is not None:
        row[WRITE_TOKENS] = tail
    return row
