"""
One table under audit: its checks; and candidates, verified one by one while others write.

A finding is what two looks agree on with no write in between. All that is derived from an entity is written together
with it. So an entity that has the same ETag before and after its derived rows were read had exactly those rows all the
time. And a derived row that has the same ETag before and after its entity was read was there all the time, whatever
became of the entity meanwhile.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from ..connection.races import Attempts
from ..errors import (
    Conflict,
    EntityExists,
    EntityNotFound,
    OutcomeUnknown,
    ReferenceNotFound,
    TransactionFailed,
)
from ..models.kinds import KindSet, kind_of
from ..models.marker_rows import DECISION_KIND, is_marker
from ..models.schema import Schema, concrete
from ..stores import Row, RowAddress
from ..writes.commit import commit
from ..writes.plan import PlannedWrite
from ..writes.stages.change import rebuild_change
from ..writes.stages.encode import encode_surely
from .check import AuditedMaintainer, Check
from .context import OUT_OF_REACH, AuditContext, EntitySnapshot, Problem
from .decisions import DecisionCheck, MoveCheck
from .entries import EntityCheck, EntryCheck, PartCheck
from .first_look import FirstLook

_LOST_RACE = (Conflict, EntityNotFound, OutcomeUnknown, TransactionFailed)
"""
What a repair raises if another writer interferes, or a reply is lost: then everything is looked at again. What else it
raises, and that another row is in the way, says that it is not possible.
"""

_REFUSALS = 3
"""How often a refused repair is tried again before the report says so: others may be repairing what is in the way."""

_DEPTH = 3
"""How many entities are repaired one before the other; in a circle each waits for the next. The others are left."""


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
    return encode_surely(rebuild_change(entity, only, counts=counts), token)


def with_related(schemas: Sequence[Schema]) -> list[Schema]:
    """
    Return models, and those that their declarations change or read: what is right in one, the other says. A related
    model without a kind, or with the kind of another one, is left out, because its rows cannot be told from others.

    Args:
        schemas: The models.
    """
    found = list(schemas)
    for schema in found:  # it grows meanwhile
        related = [other for each in schema.derived.values() for other in each.related()]
        for other in (each for target in related for each in concrete(target)):
            if other.kind is not None and all((s.table, s.kind) != (other.table, other.kind) for s in found):
                found.append(other)
    return found


class TableAudit:
    """
    The checks of the models of a table, and the verification of their entities.

    Args:
        context: The rows of the table.
    """

    def __init__(self, context: AuditContext) -> None:
        self.context = context
        own, table = context.kinds.schemas, context.kinds.table
        self._checks: dict[Schema, list[Check]] = {schema: [] for schema in (*own, *context.guests)}
        self._by_row_kind: dict[str, Check | None] = {}
        declared = [each for schema in own for each in schema.derived.values()]
        declared += [e for schema in context.guests for e in schema.derived.values() if table in e.tables]
        for each in declared:
            if isinstance(each, AuditedMaintainer) and context.only in (None, each.name):
                for check in each.checks(context):
                    others = self._checks[check.schema]
                    if all(check.identity != other.identity for other in others):
                        others.append(check)
        self._by_row_kind |= {kind: check for check in self.all_checks for kind in check.row_kinds}
        if context.only is None:
            if own:
                self._by_row_kind[DECISION_KIND] = DecisionCheck(context)
            for schema in own:
                names = [check.name for check in self._checks[schema] if isinstance(check, EntryCheck)]
                self._checks[schema].insert(0, EntityCheck(context, schema, names))
                if schema.split is not None:
                    self._checks[schema].insert(0, PartCheck(context, schema, schema.split))
                if schema.tracked:
                    self._checks[schema].append(MoveCheck(context, schema))

    @property
    def all_checks(self) -> list[Check]:
        """All checks that are made, of all models."""
        return [check for checks in self._checks.values() for check in checks]

    def checks(self, snapshot: EntitySnapshot) -> Sequence[Check]:
        """Return what is checked of an entity."""
        return self._checks[snapshot.schema]

    def check_of(self, row: Row) -> Check | None:
        """Return the check that a derived row or decision row belongs to; None for entities, and for unchecked rows."""
        kind = kind_of(row)
        if "#" not in kind:
            return None
        if kind not in self._by_row_kind:
            name = kind.partition("#")[0]
            all_checks = (check for schema, checks in self._checks.items() if schema.kind == name for check in checks)
            owners = [check for check in all_checks if check.owns(kind) and check.marks == is_marker(row)]
            # The check of the entity itself takes what no declaration owns.
            owners.sort(key=lambda check: isinstance(check, EntityCheck))
            self._by_row_kind[kind] = next(iter(owners), None)
        check = self._by_row_kind[kind]
        return check if check is None or check.accepts(row) else None

    async def verify_entity(self, address: RowAddress, depth: int = 0) -> None:
        """
        Verify an entity, and what is derived from it.

        Args:
            address: Where it is.
            depth: How many others wait for it: each needs the next one to be repaired first.
        """
        context = self.context
        repaired_first: set[str] = set()
        refused: dict[str | None, str] = {}
        singly, attempts = False, Attempts(context.db)
        async for attempt in attempts:
            row = await context.read(address)
            snapshot = context.snapshot(row)
            if row is None or snapshot is None:
                return  # what was derived from it is verified by itself
            problems = await self._find_problems(snapshot)
            if not problems:
                return
            first = {problem.first for problem in problems if problem.first is not None}
            if context.repair and depth < _DEPTH and first - repaired_first:
                for each in sorted(first - repaired_first):
                    await self.verify_entity(address.beside(each), depth + 1)
                repaired_first |= first
                attempts.skip_pause()
                continue
            kept = _names_to_keep(snapshot, problems) | refused.keys()
            problems = [
                attrs.evolve(each, rebuilt=each.name not in kept, refused=refused.get(each.name)) for each in problems
            ]
            if context.repair and any(problem.rebuilt for problem in problems):
                name = next(each.name for each in problems if each.rebuilt)
                part = [each for each in problems if each.name == name] if singly else problems
                error = await self._rebuild(snapshot, part, kept)
                if error is None:
                    self._record(snapshot, part)
                    if not singly:
                        return
                    attempts.skip_pause()
                elif attempt >= _REFUSALS and (isinstance(error, EntityExists) or not isinstance(error, _LOST_RACE)):
                    if singly:
                        refused[name] = f"{type(error).__name__}: {error}"
                    singly = True  # what can be repaired is, whatever else is wrong
                    attempts.skip_pause()
                continue
            if await context.settle(address, row):
                self._record(snapshot, problems)
                return
        context.counts.leave()

    async def _find_problems(self, snapshot: EntitySnapshot) -> list[Problem]:
        """Read the rows around an entity, and return what all of its checks find wrong with them."""
        checks, partition_key = self.checks(snapshot), snapshot.row["PartitionKey"]
        found: dict[str, Row | None] = {}
        while True:
            wanted = set[str]().union(*(check.addresses(snapshot, found) for check in checks)) - found.keys()
            if not wanted:
                break
            found |= zip(wanted, await self.context.read_all(partition_key, wanted), strict=True)
        problems = [(check, problem) for check in checks for problem in check.compare(snapshot, found)]
        confirmed = [await check.confirm(snapshot, problem) for check, problem in problems]
        return [*confirmed, *[problem for check in checks for problem in await check.inspect(snapshot)]]

    async def _rebuild(
        self, snapshot: EntitySnapshot, problems: Iterable[Problem], kept: set[str | None]
    ) -> Exception | None:
        """Repair under the ETag that the entity was verified under. Return the error if that was rejected or failed."""
        names = {problem.name for problem in problems if problem.rebuilt and problem.name is not None}
        if not snapshot.legible:  # nothing is known to be right
            names |= snapshot.expected.keys() - kept
        # While a count is built, an entity whose manifest does not name it was written by an older program: nobody has
        # counted it.
        building = self.context.only is not None and snapshot.legible
        try:
            try:
                await self._derive_anew(snapshot, sorted(names), counts=building)
            except ReferenceNotFound:
                if not building:
                    raise
                await self._derive_anew(snapshot, sorted(names), counts=False)  # what it counts in is verified later
        except OUT_OF_REACH:
            raise
        except Exception as error:  # noqa: BLE001 - upgrades are the user's: one bad row is a finding
            return error
        return None

    async def _derive_anew(self, snapshot: EntitySnapshot, names: Sequence[str], *, counts: bool) -> None:
        self.context.counts.requests += 1
        await commit(self.context.db, (rebuild_write(self.context.kinds, snapshot.row, names, counts=counts),))

    def _record(self, snapshot: EntitySnapshot, problems: Iterable[Problem]) -> None:
        address = RowAddress.of_row(self.context.kinds.table, snapshot.row)
        for each in problems:
            self.context.record(snapshot.schema, address, each)


async def are_right(snapshot: EntitySnapshot, checks: Sequence[Check], look: FirstLook) -> bool:
    """Return whether a first look of some checks finds nothing wrong with what is derived from an entity."""
    for check in checks:
        if not await check.is_right(snapshot, look):
            return False
    return True


def _names_to_keep(snapshot: EntitySnapshot, problems: Sequence[Problem]) -> set[str | None]:
    """Return the declarations that cannot be derived anew: each is, for an entity, as a whole or not at all."""
    kept = {problem.name for problem in problems if not problem.rebuilt or problem.first is not None}
    if snapshot.age == "older" and (kept or not snapshot.legible):
        return {problem.name for problem in problems}  # it would be upgraded, with all of its derived rows
    return kept
