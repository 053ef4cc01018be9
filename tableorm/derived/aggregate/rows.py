"""
The rows of counts and sums across partitions: the subtotal of a partition, and beside the total what that has of it.

Both have a value and a number. Each change of a subtotal has the next number, so that of two values everybody knows
which is newer. Neither row is ever deleted: the numbers would begin anew.
"""

import attrs
import msgspec

from ...errors import DecodeError, LimitExceeded, WrongKind, shown
from ...models.manifest import SubtotalEntry
from ...models.marker_rows import SHARE_KIND, SUBTOTAL_KIND
from ...models.reserved import COPY_OF, ENTITY_TYPE, WRITE_TOKENS
from ...models.write_tokens import tokens_of, with_token
from ...protocol.edm import ANNOTATION, INT64_MAX, INT64_MIN, Edm
from ...stores import Operation, Row, RowAddress, Verb, row_keys
from ...writes.patch import Value
from ...writes.plan import Effect, PlannedWrite

_VALUE, _NUMBER, _FIELD = "Value", "Number", "Field"


@attrs.frozen
class CountRow:
    """
    A subtotal, or what a total has of one.

    Args:
        kind: Which of the two.
        of: A subtotal: the entity that has the total. What that has of it: the subtotal.
        field: The property of the entity that has the total. Behind it, for what the total has, RowKey of that entity.
        value: The value.
        number: Its number.
        row: The row as it is stored; None for one that is not there.
    """

    kind: str
    of: RowAddress
    field: tuple[str, ...]
    value: int = 0
    number: int = 0
    row: Row | None = attrs.field(default=None, eq=False)

    def operation(self, at: RowAddress, value: int, number: int, token: str) -> Operation:
        """
        Return the write of a value, under the condition that the row is as it was read.

        Raises:
            LimitExceeded: The value does not fit.
        """
        if not INT64_MIN <= value <= INT64_MAX:
            raise LimitExceeded(f"the subtotal {at} would be {value}, which is more than an Int64 holds")
        row: Row = {
            "PartitionKey": at.partition_key,
            "RowKey": at.row_key,
            ENTITY_TYPE: self.kind,
            COPY_OF: self.of.to_json(),
            _FIELD: msgspec.json.encode(self.field).decode(),
            WRITE_TOKENS: with_token(tokens_of(self.row), token),
        }
        for name, each in ((_VALUE, value), (_NUMBER, number)):
            row |= {name: str(each), name + ANNOTATION: Edm.INT64.value}
        if self.row is None:
            return Operation(Verb.INSERT, row)
        return Operation(Verb.REPLACE, row, self.row["odata.etag"])


def count_row_of(row: Row) -> CountRow:
    """Return what a row of a count says. Raises DecodeError if it is none or damaged, or another's subtotal."""
    try:
        kind, of, field = row[ENTITY_TYPE], RowAddress.from_json(row[COPY_OF]), _decode_field(row[_FIELD])
        found = CountRow(kind, of, field, int(str(row[_VALUE])), int(str(row[_NUMBER])), row)
        is_one = kind in (SUBTOTAL_KIND, SHARE_KIND) and len(field) == 1 + (kind == SHARE_KIND)
        if is_one and (kind == SHARE_KIND or SubtotalEntry.of(of, field[0], 0).row_key == row["RowKey"]):
            return found
    except (KeyError, TypeError, ValueError, msgspec.DecodeError):
        pass
    kind = shown(row.get(ENTITY_TYPE))
    problem = f"is a row of kind {kind}, and should be the row of a count across partitions that has its key"
    raise DecodeError(problem, SUBTOTAL_KIND, row_keys(row))


_decode_field = msgspec.json.Decoder(tuple[str, ...]).decode


class SubtotalPatch(Effect, Value, frozen=True, kw_only=True):
    """
    A change of the subtotal of a partition.

    Args:
        row_key: Its RowKey.
        origin: The write that it comes from.
        entry: What names it in a manifest.
        amount: What is added to it.
    """

    row_key: str
    origin: PlannedWrite
    entry: SubtotalEntry
    amount: int
    reads = replaces = True

    def merge_with(self, other: Effect) -> Effect:
        """Return a patch that does both."""
        assert isinstance(other, SubtotalPatch)
        return msgspec.structs.replace(other, amount=self.amount + other.amount)

    def operation(self, stored: Row | None, token: str) -> Operation:
        """Return the write of the subtotal under the ETag that was read. Raises WrongKind if another row is there."""
        at = self.origin.change.address.beside(self.row_key)
        now = empty = CountRow(SUBTOTAL_KIND, self.entry.holder, (self.entry.field,))
        if stored is not None:
            now = count_row_of(stored)
            if (now.kind, now.field) != (empty.kind, empty.field) or not now.of.is_same(empty.of):
                raise WrongKind(
                    f"{self.origin.origin}: the row {shown(self.row_key)} of this partition should be the subtotal of "
                    f"{self.entry.field} of {self.entry.holder}, and is another one",
                    (at.partition_key, at.row_key),
                    stored.get(ENTITY_TYPE),
                )
        return now.operation(at, now.value + self.amount, now.number + 1, token)
