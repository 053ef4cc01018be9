"""
Suspects, judged one by one while others write: a finding is what two looks agree on, with nothing changed in between.

All that is derived from an entity is written together with it. So an entity that has the same ETag before and after its
derived rows were read had just those all the time. And a derived row that has the same ETag before and after its entity
was read was there all the time, whatever became of the entity meanwhile.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from ..errors import (
    Conflict,
    DecodeError,
    EncodeError,
    EntityExists,
    EntityNotFound,
    LimitExceeded,
    NotSupported,
    OutcomeUnknown,
    TableOrmError,
    TemplateError,
    TransactionFailed,
    WrongKind,
)
from ..models.key import Key
from ..models.kinds import KindSet
from ..models.property_bag import PropertyBag
from ..models.reserved import COPY_OF
from ..stores import Row
from ..writes.commit import commit
from ..writes.plan import PlannedWrite
from ..writes.races import ATTEMPTS
from ..writes.stages.change import delete_change, rebuild_change
from ..writes.stages.encode import encode
from .check import EntitySnapshot, Problem, kind_of
from .report import AuditCounts, Damage, Finding
from .rows import AuditContext

__all__ = ["Verifier", "rebuilt"]

_LOST = (Conflict, EntityNotFound, OutcomeUnknown, TransactionFailed)
"""What a repair raises if somebody else writes, or a reply is lost: then everything is looked at again."""

_REFUSED = (DecodeError, EncodeError, EntityExists, LimitExceeded, NotSupported, TemplateError, WrongKind)
"""What a repair raises that is not possible: what it is derived to may be damaged as well, or a copy be too large."""

_PATIENCE = 3
"""How often that is tried before it is said: others may be repairing what is in the way."""


def rebuilt(
    kinds: KindSet, row: Row, only: Sequence[str], token: str | None = None, *, counts: bool = False
) -> PlannedWrite:
    """
    The write that makes what is derived from a row right.

    Args:
        kinds: The models of its table.
        row: The row as it was read.
        only: Names of the indexes and the like.
        token: As of `encode`.
        counts: As of `rebuild_change`.

    Raises:
        DecodeError: The row does not fit its model.
    """
    entity: Any = kinds.load(row.copy())
    write = encode(rebuild_change(entity, only, counts=counts), 0, token)
    assert write is not None
    return write


class Verifier(AuditContext):
    """
    Judges, and repairs if it shall.

    Args:
        db: Where.
        kinds: The models of one table.
        repair: Whether to repair.
        only: Name of the one index or the like that is checked; None for all.
    """

    async def entity(self, partition_key: str, row_key: str, counts: AuditCounts) -> None:
        """
        Verifier an entity, and what is derived from it.

        Args:
            partition_key: Its PartitionKey.
            row_key: Its RowKey.
            counts: Gets the findings.
        """
        helped: set[str] = set()
        refused: dict[str | None, str] = {}
        singly = False
        for attempt in range(ATTEMPTS):
            await self.pause(attempt)
            row = await self.read(partition_key, row_key, counts)
            seen = None if row is None else self.seen(row)
            if row is None or seen is None:
                return  # what was derived from it is judged by itself
            found = await self._around(seen, counts)
            problems = [problem for check in self.checks(seen) for problem in check.compare(seen, found)]
            if not problems:
                return
            problems = [await self._with_rival(seen, problem, counts) for problem in problems]
            first = {problem.first for problem in problems if problem.first is not None}
            if self.repair and first - helped:
                for each in sorted(first - helped):
                    await self.entity(partition_key, each, counts)
                helped |= first
                continue
            problems = [attrs.evolve(each, rebuilt=each.rebuilt and each.first is None) for each in problems]
            left = {problem.name for problem in problems if not problem.rebuilt}
            if seen.age == "older" and (left or not seen.legible):
                left = {problem.name for problem in problems}  # it would be upgraded, with all of its copies
            left |= refused.keys()
            # An index is rebuilt for an entity as a whole, or not at all.
            problems = [
                attrs.evolve(each, rebuilt=each.name not in left, refused=refused.get(each.name)) for each in problems
            ]
            if self.repair and any(problem.rebuilt for problem in problems):
                one = next(each.name for each in problems if each.rebuilt)
                part = [each for each in problems if each.name == one] if singly else problems
                error = await self._rebuild(seen, part, left, counts)
                if error is None:
                    self._record(seen, part, counts, repaired=True)
                    if not singly:
                        return
                elif isinstance(error, _REFUSED) and attempt >= _PATIENCE:
                    if singly:
                        refused[one] = f"{type(error).__name__}: {error}"
                    singly = True  # what can be repaired is, whatever else is wrong
                continue
            again = await self.read(partition_key, row_key, counts)
            if again is not None and again["odata.etag"] == row["odata.etag"]:
                self._record(seen, problems, counts, repaired=False)
                return
        counts.undecided += 1

    async def _around(self, seen: EntitySnapshot, counts: AuditCounts) -> dict[str, Row | None]:
        """The rows to look at with an entity."""
        partition_key, found = seen.row["PartitionKey"], dict[str, Row | None]()
        while True:
            wanted = set[str]().union(*(check.addresses(seen, found) for check in self.checks(seen))) - found.keys()
            if not wanted:
                return found
            found |= zip(wanted, await self.read_all(partition_key, wanted, counts), strict=True)

    async def derived(self, partition_key: str, address: str, counts: AuditCounts) -> None:
        """
        Verifier a copy by itself: whether there is an entity that it is of.

        Args:
            partition_key: Its PartitionKey.
            address: Its RowKey.
            counts: Gets the finding.
        """
        for attempt in range(ATTEMPTS):
            await self.pause(attempt)
            row = await self.read(partition_key, address, counts)
            if row is None or self.owner_of(row) is None or not await self._is_orphan(row, counts):
                return
            if self.repair:
                if not await self._delete(row, counts):
                    continue
            else:
                again = await self.read(partition_key, address, counts)
                if again is None or again["odata.etag"] != row["odata.etag"]:
                    continue
            kind, _, name = kind_of(row).partition("#")
            primary = row.get(COPY_OF)
            text = f"the copy at {address!r} is of no entity: {primary!r} is gone, or neither notes it nor should"
            schema = self.by_kind[kind]
            finding = Finding(Damage.ORPHAN, schema.name, name, partition_key, str(primary or ""), address, text)
            counts.record(attrs.evolve(finding, repaired=self.repair))
            return
        counts.undecided += 1

    async def _is_orphan(self, row: Row, counts: AuditCounts) -> bool:
        """Whether the entity of a copy neither notes it nor should; an entity that does is judged by itself."""
        kind, _, name = kind_of(row).partition("#")
        of = row.get(COPY_OF)
        primary = await self.read(row["PartitionKey"], of, counts) if isinstance(of, str) else None
        seen = None if primary is None else self.seen(primary)
        if seen is None or str(seen.schema.kind) != kind:
            return True
        if seen.marks.get(name) == row["RowKey"]:
            return False
        if seen.problem is not None:
            return False  # nobody knows what it ought to have
        wanted = seen.wants.get(name)
        return wanted is None or wanted[0] != row["RowKey"]

    async def _with_rival(self, seen: EntitySnapshot, problem: Problem, counts: AuditCounts) -> Problem:
        """A value that a copy without entity holds is not taken: that copy goes, and the entity gets its own."""
        if problem.rival is None or not await self._is_orphan(problem.rival, counts):
            return problem
        if self.repair:
            await self.derived(seen.row["PartitionKey"], str(problem.address), counts)
        return attrs.evolve(problem, damage=Damage.MISSING, rebuilt=True, rival=None)

    # Repairing

    async def _rebuild(
        self, seen: EntitySnapshot, problems: Iterable[Problem], left: set[str | None], counts: AuditCounts
    ) -> TableOrmError | None:
        """Repair under the ETag that it was judged under; what was said against it."""
        names = {problem.name for problem in problems if problem.rebuilt and problem.name is not None}
        if not seen.legible:  # nothing is known to be right
            names |= {*seen.wants, *seen.due} - left
        try:
            counts.requests += 1
            await commit(self.db, (rebuilt(self.kinds, seen.row, sorted(names)),))
        except (*_LOST, *_REFUSED) as error:
            return error
        return None

    async def _delete(self, row: Row, counts: AuditCounts) -> bool:
        """
        Whether a copy was deleted, under the ETag it had before its entity was read. Whoever makes it the copy of an
        entity writes it, so that it has another.
        """
        key = Key(PropertyBag, self.kinds.table, row["PartitionKey"], row["RowKey"])
        write = encode(delete_change(key, row["odata.etag"]), 0)
        assert write is not None
        try:
            counts.requests += 1
            await commit(self.db, (write,))
        except _LOST:
            return False
        return True

    def _record(
        self, seen: EntitySnapshot, problems: Iterable[Problem], counts: AuditCounts, *, repaired: bool
    ) -> None:
        row, schema = seen.row, seen.schema
        for problem in problems:
            finding = Finding(
                problem.damage,
                schema.name,
                problem.name,
                row["PartitionKey"],
                row["RowKey"],
                problem.address,
                problem.text,
                repaired=repaired and problem.rebuilt,
                refused=problem.refused,
            )
            counts.record(finding)
