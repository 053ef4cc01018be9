"""
KeyRegions: which keys can satisfy conditions, by the key templates of the kinds that a query asks for.

Which condition says something of which key is told by the patterns; the values only make the bounds.
"""

from collections.abc import Callable, Sequence

import attrs

from ...expressions import Comparison, Expression, PropertyComparison
from ...keys.bounds import KeyConstraint
from ...keys.ranges import EVERYTHING, hull, meet
from ...keys.template import Template
from ...models.entity import schema_of
from ...models.kinds import KindSet
from ...models.schema import Schema
from ...protocol.edm import Edm
from ...protocol.filters import Op
from ...stores import Bounds
from .normalize import has_field
from .parameters import slot_of
from .server_filter import Values

__all__ = ["Found", "Intervals", "KeyRegions"]

Found = tuple[Bounds, Bounds, KindSet, frozenset[int]]
"""PartitionKeys, RowKeys, the kinds that can be there, and the terms that hold for every key inside."""

_Interval = tuple[Bounds, frozenset[int]]
"""Bounds of a key, and the terms that hold for every key inside."""

_NONE: frozenset[int] = frozenset()
_ANY: _Interval = (EVERYTHING, _NONE)

_KEYS = {"PartitionKey": 0, "RowKey": 1}
_SAID: dict[Op, Callable[[str], Bounds]] = {
    Op.EQ: Bounds.only,
    Op.GT: lambda key: Bounds(key, None, lower_open=True),
    Op.GE: Bounds,
    Op.LT: lambda key: Bounds(None, key, upper_open=True),
    Op.LE: lambda key: Bounds(None, key),
}


@attrs.frozen
class _Stored:
    """
    A condition on a key as it is stored.

    Args:
        at: Where its value is.
        make: From the value to the bounds.
        held: The term.
    """

    at: int
    make: Callable[[str], Bounds]
    held: frozenset[int]

    def interval(self, values: Values) -> _Interval | None:
        return self.make(values[self.at]), self.held


@attrs.frozen
class _Said:
    """
    What conditions say of a key by a template.

    Args:
        form: Of the template.
        at: Where the values of its conditions are.
        terms: Which terms these are.
        foreign: Whether the template is of another kind, so that in a range there can be keys that it does not write:
            only a point is sure to hold what conditions say.
        held: The terms that hold for every key inside, for most values.
        held_in_ranges: As `held`, of ranges; the same object if there is no difference.
        fixed: The interval, if no value counts.
    """

    form: KeyConstraint
    at: tuple[int, ...]
    terms: tuple[int, ...]
    foreign: bool
    held: frozenset[int]
    held_in_ranges: frozenset[int]
    fixed: _Interval | None

    @classmethod
    def of(cls, template: Template, said: Sequence[tuple[int, Comparison]], *, foreign: bool = False) -> "_Said":
        said = [(index, term) for index, term in said if term.field.name in template.fields]
        form = template.form(tuple((term.field.name, term.op) for _, term in said))
        terms = tuple(index for index, _ in said)
        held = frozenset(terms[at] for at in form.exact)
        fixed = None if form.fixed is None else (form.fixed, held)
        at = tuple(slot_of(term).at for _, term in said)
        return cls(form, at, terms, foreign, held, _NONE if foreign and held else held, fixed)

    def interval(self, values: Values) -> _Interval | None:
        if self.fixed is not None:
            return self.fixed
        bounds, exact = self.form.bounds(values, self.at)
        if bounds is None:
            return None
        if exact is self.form.exact and self.held is self.held_in_ranges:
            return bounds, self.held
        if self.foreign and not bounds.point:
            return bounds, _NONE
        return bounds, frozenset(self.terms[at] for at in exact)


@attrs.frozen
class _Several:
    """
    What terms say of a key from several sides.

    Args:
        sources: Each of them.
    """

    sources: "tuple[_Key, ...]"

    def interval(self, values: Values) -> _Interval | None:
        whole: _Interval | None = _ANY
        for source in self.sources:  # all of them, so that a value of another type is refused whatever the others say
            found = source.interval(values)
            if whole is None or found is None:
                whole = None
                continue
            merged = meet(whole[0], found[0])
            whole = None if merged is None else (merged, whole[1] | found[1])
        return whole


_Key = _Stored | _Said | _Several
"""What terms say of one key of one kind: from values to the keys that can satisfy them, None if there are none."""


Intervals = tuple[_Interval | None, _Interval | None]
"""What is said of PartitionKey and RowKey; None if no key can satisfy it."""


class KeyRegions:
    """
    The keys that can satisfy terms: one region for all kinds, or one for each partition of theirs.

    This is the one place that asks the key templates of models where rows are.

    Args:
        kinds: What is asked for.
        terms: Patterns in normal form that all must hold.
        like: Those of the first of the terms. What they say of a key need not be worked out again where the other
            terms add nothing.

    Attributes:
        like: Whether they add nothing to either key of the one kind.
    """

    __slots__ = ("_keys", "_kinds", "_same", "_schemas", "like")

    def __init__(self, kinds: KindSet, terms: Sequence[Expression], like: "KeyRegions | None" = None) -> None:
        self._kinds = kinds
        self._schemas: list[Schema | None] = list(kinds.schemas)
        if kinds.bags:
            self._schemas.append(None)  # rows of any kind: only the conditions themselves bound them
        self._keys = [_keys_of(schema, terms) for schema in self._schemas]
        self._same = [(False, False)] * len(self._keys)
        if like is not None:
            pairs = zip(self._keys, like._keys, strict=True)
            self._same = [(a[0] == b[0], a[1] == b[1]) for a, b in pairs]
        self.like = self._same == [(True, True)]

    def intervals(self, values: Values) -> list[Intervals]:
        """What the terms say of the keys of each kind."""
        return [(partition.interval(values), row.interval(values)) for partition, row in self._keys]

    def find(self, values: Values, like: Sequence[Intervals]) -> list[Found]:
        """The regions for these values, if `like` is what the first of the terms say of keys."""
        if len(like) > 1:
            pairs = zip(self._keys, self._same, like, strict=True)
            return self.of([self._beside(values, *each) for each in pairs])
        known, same, (partition_key, row_key) = like[0], self._same[0], self._keys[0]  # as `_beside`, without a call
        partition = known[0] if same[0] else partition_key.interval(values)
        row = known[1] if same[1] else row_key.interval(values)
        if partition is None or row is None:
            return []
        return [(partition[0], row[0], self._kinds, partition[1] | row[1] if partition[1] else row[1])]

    @staticmethod
    def _beside(values: Values, keys: tuple[_Key, _Key], same: tuple[bool, bool], known: Intervals) -> Intervals:
        return (
            known[0] if same[0] else keys[0].interval(values),
            known[1] if same[1] else keys[1].interval(values),
        )

    def of(self, intervals: Sequence[Intervals]) -> list[Found]:
        """The regions of what is said of the keys of each kind; none if no row can satisfy the terms."""
        if len(intervals) == 1:
            partition, row = intervals[0]
            if partition is None or row is None:
                return []
            return [(partition[0], row[0], self._kinds, partition[1] | row[1])]
        found = [
            (schema, partition, row)
            for schema, (partition, row) in zip(self._schemas, intervals, strict=True)
            if partition is not None and row is not None
        ]
        if not found:
            return []
        if not all(partition[0].point for _, partition, _ in found):
            return [_hull_of(found, self._kinds)]
        groups: dict[str | None, list[tuple[Schema | None, _Interval, _Interval]]] = {}
        for each in found:
            groups.setdefault(each[1][0].lower, []).append(each)
        return [_hull_of(group, self._kinds.only([schema for schema, _, _ in group])) for group in groups.values()]


def _hull_of(found: Sequence[tuple[Schema | None, _Interval, _Interval]], kinds: KindSet) -> Found:
    exact: frozenset[int] = _NONE
    hulls: list[Bounds] = []
    for intervals in ([partition for _, partition, _ in found], [row for _, _, row in found]):
        whole = hull([bounds for bounds, _ in intervals])
        # Where the kinds differ, other keys lie between their intervals, so that no term is known to hold for all.
        if all(bounds == whole for bounds, _ in intervals):
            exact |= {index for index in intervals[0][1] if all(index in held for _, held in intervals)}
        hulls.append(whole)
    return hulls[0], hulls[1], kinds, exact


def _keys_of(schema: Schema | None, terms: Sequence[Expression]) -> tuple[_Key, _Key]:
    """What the terms say of PartitionKey and RowKey of one kind; None: of any."""
    groups: dict[int, tuple[Schema, list[tuple[int, Comparison]]]] = {}
    if schema is not None:
        groups[id(schema)] = (schema, [])
    sources: tuple[list[_Key], list[_Key]] = ([], [])
    for index, term in enumerate(terms):
        if isinstance(term, Comparison):
            owner = schema_of(term.field.model)
            if schema is not None and has_field(schema, term.field):
                owner = schema
            groups.setdefault(id(owner), (owner, []))[1].append((index, term))
        elif isinstance(term, PropertyComparison):
            which = _KEYS.get(term.property)
            if which is not None and term.constant.type is Edm.STRING and term.op in _SAID:
                sources[which].append(_Stored(slot_of(term).at, _SAID[term.op], frozenset((index,))))
    for owner, conditions in groups.values():
        if owner.partition is None or owner.row is None or (owner.abstract and owner is not schema):
            continue  # an abstract base writes no keys; its conditions are evaluated row by row
        for which, template in enumerate((owner.partition, owner.row)):
            if owner is schema:
                sources[which].append(_Said.of(template, conditions))
            else:
                found = _of_other(schema, owner, template, conditions)
                if found is not None:
                    sources[which].append(found)
    partition, row = [each[0] if len(each) == 1 else _Several(tuple(each)) for each in sources]
    return partition, row


def _of_other(
    schema: Schema | None, owner: Schema, template: Template, conditions: Sequence[tuple[int, Comparison]]
) -> _Said | None:
    """What conditions on another model say of a key of this kind, by the template of that model."""
    said = [(index, term) for index, term in conditions if _tells(schema, owner, template, term.field.name)]
    if not any(term.field.name in template.fields for _, term in said):
        return None  # nothing said about this key of the other model: its literal head says nothing either
    # A range of a foreign template holds other keys too: there each row has to be looked at.
    return _Said.of(template, said, foreign=True)


def _tells(schema: Schema | None, owner: Schema, template: Template, field: str) -> bool:
    """Whether a condition on a field of another model says of every row of this kind what its key is."""
    holder = owner.key_holders.get(field)
    if holder is not None:
        return holder[0] is template  # where both keys hold the field, it is read from one of them
    # It is read from a property, which rows of this kind can have under any key, unless theirs are made alike.
    if schema is None or field not in template.fields or field not in schema.fields:
        return False
    own, named = schema.fields[field], owner.fields[field]
    same = schema.partition if template is owner.partition else schema.row
    alike = same is not None and same.text == template.text and "{kind}" not in template.text
    return alike and (own.property, own.type) == (named.property, named.type)
