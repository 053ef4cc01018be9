"""
Embedded copies: some fields of another entity, kept as they are there.

Copies of an entity of another partition follow some time later. That entity, the source, does not know its holders:
they are found by an index of theirs, or by their own keys, page after page. A holder that gets another source, or
another place in that index, is looked at by itself when its index entry is there. The manifest of a holder says of
which version of the source its copies are; they are written for each version, also where they are equal, so that
whoever acts by an older one fails at the ETag of the holder.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import structs

from ...audit.check import AuditedMaintainer, Check
from ...audit.context import AuditContext
from ...audit.table_audit import rebuild_write
from ...connection.connection import Connection
from ...connection.index_states import find_unreadable, not_readable
from ...connection.logger import make_logger
from ...connection.races import Attempts, is_race
from ...connection.rows import is_place, read_row, write_as_read
from ...connection.tasks import map_together
from ...errors import DecodeError, ModelError, NotSupported, TableOrmError, shown
from ...keys.bounds import Condition
from ...models.derivation import Derivation
from ...models.key import Storable
from ...models.kinds import kind_of
from ...models.manifest import CopyEntry, HeldEntry, ManifestEntry, manifest_of, manifest_text
from ...models.marker_rows import MoveState, is_marker, note_follower
from ...models.reserved import MANIFEST, WRITE_TOKENS
from ...models.schema import Schema, concrete
from ...models.write_tokens import new_token, newest_token, tokens_of, with_token
from ...protocol.filters import Op
from ...stores import Bounds, Operation, Row, RowAddress, RowQuery, Verb, row_keys
from ...writes.commit import commit
from ...writes.maintainer import EntryAndEffects, EntryRules, PagedRules, Source, entry_rules, touch_operation
from ...writes.plan import PlannedWrite
from ..index.schema import EntrySchema
from .audit import CopyHolderCheck, EventualCopyCheck, SourceCheck
from .schema import EmbedSchema, FillCopies, find_eventual

_LOG = make_logger("tableorm.outbox")

_PAGE = 200  # holders, between two notes of how far it is
_LEFT = "left "  # before two cursors as JSON, in place of one: the first page with holders that are left, and the next


class EventualEmbedMaintainer(EmbedSchema, AuditedMaintainer):
    """What entities embed of others that may be in other partitions. It takes the arguments of `EmbedSchema`."""

    entry_type: ClassVar[type[ManifestEntry]] = CopyEntry
    deferred = follows = movable = True
    rows_per_chunk = 1  # the decision row

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        schema, via = self.schema, self.via
        index = None if via is None else schema.derived.get(via)
        found = schema if index is None else index.row_schema
        if found is None or (via is not None and index is None) or getattr(found, "where", None) is not None:
            raise ModelError(
                f"{self.label}: via={via!r} is rejected: give an Index that is declared before it in the same class, "
                "of all entities"
            )
        self._index, self._places = index, found
        partition, row = found.templates()
        missing = [each for each in partition.fields if each not in self.sources.values()]
        if missing:
            raise ModelError(
                f"{self.label}: {via or f'the PartitionKey of {schema.name}'} has {{{missing[0]}}}, so the key of "
                f"the other entity does not tell in which partition its holders are; give via= an index with "
                f"partition_key={next(iter(self.key.values()))!r}"
            )
        held = {*partition.fields, *row.fields, *self.sources.values()}
        self._placing = frozenset(m.property for each in held for m in schema.fields[each].members)

    def resolve(self) -> tuple[Schema, dict[str, str]]:
        """Return the schema of the other model, and the properties, found anew. Raises ModelError."""
        target, properties = super().resolve()
        partition, row = target.templates()
        lost = [each for each in target.key_fields if each not in partition.full_fields | row.full_fields]
        if lost or any(each.periods is not None for each in (self.schema, target)):
            raise ModelError(
                f"{self.label}: {target.name} or {self.schema.name} has a table for each period, or a key that does "
                f"not hold {lost[0] if lost else 'its fields'} in full"
            )
        note_follower(target, self.label)
        target.held[self.stem] = HeldEntry(self.schema.table_name(), tuple(sorted(properties.values())))
        return target, properties

    # What writes do

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> CopyEntry | None:
        """Return what the manifest of an entity with these fields says of it, but for the version."""
        keys = self.keys(values)
        return None if keys is None else CopyEntry(*keys, self.target[0].table_name())

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Take the copies of another entity, if the entity refers to another one now."""
        entry = self.due_entry(source)
        if entry == before:
            return before, []
        return self.rebuild(before, source)

    def rebuild(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Take the copies in any case."""
        entry = self.due_entry(source)
        mark = source.write.change.mark
        if mark is not None and mark.state is MoveState.TENTATIVE:
            return entry, []  # they are taken when the move is confirmed
        at = RowAddress.of(entry) if isinstance(entry, CopyEntry) else None
        source.fills.append(_FillEventually(source.row_key, at, self))
        return entry, []

    def leaves_work(self, before: ManifestEntry | None, after: ManifestEntry | None, source: Source) -> bool:
        """Return whether the source's search for holders could miss this one while it is being written."""
        return after is not None and (before != after or not self._placing.isdisjoint(source.changed))

    # What is done afterwards

    async def reconcile(
        self, db: Connection, source: RowAddress, entries: Sequence[ManifestEntry], inserted: Row | None = None
    ) -> None:
        """Update an entity's copies from its source. Takes and raises what `Maintainer.reconcile` does."""
        await self.correct(db, source)

    async def correct(self, db: Connection, holder: RowAddress) -> None:
        """
        Update an entity's copies from its source.

        Raises:
            LostRace: Others have written it again and again.
            NotSupported: A newer program has written it: leave it to one.
            TableOrmError: It cannot be written, or the store did not answer.
        """
        async for _ in Attempts(db, races=f"{self.label}: others wrote {holder} first"):
            stored = await read_row(db, holder, name=self.label)
            noted = manifest_of(stored).get(self.name)
            if stored is None or is_marker(stored) or not isinstance(noted, CopyEntry):
                return
            if await self._try_to_correct(db, holder, stored, noted):
                return

    async def _try_to_correct(self, db: Connection, holder: RowAddress, stored: Row, noted: CopyEntry) -> bool:
        resolved = self._kinds.resolve(stored)
        if resolved is None:
            return True
        schema, version = resolved
        if version > schema.version:
            raise NotSupported(f"{self.label}: {holder} has version {version}; leave it to a newer program")
        if version < schema.version:
            try:
                await commit(db, (rebuild_write(self._kinds, stored, ()),))
            except TableOrmError as error:
                if not is_race(error):
                    raise
            return False
        if not self._is_told(schema, stored, noted):
            return True
        # After the holder: what the source says is then newer than its ETag.
        source = await self.read_source(db, RowAddress.of(noted))
        # Of a source that is gone each look is a version of its own.
        token = new_token() if source is None else newest_token(source)
        copies = self.copies(source)
        if token == noted.version and all(stored.get(name) == value for name, value in copies.items()):
            return True
        self.check_copies(source)
        entries = {**manifest_of(stored), self.name: structs.replace(noted, version=token)}
        row = {name: value for name, value in {**stored, **copies}.items() if value is not None}
        row |= {MANIFEST: manifest_text(entries), WRITE_TOKENS: with_token(tokens_of(stored), new_token())}
        etag = row.pop("odata.etag")
        row.pop("Timestamp", None)
        replaced = Operation(Verb.REPLACE, row, etag)
        return await write_as_read(db, holder.table, [replaced], name=self.label, what=f"the copies of {self.label}")

    async def read_source(self, db: Connection, at: RowAddress) -> Row | None:
        """Return the row of a source; None if there is none, or a row of another kind has its key."""
        row = await read_row(db, at, name=self.target[0].name)
        return row if row is not None and self.is_target(row) else None

    def _is_told(self, schema: Schema, stored: Row, noted: CopyEntry) -> bool:
        """Return whether a holder's fields agree with its manifest, which may be forged. Audits report it if not."""
        with suppress(TableOrmError):
            values = schema.decode_part(stored.copy(), frozenset(self.sources.values())).__dict__
            return self.entry(values, "", "") == noted
        return False

    async def find(
        self, db: Connection, source: RowAddress, cursor: str | None
    ) -> tuple[Sequence[RowAddress], str | None]:
        """
        Return a page of the entities that may hold copies of a source, and where the next one begins.

        Raises:
            NotSupported: The index is not complete.
        """
        declared = None if self._index is None or self._index.building is False else self._index.declaration
        if declared is not None and await find_unreadable(db, [declared]):
            raise not_readable(db, declared)
        key = self.target[0].parse_keys(source.partition_key, source.row_key)
        values = {mine: key[theirs] for theirs, mine in self.sources.items()}
        partition, row = self._places.templates()
        within = row.bounds(Condition(name, Op.EQ, value) for name, value in values.items()).bounds
        table = self._places.table_name()
        query = RowQuery(Bounds.only(partition.format(values)), within or Bounds())
        page = await db.read_page(f"query of {self.label}", table, query, _PAGE, cursor, model=self.label)
        own, kinds = self.schema.table_name(), (self.schema.kind, getattr(self._places, "kind", None))
        entries, found = self._places if isinstance(self._places, EntrySchema) else None, list[RowAddress]()
        for each in page.rows:
            if (kind_of(each) or self.schema.kind) not in kinds:
                continue
            with suppress(DecodeError):  # an entry that names no entity: audits tell
                keys = row_keys(each) if entries is None else entries.owner_keys(each)
                holder = RowAddress(own, *keys)
                if is_place(holder):
                    found.append(holder)
        return found, page.continuation

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the check of the copies."""
        return (EventualCopyCheck(context, self),) if self.schema in context.kinds.schemas else ()


class _FillEventually(FillCopies, frozen=True):
    """The copies that an entity has to hold of another one of another partition."""

    embed: EventualEmbedMaintainer

    async def fetch(self, db: Connection) -> Row | None:
        """Return the other entity, whose manifest says from now on that others may hold copies of it."""
        assert isinstance(self.source, RowAddress)
        schema, stem = self.embed.target[0], self.embed.stem
        async for _ in Attempts(db, races=f"{self.embed.label}: others wrote {self.source} first"):
            row = await self.embed.read_source(db, self.source)
            if row is None or manifest_of(row).get(stem) == schema.held[stem]:
                return row
            noted = {MANIFEST: manifest_text({**manifest_of(row), stem: schema.held[stem]})}
            merge = touch_operation(row, new_token(), noted)
            await write_as_read(db, self.source.table, [merge], name=schema.name, what=f"{self.source}")
        raise AssertionError

    def apply_to(self, write: PlannedWrite, source: Row | None) -> PlannedWrite:
        """Return the write with the copies, and their version. Raises what `FillCopies.apply_to` does."""
        write = super().apply_to(write, source)
        entries = manifest_of(write.after)
        noted = entries.get(self.embed.name)
        if source is None or not isinstance(noted, CopyEntry):
            return write
        entries[self.embed.name] = structs.replace(noted, version=newest_token(source))
        return write.with_members({MANIFEST: manifest_text(entries)})


@entry_rules(CopyEntry)
class _CopyRules(EntryRules[CopyEntry]):
    """Nothing is undone: the source does not know its holders."""

    async def remove(self, db: Connection, source: RowAddress, name: str, entries: Sequence[CopyEntry]) -> None:
        """Do nothing: the declaration is gone, and with it the fields."""


@entry_rules(HeldEntry)
class _HeldRules(PagedRules[HeldEntry]):
    """What follows a write of the source is done by pages."""

    def follow(self, name: str, entry: HeldEntry, source: Source) -> EntryAndEffects:
        """Keep the entry, as a program that declares the copies would write it."""
        schema = source.write.change.schema
        return entry if schema is None else schema.held.get(name, entry), []

    def leaves_work(self, entry: HeldEntry, source: Source) -> bool:
        """Return whether a write changes what others copy."""
        return source.upgraded or not source.changed.isdisjoint(entry.properties)

    async def do_page(
        self, db: Connection, source: RowAddress, name: str, entry: HeldEntry, cursor: str | None
    ) -> str | None:
        """
        Update the copies of one page of holders. Takes, returns and raises what `PagedRules.do_page` does.

        Holders that a newer program has written hold up no others. When all other pages are done, the first one that
        has such holders is done again: then it raises NotSupported, or a newer program goes on from there.
        """
        embed = find_eventual(source.table, name, entry.table)
        if not isinstance(embed, EventualEmbedMaintainer):
            raise NotSupported(
                f"entities of table {entry.table} hold copies of {source} by {shown(name)}, which this program does "
                "not declare; leave it to a program that does, or import its model"
            )
        first: str | None = None  # the first page with such holders
        some_left = cursor is not None and cursor.startswith(_LEFT)
        if cursor is not None and some_left:
            first, cursor = msgspec.json.decode(cursor.removeprefix(_LEFT), type=tuple[str | None, str | None])
        again = some_left and cursor is None
        if again:
            cursor, some_left = first, False
        holders, following = await embed.find(db, source, cursor)
        newer = list[NotSupported]()

        async def correct(holder: RowAddress) -> None:
            try:
                await embed.correct(db, holder)
            except NotSupported as error:
                newer.append(error)
            except DecodeError as error:  # the others get theirs all the same
                _LOG.warning("the copies of %s by %s are left to audits: %s", holder, embed.label, error)

        await map_together(correct, list(dict.fromkeys(holders)))
        if newer and again:
            raise newer[0]
        if not newer and not some_left:
            return following
        return _LEFT + msgspec.json.encode((first if some_left else cursor, following)).decode()


class Embedded(Derivation):
    """
    Copies of fields of another entity of the same partition, such as the name and address of a department's manager.
    Declared in the class that holds the copies.

        manager = Embedded(
            lambda: Employee,
            {"manager_name": "name"},
            department="{name}",
            id="{manager_id}",
        )

    When `manager_id` is set, the copies are read from that employee; when the employee changes, the copies change in
    the same transaction. An employee that is embedded in another entity can't be deleted.

    Args:
        model: The other model, or a function that returns it. Its class needs `tracked=True`, unless it has indexes.
        fields: For each field of this model that holds a copy, the field of the other model. Declare the copies with
            `| None` and `field(maintained=True)`.
        consistency: "eventual" if the other entity is in another partition or table: the copies follow after a short
            time.
        via: The index of this class that finds the entities with copies of another one; None if their own keys
            determine them. Only with `consistency="eventual"`.
        key: The key fields of the other entity: "{field}" of this model, or a literal. If a field is None, nothing is
            embedded.
    """

    _instead = "; the copies are in fields of their own"

    def __init__(
        self,
        model: Callable[[], type[Storable]] | type[Storable],
        fields: Mapping[str, str],
        /,
        *,
        consistency: Literal["eventual"] | None = None,
        via: Derivation | None = None,
        **key: str,
    ) -> None:
        given: object = fields
        if not isinstance(given, Mapping) or not fields or not key or not all(isinstance(t, str) for t in key.values()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(
                'Embedded(...) needs fields and a key, as in Embedded(lambda: Employee, {"manager_name": "name"}, '
                'department="{name}", id="{manager_id}")'
            )
        if consistency not in (None, "eventual"):
            raise ModelError(f"Embedded(consistency={consistency!r}) is unknown; use 'eventual', or leave it out")
        if via is not None and (consistency is None or not isinstance(via, Derivation)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(
                f"Embedded(via={via!r}) is rejected: give an Index of this class, by which the holders of an entity "
                "are found, with consistency='eventual'"
            )
        super().__init__()
        self.model, self.fields, self.key = model, dict(fields), dict(key)
        self.consistency, self.via = consistency, via

    def _bind(self, schema: Schema, annotations: Mapping[str, Any]) -> EmbedSchema:
        """Return what entities of a model embed."""
        for other in schema.derived_as(EmbedSchema).values():
            twice = next((field for field in self.fields if field in other.fields), None)
            if twice is not None:
                raise ModelError(
                    f"{schema.name}.{twice} would hold copies by two Embedded(...); give each fields of its own"
                )
        via = None if self.via is None else self.via.name
        make = EmbedMaintainer if self.consistency is None else EventualEmbedMaintainer
        return make(self.name, schema, self.key, model=self.model, fields=self.fields, via=via)


class EmbedMaintainer(EmbedSchema, AuditedMaintainer):
    """What entities of a model embed, which the audit checks."""

    buildable = False

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the checks of the copies, and of what the other entities say of their holders."""
        kinds = {each.kind for each in concrete(self.target[0])}
        sources = [each for each in context.kinds.schemas if each.kind in kinds]
        return [CopyHolderCheck(context, self), *(SourceCheck(context, each, self) for each in sources)]
