"""
Stages 8 to 10, place, check and execute: writes and their effects become operations of one table and partition, which
pass no limit of the service; then they are sent, new ETags are put into the entities, and an error is reported where it
came from.
"""

import asyncio
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NoReturn
from urllib.parse import quote

import msgspec
from msgspec import structs

from ...connection.connection import Connection
from ...connection.period_tables import make_missing_table
from ...connection.translate import translate, with_fault
from ...errors import LimitExceeded, TableOrmError, TransactionFailed
from ...models.entity import Entity
from ...models.property_bag import PropertyBag, note_written
from ...models.property_types import Member
from ...models.reserved import MANIFEST, NOT_PROPERTIES, OPENED
from ...models.schema import Schema
from ...models.state import STATE, UNSTORED, EntityState
from ...models.write_tokens import newest_token
from ...outbox.decision import Decision
from ...protocol.codes import LOST_RACE, Code, Fault
from ...protocol.edm import ANNOTATION, SYSTEM_MEMBERS, timestamp_of_etag
from ...protocol.limits import (
    MAX_ENTITY_BYTES,
    MAX_TRANSACTION_BYTES,
    MAX_TRANSACTION_OPERATIONS,
    MAX_VALUE_BYTES,
    check_key,
    check_row,
    check_sizes,
    entity_size,
    value_size,
)
from ...stores import Operation, Row, Verb, clean_row
from ..maintainer import Fill
from ..patch import without
from ..plan import (
    Change,
    DecisionEffect,
    Effect,
    PlannedWrite,
    Refusal,
    SendOptions,
    WritePlan,
    check_allowed,
    in_transaction,
    refuse_before_sending,
)
from ..rows import rebased
from ..subject import forget
from .derive import Derived
from .lost_replies import InDoubt, look_at_decision, resolve
from .prepare import filled_values
from .seal import seal_with_keys, sealed, split_once

FoundRows = Mapping[Any, Row | None]
"""Rows that were read, by RowKey; those of other partitions by address."""

# Below this many characters nothing of a row of a model can pass a limit, so nothing has to be measured: a character
# is 4 bytes at most, and what is of fixed size is at most 252 properties of 16 bytes with names of 255 characters, far
# from 1 MiB.
_LIGHT = MAX_VALUE_BYTES // 4

_SHORT = 2048  # characters that need no measuring: each is at most six bytes of JSON

_FEW = 32  # writes of so many characters that are never too much: each has 114 KiB at most, keys and names included

_MEMBER_BYTES = 300  # a name of 255 characters, and a value of fixed size

_HEADERS = 1024  # of an operation in the body of a transaction, with the address of the account


def plan_derived(derived: Derived, found: FoundRows) -> WritePlan:
    """Return the plan of writes and their effects, to explain them. Takes and raises what `plan_sealed` does."""
    writes, decision = _gather(derived, found)
    return plan_writes(writes, decision=decision)


async def plan_sealed(db: Connection, derived: Derived, found: FoundRows) -> WritePlan:
    """
    Return the plan of writes and their effects, as they are sent.

    Args:
        db: Where to.
        derived: What `derive` made.
        found: The rows that had to be read.

    Raises:
        ReferenceNotFound: An entity that is counted in, or referred to, does not exist.
        LimitExceeded: A limit of the service would be passed.
        TransactionFailed: One of these errors, in a transaction.
        EncryptionError: A row cannot be encrypted.
    """
    writes, decision = _gather(derived, found)
    if [write for write in derived.writes if write.change.schema is not None and write.change.schema.keyed is not None]:
        writes = [*await seal_with_keys(db, writes)]
    return plan_writes(writes, decision=decision)


def _gather(derived: Derived, found: FoundRows) -> tuple[list[PlannedWrite], Decision | None]:
    """Return writes with their effects, and the decision that the last of them writes."""
    writes = list(derived.writes)
    for fill in derived.fills:
        number = next(n for n, write in enumerate(writes) if write.row_key == fill.row_key)
        writes[number] = _fill(writes, number, fill, found)
    for effect in derived.effects.values():
        writes += _plan_effect(derived, effect, found.get(effect.row_key))
    decision = None
    if derived.deferred:
        works = tuple(each.work for each in derived.deferred)
        decision = Decision(partition_key=writes[0].change.partition_key, token=derived.claim, works=works)
        writes.append(_decision_write(derived, decision))
    return writes, decision


def _decision_write(derived: Derived, decision: Decision) -> PlannedWrite:
    """Return the insert of a decision row."""
    origin = derived.deferred[0].origin
    try:
        row = decision.to_row()
    except TableOrmError as error:
        refuse_before_sending(origin, error)
    write = _effect_write(derived, DecisionEffect(row["RowKey"], origin), Operation(Verb.INSERT, row), None)
    return structs.replace(write, token=decision.token, weight=None)


def _plan_effect(derived: Derived, effect: Effect, stored: Row | None) -> list[PlannedWrite]:
    if stored is not None:
        check_allowed(effect, stored)
    try:
        operation = effect.operation(stored, derived.token)
        if operation is None:
            return []
        further = effect.further_operations(stored, derived.token) if effect.inserts else ()
    except TableOrmError as error:
        refuse_before_sending(effect.origin, error)
    base = newest_token(stored) or None
    return [
        _effect_write(derived, effect, operation, base),
        *[_effect_write(derived, effect, each, None) for each in further],
    ]


def _effect_write(derived: Derived, effect: Effect, operation: Operation, base: str | None) -> PlannedWrite:
    origin, row = effect.origin, None if operation.verb is Verb.DELETE else operation.row
    weight: int | None = 0
    if row is not None:
        weight = origin.weight
        weight = None if weight is None or effect.reads else weight + len(effect.row_key)
    return PlannedWrite(
        operation=operation,
        change=origin.change,
        index=origin.index,
        transaction=origin.transaction,
        after=row,
        weight=weight,
        partial=operation.verb is Verb.MERGE,
        token=None if row is None else derived.token,
        base=base,
        first=origin.first,
        effect=effect,
    )


def _fill(writes: Sequence[PlannedWrite], number: int, fill: Fill, found: FoundRows) -> PlannedWrite:
    """Return a write with the part that is made from another row, as that is stored or will be by these writes."""
    write = writes[number]
    source: Row | None = None
    if fill.source is not None:
        same = next((each for each in writes if each.row_key == fill.source), None)
        source = found.get(fill.source) if same is None else same.after
    try:
        return fill.apply_to(write, source)
    except TableOrmError as error:
        refuse_before_sending(write, error)


def plan_writes(writes: Sequence[PlannedWrite], *, decision: Decision | None = None) -> WritePlan:
    """
    Return the plan of some writes, each of another row: of one table and partition, and within the service's limits.

    Args:
        writes: What is to be sent.
        decision: The decision that the last of them writes; None if nothing is left to do in other partitions.

    Raises:
        LimitExceeded: A single write passes a limit; names model, field, limit and actual size.
        TransactionFailed: A write of a transaction passes a limit, the transaction as a whole is too large, or a write
            is of another partition than the first; `index` counts the changes.
    """
    first = writes[0].change
    staged = first.schema is not None and bool(first.schema.stages)
    plan = WritePlan(first.table, first.partition_key, tuple(writes), decision, staged)
    for write in writes:
        # What is derived from the first change has that change too.
        if write.change is not first:
            _check_partition(plan, write)
            staged = staged or (write.change.schema is not None and bool(write.change.schema.stages))
    split = staged and any(map(_is_split, writes))
    if staged:
        writes = [split_once(write) for write in writes]
        plan = structs.replace(plan, writes=tuple(writes), staged=True)
    short = len(writes) <= _FEW and not split
    judged: dict[int, PlannedWrite] = {}
    for number, write in enumerate(writes):
        if write.weight is None or write.weight > _SHORT:
            short = False
            if not is_light(write.weight) and not _is_judged(write):
                _check_row(plan, write)
                judged[number] = _as_judged(write)
    if judged:
        plan = structs.replace(plan, writes=tuple(judged.get(number, write) for number, write in enumerate(writes)))
    if not short and (len(writes) > 1 or split):
        _check_transaction(plan)
    return plan


def is_light(weight: int | None) -> bool:
    """Return whether nothing of a write of this weight, see `models/codegen`, alone can pass a limit."""
    return weight is not None and weight <= _LIGHT


def most_bytes(write: PlannedWrite) -> int:
    """Bytes at most of a write in the body of a transaction: its rows, and around each headers and the URL."""
    if write.change.schema is None or not write.change.schema.stages:
        return most_row_bytes(write.operation.row, write.weight)
    return sum([most_row_bytes(operation.row, write.weight) for operation in sealed(write)])


def most_row_bytes(row: Row, weight: int | None = None) -> int:
    """Return the bytes at most of the write of a row in the body of a transaction, headers and URL included."""
    # A character of a key is at most four bytes, each three characters of the URL.
    around = _HEADERS + 12 * (len(row["PartitionKey"]) + len(row["RowKey"]))
    if weight is not None and weight <= _SHORT:
        return around + 6 * weight + _MEMBER_BYTES * len(row)
    try:
        return around + len(msgspec.json.encode(row))
    except (TypeError, ValueError):
        return around + len(json.dumps(row))  # half of a surrogate pair, which was read, is sent as an escape


def _is_split(write: PlannedWrite) -> bool:
    return write.change.schema is not None and write.change.schema.split is not None


def _check_row(plan: WritePlan, write: PlannedWrite) -> None:
    if write.after is None:
        return
    for operation in sealed(write):
        # Of a row that is known in part only what is sent can be judged.
        whole = not write.partial and operation is write.operation
        _check_operation(plan, write, write.after if whole else operation.row)


def _check_operation(plan: WritePlan, write: PlannedWrite, row: Row) -> None:
    try:
        if write.operation.canonical:  # made by the encoder, so that only the keys and the size can be wrong
            check_key("PartitionKey", row["PartitionKey"])
            check_key("RowKey", row["RowKey"])
            check_sizes(row)
        else:
            check_row(row, read=_read_row(write.change))
    except Fault as fault:
        error = translate(_named(fault, write), str(write.origin), plan.table, write.origin.subject)
        if isinstance(error, LimitExceeded):
            _measure(error, fault, write, row)
        if not write.transaction:
            raise error from None
        raise in_transaction(write.origin, write.index, error) from error


def _read_row(change: Change) -> Row | None:
    """Return the values that were read of the row of a change: by its subject before, and for this write."""
    before, stored = change.before, change.stored
    if stored is None or before is None or stored is before:
        known = stored or before
        return None if known is None else known.row
    return before.row | stored.row


def _as_judged(write: PlannedWrite) -> PlannedWrite:
    """Return a write of an entity or bag that was judged here, so that the store does not judge its values again."""
    operation, after = write.operation, write.after
    row = operation.row
    if write.sent is not None:
        return structs.replace(write, sent=(operation, *map(_as_checked, sealed(write))))
    if operation.canonical or write.effect is not None or after is None:
        return write
    if not write.partial and after is not row and not row.items() <= after.items():
        return write
    checked = _as_checked(operation)
    return write if checked is operation else structs.replace(write, operation=checked)


def _as_checked(operation: Operation) -> Operation:
    row = operation.row
    if clean_row(row, row["PartitionKey"], row["RowKey"]) is not row:
        return operation
    return structs.replace(operation, canonical=True)


def _is_judged(write: PlannedWrite) -> bool:
    return write.weight is None and write.effect is None and write.operation.canonical


def _measure(error: LimitExceeded, fault: Fault, write: PlannedWrite, row: Row) -> None:
    """Note in an error which field of an entity is too large, or its row, and by how much."""
    schema, name = write.change.schema, fault.property or ""
    member = None if schema is None else schema.by_property.get(name)
    error.model, error.field = write.change.model, name if member is None else member.path
    if fault.code == Code.PROPERTY_VALUE_TOO_LARGE:
        error.limit, error.size = MAX_VALUE_BYTES, value_size(row[name], row.get(name + ANNOTATION))
    elif fault.code == Code.ENTITY_TOO_LARGE:
        error.limit, error.size = MAX_ENTITY_BYTES, entity_size(row)


def _remedy(fault: Fault, write: PlannedWrite, schema: Schema, member: Member) -> str:
    """Return what to say of a value that is too large for a property, and could be stored in several."""
    long = member.type.json_text or member.type.annotation in (str, bytes)
    if fault.code != Code.PROPERTY_VALUE_TOO_LARGE or not long:
        return ""
    info, name = schema.fields[member.field], member.property
    row = next((operation.row for operation in sealed(write) if name in operation.row), write.after or {})
    size = value_size(row[name], row.get(name + ANNOTATION))
    # A resolver encrypts further values; it would not encrypt a blob.
    is_sealed = info.encrypted or (schema.keyed is not None and (write.after or row).get(name) != row[name])
    chunked = "encrypted(chunked=True), or encrypted() with" if is_sealed else "field(chunked=True) or"
    place = "" if info.shape is None else "another field for it, with "
    return f" It has {size} bytes, of {MAX_VALUE_BYTES}; declare {place}{chunked} Mapped[Blob]."


def _named(fault: Fault, write: PlannedWrite) -> Fault:
    """Return a fault that says which field, or what is derived from the entity, is too much."""
    schema, hint = write.change.schema, None if write.effect is None else write.effect.limit_hint(fault)
    member = None if schema is None else schema.by_property.get(fault.property or "")
    if fault.property == MANIFEST:
        message = (
            f"{fault.message} There the entity {write.operation.row['RowKey']!r} notes what is derived from it, as who "
            "holds copies of it: too many do; let fewer refer to it"
        )
    elif hint is not None:
        message = f"{fault.message} {hint}"
    elif schema is not None and member is not None:
        message = f"field {write.change.model}.{member.path}: {fault.message}{_remedy(fault, write, schema, member)}"
    elif fault.code in (Code.ENTITY_TOO_LARGE, Code.TOO_MANY_PROPERTIES) and schema is not None and schema.split:
        message = f"{fault.message} {schema.split.hint()}"
    else:
        return fault
    return Fault(fault.code, message, fault.index, fault.property)


def _check_transaction(plan: WritePlan) -> None:
    writes = [write for write in plan.writes for _ in sealed(write)] if plan.staged else plan.writes
    if len(writes) > MAX_TRANSACTION_OPERATIONS:
        derived = sum(write.effect is not None for write in writes)
        hint = f"; {derived} of them write what is derived from its entities" if derived else ""
        if writes[0].transaction:
            hint += "; use several transactions, or db.bulk(), which divides its operations"
        _refuse_size(
            writes[MAX_TRANSACTION_OPERATIONS],
            f"the transaction has {len(writes)} operations, {MAX_TRANSACTION_OPERATIONS} are allowed{hint}",
            Code.INVALID_INPUT,
            (MAX_TRANSACTION_OPERATIONS, len(writes)),
        )
    if sum(map(most_bytes, plan.writes)) <= MAX_TRANSACTION_BYTES:
        return
    total = 0
    for write, operation in ((each, operation) for each in plan.writes for operation in sealed(each)):
        row = operation.row
        keys = quote(row["PartitionKey"], safe="") + quote(row["RowKey"], safe="")
        total += _HEADERS + len(keys) + len(msgspec.json.encode(row))
        if total > MAX_TRANSACTION_BYTES:
            _refuse_size(
                write,
                f"up to here the transaction has {total} bytes with the headers of its operations, "
                f"{MAX_TRANSACTION_BYTES} are allowed",
                Code.REQUEST_BODY_TOO_LARGE,
                (MAX_TRANSACTION_BYTES, total),
            )


def _refuse_size(write: PlannedWrite, problem: str, code: Code, sizes: tuple[int, int]) -> NoReturn:
    """Refuse a transaction that is too large. Of the sizes the first is the limit, the second how much there is."""
    message = problem if write.transaction else f"{write.origin}, with all of its rows: {problem}; nothing was sent"
    error = LimitExceeded(message, code, limit=sizes[0], size=sizes[1])
    refuse_before_sending(write, error)


def _check_partition(plan: WritePlan, write: PlannedWrite) -> None:
    change = write.origin
    if change.table != plan.table or change.partition_key != plan.partition_key:
        error = TableOrmError(
            f"{change} is in table {change.table}, partition {change.partition_key!r}, and the transaction in table "
            f"{plan.table}, partition {plan.partition_key!r}; a transaction has one of each",
            "CommandsInBatchActOnDifferentPartitions",
        )
        raise in_transaction(change, write.index, error, "; nothing was sent") from error


async def execute(db: Connection, plan: WritePlan, options: SendOptions) -> Sequence[str | None]:
    """
    Send a plan, again where that is needed, and put the new ETags into the entities.

    Args:
        db: Where to.
        plan: What.
        options: How.

    Returns:
        The ETag that each row has got; None if it has none, or may have been changed since.

    Raises:
        Fault: It was surely not applied; `refusal` makes the user's error of it.
        InDoubt: The reply was lost, and nothing proves what happened.
    """
    writes = plan.writes
    if options.sending is not None:
        options.sending()
    begun = asyncio.get_running_loop().time()
    # A single operation of a transaction is sent as one too.
    send = _send_one if len(writes) == 1 and not options.transaction else _send_all
    try:
        etags = await send(db, plan)
    except Fault as fault:
        if not fault.transient:
            raise
        if not all(write.change.repeat for write in writes):
            options = structs.replace(options, repeat=False)
        try:
            applied = await resolve(db, plan, fault, begun=begun, options=options, send=send)
        except InDoubt as doubt:
            applied = await look_at_decision(db, doubt)
        for write, each in zip(writes, applied, strict=True):
            if write.effect is None:
                remember(write, each.etag, superseded=each.superseded)
        return [None] * len(writes)
    for write, etag in zip(writes, etags, strict=True):
        if write.effect is None:
            remember(write, etag)
    return etags


async def _send_one(db: Connection, plan: WritePlan, attempt: int = 1) -> list[str | None]:
    write = plan.writes[0]
    operations = sealed(write, sending=True) if plan.staged else (write.operation,)
    if len(operations) > 1:
        return await _send_all(db, plan, attempt)
    store, counts = db.sending(write.operation.verb, write.change.model, attempt=attempt)
    if attempt == 1:
        counts.operations += 1
    try:
        return [await store.write(plan.table, operations[0])]
    except Fault as fault:
        await make_missing_table(db, plan.table, operations, fault, attempt)
    return await _send_one(db, plan, attempt + 1)


async def _send_all(db: Connection, plan: WritePlan, attempt: int = 1) -> list[str | None]:
    store, counts = db.sending("transaction", plan.writes[0].change.model, attempt=attempt)
    if plan.staged:
        operations = [operation for write in plan.writes for operation in sealed(write, sending=True)]
    else:
        operations = [write.operation for write in plan.writes]
    if attempt == 1:
        counts.operations += len(operations)
    try:
        etags = await store.transact(plan.table, operations)
    except Fault as fault:
        if len(operations) > len(plan.writes):
            _point_to_write(plan, fault)
        await make_missing_table(db, plan.table, operations, fault, attempt)
    else:
        return etags if len(etags) == len(plan.writes) else [etags[at] for at in _starts(plan)]
    return await _send_all(db, plan, attempt + 1)


def _starts(plan: WritePlan) -> list[int]:
    """Return the positions of the operations on the rows of the writes themselves, among all that are sent."""
    return [*accumulate((len(sealed(write)) for write in plan.writes[:-1]), initial=0)]


def _point_to_write(plan: WritePlan, fault: Fault) -> None:
    """
    Let a fault have the index of a write in place of that of an operation. A further row that is not as the first one
    says, which has its ETag, was changed by another program.
    """
    if fault.index is None:
        return
    starts, at = _starts(plan), fault.index
    fault.index = bisect_right(starts, at) - 1
    if at not in starts and fault.code in LOST_RACE:
        first = plan.writes[fault.index].row_key
        fault.message = (
            f"a row that belongs to {first!r} is not as that one says, since another program has written or deleted "
            "it: read them as property bags and repair them"
        )
        fault.code = str(Code.TORN_ROWS)


def claim(doubt: InDoubt) -> list[Refusal]:
    """
    Put the ETags that were found into the entities of those writes of a plan in doubt which are as they should be.

    Returns:
        The other writes, each with its error.
    """
    unknown: list[Refusal] = []
    for number, write in enumerate(doubt.plan.writes):
        applied = doubt.as_wanted(number)
        if applied is None:
            unknown.append((write, doubt.error_of(number)))
        elif write.effect is None:
            remember(write, applied.etag, superseded=applied.superseded)
    return unknown


def refusal(plan: WritePlan, fault: Fault) -> TableOrmError:
    """
    Return the error of a plan that was surely not applied, with where it came from.

    Args:
        plan: What was sent.
        fault: What the store said.
    """
    writes = plan.writes
    at = fault.index if fault.index is not None and fault.index < len(writes) else None
    write = writes[at or 0]
    error = refusal_of(write, fault)
    if not write.transaction:
        return error
    if at is None:
        what = f"transaction of {len(writes)} operations in {plan.table}, partition {plan.partition_key!r}"
        translated = translate(fault, what, plan.table)
        whole = TransactionFailed(translated.message, translated.code)
        whole.fault = fault
    else:
        whole = in_transaction(write.origin, write.index, error, "; nothing was applied")
    whole.__cause__ = error
    return whole


def refusal_of(write: PlannedWrite, fault: Fault) -> TableOrmError:
    """Return the error of a write that a store refuses, which names the entity, and the field if the fault tells it."""
    change = write.origin
    keys = change.partition_key, change.row_key
    error = translate(_named(fault, write), str(change), change.table, change.subject, keys)
    return with_fault(error, fault)


def remember(write: PlannedWrite, etag: str | None, *, superseded: bool = False) -> None:
    """Let the subject know its row as it was written."""
    change, row = write.change, write.after
    subject, schema, partial = change.subject, change.schema, write.partial
    if schema is not None and schema.split is not None and row is not None:
        row = schema.split.noted(row, change.stored_row)
    if row is not None and change.is_read and (hidden := _not_shown(change, row)):
        row, partial = without(row, hidden), True
    if schema is not None and schema.keyed is not None and row is not None and write.sealed is not None:
        row[OPENED] = schema.keyed.noted(write.sealed[1], change.stored_row)
    superseded = superseded or write.stale
    if row is not None and etag is not None and not superseded:
        row["odata.etag"] = etag
        if schema is None:  # the time of an entity is told by its ETag
            row["Timestamp"] = timestamp_of_etag(etag)
    if schema is None:
        if isinstance(subject, PropertyBag):
            note_written(subject, row, partial=partial)
        return
    if not isinstance(subject, Entity):
        return  # a key
    if row is None:
        forget(subject)
        return
    own = subject.__dict__
    if change.made:
        own.update(filled_values(change.made, own))
    if schema.maintained and not write.partial and write.after is not None:
        current = schema.decode(write.after).__dict__
        own.update((info.name, current[info.name]) for info in schema.maintained)
    state: EntityState = own.get(STATE, UNSTORED)
    if state.extra is not None:
        _update_extra(change, schema, state.extra.row, row)
    partial = partial or (state.partial and not all(name in own for name in schema.fields))
    own[STATE] = EntityState(
        stored=row,
        partial=partial,
        loaded=state.loaded if partial else None,
        # Only a whole row makes it one of the present version.
        upgraded=change.stored is not None and change.stored.upgraded and write.operation.verb is Verb.MERGE,
        superseded=superseded,
        found_at=state.found_at,
        extra=state.extra,
    )


def _not_shown(change: Change, row: Row) -> frozenset[str]:
    """
    Return the properties of a row that was read for a write, and that its subject shows as absent: of what the row has
    and the subject has not, its next save must not think that it was removed.
    """
    shown = change.shown or {}
    names = {name for name in row if name not in shown and name not in NOT_PROPERTIES and ANNOTATION not in name}
    if change.schema is not None:
        # An entity says nothing of a field that was not loaded, nor of what its model does not know.
        names &= {name for name, member in change.schema.by_property.items() if member.field in change.values}
    return frozenset(names)


def _update_extra(change: Change, schema: Schema, members: Row, row: Row) -> None:
    """
    Let the mapping of unknown properties that the user has been given be as the row is, with what was changed in it
    and not written yet.

    Args:
        change: What was written.
        schema: The schema of the entity.
        members: The members of the mapping, which are changed in place.
        row: The row as it was written.
    """
    now = without(members, SYSTEM_MEMBERS)
    old = schema.unknown(change.shown or {})
    keys = {name: members[name] for name in ("PartitionKey", "RowKey")}
    members.clear()
    members.update({**keys, **rebased(schema.unknown(row), old, now)})
