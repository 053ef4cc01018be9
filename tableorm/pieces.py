"""
Pieces: the conditions of a query as rectangles of keys, one for each alternative, merged where they overlap.

`or` and `in_` over key fields are taken apart, so that each alternative can be a point or a range of its own.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import product

import attrs

from .entity import schema_of
from .expressions import AllOf, AnyOf, Comparison, Expression, Membership, PropertyComparison
from .kinds import Kinds
from .protocol.edm import Edm
from .protocol.filters import Op
from .ranges import EVERYTHING, Rectangle, high_of, hull, low_of, meet
from .schema import Schema
from .stores import Bounds
from .templates import Condition

__all__ = ["MOST_REQUESTS", "Piece", "pieces_of"]

# More alternatives than this, multiplied, are no requests of their own any more; what is beyond is evaluated here.
MOST_REQUESTS = 20_000


@attrs.frozen(eq=False)
class Piece:
    """
    A rectangle of keys that can satisfy the conditions.

    Args:
        rectangle: The keys.
        kinds: The kinds that can be in it.
        left: Terms that its keys do not imply.
        given: Equalities that all of its results satisfy.
    """

    rectangle: Rectangle
    kinds: Kinds
    left: tuple[Expression, ...]
    given: tuple[Condition, ...]


@attrs.frozen(eq=False)
class _Found:
    rectangle: Rectangle
    kinds: Kinds
    exact: frozenset[int]


_Branch = tuple[_Found, tuple[Expression, ...]]


def pieces_of(kinds: Kinds, terms: Sequence[Expression]) -> list[Piece]:
    """
    The rectangles of keys that can satisfy all terms, in key order, none of which overlap.

    Args:
        kinds: What is asked for.
        terms: Conditions in normal form that all must hold.
    """
    common: list[Expression] = []
    alternatives: list[list[tuple[Expression, ...]]] = []
    count = 1
    for term in terms:
        choices = _choices(kinds, term) if isinstance(term, (Membership, AnyOf)) else None
        if choices is None or count * len(choices) > MOST_REQUESTS:
            common.append(term)
        else:
            count *= len(choices)
            alternatives.append(choices)
    if not alternatives:
        found = _rectangles(kinds, common)
        if len(found) == 1:
            return [_piece(found[0], common)]
    branches: list[_Branch] = []
    for choice in product(*alternatives):
        chosen = tuple(term for part in choice for term in part)
        branches += [(found, chosen) for found in _rectangles(kinds, [*common, *chosen])]
    return [_merged(kinds, cluster, common) for cluster in _clusters(branches)]


def _choices(kinds: Kinds, term: Expression) -> list[tuple[Expression, ...]] | None:
    """The alternatives of a term, each a list of terms that all hold; None if none of them says anything of keys."""
    if isinstance(term, Membership):
        if term.negated or not _is_of_key(kinds, term):
            return None
        return [(Comparison(term.field, Op.EQ, value),) for value in dict.fromkeys(term.values)]
    if isinstance(term, AnyOf):
        if not any(_says_of_keys(kinds, each) for each in term.terms):
            return None
        found: list[tuple[Expression, ...]] = []
        for each in term.terms:
            found += _choices(kinds, each) or [(each,)]
            if len(found) > MOST_REQUESTS:
                return None
        return found
    if isinstance(term, AllOf):
        parts = [_choices(kinds, each) or [(each,)] for each in term.terms]
        if math.prod(map(len, parts)) > MOST_REQUESTS:
            return None
        return [tuple(inner for part in choice for inner in part) for choice in product(*parts)]
    return None


def _says_of_keys(kinds: Kinds, term: Expression) -> bool:
    if isinstance(term, (AllOf, AnyOf)):
        return any(_says_of_keys(kinds, each) for each in term.terms)
    if isinstance(term, PropertyComparison):
        return term.property in ("PartitionKey", "RowKey") and term.op is not Op.NE
    if isinstance(term, Comparison):
        return term.op is not Op.NE and _is_of_key(kinds, term)
    return isinstance(term, Membership) and not term.negated and _is_of_key(kinds, term)


def _is_of_key(kinds: Kinds, term: Comparison | Membership) -> bool:
    if id(term.field) in kinds.own_fields:
        return id(term.field) in kinds.point_shape
    name, model = term.field.name, term.field.model
    owners = [schema for schema in kinds.schemas if issubclass(schema.model, model)] or [schema_of(model)]
    return any(name in owner.key_names for owner in owners)


def _piece(found: _Found, terms: Sequence[Expression]) -> Piece:
    if len(found.exact) == len(terms):
        return Piece(found.rectangle, found.kinds, (), ())
    left = tuple([term for index, term in enumerate(terms) if index not in found.exact])
    return Piece(found.rectangle, found.kinds, left, _equalities(found.kinds, terms))


def _equalities(kinds: Kinds, terms: Iterable[Expression]) -> tuple[Condition, ...]:
    """What is said of the fields of the one kind; of several kinds each has its own keys."""
    if len(kinds.schemas) != 1:
        return ()
    model = kinds.schemas[0].model
    equal = [t for t in terms if type(t) is Comparison and t.op is Op.EQ]
    return tuple([Condition(t.field.name, t.op, t.value) for t in equal if issubclass(model, t.field.model)])


def _clusters(branches: list[_Branch]) -> list[list[_Branch]]:
    """Branches that overlap, together; each cluster's keys are before those of the next."""
    # A scan visits its partitions anyway: what else is wanted of them comes with it.
    scans = any(not found.rectangle.partition.point for found, _ in branches)
    branches.sort(key=lambda b: (low_of(b[0].rectangle.partition), low_of(b[0].rectangle.row)))
    clusters: list[list[_Branch]] = []
    until = (0, b"", False)
    for branch in branches:
        rectangle = branch[0].rectangle
        interval = rectangle.partition if scans else rectangle.row
        last = clusters[-1][-1][0].rectangle if clusters else None
        if last is not None and (scans or last.partition == rectangle.partition) and _begins_before(interval, until):
            clusters[-1].append(branch)
            until = max(until, high_of(interval))
        else:
            clusters.append([branch])
            until = high_of(interval)
    return clusters


def _begins_before(interval: Bounds, until: tuple[int, bytes, bool]) -> bool:
    """Whether an interval has a key that is not after the end that `high_of` gave."""
    low, low_open = low_of(interval)
    return until[0] == 1 or low < until[1] or (low == until[1] and until[2] and not low_open)


def _merged(kinds: Kinds, cluster: list[_Branch], common: Sequence[Expression]) -> Piece:
    first, chosen = cluster[0]
    if len(cluster) == 1:
        return _piece(first, [*common, *chosen])
    rectangle = Rectangle(
        hull([found.rectangle.partition for found, _ in cluster]), hull([found.rectangle.row for found, _ in cluster])
    )
    # What the common conditions alone imply holds in every part of it that is within theirs. A branch can be wider: an
    # equality makes a key, whatever else is said of that field.
    base = _rectangles(kinds, common)
    exact: frozenset[int] = frozenset()
    if len(base) == 1:
        within = rectangle.meet(base[0].rectangle)
        if within is not None:
            rectangle, exact = within, base[0].exact
    left = tuple(term for index, term in enumerate(common) if index not in exact)
    covered = any(
        found.rectangle == rectangle
        and found.kinds is kinds
        and found.exact.issuperset(range(len(common), len(common) + len(choice)))
        for found, choice in cluster
    )
    if not covered:
        left += (AnyOf(tuple(_all_of(choice) for _, choice in cluster)),)
    return Piece(rectangle, kinds, left, _equalities(kinds, common))


def _all_of(terms: tuple[Expression, ...]) -> Expression:
    return terms[0] if len(terms) == 1 else AllOf(terms)


# Rectangles: what the terms say of keys


def _rectangles(kinds: Kinds, terms: Sequence[Expression]) -> list[_Found]:
    """
    The keys that can satisfy the terms: one rectangle for all kinds, or one for each partition of theirs.
    """
    plain = _plain_rectangle(kinds, terms)
    if plain is not None:
        return plain
    schemas: list[Schema | None] = list(kinds.schemas)
    if kinds.bags:
        schemas.append(None)  # rows of any kind: only the conditions themselves bound them
    found = [(schema, bounds) for schema in schemas if (bounds := _bounds_of(schema, terms)) is not None]
    if not found:
        return []  # no row of any kind can satisfy the conditions
    if len(found) == 1 and len(schemas) == 1:
        (partition, held), (row, more) = found[0][1]
        return [_Found(Rectangle(partition, row), kinds, held | more)]
    if not all(bounds[0][0].point for _, bounds in found):
        return [_hull_of([bounds for _, bounds in found], kinds)]
    groups: dict[str | None, list[tuple[Schema | None, tuple[_Interval, _Interval]]]] = {}
    for schema, bounds in found:
        groups.setdefault(bounds[0][0].lower, []).append((schema, bounds))
    return [
        _hull_of([bounds for _, bounds in group], kinds.only([schema for schema, _ in group]))
        for group in groups.values()
    ]


def _plain_rectangle(kinds: Kinds, terms: Sequence[Expression]) -> list[_Found] | None:
    """As `_rectangles` of comparisons of the one kind's own fields, the commonest case, in half the time."""
    own = kinds.own_fields
    if not own:
        return None
    by_field: dict[str, list[tuple[int, Condition]]] = {}
    for index, term in enumerate(terms):
        if type(term) is Comparison:
            name = own.get(id(term.field))
            if name is None:
                return None
            by_field.setdefault(name, []).append((index, Condition(name, term.op, term.value)))
        elif type(term) is PropertyComparison:
            return None
    schema = kinds.schemas[0]
    if schema.partition is None or schema.row is None:
        return None
    partition, row = schema.partition.bounds_by_field(by_field), schema.row.bounds_by_field(by_field)
    if partition.bounds is None or row.bounds is None:
        return []
    return [_Found(Rectangle(partition.bounds, row.bounds), kinds, partition.exact | row.exact)]


_Interval = tuple[Bounds, frozenset[int]]
"""Bounds of a key, and the terms that hold for every key inside."""


def _hull_of(found: Sequence[tuple[_Interval, _Interval]], kinds: Kinds) -> _Found:
    exact: frozenset[int] = frozenset()
    hulls: list[Bounds] = []
    for intervals in zip(*found, strict=True):
        whole = hull([bounds for bounds, _ in intervals])
        # Where the kinds differ, other keys lie between their intervals, so that no term is known to hold for all.
        if all(bounds == whole for bounds, _ in intervals):
            exact |= {index for index in intervals[0][1] if all(index in held for _, held in intervals)}
        hulls.append(whole)
    return _Found(Rectangle(hulls[0], hulls[1]), kinds, exact)


def _bounds_of(schema: Schema | None, terms: Sequence[Expression]) -> tuple[_Interval, _Interval] | None:
    """What the terms say of PartitionKey and RowKey of one kind (None: of any); None if no key satisfies them."""
    groups: dict[int, tuple[Schema, list[tuple[int, Condition]]]] = {}
    if schema is not None:
        groups[id(schema)] = (schema, [])
    intervals: list[_Interval] = [(EVERYTHING, frozenset()), (EVERYTHING, frozenset())]
    for index, term in enumerate(terms):
        if isinstance(term, Comparison):
            owner = schema_of(term.field.model)
            if schema is not None and issubclass(schema.model, term.field.model):
                owner = schema
            condition = Condition(term.field.name, term.op, term.value)
            groups.setdefault(id(owner), (owner, []))[1].append((index, condition))
        elif isinstance(term, PropertyComparison):
            which = _KEYS.get(term.property)
            bounds = None if which is None else _said_bounds(term)
            if which is not None and bounds is not None:
                merged = meet(intervals[which][0], bounds)
                if merged is None:
                    return None
                intervals[which] = merged, intervals[which][1] | {index}
    for owner, conditions in groups.values():
        if owner.partition is None or owner.row is None or (owner.abstract and owner is not schema):
            continue  # an abstract base writes no keys; its conditions are evaluated row by row
        foreign = owner is not schema
        for which, template in enumerate((owner.partition, owner.row)):
            said = conditions
            if foreign:
                # Where both keys hold a field, it is read from one of them.
                said = [(index, c) for index, c in said if owner.key_holders.get(c.field, (template,))[0] is template]
                if not any(c.field in template.fields for _, c in said):
                    continue  # nothing said about this key of the other model: its literal head says nothing either
            found = template.bounds([condition for _, condition in said])
            if found.bounds is None:
                return None
            merged = meet(intervals[which][0], found.bounds)
            if merged is None:
                return None
            # A range of a foreign template holds other keys too: there each row has to be looked at, unless the kind
            # has the very field from a base that both share.
            sure = not foreign or found.bounds.point
            held = [at for at in found.exact if sure or _shares(schema, owner, said[at][1].field)]
            intervals[which] = merged, intervals[which][1] | {said[position][0] for position in held}
    return intervals[0], intervals[1]


def _shares(schema: Schema | None, other: Schema, field: str) -> bool:
    """Whether a kind has a field of another model from a base of both."""
    if schema is None:
        return False
    bases = (getattr(base, "__schema__", None) for base in other.model.__mro__ if issubclass(schema.model, base))
    return any(isinstance(base, Schema) and field in base.fields for base in bases)


_KEYS = {"PartitionKey": 0, "RowKey": 1}
_SAID: dict[Op, Callable[[str], Bounds]] = {
    Op.EQ: Bounds.only,
    Op.GT: lambda key: Bounds(key, None, lower_open=True),
    Op.GE: Bounds,
    Op.LT: lambda key: Bounds(None, key, upper_open=True),
    Op.LE: lambda key: Bounds(None, key),
}


def _said_bounds(term: PropertyComparison) -> Bounds | None:
    if term.constant.type is not Edm.STRING or term.op not in _SAID:
        return None
    return _SAID[term.op](term.constant.value)
