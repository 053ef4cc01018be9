"""
The effect of a write on the copy of an entity in an index.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from ...errors import EntityExists, TableOrmError, UniqueViolation
from ...models.reserved import COPY_OF, ENTITY_TYPE
from ...protocol.codes import Code
from ...stores import Operation, Row, Verb
from ...writes.effect import Effect
from .index import contents_of

if TYPE_CHECKING:
    from ...writes.plan import PlannedWrite
    from .index import IndexSchema

__all__ = ["CopyEffect"]


_INSERT, _INSERT_OR_REPLACE = Verb.INSERT, Verb.INSERT_OR_REPLACE  # an enum looks its members up


class CopyEffect(Effect, msgspec.Struct, frozen=True, eq=False, gc=False):
    """
    The copy of an entity in an index.

    Args:
        index: The index; None for one that this program does not know.
        address: RowKey of the copy.
        origin: The write of the entity.
        existed: Whether the copy is there before, as the primaries say.
        row: The copy as it shall be; None if it goes.
        values: The fields of the entity.
        reads: Whether the row is read before, since what the primaries say may be wrong: see `tableorm.audit`.
        found: ETag of a copy of this entity that is there although its primary did not say so.
        canonical: As of `Operation`.
    """

    index: "IndexSchema | None"
    address: str
    origin: "PlannedWrite"
    existed: bool
    row: Row | None = None
    values: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    reads: bool = False
    found: str | None = None
    canonical: bool = False

    def merge_with(self, other: Effect) -> Effect:
        """A value that one entity gives up can be taken by another: the copy then is replaced."""
        assert isinstance(other, CopyEffect)
        if self.row is not None and other.row is not None:
            raise other._violation(None)
        last = self if other.row is None else other
        return structs.replace(last, existed=self.existed or other.existed, reads=self.reads or other.reads)

    def operation(self, stored: Row | None, token: str) -> Operation | None:
        """An insert where none is taken to be, so that it never overwrites a row of another kind."""
        del token
        if self.reads:
            return self._corrected(stored)
        if self.row is None:
            return Operation(Verb.DELETE, self._keys(), "*") if self.existed else None
        if self.found is not None:
            return Operation(Verb.REPLACE, self.row, self.found)
        return Operation(_INSERT_OR_REPLACE if self.existed else _INSERT, self.row, None, self.canonical)

    def apply_to(self, write: "PlannedWrite") -> "PlannedWrite":
        """A copy is no entity; but somebody may delete it, as any row, together with its entity."""
        if write.after is None and self.row is None:
            return write
        change = self.origin.origin
        raise EntityExists(
            f"{change}: the key {self.address!r} of its copy is that of {write.origin}; begin the row_key of the index "
            "with literal text of its own",
            Code.ENTITY_EXISTS,
            change.subject,
            index="" if self.index is None else self.index.name,
        )

    def after_conflict(self, code: str, stored: Row | None) -> Effect:
        """Without what is gone; a copy of our own that was left behind is replaced, as it was found."""
        if self.reads:
            return self  # it is read again, and corrected by that
        if stored is None or (code != Code.ENTITY_EXISTS and self.found is None):
            return structs.replace(self, existed=stored is not None and self.existed, found=None)
        if self.row is not None and self._is_ours(stored):
            # A program that knows no indexes had deleted the entity. An audit may remove the copy at this moment, and
            # then somebody else may take its key.
            return structs.replace(self, found=stored["odata.etag"])
        raise self._violation(stored)

    def _corrected(self, stored: Row | None) -> Operation | None:
        """What makes the row that was read right; rows that are no copies of this entity are not touched."""
        ours = stored is not None and self._is_ours(stored)
        if self.row is None:
            return Operation(Verb.DELETE, self._keys(), stored["odata.etag"]) if stored is not None and ours else None
        if stored is None:
            return Operation(Verb.INSERT, self.row)
        if not ours:
            raise self._violation(stored)
        same = contents_of(stored) == contents_of(self.row)
        return None if same else Operation(Verb.REPLACE, self.row, stored["odata.etag"])

    def _keys(self) -> Row:
        return {"PartitionKey": self.origin.operation.row["PartitionKey"], "RowKey": self.address}

    def _is_ours(self, stored: Row) -> bool:
        """Whether a row is a copy of this very entity in this index; in any, if the index is not known."""
        schema = self.origin.change.schema
        kind = str(stored.get(ENTITY_TYPE, "")).partition(":")[0]
        if stored.get(COPY_OF) != self.origin.operation.row["RowKey"] or schema is None:
            return False
        return kind == self.index.kind if self.index is not None else kind.startswith(f"{schema.kind}#")

    def _violation(self, stored: Row | None) -> TableOrmError:
        change, index = self.origin.origin, self.index
        assert index is not None
        kind = None if stored is None else str(stored.get(ENTITY_TYPE, "")).partition(":")[0]
        # KindSet that derive from one class share its indexes, and the values of those that are unique.
        alike = kind is None or (COPY_OF in (stored or {}) and kind.endswith(f"#{index.index.name}"))
        if not alike:
            return EntityExists(
                f"{change}: index {index.name} needs the row {self.address!r} of this partition for its copy, and a "
                f"row of another kind ({kind!r}) has that key; change the index's row_key, or remove that row",
                Code.ENTITY_EXISTS,
                change.subject,
                index=index.name,
            )
        assert index.row is not None
        if not index.index.unique:
            of = "another entity of the transaction" if stored is None else f"the entity {stored.get(COPY_OF)!r}"
            return EntityExists(
                f"{change}: the key {self.address!r} of its copy in index {index.name} is that of the copy of {of}; "
                "put {kind} into the row_key of the index, or whatever else tells the two",
                Code.ENTITY_EXISTS,
                change.subject,
                index=index.name,
            )
        fields = {name: self.values.get(name) for name in index.row.fields}
        given = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        holder = "another entity of the transaction" if stored is None else f"the entity {stored.get(COPY_OF)!r}"
        return UniqueViolation(
            f"{change}: {holder} of this partition has {given} already, and index {index.name} is unique; choose "
            "another value, or change that entity first",
            Code.ENTITY_EXISTS,
            change.subject,
            index=index.name,
            values=fields,
        )
