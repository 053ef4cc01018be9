"""
What an audit checks of decision rows, and of the rows of moves to other partitions: those that should be gone by now
are worked on, as by a worker.

A committed decision row is left where a writer has died and no worker has done the rest, or has given up. A void one
stays so that no late request of its change can commit; a day later none can arrive any more.
"""

import datetime as dt
from collections.abc import Awaitable
from contextlib import aclosing, suppress

import attrs

from ..connection.rows import delete_as_read, is_place, read_row, time_of
from ..errors import DecodeError, NotSupported
from ..keys.ranges import KeyRegion
from ..models.kinds import KindSet, kind_of
from ..models.marker_rows import DECISION_KIND, FORWARD, TENTATIVE, MoveMark, MoveState, mark_of, stays
from ..models.placement import declared_models
from ..models.schema import Schema
from ..outbox.decision import DECISION_ROWS, Decision, decision_of, delete_decision
from ..stores import CLOCK, Bounds, Row, RowAddress
from ..writes.deferred import carry_out, schemas_by_kind
from ..writes.move_entity import RELOCATION
from .check import Check, Claims, IsCandidate, Phase, claim_if_old
from .context import AuditContext, Problem
from .report import Damage

LONGEST_WRITE = dt.timedelta(hours=1)
"""How long a write may take, before what it has left counts as left behind."""

LONGEST_REQUEST = dt.timedelta(days=1)
"""After this time no request arrives any more that was sent."""

# All of a partition are read for each entity that has something wrong, so that many of both would take for ever.
_MOST_DECISIONS = 10_000


async def is_under_way(context: AuditContext, entity: RowAddress) -> bool:
    """
    Return whether a committed decision row says that rows of an entity are still to be made right.

    Raises:
        NotSupported: The partition has too many decision rows to look through.
    """
    if not is_place(entity):
        return False
    read = 0
    region = KeyRegion(Bounds.only(entity.partition_key), DECISION_ROWS)
    there = attrs.evolve(context, kinds=KindSet((), entity.table, bags=False))
    async with aclosing(there.pages(None, [region], "audit")) as found:
        async for rows in found:
            for row in rows:
                with suppress(DecodeError, NotSupported):
                    if any(entity.row_key == work.row_key for work in decision_of(row).works):
                        return True
            read += len(rows)
            if read >= _MOST_DECISIONS:
                raise NotSupported(
                    f"partition {entity.partition_key!r} of table {entity.table} has at least {_MOST_DECISIONS} "
                    "decision rows, too many to diagnose; let a worker carry them out, and audit again"
                )
    return False


class DecisionCheck(Check):
    """
    The check of the decision rows of a table.

    Args:
        context: The rows of the table.
    """

    row_phases = frozenset({Phase.BEFORE})

    def __init__(self, context: AuditContext) -> None:
        super().__init__(context, context.kinds.schemas[0], "")
        self._schemas = schemas_by_kind(context.kinds.schemas)

    def row_claims(self, row: Row) -> Claims:
        """Claim that a decision row must be looked at, if it is so old that it should be gone."""
        return claim_if_old(row, DECISION_KIND, LONGEST_WRITE)

    async def verify_row(self, address: RowAddress, phase: Phase, is_candidate: IsCandidate) -> None:
        """Work on a decision row that should be gone, if rows are repaired; remove a void one after a day."""
        context = self.context
        row = await context.read(address)
        if row is None:
            return
        age = CLOCK.now() - time_of(row, DECISION_KIND)
        try:
            decision = decision_of(row)
        except (DecodeError, NotSupported) as error:
            text = f"the decision row cannot be worked on: {error}"
            self.record(address, Damage.UNFINISHED, text, refused=str(error))
            return
        if not decision.committed:
            if context.repair and age > LONGEST_REQUEST:
                await context.send([delete_as_read(row)])
            return
        refused = await _why_failed(self._carry_out(decision)) if context.repair else None
        failed = "" if decision.error is None else f"; workers have given up ({decision.error})"
        hours = age.total_seconds() / 3600
        text = (
            f"a change of {', '.join(decision.kinds)} was committed {hours:.0f} hours ago, and its pending work has "
            f"not been done since{failed}"
        )
        self.record(address, Damage.UNFINISHED, text, refused=refused)

    async def _carry_out(self, decision: Decision) -> None:
        """Do what a change has left to do."""
        context = self.context
        left = await carry_out(context.db, context.kinds.table, self._schemas, decision)
        if left is not None:
            await delete_decision(context.db, context.kinds.table, left)


_LONGEST_MOVE = dt.timedelta(hours=1)


class MoveCheck(Check):
    """
    The check of the tentative rows and forwards of a model.

    A move that was committed is completed, as by a worker. A tentative row of one that was not is deleted after its
    source got another ETag, so that no late request can commit the move.

    Args:
        context: The rows of the table.
        schema: The model.
    """

    marks = True
    row_phases = frozenset({Phase.BEFORE})

    def __init__(self, context: AuditContext, schema: Schema) -> None:
        super().__init__(context, schema, "")

    def owns(self, kind: str) -> bool:
        """Return whether it is the kind of such rows; tentative index entries go with the row of their entity."""
        return kind in (f"{self.schema.kind}{TENTATIVE}", f"{self.schema.kind}{FORWARD}")

    def row_claims(self, row: Row) -> Claims:
        """Claim that a row must be looked at, if it is so old that it should be gone, and is not of a re-key."""
        return () if _stays(row) else claim_if_old(row, self.schema.name, _LONGEST_MOVE)

    async def verify_row(self, address: RowAddress, phase: Phase, is_candidate: IsCandidate) -> None:
        """Complete the move of a row, or end it, if rows are repaired."""
        context = self.context
        row = await context.read(address)
        if row is None or not self.owns(kind_of(row)):
            return
        try:
            mark = mark_of(row)
            refused = None if mark is not None else f"it has no mark; delete the row {address}"
            if context.repair and mark is not None:
                refused = await _why_failed(self._end(address, mark))
        except DecodeError as error:
            mark, refused = None, str(error)
        what = "a forward" if kind_of(row).endswith(FORWARD) else "a tentative row"
        text = f"{what} of a move {'' if mark is None else f'to or from {mark.other} '}was left, and should be gone"
        problem = Problem(Damage.UNFINISHED, None, address.row_key, text, refused=refused)
        context.record(self.schema, address, problem)

    async def _end(self, place: RowAddress, mark: MoveMark) -> None:
        """Complete a move if it was committed, or make it impossible."""
        db = self.context.db
        if mark.state is not MoveState.FORWARD:
            if not await RELOCATION.resolve(db, place, self.schema):
                await RELOCATION.finish(db, mark.move, mark.other, place, self.schema)
            return
        there = await read_row(db, mark.other)
        kind = "" if there is None else kind_of(there).removesuffix(TENTATIVE)
        models = [each for each in declared_models(self.schema) if each.table == mark.other.table]
        schema = next((each for each in models if each.kind == kind), self.schema)
        await RELOCATION.finish(db, mark.move, place, mark.other, schema)


async def _why_failed(work: Awaitable[None]) -> str | None:
    """Do some work; return why that failed, or None."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - upgrades and `where=` are the user's: one bad row is a finding
        return f"{type(error).__name__}: {error}"
    return None


def _stays(row: Row) -> bool:
    """Return whether a row is one of a re-key."""
    with suppress(DecodeError):
        return stays(row)
    return False
