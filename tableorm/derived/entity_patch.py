"""
A change of another entity by an effect: what is added to it, what it holds copies of, and what its manifest says.

An entity that holds a count is made where it is missing, if the count is declared so. An entity of an older version is
upgraded first, as by any write: otherwise the upgrade would run later, over what was added. Both are writes of entities
as the user's are, in the same transaction, so that whatever is derived from them is right too.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import attrs
import msgspec
from msgspec import structs

from ..errors import EncodeError, LimitExceeded, NotSupported, ReferenceNotFound, WrongKind, shown
from ..models.key import Storable
from ..models.kinds import KindSet
from ..models.manifest import ManifestEntry, SourceEntry, manifest_of, manifest_text
from ..models.marker_rows import MoveState, is_marker
from ..models.property_types import REFUSALS
from ..models.reserved import ENTITY_TYPE, MANIFEST, WRITE_TOKENS
from ..models.schema import FieldInfo, Schema, concrete
from ..models.write_tokens import tokens_of, with_token
from ..protocol.codes import Code
from ..protocol.edm import ANNOTATION, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, Edm
from ..stores import Operation, Row, Verb, unstamped
from ..writes.maintainer import touch_operation
from ..writes.patch import Value
from ..writes.plan import Effect, Mode, PlannedWrite, Refusal
from ..writes.rows import changes, is_int32
from ..writes.stages.change import insert_change, rebuild_change
from ..writes.stages.derive import stored_number
from ..writes.stages.encode import encode

Share = tuple[PlannedWrite, Mapping[str, int]]
"""A write, and what it adds to properties."""


class EntityPatch(Effect, Value, frozen=True, kw_only=True):
    """
    A change of another entity.

    Args:
        row_key: RowKey of the entity.
        origin: The write that it comes from.
        amounts: What is added to properties.
        members: Properties that get a value, with their annotations; None removes one.
        copies: The same, but for an entity alone whose manifest has this entry.
        replaced: By such an entry, the members as they were till now; only properties that have these values are copies
            of them. Without them all are.
        entries: Entries of its manifest; None removes one.
        needed: What to say if there is no such entity; None if there need not be one.
        create: Makes the entity if there is none; None if it is not made.
        target: The model of the entity; None if this program does not know it.
        shares: If it is of several writes, what each of them adds.
    """

    row_key: str
    origin: PlannedWrite
    amounts: Mapping[str, int] = {}
    members: Row = msgspec.field(default_factory=dict[str, Any])
    copies: Mapping[SourceEntry, Row] = {}
    replaced: Mapping[SourceEntry, Row] = {}
    entries: Mapping[str, ManifestEntry | None] = {}
    needed: str | None = None
    create: Callable[[], Storable] | None = None
    target: Schema | None = None
    shares: tuple[Share, ...] = ()
    reads = True

    @property
    def idle(self) -> bool:
        """Whether it changes nothing: for example, it takes back what it adds."""
        return not (any(self.amounts.values()) or self.members or self.copies or self.entries)

    def merge_with(self, other: Effect) -> Effect:
        """Return a patch that does both, this one first."""
        assert isinstance(other, EntityPatch)
        return structs.replace(
            other,
            amounts=_sum(self.amounts, other.amounts),
            members={**self.members, **other.members},
            copies={**self.copies, **other.copies},
            replaced={**self.replaced, **other.replaced},
            entries={**self.entries, **other.entries},
            needed=other.needed or self.needed,
            create=other.create or self.create,
            target=other.target or self.target,
            shares=(*self._shares(), *other._shares()),
        )

    def _shares(self) -> tuple[Share, ...]:
        return self.shares or ((self.origin, self.amounts),)

    def refused(self, stored: Row) -> list[Refusal]:
        """Return the writes after which a count or sum would break the validator of its field."""
        found = self._model_of(stored) if any(self.amounts.values()) else None
        if found is None or found[1] != found[0].version:
            return []
        schema = found[0]
        bounded = [name for name in self.amounts if _bound_of(schema, name) is not None]
        if not bounded:
            return []
        # What the same transaction writes, and the store has not given an ETag yet, is sealed when it is sent.
        decode = schema.decode_stored if "odata.etag" in stored else schema.decode
        probe = decode(self._patched(stored))
        start = {name: self._number(stored, name, found)[0] for name in self.amounts}

        def find_fault(now: Mapping[str, int], amounts: Mapping[str, int]) -> tuple[str, Exception] | None:
            faults = ((name, _why_refused(probe, name, now, amounts)) for name in bounded if amounts.get(name))
            return next(((name, fault) for name, fault in faults if fault is not None), None)

        if find_fault(start, self.amounts) is None:
            return []  # what counts is the end of the transaction
        refused: list[Refusal] = []
        for origin, amounts in _by_operation(self._shares()):
            fault = find_fault(start, amounts) if _may_be_refused(origin) else None
            if fault is None:
                start = _sum(start, amounts)
            else:
                refused.append((origin, self._refusal(schema, origin, fault, start, amounts)))
        return refused

    def _refusal(
        self,
        schema: Schema,
        origin: PlannedWrite,
        fault: tuple[str, Exception],
        start: Mapping[str, int],
        amounts: Mapping[str, int],
    ) -> EncodeError:
        name, error = fault
        value = start[name]
        problem = (
            f"breaks the validator of the field ({error}): {origin.origin} would change the {schema.name} "
            f"{shown(self.row_key)} of this partition from {value} to that"
        )
        refusal = EncodeError(problem, schema.name, schema.by_property[name].field, value + amounts[name])
        refusal.__cause__ = error
        return refusal

    def operation(self, stored: Row | None, token: str) -> Operation | None:
        """Return a merge under the ETag that was read; a replace where a property goes."""
        if stored is None:
            if self.needed is not None:
                key = self.origin.operation.row["PartitionKey"], self.row_key
                raise ReferenceNotFound(f"{self.origin.origin}: {self.needed}", Code.RESOURCE_NOT_FOUND, key)
            return None
        row = self._patched(stored)
        changed, gone = _differences(stored, row)
        if not changed and not gone:
            # Another write may be about to remove the entry that is there already.
            return touch_operation(stored, token) if any(self.entries.values()) else None
        if gone:
            whole = unstamped(row)
            whole[WRITE_TOKENS] = with_token(tokens_of(stored), token)
            return Operation(Verb.REPLACE, whole, stored["odata.etag"])
        return touch_operation(stored, token, changed)

    def apply_to(self, write: PlannedWrite) -> PlannedWrite:
        """Return the user's write with what changes; a delete stays as it is, and is rejected if the row is needed."""
        if write.after is None:
            if self.needed is not None and write.change.schema is None:
                key = write.operation.row["PartitionKey"], self.row_key
                raise ReferenceNotFound(
                    f"{self.origin.origin}: it needs the row {shown(self.row_key)} of this partition, which the same "
                    f"transaction deletes by a {write.change}; leave out one of the two",
                    Code.RESOURCE_NOT_FOUND,
                    key,
                )
            return write
        after, operation = self._patched(write.after), write.operation
        if operation.verb in (Verb.MERGE, Verb.INSERT_OR_MERGE):
            changed, gone = _differences(write.after, after)
            row = after if gone else {**operation.row, **changed}
            verb: Verb = Verb.REPLACE if gone else operation.verb
        else:
            row, verb = after, operation.verb
        return structs.replace(write, operation=Operation(verb, row, operation.if_match), after=after, weight=None)

    def _model_of(self, row: Row) -> tuple[Schema, int] | None:
        """
        Return the model of the entity, and the version of its row; None if this program does not know it.

        Raises:
            WrongKind: The row is of another kind.
        """
        target = self.target
        if target is None and not is_marker(row):
            return None
        kind = row.get(ENTITY_TYPE, "")
        if (
            target is not None
            and target.discriminator == "property"
            and kind == target.kind_properties.get(ENTITY_TYPE)
        ):
            return target, target.version
        found = None if target is None else KindSet.of([target.model]).resolve(row)
        if found is None:
            kinds = "of an entity" if target is None else ", ".join(repr(each.kind) for each in concrete(target))
            raise WrongKind(
                f"{self.origin.origin}: the row {shown(self.row_key)} of this partition should be of kind {kinds}, "
                f"and is of {shown(kind)}",
                (row["PartitionKey"], self.row_key),
                row.get(ENTITY_TYPE),
            )
        return found

    def _patched(self, row: Row) -> Row:
        """
        Return a row with the changes.

        Raises:
            WrongKind: It is of another kind than the entity must be.
            NotSupported: It is of a newer version than this program knows, and keeps a count otherwise.
            LimitExceeded: A count does not fit its property any more.
        """
        found = self._model_of(row)
        row = dict(row)
        for name, amount in self.amounts.items():
            self._add(row, name, amount, found)
        held = manifest_of(row).values() if self.copies else ()
        copies = [self._copies_in(row, entry) for entry in self.copies if entry in held]
        for name, value in chain(self.members.items(), *copies):
            if value is None:
                row.pop(name, None)
            else:
                row[name] = value
        # A row without the entries that go has perhaps been named by mistake, and stays as it is.
        if self.entries and (entries := self._with_entries(row)) != manifest_of(row):
            row[MANIFEST] = manifest_text(entries)
        return row

    def _number(self, row: Row, name: str, found: tuple[Schema, int] | None) -> tuple[int, bool]:
        """Return a count as a row has it, or what it begins with, and whether it is an Int32."""
        value = row.get(name)
        if value is None and found is not None:
            return self._initial(name, *found)
        return stored_number(value, name, self.origin.origin, row), is_int32(value, row.get(name + ANNOTATION))

    def _add(self, row: Row, name: str, amount: int, found: tuple[Schema, int] | None) -> None:
        """
        Add to a count in a row. An Int32 becomes an Int64 if it has to, and the field is declared so.

        Raises:
            LimitExceeded: The sum does not fit its property.
        """
        value, small = self._number(row, name, found)
        total = value + amount
        member = None if found is None else found[0].by_property.get(name)
        if small and member is not None and member.type.edm is Edm.INT64:
            small = INT32_MIN <= total <= INT32_MAX
        if not INT32_MIN <= total <= INT32_MAX if small else not INT64_MIN <= total <= INT64_MAX:
            raise LimitExceeded(
                f"{self.origin.origin}: {name} of the row {shown(self.row_key)} would be {total}, which is more than "
                "its type holds"
            )
        row[name] = total if small else str(total)
        row.pop(name + ANNOTATION, None)
        if not small:
            row[name + ANNOTATION] = Edm.INT64.value

    def _copies_in(self, row: Row, entry: SourceEntry) -> list[tuple[str, Any]]:
        """Return the members of a row that are copies by an entry, with their new values."""
        replaced = self.replaced.get(entry)
        return [
            (name, value)
            for name, value in self.copies[entry].items()
            if replaced is None or row.get(name.partition("@")[0]) == replaced[name.partition("@")[0]]
        ]

    def _with_entries(self, row: Row) -> dict[str, ManifestEntry]:
        entries = {**manifest_of(row), **self.entries}
        return {name: entry for name, entry in entries.items() if entry is not None}

    def _initial(self, name: str, schema: Schema, version: int) -> tuple[int, bool]:
        """Return what a count begins with that the row does not have yet, and whether it is an Int32."""
        if version > schema.version:
            raise NotSupported(
                f"{self.origin.origin}: the row {shown(self.row_key)} of this partition is of version {version} of "
                f"{schema.name}, which this program knows as version {schema.version}, and has no {shown(name)} to "
                "count in; update this program"
            )
        member = schema.by_property.get(name)
        if member is None or schema.fields[member.field].default is None:
            return 0, False
        return int(schema.fields[member.field].absent()), member.type.edm is Edm.INT32

    def before_delete(self, row: Row, maintained: Sequence[FieldInfo]) -> Row:
        """Return the row with what is added to it, and with the manifest that it has then."""
        row, fields = dict(row), {info.member.property: info for info in maintained}
        for name, amount in self.amounts.items():
            if name not in fields:
                continue  # a bag is deleted, which has no model and so no field that others count in
            value = row.get(name)
            value = fields[name].absent() if value is None else value
            row[name] = stored_number(value, name, self.origin.origin, row) + amount
        if self.entries:
            row[MANIFEST] = manifest_text(self._with_entries(row))
        return row

    def full_write(self, stored: Row | None, token: str) -> PlannedWrite | None:
        """Return the insert of the entity if it is to be made, or the upgrade of one of an older version."""
        if stored is None:
            if self.create is None:
                return None
            entity: Any = self.create()
            write = encode(insert_change(entity), 0, token)
        else:
            found = self._model_of(stored)
            if found is None or found[1] >= found[0].version or self._copies_nothing(stored):
                return None
            entity = KindSet.of([found[0].model]).load(stored.copy())
            write = encode(rebuild_change(entity, ()), 0, token)
        return (
            None
            if write is None
            else structs.replace(write, index=self.origin.index, transaction=self.origin.transaction)
        )

    def _copies_nothing(self, row: Row) -> bool:
        """Return whether copies are all that there is to write, and a row says that it holds none of them."""
        if self.amounts or self.members or self.entries:
            return False
        held = manifest_of(row).values()
        return not any(entry in held for entry in self.copies)


def _sum(one: Mapping[str, int], two: Mapping[str, int]) -> dict[str, int]:
    """Return what two changes of properties add together."""
    return {name: one.get(name, 0) + two.get(name, 0) for name in {**one, **two}}


def _by_operation(shares: Sequence[Share]) -> list[Share]:
    """Return what each of the user's operations adds, in order: a move takes from what it adds to."""
    found: dict[int, Share] = {}
    for origin, amounts in sorted(shares, key=lambda share: share[0].index):
        _, earlier = found.get(origin.index, (origin, {}))
        found[origin.index] = origin, _sum(earlier, amounts)
    return list(found.values())


def _may_be_refused(origin: PlannedWrite) -> bool:
    """
    Return whether a write can be rejected for what it adds. A build adds what is there already, one after the other; a
    move that was committed, and is confirmed, was asked before.
    """
    change = origin.change
    return change.mode is not Mode.REBUILD and (change.mark is None or change.mark.state is not MoveState.CONFIRMED)


def _differences(before: Row, row: Row) -> tuple[Row, list[str]]:
    """Return the members of a row that are not as they were, and the names of those that are gone."""
    changed = changes(before, row)
    if row.get(MANIFEST) != before.get(MANIFEST):
        changed[MANIFEST] = row[MANIFEST]
    return changed, [name for name in before if name not in row]


def _bound_of(schema: Schema, name: str) -> Any:
    """Return the attribute of attrs, with its validator, that a property of a maintained field has; None if none."""
    member = schema.by_property.get(name)
    info = None if member is None else schema.fields[member.field]
    if info is None or not info.maintained:
        return None
    attribute = getattr(attrs.fields(cast("Any", schema.model)), info.name)
    return None if attribute.validator is None else attribute


def _why_refused(probe: Any, name: str, now: Mapping[str, int], amounts: Mapping[str, int]) -> Exception | None:
    """
    Return why a count or sum must not be changed; None if it may be.

    A value that broke the validator before, because that was declared later, may come nearer to the default: otherwise
    nobody could repair it by and by.

    Args:
        probe: The entity as it will be; the counts and sums are put into it.
        name: The property of the count or sum.
        now: The counts and sums as they are, by property.
        amounts: What is added to them.
    """
    schema: Schema = probe.__schema__
    start, attribute = schema.fields[schema.by_property[name].field].absent(), _bound_of(schema, name)

    def judge(values: Mapping[str, int]) -> Exception | None:
        probe.__dict__.update({schema.by_property[each].field: value for each, value in values.items()})
        try:
            attribute.validator(probe, attribute, values[name])
        except REFUSALS as fault:
            return fault
        return None

    fault, before = judge(_sum(now, amounts)), now[name]
    if fault is not None and abs(before + amounts[name] - start) < abs(before - start) and judge(now) is not None:
        return None
    return fault
