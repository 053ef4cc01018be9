"""
Index lists: the entities that have a value, found by a row, or a blob, that lists their keys.

Lists of other partitions, and those in blobs, follow their entities some time later. Such a list may name entities that
are in it no more; what the manifest of an entity says counts.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, TypeVar, cast, overload

from ...audit.check import AuditedMaintainer, Check
from ...audit.context import AuditContext
from ...audit.report import Damage
from ...connection.blobs import require_blobs
from ...connection.connection import TURN, Connection
from ...connection.tasks import map_together
from ...errors import DecodeError, ModelError, NotSupported, TemplateError, shown
from ...keys.parse import parse_template
from ...keys.template import Template
from ...models.derivation import Derivation, DerivationOf, check_building, check_placement
from ...models.key import Storable
from ...models.manifest import BlobListEntry, ListEntry, ManifestEntry, PlacedListEntry, folder_of_lists, manifest_of
from ...models.placement import refuse_own_keys
from ...models.schema import Schema
from ...protocol.limits import MAX_BLOB_NAME
from ...stores import Row, RowAddress, row_keys
from ...writes.maintainer import EntryAndEffects, EntryRules, Source, entry_rules, load_known, undo_entry
from ...writes.plan import Effect
from ..placed_check import ReadRow
from .audit import EventualListCheck, ListCheck
from .blobs import BlobList, check_room, lists_of, members_of
from .following import FollowingList, RowList, keys_of_members
from .rows import MOST_BYTES, ListEffect, ListSchema


class EventualListMaintainer(ListSchema, AuditedMaintainer):
    """An index list of a model, whose rows are in other partitions."""

    entry_type: ClassVar[type[ManifestEntry]] = PlacedListEntry
    deferred = True
    shared_rows = 0
    rows_per_chunk = 1  # the decision row
    _check: ClassVar[type[EventualListCheck]] = EventualListCheck

    def _refuse_own_keys(self) -> None:
        refuse_own_keys(self.label, self.primary, self.table, self.list_partition, self._row_template())

    # Reading

    def members(self, row: Row) -> Iterable[tuple[str, str]]:
        """Return the keys of the entities that a row of a list names. Raises DecodeError."""
        return keys_of_members(row, self.schema.table_name())

    def place(self, partition_key: str, list_key: str) -> PlacedListEntry:
        """Return the entry of the entities that are in a list."""
        return PlacedListEntry(partition_key, list_key, str(self.table), self.kind)

    # Writing

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Note in the manifest which list the entity is in."""
        return self.due_entry(source), []

    async def reconcile(
        self, db: Connection, source: RowAddress, entries: Sequence[ManifestEntry], inserted: Row | None = None
    ) -> None:
        """Put the entity into its list, and take it out of others. Takes and raises as `Maintainer.reconcile` does."""
        places = [entry for entry in entries if isinstance(entry, PlacedListEntry) and type(entry) is self.entry_type]

        async def correct(place: PlacedListEntry) -> None:
            which = _list_at(db, place, self._divide_at)
            await which.correct(source, self.name, lambda row: self._is_due(place, row))

        await map_together(correct, places)

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
        return (self._check(context, self),)


def _list_at(db: Connection, place: PlacedListEntry, divide_at: int = MOST_BYTES) -> FollowingList[Any]:
    """Return the list that an entry names: in a blob, or in rows, which are divided at so many bytes."""
    return BlobList(db, place) if isinstance(place, BlobListEntry) else RowList(db, place, divide_at)


@entry_rules(BlobListEntry)
@entry_rules(PlacedListEntry)
class _PlacedListRules(EntryRules[PlacedListEntry]):
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

        await map_together(lambda place: _list_at(db, place).correct(source, name, is_due), entries)


_MOST_KEPT = 100_000
"""Members of lists that a check keeps, unless one list has more."""


class BlobListCheck(EventualListCheck):
    """
    The check of an index list in blobs: of each entity as of rows, and of each blob once all entities are right.

    It keeps lists that it has read, which may be large, and believes them if they say what is due.

    Args:
        context: The rows of the table.
        maintainer: That of the declaration.
    """

    looks_first = False  # all entities of a page would ask for their lists, which may be large, at the same time

    @cached_property
    def _kept(self) -> dict[PlacedListEntry, set[tuple[str, str]]]:
        """The members of the lists that were read last."""
        return {}

    def owns(self, kind: str) -> bool:
        """Return False: such lists have no rows."""
        return False

    async def _names(self, source: RowAddress, place: PlacedListEntry, read: ReadRow, *, due: bool) -> bool:
        keys, kept = (source.partition_key, source.row_key), self._kept
        if place not in kept or (keys in kept[place]) is not due:
            members = set[tuple[str, str]]()
            async with aclosing(members_of(self.context.db, cast("BlobListEntry", place))) as parts:
                async for some in parts:
                    members.update(some)
            kept.pop(place, None)
            while kept and sum(map(len, kept.values())) + len(members) > _MOST_KEPT:
                del kept[next(iter(kept))]
            kept[place] = members
        return keys in kept[place]

    async def verify_lists(self) -> None:
        """Verify that the entities that each list names are in it; otherwise take them out, if that is repaired."""
        context = self.context
        async with aclosing(lists_of(context.db, self.schema.table_name(), self.kind)) as places:
            async for place in places:
                context.counts.derived_rows += 1
                try:
                    parts = [some async for some in members_of(context.db, place)]  # all: it may be damaged at its end
                except DecodeError as error:
                    at = context.at(place.partition_key, place.list_key)
                    self.record(at, Damage.FOREIGN, str(error))
                    continue
                while parts:
                    some = [RowAddress(place.table, *keys) for keys in parts.pop()]
                    for start in range(0, len(some), TURN):
                        await map_together(partial(self._verify_member, place), some[start : start + TURN])


class BlobListMaintainer(EventualListMaintainer):
    """An index list of a model, of which each list lies in a blob."""

    entry_type: ClassVar[type[ManifestEntry]] = BlobListEntry
    in_blobs = limited = True
    _check = BlobListCheck

    def _refuse_own_keys(self) -> None:
        """Refuse nothing: no blob has the keys of a row."""

    def row_templates(self) -> Sequence[Template]:
        """Return the template of the lists' keys."""
        return (self.row,)

    def place(self, partition_key: str, list_key: str) -> BlobListEntry:
        """Return the entry of the entities that are in a list. Raises TemplateError if its keys are too long."""
        place = BlobListEntry(partition_key, list_key, self.schema.table_name(), self.kind)
        if len(place.blob_name) > MAX_BLOB_NAME:
            raise TemplateError(
                f"makes the list {list_key[:40]!r}..., whose blob would have a name of {len(place.blob_name)} "
                f"characters, and {MAX_BLOB_NAME} are allowed; shorten {', '.join(sorted(self.key_names))}",
                self.label,
                "row_key",
                self.row.text,
                fields=sorted(self.key_names),
            )
        return place

    def members_of(self, db: Connection, partition_key: str, list_key: str) -> AsyncGenerator[list[tuple[str, str]]]:
        """Yield the keys of the entities that a list names, some at a time. Raises what reading it raises."""
        return members_of(db, self.place(partition_key, list_key))

    async def check_room(self, db: Connection, entry: ManifestEntry | None) -> None:
        """Refuse a write that would put an entity into a list that is full, or if there are no blobs."""
        if entry is None:
            await require_blobs(db, f"{self.label} keeps its lists in blobs")
        else:
            await check_room(db, cast("BlobListEntry", entry), self.label)

    async def audit_blobs(self, context: AuditContext) -> None:
        """Verify that the entities that lists name are in these."""
        await BlobListCheck(context, self).verify_lists()


E = TypeVar("E", bound=Storable)


_DIVIDE_AT = 64 * 1024


class ListOf(DerivationOf[E]):
    """An index list of a model, such as `Employee.by_last_name`, to be passed to `db.lookup`."""


class IndexList(Derivation):
    """
    An index that lists, in one row, the keys of all entities that have a value. Declared in the body of the class.

        class Employee(Entity, ...):
            by_last_name = IndexList(row_key="lastname_{last_name}")

        jones = await db.lookup(
            Employee.by_last_name, department="Sales", last_name="Jones"
        )

    Every insert also reads and writes the row of its list, and all writers of a value compete for it. For values that
    many entities have, an `Index`, with one row per entity, is better.

    Args:
        row_key: The template of the lists' keys. Its literal text must begin differently from the model's and from
            other indexes'.
        partition_key: The template of the lists' PartitionKeys; None for those of their entities.
        table: The name of the lists' table; None for that of the model.
        blob: Whether each list is kept in a blob of up to 10 MiB instead of in rows.
        consistency: "eventual" for lists in other partitions, another table, or blobs, which follow their entities
            after a short time; None otherwise.
        where: A function of the entity; only entities for which it returns true are listed.
        divide_at: The size in bytes at which a list is divided into further rows, up to 512 KiB. Each write reads and
            writes one row, so smaller rows make it cheaper; one query reads all rows of a list.
        building: Whether the list is only written, and not read yet because it lacks older entities. None leaves that
            to the store, which records it in `db.create_tables` and `db.build_index`; True and False don't ask the
            store.

    Raises:
        ModelError: An argument is wrong; or, when the class is created, the template does not fit the model.
    """

    _on_class = ListOf

    def __init__(
        self,
        *,
        row_key: str,
        partition_key: str | None = None,
        table: str | None = None,
        blob: bool = False,
        consistency: Literal["eventual"] | None = None,
        where: Callable[[Any], bool] | None = None,
        divide_at: int = _DIVIDE_AT,
        building: bool | None = None,
    ) -> None:
        if not isinstance(row_key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(
                f"IndexList(row_key={row_key!r}) is rejected: give a template, as 'lastname_{{last_name}}'"
            )
        if type(divide_at) is not int or not 2048 <= divide_at <= 512 * 1024:
            raise ModelError(f"IndexList(divide_at={divide_at!r}) is rejected: give bytes from 2048 to {512 * 1024}")
        super().__init__(where)
        if type(blob) is not bool:
            raise ModelError(f"IndexList(blob={blob!r}) is rejected: give True or False")
        if blob and (table is not None or divide_at != _DIVIDE_AT):
            given = "divide_at" if table is None else "table"
            raise ModelError(f"IndexList(blob=True, {given}=...) is rejected: a blob has no rows; leave {given} out")
        check_placement("IndexList", partition_key=partition_key, table=table, consistency=consistency, blob=blob)
        check_building("IndexList", building)
        self.row_key, self.divide_at, self.building = row_key, divide_at, building
        self.partition_key, self.table = partition_key, table
        self._pattern = BlobListMaintainer if blob else EventualListMaintainer if consistency else ListMaintainer

    def _bind(self, schema: Schema, annotations: Mapping[str, Any]) -> AuditedMaintainer:
        """Return the index list of a model."""
        label, known, partition = f"{schema.name}.{self.name}", dict(annotations), None
        row = parse_template(self.row_key, label, "row_key", known, schema.kind)
        if self.partition_key is not None:
            partition = parse_template(self.partition_key, label, "partition_key", known, schema.kind)
        table = self.table
        if self._pattern is BlobListMaintainer:
            table = folder_of_lists(schema.table_text(), f"{schema.kind}#{self.name}")
        return self._pattern(
            self.name,
            schema,
            row,
            where=self.where,
            divide_at=self.divide_at,
            table=table,
            partition=partition,
            building=self.building,
        )

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[E]) -> ListOf[E]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> NoReturn: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Any: ...


class ListMaintainer(ListSchema, AuditedMaintainer):
    """An index list of a model, whose rows the writes of the entities keep right, and which the audit checks."""

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Let the entity leave a list and come into another one."""
        return self._move(before, source, checked=False)

    def rebuild(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """
        Put the entity into its list, also if the manifest says that it is there; take it out of another list that the
        manifest names.
        """
        return self._move(before, source, checked=True)

    def _move(self, before: ManifestEntry | None, source: Source, *, checked: bool) -> EntryAndEffects:
        entry = self.due_entry(source)
        effects: list[Effect] = []
        if before is not None and before != entry:
            effects += undo_entry(self.name, before, source.write, checked=checked)
        if isinstance(entry, ListEntry) and (entry != before or checked or source.write.change.verb == "rebuild"):
            adds = frozenset({source.row_key})
            effects.append(ListEffect(entry.list_key, "", source.write, self.kind, self._divide_at, adds=adds))
        return entry, effects

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the check of the list."""
        return (ListCheck(context, self),)
