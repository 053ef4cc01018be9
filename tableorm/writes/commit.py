"""
Writes of a database, from a change to the reply: the verbs that write one entity, and stages 5 to 10 of all writes.

A write may concern other rows: then it is derived, checked and executed, and all again if another row was not as it was
taken to be. That is never the user's fault: a count was changed by another writer, or a program that knows no indexes
has deleted an index entry. The row is read, its operation corrected, and all is sent again; nothing was applied before.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from msgspec import structs

from ..connection.boundary import Boundary
from ..connection.connection import Connection
from ..connection.races import ATTEMPTS, Attempts, is_race, pause_of, read_patiently
from ..connection.rows import read_row, write_as_read
from ..connection.tasks import map_together
from ..connection.translate import with_fault
from ..connection.turns import Turn
from ..errors import (
    Conflict,
    EntityExists,
    EntityNotFound,
    LostRace,
    OutcomeUnknown,
    TableOrmError,
    TransactionFailed,
    UniqueViolation,
)
from ..models.entity import Entity
from ..models.key import Key
from ..models.kinds import KindSet
from ..models.property_bag import PropertyBag
from ..models.reserved import COPY_OF
from ..models.schema import Schema, concrete
from ..models.write_tokens import new_token
from ..protocol.codes import LOST_RACE, Code, Fault
from ..protocol.edm import timestamp_of_etag
from ..stores import Row, RowAddress, Verb
from .deferred import announce, check_places
from .home import Home, find_existing, has_remedy, must_prepare, names_of
from .maintainer import Fill
from .plan import (
    PLAIN,
    Change,
    Effect,
    Mode,
    PlannedWrite,
    SendOptions,
    WritePlan,
    in_transaction,
    refuse_before_sending,
)
from .rows import overlaid
from .stages.change import delete_change, hides_class
from .stages.complete import complete
from .stages.derive import Derived, derive, derives
from .stages.encode import encode, needs_row
from .stages.execute import execute, plan_sealed, refusal
from .stages.lost_replies import InDoubt
from .subject import adopt, check_change, forget, key_of, key_of_target
from .uploads import uploaded

T = TypeVar("T")


async def write_change(db: Connection, change: Change, *, missing_ok: bool = False) -> None:
    """
    Send one change; nothing if it changes nothing.

    Args:
        db: Where the row is.
        change: The change.
        missing_ok: Whether a row that is not there counts as deleted.

    Raises:
        AccessDenied: The row is outside of the connection's boundary.
        ModelError: The database was used with another model of this kind.
        TableOrmError: What the verbs of `Database` raise.
    """
    if change.schema not in db.used_models.known:
        db.used_models.add(change.schema)
    if db.boundary.narrows:
        check_change(db.boundary, change)
    declared = None if change.schema is None else change.schema.home
    if declared is not None and await home_of(change.schema).write_instead(db, change):
        return
    if needs_row(change):
        await _write_completed(db, change, missing_ok=missing_ok)
        return
    write = encode(change, 0)
    if write is None:
        db.require_open()  # as what sends something does
    else:
        await commit(db, (write,), SendOptions(missing_ok=missing_ok))


async def _write_completed(db: Connection, change: Change, *, missing_ok: bool) -> None:
    """Send a change that needs the stored row under the ETag it is read with; again after a lost race, if forced."""
    doubt: OutcomeUnknown | None = None
    with db.turns.begin() as turn:
        async for _ in Attempts(db, ATTEMPTS):
            await turn.take((change.address,))
            try:
                row = await read_current(db, change)
                write = encode(complete(change, row), 0)
            except TableOrmError as error:
                if doubt is None or (missing_ok and isinstance(error, EntityNotFound)):
                    raise
                raise doubt from error
            if write is None:
                return
            try:
                await commit(db, (write,), SendOptions(missing_ok=missing_ok))
            except TableOrmError as error:
                # Forced: whoever wrote meanwhile is written over, also if that was our own lost request.
                if _goes_on(change, error):
                    doubt = error if isinstance(error, OutcomeUnknown) else doubt
                    continue
                if doubt is None:
                    raise
                raise doubt from error
            return
    raise doubt or LostRace(
        f"{change}: others wrote it first, {ATTEMPTS} times in a row; try it again, or let fewer tasks write it in "
        f"parallel",
        entity=change.subject,
    )


def _goes_on(change: Change, error: TableOrmError) -> bool:
    """Return whether a change that was sent under the ETag of its row is sent again, as that is now."""
    if change.if_match not in (None, "*"):
        return False
    if isinstance(error, OutcomeUnknown):
        return error.found is not None and not change.is_copied
    return is_race(error) and (not change.is_copied or isinstance(error, Conflict))


async def insert_new(db: Connection, change: Change) -> bool:
    """Insert an entity or bag if there is no such row. Returns and raises what `Database.insert` does."""
    try:
        await write_change(db, change)
    except EntityExists as error:
        # What an index or a list needs is another row, or the row's own.
        if error.index and not await find_existing(db, (change,)):
            raise
        return False
    return True


async def delete_target(
    db: Connection, target: Any, fields: dict[str, Any], *, if_match: str | None, missing_ok: bool
) -> bool:
    """Delete the row that a target names. Takes, returns and raises what `Database.delete` does."""
    key = key_of_target(db.boundary, target, fields)
    subject = target if isinstance(target, (Entity, PropertyBag)) else key
    change = delete_change(subject, if_match)
    try:
        try:
            await write_change(db, change, missing_ok=missing_ok)
        except Conflict as error:
            if type(error) is not Conflict or needs_row(change):
                raise
            # It was rejected for counts as the entity remembers them: the stored ones, or a changed ETag, decide.
            await _write_completed(db, change, missing_ok=missing_ok)
    except EntityNotFound:
        if not missing_ok:
            raise
        forget(subject)
        return False
    return True


async def with_class(db: Connection, target: Any) -> Any:
    """Return a key of an abstract model as one of the class of its row, if a delete needs that; others as they are."""
    if not isinstance(target, Key):
        return target
    key = cast("Any", target)
    schema: Schema | None = getattr(key.model, "__schema__", None)
    if schema is None or not hides_class(schema):
        return key
    db.boundary.check(key)
    row = await read_current(db, key)
    found = None if row is None else KindSet.of([schema.model]).resolve(row)
    # Where no entity is, a class whose rows are read finds that out.
    of = max(concrete(schema), key=lambda each: each.tracked) if found is None else found[0]
    return Key(of.model, key.table, key.partition_key, key.row_key)


def load_row(db: Connection, model: type[Any], table: str, row: Row) -> Any:
    """
    Return the entity or bag of a row as reads return it; None if it counts as no row. Raises what reads raise.

    Args:
        db: Where the row is.
        model: The model that is asked for.
        table: Name of the table.
        row: The row.
    """
    return db.reader._load_row(model, table, row)


async def load_existing(db: Connection, key: Key[Any], fields: Mapping[str, Any] | None) -> Any:
    """
    Read the entity or bag of a key.

    Args:
        db: Where it is.
        key: Its key.
        fields: Its fields, as far as they are known; None if they are not.

    Raises:
        EntityNotFound: There is none.
    """
    row = await read_current(db, key, fields)
    found = None if row is None else load_row(db, key.model, key.table, row)
    if found is None:
        raise EntityNotFound(f"there is no {key}", Code.RESOURCE_NOT_FOUND, key)
    return found


async def refresh_entity(db: Connection, entity: Entity | PropertyBag) -> None:
    """Read an entity anew, in place. Takes and raises what `Database.refresh` does."""
    db.boundary.check(entity)
    key = key_of(entity)
    db.boundary.check(key)
    fields = entity.__dict__ if isinstance(entity, Entity) else None
    adopt(entity, await load_existing(db, key, fields))


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
        LostRace: Other rows were changed by others again and again.
        TableOrmError: What a single write raises.
    """
    if options.transaction:
        writes = [structs.replace(write, transaction=True) for write in writes]
    if db.boundary.narrows:  # asked once more where no verb gets past
        for change in (write.change for write in writes):
            db.boundary.check_row(change.schema, change.address)
    try:
        if [write for write in writes if write.change.schema is not None and write.change.schema.uploads]:
            async with uploaded(db, writes) as addressed:
                await _commit(db, addressed, options)
        else:
            await _commit(db, writes, options)
    except TableOrmError as error:
        raise error.with_traceback(None) from error.__cause__


async def _commit(db: Connection, writes: Sequence[PlannedWrite], options: SendOptions) -> None:
    """Send writes whose blobs were sent. Takes and raises what `commit` does."""
    derived = Derived(writes=list(writes), token="")
    while any(map(derives, writes)):
        if any(map(must_prepare, writes)):
            writes = await _prepare(db, writes)
        try:
            derived = derive(writes)
            break
        except TransactionFailed as failed:
            writes = await _read_refused(db, writes, failed)
    if not any(effect.reads for effect in derived.effects.values()):
        await _send(db, writes, derived, options)
        return
    with db.turns.begin() as turn:
        await _send(db, writes, derived, options, turn)


async def _prepare(db: Connection, writes: Sequence[PlannedWrite]) -> Sequence[PlannedWrite]:
    """Let the homes of entities prepare writes, one at a time, and return the writes that are sent."""
    prepared = [*writes]
    for number, write in enumerate(writes):
        if must_prepare(write):
            try:
                prepared[number] = await home_of(write.change.schema).prepare(db, write)
            except TableOrmError as error:
                refuse_before_sending(write, error)
    return prepared


async def _send(
    db: Connection, writes: Sequence[PlannedWrite], derived: Derived, options: SendOptions, turn: Turn | None = None
) -> None:
    """
    Send writes with their effects; again after a lost race.

    Args:
        db: Where to.
        writes: The writes.
        derived: These, and what they do to other rows.
        options: How.
        turn: Keeps other writers of the database from the rows that effects read; None if they read none.
    """
    given = writes
    companions: list[PlannedWrite] = []
    known: Found = {}
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(pause_of(db, attempt) if attempt > 1 else 0)
        check_effects(db.boundary, derived)  # before a row of others is read
        waiting = [effect for effect in derived.effects.values() if effect.reads] if derived.effects else []
        if waiting and turn is not None:
            known = {**known, **await _take_turn(turn, waiting)}
        found = await _read(db, derived, waiting, known, options) if waiting else {}
        more = _companion_writes(derived, found) if waiting and found is not None else None
        known = found if more and found else {}  # nothing was sent yet for what was read
        if found is None or more:
            companions += more or ()  # otherwise a row was split
            derived = _derive_again(derived, [*writes, *companions])
            continue
        elsewhere = await _fetch(db, derived, options) if derived.fills else {}
        plan = await plan_sealed(db, derived, {**found, **elsewhere})
        deferral = await announce(db, plan, derived, options.bell) if derived.deferred else None
        try:
            if deferral is not None and deferral.claims:
                await deferral.reserve()
            etags = await execute(db, plan, options)
        except Fault as fault:
            if deferral is not None:
                await deferral.withdraw()
                if deferral.was_voided(fault):
                    derived = _derive_again(derived, [*writes, *companions])  # with another token
                    continue
            if fault.code in LOST_RACE and fault.index is not None and len(writes) <= fault.index < len(derived.writes):
                companions.clear()  # another writer has made or upgraded it
                derived = _derive_again(derived, writes)
                continue
            instead = await _after_refusal(db, writes, given, fault.index or 0, fault.code, options)
            if instead is None:
                write = _refused_effect(plan, fault)
                if write is None:
                    refused = refusal(plan, fault)
                    raise refused from refused.__cause__
                await _correct(db, write, derived, fault)
        except (UniqueViolation, TransactionFailed) as error:  # a value is taken, perhaps by what is replaced
            instead = await _after_refusal(db, writes, given, _find_insert(writes, error), Code.ENTITY_EXISTS, options)
            if instead is None or instead is writes:
                raise
        except InDoubt as doubt:
            raise doubt.error() from None
        else:
            if turn is not None:
                _end_turn(turn, plan, found, etags)
            if deferral is not None:
                await deferral.finish()
            return
        if instead is not None and instead is not writes:
            writes = instead
            companions.clear()
            derived = derive(writes)
    change = writes[0].origin
    raise LostRace(
        f"{change}: others changed its row, or a count, list or feed that it belongs to, {ATTEMPTS} times in a row; "
        "nothing was written; try it again, or let fewer tasks write in parallel to the same count, list or change "
        "feed",
        Code.CONDITION_NOT_SATISFIED,
        change.subject,
    )


async def _after_refusal(
    db: Connection,
    writes: Sequence[PlannedWrite],
    given: Sequence[PlannedWrite],
    at: int,
    code: str,
    options: SendOptions,
) -> Sequence[PlannedWrite] | None:
    """
    Return what to send in place of writes of which one was rejected for the row that is there; None if it stays
    rejected.

    Args:
        db: Where the rows are.
        writes: The writes as they were sent. They are returned themselves if they may succeed now.
        given: The writes as they were sent at first.
        at: Position of the operation that was rejected.
        code: Why.
        options: How they were sent.
    """
    if at >= len(writes) or code not in LOST_RACE:
        return None
    if code != Code.ENTITY_EXISTS:
        return None if writes[at] is given[at] else given  # what it would replace is gone, or another row: begin anew

    async def ask(write: PlannedWrite) -> PlannedWrite | None:
        if write.operation.verb is not Verb.INSERT:
            return None
        home = home_of(write.change.schema)
        return await _read_as_told(db, options, lambda: home.after_refusal(db, write))

    instead = await ask(writes[at])
    if instead is None or instead is writes[at]:
        return None if instead is None else writes
    # Where the row of one write can be replaced, those of others may be too.
    others = await map_together(ask, given) if len(given) > 1 else [instead]
    return await _prepare(db, [other or write for other, write in zip(others, given, strict=True)])


def _find_insert(writes: Sequence[PlannedWrite], error: TableOrmError) -> int:
    """Return the position of the insert that an error is about, if it may have a remedy; otherwise one behind all."""
    index = error.index if isinstance(error, TransactionFailed) else None
    found = (n for n, write in enumerate(writes) if has_remedy(write) and index in (None, write.index))
    return next(found, len(writes))


async def _take_turn(turn: Turn, effects: Sequence[Effect]) -> Found:
    """Wait for the turn to change the rows of effects; return those that the writer before has written just now."""
    change = effects[0].origin.change
    await turn.take([RowAddress(change.table, change.partition_key, effect.row_key) for effect in effects])
    known, turn.known = turn.known, {}
    return {at.row_key: row for at, row in known.items() if at.partition_key == change.partition_key}


def _end_turn(turn: Turn, plan: WritePlan, found: Found, etags: Sequence[str | None]) -> None:
    """Let the next writer change the rows of effects, and know them as they were written."""
    for write, etag in zip(plan.writes, etags, strict=True):
        operation, row_key = write.operation, write.row_key
        address = plan.at(row_key)
        if write.effect is None or etag is None or not turn.is_awaited(address):
            continue
        stamp, stored = timestamp_of_etag(etag), found.get(row_key) or {}
        row = overlaid(stored, operation.row) if operation.verb is Verb.MERGE else operation.row
        # Whether the next one may know whose index entry a row is, its own boundary says when it reads that.
        if stamp is not None and COPY_OF not in row:
            turn.hand_on(address, {**row, "odata.etag": etag, "Timestamp": stamp})
    turn.give_back()


async def _read_refused(
    db: Connection, writes: Sequence[PlannedWrite], failed: TransactionFailed
) -> Sequence[PlannedWrite]:
    """
    Return writes with the stored row of the delete that was rejected for what its entity remembers of others.

    Raises:
        TransactionFailed: There is no such delete, or the row has changed since the entity was read.
    """
    for number, write in enumerate(writes):
        change = write.change
        remembers = change.mode is Mode.DELETE and write.first is None and not change.is_read
        if type(failed.__cause__) is Conflict and write.index == failed.index and remembers:
            row = await read_row(db, change.address, name=change.model)
            try:
                anew = encode(complete(change, row), write.index, write.token)
            except (Conflict, EntityNotFound) as error:
                raise in_transaction(change, write.index, error, "; nothing was sent") from error
            assert anew is not None
            return [*writes[:number], structs.replace(anew, transaction=True), *writes[number + 1 :]]
    raise failed


def check_effects(boundary: Boundary, derived: Derived) -> None:
    """
    Refuse effects on rows outside of a boundary: what is derived is checked as what is written is. Where a key does
    not tell, the effect looks at the stored row.

    Raises:
        AccessDenied: A row is outside of it.
        ModelError: Its key does not tell.
        TransactionFailed: One of these errors, in a transaction.
    """
    if not boundary.narrows:
        return
    for row_key, effect in [*derived.effects.items()]:
        change = effect.origin.change
        try:
            if not boundary.check_derived_row(change.schema, change.address.beside(row_key)):
                derived.effects[row_key] = effect.checked()
        except TableOrmError as error:
            refuse_before_sending(effect.origin, error)
    for each in derived.deferred:
        try:
            check_places(boundary, each)
        except TableOrmError as error:
            refuse_before_sending(each.origin, error)


def _companion_writes(derived: Derived, found: Found) -> list[PlannedWrite]:
    """Return writes of entities that must be written in full before effects can change them."""
    companions: list[PlannedWrite] = []
    for effect in derived.effects.values():
        try:
            write = effect.full_write(found.get(effect.row_key), derived.token)
        except TableOrmError as error:
            refuse_before_sending(effect.origin, error)
        if write is not None:
            companions.append(write)
    return companions


def _derive_again(derived: Derived, writes: Sequence[PlannedWrite]) -> Derived:
    """Derive the effects of writes anew, and keep those that have learnt how their rows are stored."""
    again = derive(writes)
    for row_key, effect in derived.effects.items():
        if effect.survives_replan and type(again.effects.get(row_key)) is type(effect):
            again.effects[row_key] = effect
    return again


async def _read_as_told(db: Connection, options: SendOptions, read: Callable[[], Awaitable[T]]) -> T:
    """Return what a function reads; where a write is patient, it is called again after a refusal that passes."""
    return await (read_patiently(db, read, options.throttled) if options.patient else read())


async def _read_other(db: Connection, effect: Effect) -> Row | None:
    """Read the row of an effect. An index entry of an entity outside of the boundary does not say whose it is."""
    change = effect.origin.change
    name = "" if change.schema is None else change.schema.name
    address = change.address.beside(effect.row_key)
    row = await read_row(db, address, name=name, purpose=effect.origin.origin)
    owner = None if row is None else row.get(COPY_OF)
    if not isinstance(owner, str) or db.boundary.holds_row(change.schema, address.beside(owner)):
        return row
    assert row is not None
    return {**row, COPY_OF: ""}


async def _read(
    db: Connection, derived: Derived, waiting: list[Effect], known: Found, options: SendOptions
) -> Found | None:
    """
    Read the rows that effects must know, besides those that are known.

    Return None if a row was too large and has been split: plan anew then.
    """
    found: Found = {}

    async def read(effect: Effect) -> Row | None:
        if effect.row_key in known:
            return known[effect.row_key]
        return await _read_as_told(db, options, lambda: _read_other(db, effect))

    while waiting:
        rows = await map_together(read, waiting)
        deeper: list[Effect] = []
        for effect, row in zip(waiting, rows, strict=True):
            routed = effect.route(row)
            if routed == [effect]:
                found[effect.row_key] = row
                if await _split(db, effect, row):
                    return None
                continue
            del derived.effects[effect.row_key]
            deeper += routed
            derived.effects.update((each.row_key, each) for each in routed)
        waiting = deeper
    return found


async def _fetch(db: Connection, derived: Derived, options: SendOptions) -> dict[Any, Row | None]:
    """Return the rows of other partitions from which parts of writes are made."""
    fills = {fill.source: fill for fill in derived.fills if isinstance(fill.source, RowAddress)}

    async def fetch(fill: Fill) -> Row | None:
        return await _read_as_told(db, options, lambda: fill.fetch(db))

    try:
        rows = await map_together(fetch, list(fills.values()))
    except TableOrmError as error:
        refuse_before_sending(derived.writes[0], error)
    return dict(zip(fills, rows, strict=True))


async def _split(db: Connection, effect: Effect, row: Row | None) -> bool:
    """Send the transaction that splits a row before the effect, if it is full; return whether it was."""
    operations = effect.split_first(row, new_token())  # that of the write proves that the write was applied
    if not operations:
        return False
    change = effect.origin.change
    # If it was not written, another writer has changed or split it, or the reply was lost: the stored row tells.
    what = f"a row that is split for the {change}"
    await write_as_read(db, change.table, operations, name=change.model, what=what)
    return True


def _refused_effect(plan: WritePlan, fault: Fault) -> PlannedWrite | None:
    """Return the write of an effect that was rejected since another writer came first; None if it was not that."""
    at = fault.index
    write = plan.writes[at] if at is not None and at < len(plan.writes) else plan.writes[0]
    return write if write.effect is not None and fault.code in LOST_RACE else None


async def _correct(db: Connection, write: PlannedWrite, derived: Derived, fault: Fault) -> None:
    """Correct an effect that the store has refused."""
    effect = write.effect
    assert effect is not None
    row_key = write.row_key
    survives = effect.survives_conflict(row_key)
    row = await _read_other(db, effect) if survives or not effect.reads else None
    try:
        if survives:
            effect.check_survivor(row_key, row)
        derived.effects[effect.row_key] = effect.after_conflict(fault.code, row)
    except TableOrmError as error:
        with_fault(error, fault).with_traceback(None)
        if not write.transaction:
            raise
        raise in_transaction(write.origin, write.index, error, "; nothing was applied") from error


_HOME = Home(commit)


def home_of(schema: Schema | None) -> Home:
    """Return where the entities of a model are; of None, rows of bags."""
    return schema.home if schema is not None and isinstance(schema.home, Home) else _HOME


def read_current(
    db: Connection, at: Change | Key[Any], fields: Mapping[str, Any] | None = None
) -> Awaitable[Row | None]:
    """Read a row that is going to be written. Takes, returns and raises what `Home.read` does."""
    return home_of(names_of(at)[0]).read(db, at, fields)
