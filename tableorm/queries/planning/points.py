"""
Plans of queries that name a few keys in full.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import attrs

from ...expressions import Comparison, Expression, Membership
from ...keys.bounds import KeyConstraint
from ...models.kinds import KindSet
from ...protocol.edm import utf16_key
from ...protocol.filters import Op
from ...protocol.limits import key_fault
from .alternatives import MOST_REQUESTS
from .parameters import Slot, slot_of
from .plan import Point, Range

__all__ = ["PointPlanner", "can_be_key"]


@attrs.frozen(eq=False)
class PointPlanner:
    """
    Equalities and memberships that are exactly the key fields of the one kind, each of which a key holds in full.

    Args:
        partition: The PartitionKeys.
        row: The RowKeys.
        at: Where the values of each term are.
        many: Where there are several values each; of those, which are of which key.
        apart: Whether no field is in both keys.
    """

    partition: KeyConstraint
    row: KeyConstraint
    at: tuple[int, ...]
    many: tuple[int, ...]
    many_partitions: tuple[int, ...]
    many_rows: tuple[int, ...]
    apart: bool

    @classmethod
    def of(cls, kinds: KindSet, terms: Sequence[Expression]) -> "PointPlanner | None":
        """What terms say of points; None if they say anything else."""
        shape = kinds.point_shape
        if not shape or len(terms) != len(shape):
            return None
        schema = kinds.schemas[0]
        said: list[tuple[str, Op | None]] = []
        slots: list[Slot] = []
        for term in terms:
            plain = isinstance(term, Comparison) and term.op is Op.EQ
            if not plain and not (isinstance(term, Membership) and not term.negated):
                return None
            assert isinstance(term, (Comparison, Membership))
            name = shape.get(id(term.field))
            if name is None or (name, Op.EQ) in said:
                return None
            said.append((name, Op.EQ))
            slots.append(slot_of(term))
        if schema.partition is None or schema.row is None:
            return None
        many = {name: slot.at for (name, _), slot in zip(said, slots, strict=True) if slot.many}
        fields = schema.partition.fields, schema.row.fields
        forms = schema.partition.form(tuple(said)), schema.row.form(tuple(said))
        if len(forms[0].exact | forms[1].exact) < len(said):
            return None  # a key that holds but a part of a value, as a hash of it, is that of others too
        places = [tuple([at for name, at in many.items() if name in own]) for own in fields]
        apart = set(fields[0]).isdisjoint(fields[1])
        at = tuple([slot.at for slot in slots])
        return cls(*forms, at, tuple(many.values()), places[0], places[1], apart)

    def find(self, values: Sequence[Any]) -> list[Point | Range] | None:
        """The points in key order; None if they are too many for a request each."""
        if math.prod(len(values[at]) for at in self.many) > MOST_REQUESTS:
            return None
        if not self.apart:
            both = [(partition, row) for each in self._each(values, self.many) for partition, row in self._keys(each)]
            return [Point(*key) for key in sorted(dict.fromkeys(both), key=_key_order)]
        # No value is in both keys, so that each key is written once, however many there are of the other.
        partitions = self._texts(self.partition, values, self.many_partitions)
        rows = self._texts(self.row, values, self.many_rows)
        return [Point(partition, row) for partition in partitions for row in rows]

    def _keys(self, values: Sequence[Any]) -> Iterator[tuple[str, str]]:
        partition, row = self.partition.text(values, self.at), self.row.text(values, self.at)
        if partition is not None and row is not None and can_be_key(partition, row):
            yield partition, row

    def _texts(self, form: KeyConstraint, values: Sequence[Any], many: Sequence[int]) -> Sequence[str]:
        """The keys of each choice of values, in order, each once."""
        found = {
            text
            for each in self._each(values, many)
            if (text := form.text(each, self.at)) is not None and can_be_key(text)
        }
        return sorted(found, key=utf16_key) if len(found) > 1 else tuple(found)

    @staticmethod
    def _each(values: Sequence[Any], many: Sequence[int]) -> Iterator[Sequence[Any]]:
        """The values with one of the many in each place; the same list each time."""
        each = list(values)
        for choice in product(*(values[at] for at in many)):
            for at, value in zip(many, choice, strict=True):
                each[at] = value
            yield each


def _key_order(key: tuple[str, str]) -> tuple[bytes, bytes]:
    return utf16_key(key[0]), utf16_key(key[1])


# Requests


def can_be_key(*keys: str) -> bool:
    """Whether rows can have such keys; a request for others would be refused."""
    return not any(map(key_fault, keys))
