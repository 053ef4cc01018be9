"""
Part of stage 5: entities that an effect changes, and that have to be written in full for it.

That which keeps a count is made where it is missing, if the count says so. One of an older version is upgraded, as by
any first write: else the upgrade would later run over what was added. Both are writes of entities as the user's are, in
the same transaction, so that whatever is derived from these is right too.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from ..errors import DecodeError, LimitExceeded, NotSupported, ReferenceNotFound, WrongKind
from ..models.kinds import KindSet
from ..models.manifest import ManifestEntry, manifest_of, manifest_text
from ..models.reserved import ENTITY_TYPE, MANIFEST, WRITE_TOKENS
from ..models.schema import concrete
from ..protocol.codes import Code
from ..protocol.edm import ANNOTATION, Edm
from ..stores import Operation, Row, Verb
from ..writes.effect import Effect, touch_operation
from ..writes.plan import PlannedWrite
from ..writes.stages.change import insert_change, rebuild_change
from ..writes.stages.encode import encode
from ..writes.write_tokens import tokens_of, with_token

if TYPE_CHECKING:
    from ..models.entity import Entity
    from ..models.schema import Schema
    from ..writes.plan import Change

__all__ = ["Patch", "number_of", "written_beside"]


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
    marks: Mapping[str, ManifestEntry | None] = msgspec.field(default_factory=dict[str, ManifestEntry | None])
    needed: str | None = None
    create: "Callable[[], Entity] | None" = None
    target: "Schema | None" = None
    reads = True

    @property
    def idle(self) -> bool:
        """Whether it changes nothing, as what is taken back and added again."""
        return not (any(self.deltas.values()) or self.members or self.marks)

    def merge_with(self, other: Effect) -> Effect:
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
            return touch_operation(stored, token) if any(self.marks.values()) else None
        tail = with_token(tokens_of(stored), token)
        if gone:
            whole = {name: value for name, value in row.items() if name not in ("odata.etag", "Timestamp")}
            return Operation(Verb.REPLACE, {**whole, WRITE_TOKENS: tail}, stored["odata.etag"])
        # A value is never sent without its type.
        for name in [name for name in changed if name + ANNOTATION in row]:
            changed[name + ANNOTATION] = row[name + ANNOTATION]
        keys = {"PartitionKey": stored["PartitionKey"], "RowKey": self.address}
        return Operation(Verb.MERGE, {**keys, **changed, WRITE_TOKENS: tail}, stored["odata.etag"])

    def apply_to(self, write: "PlannedWrite") -> "PlannedWrite":
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
        found = KindSet.of([target.model]).resolve(row)
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
            marks = {**manifest_of(row), **self.marks}
            row[MANIFEST] = manifest_text({name: mark for name, mark in marks.items() if mark is not None})
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


def written_beside(patch: Patch, stored: Row | None, token: str) -> PlannedWrite | None:
    """
    The write of the entity that a patch is of; None if the patch is enough.

    Args:
        patch: What changes.
        stored: The entity's row; None if there is none.
        token: The write token of the transaction.

    Raises:
        WrongKind: The row is of another kind.
        DecodeError: The row does not fit its model.
        TableOrmError: What an insert of the entity raises of its values.
    """
    if stored is None:
        if patch.create is None:
            return None
        write = encode(insert_change(patch.create()), 0, token)
    else:
        found = patch.model_of(stored)
        if found is None or found[1] >= found[0].version:
            return None
        entity: Any = KindSet.of([found[0].model]).load(stored.copy())
        write = encode(rebuild_change(entity, ()), 0, token)
    return None if write is None else structs.replace(write, index=patch.origin.index)
