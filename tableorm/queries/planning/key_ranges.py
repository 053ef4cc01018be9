"""
Key regions: which keys can satisfy conditions, by the key templates of the kinds that a query asks for.

Parameterised conditions tell which of them says something of which key; the values only make the bounds.
"""

from collections.abc import Callable, Sequence
from itertools import product

import attrs
import msgspec

from ...expressions import Comparison, Expression, PropertyComparison
from ...keys.bounds import ConstraintShape, KeyConstraint
from ...keys.template import Template
from ...models.entity import schema_of
from ...models.schema import Schema
from ...protocol.edm import Edm
from ...protocol.filters import Op
from ...stores import Bounds
from ...stores.intervals import EVERYTHING, hull, meet
from .normalize import has_field
from .parameters import Values, parameter_of
from .target import QueryTarget

_NONE: frozenset[int] = frozenset()


class KeyMatch(msgspec.Struct, frozen=True, eq=False):
    """
    The keys that can satisfy conditions on one key.

    Args:
        bounds: The interval of these keys.
        implied: The terms, by index, that hold for every key inside.
        buckets: The keys one by one, if nothing but the hash buckets in them is open; otherwise none.
    """

    bounds: Bounds
    implied: frozenset[int]
    buckets: "tuple[KeyMatch, ...]" = ()


class RegionMatch(msgspec.Struct, frozen=True, eq=False):
    """
    A region of keys that can satisfy conditions.

    Args:
        partition: The PartitionKeys.
        row: The RowKeys.
        target: The kinds whose rows can be there.
        implied: The terms, by index, that hold for every key inside.
    """

    partition: Bounds
    row: Bounds
    target: QueryTarget
    implied: frozenset[int]


_ANY_KEY = KeyMatch(EVERYTHING, _NONE)

_STORED_KEYS = {"PartitionKey": 0, "RowKey": 1}
_BOUNDS_OF: dict[Op, Callable[[str], Bounds]] = {
    Op.EQ: Bounds.only,
    Op.GT: lambda key: Bounds(key, lower_open=True),
    Op.GE: Bounds,
    Op.LT: lambda key: Bounds(None, key, upper_open=True),
    Op.LE: lambda key: Bounds(None, key),
}


@attrs.frozen
class _StoredKeyRule:
    """
    A condition on a key as it is stored.

    Args:
        at: Where its value is.
        make: From the value to the bounds.
        implied: The condition, by index.
    """

    at: int
    make: Callable[[str], Bounds]
    implied: frozenset[int]

    def match(self, values: Values) -> KeyMatch | None:
        return KeyMatch(self.make(values[self.at]), self.implied)


@attrs.frozen(kw_only=True)
class _TemplateRule:
    """
    The conditions on the fields of a key template.

    Args:
        constraint: What they say of the keys of the template.
        at: Where their values are.
        foreign: Whether the template is of another kind, so that a range can hold keys that it does not write: only a
            point is sure to hold what the conditions say.
        implied: The terms, by index, that hold for every key inside.
    """

    constraint: KeyConstraint
    at: tuple[int, ...]
    foreign: bool
    implied: frozenset[int]

    @classmethod
    def of(cls, template: Template, conditions: Sequence[tuple[int, Comparison]], *, foreign: bool) -> "_TemplateRule":
        """Make the rule of these conditions, each with its index among the terms."""
        relevant = _relevant(template, conditions)
        return cls._make(template.constrain(_shape_of(relevant)), relevant, foreign=foreign)

    @classmethod
    def by_bucket(cls, template: Template, conditions: Sequence[tuple[int, Comparison]]) -> "tuple[_TemplateRule, ...]":
        """Make the rules of conditions that leave nothing open but hash buckets, one for each; otherwise none."""
        relevant = [(index, term) for index, term in conditions if term.field.name in template.fields]
        return tuple(
            cls._make(each, relevant, foreign=False) for each in template.constrain_by_bucket(_shape_of(relevant))
        )

    @classmethod
    def _make(
        cls, constraint: KeyConstraint, relevant: Sequence[tuple[int, Comparison]], *, foreign: bool
    ) -> "_TemplateRule":
        return cls(
            constraint=constraint,
            at=tuple(parameter_of(term).at for _, term in relevant),
            foreign=foreign,
            implied=frozenset(relevant[at][0] for at in constraint.exact),
        )

    def match(self, values: Values) -> KeyMatch | None:
        bounds, _ = self.constraint.bounds(values, self.at)
        if bounds is None:
            return None
        return KeyMatch(bounds, _NONE if self.foreign and not bounds.point else self.implied)


def _relevant(template: Template, conditions: Sequence[tuple[int, Comparison]]) -> list[tuple[int, Comparison]]:
    """Return the conditions on fields of a template. Of a list, one element makes a key: the first that is given."""
    found = [(index, term) for index, term in conditions if term.field.name in template.fields]
    if template.each is None:
        return found
    first = next((term for _, term in found if term.field.name == template.each and term.op is Op.EQ), None)
    return [(index, term) for index, term in found if term is first or term.field.name != template.each]


def _shape_of(conditions: Sequence[tuple[int, Comparison]]) -> ConstraintShape:
    return tuple((term.field.name, term.op) for _, term in conditions)


@attrs.frozen
class _BucketRules:
    """
    The conditions on a PartitionKey that give all of it but its hash buckets.

    Args:
        whole: What they say of it where its buckets are not looked at.
        buckets: What they say of it in each bucket.
    """

    whole: _TemplateRule
    buckets: tuple[_TemplateRule, ...]

    def match(self, values: Values) -> KeyMatch | None:
        found = [match for each in self.buckets if (match := each.match(values)) is not None]
        whole = self.whole.match(values) if found else None
        return None if whole is None else KeyMatch(whole.bounds, whole.implied, tuple(found))


@attrs.frozen
class _JoinedRules:
    """
    Several rules for one key, all of which hold.

    Args:
        rules: The rules.
    """

    rules: "tuple[_KeyRule, ...]"

    def match(self, values: Values) -> KeyMatch | None:
        whole: KeyMatch | None = _ANY_KEY
        for rule in self.rules:  # all of them, so that a value of another type is rejected whatever the others say
            found = rule.match(values)
            if whole is None or found is None:
                whole = None
                continue
            whole = _join(whole, found)
        return whole


def _join(first: KeyMatch, second: KeyMatch) -> KeyMatch | None:
    """Return what two rules say together of one key; None if no key can satisfy both."""
    bounds = meet(first.bounds, second.bounds)
    if bounds is None:
        return None
    implied = first.implied | second.implied
    if not first.buckets and not second.buckets:
        return KeyMatch(bounds, implied)
    pairs = product(first.buckets or (first,), second.buckets or (second,))
    buckets = tuple([match for one, other in pairs if (match := _join(one, other)) is not None])
    return KeyMatch(bounds, implied, buckets) if buckets else None


_KeyRule = _StoredKeyRule | _TemplateRule | _BucketRules | _JoinedRules
"""What conditions say of one key of one kind: `match` takes values, and gives None if no key can satisfy them."""


_KeyRules = tuple[_KeyRule, _KeyRule]
"""The rules for the PartitionKey and the RowKey of one kind."""


class KeyRegions:
    """
    The keys that can satisfy terms: one region for all kinds, or one for each partition of theirs.

    This is the one place that asks the key templates of models where rows are.

    Args:
        target: What is asked for.
        terms: Parameterised conditions in normal form, all of which must hold.
        by_bucket: Whether each hash bucket that the terms leave open in a PartitionKey has a region of its own.

    Attributes:
        buckets: How many hash buckets of partitions have regions of their own, of all kinds.
    """

    def __init__(self, target: QueryTarget, terms: Sequence[Expression], *, by_bucket: bool = True) -> None:
        self._target = target
        self._schemas: list[Schema | None] = list(target.schemas)
        if target.bags:
            self._schemas.append(None)  # rows of any kind: only the conditions themselves bound them
        self._rules = [_rules_of(schema, terms, by_bucket=by_bucket) for schema in self._schemas]
        self.buckets = sum([_count_buckets(partition) for partition, _ in self._rules])

    def find(self, values: Values) -> list[RegionMatch]:
        """Return the regions for these values of the terms; none if no row can satisfy them."""
        matches = [(partition.match(values), row.match(values)) for partition, row in self._rules]
        if len(matches) == 1:
            partition, row = matches[0]
            if partition is None or row is None:
                return []
            return [
                RegionMatch(each.bounds, row.bounds, self._target, each.implied | row.implied)
                for each in partition.buckets or (partition,)
            ]
        possible = [
            _KindMatch(schema, partition, row)
            for schema, (partition, row) in zip(self._schemas, matches, strict=True)
            if partition is not None and row is not None
        ]
        if not possible:
            return []
        if not all(each.partition.bounds.point or each.partition.buckets for each in possible):
            return [_merge(possible, self._target)]
        by_partition: dict[str | None, list[_KindMatch]] = {}
        for each in possible:
            for key in each.partition.buckets or (each.partition,):
                by_partition.setdefault(key.bounds.lower, []).append(_KindMatch(each.schema, key, each.row))
        return [_merge(group, self._target.select([each.schema for each in group])) for group in by_partition.values()]


class _KindMatch(msgspec.Struct, frozen=True, eq=False):
    """The keys of one kind that can satisfy the terms; the schema is None for rows of any other kind."""

    schema: Schema | None
    partition: KeyMatch
    row: KeyMatch


def _merge(matches: Sequence[_KindMatch], target: QueryTarget) -> RegionMatch:
    partition, implied = _merge_key([each.partition for each in matches])
    row, implied_by_row = _merge_key([each.row for each in matches])
    return RegionMatch(partition, row, target, implied | implied_by_row)


def _merge_key(matches: Sequence[KeyMatch]) -> tuple[Bounds, frozenset[int]]:
    whole = hull([each.bounds for each in matches])
    # Where the kinds differ, other keys lie between their intervals, so that no term is known to hold for all.
    if any(each.bounds != whole for each in matches):
        return whole, _NONE
    return whole, matches[0].implied.intersection(*[each.implied for each in matches])


def _count_buckets(rule: _KeyRule) -> int:
    if isinstance(rule, _JoinedRules):
        return sum(map(_count_buckets, rule.rules))
    return len(rule.buckets) if isinstance(rule, _BucketRules) else 0


def _rules_of(schema: Schema | None, terms: Sequence[Expression], *, by_bucket: bool) -> _KeyRules:
    """Return what the terms say of both keys of one kind; None: of any kind."""
    by_owner: dict[int, tuple[Schema, list[tuple[int, Comparison]]]] = {}
    if schema is not None:
        by_owner[id(schema)] = (schema, [])
    rules: tuple[list[_KeyRule], list[_KeyRule]] = ([], [])
    for index, term in enumerate(terms):
        if isinstance(term, Comparison):
            owner = schema_of(term.field.model)
            if schema is not None and has_field(schema, term.field):
                owner = schema
            by_owner.setdefault(id(owner), (owner, []))[1].append((index, term))
        elif isinstance(term, PropertyComparison):
            which = _STORED_KEYS.get(term.property)
            if which is not None and term.constant.type is Edm.STRING and term.op in _BOUNDS_OF:
                at = parameter_of(term).at
                rules[which].append(_StoredKeyRule(at, _BOUNDS_OF[term.op], frozenset((index,))))
    for owner, conditions in by_owner.values():
        if owner.abstract:
            continue  # it writes no keys; its conditions are evaluated row by row
        for which, template in enumerate(owner.templates()):
            if owner is schema:
                rule = _TemplateRule.of(template, conditions, foreign=False)
                buckets = _TemplateRule.by_bucket(template, conditions) if by_bucket and which == 0 else ()
                rules[which].append(_BucketRules(rule, buckets) if buckets else rule)
            else:
                found = _rule_of_other_model(schema, owner, template, conditions)
                if found is not None:
                    rules[which].append(found)
    partition, row = [each[0] if len(each) == 1 else _JoinedRules(tuple(each)) for each in rules]
    return partition, row


def _rule_of_other_model(
    schema: Schema | None, owner: Schema, template: Template, conditions: Sequence[tuple[int, Comparison]]
) -> _TemplateRule | None:
    """Return what conditions on another model say of a key of this kind, by the template of that model."""
    telling = [(index, term) for index, term in conditions if _tells_key(schema, owner, template, term.field.name)]
    if not any(term.field.name in template.fields for _, term in telling):
        return None  # nothing said about this key of the other model: its literal head says nothing either
    # A range of another model's template holds other keys too: there each row has to be looked at.
    return _TemplateRule.of(template, telling, foreign=True)


def _tells_key(schema: Schema | None, owner: Schema, template: Template, field: str) -> bool:
    """Return whether a condition on a field of another model says of every row of this kind what its key is."""
    holder = owner.key_holders.get(field)
    if holder is not None:
        return holder[0] is template  # where both keys hold the field, it is read from one of them
    # It is read from a property, which rows of this kind can have under any key, unless theirs are made alike.
    if schema is None or field not in schema.by_path:
        return False
    own, named = schema.by_path[field], owner.by_path[field]
    same = schema.partition if template is owner.partition else schema.row
    alike = same is not None and same.text == template.text and "{kind}" not in template.text
    return alike and (own.property, own.type) == (named.property, named.type)
