"""
What an audit checks of the rows of entities that are stored in several: that each further row belongs to an entity.

A program that deletes the first row by itself leaves the others behind. They hold their keys, so that no insert of the
entity succeeds.
"""

from ..connection.races import Attempts
from ..connection.rows import delete_as_read
from ..errors import shown
from ..models.reserved import PART
from ..models.row_stage import SplitStage, as_one
from ..models.schema import Schema
from ..stores import Row, RowAddress
from .check import Check, Claims, IsCandidate, Phase
from .context import AuditContext, EntitySnapshot, Problem, kind_of
from .report import Damage

__all__ = ["PartCheck"]


class PartCheck(Check):
    """
    The check of the further rows of a model.

    Args:
        context: The rows of the table.
        schema: The model.
        split: Its stage.
    """

    marks = True
    row_phases = frozenset({Phase.ENTITIES})

    def __init__(self, context: AuditContext, schema: Schema, split: SplitStage) -> None:
        super().__init__(context, schema, "")
        self._split = split

    def owns(self, kind: str) -> bool:
        """Return whether it is the kind of further rows."""
        return kind == f"{self.schema.kind}{PART}"

    def claims(self, snapshot: EntitySnapshot) -> Claims:
        """Claim the rows that the entity was joined of."""
        return [(key, 1) for key in self._split.further_keys(snapshot.row)]

    def row_claims(self, row: Row) -> Claims:
        """Claim that an entity has the row."""
        return ((row["RowKey"], 1),)

    async def verify_row(self, address: RowAddress, phase: Phase, is_candidate: IsCandidate) -> None:
        """Verify that the row belongs to an entity; otherwise delete it, if rows are repaired."""
        del phase, is_candidate
        context, owner = self.context, address.beside(self._split.owner_of(address.row_key))
        async for _ in Attempts(context.db):
            row = await context.read(address)
            if row is None or not self.owns(kind_of(row)):
                return
            first = await context.read(owner)
            # An entity whose rows do not fit together is a finding of its own, and nobody knows which are its.
            if first is not None and (as_one(first) is not first or address.row_key in self._split.further_keys(first)):
                return
            text = f"the row at {shown(address.row_key)} belongs to no entity: {shown(owner.row_key)} " + (
                "is gone" if first is None else "does not name it"
            )
            # Under the ETag that it had before its entity was read: who makes it a row of the entity writes it.
            if await context.settle(address, row, [delete_as_read(row)]):
                problem = Problem(Damage.ORPHAN, None, address.row_key, text)
                context.record(self.schema, owner, problem)
                return
        context.counts.leave()
