"""
Client-side filters: conditions that are evaluated here, on rows that came back, with the service's three-valued logic.
"""

import enum
from collections.abc import Callable, Collection, Sequence
from typing import Any

import attrs

from ...derived.index.schema import ElementMember
from ...expressions import (
    AllOf,
    AnyOf,
    Comparison,
    Expression,
    FieldTerm,
    Membership,
    NoneOf,
    Presence,
    PropertyComparison,
    misfit_error,
)
from ...keys.bounds import REVERSED, outside
from ...keys.format import Order
from ...keys.template import Template
from ...models.property_types import Member
from ...models.schema import MISFITS, Schema
from ...protocol.edm import utf16_key
from ...protocol.filters import Compare, Op, Test, combination, compile_filter, compile_membership, negation
from ...stores import Row
from .normalize import one_property, owners_of
from .server_filter import property_filter
from .target import QueryTarget


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
        case Comparison() | Membership():
            member = one_property(target, term)
            if member is not None:
                test = _make_property_test(term, member)
            else:
                test = _make_test_by_kind(target, term, lambda owner: _make_field_test(term, owner))
            negated = term.negated if isinstance(term, Membership) else term.op is Op.NE
            return negation(test) if negated else test
        case _:
            raise TypeError(f"{term!r} is not a condition")


_ORDERS: dict[Op, Callable[[Any, Any], bool]] = {
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
    holder = schema.key_holders.get(term.field.name)
    if holder is not None:  # a row of another kind may have another key
        template, member = holder
        return lambda row: None if template.stored_text(row[member], term.field.name) is None else True
    name = schema.by_path[term.field.name].property
    return _unsealed(schema, name, lambda row: None if row.get(name) is None else True)


def _equal_values(term: Comparison | Membership) -> Sequence[Any]:
    """Return the values of which a term says that the field is one, or none: there is one way to tell what is equal."""
    return term.values if isinstance(term, Membership) else (term.value,)


def _make_field_test(term: Comparison | Membership, schema: Schema) -> Test:
    holder = schema.key_holders.get(term.field.name)
    if holder is not None:
        return _make_key_test(term, *holder)
    member = schema.by_path[term.field.name]
    return _unsealed(schema, member.property, _make_property_test(term, member))


def _unsealed(schema: Schema, name: str, test: Test) -> Test:
    """Return the test of a property that looks at the row as the model says, if the row is stored otherwise."""
    return (lambda row: test(schema.unseal(row))) if name in schema.opaque else test


def _make_property_test(term: Comparison | Membership, member: Member) -> Test:
    """
    Return the test of a property. For `!=` and `~in_` it tests for `==` and `in_`: the caller negates what it says.
    """
    if isinstance(term, Membership) or term.op in (Op.EQ, Op.NE):
        nodes = list(map(property_filter(Comparison(term.field, Op.EQ, None), member), _equal_values(term)))
        constants = [node.constant for node in nodes if isinstance(node, Compare)]
        if len(constants) == len(nodes):
            return compile_membership(member.property, constants)
        return _make_decoded_equality(_equal_values(term), member)
    node = property_filter(term, member)(term.value)
    if node is not None:
        return compile_filter(node)
    assert term.op is not None
    compare = _ORDERS[term.op]

    def test_decoded(row: Row) -> bool | None:
        try:
            value = member.read(row)
            return None if value is None else compare(value, term.value)
        except MISFITS:
            return None  # what is stored is no such value, or one that has no order, as the decimal NaN

    return test_decoded


def _make_decoded_equality(values: Sequence[Any], member: Member) -> Test:
    """Return the test whether a property that the service compares otherwise equals one of some values."""
    wanted = set(values)
    if isinstance(member, ElementMember):
        return _make_element_test(wanted, member)
    listed = member.type.json_text

    def test_decoded_equal(row: Row) -> bool | None:
        try:
            value = member.read(row)
            if listed and value is not None:
                return not wanted.isdisjoint(value)
            return None if value is None else value in wanted
        except MISFITS:
            return False  # what is stored is no such value, so it is none of them

    return test_decoded_equal


def _make_element_test(wanted: Collection[Any], member: ElementMember) -> Test:
    """Return the test whether a row is an index entry for one of these elements of a list."""

    def test_element(row: Row) -> bool | None:
        try:
            return any(member.template.with_element(row["RowKey"], value) == row["RowKey"] for value in wanted)
        except MISFITS:
            return None  # a row of another kind

    return test_element


def _make_key_test(term: Comparison | Membership, template: Template, member: str) -> Test:
    """
    Return the test of a field that a key holds; of `!=` and `~in_` it is the opposite.

    It compares texts, as the store finds keys, except for an order that the format does not keep.
    """
    field = term.field.name
    form = template.full_format(field)
    assert form is not None
    if isinstance(term, Membership) or term.op in (Op.EQ, Op.NE):
        texts = {_key_text(term, value, template) for value in _equal_values(term)}

        def test_equal(row: Row) -> bool | None:
            text = template.stored_text(row[member], field)
            return None if text is None else text in texts

        return test_equal
    op, value = term.op, term.value
    if op is None:
        if not form.free:
            raise misfit_error(term, value, "startswith() works only on strings")
        start = template.prefix_text(field, value)

        def test_start(row: Row) -> bool | None:
            text = template.stored_text(row[member], field)
            return None if text is None else text.startswith(start)

        return test_start
    bound = _key_text(term, value, template, op)
    by_text = form.order is not Order.NONE and bound is not None
    compare = _ORDERS[REVERSED[op] if by_text and form.order is Order.REVERSED else op]
    edge: Any = utf16_key(bound) if by_text and bound is not None else _value_of(value)
    # A number that another program wrote otherwise, as 007, is found, so that the reading of its row says so.
    read = int if form.text == "int" else form.from_text

    def test_order(row: Row) -> bool | None:
        text = template.stored_text(row[member], field)
        if text is None:
            return None
        try:
            return compare(utf16_key(text) if by_text else _value_of(read(text)), edge)
        except ValueError:
            return None  # a key of another program that only looks like one of ours

    return test_order


def _key_text(term: Comparison | Membership, value: Any, template: Template, op: Op | None = None) -> str | None:
    """
    Return the text of a value in a key, or that is compared with keys by an operator; None if it is beyond all that the
    key can hold.
    """
    form = template.full_format(term.field.name)
    assert form is not None
    if outside(form, value) or (op is None and form.is_between(value)):
        return None
    try:
        return template.value_text(term.field.name, value, op)
    except ValueError as error:
        raise misfit_error(term, value, str(error)) from None


def _value_of(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value
