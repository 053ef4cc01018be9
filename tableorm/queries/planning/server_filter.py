"""
Predicate pushdown: conditions as filters that the service evaluates.

A parameterised condition tells what its filter looks like: the property, the operator, which key holds the field. So it
gives a filter builder, a function from the values of a query to the filter, and a query of a known shape only calls it.
"""

import datetime as dt
import enum
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import attrs

from ...expressions import (
    AllOf,
    AnyOf,
    Comparison,
    Expression,
    Membership,
    NoneOf,
    Presence,
    PropertyComparison,
    is_list,
    misfit_error,
)
from ...models.property_types import Member
from ...protocol.edm import INT32_MAX, INT32_MIN, Edm
from ...protocol.filters import And, Compare, Constant, Filter, Not, Op, Or, compare_value, constant
from ...stores.intervals import successor
from ...types import Int32
from .normalize import OPPOSITE, has_field, one_property
from .parameters import Values, parameter_of
from .target import QueryTarget

FilterBuilder = Callable[[Values], Filter | None]
"""Takes the values of a query and returns a filter; None if the service cannot express the condition."""


def filter_builder(target: QueryTarget, term: Expression, given: Sequence[Comparison] = ()) -> FilterBuilder:
    """
    Return the filter builder of a condition. It raises `EncodeError` or `TemplateError` if a value does not fit.

    Args:
        target: What is asked for.
        term: The parameterised condition, in normal form.
        given: Equalities that hold anyway: with them a condition on a part of a key can be one on the whole key.
    """
    match term:
        case AllOf() | AnyOf():
            return _combine(target, term, given)
        case PropertyComparison():
            name, op, kind, at = term.property, term.op, term.constant.type, parameter_of(term).at
            return lambda values: Compare(name, op, Constant(kind, values[at]))
        case NoneOf():
            return _negation_builder(target, term.term)
        case Presence():
            member = None if term.negated else one_property(target, term)
            node = None if member is None else _presence_filter(member.property, Constant(Edm.STRING, ""))
            return lambda _values: node
        case Membership():
            return _membership_builder(target, term, given)
        case Comparison():
            member = one_property(target, term)
            return _key_builder(target, [term], given) if member is None else _property_builder(term, member)
        case _:
            return _build_nothing


def _build_nothing(_values: Values) -> Filter | None:
    return None


def join_filters(kind: type[And | Or], nodes: Sequence[Filter | None]) -> Filter | None:
    """Return filters as one; None if the service cannot express one of them."""
    known = [node for node in nodes if node is not None]
    if len(known) < len(nodes):
        return None
    # One level of alternatives is one look-up for a store, and fewer parentheses.
    flat = [term for node in known for term in (node.terms if isinstance(node, kind) else (node,))]
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def _combine(target: QueryTarget, term: AllOf | AnyOf, given: Sequence[Comparison]) -> FilterBuilder:
    builders = (
        _builders_of_all(target, term, given)
        if isinstance(term, AllOf)
        else [filter_builder(target, each, given) for each in term.terms]
    )
    kind: type[And | Or] = And if isinstance(term, AllOf) else Or
    return lambda values: join_filters(kind, [each(values) for each in builders])


def _builders_of_all(target: QueryTarget, term: AllOf, given: Sequence[Comparison]) -> list[FilterBuilder]:
    """Return the filter builders of the terms; several bounds of one field share a builder."""
    groups: dict[str, list[Comparison]] = {}
    for each in term.terms:
        if isinstance(each, Comparison) and each.op is not Op.NE:
            groups.setdefault(each.field.name, []).append(each)
    found: list[FilterBuilder] = []
    for each in term.terms:
        group = groups.get(each.field.name, []) if isinstance(each, Comparison) and each.op is not Op.NE else []
        if len(group) < 2:
            found.append(filter_builder(target, each, given))
        elif each is group[0]:
            found.append(_combine_bounds(target, group, given))
    return found


def _combine_bounds(target: QueryTarget, group: Sequence[Comparison], given: Sequence[Comparison]) -> FilterBuilder:
    """Return the builder of one filter for several conditions on a field, or of one each if no key holds it exactly."""
    whole, single = _key_builder(target, group, given), [filter_builder(target, each, given) for each in group]
    return lambda values: whole(values) or join_filters(And, [each(values) for each in single])


def _presence_filter(name: str, literal: Constant) -> Filter:
    """Return a filter that an absent property never satisfies: each comparison alone is false, or unknown."""
    return Or((Compare(name, Op.EQ, literal), Compare(name, Op.NE, literal)))


def _negate_bounds(nodes: Sequence[Filter]) -> Filter | None:
    """Return the filter for texts that are outside of the given bounds, of which there must be at least one."""
    found = [Compare(each.property, OPPOSITE[each.op], each.constant) for each in nodes if isinstance(each, Compare)]
    return join_filters(Or, found)


def _negation_builder(target: QueryTarget, term: Expression) -> FilterBuilder:
    if isinstance(term, PropertyComparison):
        positive = filter_builder(target, term)
    elif isinstance(term, Comparison) and (member := one_property(target, term)) is not None:
        positive = _property_builder(term, member)
    else:
        return _build_nothing

    def build(values: Values) -> Filter | None:
        node = positive(values)
        last = node.terms[-1] if isinstance(node, Or) else node  # of numbers, an Int32 constant, which all types take
        if node is not None and isinstance(last, Compare):
            return And((Not(node), _presence_filter(last.property, last.constant)))
        return _negate_bounds(node.terms) if isinstance(node, And) else None  # startswith: two bounds of text

    return build


def _membership_builder(target: QueryTarget, term: Membership, given: Sequence[Comparison]) -> FilterBuilder:
    member = one_property(target, term)
    at, negated = parameter_of(term).at, term.negated
    one = Comparison(term.field, Op.NE if negated else Op.EQ, parameter_of(term))
    single = _key_builder(target, [one], given) if member is None else _property_builder(one, member)

    def build(values: Values) -> Filter | None:
        before, after = values[:at], values[at + 1 :]
        nodes = [single([*before, value, *after]) for value in dict.fromkeys(values[at])]
        return join_filters(And if negated else Or, nodes)

    return build


def _key_holder(target: QueryTarget, terms: Sequence[Comparison]) -> Any:
    """Return the template of the one kind that holds the field of these terms, and its key; None if none does."""
    schema = target.single
    if schema is None or not all(has_field(schema, term.field) for term in terms):
        return None
    return schema.key_holders.get(terms[0].field.name)


def _key_builder(target: QueryTarget, terms: Sequence[Comparison], given: Sequence[Comparison]) -> FilterBuilder:
    """
    Return the builder of a filter on the key for conditions on a field that the key holds.

    It gives None where a filter on the key would not say exactly the same.
    """
    name, op = terms[0].field.name, terms[0].op
    holder = _key_holder(target, terms)
    if holder is None:
        return _build_nothing
    template, member = holder
    others = [each for each in given if each.field.name != name]
    shape: list[tuple[str, Op | None]] = [(each.field.name, Op.EQ) for each in others]
    shape += [(name, Op.EQ if term.op is Op.NE else term.op) for term in terms]
    constraint = template.constrain(tuple(shape))
    at = [parameter_of(each).at for each in (*others, *terms)]
    wanted = frozenset(range(len(others), len(at)))

    def build(values: Values) -> Filter | None:
        bounds, exact = constraint.bounds(values, at)
        if bounds is None or not exact >= wanted:
            return None
        inside = bounds.conditions(member)
        if op is not Op.NE:
            return join_filters(And, inside) if inside else None
        return _negate_bounds(inside)

    return build


def _property_builder(term: Comparison, member: Member) -> FilterBuilder:
    at, filter_of = parameter_of(term).at, property_filter(term, member)
    return lambda values: filter_of(values[at])


def property_filter(term: Comparison, member: Member) -> Callable[[Any], Filter | None]:
    """
    Return the function from a value to the filter that compares a property with it, as a term does with its own.

    The filter is None if the service cannot express the comparison; EncodeError: the value does not fit the field.
    """
    listed = is_list(term.field) and member.type.base is list
    name, op, is_int = member.property, term.op or Op.EQ, member.type.annotation in (int, Int32)

    def compare(value: Any) -> Filter | None:
        if is_int and type(value) is int and INT32_MIN <= value <= INT32_MAX:
            return Compare(name, op, Constant(Edm.INT32, value))  # every field of ints takes it, as it is
        if listed:
            return None  # whether the list has this element
        try:
            return _start_filter(member, value) if term.op is None else _comparison_filter(member, op, value)
        except ValueError as error:
            raise misfit_error(attrs.evolve(term, value=value), value, str(error)) from None

    return compare


def _start_filter(member: Member, value: Any) -> Filter:
    if member.type.edm is not Edm.STRING or member.type.json_text:
        raise ValueError("startswith() works only on strings")
    start = Compare(member.property, Op.GE, Constant(Edm.STRING, value))
    end = successor(value)
    return start if end is None else And((start, Compare(member.property, Op.LT, Constant(Edm.STRING, end))))


def _comparison_filter(member: Member, op: Op, value: Any) -> Filter | None:
    kind = member.type
    if kind.json_text:
        raise ValueError("a field stored as JSON cannot be compared; filter in Python")
    try:
        kind.encode(value)
        if kind.annotation is Decimal:
            return None  # stored as text, which compares otherwise than numbers
        literal = _constant(value, kind.edm)
    except ValueError as error:
        raise ValueError(f"the value {error}; the field is {kind.name}") from None
    node = compare_value(member.property, op, literal)
    if literal.type not in (Edm.DOUBLE, Edm.INT64):
        return node
    # A constant of another type is unequal to an Int32, so that `ne` alone finds too much.
    return join_filters(And if op is Op.NE else Or, [node, *_compare_int32(member.property, op, literal.value)])


def _compare_int32(name: str, op: Op, value: float) -> list[Filter]:
    """
    Return what finds numbers that other programs stored as Int32, which a Double or an Int64 constant doesn't match.

    JavaScript stores 20 as Int32 beside 20.5 as Double. An Int32 constant is compared with all types of numbers, so
    each comparison here must also hold for them.
    """
    if math.isnan(value):
        return []
    near = max(INT32_MIN - 1, min(INT32_MAX + 1, value))
    low, high = math.floor(near), math.ceil(near)
    if op in (Op.EQ, Op.NE) and low == value and INT32_MIN <= low <= INT32_MAX:
        return [Compare(name, op, Constant(Edm.INT32, low))]
    most = {Op.LT: high - 1, Op.LE: low}.get(op, INT32_MIN - 1)
    least = {Op.GT: low + 1, Op.GE: high}.get(op, INT32_MAX + 1)
    if most >= INT32_MIN:
        return [Compare(name, Op.LE, Constant(Edm.INT32, min(INT32_MAX, most)))]
    return [Compare(name, Op.GE, Constant(Edm.INT32, max(INT32_MIN, least)))] if least <= INT32_MAX else []


def _constant(value: Any, kind: Edm) -> Constant:
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = value.isoformat()
    return constant(value, kind)
