"""
A segment of rows: the sums of their claims, by which an audit finds the rows that do not fit together.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

from ..stores import Row, RowAddress
from .check import Claims, Phase, VerifyTotals
from .context import EntitySnapshot
from .first_look import Candidate
from .table_audit import TableAudit, are_right

_SUMS = 1 << 16
_WIDTH = 8  # bytes of a sum; what exceeds them is dropped, and sums that are right are zero all the same
_MASK = (1 << 8 * _WIDTH) - 1
_ZEROS = bytes(_SUMS * _WIDTH)


class Segment:
    """
    The claims of entities less the claims of derived rows, in one of many sums by the hash of the address.

    So the memory does not depend on how many rows there are. Hashes are those of this process and cannot be foreseen;
    sums are never stored.

    Args:
        table: The checks, and verification of candidates.
    """

    def __init__(self, table: TableAudit) -> None:
        self._table = table
        # A list of as many numbers would take ten times the memory for each worker.
        self._sums = array("Q", _ZEROS)
        self._unequal: set[int] = set()
        self._verified_holders: set[tuple[VerifyTotals, str, str]] = set()
        self._phases = {Phase.ENTITIES}
        if any(check.verify_totals is not None for check in self._table.all_checks):
            self._phases.add(Phase.AFTER)

    @property
    def phases(self) -> Sequence[Phase]:
        """The phases in which there is something to verify, after all rows of the segment were added."""
        return sorted(self._phases)

    def add(self, rows: Sequence[Row]) -> None:
        """Add the claims of some rows."""
        table, sums = self._table, self._sums
        counts = table.context.counts
        for row in rows:
            partition_key = row["PartitionKey"]
            owner = table.check_of(row)
            if owner is not None:
                counts.derived_rows += 1
                self._phases.update(owner.row_phases)
                for address, number in owner.row_claims(row):
                    at = hash((partition_key, address)) % _SUMS
                    sums[at] = (sums[at] - number) & _MASK
                continue
            snapshot = table.context.snapshot(row)
            if snapshot is None:
                continue
            counts.entities += 1
            for check in table.checks(snapshot):
                for address, number in check.claims(snapshot):
                    at = hash((partition_key, address)) % _SUMS
                    sums[at] = (sums[at] + number) & _MASK
                if check.verify_totals is not None:
                    for _, address, number in check.contributions(snapshot):
                        at = hash((partition_key, address)) % _SUMS
                        sums[at] = (sums[at] + number) & _MASK

    def close(self) -> bool:
        """Return whether there are candidates, after all rows of the segment were added."""
        if self._sums.tobytes() != _ZEROS:
            self._unequal = {number for number, total in enumerate(self._sums) if total}
        return bool(self._unequal)

    def is_candidate(self, partition_key: str, address: str) -> bool:
        """Return whether the claims on an address do not add up; seldom also for one that has the same hash."""
        return hash((partition_key, address)) % _SUMS in self._unequal

    def candidates(self, phase: Phase, rows: Sequence[Row]) -> list[Candidate]:
        """Return those of some rows that are candidates, as far as they are verified in a phase."""
        found: list[Candidate] = []
        snapshots: list[tuple[str, EntitySnapshot]] = []
        for row in rows:
            partition_key, at = row["PartitionKey"], RowAddress.of_row(self._table.context.kinds.table, row)
            owner = self._table.check_of(row)
            if owner is not None:
                if phase in owner.row_phases and self._is_any_candidate(partition_key, owner.row_claims(row)):
                    is_candidate = partial(self.is_candidate, partition_key)
                    verify = partial(owner.verify_row, at, phase, is_candidate)
                    found.append(Candidate(verify, partial(owner.is_row_right, row) if owner.looks_first else None))
                continue
            if phase is Phase.BEFORE:
                continue
            snapshot = self._table.context.snapshot(row)
            if snapshot is not None:
                snapshots.append((partition_key, snapshot))
                if phase is Phase.ENTITIES:
                    checks = [
                        check
                        for check in self._table.checks(snapshot)
                        if self._is_any_candidate(partition_key, check.claims(snapshot))
                    ]
                    if checks:
                        verify = partial(self._table.verify_entity, at)
                        look = all(check.looks_first for check in checks)
                        found.append(Candidate(verify, partial(are_right, snapshot, checks) if look else None))
        return found if phase is not Phase.AFTER else [*found, *self._total_candidates(snapshots)]

    def _is_any_candidate(self, partition_key: str, claims: Claims) -> bool:
        return any(self.is_candidate(partition_key, address) for address, _ in claims)

    def _total_candidates(self, snapshots: Sequence[tuple[str, EntitySnapshot]]) -> Iterator[Candidate]:
        """Yield the holders of totals: those of a partition together, and each once in a segment."""
        holders: defaultdict[tuple[VerifyTotals, str], set[str]] = defaultdict(set)
        for partition_key, snapshot in snapshots:
            for check in self._table.checks(snapshot):
                for holder, address, _ in check.contributions(snapshot):
                    verify = check.verify_totals
                    assert verify is not None
                    place = verify, partition_key, holder
                    if place not in self._verified_holders and self.is_candidate(partition_key, address):
                        self._verified_holders.add(place)
                        holders[verify, partition_key].add(holder)
        for (verify, partition_key), row_keys in holders.items():
            yield Candidate(partial(verify, self._table.context, partition_key, row_keys, self._table.verify_entity))
