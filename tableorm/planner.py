"""
The planner: from conditions on fields to the requests that answer them best.

A pure function to a frozen plan. Conditions on fields that keys hold become bounds of the keys, alternatives among them
become requests of their own; what is left becomes a filter that the store evaluates; what the store cannot express is
evaluated here, on the rows that come back.
"""

import enum
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import product
from typing import Any

import attrs
import msgspec

from .conditions import FALSE, leaves, normal, refuse_other_tables
from .entity import schema_of
from .errors import ScanRefused
from .evaluating import Local
from .expressions import Comparison, Expression, Membership, Presence, conjuncts
from .forms import Form, Text
from .kinds import Kinds
from .pieces import MOST_REQUESTS, Piece, Pieces, Remaining
from .protocol.edm import utf16_key
from .protocol.filters import And, Compare, Constant, Filter, Not, Op
from .protocol.limits import MAX_KEY_UNITS, key_fault
from .ranges import Rectangle, Span, divide
from .schema import Schema
from .shapes import Shape, Slot, filled, patterns, shape_of, slot_of
from .stores import Bounds, RowQuery

__all__ = [
    "Access",
    "Point",
    "QueryPlan",
    "Range",
    "Recipe",
    "clipped",
    "divided",
    "plan_query",
    "rectangle_of",
]


class Access(enum.Enum):
    """How a query finds its rows, from best to worst. Source: table design guide, "Design for querying"."""

    NOTHING = "nothing"
    """No row can satisfy the conditions, and nothing is sent."""
    __hash__ = object.__hash__  # an enum's own is a function of Python, several times slower

    POINT = "point"
    POINTS = "points"
    RANGE = "range"
    PARTITION_SCAN = "partition scan"
    TABLE_SCAN = "table scan"


# To look up a member takes as long as a tenth of a plan for a point.
_POINT, _RANGE = Access.POINT, Access.RANGE
_PARTITION_SCAN, _TABLE_SCAN = Access.PARTITION_SCAN, Access.TABLE_SCAN
_RANKS = {access: rank for rank, access in enumerate(Access)}


# What is made for each point, and nothing else, are structs: they take a fraction of the time to make.
class Point(msgspec.Struct, frozen=True, gc=False):
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


class QueryPlan(msgspec.Struct, frozen=True, eq=False, dict=True):
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

    @cached_property
    def digests(self) -> dict[int | None, bytes]:
        """By limit, what cursors know the plan by, once it was asked for."""
        return {}


# Two units at most per character: keys of templates, which escape what keys forbid, are possible if they are short.
_SHORT = MAX_KEY_UNITS // 2

# Characters of a filter with its values percent-encoded. How long a request line may be is not documented for the
# Table service; HTTP servers commonly refuse one beyond 16 KiB.
MAX_FILTER_CHARACTERS = 6_000
_ENCODED = re.compile(r"[^A-Za-z0-9_.~-]")


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
    Plan a query. What its shape tells is found out once; later it is planned from its values alone.

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
    shape, values = shape_of(where)
    recipe = kinds.recipes.get(shape)
    if recipe is None:
        recipe = _recipe(kinds, where, shape)
    names = None if select is None else tuple(select)
    if recipe.point is not None and span is None:
        partition_of, row_of, at = recipe.point
        partition, row = partition_of(values, at), row_of(values, at)
        if partition is None or row is None or (len(partition) + len(row) > _SHORT and not _can_be(partition, row)):
            return QueryPlan(kinds, Access.NOTHING, (), names)
        return QueryPlan(kinds, _POINT, (Point(partition, row),), names)
    found = None if recipe.points is None else recipe.points.find(values)
    if found is None:
        pieces = recipe.pieces_for(values)
        wanted = None if names is None else dict.fromkeys(names)
        found = [request for piece in pieces if (request := _request(piece, wanted)) is not None]
        if not allow_scan and any(isinstance(each, Range) and each.access is _TABLE_SCAN for each in found):
            raise ScanRefused(_scan_message(kinds, [filled(term, values) for term in recipe.terms]))
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
    found = [request.access if isinstance(request, Range) else _POINT for request in requests]
    if len(found) == 1:
        return found[0]
    worst = max(found, key=_RANKS.__getitem__)
    return Access.POINTS if worst is _POINT else worst


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


# Recipes: what the shape of a query tells


@attrs.frozen(eq=False)
class Recipe:
    """
    What is known of the queries of a shape.

    Args:
        kinds: What is asked for.
        terms: The conditions as patterns in normal form, of which all must hold.
        points: How to find the points, if equalities and memberships give exactly the key fields of the one kind.
        point: The same if there is one: what writes PartitionKey and RowKey, and where their values are.
        pieces: How to find the rectangles of keys; None if no row can satisfy the conditions.
    """

    kinds: Kinds
    terms: tuple[Expression, ...]
    points: "_Points | None"
    point: "tuple[Text, Text, tuple[int, ...]] | None"
    pieces: Pieces | None

    def pieces_for(self, values: Sequence[Any]) -> list[Piece]:
        """The rectangles of keys for these values."""
        if self.pieces is None:
            return []
        if self.pieces.fits(values):
            return self.pieces.find(values)
        # With so many values, that they are too many decides what is a request: a recipe of its own, used once.
        many = [slot_of(leaf).at for term in self.terms for leaf in leaves(term) if isinstance(leaf, Membership)]
        sizes = {at: len(dict.fromkeys(values[at])) for at in many}
        return Pieces(self.kinds, self.terms, sizes).find(values)


def _recipe(kinds: Kinds, where: Sequence[Expression], shape: Shape) -> Recipe:
    """The recipe of a shape, which is kept if it is not too large."""
    for expression in where:
        refuse_other_tables(kinds, expression)
    terms = tuple(term for pattern in patterns(where) for term in conjuncts(normal(kinds, pattern)))
    never = any(term is FALSE for term in terms)
    pieces = None if never else Pieces(kinds, terms)
    points = _Points.of(kinds, terms)
    point = None if points is None or points.many else (points.partition.text, points.row.text, points.at)
    recipe = Recipe(kinds, terms, points, point, pieces)
    if not any(_may_grow(kinds, leaf) for expression in where for leaf in leaves(expression)):
        kinds.recipes.keep(shape, recipe, 1 + len(terms) if pieces is None else pieces.weight)
    return recipe


def _may_grow(kinds: Kinds, leaf: Expression) -> bool:
    """Whether a condition is about whatever classes an abstract base has, and more can be declared at any time."""
    if not isinstance(leaf, (Comparison, Membership, Presence)):
        return False
    named = schema_of(leaf.field.model)
    return named.abstract and (kinds.bags or not all(issubclass(s.model, named.model) for s in kinds.schemas))


@attrs.frozen(eq=False)
class _Points:
    """
    Equalities and memberships that are exactly the key fields of the one kind, each of which a key holds in full.

    Args:
        partition: The PartitionKeys.
        row: The RowKeys.
        at: Where the values of each term are.
        many: Where there are several values each; of those, which are of which key.
        apart: Whether no field is in both keys.
    """

    partition: Form
    row: Form
    at: tuple[int, ...]
    many: tuple[int, ...]
    many_partitions: tuple[int, ...]
    many_rows: tuple[int, ...]
    apart: bool

    @classmethod
    def of(cls, kinds: Kinds, terms: Sequence[Expression]) -> "_Points | None":
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
        if partition is not None and row is not None and _can_be(partition, row):
            yield partition, row

    def _texts(self, form: Form, values: Sequence[Any], many: Sequence[int]) -> Sequence[str]:
        """The keys of each choice of values, in order, each once."""
        found = {
            text
            for each in self._each(values, many)
            if (text := form.text(each, self.at)) is not None and _can_be(text)
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


def _can_be(*keys: str) -> bool:
    """Whether rows can have such keys; a request for others would be refused."""
    return not any(map(key_fault, keys))


def _request(piece: Piece, wanted: dict[str, None] | None) -> Point | Range | None:
    """
    The request of a piece, None if no row can satisfy its conditions; what they need is added to what is wanted.
    """
    partition, row, kinds, left = piece
    access = _RANGE
    if not partition.point:
        access = _TABLE_SCAN
    elif row.point:
        access = _POINT
    elif row is kinds.rows or (row.lower is None and row.upper is None) or row == kinds.rows:
        access = _PARTITION_SCAN
    if access is _POINT and not left:
        assert partition.lower is not None
        assert row.lower is not None
        return Point(partition.lower, row.lower) if _can_be(partition.lower, row.lower) else None
    filters: list[Filter] = []
    if access is not _POINT and kinds.filter is not None:
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


def _index_that_serves(schema: Schema, given: AbstractSet[str]) -> str:
    """Which index the conditions are for, once the partition is given."""
    for index in schema.indexes.values():
        if index.row is not None and index.row.fields and index.row.fields[0] in given and not index.index.building:
            return f", which {index.name} would serve then"
    return ""


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
                f"{' and '.join(missing)}, of which partition_key {template.text!r} is made; add .where({wanted})"
                f"{_index_that_serves(schema, given)}, or .allow_scan() if a scan is meant"
            )
    return (
        f"{names}: the query visits every partition of table {kinds.table}; add conditions that give one PartitionKey, "
        "or .allow_scan() if a scan is meant"
    )
