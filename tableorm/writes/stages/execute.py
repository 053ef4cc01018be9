"""
Stage 10, execute: send a plan, put new ETags into the entities, and report an error where it came from.
"""

import asyncio
from collections.abc import Callable
from typing import NoReturn

from ...connection.connection import Connection
from ...connection.translate import translate
from ...errors import TransactionFailed
from ...models.entity import Entity
from ...models.property_bag import PropertyBag
from ...protocol.codes import Fault
from ...protocol.edm import timestamp_of_etag
from ..modify import forget
from ..plan import PlannedWrite, WritePlan, in_transaction
from .lost_replies import InDoubt, resolve, send

__all__ = ["apply", "claim", "execute", "refused"]


async def execute(
    db: Connection,
    plan: WritePlan,
    *,
    transaction: bool = False,
    repeat: bool = True,
    missing_ok: bool = False,
    throttled: Callable[[], None] | None = None,
) -> None:
    """
    Send a plan, as `apply` does.

    Args:
        db: Where to.
        plan: What.
        transaction: Whether the user asked for a transaction, and gets its errors.
        repeat: Whether a request may be sent again that may have had its effect.
        missing_ok: Whether a row that is gone counts as deleted.
        throttled: Called whenever the store refuses because it is asked for too much.

    Raises:
        TransactionFailed: An operation of a transaction failed; its cause is that operation's error.
        OutcomeUnknown: The reply was lost, and nothing proves what happened.
        TableOrmError: What a single write raises.
    """
    try:
        await apply(db, plan, transaction=transaction, repeat=repeat, missing_ok=missing_ok, throttled=throttled)
    except Fault as fault:
        refused(plan, fault, transaction=transaction)
    except InDoubt as doubt:
        raise doubt.error() from doubt.fault


async def apply(
    db: Connection,
    plan: WritePlan,
    *,
    transaction: bool = False,
    repeat: bool = True,
    missing_ok: bool = False,
    throttled: Callable[[], None] | None = None,
) -> None:
    """
    Send a plan, again where that is needed, and put the new ETags into the entities.

    Args:
        db: Where to.
        plan: What.
        transaction: Whether a single operation is sent as a transaction too.
        repeat: Whether a request may be sent again that may have had its effect.
        missing_ok: Whether a row that is gone counts as deleted.
        throttled: Called whenever the store refuses because it is asked for too much.

    Raises:
        Fault: It was surely not applied.
        InDoubt: The reply was lost, and nothing proves what happened.
    """
    store = db.require_open()
    writes = plan.writes
    db.stats.requests += 1
    db.stats.operations += len(writes)
    begun = asyncio.get_running_loop().time()
    try:
        etags = await send(store, plan, transaction=transaction)
    except Fault as fault:
        if not fault.transient:
            raise
        landed = await resolve(
            db,
            plan,
            fault,
            begun=begun,
            transaction=transaction,
            repeat=repeat and all(write.change.repeat for write in writes),
            missing_ok=missing_ok,
            throttled=throttled,
        )
    else:
        for write, etag in zip(writes, etags, strict=True):
            if write.effect is None:
                _applied(write, etag)
        return
    for write, each in zip(writes, landed, strict=True):
        if write.effect is None:
            _applied(write, each.etag, superseded=each.superseded)


def claim(doubt: InDoubt) -> list[int]:
    """
    Put the ETags that were found into the entities of those writes of a plan in doubt which are as they should be.

    Returns:
        The numbers of the other writes.
    """
    unknown: list[int] = []
    for number, write in enumerate(doubt.plan.writes):
        landed = doubt.as_wanted(number)
        if landed is None:
            unknown.append(number)
        elif write.effect is None:
            _applied(write, landed.etag, superseded=landed.superseded)
    return unknown


def refused(plan: WritePlan, fault: Fault, *, transaction: bool) -> NoReturn:
    """
    Raise the error of a plan that was surely not applied, where it came from.

    Args:
        plan: What was sent.
        fault: What the store said.
        transaction: Whether the user asked for a transaction, and gets its errors.
    """
    writes = plan.writes
    at = fault.index if fault.index is not None and fault.index < len(writes) else None
    write = writes[at or 0]
    change = write.origin
    error = translate(fault, str(change), plan.table, change.subject, (change.partition_key, change.row_key))
    if not transaction:
        raise error from fault
    error.__cause__ = fault
    if at is None:
        raise TransactionFailed(
            f"transaction of {len(writes)} operations in {plan.table}, partition {plan.partition_key!r}: "
            f"{fault.message}",
            fault.code,
        ) from error
    raise in_transaction(change, write.index, error, "; nothing was applied") from error


def _applied(write: PlannedWrite, etag: str | None, *, superseded: bool = False) -> None:
    """What the subject knows after its write."""
    change, row = write.change, write.after if write.view is None else write.view
    partial = write.partial or write.view is not None
    subject = change.subject
    superseded = superseded or write.stale
    if row is not None:
        if superseded:
            row.pop("odata.etag", None)
            row.pop("Timestamp", None)
        elif etag is not None:
            row["odata.etag"] = etag
            row["Timestamp"] = timestamp_of_etag(etag)
    if change.schema is None:
        if isinstance(subject, PropertyBag):
            subject.written_as(row, partial=partial)
        return
    if not isinstance(subject, Entity):
        return  # a key
    own = subject.__dict__
    own.pop("_upgraded", None)
    own.pop("_superseded", None)
    own.pop("_copied", None)
    if row is None:
        forget(subject)
        return
    if change.made:
        own.update(change.made)
    if change.schema.maintained and not write.partial and write.after is not None:
        current = change.schema.decode(write.after).__dict__
        own.update((info.name, current[info.name]) for info in change.schema.maintained)
    if change.drop_extra:
        own.pop("_extra", None)
    own["_row"] = row
    if partial or ("_partial" in own and not all(name in own for name in change.schema.fields)):
        own["_partial"] = True
    else:
        own.pop("_partial", None)
        own.pop("_loaded", None)
    if superseded:
        own["_superseded"] = True
