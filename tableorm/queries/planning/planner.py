"""
The planner: from conditions on fields to the requests that answer them best.

A pure function to a frozen plan. Conditions on fields that keys hold become bounds of the keys, alternatives among them
become requests of their own; what is left becomes a filter that the store evaluates; what the store cannot express is
evaluated here, on the rows that come back.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from ...errors import ScanRefused
from ...expressions import Comparison, Expression, Membership, Presence, conjuncts
from ...keys.bounds import Text
from ...keys.ranges import KeyInterval, KeyRegion, divide
from ...models.entity import schema_of
from ...models.kinds import KindSet
from ...protocol.filters import And, Compare, Constant, Filter, Not, Op
from ...protocol.limits import MAX_KEY_UNITS
from ...stores import Bounds, RowQuery
from .alternatives import Piece, Pieces, Remaining
from .normalize import FALSE, leaves, normal, refuse_other_tables
from .parameters import Shape, filled, patterns, shape_of, slot_of
from .plan import PARTITION_SCAN, POINT, RANGE, RANKS, TABLE_SCAN, Access, Point, QueryPlan, Range
from .points import PointPlanner, can_be_key
from .scan_refusal import scan_message

__all__ = ["MAX_FILTER_CHARACTERS", "PreparedPlan", "clipped", "divided", "plan_query", "region_of"]


# Two units at most per character: keys of templates, which escape what keys forbid, are possible if they are short.
_SHORT = MAX_KEY_UNITS // 2

# Characters of a filter with its values percent-encoded. How long a request line may be is not documented for the
# Table service; HTTP servers commonly refuse one beyond 16 KiB.
MAX_FILTER_CHARACTERS = 6_000

_ENCODED = re.compile(r"[^A-Za-z0-9_.~-]")


def plan_query(
    kinds: KindSet,
    where: Sequence[Expression],
    *,
    allow_scan: bool = False,
    select: Iterable[str] | None = None,
    span: KeyInterval | None = None,
    parallel: int = 1,
) -> QueryPlan:
    """
    Plan a query. What its shape tells is found out once; later it is planned from its values alone.

    Args:
        kinds: What is asked for.
        where: Conditions that all must hold.
        allow_scan: Whether it may visit every partition.
        select: Properties that are wanted; those that conditions need are added. None for all.
        span: Only keys of this audit_range.
        parallel: Into how many requests at least ranges are divided, where keys allow it.

    Raises:
        ScanRefused: It would visit every partition, and may not; says which condition is missing.
        EncodeError: A value does not fit the field that it is compared with.
    """
    shape, values = shape_of(where)
    recipe = kinds.recipes.get(shape)
    if recipe is None:
        recipe = _recipe(kinds, where, shape)
    names = None if select is None else tuple(select)
    if recipe.point is not None and span is None:
        partition_of, row_of, at = recipe.point
        partition, row = partition_of(values, at), row_of(values, at)
        if partition is None or row is None or (len(partition) + len(row) > _SHORT and not can_be_key(partition, row)):
            return QueryPlan(kinds, Access.NOTHING, (), names)
        return QueryPlan(kinds, POINT, (Point(partition, row),), names)
    found = None if recipe.points is None else recipe.points.find(values)
    if found is None:
        pieces = recipe.pieces_for(values)
        wanted = None if names is None else dict.fromkeys(names)
        found = [request for piece in pieces if (request := _request(piece, wanted)) is not None]
        if not allow_scan and any(isinstance(each, Range) and each.access is TABLE_SCAN for each in found):
            raise ScanRefused(scan_message(kinds, [filled(term, values) for term in recipe.terms]))
        if wanted is not None:  # only now is it known what the conditions of all of them need
            names = tuple(wanted)
            found = [_selecting(request, names) for request in found]
    if parallel > 1:
        found = [part for each in found for part in divided(kinds, each, math.ceil(parallel / len(found)))]
    if span is not None:
        found = [part for each in found for part in clipped(each, span)]
    return QueryPlan(kinds, _access_of(found), tuple(found), names)


def _selecting(request: Point | Range, names: tuple[str, ...]) -> Point | Range:
    if isinstance(request, Point):
        return request
    return attrs.evolve(request, query=attrs.evolve(request.query, select=names))


def _access_of(requests: Sequence[Point | Range]) -> Access:
    if not requests:
        return Access.NOTHING
    found = [request.access if isinstance(request, Range) else POINT for request in requests]
    if len(found) == 1:
        return found[0]
    worst = max(found, key=RANKS.__getitem__)
    return Access.POINTS if worst is POINT else worst


def region_of(request: Point | Range) -> KeyRegion:
    """The keys that a request asks for."""
    if isinstance(request, Point):
        return KeyRegion(Bounds.only(request.partition_key), Bounds.only(request.row_key))
    return KeyRegion(request.query.partition, request.query.row)


def clipped(request: Point | Range, span: KeyInterval) -> list[Point | Range]:
    """What of a request is inside of a audit_range of keys."""
    if isinstance(request, Point):
        return [request] if span.clip(region_of(request)) else []
    return [_narrowed(request, region) for region in span.clip(region_of(request))]


def _narrowed(request: Range, region: KeyRegion) -> Range:
    query = attrs.evolve(request.query, partition=region.partition, row=region.row)
    return attrs.evolve(
        request,
        query=query,
        access=Access.POINT if region.partition.point and region.row.point else request.access,
    )


def divided(kinds: KindSet, request: Point | Range, parts: int) -> list[Point | Range]:
    """A request as several of disjoint ranges, in order: at most about `parts`."""
    if isinstance(request, Point) or parts < 2:
        return [request]
    whole = region_of(request)
    if whole.partition.point:
        rows = divide(whole.row, [schema.row for schema in kinds.schemas] or [None], parts)
        return [_narrowed(request, KeyRegion(whole.partition, each)) for each in rows]
    partitions = divide(whole.partition, [schema.partition for schema in kinds.schemas] or [None], parts)
    return [_narrowed(request, KeyRegion(each, whole.row)) for each in partitions]


# Recipes: what the shape of a query tells


@attrs.frozen(eq=False)
class PreparedPlan:
    """
    What is known of the queries of a shape.

    Args:
        kinds: What is asked for.
        terms: The conditions as patterns in normal form, of which all must hold.
        points: How to find the points, if equalities and memberships give exactly the key fields of the one kind.
        point: The same if there is one: what writes PartitionKey and RowKey, and where their values are.
        pieces: How to find the regions of keys; None if no row can satisfy the conditions.
    """

    kinds: KindSet
    terms: tuple[Expression, ...]
    points: "PointPlanner | None"
    point: "tuple[Text, Text, tuple[int, ...]] | None"
    pieces: Pieces | None

    def pieces_for(self, values: Sequence[Any]) -> list[Piece]:
        """The regions of keys for these values."""
        if self.pieces is None:
            return []
        if self.pieces.fits(values):
            return self.pieces.find(values)
        # With so many values, that they are too many decides what is a request: a recipe of its own, used once.
        many = [slot_of(leaf).at for term in self.terms for leaf in leaves(term) if isinstance(leaf, Membership)]
        sizes = {at: len(dict.fromkeys(values[at])) for at in many}
        return Pieces(self.kinds, self.terms, sizes).find(values)


def _recipe(kinds: KindSet, where: Sequence[Expression], shape: Shape) -> PreparedPlan:
    """The recipe of a shape, which is kept if it is not too large."""
    for expression in where:
        refuse_other_tables(kinds, expression)
    terms = tuple(term for pattern in patterns(where) for term in conjuncts(normal(kinds, pattern)))
    never = any(term is FALSE for term in terms)
    pieces = None if never else Pieces(kinds, terms)
    points = PointPlanner.of(kinds, terms)
    point = None if points is None or points.many else (points.partition.text, points.row.text, points.at)
    recipe = PreparedPlan(kinds, terms, points, point, pieces)
    if not any(_may_grow(kinds, leaf) for expression in where for leaf in leaves(expression)):
        kinds.recipes.keep(shape, recipe, 1 + len(terms) if pieces is None else pieces.weight)
    return recipe


def _may_grow(kinds: KindSet, leaf: Expression) -> bool:
    """Whether a condition is about whatever classes an abstract base has, and more can be declared at any time."""
    if not isinstance(leaf, (Comparison, Membership, Presence)):
        return False
    named = schema_of(leaf.field.model)
    return named.abstract and (kinds.bags or not all(issubclass(s.model, named.model) for s in kinds.schemas))


def _request(piece: Piece, wanted: dict[str, None] | None) -> Point | Range | None:
    """
    The request of a piece, None if no row can satisfy its conditions; what they need is added to what is wanted.
    """
    partition, row, kinds, left = piece
    access = RANGE
    if not partition.point:
        access = TABLE_SCAN
    elif row.point:
        access = POINT
    elif row is kinds.rows or (row.lower is None and row.upper is None) or row == kinds.rows:
        access = PARTITION_SCAN
    if access is POINT and not left:
        assert partition.lower is not None
        assert row.lower is not None
        return Point(partition.lower, row.lower) if can_be_key(partition.lower, row.lower) else None
    filters: list[Filter] = []
    if access is not POINT and kinds.filter is not None:
        filters.append(kinds.filter)
    local = _divide(left, filters) if left else ()
    if len(filters) > 1 and _contradict(filters):
        return None
    if wanted is not None:
        for term, _ in local:
            wanted.update(dict.fromkeys(term.needs))
    where = None if not filters else filters[0] if len(filters) == 1 else And(tuple(filters))
    tests = tuple([term.local(values) for term, values in local]) if local else ()
    return Range(RowQuery(partition, row, where), access, tests)


def _divide(left: Sequence[Remaining], filters: list[Filter]) -> list[Remaining]:
    """Add the terms that are sent as filters; those that are evaluated here."""
    local: list[Remaining] = []
    sent: list[tuple[Remaining, Filter]] = []
    weight = 0
    for each in left:
        term, values = each
        node = term.send(values)
        if node is None:
            local.append(each)
        else:
            sent.append((each, node))
            weight += _weight(node)
    if weight > MAX_FILTER_CHARACTERS:
        # The heaviest stay here; a filter that is refused for its length helps nobody.
        room = MAX_FILTER_CHARACTERS
        heavy: list[Remaining] = []
        for each, node in sorted(sent, key=lambda pair: _weight(pair[1])):
            room -= _weight(node)
            if room < 0:
                heavy.append(each)
        sent = [pair for pair in sent if not any(pair[0] is each for each in heavy)]
        local += heavy
    filters += [node for _, node in sent]
    return local


def _contradict(filters: Sequence[Filter]) -> bool:
    """
    Whether a property would have to be equal to two constants of one type. Of two types it can be: numbers are
    promoted.
    """
    equal: dict[str, Constant] = {}
    for node in filters:
        if isinstance(node, Compare) and node.op is Op.EQ:
            first = equal.setdefault(node.property, node.constant)
            if first is not node.constant and first.type is node.constant.type and first.value != node.constant.value:
                return True
    return False


def _weight(node: Filter) -> int:
    """About how many characters a filter has."""
    if isinstance(node, Compare):
        value = node.constant.value
        if type(value) is str:
            # Percent-encoded, of what is not ASCII at most nine for each.
            length = len(value) + 2 * len(_ENCODED.findall(value)) if value.isascii() else 9 * len(value)
            return len(node.property) + length + 12
        return len(node.property) + (len(value) * 2 if isinstance(value, bytes) else 36) + 12
    if isinstance(node, Not):
        return 6 + _weight(node.term)
    return sum(5 + _weight(term) for term in node.terms)
