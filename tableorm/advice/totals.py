"""
What is counted of rows: how many there are, their bytes, their kinds, and in which partitions they are.
"""

from collections.abc import Sequence
from itertools import pairwise

import attrs

from ..models.reserved import ENTITY_TYPE
from ..protocol.limits import entity_size
from ..stores import Row
from ..stores.intervals import common_prefix

_MOST_KINDS = 1_000
_OTHER_KINDS = "(other kinds)"
_LARGEST = 1_000  # partitions of which the counts are known
_MOST_COUNTS = 4_096  # of partitions and of prefixes
# Ends a whole PartitionKey among the prefixes; no key has this character.
_END = "\0"


class PartitionCounts:
    """
    How many rows partitions have, in bounded memory: the largest partitions, and all of them by prefixes of their keys.

    Where there are too many partitions, the small ones are counted under the prefixes that they share with others.
    """

    def __init__(self) -> None:
        self._largest: dict[str, int] = {}
        self._prefixes: dict[str, int] = {}

    def add(self, partition: str, rows: int) -> None:
        """Add all rows of a partition."""
        if len(self._largest) >= 2 * _LARGEST:
            self._largest = dict(self.find_largest(_LARGEST))
        self._largest[partition] = rows
        self._prefixes[partition + _END] = rows
        while len(self._prefixes) > _MOST_COUNTS:
            self._fold()

    def find_largest(self, count: int) -> list[tuple[str, int]]:
        """Return the partitions with the most rows, and how many these are."""
        return sorted(self._largest.items(), key=lambda item: (-item[1], item[0]))[:count]

    def find_prefixes(self, least: int) -> list[tuple[str, int]]:
        """
        Return the prefixes of PartitionKeys under which so many rows are, and how many these are.

        A prefix counts if its rows are so many even without the partitions, and the longer prefixes, that have as many
        themselves.
        """
        found: list[tuple[str, int]] = []
        # For each prefix that is open: its length, its rows, and those of them that nothing larger below it has.
        stack: list[list[int]] = [[0, 0, 0]]
        previous = ""

        def close(length: int) -> None:
            while stack[-1][0] > length:
                depth, rows, left = stack.pop()
                if left >= least:
                    left = 0
                    prefix = previous[:depth]
                    if not prefix.endswith(_END):
                        found.append((prefix, rows))
                if stack[-1][0] < length:
                    stack.append([length, 0, 0])
                stack[-1][1] += rows
                stack[-1][2] += left

        for prefix in sorted(self._prefixes):
            close(len(common_prefix(previous, prefix)))
            rows = self._prefixes[prefix]
            stack.append([len(prefix), rows, rows])
            previous = prefix
        close(0)
        return sorted(found, key=lambda item: (-item[1], item[0]))

    def _fold(self) -> None:
        """Count the smaller half under the longest prefixes that they share with their neighbours."""
        keys = sorted(self._prefixes)
        middle = sorted(self._prefixes.values())[len(keys) // 2]
        shared = [0, *(len(common_prefix(a, b)) for a, b in pairwise(keys)), 0]
        folded: dict[str, int] = {}
        for number, key in enumerate(keys):
            rows, kept = self._prefixes[key], key
            if rows <= middle:
                # No more than half is lost, where both neighbours begin quite otherwise.
                kept = key[: min(len(key) - 1, max(len(key) // 2, *shared[number : number + 2]))]
            folded[kept] = folded.get(kept, 0) + rows
        self._prefixes = folded


@attrs.frozen
class KindStatistics:
    """
    The rows of one kind.

    Args:
        rows: How many there are.
        size: Their bytes.
    """

    rows: int
    size: int


@attrs.define(eq=False, kw_only=True)
class Totals:
    """
    What was counted of some rows.

    Attributes:
        rows: How many there are.
        size: Their bytes, as the service counts them.
        partitions: How many partitions they are in.
        kinds: The rows of each kind, "" for none.
        places: In which partitions they are.
    """

    rows: int = 0
    size: int = 0
    partitions: int = 0
    kinds: dict[str, KindStatistics] = attrs.field(factory=dict[str, KindStatistics])
    places: PartitionCounts = attrs.field(factory=PartitionCounts)

    def add_rows(self, rows: Sequence[Row]) -> None:
        """Count rows, but for the partitions that they are in."""
        self.rows += len(rows)
        for row in rows:
            size, kind = entity_size(row), row.get(ENTITY_TYPE)
            self.size += size
            if not isinstance(kind, str):
                kind = ""
            if kind not in self.kinds and len(self.kinds) >= _MOST_KINDS:
                kind = _OTHER_KINDS
            before = self.kinds.get(kind, KindStatistics(0, 0))
            self.kinds[kind] = KindStatistics(before.rows + 1, before.size + size)

    def add_partition(self, partition: str, rows: int) -> None:
        """Count all rows of a partition as its rows, if there are any; `add_rows` counts what they are."""
        if rows:
            self.partitions += 1
            self.places.add(partition, rows)
