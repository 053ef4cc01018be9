"""
The planner: from conditions on fields to the one request that answers them best.

A pure function to a frozen plan. Conditions on fields that keys hold become bounds of the keys; what is left becomes a
filter that the store evaluates; what the store cannot express is evaluated here, on the rows that come back.
"""

import datetime as dt
import enum
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import attrs

from .declare import concrete
from .entity import schema_of
from .errors import EncodeError, ScanRefused
from .expressions import AllOf, AnyOf, Comparison, Expression, NoneOf, conjuncts
from .kinds import Kinds
from .protocol.edm import ANNOTATION, Edm, utf16_key
from .protocol.filters import And, Compare, Constant, Filter, Not, Op, Or, compile_filter, constant
from .schema import FieldInfo, Schema
from .stores import Bounds, Row, RowQuery
from .templates import Condition, KeyBounds, Template, outside, successor

__all__ = ["Access", "QueryPlan", "plan_query"]

Test = Callable[[Row], bool | None]


class Access(enum.Enum):
    """How a query finds its rows, from best to worst. Source: table design guide, "Design for querying"."""

    POINT = "point"
    RANGE = "range"
    PARTITION_SCAN = "partition scan"
    TABLE_SCAN = "table scan"


@attrs.frozen(eq=False)
class QueryPlan:
    """
    What a query sends, and what is left to do with what comes back.

    Args:
        kinds: The kinds it asks for.
        access: How rows are found; None if no row can satisfy the conditions, and nothing is sent.
        query: What the store is asked.
        residual: Conditions that are evaluated here; rows that answer True are results.
    """

    kinds: Kinds
    access: Access | None
    query: RowQuery
    residual: tuple[Test, ...]


def plan_query(kinds: Kinds, where: Sequence[Expression], *, allow_scan: bool = False) -> QueryPlan:
    """
    Plan a query.

    Args:
        kinds: What is asked for.
        where: Conditions that all must hold.
        allow_scan: Whether it may visit every partition.

    Raises:
        ScanRefused: It would, and may not; says which condition is missing.
        EncodeError: A value does not fit the field that it is compared with.
    """
    terms = [term for expression in where for term in conjuncts(expression)]
    partition, row, exact = _key_bounds(kinds, terms)
    if partition is None or row is None:
        return QueryPlan(kinds, None, RowQuery(), ())
    access = _access(partition, row)
    if access is Access.TABLE_SCAN and not allow_scan:
        raise ScanRefused(_scan_message(kinds, terms))
    filters: list[Filter] = [] if kinds.filter is None or access is Access.POINT else [kinds.filter]
    residual: list[Test] = []
    for index, term in enumerate(terms):
        if index in exact:
            continue
        node = _to_filter(term)
        if node is not None:
            filters.append(node)
        else:
            residual.append(_to_test(term))
    where_filter = None if not filters else filters[0] if len(filters) == 1 else And(tuple(filters))
    return QueryPlan(kinds, access, RowQuery(partition, row, where_filter), tuple(residual))


def _access(partition: Bounds, row: Bounds) -> Access:
    if not partition.point:
        return Access.TABLE_SCAN
    if row.point:
        return Access.POINT
    return Access.PARTITION_SCAN if row == Bounds() else Access.RANGE


def _key_bounds(kinds: Kinds, terms: Sequence[Expression]) -> tuple[Bounds | None, Bounds | None, set[int]]:
    """The hull of the keys of all kinds, and which terms hold for every key inside."""
    schemas: list[Schema | None] = list(kinds.schemas)
    if kinds.bags:
        schemas.append(None)  # rows of any kind: only the conditions themselves bound them
    exact: set[int] | None = None
    partitions: list[Bounds] = []
    rows: list[Bounds] = []
    for schema in schemas:
        found = _bounds_of(schema, terms)
        if found is None:
            continue  # no row of this kind can satisfy the conditions
        partition, row, held = found
        partitions.append(partition)
        rows.append(row)
        exact = held if exact is None else exact & held
    if exact is None:
        return None, None, set()
    partition_hull, row_hull = _hull(partitions), _hull(rows)
    if len(rows) > 1 and (len(set(partitions)) > 1 or len(set(rows)) > 1):
        # Between the intervals of the kinds lie other keys: whatever bounded only one kind is checked again.
        exact = {i for i in exact if _holds_for_all(terms[i], partitions, rows, partition_hull, row_hull)}
    return partition_hull, row_hull, exact


def _holds_for_all(
    term: Expression, partitions: list[Bounds], rows: list[Bounds], partition_hull: Bounds, row_hull: Bounds
) -> bool:
    # A term on the partition alone stays exact while all kinds agree on the partition.
    assert isinstance(term, Comparison)
    schema = schema_of(term.field.model)
    in_partition = schema.partition is not None and term.field.name in schema.partition.full_fields
    if in_partition:
        return all(bounds == partition_hull for bounds in partitions)
    return all(bounds == row_hull for bounds in rows)


def _bounds_of(schema: Schema | None, terms: Sequence[Expression]) -> tuple[Bounds, Bounds, set[int]] | None:
    """Bounds that the terms put on the keys of one kind (None: of any), and which terms they hold in full."""
    groups: dict[int, tuple[Schema, list[tuple[int, Condition]]]] = {}
    if schema is not None:
        groups[id(schema)] = (schema, [])
    for index, term in enumerate(terms):
        if isinstance(term, Comparison):
            owner = schema_of(term.field.model)
            if schema is not None and issubclass(schema.model, term.field.model):
                owner = schema
            condition = Condition(term.field.name, term.op, term.value)
            groups.setdefault(id(owner), (owner, []))[1].append((index, condition))
    exact: set[int] = set()
    partition, row = Bounds(), Bounds()
    for owner, conditions in groups.values():
        if owner.partition is None or owner.row is None or (owner.abstract and owner is not schema):
            continue  # an abstract base writes no keys; its conditions are evaluated row by row
        foreign = owner is not schema
        for template, is_row in ((owner.partition, False), (owner.row, True)):
            given = [condition for _, condition in conditions]
            if foreign and not any(condition.field in template.fields for condition in given):
                continue  # nothing said about this key of the other model: its literal head says nothing either
            found: KeyBounds = template.bounds(given)
            if found.bounds is None:
                return None
            exact |= {conditions[position][0] for position in found.exact}
            merged = _meet(row if is_row else partition, found.bounds)
            if merged is None:
                return None
            if is_row:
                row = merged
            else:
                partition = merged
    return partition, row, exact


def _low(bounds: Bounds) -> tuple[bytes, bool]:
    return (b"", False) if bounds.lower is None else (utf16_key(bounds.lower), bounds.lower_open)


def _high(bounds: Bounds) -> tuple[int, bytes, bool]:
    if bounds.upper is None:
        return (1, b"", False)
    return (0, utf16_key(bounds.upper), not bounds.upper_open)


def _meet(first: Bounds, second: Bounds) -> Bounds | None:
    """The intersection; None if it is empty."""
    low = max(first, second, key=_low)
    high = min(first, second, key=_high)
    merged = Bounds(low.lower, high.upper, low.lower_open, high.upper_open)
    if merged.lower is not None and merged.upper is not None:
        a, b = utf16_key(merged.lower), utf16_key(merged.upper)
        if a > b or (a == b and (merged.lower_open or merged.upper_open)):
            return None
    return merged


def _hull(all_bounds: Sequence[Bounds]) -> Bounds:
    low = min(all_bounds, key=_low)
    high = max(all_bounds, key=_high)
    return Bounds(low.lower, high.upper, low.lower_open, high.upper_open)


def _scan_message(kinds: Kinds, terms: Sequence[Expression]) -> str:
    names = " and ".join(schema.name for schema in kinds.schemas) or "PropertyBag"
    given = {term.field.name for term in terms if isinstance(term, Comparison) and term.op is Op.EQ}
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


# Conditions on properties


def _to_filter(term: Expression) -> Filter | None:
    """The filter of a term, or None if the service cannot express it."""
    if isinstance(term, Comparison):
        if _holders(term):
            return None
        return _property_filter(term, schema_of(term.field.model).fields[term.field.name])
    if isinstance(term, NoneOf):
        inner = _to_filter(term.term)
        return None if inner is None else Not(inner)
    assert isinstance(term, (AllOf, AnyOf))
    inners = [_to_filter(inner) for inner in term.terms]
    known = tuple(inner for inner in inners if inner is not None)
    if len(known) < len(inners):
        return None
    return And(known) if isinstance(term, AllOf) else Or(known)


def _property_filter(term: Comparison, info: FieldInfo) -> Filter | None:
    name = info.property
    if term.op is None:
        if info.type.edm is not Edm.STRING or info.type.json_text:
            raise _misfit(term, "startswith() is for text")
        start = Compare(name, Op.GE, Constant(Edm.STRING, term.value))
        end = successor(term.value)
        return start if end is None else And((start, Compare(name, Op.LT, Constant(Edm.STRING, end))))
    if info.type.json_text:
        raise _misfit(term, "a field stored as JSON text has no comparison; filter in Python")
    if info.type.annotation is Decimal:
        return None  # stored as text, which compares otherwise than numbers
    return Compare(name, term.op, _constant(term, info))


def _misfit(term: Comparison, problem: str) -> EncodeError:
    return EncodeError(
        f"in the condition {term} is refused: {problem}", term.field.model.__name__, term.field.name, term.value
    )


def _constant(term: Comparison, info: FieldInfo) -> Constant:
    try:
        info.type.encode(term.value)
        value = term.value.value if isinstance(term.value, enum.Enum) else term.value
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            value = value.isoformat()
        return constant(value, info.type.edm)
    except ValueError as error:
        raise _misfit(term, f"the value {error}; the field is {info.type.name}") from None


def _to_test(term: Expression) -> Test:
    """A function that evaluates a term on a row, with the service's three-valued logic."""
    if isinstance(term, Comparison):
        return _comparison_test(term)
    if isinstance(term, NoneOf):
        inner = _to_test(term.term)

        def negate(row: Row) -> bool | None:
            known = inner(row)
            return None if known is None else not known

        return negate
    assert isinstance(term, (AllOf, AnyOf))
    tests = [_to_test(inner) for inner in term.terms]
    decides = isinstance(term, AnyOf)

    def combine(row: Row) -> bool | None:
        answers = [test(row) for test in tests]
        if decides in answers:
            return decides
        return None if None in answers else not decides

    return combine


_TESTS: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQ: lambda a, b: bool(a == b),
    Op.NE: lambda a, b: bool(a != b),
    Op.GT: lambda a, b: bool(a > b),
    Op.GE: lambda a, b: bool(a >= b),
    Op.LT: lambda a, b: bool(a < b),
    Op.LE: lambda a, b: bool(a <= b),
}


def _holders(term: Comparison) -> list[tuple[Template, str]]:
    """The templates that hold the field in full, and the members of rows that they make."""
    found: list[tuple[Template, str]] = []
    for schema in concrete(schema_of(term.field.model)):
        for template, member in ((schema.partition, "PartitionKey"), (schema.row, "RowKey")):
            if template is not None and term.field.name in template.full_fields:
                found.append((template, member))
                break
    return found


def _comparison_test(term: Comparison) -> Test:
    holders = _holders(term)
    if holders:
        return _key_test(term, holders)
    info = schema_of(term.field.model).fields[term.field.name]
    node = _property_filter(term, info)
    if node is not None:
        return compile_filter(node)
    _constant_fits(term, info)
    compare = _TESTS[term.op or Op.EQ]

    def test_decoded(row: Row) -> bool | None:
        value = row.get(info.property)
        if value is None:
            return None
        return compare(info.type.decode(value, row.get(info.property + ANNOTATION)), term.value)

    return test_decoded


def _constant_fits(term: Comparison, info: FieldInfo) -> None:
    try:
        info.type.encode(term.value)
    except ValueError as error:
        raise _misfit(term, f"the value {error}; the field is {info.type.name}") from None


def _key_test(term: Comparison, holders: Sequence[tuple[Template, str]]) -> Test:
    """A field that a key holds compares as the key does: text by its stored form, in UTF-16 order."""
    field, value = term.field.name, term.value
    form = holders[0][0].full_format(field)
    assert form is not None
    if term.op is None:
        if not form.free:
            raise _misfit(term, "startswith() is for text")
        starts = [(template, member, template.prefix_text(field, value)) for template, member in holders]

        def test_start(row: Row) -> bool | None:
            for template, member, start in starts:
                text = template.stored_text(row[member], field)
                if text is not None:
                    return text.startswith(start)
            return None

        return test_start
    compare = _TESTS[term.op]
    try:
        if form.free:
            wanted = [(t, m, utf16_key(t.value_text(field, value))) for t, m in holders]
        else:
            if not outside(form, value):
                form.to_text(value)  # only to refuse what is of another type
            wanted = [(t, m, _plain(value)) for t, m in holders]
    except ValueError as error:
        raise _misfit(term, str(error)) from None

    def test_value(row: Row) -> bool | None:
        for template, member, bound in wanted:
            text = template.stored_text(row[member], field)
            if text is None:
                continue
            try:
                return compare(utf16_key(text) if form.free else _plain(form.from_text(text)), bound)
            except (ValueError, OverflowError):
                return None  # a key of another program that only looks like one of ours
        return None

    return test_value


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value
