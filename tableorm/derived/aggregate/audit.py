"""
What an audit checks of a count or sum: what entities say that they add, and what the entities that hold it have.

Whoever changes what an entity adds writes the holder too. So if the holder has the same ETag before and after all
entities were read, they added exactly that all the time. Many holders of a partition are verified at once.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from contextlib import aclosing
from typing import Any

import attrs

from ...audit.check import WRONG, Check, Claims, FoundRows, VerifyEntity
from ...audit.context import AuditContext, EntitySnapshot, Problem
from ...audit.report import Damage
from ...connection.logger import make_logger
from ...connection.races import Attempts
from ...errors import Conflict, DecodeError, EncodeError, EntityNotFound, OutcomeUnknown, shown
from ...models.kinds import kind_of
from ...models.manifest import AggregateEntry, ManifestEntry, SubtotalEntry, manifest_of, share_address
from ...models.marker_rows import SHARE_KIND, SUBTOTAL_KIND
from ...models.reserved import SUBTOTAL_HEAD
from ...models.schema import FieldInfo, Schema, concrete
from ...models.write_tokens import new_token
from ...stores import Operation, Row, RowAddress, Verb
from ...writes.commit import commit
from ...writes.rows import compare
from ...writes.stages.change import insert_change
from ...writes.stages.encode import encode_surely
from .schema import AggregateSchema, CountRow, count_row_of

_LOG = make_logger("tableorm.audit")


def aggregate_of(context: AuditContext, number: CountRow) -> AggregateSchema | None:
    """
    Return a count or sum across partitions that a row of counts is of; None if this program knows none, or does not
    know which: an upgrade has renamed a total, and there are several.
    """
    if number.kind == SUBTOTAL_KIND:
        holder = number.of
    else:
        assert number.row is not None
        holder = context.at(number.row["PartitionKey"], number.field[1])
    found = [
        each
        for schema in context.all_schemas
        for each in schema.derived_as(AggregateSchema).values()
        if each.deferred and each.target[0].table_name() == holder.table and each.property_of(number.field[0])
    ]

    def fit(each: AggregateSchema) -> tuple[bool, bool]:
        # Several models of a table may hold counts, and a model several of them.
        return each.may_be_in(holder), each.target[1].member.property == number.field[0]

    best = max(found, key=fit, default=None)
    if best is not None and len({each.target[1].name for each in found if fit(each) == fit(best)}) > 1:
        return None
    return best


def claim_on(holder: str, property_: str, amount: int) -> tuple[str, int]:
    """Return the claim that an amount is added to a property of a row."""
    address = _claim_address(holder, property_)
    return address, amount * _factor(address)


def _claim_address(holder: str, property_: str) -> str:
    return f"{holder}\n+{property_}"


def _factor(address: str) -> int:
    """Return what amounts are multiplied by: an odd number, so that no amount but zero becomes zero."""
    return hash(address) | 1


class AggregateCheck(Check):
    """
    The check of what entities add to a count or sum.

    Args:
        context: The rows of the table.
        aggregate: The count or sum of one model.
    """

    def __init__(self, context: AuditContext, aggregate: AggregateSchema) -> None:
        super().__init__(context, aggregate.schema, aggregate.name)
        self.verify_totals = _verify_holders

    def claims(self, snapshot: EntitySnapshot) -> Claims:
        """Claim WRONG where the manifest says another amount, or another holder."""
        noted, due = snapshot.entries(self.name)
        if noted != due:
            return ((snapshot.row["RowKey"], WRONG),)
        return ()

    def contributions(self, snapshot: EntitySnapshot) -> Iterable[tuple[str, str, int]]:
        """Return what the entity adds by its fields."""
        for holder, property_, amount in _amounts_of(snapshot.expected.get(self.name)):
            yield holder, *claim_on(holder, property_, amount)

    def compare(self, snapshot: EntitySnapshot, found: FoundRows) -> Iterable[Problem]:
        """Compare the manifest with the fields; whether the total is right is verified with its holder."""
        noted, due = snapshot.entries(self.name)
        if noted == due:
            return ()
        address = next((holder for holder, _, _ in _amounts_of(due)), None)
        text = f"its manifest says that it {_describe(noted)}, and it {_describe(due)}"
        names = snapshot.manifest.keys() - snapshot.schema.derived.keys()
        former = next((name for name in sorted(names) if snapshot.manifest[name] == due), None)
        if noted is None and former is not None:
            text = (
                f"it {_describe(due)} under the name {shown(former)}, which the model no longer declares; that was "
                f"probably renamed to {self.name}"
            )
        return (Problem(Damage.MANIFEST, self.name, address, text),)


def _describe(entry: ManifestEntry | None) -> str:
    parts = [f"adds {amount} to {name} of {shown(holder)}" for holder, name, amount in _amounts_of(entry)]
    return " and ".join(parts) or "adds nothing"


class TotalHolderCheck(Check):
    """
    The check of a field that holds a count or sum, on the entity that has it.

    Args:
        context: The rows of the table.
        schema: The model that has the field.
        info: The field.
    """

    def __init__(self, context: AuditContext, schema: Schema, info: FieldInfo) -> None:
        super().__init__(context, schema, info.name)
        self._info = info
        self.verify_totals = _verify_holders

    @property
    def identity(self) -> Hashable:
        """Equal for all counts of one field: what they add is added up."""
        return type(self), self.name

    def contributions(self, snapshot: EntitySnapshot) -> Iterable[tuple[str, str, int]]:
        """Take away what the entity holds."""
        if not snapshot.is_current:
            return
        holder = snapshot.row["RowKey"]
        yield holder, *claim_on(holder, self._info.member.property, -_counted_value(snapshot.row, self._info))


_SWEEPS = 6
"""How often all entities of a partition are read for its counts, before these are left as undecided."""


def _amounts_of(entry: ManifestEntry | None) -> Iterable[tuple[str, str, int]]:
    """Return what a manifest entry says that is added: RowKey of the holder, property, amount."""
    if isinstance(entry, SubtotalEntry):
        return [(entry.row_key, entry.field, entry.amount)]
    if not isinstance(entry, AggregateEntry):
        return []
    return [(entry.row_key, name, amount) for name, amount in entry.amounts.items()]


def _counted_value(row: Row, info: FieldInfo) -> int:
    """Return what entities have added to the field of a holder, if it is right: its value less that of a new one."""
    value = row.get(info.member.property)
    return 0 if value is None else int(value) - _initial_value(info)


def _initial_value(info: FieldInfo) -> int:
    return int(info.absent())


def _checked_aggregates(context: AuditContext, schema: Schema) -> dict[str, AggregateSchema]:
    """Return the counts and sums of a model that are checked."""
    return {name: each for name, each in schema.derived_as(AggregateSchema).items() if context.only in (None, name)}


def _held_fields(context: AuditContext, schema: Schema) -> list[FieldInfo]:
    """Return the fields of a model that hold the counts and sums that are checked."""
    found: dict[str, FieldInfo] = {}
    for other in context.all_schemas:
        for aggregate in _checked_aggregates(context, other).values():
            target, info = aggregate.target
            if schema in concrete(target):
                found[info.name] = schema.fields[info.name]
    return list(found.values())


@attrs.define(eq=False)
class _Totals:
    """
    What the entities of a partition add up to.

    Args:
        amounts: By RowKey of the holder, and property.
        adders: By RowKey of the holder, an entity that adds to it, and the declaration.
        subtotals: By RowKey of a subtotal, what manifests say of it.
        unsettled: RowKeys of entities whose manifests say something else than they ought to add.
        unknown: Why nobody knows what the totals of the partition are that differ; None if that is known.
    """

    amounts: defaultdict[tuple[str, str], int] = attrs.Factory(lambda: defaultdict[tuple[str, str], int](int))
    adders: dict[str, tuple[str, AggregateSchema]] = attrs.Factory(dict[str, tuple[str, AggregateSchema]])
    subtotals: dict[str, SubtotalEntry] = attrs.Factory(dict[str, SubtotalEntry])
    unsettled: list[str] = attrs.Factory(list[str])
    unknown: str | None = None


async def _verify_holders(
    context: AuditContext, partition_key: str, holders: Collection[str], verify_entity: VerifyEntity
) -> None:
    """
    Verify the counts and sums that some entities of a partition hold, and repair them.

    Args:
        context: The rows of the table.
        partition_key: The partition.
        holders: RowKeys of the entities.
        verify_entity: Verifies, and repairs, an entity that adds to them.
    """
    left, verified = set(holders), set[str]()
    async for _ in Attempts(context.db, _SWEEPS):
        order = sorted(left)
        before = dict(zip(order, await context.read_all(partition_key, order), strict=True))
        totals = await _add_up(context, partition_key, left, verified)
        if context.repair and totals.unsettled:
            for row_key in totals.unsettled:
                await verify_entity(context.at(partition_key, row_key))
            verified.update(totals.unsettled)
            continue
        for row_key in order:
            if await _verify_holder(context, context.at(partition_key, row_key), before[row_key], totals):
                left.discard(row_key)
        if not left:
            return
    context.counts.leave(len(left))


async def _add_up(
    context: AuditContext, partition_key: str, holders: Collection[str], verified: Collection[str]
) -> _Totals:
    """Add up what all rows of a partition add, also those of other programs, which this one may not know."""
    totals = _Totals()
    async with aclosing(context.rows(partition_key)) as all_rows:
        async for rows in all_rows:
            for row in rows:
                _add_row(context, row, holders, verified, totals)
    return totals


def _add_row(
    context: AuditContext, row: Row, holders: Collection[str], verified: Collection[str], totals: _Totals
) -> None:
    snapshot, row_key = context.snapshot(row), row["RowKey"]
    if snapshot is None:
        if row_key.startswith(SUBTOTAL_HEAD):
            _add_share(context, row, totals)
        if "#" in kind_of(row):
            return
        try:
            manifest: Mapping[str, ManifestEntry] = manifest_of(row)
        except DecodeError:
            manifest = {}
        declared: Mapping[str, AggregateSchema] = {}
    else:
        manifest, declared = snapshot.manifest, _checked_aggregates(context, snapshot.schema)
    for name in {**declared, **manifest}:
        entry = manifest.get(name)
        if snapshot is not None and name in declared and entry != snapshot.expected.get(name):
            due = snapshot.expected.get(name)
            concerned = any(holder in holders for each in (entry, due) for holder, _, _ in _amounts_of(each))
            if concerned and row_key not in verified:
                totals.unsettled.append(row_key)
            # An entry that could not be repaired is taken back as it is when the entity is written next.
            entry = entry if context.repair else due
        for holder, property_, amount in _amounts_of(entry):
            if holder in holders:
                totals.amounts[holder, property_] += amount
                if isinstance(entry, SubtotalEntry):
                    totals.subtotals[holder] = entry
                if name in declared:
                    totals.adders.setdefault(holder, (row_key, declared[name]))


def _add_share(context: AuditContext, row: Row, totals: _Totals) -> None:
    """Add what a total has of a subtotal, if the row of a count is that."""
    try:
        number = count_row_of(row)
    except DecodeError as error:
        if any(each.deferred for schema in context.all_schemas for each in schema.derived_as(AggregateSchema).values()):
            totals.unknown = str(error)
        return
    if number.kind != SHARE_KIND:
        return
    aggregate = aggregate_of(context, number)
    name = None if aggregate is None else aggregate.property_of(number.field[0])
    if name is not None:
        totals.amounts[number.field[1], name] += number.value
    elif number.value:
        totals.unknown = (
            f"{row['RowKey']} is of {number.field[0]}, which an upgrade has renamed; what was added to that moves to "
            "the new name when entities are written or repaired"
        )


async def verify_lone_subtotal(context: AuditContext, address: RowAddress, number: CountRow) -> bool:
    """
    Verify a subtotal, unless entities add to it: then it is verified with these. Return False if it was repaired, or
    written by others meanwhile: look again.
    """
    totals = await _add_up(context, address.partition_key, [address.row_key], ())
    if address.row_key in totals.adders or totals.unsettled:
        return True
    return await _verify_subtotal(context, address, number, totals)


async def _verify_subtotal(
    context: AuditContext, address: RowAddress, number: CountRow | None, totals: _Totals
) -> bool:
    """Verify a subtotal by the totals, and repair it. Return False if it is to be looked at again."""
    entry = totals.subtotals.get(address.row_key)
    if number is None:
        if entry is None or not entry.is_sound:
            return await context.settle(address, None)
        share = await context.read(share_address(entry.holder, address))
        known = 0 if share is None else count_row_of(share).number
        now = CountRow(SUBTOTAL_KIND, entry.holder, (entry.field,), number=known)
    else:
        now = number
    value = totals.amounts.get((address.row_key, now.field[0]), 0)
    if number is not None and value == now.value:
        return await context.settle(address, number.row)
    repair = now.operation(address, value, now.number + 1, new_token())
    if not await context.settle(address, now.row, [repair]):
        return False
    text = f"the subtotal of {now.field[0]} is {now.value}, and the entities of its partition make it {value}"
    declared = aggregate_of(context, now)
    if declared is not None:
        problem = Problem(Damage.STALE, declared.name, address.row_key, text)
        context.record(declared.schema, address.beside(""), problem)
        if context.repair:
            await declared.copy(context.db, now.of, address)
    return True


async def _verify_holder(context: AuditContext, address: RowAddress, row: Row | None, totals: _Totals) -> bool:
    """Verify a holder by the totals, and repair it. Return False if it was written meanwhile: look again."""
    row_key = address.row_key
    if row_key.startswith(SUBTOTAL_HEAD):
        try:
            number = None if row is None else count_row_of(row)
        except DecodeError as error:
            adder = totals.adders.get(row_key)
            if adder is not None and row is not None and "#" not in kind_of(row):  # others are reported elsewhere
                problem = Problem(Damage.BLOCKED, adder[1].name, row_key, str(error))
                context.record(adder[1].schema, address.beside(adder[0]), problem)
            return True
        return await _verify_subtotal(context, address, number, totals)
    if row is None:
        return await _verify_absent(context, address, totals)
    snapshot = context.snapshot(row)
    if snapshot is None or not snapshot.is_current:
        return True  # what is wrong with it is reported elsewhere
    problems: list[Problem] = []
    changes: Row = {}
    for info in _held_fields(context, snapshot.schema):
        name = info.member.property
        total = totals.amounts.get((row_key, name), 0)
        if _counted_value(row, info) == total:
            continue
        properties = _encode_total(snapshot.schema, info, total, row)
        changes |= properties or {}
        text = f"{info.name} is {row.get(name)}, and the entities make it {_initial_value(info) + total}"
        problems.append(Problem(Damage.STALE, info.name, row_key, text, rebuilt=properties is not None))
    if problems and totals.unknown is not None:
        _LOG.warning("the totals of %s are left undecided: %s; then audit again", address, totals.unknown)
        context.counts.leave()
        return True
    repairs = [Operation(Verb.MERGE, {**address.keys, **changes}, row["odata.etag"])] if changes else []
    if not await context.settle(address, row, repairs):
        return False
    for problem in problems:
        context.record(snapshot.schema, address, problem)
    return True


def _encode_total(schema: Schema, info: FieldInfo, total: int, row: Row) -> Row | None:
    """
    Return the property of a holder for what entities add; None if its type does not hold that. It is what the entities
    make it, whatever the validator of the field says: that refuses writes, and these have been done.
    """
    try:
        members = schema.encode_some({info.name: _initial_value(info) + total}, [info])
    except EncodeError:
        return None
    compare(row, members, schema)  # an Int32 stays one
    return members


async def _verify_absent(context: AuditContext, address: RowAddress, totals: _Totals) -> bool:
    """Verify that an entity is counted in one that does not exist, both at the same time; insert it if declared so."""
    row_key = address.row_key
    adder = totals.adders.get(row_key)
    if adder is None:
        return await context.settle(address, None)
    by, declared = address.beside(adder[0]), adder[1]
    first = await context.read(by)
    missing = await context.settle(address, None)
    if first is None or not missing or not await context.settle(by, first):
        return False
    snapshot = context.snapshot(first)
    if snapshot is None or not _adds_to(snapshot, declared, row_key):
        return False
    target, create = declared.target[0], declared.create
    repaired = create and context.repair
    if repaired:
        holder: Any = declared.make_holder(address.partition_key, row_key)
        try:
            context.counts.requests += 1
            await commit(context.db, (encode_surely(insert_change(holder)),))
        except (Conflict, EntityNotFound, OutcomeUnknown):
            return False
    text = (
        f"it is counted in the {target.name} {shown(row_key)} of this partition, which does not exist; so may be others"
    )
    problem = Problem(Damage.MISSING if create else Damage.DANGLING, declared.name, row_key, text)
    context.record(snapshot.schema, by, problem)
    return not repaired  # a holder that was inserted is verified next


def _adds_to(snapshot: EntitySnapshot, declared: AggregateSchema, row_key: str) -> bool:
    return any(holder == row_key for holder, _, _ in _amounts_of(snapshot.expected.get(declared.name)))
