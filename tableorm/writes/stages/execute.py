"""
Stage 10, execute: send a plan, put new ETags into the entities, and report an error where it came from.
"""

import asyncio
from typing import NoReturn

from msgspec import structs

from ...connection.connection import Connection
from ...connection.translate import translate
from ...errors import TransactionFailed
from ...models.entity import Entity
from ...models.property_bag import PropertyBag
from ...models.schema import Schema
from ...models.state import STATE, UNSTORED, EntityState
from ...protocol.codes import Fault
from ...protocol.edm import SYSTEM_MEMBERS, timestamp_of_etag
from ...stores import Row, TableStore
from ..modify import forget
from ..plan import Change, Mode, PlannedWrite, SendOptions, WritePlan, in_transaction
from ..rows import rebased
from .encode import own_extra
from .lost_replies import InDoubt, resolve

__all__ = ["claim", "execute", "refuse"]


async def execute(db: Connection, plan: WritePlan, options: SendOptions) -> None:
    """
    Send a plan, again where that is needed, and put the new ETags into the entities.

    Args:
        db: Where to.
        plan: What.
        options: How.

    Raises:
        Fault: It was surely not applied; `refuse` makes the user's error of it.
        InDoubt: The reply was lost, and nothing proves what happened.
    """
    store, writes = db.require_open(), plan.writes
    db.stats.requests += 1
    db.stats.operations += len(writes)
    begun = asyncio.get_running_loop().time()
    # A single operation of a transaction is sent as one too.
    send = _send_one if len(writes) == 1 and not options.transaction else _send_all
    try:
        etags = await send(store, plan)
    except Fault as fault:
        if not fault.transient:
            raise
        if options.repeat and not all(write.change.repeat for write in writes):
            options = structs.replace(options, repeat=False)
        applied = await resolve(db, plan, fault, begun=begun, options=options, send=send)
        for write, each in zip(writes, applied, strict=True):
            if write.effect is None:
                _remember(write, each.etag, superseded=each.superseded)
        return
    for write, etag in zip(writes, etags, strict=True):
        if write.effect is None:
            _remember(write, etag)


async def _send_one(store: TableStore, plan: WritePlan) -> list[str | None]:
    return [await store.write(plan.table, plan.writes[0].operation)]


async def _send_all(store: TableStore, plan: WritePlan) -> list[str | None]:
    return await store.transact(plan.table, [write.operation for write in plan.writes])


def claim(doubt: InDoubt) -> list[int]:
    """
    Put the ETags that were found into the entities of those writes of a plan in doubt which are as they should be.

    Returns:
        The numbers of the other writes.
    """
    unknown: list[int] = []
    for number, write in enumerate(doubt.plan.writes):
        applied = doubt.as_wanted(number)
        if applied is None:
            unknown.append(number)
        elif write.effect is None:
            _remember(write, applied.etag, superseded=applied.superseded)
    return unknown


def refuse(plan: WritePlan, fault: Fault, *, transaction: bool) -> NoReturn:
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


def _remember(write: PlannedWrite, etag: str | None, *, superseded: bool = False) -> None:
    """Let the subject know its row as it was written."""
    change, row = write.change, write.after if write.view is None else write.view
    partial = write.partial or write.view is not None
    subject, schema = change.subject, change.schema
    superseded = superseded or write.stale
    if row is not None:
        if superseded:
            row.pop("odata.etag", None)
            row.pop("Timestamp", None)
        elif etag is not None:
            row["odata.etag"] = etag
            if schema is None:
                row["Timestamp"] = timestamp_of_etag(etag)
            else:
                row.pop("Timestamp", None)  # the ETag tells it
    if schema is None:
        if isinstance(subject, PropertyBag):
            subject.written_as(row, partial=partial)
        return
    if not isinstance(subject, Entity):
        return  # a key
    if row is None:
        forget(subject)
        return
    own = subject.__dict__
    if change.made:
        own.update(change.made)
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
        superseded=superseded,
        found_at=state.found_at,
        extra=state.extra,
    )


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
    now = own_extra(structs.replace(change, extra={n: v for n, v in members.items() if n not in SYSTEM_MEMBERS}))
    written = change.only is None and change.mode is not Mode.GUARD
    old = own_extra(change) if written else schema.unknown({} if change.before is None else change.before.row)
    keys = {name: members[name] for name in ("PartitionKey", "RowKey")}
    members.clear()
    members.update({**keys, **rebased(schema.unknown(row), old, now)})
