"""
Key intervals: which keys of a table's B-tree can hold the rows that a query asks for.

A row outside of an interval never satisfies the query; a row inside of it need not satisfy it.
"""

from collections.abc import Callable

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import Edm, utf16_key
from tableorm.protocol.filters import And, Compare, Filter, Not, Op, Or
from tableorm.stores import Bounds

__all__ = ["END", "Interval", "count_comparisons", "filter_interval", "partition_interval", "row_interval"]

END = b"\xff"  # no byte of a key is as large

Interval = tuple[bytes, bytes]
"""The keys from the first one on, and before the second."""

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
    high = END if upper is None else upper + (b"\0" if upper_open else b"\1")
    return low, high


def row_interval(bounds: Bounds) -> Interval:
    """Return the RowKeys within bounds, as they follow the PartitionKey and its separator."""
    lower, upper, lower_open, upper_open = _encode_bounds("RowKey", bounds)
    low = b"" if lower is None else lower + (b"\0" if lower_open else b"")
    high = END if upper is None else upper + (b"" if upper_open else b"\0")
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
            found = [filter_interval(term) for term in terms]
            low, high = max([first for first, _ in found], default=b""), min([last for _, last in found], default=END)
            start = low
            if high == start[:-1] + b"\1":  # a single partition
                for term in terms:
                    if isinstance(term, Compare) and term.property == "RowKey" and term.constant.type is Edm.STRING:
                        rows = row_interval(_BOUNDS[term.op](term.constant.value))
                        low, high = max(low, start + rows[0]), min(high, start + rows[1])
            return low, high
        case Or(terms):
            found = [filter_interval(term) for term in terms]
            return min([first for first, _ in found], default=END), max([last for _, last in found], default=b"")
        case Compare() | Not():
            return b"", END


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
