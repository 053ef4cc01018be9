"""
What writes do to the index entries of their entities.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, ClassVar, Generic, TypeVar

from msgspec import structs

from ...audit.check import AuditedMaintainer, Check
from ...audit.context import AuditContext
from ...connection.rows import delete_as_read
from ...errors import (
    DecodeError,
    EncryptionError,
    EntityExists,
    LimitExceeded,
    TableOrmError,
    TemplateError,
    UniqueViolation,
    shown,
)
from ...keys.template import Template
from ...models.kinds import kind_of
from ...models.manifest import EachEntry, IndexEntry, ManifestEntry
from ...models.marker_rows import TENTATIVE, tentative_kind
from ...models.reserved import COPY_OF, ENTITY_TYPE
from ...models.visibility import is_live
from ...models.write_tokens import with_tokens_of
from ...protocol.codes import Code, Fault
from ...protocol.limits import MAX_TRANSACTION_OPERATIONS
from ...stores import Operation, Row, Verb, utc_now
from ...writes.maintainer import EntryAndEffects, EntryRules, Source, entry_rules, is_proven, undo_entry
from ...writes.patch import Value
from ...writes.plan import Effect, PlannedWrite
from .audit import IndexCheck
from .schema import EntrySchema, IndexSchema, contents_of

S = TypeVar("S", bound=EntrySchema)


class IndexEntryEffect(Effect, Value, frozen=True):
    """
    A write of the index entry of an entity.

    Args:
        index: The index; None for one that this program does not know.
        row_key: RowKey of the entry.
        origin: The write of the entity.
        existed: Whether the entry is stored, as the manifest of the entity says.
        row: The entry as it shall be; None if it goes.
        values: The fields of the entity.
        reads: Whether the stored row is read first, since the manifest may be wrong: see `tableorm.audit`.
        canonical: As `Operation.canonical`.
        givers: RowKeys of other entities of the same writes, which give the entry up.
    """

    index: IndexSchema | None
    row_key: str
    origin: PlannedWrite
    existed: bool
    row: Row | None = None
    values: Mapping[str, Any] = {}
    reads: bool = False
    canonical: bool = False
    givers: tuple[str, ...] = ()
    survives_replan = True

    @property
    def row_schema(self) -> IndexSchema | None:
        """The schema of the entry, which may hold what is encrypted."""
        return self.index

    def merge_with(self, other: Effect) -> Effect:
        """Return the effect of both: a value that one entity gives up can be taken by another, and replaces it."""
        assert isinstance(other, IndexEntryEffect)
        if self.row is not None and other.row is not None:
            raise other._violation(None)
        last, first = (self, other) if other.row is None else (other, self)
        return structs.replace(
            last,
            existed=self.existed or other.existed,
            reads=self.reads or other.reads,
            givers=(*last.givers, *first.givers, first.origin.row_key),
        )

    def tentative(self) -> Effect:
        """Return the effect on a tentative entry, which keeps the value for the entity and is found by no reader."""
        if self.row is None:
            return self
        return structs.replace(self, row={**self.row, ENTITY_TYPE: tentative_kind(self.row[ENTITY_TYPE])})

    def confirmed(self) -> Effect:
        """Return the effect that replaces the tentative entry."""
        return structs.replace(self, existed=True)

    def checked(self) -> Effect:
        """Return the effect that looks whether the stored row is an entry of this entity, as the manifest says."""
        return structs.replace(self, reads=True) if self.existed else self

    def operation(self, stored: Row | None, token: str) -> Operation | None:
        """Return an insert where no entry is stored, so that it never overwrites a row of another kind."""
        if self.reads:
            return self._correction(stored)
        if self.row is None:
            keys = {"PartitionKey": self.origin.operation.row["PartitionKey"], "RowKey": self.row_key}
            return Operation(Verb.DELETE, keys, "*") if self.existed else None
        verb = Verb.INSERT_OR_REPLACE if self.existed else Verb.INSERT
        return Operation(verb, self.row, None, self.canonical)

    def apply_to(self, write: PlannedWrite) -> PlannedWrite:
        """Return the user's write, if it deletes the entry with its entity; an index entry is not an entity."""
        if write.after is None and self.row is None:
            return write
        raise self._exists(
            f"the key {shown(self.row_key)} of its index entry is that of {write.origin}; begin the row_key of the "
            "index with a distinct literal"
        )

    def after_conflict(self, code: str, stored: Row | None) -> Effect:
        """Return the effect without what is gone; refuse to overwrite a row that the manifest does not name."""
        if self.reads:
            return self  # it reads the row again
        if stored is None or code != Code.ENTITY_EXISTS:
            return structs.replace(self, existed=stored is not None and self.existed)
        if self.row is not None and self._is_ours(stored):
            if (
                self.origin.origin.verb == "rebuild"
            ):  # which repairs this: the entry is read, and replaced as it was found
                return structs.replace(self, reads=True)
            raise self._exists(
                f"its index entry {shown(self.row_key)} exists already, and its manifest does not name it: a program "
                "that knows no indexes has deleted or replaced the entity; repair it with `tableorm audit --repair`"
            )
        raise self._violation(stored)

    def limit_hint(self, fault: Fault) -> str | None:
        """Return that the entry is too large: it has the fields of its entity's key besides."""
        return None if self.index is None else f"That is its entry in index {self.index.name}; give that include= fewer"

    def _correction(self, stored: Row | None) -> Operation | None:
        """Return what makes the stored row right; a row that is not an entry of this entity is not touched."""
        ours = stored is not None and self._is_ours(stored)
        if self.row is None:
            return delete_as_read(stored) if stored is not None and ours else None
        if stored is None:
            return Operation(Verb.INSERT, self.row)
        if not ours:
            raise self._violation(stored)
        same = self.existed and self.index is not None and self.index.holds(stored, contents_of(self.row))
        return None if same else Operation(Verb.REPLACE, self.row, stored["odata.etag"])

    def _is_ours(self, stored: Row) -> bool:
        """Return whether a row is an entry of this very entity in this index; in any if the index is not known."""
        kind = _kind_of(stored)
        if stored.get(COPY_OF) not in (self.origin.row_key, *self.givers):
            return False
        # What an entity was before it became one of another class had the same index by its name.
        return kind.endswith(f"#{self.index.entry_name}") if self.index is not None else "#" in kind

    def _exists(self, problem: str) -> EntityExists:
        change, index = self.origin.origin, "" if self.index is None else self.index.name
        return EntityExists(f"{change}: {problem}", Code.ENTITY_EXISTS, change.subject, index=index)

    def _violation(self, stored: Row | None) -> TableOrmError:
        change, index = self.origin.origin, self.index
        assert index is not None
        kind = None if stored is None else _kind_of(stored)
        # Classes that inherit from one share its indexes, and the values of unique ones.
        alike = kind is None or (COPY_OF in (stored or {}) and kind.endswith(f"#{index.entry_name}"))
        if not alike:
            return self._exists(
                f"index {index.name} needs the row {shown(self.row_key)} of this partition for its entry, and a row of "
                f"another kind ({shown(kind)}) has that key; change the index's row_key, or remove that row"
            )
        assert index.row is not None
        holder = "another entity of this transaction" if stored is None else "another entity of this partition"
        if stored is not None and stored.get(COPY_OF):
            holder = f"the entity {shown(stored[COPY_OF])} of this partition"
        if not index.unique:
            return self._exists(
                f"the key {shown(self.row_key)} of its entry in index {index.name} is that of the entry of {holder}; "
                "put {kind} into the row_key of the index, or whatever else tells the two"
            )
        fields = {name: self.values.get(name) for name in index.row.fields}
        found: dict[str, Any] = {}
        remedy = "choose another value, or change that entity first"
        if stored is not None and stored.get(COPY_OF) and not index.keys_only:
            with suppress(DecodeError, EncryptionError):
                held = index.decode_stored(dict(stored))
                found = held.__dict__
                if not is_live(held, utc_now()):
                    remedy = "it has expired, and keeps the value until db.sweep() deletes it: sweep, or choose another"
        # A format such as {email:lower} makes one key of several values: the stored one is shown.
        # Of a list the element that is taken is.
        found.pop(str(index.row.each), None)
        given = ", ".join(f"{name}={found.get(name, value)!r}" for name, value in fields.items())
        return UniqueViolation(
            f"{change}: {holder} has {given} already, and index {index.name} is unique; {remedy}",
            Code.ENTITY_EXISTS,
            change.subject,
            index=index.name,
            values=fields,
        )


def _kind_of(stored: Row) -> str:
    """Return the kind of an index entry, tentative or not, without its version."""
    return kind_of(stored).removesuffix(TENTATIVE)


@entry_rules(EachEntry)
@entry_rules(IndexEntry)
class _IndexRules(EntryRules[ManifestEntry]):
    def undo(self, name: str, entry: ManifestEntry, write: PlannedWrite, *, checked: bool) -> list[Effect]:
        """Delete the index entries."""
        schema = write.change.schema if checked else None
        derived = None if schema is None else schema.derived.get(name)
        rows = None if derived is None else derived.row_schema
        index = rows if isinstance(rows, IndexSchema) else None
        reads = checked or not is_proven(entry, write)
        return [IndexEntryEffect(index, key, write, existed=True, reads=reads) for key in entry.entry_keys]


class EntryMaintainer(AuditedMaintainer, Generic[S]):
    """
    An index of a model, wherever its entries are.

    Args:
        rows: The schema of its entries.
    """

    movable = True

    def __init__(self, rows: S) -> None:
        super().__init__(rows.entry_name, rows.primary)
        self.rows, self.building, self.declaration = rows, rows.building, rows.declaration

    def describe(self) -> dict[str, Any]:
        """Return what was declared, as JSON has it."""
        return self.rows.describe()

    def row_templates(self) -> Sequence[Template]:
        """Return the template of the entries' RowKeys."""
        return self.rows.templates()[1:]

    def shares_rows(self, *, keys_apart: bool) -> bool:
        """Return whether classes share the values of a unique index, or have the keys of entities in common."""
        return self.rows.unique or not keys_apart

    @property
    def row_schema(self) -> S:
        """The schema of its entries."""
        return self.rows


class IndexMaintainer(EntryMaintainer[IndexSchema]):
    """An index of a model, kept right by the writes of its entities."""

    entry_type: ClassVar[type[ManifestEntry]] = IndexEntry

    def __init__(self, rows: IndexSchema) -> None:
        super().__init__(rows)
        template = self._template = rows.templates()[1]
        self.in_periods = not rows.unique  # uniqueness would end with the period
        self.may_refuse = rows.unique
        fields = rows.primary.fields
        self._keyed = frozenset(each.property for name in template.fields for each in fields[name].members)
        # How a key is made of plain text; None if it has fields of the entity's own key, which are no properties.
        self._text: str | None = None
        if rows.unique and rows.each is None and all(fields[name].stored for name in template.fields):
            self._text = "".join(
                each.literal.replace("%", "%%") if each.field is None else f"%({fields[each.field].member.property})s"
                for each in template.parts
            )

    # What is declared

    def own_rows(self, values: Mapping[str, Any] | None) -> int:
        """Return 1 if an entity with these fields has an entry."""
        return int(values is None or all(values.get(name) is not None for name in self.rows.needed))

    def holds_all(self, given: AbstractSet[str]) -> bool:
        """Return whether there is an entry of all such entities, which has all fields or is followed to them."""
        index = self.rows
        if index.building or index.where is not None:
            return False
        if index.include == "keys":
            # One request for each entity: what that comes to is told by a unique value alone.
            return index.unique and given >= frozenset(self._template.fields)
        if index.include != "all" or self.schema.maintained:
            return False
        return given >= frozenset(self.rows.needed)

    # What writes do

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> ManifestEntry | None:
        """Return the RowKey of the entity's entry. Raises TemplateError."""
        address = self.rows.address(values)
        return None if address is None else IndexEntry(address)

    def proves(self, entry: ManifestEntry, values: Mapping[str, Any], partition_key: str, row_key: str) -> bool:
        """Return whether the entity has this entry, and no other row of the partition has the fields of its key."""
        return self._has_own_key(values, row_key) and super().proves(entry, values, partition_key, row_key)

    def _has_own_key(self, values: Mapping[str, Any], row_key: str) -> bool:
        """
        Return whether the RowKey of an entity is the one that its fields make.

        Another program, or a forger, may have written the fields of one entity under the key of another one, or have
        spelled the key otherwise. Then two entities of the partition have the same entry.
        """
        with suppress(TemplateError):  # values that no key of the model can have
            return self.schema.templates()[1].format(values) == row_key
        return False

    def _is_told(self, source: Source) -> bool:
        """Return whether the stored row says what the manifest says, since what the key is made of has not changed."""
        return self._keyed.isdisjoint(source.changed) and self._has_own_key(source.values, source.row_key)

    def derive_row(self, entry: ManifestEntry, values: Mapping[str, Any], row: Row) -> Row | None:
        """Return the first of the entries that the entity ought to have; others differ in their RowKeys."""
        return self.rows.entry_row(values, row, entry.entry_keys[0]) if type(entry) is self.entry_type else None

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Write the entry if what it holds changes; delete the entry at another key."""
        rows, write = self.rows, source.write
        address = rows.address(source.values)
        old = before.local_key if before is not None else None
        effects: list[Effect] = []
        if address is not None and (address != old or rows.concerns(source.changed)):
            row = with_tokens_of(rows.entry_row(source.values, source.row, address), source.row)
            canonical, existed = write.operation.canonical, address == old
            reads = existed and not (self._is_told(source) or is_proven(IndexEntry(address), write))
            effects.append(
                IndexEntryEffect(rows, address, write, existed, row, source.values, reads=reads, canonical=canonical)
            )
        if old is not None and old != address:
            row = write.origin.stored_row or {}
            # Most keys are plain text, which is compared without decoding the row.
            told = self._text is not None and self._keyed <= row.keys() and self._text % row == old
            reads = not told and not is_proven(IndexEntry(old), write)
            effects.append(IndexEntryEffect(rows, old, write, existed=True, reads=reads))
        if address == old:
            return before, effects
        return None if address is None else IndexEntry(address), effects

    def rebuild(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Write all entries, after reading those that the manifest names; delete what it names wrongly."""
        entry, effects = self._derive(before, source, checked=True)
        if before is not None and type(before) is not self.entry_type:
            effects += undo_entry(self.name, before, source.write, checked=True)
        return entry, effects

    def _derive(self, before: ManifestEntry | None, source: Source, *, checked: bool) -> EntryAndEffects:
        rows, write, values = self.rows, source.write, source.values
        due = rows.addresses(values)
        noted = frozenset(before.entry_keys if before is not None and type(before) is self.entry_type else ())
        rewrites = checked or (bool(noted) and rows.concerns(source.changed))
        written = [key for key in due if rewrites or key not in noted]
        gone = sorted(noted.difference(due))
        reads = checked
        if before is not None and (gone or rewrites) and not checked:
            # Entries that go may be those of others, which a forged manifest names: only the stored fields tell.
            told = not gone and self._is_told(source)
            reads = not (told or is_proven(before, write))
        if len(written) + len(gone) >= MAX_TRANSACTION_OPERATIONS:
            raise self._too_many(source, len(due), len(written), len(gone))
        effects: list[Effect] = [IndexEntryEffect(rows, key, write, existed=True, reads=reads) for key in gone]
        row = with_tokens_of(rows.entry_row(values, source.row, written[0]), source.row) if written else {}
        canonical = write.operation.canonical and not checked  # a rebuild has not checked what the row holds
        for key in written:
            there, own, entry_row = key in noted, values, row
            if rows.each is not None:
                own, entry_row = {**values, rows.each.name: due[key]}, {**row, "RowKey": key}
            effects.append(
                IndexEntryEffect(rows, key, write, there, entry_row, own, reads=reads and there, canonical=canonical)
            )
        entry = self._entry_of(due)
        return before if entry == before else entry, effects

    def _entry_of(self, due: Mapping[str, Any]) -> ManifestEntry | None:
        """Return what the manifest says of entries with these RowKeys."""
        return next(map(IndexEntry, due), None)

    def _too_many(self, source: Source, elements: int, written: int, gone: int) -> LimitExceeded:
        """Return the error of a write of more entries than a transaction has room for."""
        size, limit, field = written + gone + 1, MAX_TRANSACTION_OPERATIONS, str(self._template.each)
        return LimitExceeded(
            f"{source.write.origin}: {field} has {elements} elements, so that {written} entries of index "
            f"{self.label} would be written and {gone} deleted, in one transaction of {limit} operations with the "
            "entity; change fewer elements at a time, or store an entity for each of them instead of a list",
            Code.INVALID_INPUT,
            model=self.schema.name,
            field=field,
            limit=limit,
            size=size,
        )

    def checks(self, context: AuditContext) -> Sequence[Check]:
        """Return the check of the entries."""
        return (IndexCheck(context, self.rows),)


_USUAL = 9


class EachIndexMaintainer(IndexMaintainer):
    """
    An index of a model that has an entry for each element of a list.

    Entries of elements that stay are written only if what they hold has changed.
    """

    entry_type = EachEntry

    def own_rows(self, values: Mapping[str, Any] | None) -> int:
        """Return how many entries an entity with these fields has, or how many it may have if they are not known."""
        # What has no room is sent in parts.
        return _USUAL if values is None else len(values.get(str(self._template.each)) or ())

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> ManifestEntry | None:
        """Return the RowKeys of the entity's entries. Raises TemplateError."""
        return self._entry_of(self.rows.addresses(values))

    def effects(self, before: ManifestEntry | None, source: Source) -> EntryAndEffects:
        """Write the entries of elements that came, or all if what they hold changes; delete those of others."""
        return self._derive(before, source, checked=False)

    def _entry_of(self, due: Mapping[str, Any]) -> ManifestEntry | None:
        return EachEntry(tuple(due)) if due else None
