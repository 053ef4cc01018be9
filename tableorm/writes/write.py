"""
Single writes: the verbs of a database that write one entity, from the change to the reply.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from ..connection.connection import Connection
from ..connection.rows import read_row
from ..errors import (
    Conflict,
    EntityExists,
    EntityNotFound,
    ModelError,
    OutcomeUnknown,
    PreconditionFailed,
)
from ..models.entity import Entity
from ..models.key import Key
from ..models.property_bag import PropertyBag
from ..protocol.codes import Code
from ..stores import Row
from .commit import commit
from .modify import adopt, applied, check_function, forget, refuse_unsaved
from .move import move_changes
from .plan import Change, SendOptions
from .races import ATTEMPTS, is_race, pause_of
from .rows import new_token
from .stages.change import delete_change, save_change
from .stages.complete import complete
from .stages.encode import encode, needs_row
from .subject import key_of
from .target import key_of_target

__all__ = ["Loader", "delete_target", "modify_target", "move_entity", "read_existing", "refresh_entity", "write_change"]

Loader = Callable[[type[Any], str, Row], Any]
"""Makes the entity or bag of a row: the model that is asked for, the name of the table, the row."""


async def write_change(db: Connection, change: Change, *, repeat: bool = True, missing_ok: bool = False) -> None:
    """
    Send one change; nothing if it changes nothing.

    Args:
        db: Where the row is.
        change: The change.
        repeat: Whether it may be sent again after a lost reply.
        missing_ok: Whether a row that is not there counts as deleted.

    Raises:
        AccessDenied: The row is outside of the connection's boundary.
        TableOrmError: What the verbs of `Database` raise.
    """
    if db.boundary.narrows:
        db.boundary.check(change.subject)
    db.require_open()
    if needs_row(change):
        await _write_completed(db, change, missing_ok=missing_ok)
        return
    write = encode(change, 0)
    if write is not None:
        await commit(db, (write,), SendOptions(repeat=repeat, missing_ok=missing_ok))


async def _write_completed(db: Connection, change: Change, *, missing_ok: bool) -> None:
    """Send a change that needs the stored row under the ETag it is read with; again after a lost race, if forced."""
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(pause_of(db, attempt))
        row = await read_row(db, change.table, change.partition_key, change.row_key)
        write = encode(complete(change, row), 0)
        if write is None:
            return
        try:
            await commit(db, (write,), SendOptions(missing_ok=missing_ok))
        except (PreconditionFailed, EntityExists, EntityNotFound, OutcomeUnknown) as error:
            # Forced: whoever wrote meanwhile is written over, also if that was our own lost request.
            if (
                not (is_race(error) or (isinstance(error, OutcomeUnknown) and error.found is not None))
                or change.if_match not in (None, "*")
                or (change.copied is not None and not isinstance(error, Conflict))
            ):
                raise
            continue
        return
    raise Conflict(f"{change}: lost {ATTEMPTS} races in a row; spread the writers", None, change.subject)


async def delete_target(
    db: Connection, target: Any, fields: dict[str, Any], *, if_match: str | None, missing_ok: bool
) -> None:
    """Delete the row that a target names. Takes and raises what `Database.delete` does."""
    key = key_of_target(db.boundary, target, fields)
    subject = target if isinstance(target, (Entity, PropertyBag)) else key
    try:
        await write_change(db, delete_change(subject, if_match), missing_ok=missing_ok)
    except EntityNotFound:
        if not missing_ok:
            raise
        forget(subject)


async def move_entity(db: Connection, entity: Entity | PropertyBag, fields: dict[str, Any]) -> None:
    """Give an entity another key in one transaction. Takes and raises what `Database.move` does."""
    db.boundary.check_move(entity, fields)
    delete, insert = move_changes(entity, fields)
    db.require_open()
    if needs_row(delete):
        delete = complete(delete, await read_row(db, delete.table, delete.partition_key, delete.row_key))
    token = new_token()
    writes = [write for change in (delete, insert) if (write := encode(change, 0, token)) is not None]
    await commit(db, writes)
    adopt(entity, insert.subject)


async def read_existing(db: Connection, key: Key[Any]) -> Row:
    """
    Read the row of a key.

    Raises:
        EntityNotFound: There is none.
    """
    row = await read_row(db, key.table, key.partition_key, key.row_key)
    if row is None:
        raise EntityNotFound(f"there is no {key}", Code.RESOURCE_NOT_FOUND, key)
    return row


async def refresh_entity(db: Connection, load: Loader, entity: Entity | PropertyBag) -> None:
    """Read an entity anew, in place. Takes and raises what `Database.refresh` does."""
    db.boundary.check(entity)
    key = key_of(entity)
    adopt(entity, load(key.model, key.table, await read_existing(db, key)))


async def modify_target(
    db: Connection, load: Loader, target: Any, function: Callable[[Any], Any], fields: dict[str, Any], attempts: int
) -> Any:
    """Read an entity, apply a function and save it. Takes and raises what `Database.modify` does."""
    check_function(function)
    if attempts < 1:
        raise ModelError(f"modify(attempts={attempts!r}) is refused: try at least once")
    instance = target if isinstance(target, (Entity, PropertyBag)) else None
    if instance is not None:
        refuse_unsaved(instance)
    key = key_of_target(db.boundary, target, fields)
    for attempt in range(attempts):
        if attempt:
            await asyncio.sleep(pause_of(db, attempt))
        row = await read_existing(db, key)
        result = applied(function, load(key.model, key.table, row.copy()), instance)
        try:
            await write_change(db, save_change(result, verb="modify"))
        except (PreconditionFailed, EntityNotFound) as error:
            if not is_race(error):
                raise
            continue  # if it was deleted, reading says so
        if instance is not None:
            adopt(instance, result)
        return result
    raise Conflict(
        f"modify of {key}: lost {attempts} races in a row; spread the writers, or give it more attempts",
        Code.CONDITION_NOT_SATISFIED,
        load(key.model, key.table, await read_existing(db, key)),
    )
