"""
What a transaction leaves to do in other partitions: workers are rung for before it is sent, and the rows there are made
right after it has committed.

Unique values are reserved between the two, and released again if the transaction does not commit.

The transaction inserts a decision row beside its entities. When the rows in other partitions are right, the decision
row is deleted, then the message; both while the caller goes on. Whatever fails after the commit fails no write: the
message is still there, and a worker does the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from ..connection.boundary import Boundary
from ..connection.connection import Connection
from ..connection.logger import make_logger
from ..connection.tasks import map_together
from ..errors import AccessDenied, Conflict, ModelError, NotSupported, TableOrmError
from ..models.manifest import (
    CopyEntry,
    ManifestEntry,
    PlacedEntry,
    PlacedListEntry,
    ReservedEntry,
    SubtotalEntry,
    manifest_of,
)
from ..models.schema import Schema, relatives
from ..outbox.bell import check_reach, show
from ..outbox.decision import Decision, Work, delete_decision
from ..outbox.doorbell import Begun, Claim, Doorbell
from ..outbox.reservations import release, settle_reservations, vacate
from ..outbox.shared_bell import SharedBell, SharedMessage
from ..outbox.workflow import Progress
from ..protocol.codes import Code, Fault
from ..stores import Row, RowAddress
from .maintainer import Maintainer, PagedRules, deferred_rules, maintainers_of
from .plan import Mode, Refusal, WritePlan, refuse_before_sending, refuse_some
from .stages.derive import DeferredWork, Derived, claims_of, maintainer_of

_LOG = make_logger("tableorm.outbox")


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

    @property
    def claims(self) -> list[tuple[DeferredWork, str, ReservedEntry]]:
        """The unique values that the transaction claims, each with the name of its index."""
        token = self.decision.token
        return [(each, *claim) for each in self.deferred for claim in claims_of(each.work, token)]

    async def reserve(self) -> None:
        """
        Reserve the unique values that the transaction claims.

        Raises:
            UniqueViolation: Another entity holds one of them.
            TransactionFailed: That error, in a transaction.
            TableOrmError: One cannot be reserved, or the store did not answer. Nothing was written.
        """
        errors = [error for error in await map_together(self._reserve, self.claims) if error is not None]
        if not errors:
            return
        if all(isinstance(each, Conflict) for _, each in errors):
            await self.withdraw()  # otherwise a request may still arrive: a worker gives back what it reserves
        refuse_some(errors, after="; nothing was applied")

    async def _reserve(self, claim: tuple[DeferredWork, str, ReservedEntry]) -> Refusal | None:
        deferred, name, entry = claim
        write = deferred.origin
        entries = deferred.work.entries[name]
        givers = self._givers_of(entry) if len(entries) > 1 else frozenset[str]()
        try:
            await maintainer_of(write, name).reserve(self.db, entry, entries, write, givers)
        except TableOrmError as error:
            return write, error
        return None

    def _givers_of(self, claim: ReservedEntry) -> frozenset[str]:
        """Return the RowKeys of the entities that do not hold a value after the transaction, but by this claim."""
        return frozenset(
            each.change.row_key
            for each in self.plan.writes
            if each.effect is None
            and not any(
                isinstance(held, ReservedEntry) and held.place == claim.place and held != claim
                for held in manifest_of(each.after).values()
            )
        )

    def was_voided(self, fault: Fault) -> bool:
        """Return whether a worker has made the transaction void, because it was slow: then another one may commit."""
        return fault.code == Code.ENTITY_EXISTS and fault.index == len(self.plan.writes) - 1

    async def withdraw(self) -> None:
        """Take back the message of a transaction that never commits, and what was reserved for it."""

        async def give_back(claim: tuple[DeferredWork, str, ReservedEntry]) -> None:
            each, name, entry = claim
            label = maintainer_of(each.origin, name).label
            owner = self.plan.at(each.work.row_key)
            await release(self.db, owner, entry, label)

        try:
            await map_together(give_back, self.claims)
        except TableOrmError as error:
            _LOG.warning("what %s has reserved is left to workers: %s", self.decision.token, error)
        else:
            await self.rung.release()

    async def finish(self) -> None:
        """Do what the transaction has left to do, after it has committed."""
        try:
            await map_together(self._carry_out, self.deferred)
        except _LeftToWorkers:
            await self.db.run_later(self._show())
            return
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


async def announce(db: Connection, plan: WritePlan, derived: Derived, bell: SharedBell | None) -> Deferral | None:
    """
    Ring for workers before a transaction is sent that leaves something to do; return None if it leaves nothing.

    Args:
        db: Where it is sent.
        plan: The transaction.
        derived: What it is made of.
        bell: Rings for several transactions at a time; None to ring for this one alone.

    Raises:
        AccessDenied: A token does not reach what has to be written afterwards.
        LimitExceeded: An index list has no room for an entity.
        TransactionFailed: That error, in a transaction.
        TableOrmError: The message could not be put, so nothing was written.
    """
    decision = plan.decision
    if decision is None:
        return None
    await _check_token(db, derived)
    if _is_asked(derived):
        await check_room(db, derived)
    rung = await _ring(db, _begun(plan, decision), decision.kinds, None if decision.has_workflows else bell)
    return Deferral(db=db, plan=plan, decision=decision, rung=rung, deferred=derived.deferred)


async def _ring(db: Connection, begun: Begun, kinds: Sequence[str], bell: SharedBell | None) -> SharedMessage:
    if bell is not None:
        return await bell.ring(begun, kinds)
    rung = SharedMessage(db, kinds)
    rung.add(begun)
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
        refuse_before_sending(first.origin, error)


def coming_entries(
    derived: Derived, leaving: Iterable[ManifestEntry]
) -> dict[tuple[Maintainer, ManifestEntry | None], DeferredWork]:
    """
    Return of each declaration that is asked before a write the entries that entities get by it, and None if some have
    work for it and get none; with the first work of each.

    Args:
        derived: The writes.
        leaving: Entries that entities lose besides, so that there is room.
    """
    found: dict[tuple[Maintainer, ManifestEntry | None], DeferredWork] = {}
    lost = list(leaving)
    for each in derived.deferred:
        change = each.origin.change
        for name, entries in each.work.entries.items():
            maintainer = None if change.schema is None else change.schema.derived.get(name)
            if isinstance(maintainer, Maintainer) and maintainer.limited:
                noted = manifest_of(each.origin.after).get(name)
                lost += [entry for entry in entries if entry != noted]
                found.setdefault((maintainer, noted if noted in entries else None), each)
    return {(one, None if entry in lost else entry): each for (one, entry), each in found.items()}


async def check_room(db: Connection, derived: Derived, leaving: Iterable[ManifestEntry] = ()) -> None:
    """
    Refuse writes, before anything of them is sent, of entities for which there is no room where they have to be named.

    Args:
        db: Where they are sent.
        derived: The writes.
        leaving: As of `coming_entries`.

    Raises:
        LimitExceeded: There is no room.
        TransactionFailed: That error, in a transaction.
        TableOrmError: The place is out of reach, or the store did not answer.
    """

    async def check(item: tuple[tuple[Maintainer, ManifestEntry | None], DeferredWork]) -> None:
        (maintainer, entry), each = item
        try:
            await maintainer.check_room(db, entry)
        except TableOrmError as error:
            refuse_before_sending(each.origin, error)

    coming = coming_entries(derived, leaving)
    if coming:
        await map_together(check, list(coming.items()))


def _is_asked(derived: Derived) -> bool:
    """Return whether there must be room for what is written: a move was asked for it before it was committed."""
    change = derived.deferred[0].origin.change
    return not (change.verb == "move" and change.mode is Mode.REPLACE)


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
            if isinstance(place, (SubtotalEntry, CopyEntry)):
                at = place.holder if isinstance(place, SubtotalEntry) else RowAddress.of(place)
                boundary.check_derived_row(None, at)
            if isinstance(place, (PlacedEntry, PlacedListEntry)) and not boundary.check_derived_row(
                schema, RowAddress(place.location, place.partition_key, place.row_key)
            ):
                raise ModelError(
                    f"{deferred.origin.origin}: what {name} has elsewhere, ({place.partition_key!r}, "
                    f"{place.row_key!r}) of {place.location}, cannot be shown to belong to the scope by its key; put "
                    "the fields of the scope into the keys of the index, or write through the database itself"
                )


def doorbell_for(plan: WritePlan, decision: Decision) -> Doorbell:
    """Return the message to workers about a transaction alone."""
    return Doorbell(changes=(_begun(plan, decision),), kinds=decision.kinds)


def _begun(plan: WritePlan, decision: Decision) -> Begun:
    claims = [Claim(work.row_key, each.place) for work in decision.works for _, each in claims_of(work, decision.token)]
    return Begun(table=plan.table, partition_key=plan.partition_key, token=decision.token, claims=tuple(claims))


def schemas_by_kind(schemas: Iterable[Schema]) -> dict[str, Schema]:
    """Return models by kind, as it is stored by the versions up to the declared one."""
    return {
        str(schema.kind) if version == 1 else f"{schema.kind}:{version}": schema
        for schema in schemas
        for version in range(1, schema.version + 1)
    }


async def carry_out(
    db: Connection, table: str, schemas: Mapping[str, Schema], decision: Decision, *, workflows: bool = False
) -> Decision | None:
    """
    Do what a committed change has left to do. It may be done twice, by several at the same time, and again later.

    Args:
        db: Where the rows are.
        table: The table of the decision row.
        schemas: The models by kind, which has its version, as stored.
        decision: What the decision row says.
        workflows: Whether the caller runs the workflows.

    Returns:
        What the decision row says now; None if another writer has deleted it meanwhile.

    Raises:
        NotSupported: This program does not know a kind, or has it in another table, or does not know a version or a
            form of entries: leave it to others.
        TableOrmError: A row cannot be made right, or the store did not answer.
    """
    progress = Progress(db, table, decision)

    async def work_on(number: int) -> None:
        work = decision.works[number]
        if workflows and work.arguments is not None:
            return
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
        await _carry_out_work(db, table, decision, work, schema, None, progress, number)

    await map_together(work_on, range(len(decision.works)))
    return progress.decision


async def _carry_out_work(
    db: Connection,
    table: str,
    decision: Decision,
    work: Work,
    schema: Schema | None,
    inserted: Row | None,
    progress: Progress | None = None,
    number: int = 0,
) -> None:
    """
    Do what a change has left to do for an entity.

    Args:
        db: Where the rows are.
        table: The table of the entity.
        decision: What the decision row says.
        work: What is left.
        schema: The model of the entity; None if nobody knows.
        inserted: The row of the entity, if the change has inserted it just now.
        progress: Notes how far it is; None for the writer itself, which does the first page.
        number: Which of the works of the decision it is, for `progress`.
    """
    source = RowAddress(table, decision.partition_key, work.row_key)

    async def reconcile(item: tuple[str, type[ManifestEntry]]) -> None:
        name, form = item
        if form is ReservedEntry:
            reserved = [entry for entry in work.entries[name] if isinstance(entry, ReservedEntry)]
            label, own = name if schema is None else f"{schema.name}.{name}", progress is None
            await settle_reservations(db, source, work.kind, name, reserved, decision.token, label=label, own=own)
            return
        found = [entry for entry in work.entries[name] if type(entry) is form]
        entries = list(dict.fromkeys(found)) if form.deferred else found
        each = None if schema is None else schema.derived.get(name)
        if isinstance(each, Maintainer) and each.deferred and each.entry_type is form:
            await each.reconcile(db, source, entries, inserted)
        elif form is PlacedEntry and isinstance(each, Maintainer) and each.entry_type is ReservedEntry:
            # The index was not unique then; what is there now may reserve a value.
            places = [entry for entry in entries if isinstance(entry, PlacedEntry)]
            await map_together(lambda place: vacate(db, source, name, place), places)
        else:
            rules = deferred_rules(name, entries[0])
            if isinstance(rules, PagedRules):
                await _do_pages(db, source, name, entries[-1], rules, progress, number)
            elif schema is not None and (former := _former(schema, name, entries)) is not None:
                await former.reconcile(db, source, entries)
            else:
                await rules.remove(db, source, name, entries)

    def is_last(name: str) -> bool:
        each = None if schema is None else schema.derived.get(name)
        return isinstance(deferred_rules(name, work.entries[name][0]), PagedRules) if each is None else each.follows

    # A declaration may have become one of another form.
    forms = {(name, type(entry)): None for name, entries in work.entries.items() for entry in entries}
    last = [form for form in forms if is_last(form[0])]
    await map_together(reconcile, [form for form in forms if form not in last])
    await map_together(reconcile, last)


def _former(schema: Schema, name: str, entries: Sequence[ManifestEntry]) -> Maintainer | None:
    """
    Return what declares a total, which nothing else knows, in another class that the entity may have been of, or under
    another name.
    """
    form = type(entries[0])
    some = (
        [each for other in relatives(schema) for each in maintainers_of(other, form)] if form is SubtotalEntry else []
    )
    named = [each for each in some if each.name == name]
    return next(iter(named or [each for each in some if all(map(each.adopts, entries))]), None)


class _LeftToWorkers(TableOrmError):
    """Raised by a writer after its first page: background workers do the rest."""


async def _do_pages(
    db: Connection,
    source: RowAddress,
    name: str,
    entry: ManifestEntry,
    rules: PagedRules[Any],
    progress: Progress | None,
    number: int,
) -> None:
    """Do what is done page by page, from where others have stopped."""
    cursor = None if progress is None else progress.reached(number).get(name)
    while True:
        cursor = await rules.do_page(db, source, name, entry, cursor)
        if cursor is None:
            return
        if progress is None:
            raise _LeftToWorkers(f"{name}: the holders of {source} are more than a page")
        if not await progress.note(number, name, cursor):
            return  # another writer has done all
