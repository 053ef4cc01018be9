"""
Stages 5 to 10 of writes that may concern other rows: derive, place, check, execute; and all again if another row was
not as it was taken to be.

That is never the user's fault: a count was changed by somebody else, or a program that knows no indexes has deleted an
index entry. The row is read, its operation corrected, and all is sent again; nothing was applied before.
"""

import asyncio
from collections.abc import Mapping, Sequence

from ..connection.boundary import Boundary
from ..connection.connection import Connection
from ..connection.rows import read_row
from ..connection.translate import translate
from ..errors import Conflict, TableOrmError
from ..models.reserved import COPY_OF
from ..protocol.codes import Code, Fault
from ..stores import Row, Verb
from .maintainer import Fill
from .plan import PLAIN, Effect, PlannedWrite, SendOptions, WritePlan, in_transaction
from .races import ATTEMPTS, pause_of
from .stages.check import plan_writes
from .stages.derive import Derived, derive, derives, refused_before_sending
from .stages.execute import execute, refuse
from .stages.lost_replies import InDoubt

__all__ = ["Found", "check_effects", "commit", "derived_plan"]

_READ_AT_ONCE = 16

_REPLANNED = frozenset(
    {Code.ENTITY_EXISTS, Code.RESOURCE_NOT_FOUND, Code.ENTITY_NOT_FOUND, Code.CONDITION_NOT_SATISFIED}
)

Found = dict[str, Row | None]
"""Rows that were read, by RowKey."""


async def commit(
    db: Connection,
    writes: Sequence[PlannedWrite],
    options: SendOptions = PLAIN,
) -> None:
    """
    Send encoded writes of one partition, with everything that is derived from them.

    Args:
        db: Where to.
        writes: What, one for each row.
        options: How.

    Raises:
        AccessDenied: A row is outside of the connection's boundary.
        TransactionFailed: An operation of a transaction failed; its cause is that operation's error.
        UniqueViolation: Another entity has the value of a unique index.
        OutcomeUnknown: The reply was lost, and nothing proves what happened.
        Conflict: Other rows were changed by others again and again.
        TableOrmError: What a single write raises.
    """
    if db.boundary.narrows:  # asked once more where no verb gets past
        for change in (write.change for write in writes):
            db.boundary.check_row(change.schema, change.table, change.partition_key, change.row_key)
    transaction = options.transaction
    if not any(map(derives, writes)):
        plan = plan_writes(writes, transaction=transaction)
        try:
            await execute(db, plan, options)
        except Fault as fault:
            refuse(plan, fault, transaction=transaction)
        except InDoubt as doubt:
            raise doubt.error() from doubt.fault
        return
    derived, companions = derive(writes, transaction=transaction), list[PlannedWrite]()
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(pause_of(db, attempt) if attempt > 1 else 0)
        check_effects(db.boundary, derived, transaction=transaction)  # before a row of others is read
        waiting = [effect for effect in derived.effects.values() if effect.reads]
        found = await _read(db, derived, waiting) if waiting else {}
        more = _companion_writes(derived, found, transaction=transaction) if waiting and found is not None else None
        if found is None or more:
            companions += more or ()  # otherwise a row was split
            derived = _derive_again(derived, [*writes, *companions], transaction=transaction)
            continue
        plan = derived_plan(derived, found, transaction=transaction)
        try:
            await execute(db, plan, options)
        except Fault as fault:
            if (
                fault.code in _REPLANNED
                and fault.index is not None
                and len(writes) <= fault.index < len(derived.writes)
            ):
                companions.clear()  # somebody else has made or upgraded it
                derived = _derive_again(derived, writes, transaction=transaction)
            else:
                await _correct(db, plan, derived, fault, transaction=transaction)
        except InDoubt as doubt:
            raise doubt.error() from doubt.fault
        else:
            return
    change = writes[0].origin
    raise Conflict(
        f"{change}: lost {ATTEMPTS} races in a row for rows that are derived from it; spread the writers",
        Code.CONDITION_NOT_SATISFIED,
        change.subject,
    )


def check_effects(boundary: Boundary, derived: Derived, *, transaction: bool) -> None:
    """
    Refuse effects on rows outside of a boundary: what is derived is checked as what is written is.

    Raises:
        AccessDenied: A row is outside of it.
        ModelError: Its key does not tell.
        TransactionFailed: One of these errors, in a transaction.
    """
    for effect in derived.effects.values() if boundary.narrows else ():
        change = effect.origin.change
        try:
            boundary.check_derived_row(change.schema, change.table, change.partition_key, effect.address)
        except TableOrmError as error:
            raise refused_before_sending(effect.origin, error, transaction=transaction) from error


def _companion_writes(derived: Derived, found: Found, *, transaction: bool) -> list[PlannedWrite]:
    """Return writes of entities that must be written in full before effects can change them."""
    companions: list[PlannedWrite] = []
    for effect in derived.effects.values():
        try:
            write = effect.full_write(found.get(effect.address), derived.token)
        except TableOrmError as error:
            raise refused_before_sending(effect.origin, error, transaction=transaction) from error
        if write is not None:
            companions.append(write)
    return companions


def _derive_again(derived: Derived, writes: Sequence[PlannedWrite], *, transaction: bool) -> Derived:
    """Derive the effects of writes anew, and keep those that have learnt how their rows are stored."""
    again = derive(writes, transaction=transaction)
    for address, effect in derived.effects.items():
        if effect.survives_replan and type(again.effects.get(address)) is type(effect):
            again.effects[address] = effect
    return again


def derived_plan(derived: Derived, found: Mapping[str, Row | None], *, transaction: bool) -> WritePlan:
    """
    Return the plan of writes and their effects.

    Args:
        derived: What `derive` made.
        found: The rows that had to be read.
        transaction: Whether the user asked for a transaction, and gets its errors.

    Raises:
        ReferenceNotFound: An entity that is counted in, or referred to, does not exist.
        LimitExceeded: A limit of the service would be passed.
        TransactionFailed: One of these errors, in a transaction.
    """
    writes = list(derived.writes)
    for fill in derived.fills:
        number = next(n for n, write in enumerate(writes) if write.operation.row["RowKey"] == fill.row_key)
        writes[number] = _fill(writes, number, fill, found, transaction=transaction)
    for effect in derived.effects.values():
        write = _plan_effect(effect, derived.token, found, transaction=transaction)
        if write is not None:
            writes.append(write)
    return plan_writes(writes, transaction=transaction)


def _plan_effect(
    effect: Effect, token: str, found: Mapping[str, Row | None], *, transaction: bool
) -> PlannedWrite | None:
    origin, stored = effect.origin, found.get(effect.address)
    try:
        operation = effect.operation(stored, token)
    except TableOrmError as error:
        raise refused_before_sending(origin, error, transaction=transaction) from error
    if operation is None:
        return None
    row = None if operation.verb is Verb.DELETE else operation.row
    weight: int | None = 0
    if row is not None:
        weight = origin.weight
        weight = None if weight is None or effect.reads else weight + len(effect.address)
    return PlannedWrite(
        operation=operation,
        change=origin.change,
        index=origin.index,
        after=row,
        weight=weight,
        partial=operation.verb is Verb.MERGE,
        token=None if row is None else token,
        first=origin.first,
        effect=effect,
    )


def _fill(
    writes: Sequence[PlannedWrite], number: int, fill: Fill, found: Mapping[str, Row | None], *, transaction: bool
) -> PlannedWrite:
    """Return a write with the part that is made from another row, as that is stored or will be by these writes."""
    write = writes[number]
    source: Row | None = None
    if fill.source is not None:
        same = next((each for each in writes if each.operation.row["RowKey"] == fill.source), None)
        source = found.get(fill.source) if same is None else same.after
    try:
        return fill.apply_to(write, source)
    except TableOrmError as error:
        raise refused_before_sending(write, error, transaction=transaction) from error


async def _read(db: Connection, derived: Derived, waiting: list[Effect]) -> Found | None:
    """Read the rows that effects must know. Return None if a row was too large and has been split: plan anew then."""
    found: Found = {}
    while waiting:
        rows = await _read_all(db, derived, [effect.address for effect in waiting])
        deeper: list[Effect] = []
        for effect in waiting:
            row = rows[effect.address]
            routed = effect.route(row)
            if routed == [effect]:
                found[effect.address] = row
                if await _split(db, effect, row, derived):
                    return None
                continue
            del derived.effects[effect.address]
            deeper += routed
            derived.effects.update((each.address, each) for each in routed)
        waiting = deeper
    return found


async def _split(db: Connection, effect: Effect, row: Row | None, derived: Derived) -> bool:
    """Send the transaction that splits a row before the effect, if it is full; return whether it was."""
    operations = effect.split_first(row, derived.token)
    if not operations:
        return False
    change = effect.origin.change
    db.stats.requests += 1
    try:
        await db.require_open().transact(change.table, operations)
    except Fault as fault:
        # Either somebody else has changed or split it, or the reply was lost: the stored row tells.
        if fault.code not in _REPLANNED and not fault.transient:
            raise translate(fault, f"{change}: splitting the row {effect.address!r}", change.table) from fault
    return True


async def _read_all(db: Connection, derived: Derived, addresses: Sequence[str]) -> Found:
    turn = asyncio.Semaphore(_READ_AT_ONCE)
    change = derived.writes[0].change

    async def read(address: str) -> Row | None:
        async with turn:
            return await read_row(db, change.table, change.partition_key, address)

    return dict(zip(addresses, await asyncio.gather(*map(read, addresses)), strict=True))


async def _correct(db: Connection, plan: WritePlan, derived: Derived, fault: Fault, *, transaction: bool) -> None:
    """Correct the effect that the store has refused; raise what else it refused."""
    at = fault.index
    write = plan.writes[at] if at is not None and at < len(plan.writes) else plan.writes[0]
    effect = write.effect
    if effect is None or fault.code not in _REPLANNED:
        refuse(plan, fault, transaction=transaction)
    row = None if effect.reads else await read_row(db, plan.table, plan.partition_key, effect.address)
    if (
        row
        and COPY_OF in row
        and not db.boundary.holds_row(write.change.schema, plan.table, plan.partition_key, row[COPY_OF])
    ):
        row = {**row, COPY_OF: ""}  # an index entry of others: the error does not say whose
    try:
        derived.effects[effect.address] = effect.after_conflict(fault.code, row)
    except TableOrmError as error:
        if not transaction:
            raise error from fault
        raise in_transaction(write.origin, write.index, error, "; nothing was applied") from error
