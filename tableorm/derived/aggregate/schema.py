"""
The schema of a count or sum: which field of which other entity holds it, what an entity adds to it, and what writes do.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from ...connection.connection import Connection
from ...errors import ModelError, near, shown
from ...expressions import Field
from ...models.key import Storable
from ...models.manifest import AggregateEntry, ManifestEntry
from ...models.reserved import is_reserved_property
from ...models.schema import FieldInfo, Schema, concrete, relatives
from ...models.upgrades import stored_version
from ...protocol.edm import Edm
from ...stores import RowAddress
from ...writes.maintainer import EntryAndEffects, EntryRules, Source, entry_rules, is_proven, undo_entry
from ...writes.plan import Effect, PlannedWrite
from ..entity_patch import EntityPatch
from ..reference import ReferenceTarget, find_target

_ROOM = 8  # rows of counts that all writes of a transaction have in common


class AggregateSchema(ReferenceTarget[FieldInfo]):
    """
    A `Count` or `Sum` of a model, kept right by the writes of its entities.

    Args:
        name: Name of the declaration.
        schema: The schema of the model.
        key: The key fields of the entity that holds it: "{field}" of this model, or text.
        field: The field of the other model that holds it, or a function that returns that.
        of: Name of the field that is summed; None for a count.
        where: Takes the entity; only entities for which it is true count. None for all.
        create: Whether a missing entity that holds it is inserted.
    """

    entry_type: ClassVar[type[ManifestEntry]] = AggregateEntry
    movable = True
    rows_per_chunk = _ROOM

    def __init__(
        self,
        name: str,
        schema: Schema,
        key: Mapping[str, str],
        *,
        field: Callable[[], Field[int]] | Field[int],
        of: str | None,
        where: Callable[[Any], bool] | None,
        create: bool,
    ) -> None:
        super().__init__(name, schema, key)
        self._field, self.of, self._where, self.create = field, of, where, create
        if of is not None:
            info = schema.fields.get(of)
            if info is None:
                raise ModelError(
                    f"{self.label}: {schema.name} has no field {of!r} to sum; {near(str(of), schema.fields, 'field')}"
                )
            if info.shape is not None:
                raise ModelError(f"{self.label}: {of!r} {info.many}")
            if info.maintained or info.member.type.edm not in (Edm.INT32, Edm.INT64):
                raise ModelError(f"{self.label}: {of!r} is not a field of integers; only integers add up exactly")
            schema.refuse_unseen([of], self.label, "it sums")

    @property
    def counts_all(self) -> bool:
        """Whether it counts every entity of the model."""
        return self.of is None and self._where is None and not self.deferred

    def describe(self) -> dict[str, Any]:
        """Return what was declared, as JSON has it. Raises ModelError if the other model is not declared."""
        target, field = self.target
        found = {
            "pattern": "Count" if self.of is None else "Sum",
            "of": self.of,
            "in": f"{target.kind}.{field.member.property}",
            "key": self.key,
            "where": self._where is not None,
        }
        return found | ({"consistency": "eventual"} if self.deferred else {})

    def resolve(self) -> tuple[Schema, FieldInfo]:
        """Return the schema and the field that hold it, found anew. Raises ModelError."""
        field: Any = find_target(self.label, self._field)
        if not isinstance(field, Field):
            raise ModelError(
                f"{self.label}: {field!r} is not a field; give one, as in `lambda: Department.employee_count`"
            )
        schema: Schema = field.model.__schema__
        member = schema.by_path.get(field.name)
        info = None if member is None else schema.fields[member.field]
        if info is None or not info.maintained or info.optional or info.member.type.edm not in (Edm.INT32, Edm.INT64):
            raise ModelError(
                f"{self.label}: {schema.name}.{field.name} is not a maintained field of whole numbers; declare "
                f"{field.name}: Mapped[int] = field(default=0, maintained=True)"
            )
        self.check_key(schema)
        missing = [name for name, each in schema.fields.items() if each.required and name not in schema.key_holders]
        if self.create and (schema.abstract or missing):
            why = "is abstract" if schema.abstract else f"has no default for {missing[0]}"
            raise ModelError(
                f"{self.label}: create=True is rejected: {schema.name} {why}, so none can be made by its key"
            )
        return schema, info

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> ManifestEntry | None:
        """Return what an entity with these fields adds, and where. Raises NotSupported."""
        address, amount = self.address(values, partition_key), self.amount(values)
        if address is None or not amount:
            return None
        return AggregateEntry(address, {self.target[1].member.property: amount})

    def amount(self, values: Mapping[str, Any]) -> int:
        """Return what an entity with these fields adds to whatever it refers to."""
        if not self.schema.satisfies(self._where, values, self.label):
            return 0
        return 1 if self.of is None else int(values[self.of] or 0)

    def proves(self, entry: ManifestEntry, values: Mapping[str, Any], partition_key: str, row_key: str) -> bool:
        """Return whether it counts in the field that this declares, of the entity that these fields refer to."""
        current = self.current_entry(entry)
        if not isinstance(current, AggregateEntry) or [*current.amounts] != [self.target[1].member.property]:
            return False
        told = self.of is not None or set(current.amounts.values()) == {1}  # a sum may be over what was there before
        return told and self.address(values, partition_key) == current.row_key

    def current_entry(self, entry: ManifestEntry) -> ManifestEntry:
        """
        Return an entry with the name that the property has now: an upgrade of the entity that holds it may have renamed
        it since.
        """
        if not isinstance(entry, AggregateEntry) or len(entry.amounts) != 1:
            return entry
        schema, info = self.target
        stored, amount = next(iter(entry.amounts.items()))
        known = any(stored in each.by_property for each in concrete(schema))
        return entry if known else AggregateEntry(entry.row_key, {info.member.property: amount})

    def property_of(self, name: str) -> str | None:
        """
        Return the property of the other model that a subtotal is of, by the name that it was given: perhaps an upgrade
        has renamed it since. None if that is no maintained field, so that somebody has made it up.
        """
        target, info = self.target
        found = next((each for each in concrete(target) if name in each.by_property), None)
        if found is None:
            return info.member.property
        return name if found.fields[found.by_property[name].field].maintained else None

    def may_be_in(self, holder: RowAddress) -> bool:
        """Return whether the key of a row can be that of an entity that holds it."""
        pairs = [schema.templates() for schema in concrete(self.target[0])]
        return any(p.match(holder.partition_key) and r.match(holder.row_key) for p, r in pairs)

    async def copy(self, db: Connection, holder: RowAddress, subtotal: RowAddress) -> None:
        """
        Copy a subtotal to its total in another partition.

        Args:
            db: Where the rows are.
            holder: The entity that has the total.
            subtotal: The subtotal.

        Raises:
            ReferenceNotFound: There is no such entity, and something is counted in it.
            LostRace: Others have written it again and again.
            TableOrmError: It cannot be written, or the store did not answer.
        """
        raise NotImplementedError

    def make_holder(self, partition_key: str, row_key: str) -> Storable:
        """Return the entity that holds it, with defaults, to be inserted."""
        target = self.target[0]
        model: Any = target.model
        entity: Storable = model(**target.parse_keys(partition_key, row_key))
        return entity

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Take back what the entity has added, and add what it adds now."""
        entry, target = self.entry(source.values, source.partition_key, source.row_key), self.target[0]
        if entry == before or (before is not None and entry == self.current_entry(before)):
            return entry, []
        effects = [] if before is None else undo_entry(self.name, before, source.write)
        if isinstance(entry, AggregateEntry):
            address = entry.row_key
            needed = (
                f"{self.label} counts it in {target.name} {shown(address)} of this partition, which does not exist; "
                "insert that first"
            )
            make = partial(self.make_holder, source.partition_key, address)
            effects.append(
                EntityPatch(
                    row_key=address,
                    origin=source.write,
                    amounts=entry.amounts,
                    needed=needed,
                    create=make if self.create else None,
                    target=target,
                )
            )
        return entry, effects

    def rebuild(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """
        Return the right entry alone, unless counts are to be changed: whether the entity was counted nobody knows, and
        an audit sets the count afterwards, from all entities whose manifests say that they add to it.
        """
        if source.write.change.counts:
            return self.effects(before, source)
        return self.entry(source.values, source.partition_key, source.row_key), []


@entry_rules(AggregateEntry)
class _AggregateRules(EntryRules[AggregateEntry]):
    def undo(self, name: str, entry: AggregateEntry, write: PlannedWrite, *, checked: bool) -> list[Effect]:
        """
        Take back what the entity has added, if it is proven that it has: nothing in the other entity tells, which is
        read in any case.
        """
        schema, stored = write.change.schema, write.origin.stored
        amounts, target = entry.amounts, None
        if schema is not None and stored is not None:
            declared = _declared_for(entry, name, schema)
            if declared is None or not (is_of_older_version(write) or is_proven(entry, write)):
                return []
            target, info = declared.target
            amounts = {info.member.property: next(iter(amounts.values()))}
        # A bag has no model that tells.
        taken = {each: -amount for each, amount in amounts.items() if not is_reserved_property(each)}
        return [EntityPatch(row_key=entry.row_key, origin=write, amounts=taken, target=target)]


def is_of_older_version(write: PlannedWrite) -> bool:
    """Return whether a stored entity is of an older version: then its fields may be called otherwise."""
    schema, stored = write.change.schema, write.origin.stored
    if schema is None or stored is None:
        return False
    return stored.upgraded or 0 < stored_version(stored.row) < schema.version


def _declared_for(entry: AggregateEntry, name: str, schema: Schema) -> AggregateSchema | None:
    """
    Return the count or sum of a model, or of another class that the entity may have been of, that a manifest entry is
    of: by its name, or by the property that it names if the declaration had another name. None if it is of none, and so
    may name any row and property.
    """
    for relative in relatives(schema):
        found = relative.derived_as(AggregateSchema)
        some = [found[name]] if name in found else list(found.values())
        for each in some:
            current = each.current_entry(entry) if name in found else entry
            if isinstance(current, AggregateEntry) and [*current.amounts] == [each.target[1].member.property]:
                return each
    return None
