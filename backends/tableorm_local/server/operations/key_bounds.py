"""
Key bounds: which PartitionKeys and RowKeys can satisfy a filter, so that a query reads no others.

A row outside of the bounds never satisfies the filter; a row inside of them need not satisfy it.
"""

from tableorm.protocol.edm import Edm, utf16_key
from tableorm.protocol.filters import And, Compare, Filter, Not, Op, Or
from tableorm.stores import Bounds

__all__ = ["bounds_of"]

_EVERY = Bounds()


def bounds_of(where: Filter | None, key: str) -> Bounds:
    """
    Return an interval of `key`, PartitionKey or RowKey, that contains it in every row that satisfies `where`.

    The recursion is bounded: a filter from `parse_filter` nests at most `MAX_DEPTH` levels.
    """
    match where:
        case Compare(name, op, constant) if name == key and constant.type is Edm.STRING:
            return _bounds_of_comparison(op, constant.value)
        case And(terms):
            result = _EVERY
            for term in terms:
                result = _intersect(result, bounds_of(term, key))
            return result
        case Or(terms):
            found = [bounds_of(term, key) for term in terms]
            result = found[0]
            for other in found[1:]:
                result = _unite(result, other)
            return result
        case Compare() | Not() | None:
            return _EVERY


def _bounds_of_comparison(op: Op, text: str) -> Bounds:
    match op:
        case Op.EQ:
            return Bounds.only(text)
        case Op.GT:
            return Bounds(lower=text, lower_open=True)
        case Op.GE:
            return Bounds(lower=text)
        case Op.LT:
            return Bounds(upper=text, upper_open=True)
        case Op.LE:
            return Bounds(upper=text)
        case Op.NE:
            return _EVERY


def _intersect(one: Bounds, two: Bounds) -> Bounds:
    low, high = max(one, two, key=_start), min(one, two, key=_end)
    return Bounds(low.lower, high.upper, low.lower_open, high.upper_open)


def _unite(one: Bounds, two: Bounds) -> Bounds:
    low, high = min(one, two, key=_start), max(one, two, key=_end)
    return Bounds(low.lower, high.upper, low.lower_open, high.upper_open)


def _start(bounds: Bounds) -> tuple[bool, bytes, bool]:
    """Return a sort key for the start of an interval."""
    return bounds.lower is not None, utf16_key(bounds.lower or ""), bounds.lower_open


def _end(bounds: Bounds) -> tuple[bool, bytes, bool]:
    """Return a sort key for the end of an interval."""
    return bounds.upper is None, utf16_key(bounds.upper or ""), not bounds.upper_open
