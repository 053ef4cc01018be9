"""
The planner: from conditions on fields to the requests that answer them best.

A pure function to a frozen plan. Conditions on fields that keys hold become bounds of the keys, alternatives among them
become requests of their own; what is left becomes a filter that the store evaluates; what the store cannot express is
evaluated here, on the rows that come back.
"""

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import attrs

from .conditions import FALSE, Test, normal, properties_of, refuse_other_tables, to_filter, to_test
from .errors import ScanRefused
from .expressions import AllOf, AnyOf, Comparison, Expression, Membership, conjuncts
from .kinds import Kinds
from .pieces import MOST_REQUESTS, Piece, pieces_of
from .protocol.edm import utf16_key
from .protocol.filters import And, Compare, Filter, Not, Op
from .ranges import EVERYTHING, Rectangle, Span, divide
from .stores import Bounds, RowQuery

__all__ = ["Access", "Local", "Point", "QueryPlan", "Range", "clipped", "divided", "plan_query", "rectangle_of"]


class Access(enum.Enum):
    """How a query finds its rows, from best to worst. Source: table design guide, "Design for querying"."""

    NOTHING = "nothing"
    """No row can satisfy the conditions, and nothing is sent."""
    POINT = "point"
    POINTS = "points"
    RANGE = "range"
    PARTITION_SCAN = "partition scan"
    TABLE_SCAN = "table scan"


_RANKS = {access: rank for rank, access in enumerate(Access)}


@attrs.frozen(eq=False)
class Local:
    """
    A condition that is evaluated here.

    Args:
        condition: As it was written.
        test: Rows that answer True are results.
    """

    condition: Expression
    test: Test


@attrs.frozen
class Point:
    """A request for one row by its keys."""

    partition_key: str
    row_key: str


@attrs.frozen(eq=False)
class Range:
    """
    A request for the rows of a stretch of keys that satisfy a filter, page by page.

    Args:
        query: What the store is asked.
        access: How it finds the rows.
        local: What rows must satisfy besides.
    """

    query: RowQuery
    access: Access
    local: tuple[Local, ...] = ()


@attrs.frozen(eq=False)
class QueryPlan:
    """
    What a query sends, and what is left to do with what comes back.

    Args:
        kinds: The kinds it asks for.
        access: How rows are found; of several requests the costliest.
        requests: In key order: every key of one is before every key of the next.
        select: The properties that are asked for; None for all.
    """

    kinds: Kinds
    access: Access
    requests: tuple[Point | Range, ...]
    select: tuple[str, ...] | None = None
    digests: dict[int | None, bytes] = attrs.field(init=False, factory=lambda: {})  # noqa: PIE807 - of known type
    """By limit, what cursors know the plan by, once it was asked for."""


# Characters of a filter before percent-encoding. How long a request line may be is not documented for the Table
# service; HTTP servers commonly refuse one beyond 16 KiB, and encoding makes text longer.
MAX_FILTER_CHARACTERS = 6_000


def plan_query(
    kinds: Kinds,
    where: Sequence[Expression],
    *,
    allow_scan: bool = False,
    select: Iterable[str] | None = None,
    span: Span | None = None,
    parallel: int = 1,
) -> QueryPlan:
    """
    Plan a query.

    Args:
        kinds: What is asked for.
        where: Conditions that all must hold.
        allow_scan: Whether it may visit every partition.
        select: Properties that are wanted; those that conditions need are added. None for all.
        span: Only keys of this stretch.
        parallel: Into how many requests at least ranges are divided, where keys allow it.

    Raises:
        ScanRefused: It would visit every partition, and may not; says which condition is missing.
        EncodeError: A value does not fit the field that it is compared with.
    """
    if where and len(where) == len(kinds.point_shape) and span is None:
        point = _known_point(kinds, where)
        if point is not None:
            return QueryPlan(kinds, Access.POINT, (point,), None if select is None else tuple(select))
    terms = _terms(kinds, where)
    points = _all_points(kinds, terms)
    if points is not None:
        found: list[Point | Range] = list(points)
        names = None if select is None else tuple(select)
    else:
        pieces = [] if any(term is FALSE for term in terms) else pieces_of(kinds, terms)
        if pieces and not allow_scan and not all(piece.rectangle.partition.point for piece in pieces):
            raise ScanRefused(_scan_message(kinds, terms))
        wanted = None if select is None else dict.fromkeys(select)
        found = [_request(kinds, piece, wanted) for piece in pieces]
        names = None if wanted is None else tuple(wanted)
        if names is not None:  # only now is it known what the conditions of all of them need
            found = [_selecting(request, names) for request in found]
    if parallel > 1:
        found = [part for each in found for part in divided(kinds, each, math.ceil(parallel / len(found)))]
    if span is not None:
        found = [part for each in found for part in clipped(each, span)]
    return QueryPlan(kinds, _access_of(found), tuple(found), names)


def _terms(kinds: Kinds, where: Sequence[Expression]) -> list[Expression]:
    """The conditions in normal form, one by one."""
    terms: list[Expression] = []
    own = kinds.own_fields
    for expression in where:
        parts = expression.terms if type(expression) is AllOf else (expression,)
        if own and _is_plain(own, parts):
            terms += parts  # in normal form as it is: the commonest case, several times faster
            continue
        refuse_other_tables(kinds, expression)
        terms += conjuncts(normal(kinds, expression))
    return terms


def _is_plain(own: Mapping[int, str], terms: Iterable[Expression]) -> bool:
    """Whether terms are comparisons of the one kind's own fields, and these combined without negation."""
    for term in terms:
        if type(term) is Comparison:
            if id(term.field) not in own:
                return False
        elif type(term) is not AnyOf or not term.terms or not _is_plain(own, term.terms):
            return False
    return True


def _selecting(request: Point | Range, names: tuple[str, ...]) -> Point | Range:
    if isinstance(request, Point):
        return request
    return attrs.evolve(request, query=attrs.evolve(request.query, select=names))


def _access_of(requests: Sequence[Point | Range]) -> Access:
    if not requests:
        return Access.NOTHING
    worst = max((r.access if isinstance(r, Range) else Access.POINT for r in requests), key=_RANKS.__getitem__)
    return Access.POINTS if worst is Access.POINT and len(requests) > 1 else worst


def rectangle_of(request: Point | Range) -> Rectangle:
    """The keys that a request asks for."""
    if isinstance(request, Point):
        return Rectangle(Bounds.only(request.partition_key), Bounds.only(request.row_key))
    return Rectangle(request.query.partition, request.query.row)


def clipped(request: Point | Range, span: Span) -> list[Point | Range]:
    """What of a request is inside of a stretch of keys."""
    if isinstance(request, Point):
        return [request] if span.clip(rectangle_of(request)) else []
    return [_narrowed(request, rectangle) for rectangle in span.clip(rectangle_of(request))]


def _narrowed(request: Range, rectangle: Rectangle) -> Range:
    query = attrs.evolve(request.query, partition=rectangle.partition, row=rectangle.row)
    return attrs.evolve(
        request,
        query=query,
        access=Access.POINT if rectangle.partition.point and rectangle.row.point else request.access,
    )


def divided(kinds: Kinds, request: Point | Range, parts: int) -> list[Point | Range]:
    """A request as several of disjoint ranges, in order: at most about `parts`."""
    if isinstance(request, Point) or parts < 2:
        return [request]
    whole = rectangle_of(request)
    if whole.partition.point:
        rows = divide(whole.row, [schema.row for schema in kinds.schemas] or [None], parts)
        return [_narrowed(request, Rectangle(whole.partition, each)) for each in rows]
    partitions = divide(whole.partition, [schema.partition for schema in kinds.schemas] or [None], parts)
    return [_narrowed(request, Rectangle(each, whole.row)) for each in partitions]


# Points: every key field is given


def _known_point(kinds: Kinds, where: Sequence[Expression]) -> Point | None:
    """The point of equalities that are exactly the key fields of the one kind: by far the commonest query."""
    shape = kinds.point_shape
    values: dict[str, Any] = {}
    for term in where:
        if type(term) is not Comparison or term.op is not Op.EQ:
            return None
        name = shape.get(id(term.field))
        if name is None:
            return None
        values[name] = term.value
    if len(values) != len(shape):
        return None
    try:
        return Point(*kinds.schemas[0].make_keys(values))
    except ValueError:
        return None  # out of the format's range, or of another type: the long way round knows


def _all_points(kinds: Kinds, terms: Sequence[Expression]) -> list[Point] | None:
    """The points of equalities and memberships that are exactly the key fields of the one kind, in key order."""
    shape = kinds.point_shape
    given: dict[str, tuple[Any, ...]] = {}
    for term in terms:
        if isinstance(term, Comparison) and term.op is Op.EQ:
            values: tuple[Any, ...] = (term.value,)
        elif isinstance(term, Membership) and not term.negated:
            values = term.values
        else:
            return None
        name = shape.get(id(term.field))
        if name is None or name in given:
            return None
        given[name] = values
    if not shape or len(given) != len(shape) or math.prod(map(len, given.values())) > MOST_REQUESTS:
        return None
    make_keys, names = kinds.schemas[0].make_keys, list(given)
    try:
        keys = {make_keys(dict(zip(names, choice, strict=True))) for choice in product(*given.values())}
    except ValueError:
        return None
    ordered = sorted(keys, key=lambda key: (utf16_key(key[0]), utf16_key(key[1]))) if len(keys) > 1 else keys
    return [Point(*key) for key in ordered]


# Requests


def _access(kinds: Kinds, rectangle: Rectangle) -> Access:
    if not rectangle.partition.point:
        return Access.TABLE_SCAN
    if rectangle.row.point:
        return Access.POINT
    return Access.PARTITION_SCAN if rectangle.row in (EVERYTHING, kinds.rows) else Access.RANGE


def _request(kinds: Kinds, piece: Piece, wanted: dict[str, None] | None) -> Point | Range:
    """The request of a piece; what its conditions need is added to what is wanted."""
    rectangle = piece.rectangle
    access = _access(piece.kinds, rectangle)
    if access is Access.POINT and not piece.left:
        assert rectangle.partition.lower is not None
        assert rectangle.row.lower is not None
        return Point(rectangle.partition.lower, rectangle.row.lower)
    filters: list[Filter] = []
    if access is not Access.POINT and piece.kinds.filter is not None:
        filters.append(piece.kinds.filter)
    local: list[Expression] = []
    if piece.left:
        _divide_terms(kinds, piece, filters, local)
    if wanted is not None:
        for term in local:
            wanted.update(dict.fromkeys(properties_of(kinds, term)))
    where = None if not filters else filters[0] if len(filters) == 1 else And(tuple(filters))
    tests = tuple(Local(term, to_test(kinds, term)) for term in local)
    return Range(RowQuery(rectangle.partition, rectangle.row, where), access, tests)


def _divide_terms(kinds: Kinds, piece: Piece, filters: list[Filter], local: list[Expression]) -> None:
    """Which terms are sent as filters, and which are evaluated here."""
    sent: list[tuple[int, Expression, Filter]] = []
    for term in piece.left:
        node = to_filter(kinds, term, piece.given)
        if node is None:
            local.append(term)
        else:
            sent.append((_weight(node), term, node))
    if sum(weight for weight, _, _ in sent) > MAX_FILTER_CHARACTERS:
        # The heaviest stay here; a filter that is refused for its length helps nobody.
        room = MAX_FILTER_CHARACTERS
        for weight, term, _ in sorted(sent, key=lambda each: each[0]):
            room -= weight
            if room < 0:
                local.append(term)
    filters += (node for _, term, node in sent if term not in local)


def _weight(node: Filter) -> int:
    """About how many characters a filter has."""
    if isinstance(node, Compare):
        value = node.constant.value
        if isinstance(value, str):
            return len(node.property) + (len(value) if value.isascii() else 9 * len(value)) + 12  # percent-encoded
        return len(node.property) + (len(value) * 2 if isinstance(value, bytes) else 36) + 12
    if isinstance(node, Not):
        return 6 + _weight(node.term)
    return sum(5 + _weight(term) for term in node.terms)


def _scan_message(kinds: Kinds, terms: Sequence[Expression]) -> str:
    names = " and ".join(schema.name for schema in kinds.schemas) or "PropertyBag"
    given = {
        term.field.name
        for term in terms
        if (isinstance(term, Comparison) and term.op is Op.EQ) or (isinstance(term, Membership) and not term.negated)
    }
    many = next((t for t in terms if isinstance(t, Membership) and len(t.values) > MOST_REQUESTS), None)
    if many is not None:
        return (
            f"{names}: the query visits every partition of table {kinds.table}, because {many} has more than "
            f"{MOST_REQUESTS} values, too many for a request each; ask for fewer at a time, or .allow_scan() if a scan "
            "is meant"
        )
    for schema in kinds.schemas:
        template = schema.partition
        missing = [field for field in template.fields if field not in given] if template is not None else []
        if template is not None and missing:
            wanted = ", ".join(f"{schema.name}.{field} == ..." for field in missing)
            return (
                f"{names}: the query visits every partition of table {kinds.table}, because it has no equality on "
                f"{' and '.join(missing)}, of which partition_key {template.text!r} is made; add .where({wanted}), or "
                ".allow_scan() if a scan is meant"
            )
    return (
        f"{names}: the query visits every partition of table {kinds.table}; add conditions that give one PartitionKey, "
        "or .allow_scan() if a scan is meant"
    )
