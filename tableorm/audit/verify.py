"""
Verifying candidates one by one while others write: a finding is what two looks agree on with no write in between.

All that is derived from an entity is written together with it. So an entity that has the same ETag before and after its
derived rows were read had exactly those rows all the time. And a derived row that has the same ETag before and after
its entity was read was there all the time, whatever became of the entity meanwhile.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from ..errors import (
    DecodeError,
    EncodeError,
    EntityExists,
    LimitExceeded,
    NotSupported,
    TableOrmError,
    TemplateError,
    WrongKind,
)
from ..models.kinds import KindSet
from ..stores import Row
from ..writes.commit import commit
from ..writes.plan import PlannedWrite
from ..writes.races import ATTEMPTS
from ..writes.stages.change import rebuild_change
from ..writes.stages.encode import encode
from .check import EntitySnapshot, Problem, finding_of
from .entries import LOST_RACE
from .report import AuditCounts
from .table_audit import TableAudit

__all__ = ["Verifier", "rebuild_write"]

_REFUSED = (DecodeError, EncodeError, EntityExists, LimitExceeded, NotSupported, TemplateError, WrongKind)
"""What a repair raises that is not possible: another row is damaged as well, or a derived row would be too large."""

_REFUSALS = 3
"""How often a refused repair is tried again before the report says so: others may be repairing what is in the way."""


def rebuild_write(
    kinds: KindSet, row: Row, only: Sequence[str], token: str | None = None, *, counts: bool = False
) -> PlannedWrite:
    """
    Return the write that derives anew what some declarations derive from a row.

    Args:
        kinds: The models of its table.
        row: The row as it was read.
        only: Names of the declarations.
        token: The write token of the transaction; None for one of its own.
        counts: Whether it changes counts and sums too, and not what the manifest says of them alone.

    Raises:
        DecodeError: The row does not fit its model.
    """
    entity: Any = kinds.load(row.copy())
    write = encode(rebuild_change(entity, only, counts=counts), 0, token)
    assert write is not None
    return write


@attrs.frozen(eq=False)
class Verifier:
    """
    Verifies entities, and repairs what is derived from them if the audit repairs.

    Args:
        table: The table they are in.
    """

    table: TableAudit

    async def verify_entity(self, partition_key: str, row_key: str, counts: AuditCounts) -> None:
        """
        Verify an entity, and what is derived from it.

        Args:
            partition_key: Its PartitionKey.
            row_key: Its RowKey.
            counts: Gets the findings.
        """
        table = self.table
        repaired_first: set[str] = set()
        refused: dict[str | None, str] = {}
        singly = False
        for attempt in range(ATTEMPTS):
            await table.pause(attempt)
            row = await table.read(partition_key, row_key, counts)
            snapshot = None if row is None else table.snapshot(row)
            if row is None or snapshot is None:
                return  # what was derived from it is verified by itself
            problems = await self._find_problems(snapshot, counts)
            if not problems:
                return
            first = {problem.first for problem in problems if problem.first is not None}
            if table.repair and first - repaired_first:
                for each in sorted(first - repaired_first):
                    await self.verify_entity(partition_key, each, counts)
                repaired_first |= first
                continue
            kept = _names_to_keep(snapshot, problems) | refused.keys()
            problems = [
                attrs.evolve(each, rebuilt=each.name not in kept, refused=refused.get(each.name)) for each in problems
            ]
            if table.repair and any(problem.rebuilt for problem in problems):
                name = next(each.name for each in problems if each.rebuilt)
                part = [each for each in problems if each.name == name] if singly else problems
                error = await self._rebuild(snapshot, part, kept, counts)
                if error is None:
                    _record(snapshot, part, counts, repaired=True)
                    if not singly:
                        return
                elif isinstance(error, _REFUSED) and attempt >= _REFUSALS:
                    if singly:
                        refused[name] = f"{type(error).__name__}: {error}"
                    singly = True  # what can be repaired is, whatever else is wrong
                continue
            again = await table.read(partition_key, row_key, counts)
            if again is not None and again["odata.etag"] == row["odata.etag"]:
                _record(snapshot, problems, counts, repaired=False)
                return
        counts.undecided += 1

    async def _find_problems(self, snapshot: EntitySnapshot, counts: AuditCounts) -> list[Problem]:
        """Read the rows around an entity, and return what all of its checks find wrong with them."""
        table = self.table
        checks, partition_key = table.checks(snapshot), snapshot.row["PartitionKey"]
        found: dict[str, Row | None] = {}
        while True:
            wanted = set[str]().union(*(check.addresses(snapshot, found) for check in checks)) - found.keys()
            if not wanted:
                break
            found |= zip(wanted, await table.read_all(partition_key, wanted, counts), strict=True)
        problems = [(check, problem) for check in checks for problem in check.compare(snapshot, found)]
        return [await check.confirm(snapshot, problem, counts) for check, problem in problems]

    async def _rebuild(
        self, snapshot: EntitySnapshot, problems: Iterable[Problem], kept: set[str | None], counts: AuditCounts
    ) -> TableOrmError | None:
        """Repair under the ETag that the entity was verified under. Return the error if that was refused."""
        names = {problem.name for problem in problems if problem.rebuilt and problem.name is not None}
        if not snapshot.legible:  # nothing is known to be right
            names |= snapshot.expected.keys() - kept
        try:
            counts.requests += 1
            await commit(self.table.db, (rebuild_write(self.table.kinds, snapshot.row, sorted(names)),))
        except (*LOST_RACE, *_REFUSED) as error:
            return error
        return None


def _names_to_keep(snapshot: EntitySnapshot, problems: Sequence[Problem]) -> set[str | None]:
    """Return the declarations that cannot be derived anew: each is, for an entity, as a whole or not at all."""
    kept = {problem.name for problem in problems if not problem.rebuilt or problem.first is not None}
    if snapshot.age == "older" and (kept or not snapshot.legible):
        return {problem.name for problem in problems}  # it would be upgraded, with all of its derived rows
    return kept


def _record(snapshot: EntitySnapshot, problems: Iterable[Problem], counts: AuditCounts, *, repaired: bool) -> None:
    for problem in problems:
        counts.record(finding_of(snapshot, problem, repaired=repaired))
