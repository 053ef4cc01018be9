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
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from functools import reduce
from typing import Any, NamedTuple

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
from ..models.reserved import WRITE_TOKENS
from ..models.schema import Schema
from ..models.state import EntityState, PackedState, set_state, state_of
from ..models.write_tokens import new_token
from ..protocol.codes import Code, Fault
from ..stores import Row, RowAddress
from .commit import Loader, commit, read_current, write_change
from .marker_errors import marker_error
from .modify import applied, check_arguments, insertion, made_new, refuse_other_version, refuse_unsaved
from .patch import then
from .pending import copy_subject
from .plan import Change, PlannedWrite
from .rows import NOT_PROPERTIES, compare
from .stages.change import save_change
from .stages.compose import encode_joined
from .stages.encode import encode
from .stages.execute import is_light, plan_writes, remember
from .stages.prepare import check_etag
from .subject import Subject, adopt, check_change, key_of_target

__all__ = ["modify_target"]

_MOST = 250
"""How many calls are folded at most: the longer the functions take, the likelier it is that another program writes."""

_SLICE = 0.002  # seconds for which functions are called before other tasks get a turn

_LOST = (EntityExists, EntityNotFound, PreconditionFailed)

_FOR_ALL = (LostRace, OutcomeUnknown, TableNotFound, Unavailable)
"""Errors that each call would meet by itself, or after which a write must not be repeated."""


@attrs.define(eq=False)
class _ModifyCall:
    """
    A call of `modify`, and what came of it.

    Args:
        key: The row.
        function: What changes it.
        instance: The entity or bag that gets the result; None if a key was given.
        fields: Fields of the entity, as far as they are known.
        create: Makes the entity if there is none; None to raise an error.
        if_match: The ETag that the row must have.
        attempts: How often it is tried at most.
        turn: Done when the call was made, or is to make itself.
        context: The context variables of the caller.
        leads: Whether it makes itself.
        result: What the function made.
        error: What the call raises.
    """

    key: Key[Any]
    function: Callable[[Any], Any]
    instance: Subject | None
    fields: dict[str, Any]
    create: Any
    if_match: str | None
    attempts: int
    turn: asyncio.Future[None] = attrs.field(factory=lambda: asyncio.get_running_loop().create_future())
    context: Context = attrs.field(factory=copy_context)
    leads: bool = False
    result: Any = None
    error: BaseException | None = None

    def end(self, result: Any = None, error: BaseException | None = None) -> None:
        """Let the caller go on, unless it was cancelled."""
        self.result, self.error = result, error
        if not self.turn.done():
            self.turn.set_result(None)


@attrs.define(eq=False)
class _ModifyLine:
    """
    The calls for one row, of one model and boundary, that wait while others are made.

    Args:
        calls: They, in order.
        most: How many are folded next.
    """

    calls: deque[_ModifyCall] = attrs.field(factory=deque[_ModifyCall])
    most: int = _MOST


async def modify_target(
    db: Connection,
    load: Loader,
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
    instance = target if isinstance(target, (Entity, PropertyBag)) else None
    if instance is not None:
        refuse_unsaved(instance, None)
    key = key_of_target(db.boundary, target, fields)
    if if_match is not None:
        check_etag("modify", key, if_match)
    given = instance.__dict__ if isinstance(instance, Entity) else fields
    call = _ModifyCall(key, function, instance, given, create, if_match, attempts)
    result = await _Modifier(db, load, key).call(call)
    if instance is not None:
        adopt(instance, result)
    return result


@attrs.define(eq=False)
class _Modifier:
    """
    Makes the calls for one row.

    Args:
        db: Where the row is.
        load: Makes the entity or bag of a row.
        key: The row.
    """

    db: Connection
    load: Loader
    key: Key[Any]

    # The line

    @property
    def _name(self) -> tuple[object, ...]:
        return self.db.boundary, self.load, self.key

    async def call(self, call: _ModifyCall) -> Any:
        """Make a call, or let it be made. Raises what is wrong with it."""
        if self.db.turns.current is not None:
            return await self._make(call)  # within the request of another write, which may be the one to wait for
        lines, name = self.db.lines, self._name
        line: _ModifyLine | None = lines.get(name)
        if line is None:
            line = lines[name] = _ModifyLine()
        else:
            line.calls.append(call)
            try:
                await call.turn
            except asyncio.CancelledError:
                if call.leads:
                    self._pass_on(line)
                raise
            if call.error is not None:
                raise call.error
            if not call.leads:
                return call.result
        try:
            return await self._make(call)
        finally:
            line.most = min(2 * line.most, _MOST)
            self._pass_on(line)

    def _pass_on(self, line: _ModifyLine) -> None:
        """Let the next calls be made."""
        while line.calls and line.calls[0].turn.done():
            line.calls.popleft()  # it was cancelled
        if not line.calls:
            del self.db.lines[self._name]
        elif len(line.calls) == 1 or not self._folds(line):
            call = line.calls.popleft()
            call.leads = True
            call.end()
        else:
            self.db.run(self._fold(line), line.calls[0].context.copy())

    def _folds(self, line: _ModifyLine) -> bool:
        """
        Return whether the next call may be folded: its condition is not one on a version, and what a write leaves is
        what the next read would find, under this key and as the model says.
        """
        schema: Schema | None = getattr(self.key.model, "__schema__", None)
        as_written = schema is None or (schema.home is None and not schema.stages)
        return as_written and line.most > 1 and line.calls[0].if_match in (None, "*")

    async def _fold(self, line: _ModifyLine) -> None:
        """Make calls of the line together."""
        calls: list[_ModifyCall] = []
        while line.calls and len(calls) < line.most and self._folds(line):
            calls.append(line.calls.popleft())
        try:
            await self._make_together(line, calls)
        except asyncio.CancelledError:  # the loop is being closed
            for call in calls:
                call.turn.cancel()
            raise
        finally:
            self._pass_on(line)

    # One call

    async def _make(self, call: _ModifyCall) -> Any:
        """Read the row, apply the function and write what it has made; again after a lost race."""
        db, key = self.db, self.key
        with db.turns.begin() as turn:
            async for _ in Attempts(db, call.attempts):
                await turn.take((RowAddress.of(key),))
                row = await read_current(db, key, call.fields)
                subject = None if row is None else self.load(key.model, key.table, row)
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
            None if row is None else self.load(key.model, key.table, row),
        )

    # Several calls

    async def _make_together(self, line: _ModifyLine, calls: list[_ModifyCall]) -> None:
        """Make calls in one read and one write; put those back into the line that cannot be made so."""
        try:
            with self.db.turns.begin() as turn:
                most = max(call.attempts for call in calls)
                async for attempt in Attempts(self.db, most + 1):  # the last one raises that all were lost
                    await turn.take((RowAddress.of(self.key),))
                    calls = await self._still_tried(calls, attempt)
                    if not calls or await self._try_together(line, calls):
                        break
        except Exception as error:  # noqa: BLE001 - it is raised in the callers
            if isinstance(error, TableOrmError) and _concerns_all(error):
                for call in calls:
                    call.end(error=_own_error(error, call))
            else:  # which call deserves it, smaller folds tell
                line.most = max(1, len(calls) // 2)
                line.calls.extendleft(reversed(calls))
        else:
            line.most = min(2 * line.most, _MOST)

    async def _still_tried(self, calls: Sequence[_ModifyCall], attempt: int) -> list[_ModifyCall]:
        """Return the calls that were neither cancelled meanwhile, nor have had all of their attempts."""
        for call in calls:
            if call.attempts <= attempt and not call.turn.done():
                call.end(error=await self._lost(call.attempts))
        return [call for call in calls if not call.turn.done()]

    async def _try_together(self, line: _ModifyLine, calls: Sequence[_ModifyCall]) -> bool:
        """Make calls once; return False if another program has written the row meanwhile."""
        row = await read_current(self.db, self.key, calls[0].fields)
        fold = _Fold(self.db, self.load, self.key, row)
        rest = calls[await fold.apply(calls) :]
        try:
            await fold.write()
        except _LOST as error:
            if not is_race(error):
                raise
            return False
        fold.end()
        while fold.finds_none and rest and rest[0].create is None:
            rest[0].end(error=self._not_found())
            rest = rest[1:]
        line.calls.extendleft(reversed(rest))
        if fold.finds_none and rest:
            line.most = 1  # the next one makes the entity, and itself
        return True


class _Made(NamedTuple):
    """
    What the function of a call has made of the row.

    Args:
        call: The call.
        result: The entity or bag.
        changed: Whether there is something to write.
        write: How; None if there is nothing, or if it is a plain row, whose write is planned when it is needed.
        row: What the next function gets; None if there is nothing to write.
    """

    call: _ModifyCall
    result: Subject
    changed: bool
    write: PlannedWrite | None
    row: Row | None


class _Fold:
    """
    What functions make of a row, one after the other, and the write of it.

    Most rows are plain: nothing is derived from them or filled in, and the model knows all of their properties. Then
    the write is the difference between the row as it was read and the last result, and those between are not planned.

    Args:
        db: Where the row is.
        load: Makes the entity or bag of a row.
        key: The row.
        row: As it was read; None if there is none.

    Attributes:
        finds_none: Whether a function met no entity.
    """

    def __init__(self, db: Connection, load: Loader, key: Key[Any], row: Row | None) -> None:
        self._db, self._load, self._key = db, load, key
        self._row = self._read = row
        self._encoded: Row | None = None
        self._token = new_token()
        self._made: list[_Made] = []
        self._refused: list[tuple[_ModifyCall, Exception]] = []
        schema: Schema | None = getattr(key.model, "__schema__", None)
        self._refusing = [] if schema is None else [each for each in schema.derived.values() if each.may_refuse]
        # A boundary looks at each result.
        self._plain_schema = None if schema is None or db.boundary.narrows or not _is_plain(schema) else schema
        self.finds_none = False

    async def apply(self, calls: Sequence[_ModifyCall]) -> int:
        """
        Apply the functions of calls, and return of how many: not of those that meet no entity, nor of those after one
        of which only the write can tell whether it is refused.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + _SLICE
        for number, call in enumerate(calls):
            if loop.time() > until:
                await asyncio.sleep(0)
                until = loop.time() + _SLICE
            subject = None
            if self._row is not None:
                subject = self._load(self._key.model, self._key.table, self._row.copy())
            if subject is None:
                self.finds_none = True
                return number
            try:
                told = call.context.run(self._apply, call, subject)
            except Exception as error:  # noqa: BLE001 - it is raised in the caller
                if self._row is self._read:
                    call.end(error=error)
                else:  # it may be due to what is not stored yet, and perhaps never will be
                    self._refused.append((call, error))
            else:
                if not told:
                    return number + 1
        return len(calls)

    def _apply(self, call: _ModifyCall, subject: Subject) -> bool:
        """Apply the function of a call; return whether it is told that its write would not be refused."""
        entries = self._entries_of(subject)
        result = call.result = applied(call.function, subject, call.instance)
        made = self._plainly(call, result)
        if made is None:
            write, row, self._encoded = self._planned(result), None, None
            if write is not None and write.after is not None and self._row is not None:
                row = {name: self._row[name] for name in NOT_PROPERTIES if name in self._row} | write.after
            made = _Made(call, result, write is not None, write, row)
        told = not made.changed or self._entries_of(result) == entries
        if made.write is not None and not is_light(made.write.weight):
            plan_writes((made.write,))
        self._made.append(made)
        if made.row is not None:
            self._row = made.row
        return told

    def _plainly(self, call: _ModifyCall, result: Subject) -> _Made | None:
        """Return what a function has made of a plain row; None if the row, or what was changed, is none such."""
        schema, before = self._plain_schema, self._row
        if schema is None or before is None or not isinstance(result, Entity):
            return None
        state, own = state_of(result), result.__dict__
        if not isinstance(state, PackedState) or state.extra is not None or WRITE_TOKENS in before:
            return None
        keys = schema.make_keys(own)
        if keys != state.keys:
            return None
        row, weight = schema.encode(own, *keys)
        if not is_light(weight):
            return None
        encoded = row
        if self._encoded is None or self._encoded == row:  # equal rows may differ too, in minus zero
            encoded = row.copy()  # `compare` gives values the spelling that was read
            changed, _ = compare(before, row, schema)
            if not changed.keys() <= before.keys():
                return None  # it may be a default that the row does not have
            removed = len(row) < len(before) - 2  # ETag and Timestamp, which the encoder does not make
            if not (changed or removed):
                return _Made(call, result, changed=False, write=None, row=None)
        self._encoded = encoded
        told_by_store = {"odata.etag": before["odata.etag"], "Timestamp": before["Timestamp"]}
        return _Made(call, result, changed=True, write=None, row={**told_by_store, **row})

    def _planned(self, result: Subject) -> PlannedWrite | None:
        """Return the write that saves a result over the row that its function was given; None if nothing changed."""
        change = save_change(result, verb="modify")
        check_change(self._db.boundary, change)
        return encode(change, 0, self._token)

    def _entries_of(self, subject: Subject) -> list[ManifestEntry | None]:
        """Return what the manifest says of those declarations for whose entries a write can be refused."""
        keys = self._key.partition_key, self._key.row_key
        return [each.entry(subject.__dict__, *keys) for each in self._refusing]

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
                else:
                    set_state(made.result, EntityState(stored=made.row))
            made.call.end(made.result)
        for call, error in self._refused:
            call.end(error=error)


def _as_one(writes: Sequence[PlannedWrite]) -> Change:
    """Return the change that writes what the last one makes, over the row as it was read."""
    first, last = writes[0].change, writes[-1].change
    patch = reduce(then, (write.change.patch for write in writes))
    return structs.replace(last, patch=patch, before=first.before, stored=first.stored)


def _is_plain(schema: Schema) -> bool:
    """Return whether the write of an entity is but the difference between two rows."""
    return not (schema.tracked or schema.write_token or schema.filled or schema.has_validators)


def _concerns_all(error: TableOrmError) -> bool:
    """Return whether an error of calls that are made together is that of each of them."""
    denied = isinstance(error, AccessDenied) and isinstance(error.__cause__, Fault)
    return denied or isinstance(error, _FOR_ALL)


def _own_error(error: TableOrmError, call: _ModifyCall) -> TableOrmError:
    """Return an error of several calls for one of them."""
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    if "entity" in own.__dict__:
        own.__dict__["entity"] = call.result
    return own
