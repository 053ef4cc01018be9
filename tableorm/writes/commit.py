"""
Stages 5 to 10 of writes that may concern derived rows: derive, place, check, execute, and again where a derived row was
not as it was taken to be.

That is never the user's fault: a count was changed by somebody else, or a program that knows no indexes has deleted a
copy. The row is read, its operation corrected, and all is sent again; nothing was applied before.
"""

import asyncio
from collections.abc import Callable, Sequence

from ..connection import Connection
from ..errors import Conflict, EntityExists, TableOrmError
from ..protocol.codes import Code, Fault
from ..stores import Row
from ..translate import translate
from . import plan_writes
from .derive import Effects, derive, derives, placed
from .doubt import InDoubt
from .execute import apply, execute, refused
from .plan import PlannedWrite, WritePlan, in_transaction

__all__ = ["ATTEMPTS", "commit", "derived_plan", "pause_of"]

ATTEMPTS = 50
"""How often something begins anew after a lost race, if it is not told otherwise."""

_READ_AT_ONCE = 16
_MENDED = frozenset({Code.ENTITY_EXISTS, Code.RESOURCE_NOT_FOUND, Code.ENTITY_NOT_FOUND, Code.CONDITION_NOT_SATISFIED})


async def commit(
    db: Connection,
    writes: Sequence[PlannedWrite],
    *,
    transaction: bool = False,
    repeat: bool = True,
    missing_ok: bool = False,
    throttled: Callable[[], None] | None = None,
) -> None:
    """
    Send encoded writes of one partition, with everything that is derived from them.

    Args:
        db: Where to.
        writes: What, one for each row.
        transaction: Whether the user asked for a transaction, and gets its errors.
        repeat: Whether a request may be sent again that may have had its effect.
        missing_ok: Whether a row that is gone counts as deleted.
        throttled: Called whenever the store refuses because it is asked for too much.

    Raises:
        TransactionFailed: An operation of a transaction failed; its cause is that operation's error.
        UniqueViolation: Another entity has the value of a unique index.
        OutcomeUnknown: The reply was lost, and nothing proves what happened.
        Conflict: Derived rows were changed by others again and again.
        TableOrmError: What a single write raises.
    """
    if not any(map(derives, writes)):
        plan = plan_writes(writes, transaction=transaction)
        await execute(db, plan, transaction=transaction, repeat=repeat, missing_ok=missing_ok)
        return
    noted, effects = derive(writes, transaction=transaction)
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(pause_of(db, attempt) if attempt > 1 else 0)
        found = await _read(db, writes, [address for address, effect in effects.items() if effect.reads])
        plan = derived_plan(noted, effects, found, transaction=transaction)
        try:
            await apply(db, plan, transaction=transaction, repeat=repeat, missing_ok=missing_ok, throttled=throttled)
        except Fault as fault:
            await _mend(db, plan, effects, fault, transaction=transaction)
        except InDoubt as doubt:
            raise doubt.error() from doubt.fault
        else:
            return
    change = writes[0].origin
    raise Conflict(
        f"{change}: lost {ATTEMPTS} races in a row for the rows that are derived from it; spread the writers",
        Code.CONDITION_NOT_SATISFIED,
        change.subject,
    )


def pause_of(db: Connection, attempt: int) -> float:
    """Seconds before a read and a write are tried again: at first about what they take."""
    return min(1.0, db.retry.pause(attempt) / 5)


def derived_plan(
    writes: Sequence[PlannedWrite], effects: Effects, found: dict[str, Row | None], *, transaction: bool
) -> WritePlan:
    """
    The plan of writes and their effects.

    Raises:
        EntityExists: A derived row would be one of those that are written.
        LimitExceeded: A limit of the service would be passed.
        TransactionFailed: The like in a transaction.
    """
    for write in writes:
        effect = effects.get(write.operation.row["RowKey"])
        if effect is not None:
            change = effect.origin.origin
            error = EntityExists(
                f"{change}: the key {effect.address!r} of its copy is that of {write.origin}; begin the row_key of the "
                "index with literal text of its own",
                Code.ENTITY_EXISTS,
                change.subject,
                index="" if effect.index is None else effect.index.name,
            )
            if not transaction:
                raise error
            raise in_transaction(change, effect.origin.index, error, "; nothing was sent") from error
    return plan_writes([*writes, *placed(effects, found)], transaction=transaction)


async def _read(db: Connection, writes: Sequence[PlannedWrite], addresses: Sequence[str]) -> dict[str, Row | None]:
    """Derived rows as they are stored."""
    if not addresses:
        return {}
    turn = asyncio.Semaphore(_READ_AT_ONCE)
    change = writes[0].change

    async def read(address: str) -> Row | None:
        async with turn:
            return await _read_one(db, change.table, change.partition_key, address)

    return dict(zip(addresses, await asyncio.gather(*map(read, addresses)), strict=True))


async def _read_one(db: Connection, table: str, partition_key: str, row_key: str) -> Row | None:
    db.count_request()
    try:
        row = await db.usable().get(table, partition_key, row_key)
    except Fault as fault:
        if fault.code == Code.RESOURCE_NOT_FOUND:
            return None
        raise translate(fault, f"get of ({partition_key!r}, {row_key!r})", table) from fault
    db.stats.rows += 1
    return row


async def _mend(db: Connection, plan: WritePlan, effects: Effects, fault: Fault, *, transaction: bool) -> None:
    """Correct the effect that the store has refused; whatever else it refused is raised."""
    at = fault.index
    write = plan.writes[at] if at is not None and at < len(plan.writes) else plan.writes[0]
    effect = write.effect
    if effect is None or fault.code not in _MENDED:
        refused(plan, fault, transaction=transaction)
    row = await _read_one(db, plan.table, plan.partition_key, effect.address)
    try:
        effects[effect.address] = effect.mended(fault.code, row)
    except TableOrmError as error:
        if not transaction:
            raise error from fault
        raise in_transaction(write.origin, write.index, error, "; nothing was applied") from error
