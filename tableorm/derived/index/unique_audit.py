"""
What an audit checks of a unique index in other partitions: that each value is reserved for the entity that holds it,
and that nothing else is reserved.
"""

from collections.abc import Sequence
from typing import cast

from ...audit.check import WRONG, Claims
from ...audit.context import AuditContext, EntitySnapshot, Problem, kind_of
from ...audit.decisions import LONGEST_WRITE
from ...audit.report import Damage
from ...connection.rows import time_of
from ...errors import shown
from ...models.manifest import ManifestEntry, PlacedEntry, ReservedEntry, manifest_of
from ...outbox.reservations import find_holder, find_last_holder, owner_and_token
from ...stores import CLOCK, Row, RowAddress, row_keys
from ..placed_check import ReadRow
from .audit import EventualIndexCheck
from .eventual_schema import EventualIndexSchema

__all__ = ["UniqueIndexCheck"]


class UniqueIndexCheck(EventualIndexCheck):
    """
    The check of the entries of a unique index in other partitions, which reserve values.

    An entry that is missing or wrong is repaired by claiming the value of its entity anew, as a write does. One that
    nobody holds may be that of a write under way: it counts as left behind after an hour, and is deleted only after its
    claim was made void.

    Args:
        context: The rows of the table.
        index: The index of one model.
    """

    def __init__(self, context: AuditContext, index: EventualIndexSchema) -> None:
        super().__init__(context, index, None)

    def row_claims(self, row: Row) -> Claims:
        """Claim that the entry must be looked at, if its write must have ended long since."""
        old = CLOCK.now() - time_of(row, self.schema.name) > LONGEST_WRITE
        return ((f"\n\n{row['RowKey']}", -WRONG),) if old else ()

    async def _compare(
        self, snapshot: EntitySnapshot, noted: ManifestEntry | None, due: ManifestEntry | None, read: ReadRow
    ) -> Sequence[Problem]:
        if isinstance(due, ReservedEntry):
            problem = await self._compare_value(snapshot, due, read, noted=noted == due)
            if problem is not None:
                return [problem]
        if noted is not None and noted != due:
            text = f"its manifest says that it holds {_where(noted)}, which its fields do not say"
            return [Problem(Damage.MANIFEST, self.name, None, text)]
        return ()

    async def _compare_value(
        self, snapshot: EntitySnapshot, due: ReservedEntry, read: ReadRow, *, noted: bool
    ) -> Problem | None:
        row, where = await read(RowAddress.of(due)), _where(due)
        primary = snapshot.row
        own = RowAddress.of_row(self.schema.table_name(), primary)
        found = None if row is None else owner_and_token(row)
        if row is None:
            return Problem(
                Damage.MISSING, self.name, due.row_key, f"nothing reserves its value: there is no row {where}"
            )
        if found is None or kind_of(row).partition("#")[2] != self.name:
            text = f"a row of kind {shown(kind_of(row))} is at {where}, where the row belongs that reserves its value"
            return Problem(Damage.BLOCKED, self.name, due.row_key, text, rebuilt=False)
        owner, token = found
        if owner != own:
            holder = await find_holder(self.context.db, due.place, [owner])
            if holder is not None:
                text = f"{owner} holds its value: the row {where} reserves it for that entity"
                return Problem(Damage.TAKEN, self.name, due.row_key, text, rebuilt=False)
            text = f"its value is reserved by the row {where} for {owner}, which does not hold it"
            return Problem(Damage.STALE, self.name, due.row_key, text)
        if not noted:
            text = f"the row {where} reserves its value for it, but its manifest does not say that it holds it"
            return Problem(Damage.MANIFEST, self.name, due.row_key, text)
        claim = manifest_of(primary).get(self.name)
        if isinstance(claim, ReservedEntry) and claim.token != token:
            text = f"the row {where} reserves its value by another claim than that of its manifest"
            return Problem(Damage.STALE, self.name, due.row_key, text)
        return None

    async def _is_orphan(self, row: Row, owner: RowAddress) -> bool:
        """Return whether nobody holds the value of an entry; before a repair, that nobody will by its claim."""
        found = owner_and_token(row)
        if found is None or not await super()._is_orphan(row, owner):
            return False
        place = cast("ReservedEntry", self._noted_as(row)).place
        return not self.context.repair or await find_last_holder(self.context.db, place, *found) is None

    def _noted_as(self, row: Row) -> ManifestEntry:
        return ReservedEntry(*row_keys(row), self.context.kinds.table, "")


def _where(place: ManifestEntry) -> str:
    if isinstance(place, PlacedEntry):
        return f"({place.partition_key!r}, {place.row_key!r}) of table {place.table}"
    return shown(place.to_json())
