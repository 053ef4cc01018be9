"""
What an audit checks of what entities have in other partitions: in rows, or lists, that the manifest of each names.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence

import attrs

from ..audit.check import WRONG, Check, Claims, Phase
from ..audit.context import AuditContext, EntitySnapshot, Problem
from ..audit.decisions import is_under_way
from ..audit.first_look import FirstLook
from ..errors import TableOrmError
from ..models.kinds import KindSet
from ..models.manifest import ManifestEntry
from ..protocol.limits import MAX_PAGE
from ..stores import Row, RowAddress
from ..writes.maintainer import Maintainer

ReadRow = Callable[[RowAddress], Awaitable[Row | None]]
"""Reads a row; returns None if there is none, or no row can be there."""


class PlacedCheck(Check):
    """
    The check of rows in other partitions than the entities that they are derived from.

    No sums are made of them: each entity is compared with what there is of it, and each row with the entities that it
    names. What a committed decision row names is on its way, and not damage.

    Args:
        context: The rows of the table.
        maintainer: The declaration.
    """

    row_phases = frozenset({Phase.ENTITIES})
    looks_first = True

    reconciles = True
    """Whether the declaration makes rows right for an entity; otherwise the entity is derived anew for that."""

    def __init__(self, context: AuditContext, maintainer: Maintainer) -> None:
        super().__init__(context, maintainer.schema, maintainer.name)
        self.kind, self._maintainer = f"{self.schema.kind}#{self.name}", maintainer
        # Until all derived rows are built, entities may lack some that their manifests do not name.
        self._lenient = context.is_incomplete(maintainer.declaration, building=maintainer.building)
        self._owners = attrs.evolve(context, kinds=KindSet.of([self.schema.model]))  # the rows may be in another table

    def claims(self, snapshot: EntitySnapshot) -> Claims:
        """Claim that the entity must be looked at, if it has something in other partitions or ought to."""
        if self.name in {*snapshot.manifest, *snapshot.expected}:
            yield f"\n{snapshot.row['RowKey']}", WRONG

    def row_claims(self, row: Row) -> Claims:
        """Claim that the row must be looked at."""
        return ((f"\n\n{row['RowKey']}", -WRONG),)

    async def inspect(self, snapshot: EntitySnapshot) -> Iterable[Problem]:
        """Compare an entity with what it has, and with what its manifest names wrongly; repair what is repaired."""
        noted, due = snapshot.entries(self.name)
        if not snapshot.is_known or (noted is None and self._lenient):
            return ()
        problems = await self._compare(snapshot, noted, due, self._read)
        if not problems:
            return ()
        source = self._source_of(snapshot)
        # A build does not leave to a worker what is under way: what it builds may be read as soon as it has ended.
        building = self.context.only is not None
        if not building and await is_under_way(self.context, source):
            return ()
        if not self.reconciles or not self.context.repair or noted != due or noted is None:
            return problems
        try:
            await self._maintainer.reconcile(self.context.db, source, [noted])
        except TableOrmError as error:
            return [attrs.evolve(each, rebuilt=False, refused=str(error)) for each in problems]
        left = await self._compare(snapshot, noted, due, self._read)
        if not left:
            for each in problems:
                self.context.record(self.schema, source, attrs.evolve(each, rebuilt=True))
        return left

    async def is_right(self, snapshot: EntitySnapshot, look: FirstLook) -> bool:
        """Return whether a first look finds nothing wrong with what an entity has."""
        noted, due = snapshot.entries(self.name)
        if not snapshot.is_known or (noted is None and self._lenient):
            return True

        async def read(address: RowAddress) -> Row | None:
            return await look.read(address, self.kind)

        return not await self._compare(snapshot, noted, due, read)

    async def is_row_right(self, row: Row, look: FirstLook) -> bool:
        """Return whether a first look finds that each entity which a row names has it, or ought to."""
        entry, sources = self._named_by(row)
        for start in range(0, len(sources), MAX_PAGE):
            some = sources[start : start + MAX_PAGE]
            for primary in await look.read_all(some, self.schema.name):
                if primary is None or not await self._has(primary, entry):
                    return False
        return True

    def _named_by(self, row: Row) -> tuple[ManifestEntry, Sequence[RowAddress]]:
        """
        Return the entities of the model that a row names, and what the manifest of each ought to say.

        Raises:
            DecodeError: The row is damaged, or names what is no entity of the model.
        """
        raise NotImplementedError

    async def _compare(
        self, snapshot: EntitySnapshot, noted: ManifestEntry | None, due: ManifestEntry | None, read: ReadRow
    ) -> Sequence[Problem]:
        """
        Return what is wrong with what an entity has.

        Args:
            snapshot: The entity.
            noted: What its manifest says.
            due: What that ought to say.
            read: Reads a row of another partition.
        """
        raise NotImplementedError

    async def _read(self, address: RowAddress) -> Row | None:
        return await self.context.read(address, self._maintainer.label)

    def _source_of(self, snapshot: EntitySnapshot) -> RowAddress:
        return RowAddress.of_row(self.schema.table_name(), snapshot.row)

    async def _is_due(self, entry: ManifestEntry, owner: RowAddress) -> bool:
        """
        Return whether what a row says of an entity is verified with that entity, since its manifest has the entry or
        ought to; or need not be, since it is under way.
        """
        primary = await self._owners.read(owner)
        if primary is not None and await self._has(primary, entry):
            return True
        return await is_under_way(self.context, owner)

    async def _has(self, primary: Row, entry: ManifestEntry) -> bool:
        """Return whether the manifest of an entity has an entry, or ought to; or nobody knows what it ought to have."""
        await self.context.turns.take()
        snapshot = self._owners.snapshot(primary)
        return snapshot is not None and (snapshot.problem is not None or entry in snapshot.entries(self.name))
