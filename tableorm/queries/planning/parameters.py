"""
Query shapes: conditions without their values, so that what is found out about one query holds for all of its shape.

A shape is read as a key for a dictionary and a list of values. The same conditions with a parameter in place of each
value are parameterised conditions: expressions that can be taken apart and put together as any other. Values are bound
to them in the end.
"""

import enum
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import attrs
import msgspec

from ...errors import ModelError
from ...expressions import (
    MAX_DEPTH,
    AllOf,
    AnyOf,
    Comparison,
    Expression,
    Membership,
    NoneOf,
    Presence,
    PropertyComparison,
)
from ...protocol.edm import INT32_MAX, INT32_MIN
from ...protocol.filters import Constant

Values = Sequence[Any]
"""The values of a query, in the order of its parameters."""

QueryShape = tuple[Any, ...]
"""
Conditions without their values. Fields are in it by identity, as equality of fields is a condition: who keeps a shape
keeps its parameterised conditions, and with them the fields.
"""


@attrs.frozen(eq=False)
class Parameter:
    """
    The place of a value in a parameterised condition.

    Args:
        at: The index of the value among the values of the query.
        many: Whether it stands for all the values of an `in_`.
        wide: Whether the value is an int beyond Int32, where that makes a difference.
    """

    at: int
    many: bool = False
    wide: bool = False


# What stands before the parts of a condition in a shape; no identity is negative.
_ALL, _ANY, _NOT, _IN, _IN_NOTHING, _PRESENT, _PROPERTY, _WIDE = range(-8, 0)


def shape_of(where: Sequence[Expression]) -> tuple[QueryShape, list[Any]]:
    """
    Return the shape of conditions, and their values.

    Raises:
        ModelError: A condition nests deeper than `MAX_DEPTH`.
    """
    shape: list[Any] = []
    values: list[Any] = []
    for term in where:
        if type(term) is Comparison:  # what `_read` does, without a call: a tenth of `benchmarks.run planning`, a point
            shape += (id(term.field), term.op)
            values.append(term.value)
        else:
            _read(term, shape, values, negated=False, depth=1)
    return tuple(shape), values


def _read(term: Expression, shape: list[Any], values: list[Any], *, negated: bool, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ModelError(
            f"a condition nests deeper than {MAX_DEPTH} levels; write a & b & c, or x.in_([...]), instead of "
            "conditions in conditions"
        )
    if isinstance(term, (AllOf, AnyOf)):
        shape += (_ALL if isinstance(term, AllOf) else _ANY, len(term.terms))
        for each in term.terms:
            _read(each, shape, values, negated=negated, depth=depth + 1)
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
        _read(term.term, shape, values, negated=True, depth=depth + 1)
    else:
        raise TypeError(f"{term!r} is not a condition")


def _is_wide(value: Any) -> bool:
    """Return whether the opposite of an order is none: an Int64 constant is not compared with an Int32 property."""
    if isinstance(value, enum.Enum):
        value = value.value
    return isinstance(value, int) and not INT32_MIN <= value <= INT32_MAX


def parameterise(where: Sequence[Expression]) -> list[Expression]:
    """Return the conditions with a parameter for each value that `shape_of` gives, in the same order."""
    numbers = itertools.count()

    def make_parameter(term: _WithValue) -> Any:
        if isinstance(term, Membership):
            return (Parameter(next(numbers), many=True),)
        return Parameter(next(numbers), wide=isinstance(term, Comparison) and _is_wide(term.value))

    return [_replace_values(term, make_parameter) for term in where]


_WithValue = Comparison | Membership | PropertyComparison


def _replace_values(term: Expression, value_of: Callable[[_WithValue], Any]) -> Expression:
    """Return a condition with other values."""
    match term:
        case AllOf() | AnyOf():
            return type(term)(tuple([_replace_values(each, value_of) for each in term.terms]))
        case NoneOf():
            return NoneOf(_replace_values(term.term, value_of))
        case Membership() if term.values:
            return Membership(term.field, value_of(term), term.negated)
        case Comparison():
            return Comparison(term.field, term.op, value_of(term))
        case PropertyComparison():
            return PropertyComparison(term.property, term.op, Constant(term.constant.type, value_of(term)))
        case _:
            return term


def parameter_of(term: _WithValue) -> Parameter:
    """Return the parameter of a parameterised condition that has a value."""
    if isinstance(term, Comparison):
        found = term.value
    else:
        found = term.values[0] if isinstance(term, Membership) else term.constant.value
    assert isinstance(found, Parameter)
    return found


class Renumbered(msgspec.Struct, frozen=True, eq=False):
    """
    Parameterised conditions whose parameters were numbered anew.

    Args:
        terms: The conditions with the new parameters, one after the other.
        shape: Their shape.
        before: The parameters that they had, in the order of the new ones.
    """

    terms: list[Expression]
    shape: QueryShape
    before: list[Parameter]


def renumber(terms: Sequence[Expression], first: int) -> Renumbered:
    """
    Number the parameters of conditions anew.

    Args:
        terms: The parameterised conditions.
        first: The number of their first parameter.
    """
    shape, found = shape_of(terms)
    places: dict[int, Any] = {}
    before: list[Parameter] = []
    for at, each in enumerate(found, first):
        # All the values of an `in_` stand in a tuple.
        old = each if isinstance(each, Parameter) else cast("tuple[Parameter]", each)[0]
        new = Parameter(at)  # what else the old one tells was asked before
        places[old.at] = new if old is each else (new,)
        before.append(old)
    return Renumbered([bind(term, places) for term in terms], shape, before)


def bind(term: Expression, values: Values | Mapping[int, Any]) -> Expression:
    """Return a parameterised condition with values in place of its parameters."""
    return _replace_values(term, lambda each: values[parameter_of(each).at])
