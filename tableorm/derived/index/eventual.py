"""
What writes do to the entries of an eventual index, which are in other partitions than their entities.

The transaction that writes an entity notes in its manifest where its entry is, and in a decision row which entries have
to be made right. That is done afterwards by reading the entries, then the entity, and writing each entry under the ETag
that it was read with. Then the entity is read again, because an entry may have been written for a version that is old
by now. An entry holds the write token of the version that it copies and is written anew for each, so that whoever acts
for an older version fails at its ETag.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ...audit.check import Check
from ...audit.context import AuditContext
from ...connection.connection import Connection
from ...connection.races import ATTEMPTS, Attempts
from ...connection.rows import delete_as_read, read_row, write_as_read
from ...connection.tasks import map_together
from ...errors import EntityExists, LostRace, NotSupported, shown
from ...models.kinds import entry_name_of, kind_of
from ...models.manifest import ManifestEntry, PlacedEntry, ReservedEntry, manifest_of
from ...models.reserved import COPIED_VERSION, COPY_OF, ENTITY_TYPE
from ...models.state import state_of
from ...models.write_tokens import newest_token, tokens_of
from ...protocol.codes import Code
from ...stores import Operation, Row, RowAddress, Verb
from ...writes.maintainer import EntryAndEffects, EntryRules, Source, entry_rules, load_known
from .audit import EventualIndexCheck
from .effect import EntryMaintainer
from .eventual_schema import EventualIndexSchema


class EventualIndexMaintainer(EntryMaintainer[EventualIndexSchema]):
    """An eventual index of a model."""

    entry_type: ClassVar[type[ManifestEntry]] = PlacedEntry
    deferred = True
    rows_per_chunk = 1  # the decision row

    def __init__(self, rows: EventualIndexSchema) -> None:
        super().__init__(rows)
        self.table, self.partition = rows.table, rows.partition

    # What is declared

    def derive_row(self, entry: ManifestEntry, values: Mapping[str, Any], row: Row) -> Row | None:
        """Return the entry that the entity ought to have."""
        return self.rows.entry_row(values, row, entry, newest_token(row)) if isinstance(entry, PlacedEntry) else None

    # What writes do

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> PlacedEntry | None:
        """Return where the entity's entry is. Raises TemplateError."""
        del partition_key, row_key
        return self.rows.place(values)

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Note in the manifest where the entry is."""
        del before
        return self.rows.place(source.values), []

    def leaves_work(self, before: ManifestEntry | None, after: ManifestEntry | None, source: Source) -> bool:
        """Return whether the entry is to be elsewhere, or holds something of what changes."""
        return before != after or (after is not None and self.rows.concerns(source.changed))

    # What is done afterwards

    async def reconcile(
        self, db: Connection, source: RowAddress, entries: Sequence[ManifestEntry], inserted: Row | None = None
    ) -> None:
        """Make the entries what the entity says now. Takes and raises what `Maintainer.reconcile` does."""
        places = [entry for entry in entries if isinstance(entry, PlacedEntry)]
        if inserted is not None and await self._insert_new(db, source, inserted):
            return
        await _reconcile(db, source, places, self.rows.label, self._correct)

    async def _insert_new(self, db: Connection, source: RowAddress, inserted: Row) -> bool:
        """
        Insert the entry of an entity that has just been inserted, without looking what is there. Return whether that
        is all: somebody may have changed the entity since, or have made the entry.
        """
        wanted = self.wanted_row(inserted)
        if wanted is None or not await _write(db, wanted[0], Operation(Verb.INSERT, wanted[1]), self.rows.label):
            return False
        now = await read_row(db, source, name=self.schema.name)
        return tokens_of(now)[:1] == tokens_of(inserted)[:1]

    def wanted_row(self, primary: Row | None) -> tuple[PlacedEntry, Row] | None:
        """
        Return where the entry of an entity is, and the entry. None if it has none: there is no such entity, or its
        manifest names no entry, or another one than its values yield.

        Args:
            primary: The row of the entity; None if there is none.

        Raises:
            NotSupported: A newer program has written the entity: leave it to one.
            DecodeError: The entity does not fit the model, or its manifest is damaged.
        """
        entity = None if primary is None else load_known(self._kinds, primary, self.label)
        if primary is None or entity is None:
            return None
        place = self.rows.place(entity.__dict__)
        if place is None or manifest_of(primary).get(self.name) != place:
            return None
        row = state_of(entity).row or primary  # of the model's version
        return place, self.rows.entry_row(entity.__dict__, row, place, newest_token(primary))

    def _correct(self, place: PlacedEntry, stored: Row | None, primary: Row | None) -> Operation | None:
        """Return what makes an entry right; None if it is right, or the row is not an entry of this entity."""
        wanted = self.wanted_row(primary)
        kind = kind_of(stored or {})
        if wanted is None or wanted[0] != place:
            if stored is None or entry_name_of(stored) != self.name:
                return None
            # The entity may have become one of another class, whose entry stays.
            stays = kind != self.rows.kind and manifest_of(primary).get(self.name) == place
            return None if stays else delete_as_read(stored)
        row = wanted[1]
        if stored is None:
            return Operation(Verb.INSERT, row)
        if stored.get(COPY_OF) != row[COPY_OF] or entry_name_of(stored) != self.name:
            raise EntityExists(
                f"{self.label}: the entry of {row[COPY_OF]} belongs at ({place.partition_key!r}, {place.row_key!r}) of "
                f"table {place.table}, where a row of kind {shown(stored.get(ENTITY_TYPE))} of "
                f"{shown(stored.get(COPY_OF))} is; change the keys of the index, or remove that row",
                Code.ENTITY_EXISTS,
                index=self.rows.label,
            )
        if kind == self.rows.kind and stored.get(COPIED_VERSION) == row[COPIED_VERSION]:
            return None
        return Operation(Verb.REPLACE, row, stored["odata.etag"])

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the check of the entries."""
        return (EventualIndexCheck(context, self.rows, self.reconcile),)


@entry_rules(PlacedEntry)
class _EventualIndexRules(EntryRules[PlacedEntry]):
    """An entry is removed after the write."""

    async def remove(self, db: Connection, source: RowAddress, name: str, entries: Sequence[PlacedEntry]) -> None:
        """Delete entries that the manifest of the entity does not name. Takes and raises as `EntryRules.remove`."""

        def correct(place: PlacedEntry, stored: Row | None, primary: Row | None) -> Operation | None:
            noted = manifest_of(primary).get(name)
            if isinstance(noted, ReservedEntry) and noted.place == place:
                return None  # the index is unique by now
            if noted == place:
                raise NotSupported(
                    f"the entity {source} has an entry at {place} by {shown(name)}, which this program does not know; "
                    "leave it to a program that does, or update this one"
                )
            return None if stored is None or entry_name_of(stored) != name else delete_as_read(stored)

        await _reconcile(db, source, entries, name, correct)


Correct = Callable[[PlacedEntry, Row | None, Row | None], Operation | None]
"""Says what makes an entry right: from where it is, its row if it is one of the entity, and the row of the entity."""


async def _reconcile(
    db: Connection, source: RowAddress, places: Sequence[PlacedEntry], label: str, correct: Correct
) -> None:
    """
    Make the entries of an entity right.

    Args:
        db: Where the rows are.
        source: The row of the entity.
        places: Where the entries are.
        label: The index, for messages and counters.
        correct: Says what makes an entry right.

    Raises:
        LostRace: Others have written them again and again.
        TableOrmError: What `correct` raises, or the store.
    """

    async def read(place: PlacedEntry) -> Row | None:
        return await read_row(db, RowAddress.of(place), name=label)

    async def write(change: tuple[PlacedEntry, Operation]) -> bool:
        return await _write(db, *change, label)

    owner = source.to_json()
    async for _ in Attempts(db):
        # The entries first: what the entity says is then newer than their ETags.
        stored = await map_together(read, places)
        primary = await read_row(db, source, name=label)
        changes: list[tuple[PlacedEntry, Operation]] = []
        for place, row in zip(places, stored, strict=True):
            operation = correct(place, row, primary)
            if operation is not None and (operation.verb is not Verb.DELETE or (row or {}).get(COPY_OF) == owner):
                changes.append((place, operation))
        if not all(await map_together(write, changes)):
            continue
        again = await read_row(db, source, name=label)
        if (again or {}).get("odata.etag") == (primary or {}).get("odata.etag"):
            return
    raise LostRace(
        f"{label}: others wrote the entity {source} or its entries first, {ATTEMPTS} times in a row; try it again",
        Code.CONDITION_NOT_SATISFIED,
    )


async def _write(db: Connection, place: PlacedEntry, operation: Operation, label: str) -> bool:
    """Write an entry. Return False if it is not as it was read, or nobody knows whether it was written: look again."""
    return await write_as_read(db, place.table, [operation], name=label, what=f"the entry of {label}")
