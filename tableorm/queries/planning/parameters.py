"""
Shapes: conditions without their values, so that what is found out about a query once holds for all of its kind.

A shape is read as a key for a dictionary and a list of values. The same conditions with a slot in place of each value
are a pattern: an expression that can be taken apart and put together as any other, and that is filled in the end.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import attrs

from ...expressions import AllOf, AnyOf, Comparison, Expression, Membership, NoneOf, Presence, PropertyComparison
from ...protocol.edm import INT32_MAX, INT32_MIN
from ...protocol.filters import Constant

__all__ = ["Shape", "Slot", "filled", "moved", "patterns", "shape_of", "slot_of"]

T = TypeVar("T")

Shape = tuple[Any, ...]
"""
Conditions without their values. Fields are in it by identity, as equality of fields is a condition: whoever keeps a
shape keeps its patterns, and with them the fields.
"""


@attrs.frozen(eq=False)
class Slot:
    """
    The place of a value in a pattern.

    Args:
        at: Where it is among the values.
        many: Whether it is all the values of an `in_`.
        wide: Whether it is an int beyond Int32, where that makes a difference.
    """

    at: int
    many: bool = False
    wide: bool = False


# What stands before the parts of a condition in a shape; no identity is negative.
_ALL, _ANY, _NOT, _IN, _IN_NOTHING, _PRESENT, _PROPERTY, _WIDE = range(-8, 0)


def shape_of(where: Sequence[Expression]) -> tuple[Shape, list[Any]]:
    """The shape of conditions, and their values."""
    shape: list[Any] = []
    values: list[Any] = []
    for term in where:
        if type(term) is Comparison:  # as `_read`, without a call
            shape += (id(term.field), term.op)
            values.append(term.value)
        else:
            _read(term, shape, values, negated=False)
    return tuple(shape), values


def _read(term: Expression, shape: list[Any], values: list[Any], *, negated: bool) -> None:
    if isinstance(term, (AllOf, AnyOf)):
        terms = term.terms
        shape += (_ALL if isinstance(term, AllOf) else _ANY, len(terms))
        for each in terms:
            if type(each) is Comparison and not negated:  # likewise
                shape += (id(each.field), each.op)
                values.append(each.value)
            else:
                _read(each, shape, values, negated=negated)
    elif isinstance(term, Comparison):
        if negated and _is_wide(term.value):
            shape.append(_WIDE)
        shape += (id(term.field), term.op)
        values.append(term.value)
    elif isinstance(term, Membership):
        shape += (_IN if term.values else _IN_NOTHING, id(term.field), term.negated)
        if term.values:
            values.append(term.values)
    elif isinstance(term, Presence):
        shape += (_PRESENT, id(term.field), term.negated)
    elif isinstance(term, PropertyComparison):
        shape += (_PROPERTY, term.property, term.op, term.constant.type)
        values.append(term.constant.value)
    elif isinstance(term, NoneOf):
        shape.append(_NOT)
        _read(term.term, shape, values, negated=True)
    else:
        raise TypeError(f"{term!r} is no condition")


def _is_wide(value: Any) -> bool:
    """Whether the opposite of an order is no order: an Int64 constant is not compared with an Int32 property."""
    return isinstance(value, int) and not INT32_MIN <= value <= INT32_MAX


def patterns(where: Sequence[Expression]) -> list[Expression]:
    """Conditions with a slot for each value that `shape_of` gives, in the same order."""
    count = 0

    def pattern(term: Expression) -> Expression:
        nonlocal count
        match term:
            case AllOf() | AnyOf():
                return type(term)(tuple([pattern(each) for each in term.terms]))
            case NoneOf():
                return NoneOf(pattern(term.term))
            case Membership() if term.values:
                slot = Slot(count, many=True)
                found: Expression = Membership(term.field, (slot,), term.negated)
            case Comparison():
                found = Comparison(term.field, term.op, Slot(count, wide=_is_wide(term.value)))
            case PropertyComparison():
                found = PropertyComparison(term.property, term.op, Constant(term.constant.type, Slot(count)))
            case _:
                return term
        count += 1
        return found

    return [pattern(term) for term in where]


def slot_of(term: Comparison | Membership | PropertyComparison) -> Slot:
    """The slot of a condition of a pattern that has a value."""
    if isinstance(term, Comparison):
        slot = term.value
    else:
        slot = term.values[0] if isinstance(term, Membership) else term.constant.value
    assert isinstance(slot, Slot)
    return slot


def moved(terms: Sequence[Expression], first: int) -> tuple[list[Expression], Shape, list[Slot]]:
    """
    Patterns with their slots numbered anew.

    Args:
        terms: The patterns.
        first: The number of their first slot.

    Returns:
        The same patterns with the slots one after the other; their shape; the slots that they had.
    """
    shape, found = shape_of(terms)
    places: dict[int, Any] = {}
    slots: list[Slot] = []
    for at, each in enumerate(found, first):
        # All the values of an `in_` stand in a tuple.
        old = each if isinstance(each, Slot) else cast("tuple[Slot]", each)[0]
        new = Slot(at, old.many)
        places[old.at] = new if old is each else (new,)
        slots.append(old)
    return [filled(term, places) for term in terms], shape, slots


def filled(term: Expression, values: Sequence[Any] | Mapping[int, Any]) -> Expression:
    """A pattern with values in its slots."""
    match term:
        case AllOf() | AnyOf():
            return type(term)(tuple([filled(each, values) for each in term.terms]))
        case NoneOf():
            return NoneOf(filled(term.term, values))
        case Membership() if term.values:
            return Membership(term.field, values[slot_of(term).at], term.negated)
        case Comparison():
            return Comparison(term.field, term.op, values[slot_of(term).at])
        case PropertyComparison():
            return PropertyComparison(term.property, term.op, Constant(term.constant.type, values[slot_of(term).at]))
        case _:
            return term
