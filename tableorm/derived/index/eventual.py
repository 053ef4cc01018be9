"""
Eventual indexes: index entries in other partitions, which follow their entities some time later.

An entry tells the table and both keys of its primary, as JSON text, and the write token of the version that it copies.
It may be old, or be left over: only the primary says whether it is right. So readers fetch the primary of each entry,
and count an entry only if the primary's values yield its keys; without that they read the entries alone, as of an
earlier moment.

The transaction that writes an entity notes in its manifest where its entry is, and in a decision row which entries have
to be made right. That is done afterwards by reading the entries, then the entity, and writing each entry under the ETag
that it was read with. Then the entity is read again, because an entry may have been written for a version that is old
by now. An entry is written anew for each version, so that whoever acts for an older version fails at its ETag.

With `unique=True`, an entry reserves the value for an entity, and holds nothing but the keys of that entity. It is made
before the transaction that gives the entity its value, and deleted after one that takes the value away; the steps are
in `tableorm.outbox.reservations`. A write that leaves the value alone leaves the entry alone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar

import msgspec
from msgspec import structs

from ...audit.check import Check
from ...audit.context import AuditContext
from ...connection.connection import Connection
from ...connection.races import Attempts
from ...connection.rows import delete_as_read, read_row, write_as_read
from ...connection.tasks import map_together
from ...errors import (
    EntityExists,
    ModelError,
    NotSupported,
    TableOrmError,
    TemplateError,
    UniqueViolation,
    shown,
)
from ...keys.template import Template
from ...models.kinds import entry_name_of, kind_of
from ...models.manifest import ManifestEntry, PlacedEntry, ReservedEntry, manifest_of
from ...models.placement import refuse_own_keys
from ...models.reserved import COPIED_VERSION, COPY_OF, ENTITY_TYPE
from ...models.schema import relatives
from ...models.state import state_of
from ...models.write_tokens import newest_token, tokens_of
from ...outbox.reservations import Held, reserve
from ...protocol.codes import Code
from ...stores import Operation, Row, RowAddress, Verb, row_keys
from ...writes.maintainer import EntryAndEffects, EntryRules, Source, entry_rules, load_known
from ...writes.plan import PlannedWrite
from .audit import EventualIndexCheck, UniqueIndexCheck
from .effect import EntryMaintainer
from .schema import EntrySchema


class EventualIndexSchema(EntrySchema):
    """The schema of the entries of an index in other partitions, whose primaries readers fetch to check them."""

    exact = False

    @cached_property
    def unverified(self) -> "EventualIndexSchema | None":
        """The schema by which the same entries are read alone; None if they hold nothing but keys."""
        if self.keys_only:
            return None
        partition, row = self.templates()
        return EventualIndexSchema(
            self.entry_name,
            self.primary,
            table=self.table,
            partition=partition,
            row=row,
            unique=self.unique,
            include=self.include,
            where=self.where,
            building=self.building,
            follows=False,
        )

    def _check(self, table: str | None, partition: Template, row: Template) -> None:
        primary, name = self.primary, self.label
        refuse_own_keys(name, primary, table, partition, row)
        held = partition.full_fields | row.full_fields
        missing = [field for field in primary.key_fields if field not in held]
        if missing and not self.unique:
            raise ModelError(
                f"{name}: partition_key {partition.text!r} and row_key {row.text!r} lack {', '.join(missing)}, so that "
                f"two entities could have one entry; add {{{missing[0]}}} to the row_key"
            )

    # Writing

    def place(self, values: Mapping[str, Any]) -> PlacedEntry | None:
        """
        Return where the entry of an entity is; None if it has none.

        Args:
            values: Its fields, in full.

        Raises:
            TemplateError: A value does not fit the templates.
        """
        return PlacedEntry(*self.make_keys(values), self.table_name()) if self.has_entry(values) else None

    def entry_row(self, values: Mapping[str, Any], row: Row, place: PlacedEntry, version: str) -> Row:
        """
        Return the index entry of an entity, as a row.

        Args:
            values: The fields of the entity, in full.
            row: The row of the entity, in full.
            place: Where the entry is.
            version: The newest write token of the entity.
        """
        entry = self._make_entry(values, row, place.partition_key, place.row_key)
        entry[COPY_OF] = RowAddress.of_row(self.primary.table_name(), row).to_json()
        entry[COPIED_VERSION] = version
        return entry

    # Reading

    def owner_keys(self, entry: Row) -> tuple[str, str]:
        """Return the keys of the entity whose entry it is. Raises DecodeError if the entry names none."""
        table = self.primary.table_name()
        with suppress(KeyError, TypeError, msgspec.DecodeError):
            owner = RowAddress.from_json(entry[COPY_OF])
            if owner.table == table:
                return owner.partition_key, owner.row_key
        raise self._odd_owner(entry, f"the JSON of the table {table!r} and the keys")

    @property
    def deciding_fields(self) -> frozenset[str] | None:
        """The fields of its keys; None, which stands for all fields, if a function tells which entities have one."""
        return self.key_names if self.where is None else None

    def leads_to(self, entry: Row, primary: Row, values: Mapping[str, Any]) -> bool:
        """Return whether the primary's values yield the keys of the entry."""
        with suppress(TemplateError):  # values that no entry can have
            return self.place(values) == PlacedEntry(*row_keys(entry), self.table_name())
        return False


class EventualIndexMaintainer(EntryMaintainer[EventualIndexSchema]):
    """An eventual index of a model."""

    entry_type: ClassVar[type[ManifestEntry]] = PlacedEntry
    deferred = True
    rows_per_chunk = 1  # the decision row
    _check: ClassVar[type[EventualIndexCheck]] = EventualIndexCheck

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
        return self.rows.place(values)

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Note in the manifest where the entry is."""
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
        return (self._check(context, self, self.rows),)


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
    async for _ in Attempts(db, races=f"{label}: others wrote the entity {source} or its entries first"):
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


async def _write(db: Connection, place: PlacedEntry, operation: Operation, label: str) -> bool:
    """Write an entry. Return False if it is not as it was read, or nobody knows whether it was written: look again."""
    return await write_as_read(db, place.table, [operation], name=label, what=f"the entry of {label}")


class UniqueIndexMaintainer(EventualIndexMaintainer):
    """
    An index in other partitions of which no two entities have the same key.

    Args:
        rows: The schema of its entries.
    """

    entry_type = ReservedEntry
    movable = False
    _check = UniqueIndexCheck

    def current_entry(self, entry: ManifestEntry) -> ManifestEntry:
        """Return an entry without the token of its claim, which the values of an entity do not tell."""
        return structs.replace(entry, token="") if isinstance(entry, ReservedEntry) else entry

    def derive_row(self, entry: ManifestEntry, values: Mapping[str, Any], row: Row) -> Row | None:
        """Return the entry that the entity ought to have."""
        return self.rows.entry_row(values, row, entry, entry.token) if isinstance(entry, ReservedEntry) else None

    # What writes do

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> ReservedEntry | None:
        """Return where the entity's entry is, without the token of its claim. Raises TemplateError."""
        return _claim(self.rows.place(values), "")

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Note in the manifest where the entry is, and the claim of a new value."""
        claim = _claim(self.rows.place(source.values), source.claim)
        # The row that reserves the value names the class of the entity, which may have been another one.
        converted = source.upgraded and len(relatives(self.schema)) > 1
        if isinstance(before, ReservedEntry) and claim is not None and before.place == claim.place and not converted:
            return before, []
        return claim, []

    def rebuild(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Claim the value anew, whatever the manifest says."""
        return _claim(self.rows.place(source.values), source.claim), []

    def leaves_work(self, before: ManifestEntry | None, after: ManifestEntry | None, source: Source) -> bool:
        """Return whether another value is claimed, or none any more: an entry holds nothing but its keys."""
        return before != after

    def refuse_claim(self, claim: ReservedEntry, write: PlannedWrite, held: Held | None) -> TableOrmError:
        """Return the error of a write that claims a value which another entity has."""
        change, label = write.origin, self.rows.label
        partition, row = self.rows.templates()
        fields = self.rows.primary.decode(dict(write.after or {})).__dict__
        values = {name: fields.get(name) for name in dict.fromkeys((*partition.fields, *row.fields))}
        if held is not None and held.holder is None:
            return EntityExists(
                f"{change}: index {label} needs the row ({claim.partition_key!r}, {claim.row_key!r}) of table "
                f"{claim.table}, where a row of kind {shown(held.stored.get(ENTITY_TYPE))} is that belongs to no "
                f"entity of {self.schema.name} within reach; change the keys of the index, or remove that row",
                Code.ENTITY_EXISTS,
                change.subject,
                index=label,
            )
        holder, remedy = "another entity of this transaction", "choose another value, or change that entity first"
        if held is not None and held.holder is not None:
            if self.schema.expiry is not None:  # the reserving row does not say when
                remedy += "; if it has expired, it keeps the value until db.sweep() deletes it"
            holder = f"the entity ({held.holder.partition_key!r}, {held.holder.row_key!r})"
        given = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return UniqueViolation(
            f"{change}: {holder} has {given} already, and index {label} is unique; {remedy}",
            Code.ENTITY_EXISTS,
            change.subject,
            index=label,
            values=values,
        )

    async def reserve(
        self,
        db: Connection,
        claim: ReservedEntry,
        entries: Sequence[ManifestEntry],
        write: PlannedWrite,
        givers: Collection[str],
    ) -> None:
        """Reserve a value. Takes and raises what `Maintainer.reserve` does."""
        assert write.after is not None
        values = self.rows.primary.decode(dict(write.after)).__dict__
        row = self.rows.entry_row(values, write.after, claim, claim.token)
        given_up = {e.token for e in entries if isinstance(e, ReservedEntry) and e.place == claim.place and e != claim}
        held = await reserve(
            db, claim, row, schema=self.schema, given_up=given_up, givers=givers, label=self.rows.label
        )
        if held is not None:
            raise self.refuse_claim(claim, write, held)


@entry_rules(ReservedEntry)
class _ReservedRules(EntryRules[ReservedEntry]):
    """Nothing is undone by a write: its value is released afterwards."""


def _claim(place: PlacedEntry | None, token: str) -> ReservedEntry | None:
    """Return the claim of a value, as the manifest of an entity has it; None if the entity has no such value."""
    return None if place is None else ReservedEntry(place.partition_key, place.row_key, place.table, token)
