"""
Conditions as what a service can evaluate, and as what is evaluated here.

Pure functions of a term and the kinds that a query asks for. Terms are first brought into a form in which `~` stands
before single comparisons only: there it becomes the opposite comparison, which means the same to every reader of a
filter, while it is not documented what a service makes of `not` where the property is absent.
"""

import datetime as dt
import enum
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import attrs

from .entity import schema_of
from .errors import EncodeError
from .expressions import AllOf, AnyOf, Comparison, Expression, Membership, NoneOf, Presence, PropertyComparison
from .kinds import Kinds
from .protocol.edm import ANNOTATION, INT32_MAX, INT32_MIN, Edm, utf16_key
from .protocol.filters import And, Compare, Constant, Filter, Not, Op, Or, compile_filter, constant
from .schema import FieldInfo, Schema, concrete
from .stores import Row
from .templates import Condition, Template, outside, successor

__all__ = [
    "FALSE",
    "TRUE",
    "Test",
    "key_of_field",
    "leaves",
    "normal",
    "properties_of",
    "refuse_other_tables",
    "to_filter",
    "to_test",
]

Test = Callable[[Row], bool | None]

TRUE = AllOf(())
FALSE = AnyOf(())

_OPPOSITE = {Op.EQ: Op.NE, Op.NE: Op.EQ, Op.GT: Op.LE, Op.LE: Op.GT, Op.LT: Op.GE, Op.GE: Op.LT}


# The form


def normal(kinds: Kinds, term: Expression, *, negated: bool = False) -> Expression:
    """
    The same condition with `~` before single comparisons only, where there is no opposite; `TRUE` or `FALSE` if that is
    known of every row.
    """
    match term:
        case NoneOf():
            return normal(kinds, term.term, negated=not negated)
        case AllOf() | AnyOf():
            return _combined(
                [normal(kinds, each, negated=negated) for each in term.terms], isinstance(term, AllOf) is not negated
            )
        case Membership():
            if not term.values:
                return TRUE if term.negated is not negated else FALSE
            return attrs.evolve(term, negated=not term.negated) if negated else term
        case Presence():
            absent, owners = term.negated is not negated, _owners(kinds, term)
            if all(found == [kind] and term.field.name in found[0].key_holders for kind, found in owners.items()):
                return FALSE if absent else TRUE
            return attrs.evolve(term, negated=absent)
        case Comparison() if negated:
            if term.op is None or not _has_opposite(term):
                return NoneOf(term)
            return attrs.evolve(term, op=_OPPOSITE[term.op])
        case PropertyComparison() if negated:
            if term.constant.type in (Edm.DOUBLE, Edm.INT64) and term.op not in (Op.EQ, Op.NE):
                return NoneOf(term)
            return attrs.evolve(term, op=_OPPOSITE[term.op])
        case _:
            return term


def _combined(terms: Sequence[Expression], every: bool) -> Expression:  # noqa: FBT001 - named in the one call
    kind: type[AllOf | AnyOf] = AllOf if every else AnyOf
    flat: list[Expression] = []
    for term in terms:
        flat += term.terms if isinstance(term, kind) else (term,)
    # Neither is of the kind that is being made: a FALSE among all, a TRUE among any.
    if any(isinstance(term, (AllOf, AnyOf)) and not term.terms for term in flat):
        return FALSE if every else TRUE
    if not flat:
        return TRUE if every else FALSE
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def _has_opposite(term: Comparison) -> bool:
    """NaN is neither above nor below; an Int64 constant has no order with an Int32 property."""
    if term.op in (Op.EQ, Op.NE):
        return True
    if isinstance(term.value, int) and not INT32_MIN <= term.value <= INT32_MAX:
        return False
    return schema_of(term.field.model).fields[term.field.name].type.annotation not in (float, Decimal)


def refuse_other_tables(kinds: Kinds, term: Expression) -> None:
    """
    Refuse a condition on a model of another table: it says nothing of the rows of this one.

    Raises:
        EncodeError: Names the condition.
    """
    for leaf in leaves(term):
        if isinstance(leaf, (Comparison, Membership, Presence)):
            table = schema_of(leaf.field.model).table
            if table is not None and table.lower() != kinds.table.lower():
                problem = f"the model is of table {table}, the query reads {kinds.table}"
                raise _misfit(leaf, getattr(leaf, "value", None), problem)


def leaves(term: Expression) -> Iterator[Expression]:
    """The single conditions that a term is made of."""
    if isinstance(term, (AllOf, AnyOf)):
        for each in term.terms:
            yield from leaves(each)
    elif isinstance(term, NoneOf):
        yield from leaves(term.term)
    else:
        yield term


def properties_of(kinds: Kinds, term: Expression) -> Iterator[str]:
    """The stored properties that an evaluation of the term needs, besides the keys."""
    for leaf in leaves(term):
        if isinstance(leaf, PropertyComparison):
            yield leaf.property
        elif isinstance(leaf, (Comparison, Membership, Presence)):
            for owners in _owners(kinds, leaf).values():
                yield from (o.fields[leaf.field.name].property for o in owners if not key_of_field(o, leaf.field.name))


# Where a field is

_FieldTerm = Comparison | Membership | Presence


def _owners(kinds: Kinds, term: _FieldTerm) -> dict[Schema | None, list[Schema]]:
    """
    For each kind of row (None: any other) the models whose declaration says where the field of a condition is.

    A kind that has the field says so itself: classes of one base may hold it in a key, or under other names. For rows
    of other kinds it is the model that the condition names.
    """
    model = term.field.model
    owners: dict[Schema | None, list[Schema]] = {}
    named: list[Schema] | None = None
    for schema in kinds.schemas:
        if issubclass(schema.model, model):
            owners[schema] = [schema]
        else:
            named = named or concrete(schema_of(model))
            owners[schema] = named
    if kinds.bags or not owners:
        owners[None] = named or concrete(schema_of(model))
    return owners


def key_of_field(schema: Schema, field: str) -> tuple[Template, str] | None:
    """The template of a model that holds the field in full, and the member of rows that it makes."""
    return schema.key_holders.get(field)


def _one_property(kinds: Kinds, term: _FieldTerm) -> FieldInfo | None:
    """The field as all kinds store it, or None if a key holds it or they differ."""
    field = term.field.name
    if id(term.field) in kinds.own_fields:
        schema = kinds.schemas[0]
        return None if field in schema.key_holders else schema.fields[field]
    first: FieldInfo | None = None
    for owners in _owners(kinds, term).values():
        for schema in owners:
            if field in schema.key_holders:
                return None
            info = schema.fields[field]
            if first is None:
                first = info
            elif info is not first and (info.property, info.type) != (first.property, first.type):
                return None
    return first


# For the service


def to_filter(kinds: Kinds, term: Expression, given: Sequence[Condition] = ()) -> Filter | None:
    """
    The filter of a term in normal form, or None if the service cannot express it.

    Args:
        kinds: What is asked for.
        term: The condition.
        given: Equalities that hold anyway: with them a condition on a part of a key can be one on the whole key.

    Raises:
        EncodeError: A value does not fit its field.
    """
    match term:
        case AllOf() | AnyOf():
            terms = _joined(kinds, term, given) if isinstance(term, AllOf) else term.terms
            inners = [each if isinstance(each, Filter) else to_filter(kinds, each, given) for each in terms]
            known = tuple(inner for inner in inners if inner is not None)
            if len(known) < len(inners):
                return None
            return And(known) if isinstance(term, AllOf) else Or(known)
        case PropertyComparison():
            return Compare(term.property, term.op, term.constant)
        case NoneOf():
            return _negated_filter(kinds, term.term)
        case Presence():
            info = None if term.negated else _one_property(kinds, term)
            return None if info is None else _exists(info.property, Constant(Edm.STRING, ""))
        case Membership():
            return _membership_filter(kinds, term, given)
        case Comparison():
            info = _one_property(kinds, term)
            return _key_filter(kinds, [term], given) if info is None else _property_filter(term, info)
        case _:
            return None


def _joined(kinds: Kinds, term: AllOf, given: Sequence[Condition]) -> list[Expression | Filter]:
    """The terms; bounds of one key field, of which each says where keys begin and end, as one filter."""
    groups: dict[str, list[Comparison]] = {}
    for each in term.terms:
        if isinstance(each, Comparison) and each.op is not Op.NE:
            groups.setdefault(each.field.name, []).append(each)
    found: list[Expression | Filter] = []
    for each in term.terms:
        group = groups.get(each.field.name, []) if isinstance(each, Comparison) and each.op is not Op.NE else []
        whole = _key_filter(kinds, group, given) if len(group) > 1 else None
        if whole is None:
            found.append(each)
        elif each is group[0]:
            found.append(whole)
    return found


def _exists(name: str, literal: Constant) -> Filter:
    """What an absent property satisfies under no reading: each comparison alone is false, or unknown."""
    return Or((Compare(name, Op.EQ, literal), Compare(name, Op.NE, literal)))


def _negated_filter(kinds: Kinds, term: Expression) -> Filter | None:
    positive = to_filter(kinds, term) if isinstance(term, PropertyComparison) else None
    if isinstance(term, Comparison):
        info = _one_property(kinds, term)
        positive = None if info is None else _property_filter(term, info)
    if isinstance(positive, Compare):
        return And((Not(positive), _exists(positive.property, positive.constant)))
    if isinstance(positive, And):  # startswith: two bounds of text, which has an order
        below, above = positive.terms
        if isinstance(below, Compare) and isinstance(above, Compare):
            return Or(tuple(Compare(c.property, _OPPOSITE[c.op], c.constant) for c in (below, above)))
    return None


def _membership_filter(kinds: Kinds, term: Membership, given: Sequence[Condition]) -> Filter | None:
    op = Op.NE if term.negated else Op.EQ
    info = _one_property(kinds, term)
    if info is not None and info.type.json_text:
        raise _misfit(term, term.values, "a field stored as JSON text has no comparison; filter in Python")
    terms: list[Filter] = []
    for value in dict.fromkeys(term.values):
        comparison = Comparison(term.field, op, value)
        node = _key_filter(kinds, [comparison], given) if info is None else _property_filter(comparison, info)
        if node is None:
            return None
        terms.append(node)
    return terms[0] if len(terms) == 1 else And(tuple(terms)) if term.negated else Or(tuple(terms))


def _key_filter(kinds: Kinds, terms: Sequence[Comparison], given: Sequence[Condition]) -> Filter | None:
    """Conditions on a field in a key, of which all hold, as one on the key, where that says exactly the same."""
    name, op = terms[0].field.name, terms[0].op
    schema = kinds.schemas[0] if len(kinds.schemas) == 1 and not kinds.bags else None
    if schema is None or not all(issubclass(schema.model, term.field.model) for term in terms):
        return None
    holder = key_of_field(schema, name)
    if holder is None:
        return None
    template, member = holder
    conditions = [Condition(name, Op.EQ if term.op is Op.NE else term.op, term.value) for term in terms]
    others = [each for each in given if each.field != name]
    found = template.bounds([*others, *conditions])
    if found.bounds is None or not found.exact.issuperset(range(len(others), len(others) + len(conditions))):
        return None
    inside = found.bounds.conditions(member)
    if op is not Op.NE:
        return And(tuple(inside)) if len(inside) > 1 else inside[0] if inside else None
    if not all(isinstance(each, Compare) for each in inside) or not inside:
        return None
    outside_of = tuple(Compare(c.property, _OPPOSITE[c.op], c.constant) for c in inside if isinstance(c, Compare))
    return outside_of[0] if len(outside_of) == 1 else Or(outside_of)


def _property_filter(term: Comparison, info: FieldInfo) -> Filter | None:
    name = info.property
    if term.op is None:
        if info.type.edm is not Edm.STRING or info.type.json_text:
            raise _misfit(term, term.value, "startswith() is for text")
        start = Compare(name, Op.GE, Constant(Edm.STRING, term.value))
        end = successor(term.value)
        return start if end is None else And((start, Compare(name, Op.LT, Constant(Edm.STRING, end))))
    if info.type.json_text:
        raise _misfit(term, term.value, "a field stored as JSON text has no comparison; filter in Python")
    if info.type.annotation is Decimal:
        return None  # stored as text, which compares otherwise than numbers
    return Compare(name, term.op, _constant(term, info))


def _misfit(term: _FieldTerm, value: object, problem: str) -> EncodeError:
    return EncodeError(
        f"in the condition {term} is refused: {problem}", term.field.model.__name__, term.field.name, value
    )


def _constant(term: Comparison, info: FieldInfo) -> Constant:
    value = term.value
    try:
        info.type.encode(value)
        if isinstance(value, enum.Enum):
            value = value.value
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            value = value.isoformat()
        return constant(value, info.type.edm)
    except ValueError as error:
        raise _misfit(term, term.value, f"the value {error}; the field is {info.type.name}") from None


# Here


def to_test(kinds: Kinds, term: Expression) -> Test:
    """
    A function that evaluates a term on a row, with the service's three-valued logic.

    Raises:
        EncodeError: A value does not fit its field.
    """
    match term:
        case NoneOf():
            return _negated(to_test(kinds, term.term))
        case AllOf() | AnyOf():
            return _combined_test([to_test(kinds, each) for each in term.terms], decides=isinstance(term, AnyOf))
        case PropertyComparison():
            return compile_filter(Compare(term.property, term.op, term.constant))
        case Presence():
            test = _by_kind(kinds, term, lambda owner: _presence_test(term, owner))
            return _negated(test) if term.negated else test
        case Membership():
            test = _by_kind(kinds, term, lambda owner: _membership_test(term, owner))
            return _negated(test) if term.negated else test
        case Comparison():
            info = _one_property(kinds, term)
            if info is not None:
                return _property_test(term, info)
            return _by_kind(kinds, term, lambda owner: _model_test(term, owner))
        case _:
            raise TypeError(f"{term!r} is no condition")


def _negated(test: Test) -> Test:
    def negate(row: Row) -> bool | None:
        known = test(row)
        return None if known is None else not known

    return negate


def _combined_test(tests: Sequence[Test], *, decides: bool) -> Test:
    def combine(row: Row) -> bool | None:
        result: bool | None = not decides
        for test in tests:
            known = test(row)
            if known is decides:
                return decides
            if known is None:
                result = None
        return result

    return combine


_TESTS: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQ: lambda a, b: bool(a == b),
    Op.NE: lambda a, b: bool(a != b),
    Op.GT: lambda a, b: bool(a > b),
    Op.GE: lambda a, b: bool(a >= b),
    Op.LT: lambda a, b: bool(a < b),
    Op.LE: lambda a, b: bool(a <= b),
}


def _by_kind(kinds: Kinds, term: _FieldTerm, test_of: Callable[[Schema], Test]) -> Test:
    """The test of each kind of row, by the models that say where the field is."""
    tests = {kind: _first_known([test_of(owner) for owner in owners]) for kind, owners in _owners(kinds, term).items()}
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


def _presence_test(term: Presence, schema: Schema) -> Test:
    holder = key_of_field(schema, term.field.name)
    if holder is not None:  # a row of another kind may have another key
        template, member = holder
        return lambda row: template.stored_text(row[member], term.field.name) is not None
    name = schema.fields[term.field.name].property
    return lambda row: row.get(name) is not None


def _membership_test(term: Membership, schema: Schema) -> Test:
    field = term.field.name
    holder = key_of_field(schema, field)
    if holder is not None:
        for value in term.values:  # refuses what is of another type, as every comparison does
            _key_test(Comparison(term.field, Op.EQ, value), *holder)
        template, member = holder
        form = template.full_format(field)
        assert form is not None
        texts = {template.value_text(field, value) for value in term.values if not outside(form, value)}

        def test_key(row: Row) -> bool | None:
            text = template.stored_text(row[member], field)
            return None if text is None else text in texts

        return test_key
    info = schema.fields[field]
    for value in term.values:
        _constant_fits(Comparison(term.field, Op.EQ, value), info)
    wanted = set(term.values)

    def test_property(row: Row) -> bool | None:
        stored = row.get(info.property)
        if stored is None:
            return None
        try:
            return info.type.decode(stored, row.get(info.property + ANNOTATION)) in wanted
        except (ValueError, ArithmeticError):
            return False  # of another type, so it is none of them

    return test_property


def _model_test(term: Comparison, schema: Schema) -> Test:
    holder = key_of_field(schema, term.field.name)
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
        raise _misfit(term, term.value, f"the value {error}; the field is {info.type.name}") from None


def _key_test(term: Comparison, template: Template, member: str) -> Test:
    """A field that a key holds compares as the key does: text by its stored form, in UTF-16 order."""
    field, value = term.field.name, term.value
    form = template.full_format(field)
    assert form is not None
    if term.op is None:
        if not form.free:
            raise _misfit(term, value, "startswith() is for text")
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
        raise _misfit(term, value, str(error)) from None

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
