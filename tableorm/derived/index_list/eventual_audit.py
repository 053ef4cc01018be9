"""
What an audit checks of an index list in other partitions: that it names the entities that are in it, and no others.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence

import attrs

from ...audit.check import WRONG, Check, IsCandidate, Phase
from ...audit.context import AuditContext, EntitySnapshot, Problem, is_place, kind_of
from ...audit.decisions import is_under_way
from ...audit.report import Damage
from ...connection.connection import Connection
from ...errors import DecodeError, TableNotFound, TableOrmError
from ...models.kinds import KindSet
from ...models.manifest import ManifestEntry, PlacedListEntry
from ...models.schema import Schema
from ...stores import Row
from ...writes.maintainer import RowKeys
from .eventual_rows import is_member, keys_of_members
from .rows import split_address

__all__ = ["EventualListCheck", "Reconcile"]

Reconcile = Callable[[Connection, RowKeys, Sequence[ManifestEntry]], Awaitable[None]]


class EventualListCheck(Check):
    """
    The check of an index list in other partitions.

    Each entity is looked for in its list, and each entity that a list names is read. What a committed decision row
    names is on its way, and not damage.

    Args:
        context: The rows of the table.
        schema: The model.
        name: Name of the declaration.
        kind: The kind of the list's rows.
        reconcile: Makes lists right for an entity.
        lenient: Whether entities may be missing in it whose manifests do not name it.
    """

    row_phases = frozenset({Phase.ENTITIES})

    def __init__(
        self, context: AuditContext, schema: Schema, name: str, kind: str, reconcile: Reconcile, *, lenient: bool
    ) -> None:
        super().__init__(context, schema, name)
        self._lenient = lenient
        self._kind, self._reconcile = kind, reconcile
        self._owners = attrs.evolve(context, kinds=KindSet.of([schema.model]))  # the lists may be elsewhere

    def owns(self, kind: str) -> bool:
        """Return whether it is the kind of the lists."""
        return kind == self._kind

    def claims(self, snapshot: EntitySnapshot) -> Iterable[tuple[str, int]]:
        """Claim that the entity must be looked at, if it is in a list or ought to be."""
        if self.name in {*snapshot.manifest, *snapshot.expected}:
            yield f"\n{snapshot.row['RowKey']}", WRONG

    def row_claims(self, row: Row) -> Iterable[tuple[str, int]]:
        """Claim that the row must be looked at."""
        return ((f"\n\n{row['RowKey']}", -WRONG),)

    async def inspect(self, snapshot: EntitySnapshot) -> Iterable[Problem]:
        """Look for an entity in its list, and in one that its manifest names wrongly; repair what is repaired."""
        noted, due = (each.get(self.name) for each in (snapshot.manifest, snapshot.expected))
        if snapshot.problem is not None or not snapshot.legible or (noted is None and self._lenient):
            return ()
        source = RowKeys(self.schema.table_name(), snapshot.row["PartitionKey"], snapshot.row["RowKey"])
        problems = await self._compare(source, noted, due)
        if not problems:
            return ()
        # A build does not leave to a worker what is under way: all entities are in their lists when it has ended.
        building = self.context.only is not None
        if not building and await is_under_way(self._owners, source.partition_key, source.row_key):
            return ()
        if not self.context.repair or noted != due or noted is None:
            return problems
        try:
            await self._reconcile(self.context.db, source, [noted])
        except TableOrmError as error:
            return [attrs.evolve(each, rebuilt=False, refused=str(error)) for each in problems]
        left = await self._compare(source, noted, due)
        if not left:
            for each in problems:
                self.context.record(self.schema, source.partition_key, source.row_key, each, repaired=True)
        return left

    async def _names(self, source: RowKeys, place: PlacedListEntry, *, due: bool) -> bool:
        """Return whether a list names an entity, as is due or not. Raises DecodeError if the list cannot be read."""
        del due
        return await is_member(self.context.db, source, place)

    async def _compare(self, source: RowKeys, noted: ManifestEntry | None, due: ManifestEntry | None) -> list[Problem]:
        problems: list[Problem] = []
        for entry in dict.fromkeys(each for each in (due, noted) if isinstance(each, PlacedListEntry)):
            where = f"the list {entry.list_key!r} in partition {entry.partition_key!r} of {entry.location}"
            listed = False
            try:
                if is_place(entry.table, entry.partition_key, entry.row_key):
                    listed = await self._names(source, entry, due=entry == due)
            except TableNotFound:
                pass  # the manifest names it, and is wrong
            except DecodeError as error:
                problems.append(Problem(Damage.FOREIGN, self.name, entry.list_key, str(error), rebuilt=False))
                continue
            if entry == due and not listed:
                problems.append(Problem(Damage.MISSING, self.name, entry.list_key, f"{where} does not name it"))
            elif entry != due and listed:
                text = f"{where} names it, and it belongs elsewhere, or nowhere"
                problems.append(Problem(Damage.ORPHAN, self.name, entry.list_key, text))
        if noted != due and not problems:
            problems.append(Problem(Damage.MANIFEST, self.name, None, "its manifest does not name the list it is in"))
        return problems

    async def verify_row(self, partition_key: str, row_key: str, phase: Phase, is_candidate: IsCandidate) -> None:
        """Verify that the entities that a row names are in its list; otherwise take them out, if rows are repaired."""
        del phase, is_candidate
        row, address = await self.context.read(partition_key, row_key), split_address(row_key)
        if row is None or kind_of(row) != self._kind:
            return
        try:
            members = keys_of_members(row, self.schema.table_name())
        except DecodeError as error:
            members, address = [], None
            text = str(error)
        else:
            text = f"the row {row_key!r} has the kind of an index list, and no list has such a key"
        if address is None:
            problem = Problem(Damage.FOREIGN, self.name, row_key, text, rebuilt=False)
            self.context.record(self.schema, partition_key, "", problem, repaired=False)
            return
        place = PlacedListEntry(partition_key, address[0], self.context.kinds.table, self._kind)
        for keys in members:
            await self._verify_member(place, *keys)

    async def _verify_member(self, place: PlacedListEntry, partition_key: str, row_key: str) -> None:
        primary = await self._owners.read(partition_key, row_key)
        snapshot = None if primary is None else self._owners.snapshot(primary)
        if snapshot is not None and (
            snapshot.problem is not None
            or place in (snapshot.manifest.get(self.name), snapshot.expected.get(self.name))
        ):
            return  # verified with the entity
        source = RowKeys(self.schema.table_name(), partition_key, row_key)
        if await is_under_way(self._owners, partition_key, row_key):
            return
        text = f"the list {place.list_key!r} names an entity that is gone, or belongs elsewhere"
        problem = Problem(Damage.ORPHAN, self.name, place.list_key, text)
        if self.context.repair:
            try:
                await self._reconcile(self.context.db, source, [place])
            except TableOrmError as error:
                problem = attrs.evolve(problem, refused=str(error))
        repaired = self.context.repair and problem.refused is None
        self.context.record(self.schema, partition_key, row_key, problem, repaired=repaired)
