"""
The verbs that give an entity another key: in one transaction within its partition, otherwise in several requests.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import structs

from ..connection.blob_fields import bind_blobs
from ..connection.connection import Connection
from ..connection.logger import make_logger
from ..connection.rows import read_row
from ..errors import (
    EntityExists,
    EntityNotFound,
    ModelError,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
    TableOrmError,
)
from ..models.entity import Entity, schema_of
from ..models.key import Key
from ..models.manifest import manifest_of
from ..models.marker_rows import is_forward
from ..models.property_bag import PropertyBag
from ..models.schema import Schema
from ..models.state import state_of
from ..models.write_tokens import new_token
from ..outbox.bell import check_reach, ring, silence
from ..outbox.decision import Decision, Work, insert_failure
from ..outbox.doorbell import MOVE_WORK, MoveCommand, move_of
from ..outbox.worker import Handler, Outcome
from ..protocol.codes import Code
from ..stores import Message, Row
from .commit import check_effects, commit, load_existing, load_row, read_current, write_change
from .deferred import check_room
from .move import (
    check_movable,
    clearing_write,
    command_to_move,
    entity_at_target,
    is_leaving,
    leaves_partition,
    marking_write,
    move_changes,
)
from .plan import Change
from .relocation import Relocation
from .stages.change import delete_change, insert_change, save_change
from .stages.complete import complete
from .stages.derive import derive
from .stages.encode import encode, encode_surely, needs_row
from .stages.prepare import missing_etag
from .subject import adopt, check_change, key_of

RELOCATION = Relocation(commit)
"""The steps of moves to other partitions."""

_LOG = make_logger("tableorm.outbox")

_HIDDEN_SECONDS = 20
"""For how long workers do not see a command: longer than the writer needs, unless it has to repeat requests."""


async def move_entity(db: Connection, entity: Entity | PropertyBag, fields: dict[str, Any]) -> None:
    """Give an entity another key. Takes and raises what `Database.move` does."""
    db.boundary.check_move(entity, fields)
    if isinstance(entity, Entity) and leaves_partition(entity, fields):
        moved = await _relocate(db, entity, entity.__schema__, fields)
        adopt(entity, moved)
        return
    delete, insert = move_changes(entity, fields)
    db.require_open()
    if needs_row(delete):
        delete = complete(delete, await read_current(db, delete))
    token = new_token()
    writes = [write for change in (delete, insert) if (write := encode(change, 0, token)) is not None]
    await commit(db, writes)
    adopt(entity, insert.subject)


async def archive_entity(db: Connection, entity: Entity, to: type[Any], fields: dict[str, Any]) -> Any:
    """Move an entity to the table of another model. Takes and raises what `Database.archive` does."""
    target = schema_of(to)
    if target is entity.__schema__:
        raise ModelError(f"archive(to={target.name}) is rejected: that is the model of the entity; use db.move()")
    if target.abstract:
        raise ModelError(f"archive(to={target.name}) is rejected: it is abstract; name one of its concrete classes")
    return await _relocate(db, entity, target, fields)


async def _relocate(db: Connection, entity: Entity, target: Schema, fields: Mapping[str, Any]) -> Any:
    """Move an entity to another partition or table, and return it as it is there."""
    source = entity.__schema__
    check_movable(source)
    check_movable(target)
    for info in target.uploads:
        if info.name in fields:
            raise NotSupported(
                f"move of {key_of(entity)}: {info.name} is a blob, which a move takes along as it is; set it, save the "
                "entity, then move it"
            )
    await check_reach(db, f"move of {key_of(entity)}: workers must be notified of it")
    if db.boundary.narrows:
        await _check_steps(db, entity, target, fields)
    await write_change(db, save_change(entity, verb="move"))
    _, row, stored = await _read_leaving(db, entity)
    moved = entity_at_target(stored, target, fields)
    command = command_to_move(stored, row, moved, fields, new_token())
    if any(each.in_blobs for each in target.derived.values()):
        arriving = derive((encode_surely(insert_change(moved, verb="move")),))
        await check_room(db, arriving, manifest_of(row).values())
    key = Key(target.model, *structs.astuple(command.target))
    state = state_of(entity)
    subject = stored if state.etag != command.etag or state.partial else entity
    await commit(db, (marking_write(subject, command, new_token()),))
    if subject.etag is None:  # the reply was lost, and others have written the row since, which removes the mark
        raise missing_etag("move", entity, stale=True)
    command = structs.replace(command, etag=str(subject.etag))

    async def carry_out() -> Any:
        found = await RELOCATION.carry_out(db, command, source, target)
        return await load_existing(db, key, None) if found is None else found

    message: Message | None = None
    try:
        message = await ring(db, command, delay_seconds=_HIDDEN_SECONDS)
        found = await carry_out()
    except OutcomeUnknown:
        raise  # a worker ends what was begun
    except Exception as error:
        try:
            found = await _end(db, command, subject, target, carry_out)
        except OutcomeUnknown as unknown:
            raise unknown from error
        if found is None:
            await _take_back(db, message)
            raise
    await _take_back(db, message)
    bind_blobs(db, (found,))
    return found


async def _take_back(db: Connection, message: Message | None) -> None:
    """Take a message back, unless nobody knows whether it was put."""
    if message is not None:
        await silence(db, message)


async def _check_steps(db: Connection, entity: Entity, target: Schema, fields: Mapping[str, Any]) -> None:
    """
    Refuse a move to a key outside of the boundary, or which changes derived rows outside, before anything is sent.

    Raises:
        AccessDenied: A row is outside of the boundary.
        TableOrmError: What the move raises before anything is sent.
    """
    leaving, _, stored = await _read_leaving(db, entity)
    unsaved = {n: entity.__dict__[n] for n in entity.__schema__.fields if n in entity.__dict__}
    unsaved = {name: value for name, value in unsaved.items() if value != stored.__dict__[name]}
    arriving = insert_change(entity_at_target(stored.evolve(**unsaved), target, fields), verb="move")
    check_change(db.boundary, arriving)
    for change in (leaving, arriving):
        check_effects(db.boundary, derive((encode_surely(change),)))


async def _read_leaving(db: Connection, entity: Entity) -> tuple[Change, Row, Any]:
    """
    Return the delete of an entity that is moved, its row, and the entity as it is stored.

    Raises:
        EntityNotFound: There is no row, or the entity does not count any more.
    """
    leaving = delete_change(entity, verb="move")
    row = await read_current(db, leaving)
    leaving = complete(leaving, row)
    assert row is not None
    stored = load_row(db, type(entity), leaving.table, row.copy())
    if stored is None:
        raise EntityNotFound(
            f"{leaving}: the entity has expired, and is not moved; prolong its life first, or insert another one",
            Code.RESOURCE_NOT_FOUND,
            entity,
        )
    return leaving, row, stored


async def _end(
    db: Connection, command: MoveCommand, entity: Entity, target: Schema, carry_out: Callable[[], Awaitable[Any]]
) -> Any:
    """
    End a move that has failed, and that a worker may know of: nobody can commit it without the mark of its source. If
    the source has changed meanwhile, its rows say whether it was moved.

    Args:
        db: Where the rows are.
        command: The move.
        entity: The entity with the mark.
        target: The model that it has afterwards.
        carry_out: Does what is left of the move, and returns the entity.

    Returns:
        The entity at its new key, if it was moved; None if it was not, and never will be.

    Raises:
        OutcomeUnknown: It may have happened, or may yet.
    """
    try:
        await commit(db, (clearing_write(entity),))
    except (EntityNotFound, PreconditionFailed):
        try:
            return await carry_out()
        except (EntityNotFound, PreconditionFailed):
            return None  # another writer has changed it
        except Exception as error:
            raise _unknown(command, error) from error
    except Exception as error:
        raise _unknown(command, error) from error
    with suppress(TableOrmError):  # otherwise the tentative row stays, and is nobody's
        await RELOCATION.finish(db, command.move, command.source, command.target, target)
    return None


def _unknown(command: MoveCommand, error: Exception) -> OutcomeUnknown:
    code = error.code if isinstance(error, TableOrmError) else None
    return OutcomeUnknown(
        f"{command}: {error}; the entity may be at its new key already, and a worker ends the move", code, "move"
    )


def handle_moves(db: Connection, schemas: Mapping[str, Schema]) -> Handler:
    """
    Return what a worker does for commands to move entities. Leaves commands to others that are about other kinds.

    Args:
        db: Where the rows are.
        schemas: The models that the worker knows, by kind with version.
    """

    async def work(body: bytes) -> Outcome:
        return await _carry_out(db, schemas, move_of(body))

    async def give_up(body: bytes, error: str, tries: int) -> None:
        command = move_of(body)
        _LOG.error("%s was tried %d times, and given up: %s", command, tries, error)
        source = command.source
        here = await read_row(db, source)
        if here is None or not (is_leaving(here, command) or is_forward(here, command.move, command.target)):
            return  # there is nothing left to do
        left = Work(kind=MOVE_WORK, row_key=source.row_key, arguments=body.decode())
        failed = Decision(
            partition_key=source.partition_key, token=command.move, works=(left,), error=error, tries=tries
        )
        await insert_failure(db, source.table, failed)

    return Handler(work, give_up)


async def carry_out_moves(db: Connection, schemas: Mapping[str, Schema], decision: Decision) -> None:
    """
    Carry out the moves that workers had given up. It may be done twice, by several at the same time, and again later.

    Args:
        db: Where the rows are.
        schemas: The models that the worker knows, by kind with version.
        decision: What the decision row says.

    Raises:
        NotSupported: This program does not know a kind: leave it to others.
        ValueError: The decision row has no command, or one that contradicts itself.
        TableOrmError: The move cannot be completed, or the store did not answer.
    """
    for work in decision.works:
        if work.kind == MOVE_WORK:
            await _carry_out(db, schemas, move_of((work.arguments or "").encode()))


async def _carry_out(db: Connection, schemas: Mapping[str, Schema], command: MoveCommand) -> Outcome:
    source, target = schemas.get(command.kind), schemas.get(command.to_kind)
    if source is None or target is None:
        raise NotSupported(f"{command}: this worker does not know both kinds")
    if (command.source.table, command.target.table) != (source.table, target.table):
        raise ValueError(f"{command}: the kinds are not those of these tables")
    try:
        try:
            await RELOCATION.carry_out(db, command, source, target)
        except EntityExists:
            # Without the message nobody would end a move that its writer, if it is slow, commits later.
            await RELOCATION.remove_mark(db, command, source)
            await RELOCATION.carry_out(db, command, source, target)
    except (EntityNotFound, PreconditionFailed) as error:
        _LOG.info("%s does not happen: %s", command, error)
        return Outcome.VOID
    return Outcome.DONE
