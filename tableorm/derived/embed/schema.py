"""
The schema of an `Embedded`: which fields of which other entity an entity holds copies of, and what writes do.

An entity takes the fields of another one, and the other one's manifest says so.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast
from weakref import WeakSet

import attrs

from ...errors import Conflict, DecodeError, ModelError, NotSupported, ReferenceNotFound, shown
from ...models.key import Storable
from ...models.manifest import HolderEntry, ManifestEntry, SourceEntry
from ...models.reserved import ENTITY_TYPE, is_reserved_property
from ...models.schema import MISFITS, Schema, concrete
from ...protocol.codes import Code
from ...protocol.edm import ANNOTATION
from ...stores import Row, row_keys
from ...writes.maintainer import EntryAndEffects, EntryRules, Fill, Source, entry_rules, undo_entry
from ...writes.plan import Change, Effect, PlannedWrite
from ..entity_patch import EntityPatch
from ..reference import ReferenceTarget, find_target

_EMBEDS: "WeakSet[EmbedSchema]" = WeakSet()
"""All that are declared: an entity must find the models of those that hold copies of it."""


def find_embed(source: Schema, entry_name: str) -> "EmbedSchema | None":
    """
    Return the declaration that a `HolderEntry` belongs to; None if this program does not declare it.

    Args:
        source: The model of the entity that has the entry.
        entry_name: The name of the entry.
    """
    stem = entry_name.partition(":")[0]
    alike = [each for each in _EMBEDS if each.stem == stem and each.schema.table == source.table and not each.deferred]
    return next((each for each in alike if source in concrete(each.target[0])), None)


def find_eventual(source_table: str, stem: str, holders_table: str) -> "EmbedSchema | None":
    """Return the declaration of copies across partitions that a `HeldEntry` belongs to; None if there is none."""
    alike = [each for each in _EMBEDS if each.deferred and each.stem == stem and each.schema.table == holders_table]
    return next((each for each in alike if each.target[0].table == source_table), None)


class EmbedSchema(ReferenceTarget[dict[str, str]]):
    """
    An `Embedded` of a model. Its target is the other model, with the properties there by property of this model.

    Args:
        name: Name of the declaration.
        schema: The schema of the model that holds the copies.
        key: The key fields of the other entity: "{field}" of this model, or text.
        model: The other model, or a function that returns it.
        fields: By field of this model the field of the other one that it is a copy of.
        via: Name of the index that finds the holders of a source in other partitions; None for their own keys.
    """

    entry_type: ClassVar[type[ManifestEntry]] = SourceEntry

    def __init__(
        self,
        name: str,
        schema: Schema,
        key: Mapping[str, str],
        *,
        model: Callable[[], type[Storable]] | type[Storable],
        fields: Mapping[str, str],
        via: str | None = None,
    ) -> None:
        super().__init__(name, schema, key)
        self._model, self.fields, self.via = model, fields, via
        _EMBEDS.add(self)
        for field in fields:
            info = schema.fields.get(field)
            if info is None or not info.maintained or not info.optional:
                raise ModelError(
                    f"{self.label}: {field!r} cannot hold a copy; declare {field}: Mapped[... | None] = "
                    "field(default=None, maintained=True)"
                )
            if getattr(attrs.fields(cast("Any", schema.model)), field).validator is not None:
                raise ModelError(
                    f"{self.label}: {field!r} has a validator, and takes any value that the other entity has; give the "
                    "validator to the field that is copied"
                )

    def describe(self) -> dict[str, Any]:
        """Return what was declared, as JSON has it. Raises ModelError if the other model is not declared."""
        target, properties = self.target
        found = {"pattern": "Embedded", "of": target.kind, "fields": properties, "key": self.key}
        return found | ({"consistency": "eventual", "via": self.via} if self.deferred else {})

    def resolve(self) -> tuple[Schema, dict[str, str]]:
        """Return the schema of the other model, and the properties, found anew. Raises ModelError."""
        model: Any = find_target(self.label, self._model)
        schema: Any = getattr(model, "__schema__", None)
        if not isinstance(schema, Schema):
            raise ModelError(f"{self.label}: {model!r} is not a model; give one, as in Embedded(lambda: Employee, ...)")
        if not schema.tracked:
            raise ModelError(
                f"{self.label}: {schema.name} must know that others hold copies of it; declare class "
                f"{schema.name}(Entity, ..., tracked=True)"
            )
        self.check_key(schema)
        schema.refuse_unseen([*self.fields.values()], self.label, "it would copy")
        properties: dict[str, str] = {}
        for mine, theirs in self.fields.items():
            own, info = self.schema.fields[mine], schema.fields.get(theirs)
            if info is not None and info.shape is not None:
                raise ModelError(f"{self.label}: {theirs!r} of {schema.name} {info.many}")
            if info is not None and info.member.property in schema.unasked:  # of a wide model
                raise ModelError(f"{self.label}: {theirs!r} is kept from the store by a row stage of {schema.name}")
            if own.member.property in self.schema.unasked:
                raise ModelError(f"{self.label}: {mine!r} is kept from the store by a row stage of {self.schema.name}")
            if info is None or not info.stored or info.maintained or info.type.name != own.type.name:
                raise ModelError(
                    f"{self.label}: {mine!r} cannot be a copy of {theirs!r}: that is not a field of "
                    f"{schema.name} that it stores itself, of the same type"
                )
            properties[own.member.property] = info.member.property
        return schema, properties

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> ManifestEntry | None:
        """Return what the manifest of an entity with these fields says of it. Raises NotSupported."""
        address = self.address(values, partition_key)
        return None if address is None else SourceEntry(address, self.holder_name(row_key))

    @property
    def stem(self) -> str:
        """How names of entries begin in manifests of other entities: by the kind, which stays if a class is renamed."""
        return f"{self.schema.kind}.{self.name}"

    def holder_name(self, row_key: str) -> str:
        """Return the name under which the other entity's manifest says that the one with this RowKey holds copies."""
        return f"{self.stem}:{row_key}"

    def holder_entry(self, row_key: str) -> HolderEntry:
        """Return what the other entity's manifest says then."""
        return HolderEntry(row_key, {theirs: own for own, theirs in self.target[1].items()})

    def copies(self, source: Row | None) -> Row:
        """Return the members that hold copies of the other entity; None for each that it does not have."""
        return copies_of(self.holder_entry("").properties, source or {})

    def check_copies(self, source: Row | None) -> None:
        """
        Refuse values of the other entity of which no copies can be held.

        Raises:
            DecodeError: One is of a type that the copy cannot have: nobody could read the holder any more.
        """
        for mine, theirs in self.target[1].items():
            value = None if source is None else source.get(theirs)
            if source is None or value is None:
                continue
            try:
                self.schema.by_property[mine].type.decode(value, source.get(theirs + ANNOTATION))
            except MISFITS as error:
                problem = f"{error}, and {self.label} would hold a copy of its {theirs}; correct that first"
                raise DecodeError(problem, str(source.get(ENTITY_TYPE)), row_keys(source)) from None

    def own_rows(self, values: Mapping[str, Any] | None) -> int:
        """Return 1 for the other entity, unless the entity goes."""
        return int(values is not None)

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Take the copies of another entity, if the entity refers to another one now."""
        entry = self.due_entry(source)
        # An upgrade may have renamed what holds the copies, which the manifest of the other entity names.
        if entry == before and not (entry is not None and source.upgraded):
            return entry, []
        effects: list[Effect] = [] if before is None else undo_entry(self.name, before, source.write)
        return entry, [*effects, *self._fill(entry, source)]

    def rebuild(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Take the copies in any case, and let the other entity's manifest say so."""
        entry = self.due_entry(source)
        effects = self._fill(entry, source)
        if before is not None and before != entry:
            effects += undo_entry(self.name, before, source.write, checked=True)
        return entry, effects

    def _fill(self, entry: ManifestEntry | None, source: Source) -> list[Effect]:
        target = self.target[0]
        address = entry.row_key if isinstance(entry, SourceEntry) else None
        source.fills.append(FillCopies(source.row_key, address, self))
        if not isinstance(entry, SourceEntry):
            return []
        needed = f"{self.label} is {target.name} {shown(entry.row_key)} of this partition, which does not exist"
        entries = {entry.holder_name: self.holder_entry(source.row_key)}
        return [EntityPatch(row_key=entry.row_key, origin=source.write, entries=entries, needed=needed, target=target)]


class FillCopies(Fill, frozen=True):
    """
    The copies that an entity has to hold of another one.

    Args:
        embed: The declaration.
    """

    embed: EmbedSchema

    def apply_to(self, write: PlannedWrite, source: Row | None) -> PlannedWrite:
        """
        Return the write with the copies; without any if the entity refers to none.

        Raises:
            ReferenceNotFound: There is no other entity.
            DecodeError: It has a value of a type that the copy cannot have: nobody could read the entity any more.
        """
        if source is None and self.source is not None:
            here = isinstance(self.source, str)
            at = write.change.address.beside(self.source) if isinstance(self.source, str) else self.source
            named = f"{shown(self.source)} of this partition" if here else at
            raise ReferenceNotFound(
                f"{write.origin}: {self.embed.label} refers to {named}, which does not exist",
                Code.RESOURCE_NOT_FOUND,
                (at.partition_key, at.row_key),
            )
        self.embed.check_copies(source)
        return EntityPatch(row_key=self.row_key, origin=write, members=self.embed.copies(source)).apply_to(write)


def copies_of(properties: Mapping[str, str], row: Row) -> Row:
    """
    Return the members that hold copies of a row; None for what the row does not have.

    Args:
        properties: By property of the row the property that is its copy.
        row: The row.
    """
    return {copy + end: row.get(name + end) for name, copy in properties.items() for end in ("", ANNOTATION)}


@entry_rules(SourceEntry)
class _SourceRules(EntryRules[SourceEntry]):
    def undo(self, name: str, entry: SourceEntry, write: PlannedWrite, *, checked: bool) -> list[Effect]:
        """Let the other entity's manifest forget this holder, and no other one."""
        if entry.holder_name.partition(":")[2] != write.row_key:
            return []
        return [EntityPatch(row_key=entry.row_key, origin=write, entries={entry.holder_name: None})]


@entry_rules(HolderEntry)
class _HolderRules(EntryRules[HolderEntry]):
    """Only the holder takes its entry back, and until then a delete is rejected."""

    def follow(self, name: str, entry: HolderEntry, source: Source) -> EntryAndEffects:
        """
        Change the copies of properties that change, if the manifest of the holder says that it has them.

        Which properties those are the declaration says: whoever may write the entity can give its manifest any.
        """
        schema = source.write.change.schema
        assert schema is not None
        held, holder, properties = SourceEntry(source.row_key, name), entry.row_key, entry.properties
        renamed = source.upgraded and not all(mine in schema.by_property for mine in properties)
        changed = {mine: copy for mine, copy in properties.items() if mine in source.changed}
        if not (renamed or changed):
            return entry, []
        embed = find_embed(schema, name)
        if embed is not None:
            due = embed.holder_entry(holder)
            if due == entry:
                copies = {held: copies_of(changed, source.row)}
                return entry, [EntityPatch(row_key=holder, origin=source.write, copies=copies)]
            # The holder may be of an older version, and is upgraded then.
            copies = {held: copies_of(due.properties, source.row)}
            return due, [EntityPatch(row_key=holder, origin=source.write, copies=copies, target=embed.schema)]
        stored = source.write.origin.stored
        if renamed or stored is None:
            raise NotSupported(
                f"{source.write.change}: the entity {shown(holder)} of this partition holds copies of it "
                f"({name.partition(':')[0][:80]}), and what they are called after the upgrade to version "
                f"{schema.version} only that one's model says; import it, with Embedded as it is now"
            )
        unreserved = {mine: copy for mine, copy in changed.items() if not is_reserved_property(copy)}
        copies, replaced = ({held: copies_of(unreserved, row)} for row in (source.row, stored.row))
        return entry, [EntityPatch(row_key=holder, origin=source.write, copies=copies, replaced=replaced)]

    def refuse_delete(self, name: str, entry: HolderEntry, change: Change) -> None:
        """Refuse to delete an entity that others hold copies of."""
        raise Conflict(
            f"{change}: the entity {shown(entry.row_key)} of this partition holds copies of it "
            f"({name.partition(':')[0][:80]}); let that refer to another one first, or in the same transaction",
            None,
            change.subject,
        )
