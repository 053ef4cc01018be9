"""
The effect of a write on the index entry of its entity.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import structs

from ...errors import EntityExists, TableOrmError, UniqueViolation
from ...models.manifest import IndexEntry
from ...models.reserved import COPY_OF, ENTITY_TYPE
from ...protocol.codes import Code, Fault
from ...stores import Operation, Row, Verb
from ...writes.maintainer import EntryRules, entry_rules
from ...writes.plan import Effect, PlannedWrite
from .schema import IndexSchema, contents_of

__all__ = ["IndexEntryEffect"]


class IndexEntryEffect(Effect, msgspec.Struct, frozen=True, eq=False, gc=False):
    """
    A write of the index entry of an entity.

    Args:
        index: The index; None for one that this program does not know.
        address: RowKey of the entry.
        origin: The write of the entity.
        existed: Whether the entry is stored, as the manifest of the entity says.
        row: The entry as it shall be; None if it goes.
        values: The fields of the entity.
        reads: Whether the stored row is read first, since the manifest may be wrong: see `tableorm.audit`.
        canonical: As `Operation.canonical`.
        givers: RowKeys of other entities of the same writes, which give the entry up.
    """

    index: IndexSchema | None
    address: str
    origin: PlannedWrite
    existed: bool
    row: Row | None = None
    values: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    reads: bool = False
    canonical: bool = False
    givers: tuple[str, ...] = ()
    survives_replan = True

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
            givers=(*last.givers, *first.givers, first.origin.operation.row["RowKey"]),
        )

    def checked(self) -> Effect:
        """Return the effect that looks whether the stored row is an entry of this entity, as the manifest says."""
        return structs.replace(self, reads=True) if self.existed else self

    def operation(self, stored: Row | None, token: str) -> Operation | None:
        """Return an insert where no entry is stored, so that it never overwrites a row of another kind."""
        del token
        if self.reads:
            return self._correction(stored)
        if self.row is None:
            return Operation(Verb.DELETE, self._keys(), "*") if self.existed else None
        verb = Verb.INSERT_OR_REPLACE if self.existed else Verb.INSERT
        return Operation(verb, self.row, None, self.canonical)

    def apply_to(self, write: PlannedWrite) -> PlannedWrite:
        """Return the user's write, if it deletes the entry with its entity; an index entry is not an entity."""
        if write.after is None and self.row is None:
            return write
        change = self.origin.origin
        raise EntityExists(
            f"{change}: the key {self.address!r} of its index entry is that of {write.origin}; begin the row_key of "
            "the index with literal text of its own",
            Code.ENTITY_EXISTS,
            change.subject,
            index="" if self.index is None else self.index.name,
        )

    def after_conflict(self, code: str, stored: Row | None) -> Effect:
        """Return the effect without what is gone; refuse to overwrite a row that the manifest does not name."""
        if self.reads:
            return self  # it reads the row again
        if stored is None or code != Code.ENTITY_EXISTS:
            return structs.replace(self, existed=stored is not None and self.existed)
        if self.row is not None and self._is_ours(stored):
            change = self.origin.origin
            if change.verb == "rebuild":  # which repairs this: the entry is read, and replaced as it was found
                return structs.replace(self, reads=True)
            raise EntityExists(
                f"{change}: its index entry {self.address!r} exists already, and its manifest does not name it: a "
                "program that knows no indexes has deleted or replaced the entity; repair it with `tableorm audit "
                "--repair`",
                Code.ENTITY_EXISTS,
                change.subject,
                index="" if self.index is None else self.index.name,
            )
        raise self._violation(stored)

    def limit_hint(self, fault: Fault) -> str | None:
        """Return that the entry is too large: it has the fields of its entity's key besides."""
        del fault
        return None if self.index is None else f"That is its entry in index {self.index.name}; give that include= fewer"

    def _correction(self, stored: Row | None) -> Operation | None:
        """Return what makes the stored row right; a row that is not an entry of this entity is not touched."""
        ours = stored is not None and self._is_ours(stored)
        if self.row is None:
            return Operation(Verb.DELETE, self._keys(), stored["odata.etag"]) if stored is not None and ours else None
        if stored is None:
            return Operation(Verb.INSERT, self.row)
        if not ours:
            raise self._violation(stored)
        same = self.existed and contents_of(stored) == contents_of(self.row)
        return None if same else Operation(Verb.REPLACE, self.row, stored["odata.etag"])

    def _keys(self) -> Row:
        return {"PartitionKey": self.origin.operation.row["PartitionKey"], "RowKey": self.address}

    def _is_ours(self, stored: Row) -> bool:
        """Return whether a row is an entry of this very entity in this index; in any if the index is not known."""
        schema = self.origin.change.schema
        kind = str(stored.get(ENTITY_TYPE, "")).partition(":")[0]
        if schema is None or stored.get(COPY_OF) not in (self.origin.operation.row["RowKey"], *self.givers):
            return False
        return kind == self.index.kind if self.index is not None else kind.startswith(f"{schema.kind}#")

    def _violation(self, stored: Row | None) -> TableOrmError:
        change, index = self.origin.origin, self.index
        assert index is not None
        kind = None if stored is None else str(stored.get(ENTITY_TYPE, "")).partition(":")[0]
        # Classes that inherit from one share its indexes, and the values of unique ones.
        alike = kind is None or (COPY_OF in (stored or {}) and kind.endswith(f"#{index.index.name}"))
        if not alike:
            return EntityExists(
                f"{change}: index {index.name} needs the row {self.address!r} of this partition for its entry, and a "
                f"row of another kind ({kind!r}) has that key; change the index's row_key, or remove that row",
                Code.ENTITY_EXISTS,
                change.subject,
                index=index.name,
            )
        assert index.row is not None
        if not index.index.unique:
            of = "another entity of the transaction" if stored is None else f"the entity {stored.get(COPY_OF)!r}"
            return EntityExists(
                f"{change}: the key {self.address!r} of its entry in index {index.name} is that of the entry of {of}; "
                "put {kind} into the row_key of the index, or whatever else tells the two",
                Code.ENTITY_EXISTS,
                change.subject,
                index=index.name,
            )
        fields = {name: self.values.get(name) for name in index.row.fields}
        given = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        holder = "another entity of the transaction" if stored is None else "another entity"
        if stored is not None and stored.get(COPY_OF):
            holder = f"the entity {stored[COPY_OF]!r}"
        return UniqueViolation(
            f"{change}: {holder} of this partition has {given} already, and index {index.name} is unique; choose "
            "another value, or change that entity first",
            Code.ENTITY_EXISTS,
            change.subject,
            index=index.name,
            values=fields,
        )


@entry_rules(IndexEntry)
class _Rules(EntryRules[IndexEntry]):
    def undo(self, name: str, entry: IndexEntry, write: PlannedWrite, *, checked: bool) -> list[Effect]:
        """Delete the index entry."""
        schema = write.change.schema if checked else None
        derived = None if schema is None else schema.derived.get(name)
        rows = None if derived is None else derived.row_schema
        index = rows if isinstance(rows, IndexSchema) else None
        return [IndexEntryEffect(index, entry.row_key, write, existed=True, reads=checked)]
