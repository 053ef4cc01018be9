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
    for term in terms:
        _refuse_other_tables(kinds, term)
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
        node = _to_filter(kinds, term)
        if node is not None:
            filters.append(node)
        else:
            residual.append(_to_test(kinds, term))
    where_filter = None if not filters else filters[0] if len(filters) == 1 else And(tuple(filters))
    return QueryPlan(kinds, access, RowQuery(partition, row, where_filter), tuple(residual))


def _access(partition: Bounds, row: Bounds) -> Access:
    if not partition.point:
        return Access.TABLE_SCAN
    if row.point:
        return Access.POINT
    return Access.PARTITION_SCAN if row == Bounds() else Access.RANGE


def _key_bounds(kinds: Kinds, terms: Sequence[Expression]) -> tuple[Bounds | None, Bounds | None, frozenset[int]]:
    """The hull of the keys of all kinds, and which terms hold for every key inside."""
    schemas: list[Schema | None] = list(kinds.schemas)
    if kinds.bags:
        schemas.append(None)  # rows of any kind: only the conditions themselves bound them
    found = [bounds for schema in schemas if (bounds := _bounds_of(schema, terms)) is not None]
    if not found:
        return None, None, frozenset()  # no row of any kind can satisfy the conditions
    exact: frozenset[int] = frozenset()
    hulls: list[Bounds] = []
    for intervals in zip(*found, strict=True):
        hull = _hull([bounds for bounds, _ in intervals])
        # Where the kinds differ, other keys lie between their intervals, so that no term is known to hold for all.
        if all(bounds == hull for bounds, _ in intervals):
            exact |= {index for index in intervals[0][1] if all(index in held for _, held in intervals)}
        hulls.append(hull)
    return hulls[0], hulls[1], exact


_Interval = tuple[Bounds, frozenset[int]]
"""Bounds of a key, and the terms that hold for every key inside."""


def _bounds_of(schema: Schema | None, terms: Sequence[Expression]) -> tuple[_Interval, _Interval] | None:
    """What the terms say of PartitionKey and RowKey of one kind (None: of any); None if no key satisfies them."""
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
    intervals: list[_Interval] = [(Bounds(), frozenset()), (Bounds(), frozenset())]
    for owner, conditions in groups.values():
        if owner.partition is None or owner.row is None or (owner.abstract and owner is not schema):
            continue  # an abstract base writes no keys; its conditions are evaluated row by row
        foreign = owner is not schema
        for which, template in enumerate((owner.partition, owner.row)):
            given = [condition for _, condition in conditions]
            if foreign and not any(condition.field in template.fields for condition in given):
                continue  # nothing said about this key of the other model: its literal head says nothing either
            found: KeyBounds = template.bounds(given)
            if found.bounds is None:
                return None
            bounds, held = intervals[which]
            merged = _meet(bounds, found.bounds)
            if merged is None:
                return None
            intervals[which] = merged, held | {conditions[position][0] for position in found.exact}
    return intervals[0], intervals[1]


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


def _refuse_other_tables(kinds: Kinds, term: Expression) -> None:
    """A condition on a model of another table says nothing of the rows of this one."""
    if isinstance(term, Comparison):
        table = schema_of(term.field.model).table
        if table is not None and table.lower() != kinds.table.lower():
            raise _misfit(term, f"the model is of table {table}, the query reads {kinds.table}")
    elif isinstance(term, NoneOf):
        _refuse_other_tables(kinds, term.term)
    elif isinstance(term, (AllOf, AnyOf)):
        for inner in term.terms:
            _refuse_other_tables(kinds, inner)


# Conditions on properties


def _owners(kinds: Kinds, term: Comparison) -> dict[Schema | None, list[Schema]]:
    """
    For each kind of row (None: any other) the models whose declaration says where the field of a condition is.

    A kind that has the field says so itself: classes of one base may hold it in a key, or under other names. For rows
    of other kinds it is the model that the condition names.
    """
    named = concrete(schema_of(term.field.model))
    owners: dict[Schema | None, list[Schema]] = {
        schema: [schema] if issubclass(schema.model, term.field.model) else named for schema in kinds.schemas
    }
    if kinds.bags or not owners:
        owners[None] = named
    return owners


def _holder(schema: Schema, field: str) -> tuple[Template, str] | None:
    """The template of a model that holds the field in full, and the member of rows that it makes."""
    for template, member in ((schema.partition, "PartitionKey"), (schema.row, "RowKey")):
        if template is not None and field in template.full_fields:
            return template, member
    return None


def _one_property(kinds: Kinds, term: Comparison) -> FieldInfo | None:
    """The field as all kinds store it, or None if a key holds it or they differ."""
    field = term.field.name
    infos: list[FieldInfo] = []
    for owners in _owners(kinds, term).values():
        for schema in owners:
            if _holder(schema, field) is not None:
                return None
            infos.append(schema.fields[field])
    same = bool(infos) and all((i.property, i.type) == (infos[0].property, infos[0].type) for i in infos)
    return infos[0] if same else None


def _to_filter(kinds: Kinds, term: Expression) -> Filter | None:
    """The filter of a term, or None if the service cannot express it."""
    if isinstance(term, Comparison):
        info = _one_property(kinds, term)
        return None if info is None else _property_filter(term, info)
    if isinstance(term, NoneOf):
        inner = _to_filter(kinds, term.term)
        return None if inner is None else Not(inner)
    assert isinstance(term, (AllOf, AnyOf))
    inners = [_to_filter(kinds, inner) for inner in term.terms]
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


def _to_test(kinds: Kinds, term: Expression) -> Test:
    """A function that evaluates a term on a row, with the service's three-valued logic."""
    if isinstance(term, Comparison):
        return _comparison_test(kinds, term)
    if isinstance(term, NoneOf):
        inner = _to_test(kinds, term.term)

        def negate(row: Row) -> bool | None:
            known = inner(row)
            return None if known is None else not known

        return negate
    assert isinstance(term, (AllOf, AnyOf))
    tests = [_to_test(kinds, inner) for inner in term.terms]
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


def _comparison_test(kinds: Kinds, term: Comparison) -> Test:
    info = _one_property(kinds, term)
    if info is not None:
        return _property_test(term, info)
    owners = _owners(kinds, term)
    tests = {schema: _first_known([_model_test(term, owner) for owner in found]) for schema, found in owners.items()}
    if len(tests) == 1:
        return next(iter(tests.values()))

    def test_by_kind(row: Row) -> bool | None:
        test = tests.get(kinds.schema_of_row(row))
        return None if test is None else test(row)

    return test_by_kind


def _first_known(tests: Sequence[Test]) -> Test:
    if len(tests) == 1:
        return tests[0]

    def test_each(row: Row) -> bool | None:
        return next((known for test in tests if (known := test(row)) is not None), None)

    return test_each


def _model_test(term: Comparison, schema: Schema) -> Test:
    holder = _holder(schema, term.field.name)
    return _property_test(term, schema.fields[term.field.name]) if holder is None else _key_test(term, *holder)


def _property_test(term: Comparison, info: FieldInfo) -> Test:
    node = _property_filter(term, info)
    if node is not None:
        return compile_filter(node)
    _constant_fits(term, info)
    compare = _TESTS[term.op or Op.EQ]

    def test_decoded(row: Row) -> bool | None:
        value = row.get(info.property)
        if value is None:
            return None
        try:
            return compare(info.type.decode(value, row.get(info.property + ANNOTATION)), term.value)
        except (ValueError, ArithmeticError):
            return None  # what is stored is no such value, or one that has no order, as the decimal NaN

    return test_decoded


def _constant_fits(term: Comparison, info: FieldInfo) -> None:
    try:
        info.type.encode(term.value)
    except ValueError as error:
        raise _misfit(term, f"the value {error}; the field is {info.type.name}") from None


def _key_test(term: Comparison, template: Template, member: str) -> Test:
    """A field that a key holds compares as the key does: text by its stored form, in UTF-16 order."""
    field, value = term.field.name, term.value
    form = template.full_format(field)
    assert form is not None
    if term.op is None:
        if not form.free:
            raise _misfit(term, "startswith() is for text")
        start = template.prefix_text(field, value)

        def test_start(row: Row) -> bool | None:
            text = template.stored_text(row[member], field)
            return None if text is None else text.startswith(start)

        return test_start
    compare = _TESTS[term.op]
    try:
        if form.free:
            bound: Any = utf16_key(template.value_text(field, value))
        else:
            if not outside(form, value):
                form.to_text(value)  # only to refuse what is of another type
            bound = _plain(value)
    except ValueError as error:
        raise _misfit(term, str(error)) from None

    def test_value(row: Row) -> bool | None:
        text = template.stored_text(row[member], field)
        if text is None:
            return None
        try:
            return compare(utf16_key(text) if form.free else _plain(form.from_text(text)), bound)
        except (ValueError, OverflowError):
            return None  # a key of another program that only looks like one of ours

    return test_value


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value
