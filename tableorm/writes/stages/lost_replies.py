"""
Part of stage 10: what becomes of a write that failed for a reason which passes, or whose reply was lost.

A write that surely had no effect is sent again. After a lost reply the same request is sent again too, if it has a
condition: it cannot succeed twice. If it then fails, somebody has to find out whether the first one had succeeded, and
only a write token in the row proves that. Equal content proves nothing: two counters both go from 4 to 5, two workers
insert the same lease. That it had not succeeded yet does not prove that it never will, because it may be under way
still: that needs a row which has lost the ETag that it was sent with.

A write without condition is not sent again blindly, because it could overwrite what came after it: the row is read
first, and what is left to do is done under the ETag that was read. An insert has a condition that can come true again,
when somebody deletes the row; with writes beside it that have none, it is not sent again at all.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import attrs
from msgspec import structs

from ...connection.connection import Connection
from ...connection.rows import read_row
from ...connection.tasks import map_together
from ...connection.translate import with_fault
from ...errors import DecodeError, EncryptionError, OutcomeUnknown, TableOrmError
from ...models.kinds import KindSet
from ...models.property_bag import bag_of_row
from ...models.write_tokens import tokens_of
from ...outbox.decision import Decision, decision_of, settle_decision
from ...protocol.codes import THROTTLING, Fault
from ...stores import RetryBudget, Row, Verb, single_try
from ..plan import PlannedWrite, SendOptions, WritePlan
from ..rows import changes, content
from .seal import schema_of_row

_NAMED = 5  # operations of a transaction that an error names
_WHOLE = frozenset({Verb.INSERT, Verb.REPLACE, Verb.INSERT_OR_REPLACE})


@attrs.frozen
class Applied:
    """
    A write that was applied.

    Args:
        etag: The row's new ETag; None after a delete.
        superseded: Whether the row has changed since, so that the ETag is not of what was written.
    """

    etag: str | None
    superseded: bool = False


class InDoubt(Exception):
    """
    Nothing proves what became of a plan.

    Args:
        plan: What was sent.
        fault: How that ended.
        rows: What was found of each write; None if the rows could not be read.
    """

    def __init__(self, plan: WritePlan, fault: Fault, rows: Sequence[Row | None] | None) -> None:
        super().__init__(fault.message)
        self.plan, self.fault, self.rows = plan, fault, rows

    def error(self) -> OutcomeUnknown:
        """What is raised for all of the plan; `found` is the row that the fault names, or the first."""
        writes, fault = [write for write in self.plan.writes if write.effect is None], self.fault
        at = fault.index if fault.index is not None and fault.index < len(writes) else 0
        if len(writes) == 1:
            return self.error_of(0)
        named = [writes[at].origin, *(write.origin for write in writes if write is not writes[at])]
        more = f", and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        return self._error(at, f"transaction of {', '.join(map(str, named[:_NAMED]))}{more}")

    def error_of(self, at: int) -> OutcomeUnknown:
        """What is said of one of its writes."""
        return self._error(at, str(self.plan.writes[at].origin))

    def as_wanted(self, at: int) -> Applied | None:
        """
        What became of one of its writes, if that has no condition and its row is as it wants it, whoever made it so:
        then it is done, whatever became of the others. A delete asks if there was a row, and an insert who made it.
        """
        write = self.plan.writes[at]
        if self.rows is None or _inserts(write) or _deletes(write) or _sent_etag(write):
            return None
        return _state(write, self.rows[at]) if _equals(write, self.rows[at]) else None

    def _error(self, at: int, what: str) -> OutcomeUnknown:
        write = self.plan.writes[at]
        found = None if self.rows is None else _shown(write, self.plan.table, self.rows[at])
        seen = (
            "the row could not be read"
            if self.rows is None
            else "there is no such row"
            if found is None
            else "see .found"
        )
        # A delete leaves no row to carry its token.
        tokens = any(
            each.token or (each.change.schema is not None and each.change.schema.write_token)
            for each in self.plan.writes
        )
        remedy = "" if tokens else "; a model with write_token=True could tell"
        error = OutcomeUnknown(
            f"{what}: a reply was lost, and nothing proves whether it was written ({seen}){remedy}; the last "
            f"fault was: {self.fault.message}",
            self.fault.code,
            write.origin.verb,
            write.token,
            found,
        )
        return with_fault(error, self.fault)


async def resolve(
    db: Connection,
    plan: WritePlan,
    fault: Fault,
    *,
    begun: float,
    options: SendOptions,
    send: Callable[[Connection, WritePlan, int], Awaitable[list[str | None]]],
) -> list[Applied]:
    """
    Bring a plan to an end that met a transient fault.

    Args:
        db: Where it was sent to.
        plan: What was sent.
        fault: How that ended.
        begun: When it was sent first, by the loop's clock.
        options: How it was sent; with `repeat` it may be sent again when it is in doubt.
        send: Sends a plan once, as an attempt of this number, and returns the new ETags.

    Returns:
        For each write, what became of its row.

    Raises:
        Fault: It was surely not applied.
        InDoubt: It may have been applied, or may yet be.
    """
    repeats_itself, budget, attempt = db.store.capabilities.retries, RetryBudget(db.retry, begun), 1
    inserts = [_inserts(write) for write in plan.writes]
    blind = not all(inserts) and not any(_sent_etag(write) for write in plan.writes)
    now, in_doubt = plan, False
    while True:
        db.count_fault(fault)
        if options.throttled is not None and fault.code in THROTTLING:
            options.throttled()
        in_doubt = in_doubt or fault.doubt
        if not in_doubt:
            if not fault.transient or repeats_itself or not await budget.another(fault):
                raise fault
        elif fault.transient and (not options.repeat or not await budget.another(fault)):
            # The last look is a single try, however much time is left.
            with single_try():
                rows = await _read_all(db, plan)
            if rows is not None and _proved(plan, rows):
                return _applied_write(plan, rows)
            raise InDoubt(plan, fault, rows)
        elif blind or not fault.transient:
            rows = await _read_all(db, plan)
            dead = rows is not None and _can_never_land(plan, rows)
            if dead and len(inserts) > 1:
                # Now that nothing of ours can arrive any more: what another row says was true before it could.
                rows = await _read_all(db, plan)
            if rows is None:
                raise InDoubt(plan, fault, None)
            if _proved(plan, rows):
                return _applied_write(plan, rows)
            if not fault.transient and _is_overtaken(plan, rows):
                raise fault
            if blind:
                if any(inserts):
                    raise InDoubt(plan, fault, rows)
                if _as_wanted(plan, rows, missing_ok=options.missing_ok):
                    return _applied_write(plan, rows)
                now = _conditional(plan, rows, fault)
            else:
                # Inserts alone, which send no ETag, can never be applied where the transaction is void.
                if dead and (_not_yet(plan, rows) or (all(inserts) and rows[0] is None)):
                    raise fault
                if options.missing_ok and all(map(_deletes, plan.writes)) and not any(rows):
                    return _applied_write(plan, rows)
                # Whoever deleted the row that we may have inserted has had it: it is inserted again.
                if not (rows == [None] and _inserts(plan.writes[0])):
                    raise InDoubt(plan, fault, rows)
            if not fault.transient and not await budget.another(fault):
                raise InDoubt(plan, fault, rows)
        db.count_repetition()
        attempt += 1
        try:
            with single_try():
                return [Applied(etag) for etag in await send(db, now, attempt)]
        except Fault as next_fault:
            fault = next_fault


async def look_at_decision(db: Connection, doubt: InDoubt) -> list[Applied]:
    """
    Bring a plan in doubt to an end by its decision row, if it has one. Returns and raises what `resolve` does.
    """
    plan = doubt.plan
    if plan.decision is None or not await _has_committed(db, plan, plan.decision):
        raise doubt
    rows = await _read_all(db, plan)
    if rows is None:
        raise InDoubt(plan, doubt.fault, None)
    return _applied_write(plan, rows)


async def _has_committed(db: Connection, plan: WritePlan, decision: Decision) -> bool:
    """
    Return whether a transaction in doubt was applied, by its decision row. Without one it is made void, so that it can
    no longer be applied; it may have been before, and a worker has done all that it left to do.
    """
    try:
        if (await settle_decision(db, plan.table, plan.partition_key, decision.token)).committed:
            return True
        rows = await _read_all(db, plan)
    except TableOrmError:
        return False
    return rows is not None and _proved(plan, rows)


def _sent_etag(write: PlannedWrite) -> bool:
    """Whether it has a condition that cannot hold twice: ETags never return."""
    return write.operation.if_match not in (None, "*")


def _inserts(write: PlannedWrite) -> bool:
    return write.operation.verb is Verb.INSERT


def _deletes(write: PlannedWrite) -> bool:
    return write.operation.verb is Verb.DELETE


async def _read_all(db: Connection, plan: WritePlan) -> list[Row | None] | None:
    """The rows of a plan, None for each that is absent; None if they cannot be read."""

    async def read(write: PlannedWrite) -> Row | None:
        return await read_row(db, plan.at(write.row_key), name=write.change.model)

    try:
        return await map_together(read, plan.writes)
    except TableOrmError:
        return None


def _proved(plan: WritePlan, rows: Sequence[Row | None]) -> bool:
    """Whether a row carries our token: all of the plan was applied, since all or nothing was."""
    return any(write.token in tokens_of(row) for write, row in zip(plan.writes, rows, strict=True))


def _is_overtaken(plan: WritePlan, rows: Sequence[Row | None]) -> bool:
    """Whether another writer has inserted a row for good that the plan inserts: then nothing of it can be applied."""
    pairs = zip(plan.writes, rows, strict=True)
    return any(
        w.effect is not None and row is not None and w.effect.survives_conflict(row["RowKey"]) for w, row in pairs
    )


def _can_never_land(plan: WritePlan, rows: Sequence[Row | None]) -> bool:
    """
    Whether no request of ours can be applied any more: a row has lost the ETag that it was sent with, or a worker has
    made the transaction void, so that its decision row cannot be inserted any more.
    """
    last = rows[-1]
    is_void = plan.decision is not None and last is not None and not decision_of(last).committed
    return is_void or any(
        _sent_etag(write) and (row is None or row["odata.etag"] != write.operation.if_match)
        for write, row in zip(plan.writes, rows, strict=True)
    )


def _not_yet(plan: WritePlan, rows: Sequence[Row | None]) -> bool:
    """Whether a row still carries the token that it had before us, and not ours: nothing was applied till now."""
    return any(write.base in tokens_of(row) for write, row in zip(plan.writes, rows, strict=True))


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
    return _has(_unsealed(write, row), write.operation.row, whole=write.operation.verb in _WHOLE)


def _unsealed(write: PlannedWrite, row: Row) -> Row:
    """Return a row as the model of a write says; as it is stored, if it is no row of an entity."""
    schema = schema_of_row(write)
    if schema is None:
        return row
    with suppress(DecodeError, EncryptionError):
        return schema.unseal(row)
    return row


def _has(row: Row, members: Row, *, whole: bool) -> bool:
    """Whether a row has these members, values of the same type; with `whole` no others, but for its ETag and tail."""
    members = {name: value for name, value in content(members).items() if value is not None}
    return not changes(row, members) and not (whole and changes(members, content(row)))


def _applied_write(plan: WritePlan, rows: Sequence[Row | None]) -> list[Applied]:
    return [_state(write, row) for write, row in zip(plan.writes, rows, strict=True)]


def _state(write: PlannedWrite, row: Row | None) -> Applied:
    if _deletes(write):
        return Applied(None)
    if row is None:
        return Applied(None, superseded=True)
    # A foreign client may have merged without touching the tail; to take over its ETag would let our next save
    # overwrite what we never saw.
    newest = write.token is None or tokens_of(row)[:1] == (write.token,)
    same = _has(_unsealed(write, row), write.after or {}, whole=not write.partial)
    return Applied(row["odata.etag"], superseded=not (newest and same))


def _conditional(plan: WritePlan, rows: Sequence[Row | None], fault: Fault) -> WritePlan:
    """Writes without conditions as writes under the ETags that were read, and inserts where nothing was."""
    writes: list[PlannedWrite] = []
    for write, row in zip(plan.writes, rows, strict=True):
        operation = write.operation
        if row is not None:
            verb = {Verb.INSERT_OR_MERGE: Verb.MERGE, Verb.INSERT_OR_REPLACE: Verb.REPLACE}.get(operation.verb)
            operation = structs.replace(operation, verb=verb or operation.verb, if_match=row["odata.etag"])
        elif operation.if_match is None:
            operation = structs.replace(operation, verb=Verb.INSERT)
        else:
            raise InDoubt(plan, fault, rows)  # it has to exist: it did, or never did
        writes.append(structs.replace(write, operation=operation))
    return structs.replace(plan, writes=tuple(writes))


def _shown(write: PlannedWrite, table: str, row: Row | None) -> object:
    if row is None:
        return None
    schema = write.change.schema
    if schema is not None:
        try:
            entity = KindSet.of([schema.model]).load(row)
        except TableOrmError:
            entity = None
        if entity is not None:
            return entity
    return bag_of_row(table, row)
