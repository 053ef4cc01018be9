"""
Part of stage 10: what becomes of a write that failed for a reason which passes, or whose reply was lost.

A write that surely had no effect is sent again. After a lost reply the same request is sent again too, if it has a
condition: it cannot succeed twice. If it then fails, somebody has to find out whether the first one had succeeded, and
only a write token in the row proves that. Equal content proves nothing: two counters both go from 4 to 5, two workers
insert the same lease.

A write without condition is not sent again blindly, because it could overwrite what came after it: the row is read
first, and what is left to do is done under the ETag that was read.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NoReturn

import attrs

from ..bag import PropertyBag
from ..connection import Connection
from ..errors import OutcomeUnknown, TableOrmError
from ..kinds import Kinds
from ..protocol.codes import THROTTLING, Code, Fault
from ..retry import Patience
from ..stores import Operation, Row, TableStore, Verb
from .encode import content
from .plan import PlannedWrite, WritePlan
from .tail import tail_of

__all__ = ["Landed", "send", "settle"]

_READ_AT_ONCE = 16
_WHOLE = frozenset({Verb.INSERT, Verb.REPLACE, Verb.INSERT_OR_REPLACE})


@attrs.frozen
class Landed:
    """
    A write that was applied.

    Args:
        etag: The row's new ETag; None after a delete.
        superseded: Whether the row has changed since, so that the ETag is not of what was written.
    """

    etag: str | None
    superseded: bool = False


async def send(store: TableStore, plan: WritePlan, *, transaction: bool) -> list[str | None]:
    """
    Send a plan once; the new ETags.

    Raises:
        Fault: It failed, or its reply was lost.
    """
    writes = plan.writes
    if len(writes) == 1 and not transaction:
        return [await store.write(plan.table, writes[0].operation)]
    return await store.transact(plan.table, [write.operation for write in writes])


async def settle(
    db: Connection,
    plan: WritePlan,
    fault: Fault,
    *,
    begun: float,
    transaction: bool,
    repeat: bool,
    missing_ok: bool,
    throttled: Callable[[], None] | None,
) -> list[Landed]:
    """
    Bring a plan to an end that met a transient fault.

    Args:
        db: Where it was sent to.
        plan: What was sent.
        fault: How that ended.
        begun: When it was sent first, by the loop's clock.
        transaction: Whether it was sent as a transaction.
        repeat: Whether it may be sent again after doubt.
        missing_ok: Whether a row that is gone counts as deleted.
        throttled: Called at each refusal by a store that is asked for too much.

    Returns:
        For each write, what became of its row.

    Raises:
        Fault: It was surely not applied.
        OutcomeUnknown: It may have been applied.
    """
    store, patience = db.usable(), Patience(db.retry, begun)
    blind = not any(_has_condition(write) for write in plan.writes)
    now, doubt = plan, False
    while True:
        if throttled is not None and fault.code in THROTTLING:
            throttled()
        doubt = doubt or fault.doubt
        if not doubt:
            if not fault.transient or store.capabilities.retries or not await patience.another(fault):
                raise fault
        elif fault.transient and (not repeat or not await patience.another(fault)):
            # The last look is a single try, whatever our patience.
            rows = await _read_all(db, db.backend.tables, plan)
            if rows is not None and _proved(plan, rows):
                return _landed(plan, rows)
            _unknown(plan, fault, rows)
        elif blind or not fault.transient:
            rows = await _read_all(db, store, plan)
            if rows is None:
                _unknown(plan, fault, None)
            if _proved(plan, rows) or (blind and _as_wanted(plan, rows, missing_ok=missing_ok)):
                return _landed(plan, rows)
            if blind:
                now = _conditional(plan, rows, fault)
            else:
                if _surely_not(plan, rows):
                    raise fault
                if rows == [None] and _deletes(plan.writes[0]) and missing_ok:
                    return [Landed(None)]
                # Whoever deleted the row that we may have inserted has had it: it is inserted again.
                if not (rows == [None] and _inserts(plan.writes[0])):
                    _unknown(plan, fault, rows)
            if not fault.transient and not await patience.another(fault):
                _unknown(plan, fault, rows)
        db.count_request()
        try:
            return [Landed(etag) for etag in await send(store, now, transaction=transaction)]
        except Fault as next_fault:
            fault = next_fault


def _has_condition(write: PlannedWrite) -> bool:
    """Whether it cannot succeed twice."""
    return _inserts(write) or write.operation.if_match not in (None, "*")


def _inserts(write: PlannedWrite) -> bool:
    return write.operation.verb is Verb.INSERT


def _deletes(write: PlannedWrite) -> bool:
    return write.operation.verb is Verb.DELETE


async def _read_all(db: Connection, store: TableStore, plan: WritePlan) -> list[Row | None] | None:
    """The rows of a plan, None for each that is absent; None if they cannot be read."""
    turn = asyncio.Semaphore(_READ_AT_ONCE)
    db.stats.requests += len(plan.writes)

    async def read(write: PlannedWrite) -> Row | None:
        keys = write.operation.row
        async with turn:
            try:
                return await store.get(plan.table, keys["PartitionKey"], keys["RowKey"])
            except Fault as fault:
                if fault.code == Code.RESOURCE_NOT_FOUND:
                    return None
                raise

    try:
        return list(await asyncio.gather(*(read(write) for write in plan.writes)))
    except Fault:
        return None


def _proved(plan: WritePlan, rows: Sequence[Row | None]) -> bool:
    """Whether a row carries our token: all of the plan was applied, since all or nothing was."""
    return any(write.token in tail_of(row) for write, row in zip(plan.writes, rows, strict=True))


def _surely_not(plan: WritePlan, rows: Sequence[Row | None]) -> bool:
    """Whether a row still carries the token that it had before us, and not ours: nothing was applied."""
    return any(write.base in tail_of(row) for write, row in zip(plan.writes, rows, strict=True))


def _as_wanted(plan: WritePlan, rows: Sequence[Row | None], *, missing_ok: bool) -> bool:
    """
    Whether the rows are as unconditional writes want them. That is true of the state, whoever made it, and whoever
    writes without a condition asks for no more; but a delete asks whether there was a row.
    """
    if not missing_ok and all(map(_deletes, plan.writes)):
        return False
    return all(_equals(write, row) for write, row in zip(plan.writes, rows, strict=True))


def _equals(write: PlannedWrite, row: Row | None) -> bool:
    """Whether a row is as a write would leave it, as far as the write says."""
    if _deletes(write) or row is None:
        return _deletes(write) and row is None
    sent = content(write.operation.row)
    if write.operation.verb in _WHOLE:
        return content(row) == sent
    return all(row.get(name) == value for name, value in sent.items())


def _landed(plan: WritePlan, rows: Sequence[Row | None]) -> list[Landed]:
    return [_state(write, row) for write, row in zip(plan.writes, rows, strict=True)]


def _state(write: PlannedWrite, row: Row | None) -> Landed:
    if _deletes(write):
        return Landed(None)
    if row is None:
        return Landed(None, superseded=True)
    # A foreign client may have merged without touching the tail; to take over its ETag would let our next save
    # overwrite what we never saw.
    newest = write.token is None or tail_of(row)[:1] == (write.token,)
    after = content(write.after or {})
    same = (
        all(row.get(name) == value for name, value in after.items() if value is not None)
        if write.partial
        else content(row) == after
    )
    return Landed(row["odata.etag"], superseded=not (newest and same))


def _conditional(plan: WritePlan, rows: Sequence[Row | None], fault: Fault) -> WritePlan:
    """Writes without conditions as writes under the ETags that were read, and inserts where nothing was."""
    writes: list[PlannedWrite] = []
    for write, row in zip(plan.writes, rows, strict=True):
        operation = write.operation
        if row is not None:
            verb = {Verb.INSERT_OR_MERGE: Verb.MERGE, Verb.INSERT_OR_REPLACE: Verb.REPLACE}.get(operation.verb)
            operation = Operation(verb or operation.verb, operation.row, row["odata.etag"])
        elif operation.if_match is None:
            operation = Operation(Verb.INSERT, operation.row)
        else:
            _unknown(plan, fault, rows)  # it has to exist: it did, or never did
        writes.append(attrs.evolve(write, operation=operation))
    return attrs.evolve(plan, writes=tuple(writes))


def _unknown(plan: WritePlan, fault: Fault, rows: Sequence[Row | None] | None) -> NoReturn:
    at = fault.index if fault.index is not None and fault.index < len(plan.writes) else 0
    write = plan.writes[at]
    change = write.origin
    found = _shown(write, plan.table, None if rows is None else rows[at])
    seen = "the row could not be read" if rows is None else "there is no such row" if found is None else "see .found"
    remedy = "" if write.token else "; a model with write_token=True could tell"
    raise OutcomeUnknown(
        f"{change}: a reply was lost, and nothing proves whether it was written ({seen}){remedy}",
        fault.code,
        change.verb,
        write.token,
        found,
    ) from fault


def _shown(write: PlannedWrite, table: str, row: Row | None) -> object:
    if row is None:
        return None
    schema = write.change.schema
    if schema is not None:
        try:
            entity = Kinds.of([schema.model]).load(row)
        except TableOrmError:
            entity = None
        if entity is not None:
            return entity
    return PropertyBag.of_row(table, row)
