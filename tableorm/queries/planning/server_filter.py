"""
Conditions as filters that a service evaluates.

What becomes of a condition is told by its pattern: the property, the operator, which key holds the field. So a pattern
gives a sender, a function from the values of a query to the filter, and a query of a known shape only calls it.
"""

import datetime as dt
import enum
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, cast

from ...expressions import AllOf, AnyOf, Comparison, Expression, Membership, NoneOf, Presence, PropertyComparison
from ...keys.bounds import successor
from ...models.kinds import KindSet
from ...models.schema import FieldInfo
from ...protocol.edm import Edm
from ...protocol.filters import And, Compare, Constant, Filter, Not, Op, Or, constant
from .normalize import OPPOSITE, FieldTerm, has_field, key_of_field, misfit, one_property
from .parameters import filled, slot_of

__all__ = ["Sender", "property_filter", "sender"]

Values = Sequence[Any]

Sender = Callable[[Values], Filter | None]
"""From values to a filter; None if the service cannot express the condition."""


def sender(kinds: KindSet, term: Expression, given: Sequence[Comparison] = ()) -> Sender:
    """
    The filters of a pattern in normal form. They raise `EncodeError` and `TemplateError` if a value does not fit.

    Args:
        kinds: What is asked for.
        term: The pattern.
        given: Equalities that hold anyway: with them a condition on a part of a key can be one on the whole key.
    """
    match term:
        case AllOf() | AnyOf():
            return _combined(kinds, term, given)
        case PropertyComparison():
            name, op, kind, at = term.property, term.op, term.constant.type, slot_of(term).at
            return lambda values: Compare(name, op, Constant(kind, values[at]))
        case NoneOf():
            return _negated(kinds, term.term)
        case Presence():
            info = None if term.negated else one_property(kinds, term)
            return _inexpressible if info is None else _always(_exists(info.property, Constant(Edm.STRING, "")))
        case Membership():
            return _membership(kinds, term, given)
        case Comparison():
            info = one_property(kinds, term)
            return _key_sender(kinds, [term], given) if info is None else _property_sender(term, info)
        case _:
            return _inexpressible


def _inexpressible(values: Values) -> Filter | None:
    del values
    return None


def _always(node: Filter) -> Sender:
    def send(values: Values) -> Filter | None:
        del values
        return node

    return send


def _combined(kinds: KindSet, term: AllOf | AnyOf, given: Sequence[Comparison]) -> Sender:
    senders = _joined(kinds, term, given) if isinstance(term, AllOf) else [sender(kinds, t, given) for t in term.terms]
    kind: type[And | Or] = And if isinstance(term, AllOf) else Or

    def send(values: Values) -> Filter | None:
        found = [each(values) for each in senders]
        return None if None in found else kind(tuple(cast("list[Filter]", found)))

    return send


def _joined(kinds: KindSet, term: AllOf, given: Sequence[Comparison]) -> list[Sender]:
    """Of the terms; bounds of one key field, of which each says where keys begin and end, as one filter."""
    groups: dict[str, list[Comparison]] = {}
    for each in term.terms:
        if isinstance(each, Comparison) and each.op is not Op.NE:
            groups.setdefault(each.field.name, []).append(each)
    found: list[Sender] = []
    for each in term.terms:
        group = groups.get(each.field.name, []) if isinstance(each, Comparison) and each.op is not Op.NE else []
        if len(group) < 2 or _holder(kinds, group) is None:
            found.append(sender(kinds, each, given))
        elif each is group[0]:
            found.append(_together(kinds, group, given))
    return found


def _together(kinds: KindSet, group: Sequence[Comparison], given: Sequence[Comparison]) -> Sender:
    """Conditions on a field in a key as one filter if values allow, otherwise as one each."""
    whole, single = _key_sender(kinds, group, given), [sender(kinds, each, given) for each in group]

    def send(values: Values) -> Filter | None:
        node = whole(values)
        if node is not None:
            return node
        found = [each(values) for each in single]
        return None if None in found else And(tuple(cast("list[Filter]", found)))

    return send


def _exists(name: str, literal: Constant) -> Filter:
    """What an absent property satisfies under no reading: each comparison alone is false, or unknown."""
    return Or((Compare(name, Op.EQ, literal), Compare(name, Op.NE, literal)))


def _negated(kinds: KindSet, term: Expression) -> Sender:
    if isinstance(term, PropertyComparison):
        positive = sender(kinds, term)
    else:
        info = one_property(kinds, term) if isinstance(term, Comparison) else None
        if info is None or not isinstance(term, Comparison):
            return _inexpressible
        positive = _property_sender(term, info)

    def send(values: Values) -> Filter | None:
        node = positive(values)
        if isinstance(node, Compare):
            return And((Not(node), _exists(node.property, node.constant)))
        if isinstance(node, And):  # startswith: two bounds of text, which has an order
            below, above = node.terms
            if isinstance(below, Compare) and isinstance(above, Compare):
                return Or(tuple(Compare(c.property, OPPOSITE[c.op], c.constant) for c in (below, above)))
        return None

    return send


def _membership(kinds: KindSet, term: Membership, given: Sequence[Comparison]) -> Sender:
    info = one_property(kinds, term)
    at, negated = slot_of(term).at, term.negated
    one = Comparison(term.field, Op.NE if negated else Op.EQ, slot_of(term))
    single = _key_sender(kinds, [one], given) if info is None else _property_sender(one, info)

    def send(values: Values) -> Filter | None:
        if info is not None and info.type.json_text:
            raise misfit(_of_field(term, values), values[at], _NO_COMPARISON)
        terms: list[Filter] = []
        each = list(values)
        for value in dict.fromkeys(values[at]):
            each[at] = value
            node = single(each)
            if node is None:
                return None
            terms.append(node)
        return terms[0] if len(terms) == 1 else And(tuple(terms)) if negated else Or(tuple(terms))

    return send


def _holder(kinds: KindSet, terms: Sequence[Comparison]) -> Any:
    """The template that holds the field of these terms in full, and the member it makes, of the one kind; or None."""
    schema = kinds.schemas[0] if len(kinds.schemas) == 1 and not kinds.bags else None
    if schema is None or not all(has_field(schema, term.field) for term in terms):
        return None
    return key_of_field(schema, terms[0].field.name)


def _key_sender(kinds: KindSet, terms: Sequence[Comparison], given: Sequence[Comparison]) -> Sender:
    """Conditions on a field in a key, of which all hold, as one on the key, where that says exactly the same."""
    name, op = terms[0].field.name, terms[0].op
    holder = _holder(kinds, terms)
    if holder is None:
        return _inexpressible
    template, member = holder
    others = [each for each in given if each.field.name != name]
    said: list[tuple[str, Op | None]] = [(each.field.name, Op.EQ) for each in others]
    said += [(name, Op.EQ if term.op is Op.NE else term.op) for term in terms]
    form = template.form(tuple(said))
    at = [slot_of(each).at for each in (*others, *terms)]
    wanted = frozenset(range(len(others), len(at)))

    def send(values: Values) -> Filter | None:
        bounds, exact = form.bounds(values, at)
        if bounds is None or not exact >= wanted:
            return None
        inside = bounds.conditions(member)
        if op is not Op.NE:
            return And(tuple(inside)) if len(inside) > 1 else inside[0] if inside else None
        if not all(isinstance(each, Compare) for each in inside) or not inside:
            return None
        outside_of = tuple(Compare(c.property, OPPOSITE[c.op], c.constant) for c in inside if isinstance(c, Compare))
        return outside_of[0] if len(outside_of) == 1 else Or(outside_of)

    return send


_NO_COMPARISON = "a field stored as JSON text has no comparison; filter in Python"


def _property_sender(term: Comparison, info: FieldInfo) -> Sender:
    at = slot_of(term).at
    filter_of = _filters_of(info, term.op)

    def send(values: Values) -> Filter | None:
        try:
            return filter_of(values[at])
        except ValueError as error:
            raise misfit(_of_field(term, values), values[at], str(error)) from None

    return send


def property_filter(term: Comparison, info: FieldInfo) -> Filter | None:
    """
    The filter of a comparison of a property; None if the service cannot express it.

    Raises:
        EncodeError: The value does not fit the field.
    """
    try:
        return _filters_of(info, term.op)(term.value)
    except ValueError as error:
        raise misfit(term, term.value, str(error)) from None


def _filters_of(info: FieldInfo, op: Op | None) -> Callable[[Any], Filter | None]:
    """From a value to the filter that compares a property with it; ValueError says what does not fit."""
    name, kind = info.property, info.type

    def starts(value: Any) -> Filter:
        if kind.edm is not Edm.STRING or kind.json_text:
            raise ValueError("startswith() is for text")
        start = Compare(name, Op.GE, Constant(Edm.STRING, value))
        end = successor(value)
        return start if end is None else And((start, Compare(name, Op.LT, Constant(Edm.STRING, end))))

    def compares(value: Any) -> Filter | None:
        if kind.json_text:
            raise ValueError(_NO_COMPARISON)
        if kind.annotation is Decimal:
            return None  # stored as text, which compares otherwise than numbers
        try:
            kind.encode(value)
            return Compare(name, op or Op.EQ, _constant(value, kind.edm))
        except ValueError as error:
            raise ValueError(f"the value {error}; the field is {kind.name}") from None

    return starts if op is None else compares


_AS_IT_IS: dict[type, Edm] = {str: Edm.STRING, float: Edm.DOUBLE, bool: Edm.BOOLEAN}


def _constant(value: Any, kind: Edm) -> Constant:
    if _AS_IT_IS.get(value.__class__) is kind:  # as below, for the commonest
        return Constant(kind, value)
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = value.isoformat()
    return constant(value, kind)


def _of_field(term: FieldTerm, values: Values) -> FieldTerm:
    """The condition itself, for messages."""
    return cast("FieldTerm", filled(term, values))
