"""
What a write does to rows that are derived from its own: copies under other keys, lists of keys, counts and copies that
other entities hold.

An effect is on one row. Several writes of a transaction can have effects on the same row; they become one.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from ..errors import (
    DecodeError,
    EntityExists,
    LimitExceeded,
    NotSupported,
    ReferenceNotFound,
    TableOrmError,
    UniqueViolation,
    WrongKind,
)
from ..indexes import contents_of, marks_of
from ..kinds import Kinds
from ..lists import SEPARATOR, bits_of, bytes_of, is_divided, keys_of, list_row
from ..protocol.codes import Code
from ..protocol.edm import ANNOTATION, Edm
from ..reserved import COPY_OF, ENTITY_TYPE, MARKS, WRITE_TAIL
from ..schema import concrete
from ..stores import Operation, Row, Verb
from .tail import lengthened, tail_of

if TYPE_CHECKING:
    from ..entity import Entity
    from ..indexes import IndexSchema
    from ..schema import Schema
    from .plan import Change, PlannedWrite

__all__ = ["CopyEffect", "Effect", "ListEffect", "Patch", "number_of", "with_tail"]


_INSERT, _INSERT_OR_REPLACE = Verb.INSERT, Verb.INSERT_OR_REPLACE  # an enum looks its members up


class Effect:
    """
    What becomes of a derived row.

    Attributes:
        address: Its RowKey, in the partition of what it is derived from.
        origin: The write that it comes from, which is named if it fails.
        reads: Whether it must know the row as it is stored.
    """

    __slots__ = ()
    address: str
    origin: "PlannedWrite"
    reads = False

    def then(self, other: "Effect") -> "Effect":
        """
        This effect and another one of the same transaction on the same row as one, whichever came first.

        Raises:
            TableOrmError: They exclude each other.
        """
        raise NotImplementedError

    def settled(self, stored: Row | None) -> "list[Effect]":
        """Itself, if it is of this row as it is stored; otherwise effects on the rows that it is really of."""
        del stored
        return [self]

    def operation(self, stored: Row | None, token: str) -> Operation | None:
        """
        What the store is asked; None if there is nothing to do.

        Args:
            stored: The row as it is stored, None if there is none; what has not to be read is taken to be as the
                primaries say.
            token: The write token of the transaction.

        Raises:
            TableOrmError: The row must be there.
        """
        raise NotImplementedError

    def onto(self, write: "PlannedWrite") -> "PlannedWrite":
        """
        The write of the same row, by the user in the same transaction, with the effect.

        Raises:
            TableOrmError: The row cannot be both.
        """
        raise NotImplementedError

    def mended(self, code: str, stored: Row | None) -> "Effect":
        """
        The effect on the row as it really is, after the store has refused what was taken to be.

        Args:
            code: Why it refused.
            stored: The row; None if there is none.

        Raises:
            TableOrmError: It must not be.
        """
        del code, stored
        return self  # it is read again


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

    def then(self, other: Effect) -> Effect:
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

    def onto(self, write: "PlannedWrite") -> "PlannedWrite":
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

    def mended(self, code: str, stored: Row | None) -> Effect:
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
        # Kinds that derive from one class share its indexes, and the values of those that are unique.
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


class ListEffect(Effect, msgspec.Struct, frozen=True, eq=False, gc=False):
    """
    Keys that come into a row of an index list, or leave it.

    Args:
        list_key: The key of the list.
        bits: Which of its rows.
        origin: The write of an entity that is in it.
        kind: Of the list.
        divide_at: Bytes of keys of which the row is divided first.
        adds: RowKeys that come.
        removes: RowKeys that leave.
    """

    list_key: str
    bits: str
    origin: "PlannedWrite"
    kind: str
    divide_at: int
    adds: frozenset[str] = frozenset()
    removes: frozenset[str] = frozenset()
    reads = True

    @property
    def address(self) -> str:  # type: ignore[override]
        """RowKey of the row."""
        return self.list_key + SEPARATOR + self.bits

    def then(self, other: Effect) -> Effect:
        """All that come, and those that leave and do not come."""
        assert isinstance(other, ListEffect)
        adds = self.adds | other.adds
        return structs.replace(other, adds=adds, removes=(self.removes | other.removes) - adds)

    def settled(self, stored: Row | None) -> list[Effect]:
        """Of a row that was divided, effects on the two others."""
        if not is_divided(stored):
            return [self]
        deeper: list[Effect] = []
        for bit in "01":
            bits = self.bits + bit
            adds = frozenset(key for key in self.adds if bits_of(key, len(bits)) == bits)
            removes = frozenset(key for key in self.removes if bits_of(key, len(bits)) == bits)
            if adds or removes:
                deeper.append(structs.replace(self, bits=bits, adds=adds, removes=removes))
        return deeper

    def division(self, stored: Row | None, token: str) -> list[Operation]:
        """The transaction that divides the row before it is too large; none if it is not."""
        if stored is None or bytes_of(stored) + sum(map(_packed, self.adds)) <= self.divide_at:
            return []
        keys = keys_of(stored)
        coming = sum(_packed(key) for key in self.adds if key not in keys)
        if bytes_of(stored) + coming <= self.divide_at or len(keys) < 2:
            return []
        partition_key, tail = stored["PartitionKey"], lengthened(tail_of(stored), token)
        empty = list_row(partition_key, self.address, self.kind, (), divided=True)
        operations = [Operation(Verb.REPLACE, {**empty, WRITE_TAIL: tail}, stored["odata.etag"])]
        for bit in "01":
            bits = self.bits + bit
            row = list_row(
                partition_key, self.address + bit, self.kind, (key for key in keys if bits_of(key, len(bits)) == bits)
            )
            operations.append(Operation(Verb.INSERT, {**row, WRITE_TAIL: token}))
        return operations

    def operation(self, stored: Row | None, token: str) -> Operation | None:
        """The row with the keys that it has then, under the ETag it was read with."""
        keys = keys_of(stored)
        same = keys.keys() >= self.adds and keys.keys().isdisjoint(self.removes)
        if same and not self.adds:
            return None
        if same and stored is not None:
            # An entity that is inserted is there still: somebody is about to delete what had its key.
            return _touched(stored, token)
        for key in self.removes:
            keys.pop(key, None)
        keys.update(dict.fromkeys(self.adds))
        row = list_row(self.origin.operation.row["PartitionKey"], self.address, self.kind, keys)
        row[WRITE_TAIL] = lengthened(tail_of(stored), token)
        if stored is None:
            return Operation(Verb.INSERT, row)
        if stored.get(ENTITY_TYPE) != self.kind:
            change = self.origin.origin
            raise EntityExists(
                f"{change}: the index list {self.kind} needs the row {self.address!r} of this partition, and a row of "
                f"another kind ({stored.get(ENTITY_TYPE)!r}) has that key; change the list's row_key, or remove "
                "that row",
                Code.ENTITY_EXISTS,
                change.subject,
                index=self.kind,
            )
        return Operation(Verb.REPLACE, row, stored["odata.etag"])

    def onto(self, write: "PlannedWrite") -> "PlannedWrite":
        """A list is no entity; but somebody may delete its row, as any, together with entities that leave it."""
        if write.after is None and not self.adds:
            return write
        change = self.origin.origin
        raise EntityExists(
            f"{change}: the key {self.address!r} of a list that it is in is that of {write.origin}; begin the row_key "
            "of the list with literal text of its own",
            Code.ENTITY_EXISTS,
            change.subject,
            index=self.kind,
        )


class Patch(Effect, msgspec.Struct, frozen=True, eq=False, gc=False):
    """
    A change of another entity: what it counts, what it holds copies of, and what it notes.

    Args:
        address: RowKey of the entity.
        origin: The write that it comes from.
        deltas: What is added to properties.
        members: Properties that get a value, with their annotations; None removes one.
        marks: Notes; None removes one.
        needed: What to say if there is no such entity; None if there need not be one.
        create: Makes the entity, if there is none.
        target: The model of the entity; None if this program does not know it.
    """

    address: str
    origin: "PlannedWrite"
    deltas: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    members: Row = msgspec.field(default_factory=dict[str, Any])
    marks: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    needed: str | None = None
    create: "Callable[[], Entity] | None" = None
    target: "Schema | None" = None
    reads = True

    @property
    def idle(self) -> bool:
        """Whether it changes nothing, as what is taken back and added again."""
        return not (any(self.deltas.values()) or self.members or self.marks)

    def then(self, other: Effect) -> Effect:
        """Both, one after the other."""
        assert isinstance(other, Patch)
        deltas = dict(self.deltas)
        for name, amount in other.deltas.items():
            deltas[name] = deltas.get(name, 0) + amount
        return Patch(
            self.address,
            other.origin,
            deltas,
            {**self.members, **other.members},
            {**self.marks, **other.marks},
            other.needed or self.needed,
            other.create or self.create,
            other.target or self.target,
        )

    def operation(self, stored: Row | None, token: str) -> Operation | None:
        """A merge under the ETag it was read with; a replace where a property goes."""
        if stored is None:
            if self.needed is not None:
                key = self.origin.operation.row["PartitionKey"], self.address
                raise ReferenceNotFound(f"{self.origin.origin}: {self.needed}", Code.RESOURCE_NOT_FOUND, key)
            return None
        row = self.patched(stored)
        changed = {name: value for name, value in row.items() if value != stored.get(name)}
        gone = [name for name in stored if name not in row]
        if not changed and not gone:
            # What is noted already may be about to be taken back by whoever noted it.
            return _touched(stored, token) if any(self.marks.values()) else None
        tail = lengthened(tail_of(stored), token)
        if gone:
            whole = {name: value for name, value in row.items() if name not in ("odata.etag", "Timestamp")}
            return Operation(Verb.REPLACE, {**whole, WRITE_TAIL: tail}, stored["odata.etag"])
        # A value is never sent without its type.
        for name in [name for name in changed if name + ANNOTATION in row]:
            changed[name + ANNOTATION] = row[name + ANNOTATION]
        keys = {"PartitionKey": stored["PartitionKey"], "RowKey": self.address}
        return Operation(Verb.MERGE, {**keys, **changed, WRITE_TAIL: tail}, stored["odata.etag"])

    def onto(self, write: "PlannedWrite") -> "PlannedWrite":
        """The write with what changes; a delete stays one, if nothing refers to its row then."""
        if write.after is None:
            return write
        after, operation = self.patched(write.after), write.operation
        if operation.verb in (Verb.MERGE, Verb.INSERT_OR_MERGE):
            gone = [name for name in write.after if name not in after]
            changed = {name: value for name, value in after.items() if value != write.after.get(name)}
            for name in [name for name in changed if name + ANNOTATION in after]:
                changed[name + ANNOTATION] = after[name + ANNOTATION]
            row = after if gone else {**operation.row, **changed}
            verb: Verb = Verb.REPLACE if gone else operation.verb
        else:
            row, verb = after, operation.verb
        return structs.replace(write, operation=Operation(verb, row, operation.if_match), after=after, weight=None)

    def model_of(self, row: Row) -> "tuple[Schema, int] | None":
        """
        The model of the entity, and the version of its row; None if this program does not know it.

        Raises:
            WrongKind: The row is of another kind.
        """
        target = self.target
        if target is None:
            return None
        if target.discriminator == "property" and row.get(ENTITY_TYPE) == target.kind_properties.get(ENTITY_TYPE, ""):
            return target, target.version
        found = Kinds.of([target.model]).resolve(row)
        if found is None:
            kinds = ", ".join(repr(each.kind) for each in concrete(target))
            raise WrongKind(
                f"{self.origin.origin}: the row {self.address!r} of this partition should be of kind {kinds}, "
                f"and is of {row.get(ENTITY_TYPE, '')!r}",
                (row["PartitionKey"], self.address),
                row.get(ENTITY_TYPE),
            )
        return found

    def patched(self, row: Row) -> Row:
        """
        A row with the changes.

        Raises:
            WrongKind: It is of another kind than the entity must be.
            NotSupported: It is of a newer version than this program knows, and keeps a count otherwise.
            LimitExceeded: A count does not fit its property any more.
        """
        found = self.model_of(row)
        row = dict(row)
        for name, amount in self.deltas.items():
            value = row.get(name)
            small = value is not None and name + ANNOTATION not in row  # an Int32
            if value is None and found is not None:
                value, small = self._begin(name, *found)
            total = number_of(value, name, self.origin.origin, row) + amount
            if not -(2**31) <= total < 2**31 if small else not -(2**63) <= total < 2**63:
                raise LimitExceeded(
                    f"{self.origin.origin}: {name} of the row {self.address!r} would be {total}, which is more than "
                    "its type holds"
                )
            row[name] = total if small else str(total)
            if not small:
                row[name + ANNOTATION] = Edm.INT64.value
        for name, value in self.members.items():
            if value is None:
                row.pop(name, None)
            else:
                row[name] = value
        if self.marks:
            marks = {**marks_of(row), **self.marks}
            marks = {name: mark for name, mark in marks.items() if mark is not None}
            row[MARKS] = msgspec.json.encode(marks, order="sorted").decode()
        return row

    def _begin(self, name: str, schema: "Schema", version: int) -> tuple[int, bool]:
        """What a count begins with that the row does not have yet, and whether it is an Int32."""
        if version > schema.version:
            raise NotSupported(
                f"{self.origin.origin}: the row {self.address!r} of this partition is of version {version} of "
                f"{schema.name}, which this program knows as version {schema.version}, and has no {name!r} to count "
                "in; update this program"
            )
        info = schema.by_property.get(name)
        if info is None or info.default is None:
            return 0, False
        return int(info.default()), info.type.edm is Edm.INT32


def _packed(key: str) -> int:
    """Bytes of a key in a list."""
    return len(key.encode("utf-8")) + 1


def _touched(stored: Row, token: str) -> Operation:
    """A merge of nothing, which fails if the row has changed since it was read."""
    keys = {"PartitionKey": stored["PartitionKey"], "RowKey": stored["RowKey"]}
    return Operation(Verb.MERGE, {**keys, WRITE_TAIL: lengthened(tail_of(stored), token)}, stored["odata.etag"])


def number_of(value: Any, name: str, change: "Change", row: Row) -> int:
    """
    A count or sum as it is stored.

    Args:
        value: What is stored.
        name: The property.
        change: What counts, or asks whether something counts.
        row: The row.

    Raises:
        DecodeError: It is no number.
    """
    try:
        return int(value or 0)
    except (TypeError, ValueError):
        raise DecodeError(
            f"has {value!r} as {name}, which is no number, and {change} needs it; set it to 0, then let "
            "`tableorm audit --repair` count",
            str(row.get(ENTITY_TYPE)),
            (row["PartitionKey"], row["RowKey"]),
        ) from None


def with_tail(row: Row, write: "PlannedWrite") -> Row:
    """A derived row, made for this, with the tokens of what it is derived from: whichever is found proves the rest."""
    tail = write.operation.row.get(WRITE_TAIL) or (write.after or {}).get(WRITE_TAIL)
    if tail is not None:
        row[WRITE_TAIL] = tail
    return row
