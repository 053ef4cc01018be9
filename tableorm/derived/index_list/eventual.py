"""
Index lists in other partitions than their entities, which follow these some time later.

A list may name entities that are in it no more; what the manifest of an entity says counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ...audit.check import AuditedMaintainer, Check
from ...audit.context import AuditContext
from ...connection.connection import Connection
from ...connection.tasks import map_together
from ...errors import NotSupported, shown
from ...models.manifest import ManifestEntry, PlacedListEntry, manifest_of
from ...models.placement import refuse_own_keys
from ...stores import Row, RowAddress, row_keys
from ...writes.maintainer import EntryAndEffects, EntryRules, Source, entry_rules, load_known
from .effect import MOST_BYTES
from .eventual_audit import EventualListCheck
from .eventual_rows import RowList, keys_of_members
from .following import FollowingList
from .schema import ListSchema


class EventualListMaintainer(ListSchema, AuditedMaintainer):
    """An index list of a model, whose rows are in other partitions."""

    entry_type: ClassVar[type[ManifestEntry]] = PlacedListEntry
    deferred = True
    shared_rows = 0
    rows_per_chunk = 1  # the decision row

    def _refuse_own_keys(self) -> None:
        refuse_own_keys(self.label, self.primary, self.table, self.list_partition, self._row_template())

    # Reading

    def members(self, row: Row) -> Iterable[tuple[str, str]]:
        """Return the keys of the entities that a row of a list names. Raises DecodeError."""
        return keys_of_members(row, self.schema.table_name())

    def is_listed(self, primary: Row, partition_key: str, list_key: str) -> bool:
        """Return whether the manifest of an entity says that it is in a list."""
        return manifest_of(primary).get(self.name) == self.place(partition_key, list_key)

    def place(self, partition_key: str, list_key: str) -> PlacedListEntry:
        """Return the entry of the entities that are in a list."""
        return PlacedListEntry(partition_key, list_key, str(self.table), self.kind)

    # Writing

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> PlacedListEntry | None:
        """Return the list that an entity with these fields is in. Raises TemplateError."""
        key = self.address(values)
        if key is None:
            return None
        return self.place(self.list_partition.format(values), key)

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Note in the manifest which list the entity is in."""
        return self.entry(source.values, source.partition_key, source.row_key), []

    def rebuild(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Note in the manifest which list the entity is in."""
        return self.effects(before, source)

    async def reconcile(
        self, db: Connection, source: RowAddress, entries: Sequence[ManifestEntry], inserted: Row | None = None
    ) -> None:
        """Put the entity into its list, and take it out of others. Takes and raises as `Maintainer.reconcile` does."""
        places = [entry for entry in entries if isinstance(entry, PlacedListEntry) and type(entry) is self.entry_type]

        async def correct(place: PlacedListEntry) -> None:
            await self._list_at(db, place).correct(source, self.name, lambda row: self._is_due(place, row))

        await map_together(correct, places)

    def _list_at(self, db: Connection, place: PlacedListEntry) -> FollowingList[Any]:
        return RowList(db, place, self._divide_at)

    def _is_due(self, place: PlacedListEntry, primary: Row) -> bool:
        """Return whether the manifest of an entity and its values say that it is in a list. Raises NotSupported."""
        if manifest_of(primary).get(self.name) != place:
            return False
        if place.kind != self.kind:
            raise NotSupported(
                f"{self.label}: the entity is in a list of kind {shown(place.kind)}, which is of another model; leave "
                "it to a program that works on that one"
            )
        entity = load_known(self._kinds, primary, self.label)
        return entity is not None and self.entry(entity.__dict__, *row_keys(primary)) == place

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the check of the lists."""
        lenient = context.is_incomplete(self.declaration, building=self.building)
        return (EventualListCheck(context, self.schema, self.name, self.kind, self.reconcile, lenient=lenient),)


@entry_rules(PlacedListEntry)
class PlacedListRules(EntryRules[PlacedListEntry]):
    """An entity is taken out of its list after the write, also if the program does not declare the list."""

    async def remove(self, db: Connection, source: RowAddress, name: str, entries: Sequence[PlacedListEntry]) -> None:
        """Take the entity out of lists that its manifest does not name. Takes and raises as `EntryRules.remove`."""

        def is_due(primary: Row) -> bool:
            if manifest_of(primary).get(name) in entries:
                raise NotSupported(
                    f"the entity {source} is in a list by {shown(name)}, which this program does not know; leave it to "
                    "a program that does, or update this one"
                )
            return False

        await map_together(lambda place: self._list_at(db, place).correct(source, name, is_due), entries)

    def _list_at(self, db: Connection, place: PlacedListEntry) -> FollowingList[Any]:
        return RowList(db, place, MOST_BYTES)
