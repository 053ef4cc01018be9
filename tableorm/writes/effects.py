"""
What a write does to rows that are derived from its own: copies of it under other keys.

An effect is on one row. Several writes of a transaction can have effects on the same row; they become one.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from ..errors import EntityExists, TableOrmError, UniqueViolation
from ..protocol.codes import Code
from ..reserved import COPY_OF, ENTITY_TYPE, WRITE_TAIL
from ..stores import Operation, Row, Verb

if TYPE_CHECKING:
    from ..indexes import IndexSchema
    from .plan import PlannedWrite

__all__ = ["CopyEffect", "Effect", "with_tail"]


class Effect:
    """
    What becomes of a derived row.

    Attributes:
        address: Its RowKey, in the partition of what it is derived from.
        origin: The write that it comes from, which is named if it fails.
        reads: Whether it must know the row as it is stored.
    """

    address: str
    origin: "PlannedWrite"
    reads = False

    def then(self, other: "Effect") -> "Effect":
        """
        This effect and another one of the same transaction on the same row as one, whichever came first.

        Raises:
            TableOrmError: They exclude each other.
        """
        raise NotImplementedError

    def operation(self, stored: Row | None) -> Operation | None:
        """
        What the store is asked; None if there is nothing to do.

        Args:
            stored: The row as it is stored, None if there is none; what has not to be read is taken to be as the
                primaries say.
        """
        raise NotImplementedError

    def mended(self, code: str, stored: Row | None) -> "Effect":
        """
        The effect on the row as it really is, after the store has refused what was taken to be.

        Args:
            code: Why it refused.
            stored: The row; None if there is none.

        Raises:
            TableOrmError: It must not be.
        """
        raise NotImplementedError


@attrs.frozen(eq=False)
class CopyEffect(Effect):
    """
    The copy of an entity in an index.

    Args:
        index: The index; None for one that this program does not know.
        address: RowKey of the copy.
        origin: The write of the entity.
        existed: Whether the copy is there before, as the primaries say.
        row: The copy as it shall be; None if it goes.
        values: The fields of the entity.
    """

    index: "IndexSchema | None"
    address: str
    origin: "PlannedWrite"
    existed: bool
    row: Row | None = None
    values: Mapping[str, Any] = attrs.Factory(dict[str, Any])

    def then(self, other: Effect) -> Effect:
        """A value that one entity gives up can be taken by another: the copy then is replaced."""
        assert isinstance(other, CopyEffect)
        if self.row is not None and other.row is not None:
            raise other._violation(None)
        last = self if other.row is None else other
        return attrs.evolve(last, existed=self.existed or other.existed)

    def operation(self, stored: Row | None) -> Operation | None:
        """An insert where none is taken to be, so that it never overwrites a row of another kind."""
        del stored
        if self.row is None:
            if not self.existed:
                return None
            keys = {"PartitionKey": self.origin.operation.row["PartitionKey"], "RowKey": self.address}
            return Operation(Verb.DELETE, keys, "*")
        return Operation(Verb.INSERT_OR_REPLACE if self.existed else Verb.INSERT, self.row)

    def mended(self, code: str, stored: Row | None) -> Effect:
        """Without what is gone; a copy of our own that was left behind is replaced."""
        if code != Code.ENTITY_EXISTS or stored is None:
            return attrs.evolve(self, existed=stored is not None and self.existed)
        kind = str(stored.get(ENTITY_TYPE, "")).partition(":")[0]
        if (
            self.index is not None
            and kind == self.index.kind
            and stored.get(COPY_OF) == self.origin.operation.row["RowKey"]
        ):
            return attrs.evolve(self, existed=True)  # a program that knows no indexes had deleted the entity
        raise self._violation(stored)

    def _violation(self, stored: Row | None) -> TableOrmError:
        change, index = self.origin.origin, self.index
        assert index is not None
        kind = None if stored is None else str(stored.get(ENTITY_TYPE, "")).partition(":")[0]
        # Kinds that derive from one class share its indexes, and the values of those that are unique.
        alike = kind is None or (COPY_OF in (stored or {}) and kind.endswith(f"#{index.index.name}"))
        if not alike:
            return EntityExists(
                f"{change}: index {index.name} needs the row {self.address!r} of this partition for its copy, and a "
                f"row of another kind ({kind!r}) has that key; change the index's row_key, or remove that row",
                Code.ENTITY_EXISTS,
                change.subject,
                index=index.name,
            )
        assert index.row is not None
        fields = {name: self.values.get(name) for name in index.row.fields}
        given = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        holder = "another entity of the transaction" if stored is None else f"the entity {stored.get(COPY_OF)!r}"
        return UniqueViolation(
            f"{change}: {holder} of this partition has {given} already, and index {index.name} is unique; choose "
            "another value, or change that entity first",
            Code.ENTITY_EXISTS,
            change.subject,
            index=index.name,
            values=fields,
        )


def with_tail(row: Row, write: "PlannedWrite") -> Row:
    """A derived row with the write tokens of what it is derived from: whichever of them is found proves the rest."""
    tail = write.operation.row.get(WRITE_TAIL) or (write.after or {}).get(WRITE_TAIL)
    return row if tail is None else {**row, WRITE_TAIL: tail}
