"""
What a transaction leaves to do in other partitions: workers are rung for before it is sent, and the rows there are made
right after it has committed.

The transaction inserts a decision row beside its entities. When the rows in other partitions are right, the decision
row is deleted, then the message; both while the caller goes on. Whatever fails after the commit fails no write: the
message is still there, and a worker does the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from logging import getLogger

import attrs

from ..connection.boundary import Boundary
from ..connection.connection import Connection
from ..connection.tasks import map_together
from ..errors import AccessDenied, ModelError, NotSupported, TableOrmError
from ..models.manifest import ManifestEntry, PlacedEntry, PlacedListEntry
from ..models.schema import Schema
from ..outbox.bell import check_reach, show
from ..outbox.decision import Decision, Work, delete_decision
from ..outbox.doorbell import Begun, Doorbell
from ..outbox.shared_bell import SharedBell, SharedMessage
from ..protocol.codes import Code, Fault
from ..stores import Row
from .maintainer import Maintainer, RowKeys, deferred_rules
from .plan import Mode, WritePlan
from .stages.derive import DeferredWork, Derived, refused_before_sending

__all__ = ["Deferral", "announce", "carry_out", "check_places", "doorbell_for", "schemas_by_kind"]

_LOG = getLogger("tableorm.outbox")


@attrs.frozen(kw_only=True)
class Deferral:
    """
    What a transaction leaves to do, after workers were rung for.

    Args:
        db: Where the rows are.
        plan: The transaction.
        decision: What its decision row says.
        rung: The message to workers.
        deferred: What is left to do, and by which writes.
    """

    db: Connection
    plan: WritePlan
    decision: Decision
    rung: SharedMessage
    deferred: Sequence[DeferredWork]

    def was_voided(self, fault: Fault) -> bool:
        """Return whether a worker has made the transaction void, because it was slow: then another one may commit."""
        return fault.code == Code.ENTITY_EXISTS and fault.index == len(self.plan.writes) - 1

    async def withdraw(self) -> None:
        """Take back the message of a transaction that never commits."""
        await self.rung.release()

    async def finish(self) -> None:
        """Do what the transaction has left to do, after it has committed."""
        try:
            await map_together(self._carry_out, self.deferred)
        except Exception as error:  # noqa: BLE001 - the write is durable, whatever a function of a model raises
            _LOG.warning("%s in %s is left to workers: %s", self.decision.token, self.plan.table, error)
            return
        # Workflows are run by workers, who delete the decision row afterwards.
        await self.db.run_later(self._show() if self.decision.has_workflows else self._forget())

    async def _carry_out(self, each: DeferredWork) -> None:
        first = each.origin.origin
        inserted = each.origin.after if first.mode is Mode.INSERT else None
        await _carry_out_work(self.db, self.plan.table, self.decision, each.work, first.schema, inserted)

    async def _show(self) -> None:
        """Let workers see the message now."""
        if self.rung.message is not None:
            await show(self.db, self.rung.message)

    async def _forget(self) -> None:
        """Delete the decision row, then the message."""
        try:
            await delete_decision(self.db, self.plan.table, self.decision)
        except TableOrmError as error:
            _LOG.warning(
                "the decision row %s in %s is left to workers: %s", self.decision.token, self.plan.table, error
            )
        else:
            await self.rung.release()


async def announce(
    db: Connection, plan: WritePlan, derived: Derived, bell: SharedBell | None = None
) -> Deferral | None:
    """
    Ring for workers before a transaction is sent that leaves something to do; return None if it leaves nothing.

    Args:
        db: Where it is sent.
        plan: The transaction.
        derived: What it is made of.
        bell: Rings for several transactions at a time; None to ring for this one alone.

    Raises:
        AccessDenied: A token does not reach what has to be written afterwards.
        TransactionFailed: That error, in a transaction.
        TableOrmError: The message could not be put, so nothing was written.
    """
    decision = plan.decision
    if decision is None:
        return None
    await _check_token(db, derived)
    rung = await _ring(db, _begun(plan, decision), decision.kinds, None if decision.has_workflows else bell)
    return Deferral(db=db, plan=plan, decision=decision, rung=rung, deferred=derived.deferred)


async def _ring(db: Connection, begun: Begun, kinds: Sequence[str], bell: SharedBell | None) -> SharedMessage:
    if bell is not None:
        return await bell.ring(begun, kinds)
    rung = SharedMessage(db)
    rung.add(begun, kinds)
    await rung.put()
    return rung


async def _check_token(db: Connection, derived: Derived) -> None:
    """Refuse what leaves something to do if the connection has a token for one table alone."""
    first = derived.deferred[0]
    names = ", ".join(first.work.entries)
    what = f"rows in other partitions follow it, by {names}" if names else f"the {first.work.kind} follows it"
    try:
        await check_reach(db, f"{first.origin.origin}: {what}")
    except AccessDenied as error:
        raise refused_before_sending(first.origin, error, transaction=derived.transaction) from error


def check_places(boundary: Boundary, deferred: DeferredWork) -> None:
    """
    Refuse rows in other partitions that are outside of a boundary, or whose keys do not tell.

    Raises:
        AccessDenied: A row is outside of it.
        ModelError: A key does not tell.
    """
    schema = deferred.origin.change.schema
    for name, entries in deferred.work.entries.items():
        for place in entries:
            if isinstance(place, (PlacedEntry, PlacedListEntry)) and not boundary.check_derived_row(
                schema, place.table, place.partition_key, place.row_key
            ):
                raise ModelError(
                    f"{deferred.origin.origin}: the row ({place.partition_key!r}, {place.row_key!r}) of table "
                    f"{place.table}, which {name} has elsewhere, cannot be told to be of the scope by its key; put the "
                    "fields of the scope into the keys of the index, or write through the database itself"
                )


def doorbell_for(plan: WritePlan, decision: Decision) -> Doorbell:
    """Return the message to workers about a transaction alone."""
    return Doorbell(changes=(_begun(plan, decision),), kinds=decision.kinds)


def _begun(plan: WritePlan, decision: Decision) -> Begun:
    return Begun(table=plan.table, partition_key=plan.partition_key, token=decision.token)


def schemas_by_kind(schemas: Iterable[Schema]) -> dict[str, Schema]:
    """Return models by kind, as it is stored by the versions up to the declared one."""
    return {
        str(schema.kind) if version == 1 else f"{schema.kind}:{version}": schema
        for schema in schemas
        for version in range(1, schema.version + 1)
    }


async def carry_out(db: Connection, table: str, schemas: Mapping[str, Schema], decision: Decision) -> None:
    """
    Do what a committed change has left to do. It may be done twice, by several at the same time, and again later.

    Args:
        db: Where the rows are.
        table: The table of the decision row.
        schemas: The models by kind, which has its version, as stored.
        decision: What the decision row says.

    Raises:
        NotSupported: This program does not know a kind, or has it in another table, or does not know a version or a
            form of entries: leave it to others.
        TableOrmError: A row cannot be made right, or the store did not answer.
    """

    async def work_on(work: Work) -> None:
        schema = schemas.get(work.kind)
        if schema is None:
            raise NotSupported(
                f"the decision row {decision.token} of table {table} is about entities of kind {work.kind}, which this "
                "program does not know; leave it to a program that does"
            )
        if schema.table_name() != table:
            raise NotSupported(
                f"the decision row {decision.token} of table {table} is about entities of kind {work.kind}, which are "
                f"in table {schema.table_name()} by this program; leave it to a program that has them in {table}"
            )
        await _carry_out_work(db, table, decision, work, schema)

    await map_together(work_on, decision.works)


async def _carry_out_work(
    db: Connection, table: str, decision: Decision, work: Work, schema: Schema | None, inserted: Row | None = None
) -> None:
    source = RowKeys(table, decision.partition_key, work.row_key)

    async def reconcile(item: tuple[str, type[ManifestEntry]]) -> None:
        name, form = item
        found = [entry for entry in work.entries[name] if type(entry) is form]
        entries = list(dict.fromkeys(found)) if form.deferred else found
        each = None if schema is None else schema.derived.get(name)
        if isinstance(each, Maintainer) and each.deferred and each.entry_type is form:
            await each.reconcile(db, source, entries, inserted)
        else:
            await deferred_rules(name, entries[0]).remove(db, source, name, entries)

    # A declaration may have become one of another form.
    forms = {(name, type(entry)): None for name, entries in work.entries.items() for entry in entries}
    await map_together(reconcile, list(forms))
