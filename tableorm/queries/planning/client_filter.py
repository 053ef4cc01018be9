"""
Client-side filters: conditions that are evaluated here, on rows that came back, with the service's three-valued logic.
"""

import enum
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ...expressions import AllOf, AnyOf, Comparison, Expression, Membership, NoneOf, Presence, PropertyComparison
from ...keys.bounds import outside
from ...keys.template import Template
from ...models.schema import FieldInfo, Schema
from ...protocol.edm import ANNOTATION, utf16_key
from ...protocol.filters import Compare, Op, Test, combination, compile_filter, negation
from ...stores import Row
from .normalize import FieldTerm, key_of_field, misfit_error, one_property, owners_of
from .server_filter import build_property_filter
from .target import QueryTarget

__all__ = ["ClientFilter", "make_client_filter", "make_test"]


@attrs.frozen(eq=False)
class ClientFilter:
    """
    A condition that is evaluated here.

    Args:
        condition: The condition as it was written.
        test: Evaluates a row; those for which it gives True are results.
    """

    condition: Expression
    test: Test


def make_client_filter(target: QueryTarget, condition: Expression) -> ClientFilter:
    """Return a condition as it is evaluated here. Raises what `make_test` raises."""
    return ClientFilter(condition, make_test(target, condition))


def make_test(target: QueryTarget, term: Expression) -> Test:
    """
    Return a function that evaluates a term on a row, with the service's three-valued logic.

    Raises:
        EncodeError: A value does not fit its field.
    """
    match term:
        case NoneOf():
            return negation(make_test(target, term.term))
        case AllOf() | AnyOf():
            return combination([make_test(target, each) for each in term.terms], decides=isinstance(term, AnyOf))
        case PropertyComparison():
            return compile_filter(Compare(term.property, term.op, term.constant))
        case Presence():
            there, absent = (
                _make_test_by_kind(target, term, lambda owner: _make_presence_test(term, owner)),
                term.negated,
            )
            return lambda row: (there(row) is None) is absent
        case Membership():
            test = _make_test_by_kind(target, term, lambda owner: _make_membership_test(term, owner))
            return negation(test) if term.negated else test
        case Comparison():
            info = one_property(target, term)
            if info is not None:
                return _make_property_test(term, info)
            return _make_test_by_kind(target, term, lambda owner: _make_field_test(term, owner))
        case _:
            raise TypeError(f"{term!r} is not a condition")


_OPERATORS: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQ: lambda a, b: bool(a == b),
    Op.NE: lambda a, b: bool(a != b),
    Op.GT: lambda a, b: bool(a > b),
    Op.GE: lambda a, b: bool(a >= b),
    Op.LT: lambda a, b: bool(a < b),
    Op.LE: lambda a, b: bool(a <= b),
}


def _make_test_by_kind(target: QueryTarget, term: FieldTerm, test_of: Callable[[Schema], Test]) -> Test:
    """Return a test that asks the models of the row's kind where the field is."""
    tests = {kind: _try_each([test_of(owner) for owner in owners]) for kind, owners in owners_of(target, term).items()}
    if len(tests) == 1:
        return next(iter(tests.values()))

    def test_by_kind(row: Row) -> bool | None:
        test = tests.get(target.kinds.schema_of_row(row))
        return None if test is None else test(row)

    return test_by_kind


def _try_each(tests: Sequence[Test]) -> Test:
    if len(tests) == 1:
        return tests[0]

    def test_each(row: Row) -> bool | None:
        return next((known for test in tests if (known := test(row)) is not None), None)

    return test_each


def _make_presence_test(term: Presence, schema: Schema) -> Test:
    """Return a test that gives True if the field is there; otherwise None, so that another owner is asked."""
    holder = key_of_field(schema, term.field.name)
    if holder is not None:  # a row of another kind may have another key
        template, member = holder
        return lambda row: None if template.stored_text(row[member], term.field.name) is None else True
    name = schema.fields[term.field.name].property
    return lambda row: None if row.get(name) is None else True


def _make_membership_test(term: Membership, schema: Schema) -> Test:
    field = term.field.name
    holder = key_of_field(schema, field)
    if holder is not None:
        for value in term.values:  # refuses what is of another type, as every comparison does
            _make_key_test(Comparison(term.field, Op.EQ, value), *holder)
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
        _check_constant(Comparison(term.field, Op.EQ, value), info)
    wanted = {value for value in term.values if value == value}  # noqa: PLR0124 - NaN is equal to nothing, a set finds it

    def test_property(row: Row) -> bool | None:
        stored = row.get(info.property)
        if stored is None:
            return None
        try:
            return info.type.decode(stored, row.get(info.property + ANNOTATION)) in wanted
        except (ValueError, ArithmeticError):
            return False  # of another type, so it is none of them

    return test_property


def _make_field_test(term: Comparison, schema: Schema) -> Test:
    holder = key_of_field(schema, term.field.name)
    return (
        _make_property_test(term, schema.fields[term.field.name]) if holder is None else _make_key_test(term, *holder)
    )


def _make_property_test(term: Comparison, info: FieldInfo) -> Test:
    node = build_property_filter(term, info)
    if node is not None:
        return compile_filter(node)
    _check_constant(term, info)
    compare = _OPERATORS[term.op or Op.EQ]

    def test_decoded(row: Row) -> bool | None:
        value = row.get(info.property)
        if value is None:
            return None
        try:
            return compare(info.type.decode(value, row.get(info.property + ANNOTATION)), term.value)
        except (ValueError, ArithmeticError):
            return None  # what is stored is no such value, or one that has no order, as the decimal NaN

    return test_decoded


def _check_constant(term: Comparison, info: FieldInfo) -> None:
    try:
        info.type.encode(term.value)
    except ValueError as error:
        raise misfit_error(term, term.value, f"the value {error}; the field is {info.type.name}") from None


def _make_key_test(term: Comparison, template: Template, member: str) -> Test:
    """Return a test of a field that a key holds. Text compares by its stored form, in UTF-16 order, as the key does."""
    field, value = term.field.name, term.value
    form = template.full_format(field)
    assert form is not None
    if term.op is None:
        if not form.free:
            raise misfit_error(term, value, "startswith() is for text")
        start = template.prefix_text(field, value)

        def test_start(row: Row) -> bool | None:
            text = template.stored_text(row[member], field)
            return None if text is None else text.startswith(start)

        return test_start
    compare = _OPERATORS[term.op]
    try:
        if form.free:
            bound: Any = utf16_key(template.value_text(field, value))
        else:
            if not outside(form, value):
                form.to_text(value)  # only to refuse what is of another type
            bound = _value_of(value)
    except ValueError as error:
        raise misfit_error(term, value, str(error)) from None

    def test_value(row: Row) -> bool | None:
        text = template.stored_text(row[member], field)
        if text is None:
            return None
        try:
            return compare(utf16_key(text) if form.free else _value_of(form.from_text(text)), bound)
        except (ValueError, OverflowError):
            return None  # a key of another program that only looks like one of ours

    return test_value


def _value_of(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value
