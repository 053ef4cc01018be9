"""
The keys of a table as a tree, by which rows are counted without reading them all.

The root holds all rows. A group of rows is divided by the next character of its keys: what fits into the pages that are
read meanwhile is counted, and each larger part is a group of its own. So a large group costs about one request for each
of its large parts, and small parts cost nothing.

A *descent* begins at the root, and goes on into one part of each group: one of those that the fewest descents were in,
chosen at random. If descents were in two of ten parts, each row of these stands for five: so every row of the table is
as likely to be counted as it then weighs little, and the estimate is fair however uneven the parts are. Where they were
in all parts, nothing is estimated. What it may be off follows from how much the parts of a group differ, as in any
sample in several stages (Cochran, "Sampling Techniques", chapter 11); groups are taken to be as uneven as the most
uneven one that was found.
"""

import math
import random
import statistics
from collections.abc import Awaitable, Callable, Mapping

import attrs

from ..keys.intervals import meet, starting_with, successor
from ..keys.ranges import KeyRegion
from ..protocol.limits import MAX_PAGE
from ..stores import Bounds, Row
from .totals import Totals, common_prefix, count_partitions

__all__ = ["KeyGroup", "KeyTree", "ReadRows"]

ReadRows = Callable[[KeyRegion, int], Awaitable[tuple[list[Row], bool]]]
"""Returns the first rows of a region, so many at most, and whether there may be more; at least one row then."""

_MOST_PARTS = 100


@attrs.define(eq=False, kw_only=True)
class KeyGroup:
    """
    The rows of a region of keys.

    Attributes:
        region: The keys: those of several partitions, or of one.
        prefix: What all of their PartitionKeys begin with, or in a partition all of their RowKeys.
        partition: The partition that all of them are in; None if there may be several.
        seen: What was counted of its rows, but for those of its parts.
        parts: The large groups in it; None as long as it was not looked at.
        visits: How many descents were in it.
        known: Whether all of its rows were counted, those of its parts too.
    """

    region: KeyRegion = attrs.field(factory=KeyRegion)
    prefix: str = ""
    partition: str | None = None
    seen: Totals = attrs.field(factory=Totals)
    parts: "list[KeyGroup] | None" = None
    visits: int = 0
    known: bool = False

    @property
    def key(self) -> str:
        """The key by which it is divided."""
        return "PartitionKey" if self.partition is None else "RowKey"

    @property
    def bounds(self) -> Bounds:
        """Where that key is."""
        return self.region.partition if self.partition is None else self.region.row

    def within(self, bounds: Bounds) -> KeyRegion | None:
        """Return the region in which that key is inside of bounds too; None if it is empty."""
        found = meet(self.bounds, bounds)
        if found is None:
            return None
        if self.partition is None:
            return KeyRegion(found, self.region.row)
        return KeyRegion(self.region.partition, found)

    def count(self, rows: list[Row]) -> None:
        """Count rows: whole partitions, or some of the one that the group is in."""
        self.seen.add_rows(rows)
        for partition, number in count_partitions(rows):
            self.count_partition(partition, number)

    def count_partition(self, partition: str, number: int) -> None:
        """Count rows of a partition as its rows: all of them, or some if it is the one that the group is in."""
        if self.partition is None:
            self.seen.add_partition(partition, number)
        else:
            self.seen.places.add(partition, number)


class KeyTree:
    """
    The tree of a table, as far as it was looked at.

    Args:
        read: Reads rows.
        chance: Chooses parts.
        page: How many rows are read at once.

    Attributes:
        root: All rows.
    """

    def __init__(self, read: ReadRows, chance: random.Random, page: int = MAX_PAGE) -> None:
        self._read, self._chance, self._page = read, chance, page
        self.root = KeyGroup()

    async def descend(self) -> None:
        """Count some rows that were not counted yet, unless all are known."""
        group, path = self.root, [self.root]
        while not group.known:
            if group.parts is None:
                await self.divide(group)
            left = [part for part in group.parts or () if not part.known]
            if not left:
                break
            group = self._choose(left)
            path.append(group)
        for group in reversed(path):
            group.visits += 1
            group.known = group.parts is not None and all(part.known for part in group.parts)

    def _choose(self, parts: list[KeyGroup]) -> KeyGroup:
        """Return one of the parts that the fewest descents were in."""
        fewest = min(part.visits for part in parts)
        return self._chance.choice([part for part in parts if part.visits == fewest])

    def sum_up(self) -> Totals:
        """Return what all rows are taken to have; a partition that was found is taken by itself for what it has."""
        totals = Totals()
        # A group, for how many rows each of its own stands, and for how many of its partition.
        waiting = [(self.root, 1.0, 1.0)]
        while waiting:
            group, weight, within = waiting.pop()
            totals.merge(group.seen, weight, within)
            visited = [part for part in group.parts or () if part.visits]
            for part in visited:
                share = len(group.parts or ()) / len(visited)
                waiting.append((part, weight * share, 1.0 if group.partition is None else within * share))
        return totals

    def count_rows(self) -> int:
        """Return how many rows were counted, each once."""
        waiting, rows = [self.root], 0.0
        for group in waiting:
            rows += group.seen.rows
            waiting += group.parts or ()
        return int(rows)

    def find_error(self, figure: Callable[[Totals], float]) -> float:
        """
        Return the standard error of a figure of the totals, as a part of it, as far as what was counted can tell: a
        part that is larger than all that descents were in is in no such error.
        """
        # Of groups of which nothing is known parts are taken to differ by half, or as much as anywhere else.
        spreads = {"PartitionKey": [0.25], "RowKey": [0.25]}
        _estimate(self.root, figure, dict.fromkeys(spreads, 0.25), spreads)
        most = {key: max(found) for key, found in spreads.items()}
        value, variance = _estimate(self.root, figure, most, spreads)
        return math.sqrt(variance) / value if value else 0.0

    async def divide(self, group: KeyGroup) -> None:
        """Count the small parts of a group, and find its large ones."""
        rows, more = await self._read(group.region, self._page)
        parts: list[KeyGroup] = []
        prefix = await self._find_prefix(group, rows) if more else ""
        while more:
            # All before the part of the last row was read in full.
            last = rows[-1][group.key][: len(prefix) + 1]
            whole = len(last) == len(prefix)
            region = group.within(Bounds.only(last) if whole else starting_with(last))
            assert region is not None  # it has the row
            group.count([row for row in rows if row[group.key][: len(prefix) + 1] != last])
            rows, more = [], False
            if whole and group.partition is None:
                parts.append(KeyGroup(region=region, partition=last))
                parts[-1].seen.partitions = 1
            else:
                parts.append(KeyGroup(region=region, prefix=last, partition=group.partition))
            behind = _behind(last, whole=whole)
            rest = None if behind is None else group.within(behind)
            if rest is None:
                break
            if len(parts) == _MOST_PARTS:
                parts.append(KeyGroup(region=rest, prefix=prefix, partition=group.partition))
                break
            rows, more = await self._read(rest, self._page)
        group.count(rows)
        group.parts = parts

    async def _find_prefix(self, group: KeyGroup, rows: list[Row]) -> str:
        """
        Return what all keys of a group begin with, given its first rows. A group of one partition becomes one that is
        divided by RowKeys.
        """
        shared, last = str(rows[0][group.key]), str(rows[-1][group.key])
        if shared == last:
            other = await self._find_first(group, _behind(last, whole=True))
            if other is None:
                if group.partition is not None:
                    return last
                group.region, group.partition, group.prefix = KeyRegion(Bounds.only(last)), last, ""
                group.seen.partitions = 1
                return await self._find_prefix(group, rows)
            last = other
        # Each key that begins otherwise is behind all that begin alike, and the next one tells where they part.
        shared = common_prefix(shared, last)
        while len(shared) > len(group.prefix):
            other = await self._find_first(group, _behind(shared, whole=False))
            if other is None:
                break
            shared = common_prefix(shared, other)
        return shared

    async def _find_first(self, group: KeyGroup, bounds: Bounds | None) -> str | None:
        """Return the first key of a group within bounds; None if there is none."""
        region = None if bounds is None else group.within(bounds)
        rows = [] if region is None else (await self._read(region, 1))[0]
        return str(rows[0][group.key]) if rows else None


def _behind(text: str, *, whole: bool) -> Bounds | None:
    """Return the interval behind a text if it is a whole key, otherwise behind all keys that begin with it."""
    if whole:
        return Bounds(text, None, lower_open=True)
    end = successor(text)
    return None if end is None else Bounds(end)


def _estimate(
    root: KeyGroup, figure: Callable[[Totals], float], spread: Mapping[str, float], spreads: Mapping[str, list[float]]
) -> tuple[float, float]:
    """
    Return a figure of all rows, and its variance.

    Args:
        root: The group of all rows.
        figure: What is estimated.
        spread: How much parts differ elsewhere at most, by each key: the variance between them, as a part of the
            squared mean.
        spreads: Gets that of the groups of which several parts were visited.
    """
    groups = [root]
    for group in groups:
        groups += [part for part in group.parts or () if part.visits]
    estimates: dict[KeyGroup, tuple[float, float]] = {}
    for group in reversed(groups):  # parts before their group: keys may be divided deeper than calls can be
        found = [estimates.pop(part) for part in group.parts or () if part.visits]
        estimates[group] = _add_up(group, figure(group.seen), found, spread[group.key], spreads[group.key])
    return estimates[root]


def _add_up(
    group: KeyGroup, own: float, found: list[tuple[float, float]], spread: float, spreads: list[float]
) -> tuple[float, float]:
    """Return the estimate of a group from what was counted of its own rows, and the estimates of its parts."""
    if not found:
        return own, 0.0
    values, count = [value for value, _ in found], len(group.parts or ())
    mean = statistics.fmean(values)
    between = 0.0 if len(values) == 1 else statistics.variance(values)
    if len(values) > 1:
        spreads.append(between / mean**2 if mean else 0.0)
    # Few parts may be alike by chance, so what is known of others counts as one more.
    between = ((len(values) - 1) * between + spread * mean**2) / len(values)
    share = count / len(values)
    variance = count * (share - 1) * between + share * sum(variance for _, variance in found)
    return own + count * mean, variance
