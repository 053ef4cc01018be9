"""
Plans of queries that name a few keys in full.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import attrs

from ...expressions import Comparison, Expression, Membership
from ...keys.bounds import KeyConstraint
from ...keys.ranges import key_order
from ...protocol.filters import Op
from ...protocol.limits import MAX_KEY_UNITS, key_fault
from .alternatives import MAX_ALTERNATIVES
from .parameters import Parameter, Values, parameter_of
from .plan import Point, Range
from .target import QueryTarget

# Two units at most per character.
_SHORT = MAX_KEY_UNITS // 2


@attrs.frozen(eq=False, kw_only=True)
class PointPlanner:
    """
    Equalities and memberships that are exactly the key fields of the one kind, each of which a key holds in full.

    Args:
        partition: What they say of the PartitionKey.
        row: What they say of the RowKey.
        at: Where the values of each term are.
        many: Where the values of each `in_` are.
    """

    partition: KeyConstraint
    row: KeyConstraint
    at: tuple[int, ...]
    many: tuple[int, ...]

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
        shape = tuple([(name, Op.EQ) for name in parameters])
        partition, row = (template.constrain(shape) for template in schema.templates())
        if len(partition.exact | row.exact) < len(shape):
            return None  # a key that holds but a part of a value, as a hash of it, is that of others too
        return cls(
            partition=partition,
            row=row,
            at=tuple([parameter.at for parameter in parameters.values()]),
            many=tuple([parameter.at for parameter in parameters.values() if parameter.many]),
        )

    def find(self, values: Values) -> list[Point | Range] | None:
        """Return the points in key order; None if they are too many for a request each."""
        if math.prod(len(values[at]) for at in self.many) > MAX_ALTERNATIVES:
            return None
        points: set[Point] = set()
        chosen: list[Any] = list(values)  # with one of each `in_` in place of all of them
        for choice in product(*(values[at] for at in self.many)):
            for at, value in zip(self.many, choice, strict=True):
                chosen[at] = value
            point = make_point(self.partition.text(chosen, self.at), self.row.text(chosen, self.at))
            if point is not None:
                points.add(point)
        found = sorted(points, key=lambda point: key_order((point.partition_key, point.row_key)))
        return [*found]


def make_point(partition: str | None, row: str | None) -> Point | None:
    """Return the point with keys of templates, which escape what keys forbid; None if no row can have them."""
    if partition is None or row is None:
        return None
    if len(partition) + len(row) > _SHORT and not (can_be_key(partition) and can_be_key(row)):
        return None
    return Point(partition, row)


def can_be_key(key: str) -> bool:
    """Return whether rows can have such a key; a request for another would be rejected."""
    return key_fault(key) is None
