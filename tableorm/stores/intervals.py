"""
Intervals of one key: where they begin and end in UTF-16 order, and what several have in common.
"""

from collections.abc import Sequence

from ..protocol.edm import utf16_key
from .tables import Bounds

EVERYTHING = Bounds()

# In UTF-16 the astral characters sort between U+D7FF and U+E000.
_AFTER = {0xD7FF: 0x10000, 0x10FFFF: 0xE000}


def successor(prefix: str) -> str | None:
    """
    Return the smallest text that sorts after every text starting with `prefix`, in UTF-16 order; None without one.
    """
    while prefix:
        last = ord(prefix[-1])
        if last == 0xFFFF:
            prefix = prefix[:-1]
            continue
        return prefix[:-1] + chr(last + 1 if last < 0xD7FF else _AFTER.get(last, last + 1))
    return None


def nameable(text: str) -> str:
    """
    Return a text itself, or, if it has half of a surrogate pair, so that no request can name it, the next one in UTF-16
    order that a request can name.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        at = error.start
        behind_pairs = "\ue000" <= text[at + 1 : at + 2] <= "\uffff"
        first = ord(text[at]) + behind_pairs
        return text[:at] + (chr(0x10000 + (first - 0xD800) * 0x400) if first < 0xDC00 else "\ue000")
    return text


def starting_with(prefix: str) -> Bounds:
    """Return the interval of all texts that start with a prefix."""
    end = successor(prefix)
    return Bounds(prefix or None, end, upper_open=end is not None)


def low_of(bounds: Bounds) -> tuple[bytes, bool]:
    """Return a sort key that orders intervals by where they begin."""
    return (b"", False) if bounds.lower is None else (utf16_key(bounds.lower), bounds.lower_open)


def high_of(bounds: Bounds) -> tuple[int, bytes, bool]:
    """Return a sort key that orders intervals by where they end."""
    if bounds.upper is None:
        return (1, b"", False)
    return (0, utf16_key(bounds.upper), not bounds.upper_open)


def meet(first: Bounds, second: Bounds) -> Bounds | None:
    """Return the intersection; None if it is empty."""
    if first is second or (second.lower is None and second.upper is None):
        return first
    if first.lower is None and first.upper is None:
        return second
    low = second if first.lower is None else first
    if low is first and second.lower is not None and low_of(second) > low_of(first):
        low = second
    high = second if first.upper is None else first
    if high is first and second.upper is not None and high_of(second) < high_of(first):
        high = second
    if low is high:
        return low
    merged = Bounds(low.lower, high.upper, low.lower_open, high.upper_open)
    return None if _empty(merged) else merged


def _empty(bounds: Bounds) -> bool:
    if bounds.lower is None or bounds.upper is None:
        return False
    a, b = utf16_key(bounds.lower), utf16_key(bounds.upper)
    return a > b or (a == b and (bounds.lower_open or bounds.upper_open))


def overlaps(first: Bounds, second: Bounds) -> bool:
    """Return whether some key is in both."""
    return meet(first, second) is not None


def hull(intervals: Sequence[Bounds]) -> Bounds:
    """Return the smallest interval that holds them all."""
    if len(intervals) == 1:
        return intervals[0]
    low = min(intervals, key=low_of)
    high = max(intervals, key=high_of)
    return Bounds(low.lower, high.upper, low.lower_open, high.upper_open)


def common_prefix(first: str, second: str) -> str:
    """Return what two texts begin with."""
    length = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        length += 1
    return first[:length]
