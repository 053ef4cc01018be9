"""
`get_or_insert`; and what `modify` of a database, and that of a transaction, have in common.
"""

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from ..connection.boundary import Boundary
from ..connection.connection import Connection
from ..connection.races import ATTEMPTS, Attempts, is_race
from ..errors import EncodeError, EntityExists, LostRace, ModelError, PreconditionFailed, shown
from ..models.entity import Entity
from ..models.key import Key
from ..models.marker_rows import is_marker
from ..models.property_bag import PropertyBag, note_written, stored_row_of
from ..models.state import set_state, state_of
from ..protocol.codes import Code
from ..stores import RowAddress
from .commit import load_row, read_current, write_change
from .move import marker_error
from .pending import copy_subject
from .plan import Change, PlannedWrite
from .stages.change import insert_change, unsaved
from .subject import Subject, check_change, key_of

M = TypeVar("M", bound=Entity | PropertyBag)


async def get_or_insert(db: Connection, entity: M) -> tuple[M, bool]:
    """Read an entity, or insert it where there is none. Takes and raises what `Database.get_or_insert` does."""
    db.boundary.fill(entity)
    async for _ in Attempts(db, ATTEMPTS):
        change = insert_change(entity, verb="get_or_insert")
        check_change(db.boundary, change)
        row = await read_current(db, change)
        if row is not None:
            found = load_row(db, type(entity), change.table, row)
            if found is not None:
                return found, False
            if is_marker(row):
                raise marker_error(change, row)
        try:
            await write_change(db, change)
        except EntityExists as error:
            if not is_race(error):
                raise
        else:
            return entity, True
    raise LostRace(
        f"get_or_insert of {entity!r}: others inserted and deleted it, {ATTEMPTS} times in a row; try it again",
        entity=entity,
    )


def check_arguments(function: object, create: object, if_match: object) -> None:
    """
    Refuse arguments of `modify` that cannot be used, or not together.

    Raises:
        ModelError: The function is asynchronous, or cannot be called; or there are both `create` and `if_match`.
    """
    if not _is_plain(function):
        raise _not_plain(function)
    if create is not None and if_match is not None:
        raise ModelError(
            f"modify(create=..., if_match={shown(if_match)}) is rejected: who has an ETag knows that there is a row; "
            "give one of the two"
        )
    if create is not None and not isinstance(create, (Entity, PropertyBag)) and not callable(create):
        raise ModelError(f"modify(create={shown(create)}) is rejected: give an entity, or a function that makes one")


def _is_plain(function: object) -> bool:
    """Return whether something can be called without awaiting, as far as can be seen."""
    if isinstance(function, FunctionType):  # without the look through wrappers, which takes longer than the call
        return not function.__code__.co_flags & inspect.CO_COROUTINE
    return callable(function) and not inspect.iscoroutinefunction(function)


def _not_plain(function: object) -> ModelError:
    name = getattr(function, "__qualname__", None) or shown(function)
    return ModelError(
        f"modify: {name} is no plain function; give one that changes what it gets, or returns a changed copy, without "
        "awaiting: it is called again after every lost race"
    )


def refuse_other_version(key: Key[Any], subject: Subject, if_match: str | None) -> None:
    """
    Refuse to modify a row that was written since the user got its ETag.

    Raises:
        PreconditionFailed: The row that was read has another ETag.
    """
    if if_match not in (None, "*", subject.etag):
        raise PreconditionFailed(
            f"modify of {key}: its ETag is {subject.etag}, not {if_match}: it was written in the meantime; read it "
            f"again",
            Code.CONDITION_NOT_SATISFIED,
            subject,
        )


def made_new(boundary: Boundary, create: Any, key: Key[Any]) -> Any:
    """
    Return a new entity or bag for a key: what a function makes, or a copy of one, so that each attempt has its own.

    Raises:
        ModelError: It is not of the key's model.
    """
    made = copy_subject(create) if isinstance(create, (Entity, PropertyBag)) else create()
    if not isinstance(made, key.model):
        if inspect.iscoroutine(made):
            made.close()
        raise ModelError(f"modify(create=...) of {key}: it made {shown(made)}; make {key.model.__name__}")
    boundary.fill(made)
    return made


def insertion(key: Key[Any], made: Subject, pending: PlannedWrite | None) -> Change:
    """
    Return the change that inserts what `create` and the function have made.

    Raises:
        EncodeError: It has another key.
    """
    change = insert_change(made, pending, "modify")
    if change.address != RowAddress.of(key):
        raise EncodeError(
            f"is the key of the entity that create=... and the function made, which must have the key {key}",
            type(made).__name__,
            "key",
            (change.partition_key, change.row_key),
            misuse=True,
        )
    return change


def applied(function: Callable[[M], M | None], subject: M, instance: object) -> M:
    """
    What a function makes of an entity or bag: that itself, changed, or what it returned in its place.

    Args:
        function: The user's.
        subject: What was read.
        instance: What modify was called on, if that is an entity or bag.

    Raises:
        ModelError: It returned something else, or an awaitable.
        EncodeError: It returned something of another key.
    """
    result: Any = function(subject)
    if result is None or result is subject:
        return subject
    if result is instance:
        raise ModelError(
            f"modify: the function returned the entity that modify was called on, {shown(result)}, which is not what "
            "was read; change and return what it gets"
        )
    if inspect.iscoroutine(result):
        result.close()
        raise _not_plain(function)
    if type(result) is not type(subject):
        raise ModelError(
            f"modify: the function returned {shown(result)} for {key_of(subject)}; return None, or an entity of the "
            "same model"
        )
    if key_of(result) != key_of(subject):
        raise EncodeError(
            f"is the key of what the function returned for {key_of(subject)}; modify cannot move a row",
            type(subject).__name__,
            "key",
            key_of(result),
            misuse=True,
        )
    if isinstance(result, PropertyBag):
        note_written(result, stored_row_of(subject) if isinstance(subject, PropertyBag) else None)
    elif state_of(result) is not state_of(subject):
        set_state(result, state_of(result).adopt(state_of(subject)))
    return result


def refuse_unsaved(subject: Entity | PropertyBag, pending: PlannedWrite | None) -> None:
    """
    Refuse to modify an entity through an object whose own changes would be lost.

    Args:
        subject: The entity or bag.
        pending: What a transaction was given of it, and holds; what changed since that counts.

    Raises:
        EncodeError: It has changes that were not saved.
        NotRead: It was never read nor written.
    """
    if pending is not None and pending.after is None:
        return  # it is deleted, which reading it says
    changed = unsaved(subject, pending)
    if changed:
        name, value = next(iter(changed.items()))
        superseded = isinstance(subject, Entity) and state_of(subject).superseded
        remedy = "refresh() it, which drops that, and" if superseded else "save() first, or"
        raise EncodeError(
            f"was changed and not saved, and modify would read over it; {remedy} change it in the function",
            type(subject).__name__,
            name,
            value,
            misuse=True,
        )
