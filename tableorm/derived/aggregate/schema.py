"""
The schema of a count or sum: which field of which other entity holds it, what an entity adds to it, and what writes do.

Across partitions there are two further rows: the subtotal of a partition, and beside the total what that has of it.
Both have a value and a number. Each change of a subtotal has the next number, so that of two values everybody knows
which is newer. Neither row is ever deleted: the numbers would begin anew.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import attrs
import msgspec

from ...connection.connection import Connection
from ...errors import DecodeError, LimitExceeded, ModelError, WrongKind, near, shown
from ...expressions import Field
from ...models.key import Storable
from ...models.manifest import AggregateEntry, ManifestEntry, SubtotalEntry
from ...models.marker_rows import SHARE_KIND, SUBTOTAL_KIND
from ...models.reserved import COPY_OF, ENTITY_TYPE, WRITE_TOKENS, is_reserved_property
from ...models.schema import FieldInfo, Schema, concrete, relatives
from ...models.upgrades import stored_version
from ...models.write_tokens import tokens_of, with_token
from ...protocol.edm import ANNOTATION, INT64_MAX, INT64_MIN, Edm
from ...stores import Operation, Row, RowAddress, Verb, row_keys
from ...writes.maintainer import EntryAndEffects, EntryRules, Source, entry_rules, is_proven, undo_entry
from ...writes.patch import Value
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
        entry, target = self.due_entry(source), self.target[0]
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
        return self.due_entry(source), []


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


_VALUE, _NUMBER, _FIELD = "Value", "Number", "Field"


@attrs.frozen
class CountRow:
    """
    A subtotal, or what a total has of one.

    Args:
        kind: Which of the two.
        of: A subtotal: the entity that has the total. What that has of it: the subtotal.
        field: The property of the entity that has the total. Behind it, for what the total has, RowKey of that entity.
        value: The value.
        number: Its number.
        row: The row as it is stored; None for one that is not there.
    """

    kind: str
    of: RowAddress
    field: tuple[str, ...]
    value: int = 0
    number: int = 0
    row: Row | None = attrs.field(default=None, eq=False)

    def operation(self, at: RowAddress, value: int, number: int, token: str) -> Operation:
        """
        Return the write of a value, under the condition that the row is as it was read.

        Raises:
            LimitExceeded: The value does not fit.
        """
        if not INT64_MIN <= value <= INT64_MAX:
            raise LimitExceeded(f"the subtotal {at} would be {value}, which is more than an Int64 holds")
        row: Row = {
            **at.keys,
            ENTITY_TYPE: self.kind,
            COPY_OF: self.of.to_json(),
            _FIELD: msgspec.json.encode(self.field).decode(),
            WRITE_TOKENS: with_token(tokens_of(self.row), token),
        }
        for name, each in ((_VALUE, value), (_NUMBER, number)):
            row |= {name: str(each), name + ANNOTATION: Edm.INT64.value}
        if self.row is None:
            return Operation(Verb.INSERT, row)
        return Operation(Verb.REPLACE, row, self.row["odata.etag"])


def count_row_of(row: Row) -> CountRow:
    """Return what a row of a count says. Raises DecodeError if it is none or damaged, or another's subtotal."""
    try:
        kind, of, field = row[ENTITY_TYPE], RowAddress.from_json(row[COPY_OF]), _decode_field(row[_FIELD])
        found = CountRow(kind, of, field, int(str(row[_VALUE])), int(str(row[_NUMBER])), row)
        is_one = kind in (SUBTOTAL_KIND, SHARE_KIND) and len(field) == 1 + (kind == SHARE_KIND)
        if is_one and (kind == SHARE_KIND or SubtotalEntry.of(of, field[0], 0).row_key == row["RowKey"]):
            return found
    except (KeyError, TypeError, ValueError, msgspec.DecodeError):
        pass
    kind = shown(row.get(ENTITY_TYPE))
    problem = f"is a row of kind {kind}, and should be the row of a count across partitions that has its key"
    raise DecodeError(problem, SUBTOTAL_KIND, row_keys(row))


_decode_field = msgspec.json.Decoder(tuple[str, ...]).decode


class SubtotalPatch(Effect, Value, frozen=True, kw_only=True):
    """
    A change of the subtotal of a partition.

    Args:
        row_key: Its RowKey.
        origin: The write that it comes from.
        entry: What names it in a manifest.
        amount: What is added to it.
    """

    row_key: str
    origin: PlannedWrite
    entry: SubtotalEntry
    amount: int
    reads = replaces = True

    def merge_with(self, other: Effect) -> Effect:
        """Return a patch that does both."""
        assert isinstance(other, SubtotalPatch)
        return msgspec.structs.replace(other, amount=self.amount + other.amount)

    def operation(self, stored: Row | None, token: str) -> Operation:
        """Return the write of the subtotal under the ETag that was read. Raises WrongKind if another row is there."""
        at = self.origin.change.address.beside(self.row_key)
        now = empty = CountRow(SUBTOTAL_KIND, self.entry.holder, (self.entry.field,))
        if stored is not None:
            now = count_row_of(stored)
            if (now.kind, now.field) != (empty.kind, empty.field) or not now.of.is_same(empty.of):
                raise WrongKind(
                    f"{self.origin.origin}: the row {shown(self.row_key)} of this partition should be the subtotal of "
                    f"{self.entry.field} of {self.entry.holder}, and is another one",
                    (at.partition_key, at.row_key),
                    stored.get(ENTITY_TYPE),
                )
        return now.operation(at, now.value + self.amount, now.number + 1, token)
