"""
What an audit checks of moves to other partitions: rows of a move that nobody has completed for long.

A move that was committed is completed, as by a worker. A tentative row of one that was not is deleted after its source
got another ETag, so that no late request can commit the move.
"""

import datetime as dt
from contextlib import suppress

from ..connection.rows import read_row, time_of
from ..errors import DecodeError
from ..models.marker_rows import FORWARD, TENTATIVE, MoveMark, MoveState, mark_of
from ..models.placement import declared_models
from ..models.schema import Schema
from ..stores import CLOCK, Row, RowAddress
from ..writes.move_entity import RELOCATION
from ..writes.relocation import stays
from .check import WRONG, Check, Claims, IsCandidate, Phase
from .context import AuditContext, Problem, kind_of
from .report import Damage

__all__ = ["MoveCheck"]

_LONGEST_MOVE = dt.timedelta(hours=1)


class MoveCheck(Check):
    """
    The check of the tentative rows and forwards of a model.

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
        old = CLOCK.now() - time_of(row, self.schema.name) > _LONGEST_MOVE and not _stays(row)
        return ((f"\n{row['RowKey']}", -WRONG),) if old else ()

    async def verify_row(self, address: RowAddress, phase: Phase, is_candidate: IsCandidate) -> None:
        """Complete the move of a row, or end it, if rows are repaired."""
        del phase, is_candidate
        context = self.context
        row = await context.read(address)
        if row is None or not self.owns(kind_of(row)):
            return
        try:
            mark = mark_of(row)
            refused = None if mark is not None else f"it has no mark; delete the row {address}"
            if context.repair and mark is not None:
                refused = await self._end(address, mark)
        except DecodeError as error:
            mark, refused = None, str(error)
        what = "a forward" if kind_of(row).endswith(FORWARD) else "a tentative row"
        text = f"{what} of a move {'' if mark is None else f'to or from {mark.other} '}was left, and should be gone"
        problem = Problem(Damage.UNFINISHED, None, address.row_key, text, refused=refused)
        context.record(self.schema, address, problem)

    async def _end(self, place: RowAddress, mark: MoveMark) -> str | None:
        """Complete a move if it was committed, or make it impossible; return why that failed, or None."""
        db = self.context.db
        try:
            if mark.state is not MoveState.FORWARD:
                if not await RELOCATION.resolve(db, place, self.schema):
                    await RELOCATION.finish(db, mark.move, mark.other, place, self.schema)
                return None
            there = await read_row(db, mark.other)
            kind = "" if there is None else kind_of(there).removesuffix(TENTATIVE)
            models = [each for each in declared_models(self.schema) if each.table == mark.other.table]
            schema = next((each for each in models if each.kind == kind), self.schema)
            await RELOCATION.finish(db, mark.move, place, mark.other, schema)
        except Exception as error:  # noqa: BLE001 - upgrades and `where=` are the user's: one bad row is a finding
            return f"{type(error).__name__}: {error}"
        return None


def _stays(row: Row) -> bool:
    """Return whether a row is one of a re-key."""
    with suppress(DecodeError):
        return stays(row)
    return False
