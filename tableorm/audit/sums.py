"""
Sums of hashes, by which an audit finds the rows that do not fit together.
"""

from array import array
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

from ..derived.aggregate.repair import judge_keepers
from ..derived.index_list.audit import Lists
from ..derived.index_list.repair import judge_keys, judge_shape
from ..stores import Row
from .judge import Verifier
from .report import AuditCounts

__all__ = ["Judging", "Sums"]

_SUMS = 1 << 16

_WIDTH = 8  # bytes of a sum; of what passes that the rest is left out, and sums that are right are zero all the same

_MASK = (1 << 8 * _WIDTH) - 1

_ZEROS = bytes(_SUMS * _WIDTH)


Judging = Callable[[AuditCounts], Awaitable[None]]


class Sums:
    """
    Sums of what entities claim less what derived rows are, each of the rows with some hash of their keys.

    Numbers are hashes of this process, which nobody can foresee; sums are never stored.

    Args:
        judge: Knows what is claimed.
    """

    def __init__(self, judge: Verifier) -> None:
        self._judge = judge
        # Of a list with as many numbers each worker would need ten times the memory.
        self._sums = array("Q", _ZEROS)
        self._suspects: set[int] = set()
        self._judged: set[tuple[str, str]] = set()

    def add(self, rows: Sequence[Row], counts: AuditCounts) -> None:
        """Sum up some rows."""
        judge, sums = self._judge, self._sums
        for row in rows:
            partition_key = row["PartitionKey"]
            owner = judge.owner_of(row)
            if owner is not None:
                counts.copies += 1
                for address, number in owner.claimed(row):
                    at = hash((partition_key, address)) % _SUMS
                    sums[at] = (sums[at] - number) & _MASK
                continue
            seen = judge.seen(row)
            if seen is None:
                continue
            counts.entities += 1
            for check in judge.checks(seen):
                for address, number in check.claims(seen):
                    at = hash((partition_key, address)) % _SUMS
                    sums[at] = (sums[at] + number) & _MASK
                for _, address, number in check.adds(seen):
                    at = hash((partition_key, address)) % _SUMS
                    sums[at] = (sums[at] + number) & _MASK

    def close(self) -> bool:
        """All is added: whether anything is suspect."""
        if self._sums.tobytes() != _ZEROS:
            self._suspects = {number for number, total in enumerate(self._sums) if total}
        return bool(self._suspects)

    def _is_bad(self, partition_key: str, address: str) -> bool:
        return hash((partition_key, address)) % _SUMS in self._suspects

    def suspects(self, rows: Sequence[Row]) -> list[Judging]:
        """How to judge those of some rows that are suspect: entities, and copies of them."""
        judge = self._judge
        found: list[Judging] = []
        for row in rows:
            partition_key, row_key = row["PartitionKey"], row["RowKey"]
            owner = judge.owner_of(row)
            if owner is not None:
                if not isinstance(owner, Lists) and self._is_bad(partition_key, row_key):
                    found.append(partial(judge.derived, partition_key, row_key))
                continue
            seen = judge.seen(row)
            if seen is None:
                continue
            claims = (claim for check in judge.checks(seen) for claim in check.claims(seen))
            if any(self._is_bad(partition_key, address) for address, _ in claims):
                found.append(partial(judge.entity, partition_key, row_key))
        return found

    def shapes(self, rows: Sequence[Row]) -> list[Judging]:
        """How to judge whether suspect rows of lists are found: before entities, which are judged by what is there."""
        return [partial(judge_shape, self._judge, row["PartitionKey"], row["RowKey"]) for row in self._of_lists(rows)]

    def rest(self, rows: Sequence[Row]) -> list[Judging]:
        """How to judge what is suspect beside, when entities are right: keys in lists, counts and sums."""
        judge = self._judge
        found: list[Judging] = []
        for row in self._of_lists(rows):
            partition_key = row["PartitionKey"]
            is_bad = partial(self._is_bad, partition_key)
            found.append(partial(judge_keys, judge, partition_key, row["RowKey"], is_bad))
        keepers: defaultdict[str, set[str]] = defaultdict(set)
        for row in rows if judge.aggregates else ():
            seen = None if judge.owner_of(row) is not None else judge.seen(row)
            partition_key = row["PartitionKey"]
            for check in () if seen is None else judge.checks(seen):
                for keeper, address, _ in check.adds(seen) if seen is not None else ():
                    place = partition_key, keeper
                    if place not in self._judged and self._is_bad(partition_key, address):
                        self._judged.add(place)
                        keepers[partition_key].add(keeper)
        for partition_key, some in keepers.items():
            found.append(partial(judge_keepers, judge, partition_key, some, judge.entity))
        return found

    def _of_lists(self, rows: Sequence[Row]) -> Iterator[Row]:
        judge = self._judge
        for row in rows if judge.has_lists else ():
            owner, partition_key = judge.owner_of(row), row["PartitionKey"]
            if isinstance(owner, Lists) and any(self._is_bad(partition_key, each) for each, _ in owner.claimed(row)):
                yield row
