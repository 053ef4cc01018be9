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
from ...keys.ranges import key_order
from ...protocol.edm import utf16_key
from ...protocol.filters import Op
from ...protocol.limits import key_fault
from .alternatives import MAX_ALTERNATIVES
from .parameters import Parameter, Values, parameter_of
from .plan import Point, Range
from .target import QueryTarget

__all__ = ["PointPlanner", "can_be_key"]


@attrs.frozen(eq=False, kw_only=True)
class PointPlanner:
    """
    Equalities and memberships that are exactly the key fields of the one kind, each of which a key holds in full.

    Args:
        partition: What they say of the PartitionKey.
        row: What they say of the RowKey.
        at: Where the values of each term are.
        many: Where the values of each `in_` are.
        many_partitions: Those of them that the PartitionKey holds.
        many_rows: Those of them that the RowKey holds.
        disjoint: Whether no field is in both keys.
    """

    partition: KeyConstraint
    row: KeyConstraint
    at: tuple[int, ...]
    many: tuple[int, ...]
    many_partitions: tuple[int, ...]
    many_rows: tuple[int, ...]
    disjoint: bool

    @classmethod
    def of(cls, target: QueryTarget, terms: Sequence[Expression]) -> "PointPlanner | None":
        """Return the planner for terms that give points; None if they say anything else."""
        fields = target.key_fields
        if not fields or len(terms) != len(fields):
            return None
        schema = target.schemas[0]
        parameters: dict[str, Parameter] = {}
        for term in terms:
            if not (isinstance(term, Comparison) and term.op is Op.EQ) and not (
                isinstance(term, Membership) and not term.negated
            ):
                return None
            name = fields.get(id(term.field))
            if name is None or name in parameters:
                return None
            parameters[name] = parameter_of(term)
        if schema.partition is None or schema.row is None:
            return None
        shape = tuple([(name, Op.EQ) for name in parameters])
        partition, row = schema.partition.constrain(shape), schema.row.constrain(shape)
        if len(partition.exact | row.exact) < len(shape):
            return None  # a key that holds but a part of a value, as a hash of it, is that of others too
        many = {name: parameter.at for name, parameter in parameters.items() if parameter.many}
        return cls(
            partition=partition,
            row=row,
            at=tuple([parameter.at for parameter in parameters.values()]),
            many=tuple(many.values()),
            many_partitions=tuple([at for name, at in many.items() if name in schema.partition.fields]),
            many_rows=tuple([at for name, at in many.items() if name in schema.row.fields]),
            disjoint=set(schema.partition.fields).isdisjoint(schema.row.fields),
        )

    def find(self, values: Values) -> list[Point | Range] | None:
        """Return the points in key order; None if they are too many for a request each."""
        if math.prod(len(values[at]) for at in self.many) > MAX_ALTERNATIVES:
            return None
        if not self.disjoint:
            both = [key for choice in self._choose(values, self.many) for key in self._keys_of(choice)]
            return [Point(*key) for key in sorted(dict.fromkeys(both), key=key_order)]
        # No value is in both keys, so that each key is written once, however many there are of the other.
        partitions = self._texts(self.partition, values, self.many_partitions)
        rows = self._texts(self.row, values, self.many_rows)
        return [Point(partition, row) for partition in partitions for row in rows]

    def _keys_of(self, values: Values) -> Iterator[tuple[str, str]]:
        partition, row = self.partition.text(values, self.at), self.row.text(values, self.at)
        if partition is not None and row is not None and can_be_key(partition, row):
            yield partition, row

    def _texts(self, constraint: KeyConstraint, values: Values, many: Sequence[int]) -> Sequence[str]:
        """Return the keys for each choice of values, in order, each once."""
        found = {
            text
            for choice in self._choose(values, many)
            if (text := constraint.text(choice, self.at)) is not None and can_be_key(text)
        }
        return sorted(found, key=utf16_key) if len(found) > 1 else tuple(found)

    @staticmethod
    def _choose(values: Values, many: Sequence[int]) -> Iterator[Values]:
        """Yield the values with one of each `in_` in place of all of them; it is the same list each time."""
        chosen: list[Any] = list(values)
        for choice in product(*(values[at] for at in many)):
            for at, value in zip(many, choice, strict=True):
                chosen[at] = value
            yield chosen


def can_be_key(*keys: str) -> bool:
    """Return whether rows can have such keys; a request for others would be refused."""
    return not any(map(key_fault, keys))
