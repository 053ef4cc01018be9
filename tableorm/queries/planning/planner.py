"""
The planner: from conditions on fields to the requests that answer them best.

Conditions on fields that keys hold become bounds of the keys, alternatives among them become requests of their own;
what is left becomes a filter that the store evaluates; what the store cannot express is evaluated here, on the rows
that come back. A plan depends on nothing but the conditions and the models.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import attrs

from ...expressions import Expression, FieldTerm, conjuncts
from ...keys.ranges import KeyInterval
from ...keys.template import MAX_BUCKETS
from ...models.entity import schema_of
from ...models.kinds import KindSet
from ...protocol.filters import And, Compare, Constant, Filter, Not, Op
from ...stores import Row, RowQuery
from .alternatives import MAX_ALTERNATIVES, Alternative, Alternatives, Residual
from .client_filter import ClientFilter, make_test
from .elements import once, with_once
from .normalize import FALSE, leaves, normalize, refuse_other_models
from .parameters import QueryShape, bind, parameterise, shape_of
from .partition import clip_request, divide_requests
from .plan import RANKS, Access, Point, QueryPlan, Range, Scans
from .points import PointPlanner, can_be_key, make_point
from .scan_refusal import scan_error, too_many_buckets_error, too_many_error
from .target import QueryTarget

# Characters of a filter with its values percent-encoded. How long a request line may be is not documented for the
# Table service; HTTP servers commonly refuse one beyond 16 KiB.
MAX_FILTER_CHARACTERS = 6_000

# How much of the prepared plans of a target is kept, about a kilobyte each: one for each alternative and each of its
# terms.
_CACHE_CAPACITY = 4_000

# To look up a member takes a tenth of `benchmarks.run planning`, a point.
_POINT = Access.POINT
_PARTITION_RANGE, _TABLE_SCAN = Access.PARTITION_RANGE, Access.TABLE_SCAN

_ENCODED = re.compile(r"[^A-Za-z0-9_.~-]")


@attrs.frozen(eq=False)
class _PreparedPlan:
    """
    What the shape of a query tells, whatever its values.

    Args:
        terms: The parameterised conditions in normal form, of which all must hold.
        points: How to find the points, if equalities and memberships give exactly the key fields of the one kind.
        alternatives: How to find the regions of keys; None if no row can satisfy the conditions.
    """

    terms: tuple[Expression, ...]
    points: PointPlanner | None
    alternatives: Alternatives | None


class _PlanCache:
    """
    The prepared plans of query shapes, up to a total weight. When there is no room left, the cache begins anew.

    A program has as many shapes as its text has queries, which is few. What makes shapes without end, such as an `or`
    of whatever a user ticked, cannot fill the memory.

    Args:
        capacity: The total weight that is kept.
    """

    def __init__(self, capacity: int) -> None:
        self._plans: dict[QueryShape, _PreparedPlan] = {}
        self._capacity = self._room = capacity
        self.get: Callable[[QueryShape], _PreparedPlan | None] = self._plans.get
        """Return the prepared plan of a shape; None if the cache has none."""

    def keep(self, shape: QueryShape, plan: _PreparedPlan, weight: int) -> None:
        """Keep the prepared plan of a shape, unless its weight is more than a tenth of the capacity."""
        if weight * 10 > self._capacity:
            return
        if weight > self._room:
            self._plans.clear()
            self._room = self._capacity
        self._plans[shape] = plan
        self._room -= weight

    def __len__(self) -> int:
        return len(self._plans)


class Planner:
    """
    The planner of the queries for one target. What the shape of a query tells is found out once.

    Args:
        target: What the queries ask for.

    Attributes:
        target: What the queries ask for.
        plans: The prepared plans of the shapes that were planned.
    """

    def __init__(self, target: QueryTarget) -> None:
        self.target = target
        self.plans: _PlanCache = _PlanCache(_CACHE_CAPACITY)

    def plan(
        self,
        where: Sequence[Expression],
        *,
        allow_scan: Scans = False,
        select: Iterable[str] | None = None,
        interval: KeyInterval | None = None,
        parallel: int = 1,
    ) -> QueryPlan:
        """
        Plan a query.

        Args:
            where: Conditions that all must hold.
            allow_scan: Whether it may visit every partition, or "range" for those of a range alone.
            select: Properties that are wanted; those that conditions need are added. None for all.
            interval: The keys that the query is limited to; None for all.
            parallel: Into how many requests ranges are divided at least, where keys allow it.

        Raises:
            ScanRefused: It would visit every partition, or those of a range, and may not; or it has too many
                alternatives. The message says what to change.
            EncodeError: A value does not fit the field that it is compared with.
            ModelError: A condition nests too deep.
        """
        shape, values = shape_of(where)
        prepared = self.plans.get(shape)
        if prepared is None:
            prepared = self._prepare(where, shape)
        names = None if select is None else tuple(select)
        points = prepared.points
        if points is not None and not points.many and interval is None:
            point = make_point(points.partition.text(values, points.at), points.row.text(values, points.at))
            if point is None:
                return QueryPlan(self.target, Access.NOTHING, (), names)
            return QueryPlan(self.target, _POINT, (point,), names)
        found = None if points is None else points.find(values)
        merged = False
        first: Callable[[Row, Row], bool] | None = None
        if found is None:
            alternatives = prepared.alternatives
            count = 0 if alternatives is None else alternatives.count(values)
            if count is None or count > MAX_ALTERNATIVES:
                if allow_scan is not True:
                    raise too_many_error(self.target, count)
                alternatives = Alternatives(self.target, prepared.terms, divide=False)
            regions = [] if alternatives is None else alternatives.find(values)
            if alternatives is not None and alternatives.has_buckets:
                partitions = _count_merged(regions)
                if partitions > MAX_BUCKETS:
                    if allow_scan is not True:
                        raise too_many_buckets_error(self.target, partitions)
                    regions = Alternatives(self.target, prepared.terms, by_bucket=False).find(values)
                merged = 1 < partitions <= MAX_BUCKETS
            wanted = None if names is None else dict.fromkeys(names)
            found = [request for each in regions if (request := _make_request(self.target, each, wanted)) is not None]
            if allow_scan is not True:
                scan = _find_scan(found)
                if scan is _TABLE_SCAN or (scan is not None and not allow_scan):
                    terms = [bind(term, values) for term in prepared.terms]
                    raise scan_error(self.target, terms, in_range=scan is _PARTITION_RANGE)
            if self.target.elements and (rule := once(self.target, prepared.terms, found)) is not None:
                if self.target.fetches_primaries:
                    first = rule.keeps
                else:
                    found = [with_once(each, rule) for each in found]
                    if wanted is not None:
                        wanted.update(dict.fromkeys(rule.properties))
            if wanted is not None:  # only now is it known what the conditions of all of them need
                names = tuple(wanted)
                found = [_select_properties(request, names) for request in found]
        if parallel > 1:
            found = divide_requests(self.target, found, parallel)
        if interval is not None:
            found = [part for each in found for part in clip_request(each, interval)]
        return QueryPlan(self.target, _worst_access(found), tuple(found), names, merged, first)

    def _prepare(self, where: Sequence[Expression], shape: QueryShape) -> _PreparedPlan:
        """Find out what a shape tells, and keep it if it is not too large."""
        target = self.target
        for expression in where:
            refuse_other_models(target, expression)
        terms = tuple(conjuncts(normalize(target, each) for each in parameterise(where)))
        alternatives = None if any(term is FALSE for term in terms) else Alternatives(target, terms)
        prepared = _PreparedPlan(terms, PointPlanner.of(target, terms), alternatives)
        if not any(_may_change(target, leaf) for expression in where for leaf in leaves(expression)):
            self.plans.keep(shape, prepared, 1 + len(terms) if alternatives is None else alternatives.weight)
        return prepared


@lru_cache(maxsize=256)
def planner_of(kinds: KindSet) -> Planner:
    """Return the planner for a set of kinds, the same one each time, so that it knows what was planned before."""
    return Planner(QueryTarget(kinds))


def _may_change(target: QueryTarget, leaf: Expression) -> bool:
    """Return whether a condition is about all classes of an abstract base, of which more can be declared later."""
    if not isinstance(leaf, FieldTerm):
        return False
    named = schema_of(leaf.field.model)
    return named.abstract and (target.bags or not all(issubclass(s.model, named.model) for s in target.schemas))


def _count_merged(regions: Sequence[Alternative]) -> int:
    """Return how many partitions are read, if all are named; otherwise 0: then nothing can be merged."""
    if not all(each.partition.point for each in regions):
        return 0
    return len({each.partition.lower for each in regions})


def _find_scan(requests: Sequence[Point | Range]) -> Access | None:
    """Return the costliest access of the requests that must be allowed; None if there is none."""
    found = {each.access for each in requests if isinstance(each, Range)}
    return _TABLE_SCAN if _TABLE_SCAN in found else _PARTITION_RANGE if _PARTITION_RANGE in found else None


def _worst_access(requests: Sequence[Point | Range]) -> Access:
    if not requests:
        return Access.NOTHING
    found = [request.access if isinstance(request, Range) else Access.POINT for request in requests]
    worst = max(found, key=RANKS.__getitem__)
    return Access.POINTS if worst is Access.POINT and len(found) > 1 else worst


def _make_request(
    planned: QueryTarget, alternative: Alternative, wanted: dict[str, None] | None
) -> Point | Range | None:
    """
    Return the request of an alternative; None if no row can satisfy its conditions.

    Args:
        planned: What the query asks for.
        alternative: The region of keys, and the conditions that are left.
        wanted: The properties that are asked for; those that the conditions need are added. None for all.
    """
    partition, row, target = alternative.partition, alternative.row, alternative.target
    access = Access.RANGE
    # An interval that ends where it begins is one key.
    if partition.lower is None or partition.lower != partition.upper:
        access = _TABLE_SCAN if partition == target.partition_keys else _PARTITION_RANGE
    elif row.lower is not None and row.lower == row.upper:
        if not alternative.residuals:
            return Point(partition.lower, row.lower) if can_be_key(partition.lower) and can_be_key(row.lower) else None
        access = Access.POINT
    elif row == target.row_keys:
        access = Access.PARTITION_SCAN
    filters: list[Filter] = []
    if access is not Access.POINT and target.filter is not None:
        filters.append(target.filter)
    client_filters, drops_few = _push_down(planned, alternative.residuals, filters, wanted)
    if _contradict(filters):
        return None
    where = None if not filters else filters[0] if len(filters) == 1 else And(tuple(filters))
    return Range(RowQuery(partition, row, where), access, client_filters, drops_few)


def _push_down(
    target: QueryTarget, residuals: Sequence[Residual], filters: list[Filter], wanted: dict[str, None] | None
) -> tuple[tuple[ClientFilter, ...], bool]:
    """
    Divide the conditions that are left among the store and this program.

    Args:
        target: What the query asks for.
        residuals: The conditions.
        filters: The filters that the store evaluates; those of the conditions are added while there is room.
        wanted: The properties that are asked for; those of conditions that are evaluated here are added. None for all.

    Returns:
        What is evaluated here, and whether few rows fail it.
    """
    found: list[ClientFilter] = []
    drops_few = True
    room = MAX_FILTER_CHARACTERS
    for residual in residuals:
        predicate, values = residual.predicate, residual.values
        node = predicate.build_filter(values)
        if node is not None and (size := _count_characters(node)) <= room:
            filters.append(node)
            room -= size
            continue
        condition = predicate.bind(values)
        found.append(ClientFilter(condition, make_test(target, condition)))
        drops_few = drops_few and predicate.bounds_keys
        if wanted is not None:
            wanted.update(dict.fromkeys(predicate.properties))
    return tuple(found), drops_few


def _select_properties(request: Point | Range, names: tuple[str, ...]) -> Point | Range:
    if isinstance(request, Point):
        return request
    return attrs.evolve(request, query=attrs.evolve(request.query, select=names))


def _contradict(filters: Sequence[Filter]) -> bool:
    """
    Return whether a property would have to be equal to two constants of one type.

    To two constants of different types it can be equal: numbers are promoted.
    """
    equal: dict[str, Constant] = {}
    for node in filters:
        if isinstance(node, Compare) and node.op is Op.EQ:
            first = equal.setdefault(node.property, node.constant)
            if first is not node.constant and first.type is node.constant.type and first.value != node.constant.value:
                return True
    return False


def _count_characters(node: Filter) -> int:
    """Return about how many characters a filter has, percent-encoded."""
    if isinstance(node, Compare):
        value = node.constant.value
        if type(value) is str:
            # Each character that is not ASCII takes at most nine.
            length = len(value) + 2 * len(_ENCODED.findall(value)) if value.isascii() else 9 * len(value)
            return len(node.property) + length + 12
        return len(node.property) + (len(value) * 2 if isinstance(value, bytes) else 36) + 12
    if isinstance(node, Not):
        return 6 + _count_characters(node.term)
    return sum(5 + _count_characters(term) for term in node.terms)
