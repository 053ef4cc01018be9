"""
`modify`, and how calls for one row are made together.

One call for a row works at a time. Those that come meanwhile wait in a line, and are folded into one read and one
write: each function is applied to what the one before has made of the row, and gets an entity of its own. If a function
raises, the next one gets what that one got, so that nothing of it is written.

Folded calls are made by a task of their own, so that it does not matter which of the callers are cancelled. A call
makes itself if it is alone in the line, if it cannot be folded, or if the store has refused what several have made. So
every error is that of the call which deserves it.
"""

import asyncio
import copy
import datetime as dt
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextvars import Context, copy_context
from functools import reduce
from time import monotonic
from typing import Any, cast

import attrs
from msgspec import structs

from ..connection.connection import Connection
from ..connection.races import Attempts, check_attempts, is_race
from ..connection.rows import read_row
from ..errors import (
    AccessDenied,
    EntityExists,
    EntityNotFound,
    LostRace,
    OutcomeUnknown,
    PreconditionFailed,
    TableNotFound,
    TableOrmError,
    Unavailable,
)
from ..models.entity import Entity
from ..models.key import Key
from ..models.manifest import ManifestEntry
from ..models.marker_rows import is_marker
from ..models.property_bag import PropertyBag
from ..models.schema import DerivedSchema, FieldInfo, Schema
from ..models.state import STATE, EntityState, PackedState, set_state, state_of
from ..models.write_tokens import new_token
from ..protocol.codes import Code
from ..protocol.limits import MAX_TRANSACTION_BYTES, MAX_TRANSACTION_OPERATIONS
from ..stores import Row, RowAddress
from .commit import commit, load_row, read_current, write_change
from .modify import applied, check_arguments, insertion, made_new, refuse_other_version, refuse_unsaved
from .move import marker_error
from .patch import then
from .pending import copy_subject
from .plan import Change, PlannedWrite
from .rows import NOT_CONTENT, compare
from .stages.change import save_change
from .stages.compose import encode_joined
from .stages.encode import encode
from .stages.execute import is_light, most_row_bytes, plan_writes, remember
from .stages.prepare import check_etag, validate
from .subject import Subject, adopt, check_change, key_of_target

_MOST = 1000
"""How many calls are folded at most: the longer the functions take, the likelier it is that another program writes."""

_SLICE = 0.002  # seconds for which functions are called before other tasks get a turn

_FEW = 16  # light rows, which are never too much for a transaction: each has 200 KiB at most

_LOST = (EntityExists, EntityNotFound, PreconditionFailed)

_FOR_ALL = (LostRace, OutcomeUnknown, TableNotFound, Unavailable)
"""Errors that each call would meet by itself, or after which a write must not be repeated."""


@attrs.define(eq=False)
class _ModifyCall:
    """
    A call of `modify`, and what came of it.

    Args:
        function: What changes the row.
        instance: The entity or bag that gets the result; None if a key was given.
        fields: Fields of the entity, as far as they are known.
        create: Makes the entity if there is none; None to raise an error.
        if_match: The ETag that the row must have.
        attempts: How often it is tried at most.
        turn: Of one that waits: done when the call was made, or is to make itself.
        context: Of one that waits: the context variables of the caller.
        leads: Whether it makes itself.
        result: What the function made.
        changed: Whether there is something to write.
        write: How; None if there is nothing, or if it is a plain row, whose write is planned when it is needed.
        state: What the entity of a plain row knows of what was made of it; None if nothing is changed.
        error: What the call raises.
    """

    function: Callable[[Any], Any]
    instance: Subject | None
    fields: dict[str, Any]
    create: Any
    if_match: str | None
    attempts: int
    turn: asyncio.Future[None] = attrs.field(init=False)
    context: Context = attrs.field(init=False)
    leads: bool = False
    result: Any = None
    changed: bool = False
    write: PlannedWrite | None = None
    state: EntityState | None = None
    error: BaseException | None = None

    def end(self, error: BaseException | None = None) -> None:
        """Let the caller go on, unless it was cancelled."""
        self.error = error
        if not self.turn.done():
            self.turn.set_result(None)


async def modify_target(
    db: Connection,
    target: Any,
    function: Callable[[Any], Any],
    fields: dict[str, Any],
    *,
    attempts: int,
    create: Any,
    if_match: str | None,
) -> Any:
    """Read an entity, apply a function and save it. Takes and raises what `Database.modify` does."""
    check_arguments(function, create, if_match)
    check_attempts("modify", attempts)
    instance: Subject | None = None
    if not isinstance(target, type) and isinstance(target, (Entity, PropertyBag)):
        instance = target
        refuse_unsaved(instance, None)
    key = key_of_target(db.boundary, target, fields)
    if if_match is not None:
        check_etag("modify", key, if_match)
    given = instance.__dict__ if isinstance(instance, Entity) else fields
    call = _ModifyCall(function, instance, given, create, if_match, attempts)
    name = db.reader, key.model, key.table, key.partition_key, key.row_key
    line: _ModifyLine | None = db.lines.get(name)
    if db.turns.current is not None:  # within the request of another write, which may be the one to wait for
        result = await _ModifyLine(db, key, name).make(call)
    elif line is None:
        line = db.lines[name] = _ModifyLine(db, key, name)
        result = await line.lead(call)
    else:
        call.turn, call.context = asyncio.Future(), copy_context()
        line.calls.append(call)
        try:
            await call.turn
        except asyncio.CancelledError:
            if call.leads:
                line.pass_on()
            raise
        if call.error is not None:
            raise call.error
        result = await line.lead(call) if call.leads else call.result
    if instance is None:
        return result
    adopt(instance, result)
    return instance


@attrs.define(eq=False)
class _ModifyLine:
    """
    The calls for one row, of one model and database or scope, that wait while others are made.

    Args:
        db: Where the row is.
        key: The row.
        name: What `lines` of the connection has it under.
        calls: Those that wait, in order.
        most: How many are folded next.
        folds: Whether calls can be folded: what a write leaves is what the next read would find, under this key and as
            the model says.
    """

    db: Connection
    key: Key[Any]
    name: Hashable
    calls: deque[_ModifyCall] = attrs.field(factory=deque[_ModifyCall])
    most: int = _MOST
    folds: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        schema: Schema | None = getattr(self.key.model, "__schema__", None)
        self.folds = schema is None or (schema.home is None and not schema.stages)

    async def lead(self, call: _ModifyCall) -> Any:
        """Make the first call of the line. Raises what is wrong with it."""
        try:
            return await self.make(call)
        finally:
            self.most = min(2 * self.most, _MOST)
            self.pass_on()

    def pass_on(self) -> None:
        """Let the next calls be made."""
        while self.calls and self.calls[0].turn.done():
            self.calls.popleft()  # it was cancelled
        if not self.calls:
            del self.db.lines[self.name]
        elif len(self.calls) == 1 or not self._folds():
            call = self.calls.popleft()
            call.leads = True
            call.end()
        else:
            self.db.run(self._fold(), self.calls[0].context.copy())

    def _folds(self) -> bool:
        """Return whether the next call may be folded: its condition is not one on a version."""
        return self.folds and self.most > 1 and self.calls[0].if_match in (None, "*")

    async def _fold(self) -> None:
        """Make calls of the line together."""
        calls: list[_ModifyCall] = []
        while self.calls and len(calls) < self.most and self._folds():
            calls.append(self.calls.popleft())
        try:
            await self._make_together(calls)
        except asyncio.CancelledError:  # the loop is being closed
            for call in calls:
                call.turn.cancel()
            raise
        finally:
            self.pass_on()

    # One call

    async def make(self, call: _ModifyCall) -> Any:
        """Read the row, apply the function and write what it has made; again after a lost race."""
        db, key = self.db, self.key
        with db.turns.begin() as turn:
            async for _ in Attempts(db, call.attempts):
                await turn.take((RowAddress.of(key),))
                try:
                    row = await read_current(db, key, call.fields)
                except TableOrmError as error:
                    raise error.with_traceback(None) from error.__cause__
                subject = None if row is None else load_row(db, key.model, key.table, row)
                if subject is not None:
                    refuse_other_version(key, subject, call.if_match)
                    result = applied(call.function, subject, call.instance)
                    change = save_change(result, verb="modify")
                elif call.create is not None:
                    result = applied(call.function, made_new(db.boundary, call.create, key), call.instance)
                    change = insertion(key, result, None)
                    if row is not None and is_marker(row):
                        raise marker_error(change, row)
                else:
                    raise self._not_found()
                try:
                    await write_change(db, change)
                except _LOST as error:
                    if not is_race(error) or call.if_match not in (None, "*"):
                        raise
                    continue  # if it was deleted, reading says so
                return result
        raise await self._lost(call.attempts)

    def _not_found(self) -> EntityNotFound:
        return EntityNotFound(f"there is no {self.key}", Code.RESOURCE_NOT_FOUND, self.key)

    async def _lost(self, attempts: int) -> LostRace:
        """Return the error of a call that has lost each race, with the row as it is now."""
        key = self.key
        row = await read_row(self.db, RowAddress.of(key), name=key.model.__name__)
        return LostRace(
            f"modify of {key}: others wrote it first, {attempts} times in a row; try it again, give more attempts=, "
            f"or let fewer tasks write it in parallel",
            Code.CONDITION_NOT_SATISFIED,
            None if row is None else load_row(self.db, key.model, key.table, row),
        )

    # Several calls

    async def _make_together(self, calls: list[_ModifyCall]) -> None:
        """Make calls in one read and one write; put those back into the line that cannot be made so."""
        try:
            with self.db.turns.begin() as turn:
                most = max(call.attempts for call in calls)
                async for attempt in Attempts(self.db, most + 1):  # the last one raises that all were lost
                    await turn.take((RowAddress.of(self.key),))
                    calls = await self._still_tried(calls, attempt)
                    if not calls or await self._try_together(calls):
                        break
        except Exception as error:  # noqa: BLE001 - it is raised in the callers
            if isinstance(error, TableOrmError) and _concerns_all(error):
                for call in calls:
                    call.end(_own_error(error, call))
            else:  # which call deserves it, smaller folds tell
                self.most = max(1, len(calls) // 2)
                self.calls.extendleft(reversed(calls))

    async def _still_tried(self, calls: Sequence[_ModifyCall], attempt: int) -> list[_ModifyCall]:
        """Return the calls that were neither cancelled meanwhile, nor have had all of their attempts."""
        for call in calls:
            if call.attempts <= attempt and not call.turn.done():
                call.end(await self._lost(call.attempts))
        return [call for call in calls if not call.turn.done()]

    async def _try_together(self, calls: Sequence[_ModifyCall]) -> bool:
        """Make calls once; return False if another program has written the row meanwhile."""
        row = await read_current(self.db, self.key, calls[0].fields)
        fold = _Fold(self.db, self.key, row)
        rest = calls[await fold.apply(calls) :]
        try:
            await fold.write()
        except _LOST as error:
            if not is_race(error):
                raise
            return False
        fold.end()
        while fold.finds_none and rest and rest[0].create is None:
            rest[0].end(self._not_found())
            rest = rest[1:]
        self.calls.extendleft(reversed(rest))
        # The next one makes itself: also the entity, or a write which may be too large.
        self.most = 1 if fold.ends_early and rest else min(2 * self.most, _MOST)
        return True


class _Fold:
    """
    What functions make of a row, one after the other, and the write of it.

    Most rows are plain: the model knows all of their properties, and no write fills any in. Then the write is the
    difference between the row as it was read and the last result, and those between are not planned. Nor is the entity
    for the next function decoded again, as long as all values are what would be read of them.

    Args:
        db: Where the row is.
        key: The row.
        row: As it was read; None if there is none.

    Attributes:
        finds_none: Whether a function met no entity.
        ends_early: Whether the call behind those that were applied is to make itself.
    """

    def __init__(self, db: Connection, key: Key[Any], row: Row | None) -> None:
        self._db, self._key = db, key
        self._row = self._read = row
        self._plain: Schema | None = None  # the schema of the row, if it is plain
        self._of_store: Row = {}  # what no entity has of a plain row
        self._values: dict[str, Any] = {}  # of the entity of a plain row
        self._mutable: list[str] = []  # its fields that can be changed in place
        self._copies = False  # whether the next entity can be made of these values
        self._derived: list[DerivedSchema] = []
        self._encoded: Row | None = None
        self._token = new_token()
        self._made: list[_ModifyCall] = []
        self._refused: list[tuple[_ModifyCall, Exception]] = []
        self.finds_none = self.ends_early = False

    async def apply(self, calls: Sequence[_ModifyCall]) -> int:
        """
        Apply the functions of calls, and return of how many: not of those that meet no entity, nor of one whose write
        may be too large, nor of those after one of which only the write can tell whether it is rejected.
        """
        until = monotonic() + _SLICE
        for number, call in enumerate(calls):
            if monotonic() > until:
                await asyncio.sleep(0)
                until = monotonic() + _SLICE
            subject = self._next()
            if subject is None:
                self.finds_none = self.ends_early = True
                return number
            try:
                told = call.context.run(self._apply, call, subject)
            except Exception as error:  # noqa: BLE001 - it is raised in the caller
                if self._row is self._read:
                    call.end(error)
                else:  # it may be due to what is not stored yet, and perhaps never will be
                    self._refused.append((call, error))
            else:
                if self.ends_early:
                    return number
                if not told:
                    return number + 1
        return len(calls)

    def _next(self) -> Subject | None:
        """Return an entity or bag of the row for the next function; None if there is none."""
        if self._copies and self._plain is not None:
            entity: Entity = object.__new__(cast(Any, self._plain.model))
            entity.__dict__.update(self._values)
            return entity
        self._plain = None
        if self._row is None:
            return None
        subject: Subject | None = load_row(self._db, self._key.model, self._key.table, self._row.copy())
        if not isinstance(subject, Entity):
            return subject
        schema = subject.__schema__
        self._derived = [*schema.derived.values()]
        state = state_of(subject)
        packed = isinstance(state, PackedState) and not state.upgraded
        # A boundary looks at each result.
        if packed and not schema.filled and not self._db.boundary.narrows:
            self._plain = schema
            self._mutable = [info.name for info in schema.fields.values() if info.shape or info.type.json_text]
            self._copies = not self._mutable and schema.expiry is None
            set_state(subject, EntityState(stored=self._row))
            self._of_store, self._values = _of_store(self._row), subject.__dict__.copy()
        return subject

    def _apply(self, call: _ModifyCall, subject: Subject) -> bool:
        """
        Apply the function of a call, unless its write may be too large; return whether it is told that the write would
        not be rejected.
        """
        before = self._entries_before(subject)
        result: Any = applied(call.function, subject, call.instance)
        call.result = result
        made = self._made_plainly(result)
        write = self._planned(result) if made is None else None
        changed = write is not None if made is None else bool(made[0])
        after = self._entries_of(result) if changed else []  # raises what its keys cannot hold
        told = True
        if write is not None:
            told = not _sets_maintained(write.change)
            if not is_light(write.weight):
                plan_writes((write,))
        if changed and self._derived:
            if before is None or not self._is_small(before, after, made, write):
                self.ends_early = True
                return False
            told = told and not any(
                each.may_refuse and old != new for each, old, new in zip(self._derived, before, after, strict=True)
            )
        call.changed, call.write, call.state = changed, write, None
        self._made.append(call)
        if changed and made is not None:
            names, self._row, self._encoded = made
            call.state = self._values[STATE] = EntityState(stored=self._row)
            for name in names:
                value = self._values[name] = result.__dict__[name]
                self._copies = self._copies and _is_kept(result.__schema__.fields[name], value)
        elif write is not None:
            self._encoded, self._copies = None, False
            if write.after is not None and self._row is not None:
                self._row = _of_store(self._row) | write.after
        return told

    def _made_plainly(self, result: Any) -> tuple[list[str], Row, Row] | None:
        """
        Return what a function has made of a plain row: names of the fields that it has changed, the row, and that as
        the encoder makes it. None if the row, or what was changed, is none such.
        """
        schema, before, known = self._plain, self._row, self._values
        if schema is None or before is None or result.__dict__.get(STATE) is not known[STATE]:
            return None
        own: dict[str, Any] = result.__dict__
        if schema.has_validators:
            validate(result, schema, own)
        changed = [name for name in schema.fields if own[name] is not known[name]] + self._mutable
        if not changed:
            return [], before, before
        if not schema.key_names.isdisjoint(changed) or any(schema.fields[name].maintained for name in changed):
            return None
        row, weight = schema.encode(own, before["PartitionKey"], before["RowKey"])
        if not is_light(weight):
            return None
        encoded = row
        if self._encoded is None or self._encoded == row:  # equal rows may differ too, in minus zero
            encoded = row.copy()  # `compare` gives values the spelling that was read
            differing, _ = compare(before, row, schema)
            if not differing.keys() <= before.keys():
                return None  # it may be a default that the row does not have
            if not differing and len(self._of_store) + len(row) == len(before):
                return [], before, before
        return changed, {**self._of_store, **row}, encoded

    def _planned(self, result: Subject) -> PlannedWrite | None:
        """Return the write that saves a result over the row that its function was given; None if nothing changed."""
        change = save_change(result, verb="modify")
        check_change(self._db.boundary, change)
        return encode(change, 0, self._token)

    def _entries_before(self, subject: Subject) -> list[ManifestEntry | None] | None:
        """Return the entries of an entity as it is stored; None if other programs have written what fits no key."""
        try:
            return self._entries_of(subject)
        except TableOrmError:
            return None

    def _entries_of(self, subject: Subject) -> list[ManifestEntry | None]:
        """Return what the manifest ought to say, of all declarations. Raises TemplateError."""
        keys = self._key.partition_key, self._key.row_key
        return [each.entry(subject.__dict__, *keys) for each in self._derived]

    def _is_small(
        self,
        before: Sequence[ManifestEntry | None],
        after: Sequence[ManifestEntry | None],
        made: tuple[list[str], Row, Row] | None,
        write: PlannedWrite | None,
    ) -> bool:
        """Return whether a write surely fits into a transaction, with the rows that are derived from the entity."""
        entries = {key for entry in (*before, *after) if entry is not None for key in entry.entry_keys}
        rows = len(entries) + 2 * len(self._derived)
        row: Row | None
        if made is not None:
            row, light = made[1], True
        else:
            assert write is not None
            row, light = write.after, is_light(write.weight)
        if row is None or rows >= MAX_TRANSACTION_OPERATIONS:
            return False
        return (light and rows < _FEW) or rows * most_row_bytes(row) <= MAX_TRANSACTION_BYTES

    async def write(self) -> None:
        """Send one write for all of them. Raises what a single write raises."""
        changes = [made for made in self._made if made.changed]
        if not changes:
            return
        # Also if the row is as it was read then: no result may keep an ETag that is still right.
        if all(made.write is None for made in changes):
            last = changes[-1].result
            assert isinstance(last, Entity)
            set_state(last, EntityState(stored=self._read))
            change = save_change(last, verb="modify")
            check_change(self._db.boundary, change)
        else:
            change = _as_one(
                [write for made in changes if (write := made.write or self._planned(made.result)) is not None]
            )
        self._db.used_models.add(change.schema)
        await commit(self._db, (encode_joined(change, 0, self._token),))

    def end(self) -> None:
        """
        Let the calls have their results. What later functions have changed is not the row as it is stored: it keeps the
        ETag that was read, under which nothing can be written any more.
        """
        last = max((number for number, made in enumerate(self._made) if made.changed), default=-1)
        for number, made in enumerate(self._made):
            if not made.changed:
                if number > last >= 0:
                    adopt(made.result, copy_subject(self._made[last].result))
            elif number != last and self._read is not None:
                if made.write is not None:
                    remember(made.write, self._read["odata.etag"])
                elif made.state is not None:
                    set_state(made.result, made.state)
            made.end()
        for call, error in self._refused:
            call.end(error)


def _as_one(writes: Sequence[PlannedWrite]) -> Change:
    """Return the change that writes what the last one makes, over the row as it was read."""
    first, last = writes[0].change, writes[-1].change
    patch = reduce(then, (write.change.patch for write in writes))
    return structs.replace(last, patch=patch, before=first.before, stored=first.stored)


def _of_store(row: Row) -> Row:
    """Return the members of a row that no entity has, but its keys: what the store and earlier writes have made."""
    return {name: row[name] for name in NOT_CONTENT if name in row}


def _is_kept(info: FieldInfo, value: object) -> bool:
    """Return whether a value is what is read of it when it was written, if no value of the field can be changed."""
    kind = type(value)
    return value is None or (kind is info.type.base and (kind is not dt.datetime or cast(Any, value).tzinfo is dt.UTC))


def _sets_maintained(change: Change) -> bool:
    """Return whether a change is of fields that other entities keep, so that it is going to be rejected."""
    maintained = () if change.schema is None else change.schema.maintained
    properties = {member.property for info in maintained for member in info.members}
    return not properties.isdisjoint(change.patch.remove.union(change.patch.set or ()))


def _concerns_all(error: TableOrmError) -> bool:
    """Return whether an error of calls that are made together is that of each of them."""
    denied = isinstance(error, AccessDenied) and error.fault is not None
    return denied or isinstance(error, _FOR_ALL)


def _own_error(error: TableOrmError, call: _ModifyCall) -> TableOrmError:
    """Return an error of several calls for one of them."""
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    if "entity" in own.__dict__:
        own.__dict__["entity"] = call.result
    return own
