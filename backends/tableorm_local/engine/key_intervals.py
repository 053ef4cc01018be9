"""
Key intervals: which keys of a table's B-tree can hold the rows that a query asks for.

A row outside of an interval never satisfies the query; a row inside of it need not satisfy it.
"""

from collections.abc import Callable, Iterable

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import Edm, utf16_key
from tableorm.protocol.filters import And, Compare, Filter, Not, Op, Or
from tableorm.stores import Bounds

__all__ = [
    "EVERYTHING",
    "Interval",
    "count_comparisons",
    "filter_interval",
    "filter_rows",
    "intersect",
    "narrow_to_rows",
    "partition_interval",
    "row_interval",
]

_END = b"\xff"  # no byte of a key is as large

Interval = tuple[bytes, bytes]
"""The keys from the first one on, and before the second."""

EVERYTHING: Interval = (b"", _END)
_NOTHING: Interval = (_END, b"")

_BOUNDS: dict[Op, Callable[[str], Bounds]] = {
    Op.EQ: Bounds.only,
    Op.GT: lambda text: Bounds(lower=text, lower_open=True),
    Op.GE: lambda text: Bounds(lower=text),
    Op.LT: lambda text: Bounds(upper=text, upper_open=True),
    Op.LE: lambda text: Bounds(upper=text),
    Op.NE: lambda _: Bounds(),
}


def partition_interval(bounds: Bounds) -> Interval:
    """Return the keys of all rows in those partitions: PK + 0 is a partition's start, PK + 1 is past its end."""
    lower, upper, lower_open, upper_open = _encode_bounds("PartitionKey", bounds)
    low = b"" if lower is None else lower + (b"\1" if lower_open else b"\0")
    high = _END if upper is None else upper + (b"\0" if upper_open else b"\1")
    return low, high


def row_interval(bounds: Bounds) -> Interval:
    """Return the RowKeys within bounds, as they follow the PartitionKey and its separator."""
    lower, upper, lower_open, upper_open = _encode_bounds("RowKey", bounds)
    low = b"" if lower is None else lower + (b"\0" if lower_open else b"")
    high = _END if upper is None else upper + (b"" if upper_open else b"\0")
    return low, high


def filter_interval(where: Filter) -> Interval:
    """
    Return the keys between the first and the last row that can satisfy a filter.

    A range of keys that starts and ends within partitions is a filter on both keys, which is one interval here.
    """
    match where:
        case Compare("PartitionKey", op, constant) if constant.type is Edm.STRING:
            return partition_interval(_BOUNDS[op](constant.value))
        case And(terms):
            keys = intersect(map(filter_interval, terms))
            return narrow_to_rows(keys, filter_rows(where)) or keys
        case Or(terms):
            return _unite(map(filter_interval, terms))
        case Compare() | Not():
            return EVERYTHING


def filter_rows(where: Filter) -> Interval:
    """Return an interval that contains the RowKey of every row that satisfies a filter."""
    match where:
        case Compare("RowKey", op, constant) if constant.type is Edm.STRING:
            return row_interval(_BOUNDS[op](constant.value))
        case And(terms):
            return intersect(map(filter_rows, terms))
        case Or(terms):
            return _unite(map(filter_rows, terms))
        case Compare() | Not():
            return EVERYTHING


def narrow_to_rows(keys: Interval, rows: Interval) -> Interval | None:
    """Return the keys with these RowKeys if all are of a single partition; None if they may be of several."""
    low, high = keys
    start = low[: low.find(b"\0") + 1]
    if not start or not (high.startswith(start) or high == start[:-1] + b"\1"):
        return None
    return max(low, start + rows[0]), min(high, start + rows[1])


def intersect(intervals: Iterable[Interval]) -> Interval:
    """Return what lies in all of the intervals."""
    lows, highs = zip(EVERYTHING, *intervals, strict=True)
    return max(lows), min(highs)


def _unite(intervals: Iterable[Interval]) -> Interval:
    lows, highs = zip(_NOTHING, *intervals, strict=True)
    return min(lows), max(highs)


def count_comparisons(where: Filter) -> int:
    """Return how many comparisons a filter has."""
    match where:
        case Compare():
            return 1
        case Not(term):
            return count_comparisons(term)
        case And(terms) | Or(terms):
            return sum(map(count_comparisons, terms))


def _encode_bounds(name: str, bounds: Bounds) -> tuple[bytes | None, bytes | None, bool, bool]:
    """
    Return bounds as bytes (lower, upper, lower_open, upper_open).

    Keys have no U+0000, so a bound that has one is just after the text in front of it.
    """
    lower, upper, lower_open, upper_open = bounds.lower, bounds.upper, bounds.lower_open, bounds.upper_open
    if lower is not None and "\0" in lower:
        lower, lower_open = lower[: lower.index("\0")], True
    if upper is not None and "\0" in upper:
        upper, upper_open = upper[: upper.index("\0")], False
    return (
        None if lower is None else _encode_bound(name, lower),
        None if upper is None else _encode_bound(name, upper),
        lower_open,
        upper_open,
    )


def _encode_bound(name: str, text: str) -> bytes:
    try:
        return utf16_key(text)
    except UnicodeEncodeError as error:
        raise Fault(
            Code.INVALID_INPUT, f"The bound {text[:80]!r} of {name} has a lone surrogate at position {error.start}."
        ) from None
