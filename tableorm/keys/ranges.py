"""
Ranges of keys: intervals of one key, regions of both, and what lies before or after a position in key order.

Keys sort by PartitionKey, then RowKey, each by UTF-16 code unit.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import attrs

from ..protocol.edm import utf16_key
from ..stores import Bounds
from ..stores.intervals import EVERYTHING, common_prefix, meet, nameable, overlaps, successor
from .template import Template

__all__ = ["EVERYTHING", "KeyInterval", "KeyPosition", "KeyRegion", "divide", "divided_at", "key_order"]

KeyPosition = tuple[str, str]
"""(PartitionKey, RowKey)"""


def key_order(position: KeyPosition) -> tuple[bytes, bytes]:
    """Return a sort key that orders positions as rows are ordered."""
    return utf16_key(position[0]), utf16_key(position[1])


@attrs.frozen
class KeyRegion:
    """
    Keys whose PartitionKey and RowKey are each in an interval: what one request can ask for.
    """

    partition: Bounds = EVERYTHING
    row: Bounds = EVERYTHING

    def meet(self, other: "KeyRegion") -> "KeyRegion | None":
        """Return the intersection; None if it is empty."""
        partition, row = meet(self.partition, other.partition), meet(self.row, other.row)
        return None if partition is None or row is None else KeyRegion(partition, row)

    def holds(self, position: KeyPosition) -> bool:
        """Return whether a key is inside."""
        return overlaps(self.partition, Bounds.only(position[0])) and overlaps(self.row, Bounds.only(position[1]))


@attrs.frozen
class KeyInterval:
    """
    An interval of the key order, from `low` to before `high`.

    Args:
        low: Where it begins; None for the first key of all.
        high: The first key behind it; None if it goes to the end.
        low_open: Whether `low` itself is not inside.
    """

    low: KeyPosition | None = None
    high: KeyPosition | None = None
    low_open: bool = False

    def clip(self, region: KeyRegion) -> list[KeyRegion]:
        """
        Return what of a region is inside, as regions in key order.

        Within many partitions there are up to three: the end of one, whole ones, the beginning of another.
        """
        found = [region]
        if self.low is not None:
            found = [part for each in found for part in _cut_before(each, self.low, low_open=self.low_open)]
        if self.high is not None:
            found = [part for each in found for part in _cut_after(each, self.high)]
        return found


def _cut_before(region: KeyRegion, key: KeyPosition, *, low_open: bool) -> list[KeyRegion]:
    partition, row = nameable(key[0]), nameable(key[1])
    if partition != key[0]:
        return _meet(region, Bounds(partition), EVERYTHING)
    if row != key[1]:
        key, low_open = (partition, row), False
    if not key[1] and not low_open:
        return _meet(region, Bounds(key[0]), EVERYTHING)
    here = _meet(region, Bounds.only(key[0]), Bounds(key[1], None, lower_open=low_open))
    return here + _meet(region, Bounds(key[0], None, lower_open=True), EVERYTHING)


def _cut_after(region: KeyRegion, key: KeyPosition) -> list[KeyRegion]:
    whole = _meet(region, Bounds(None, key[0], upper_open=True), EVERYTHING)
    return whole + (_meet(region, Bounds.only(key[0]), Bounds(None, key[1], upper_open=True)) if key[1] else [])


def _meet(region: KeyRegion, partition: Bounds, row: Bounds) -> list[KeyRegion]:
    part = region.meet(KeyRegion(partition, row))
    return [] if part is None else [part]


# Dividing

_TEXT = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_CANDIDATES_PER_PART = 16
_MOST_CANDIDATES = 20_000


def divide(bounds: Bounds, templates: Iterable[Template | None], parts: int) -> list[Bounds]:
    """
    Return intervals, in order, that together are `bounds`.

    They are about equal shares of the keys that the templates can make: a number or a date is divided by its digits,
    free text is taken to begin with ASCII letters and digits.

    Args:
        bounds: The interval to divide.
        templates: The templates of the keys; None for keys of any form. If there are none, keys are of any form too.
        parts: How many intervals there are at most; fewer where keys leave nothing to divide.
    """
    edges: set[str] = set()
    for template in [*templates] or [None]:
        edges |= set(_find_edges(bounds, template, parts * _CANDIDATES_PER_PART))
    inside = sorted(edges, key=utf16_key)
    if not inside or parts < 2:
        return [bounds]
    chosen = sorted({inside[len(inside) * n // parts] for n in range(1, parts)}, key=utf16_key)
    return [piece for each in divided_at(chosen) if (piece := meet(bounds, each)) is not None]


def divided_at(starts: Iterable[str | None]) -> list[Bounds]:
    """Return intervals that together are all keys, and begin with some of them, but for the first one."""
    return [Bounds(low, high, upper_open=high is not None) for low, high in pairwise([None, *starts, None])]


def _find_edges(bounds: Bounds, template: Template | None, wanted: int) -> list[str]:
    """Return prefixes of keys strictly inside of the bounds, evenly spread, about as many as wanted."""
    # As sort keys, since there are many texts.
    low, high = utf16_key(bounds.lower or ""), None if bounds.upper is None else utf16_key(bounds.upper)

    def begins_before_end(text: bytes) -> bool:
        return high is None or text < high or (not bounds.upper_open and text == high)

    def may_hold(prefix: bytes) -> bool:
        """Return whether some key that starts with the prefix is inside."""
        return (prefix > low or low.startswith(prefix)) and begins_before_end(prefix)

    def divides(text: bytes) -> bool:
        """Return whether the text divides the bounds: something is before it, and something from it on."""
        return text > low and begins_before_end(text)

    if template is not None and len(template.buckets) > 1:
        found = [text for text in template.buckets if divides(utf16_key(text))]
        if found:
            return found
    prefix = _common_prefix(bounds)
    texts = [(prefix, utf16_key(prefix))]
    for characters in _characters_at(template, prefix):
        more = [(each, utf16_key(each)) for each in characters]
        # What is outside goes at once, so that a range of a few dates is not drowned in all of the years.
        texts = [
            (text + character, key + unit) for text, key in texts for character, unit in more if may_hold(key + unit)
        ]
        found = [text for text, key in texts if divides(key)]
        if len(found) >= wanted or len(texts) * 64 > _MOST_CANDIDATES:
            return found
    return [text for text, key in texts if divides(key)]


def _characters_at(template: Template | None, prefix: str) -> Iterable[Sequence[str]]:
    """Yield the characters that can stand at each position after the prefix, in order."""
    known = template.characters_after(prefix) if template is not None else None
    if known is not None:
        yield from (sorted(characters, key=utf16_key) for characters in known)
    if known is None or template is None or template.varies:
        yield from (_TEXT,) * 4


def _common_prefix(bounds: Bounds) -> str:
    lower, upper = bounds.lower or "", bounds.upper
    if upper is None:
        return ""
    if bounds.upper_open:
        for length in range(len(lower), 0, -1):
            if successor(lower[:length]) == upper:
                return lower[:length]
    return common_prefix(lower, upper)
