"""
Archiving: entities go to the table of another model, to a blob, or to another database.

To the table of another model it is a move. Out of the database no transaction reaches, so it is a workflow: a touch of
the entity starts it, and a worker runs it. The worker copies the row as it is, and then deletes it under the ETag that
was copied; the same transaction notes in the decision row that it is done. So an entity that has changed meanwhile is
copied again, and nobody who is late can take an entity that was inserted under the key since.

A worker looks for the copy, then for the row, then for the decision, in this order. A copy that was found and is
replaced by what the row was later is therefore never one for which the row was deleted.
"""

from collections.abc import Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import attrs
from msgspec import structs

from ..connection.connection import Connection
from ..connection.races import ATTEMPTS, Attempts, is_race
from ..errors import (
    AccessDenied,
    EntityExists,
    EntityNotFound,
    LostRace,
    ModelError,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
    shown,
)
from ..models.entity import Entity, schema_of
from ..models.key import Key
from ..models.marker_rows import is_marker
from ..models.property_bag import bag_of_row
from ..outbox.decision import Decision, Work, read_decision
from ..outbox.workflow import StepFailed, note_progress, step_token
from ..stores import Row
from .archive_copy import Archive, BlobArchive, DatabaseArchive, check_archivable, kind_of, open_copy
from .commit import commit, read_current, write_change
from .move_entity import archive_entity
from .plan import PlannedWrite
from .relocation import entity_of_row
from .stages.change import delete_change, guard_change, merge_change, save_change
from .stages.complete import complete
from .stages.derive import derive
from .stages.encode import encode_surely
from .stages.prepare import missing_etag
from .subject import key_of


async def archive(db: Connection, entity: Entity, to: type[Any] | Archive[Any], fields: dict[str, Any]) -> Any:
    """Archive an entity. Takes and raises what `Database.archive` does."""
    if not isinstance(entity, Entity):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ModelError(f"archive({shown(entity)}) takes an entity that was read; a bag has no model")
    db.boundary.check(entity)
    if not isinstance(to, (BlobArchive, DatabaseArchive)):
        return await archive_entity(db, entity, to, fields)
    if fields:
        raise ModelError(
            f"archive(to={to.name!r}, {', '.join(fields)}=...) is rejected: only a model gets other fields"
        )
    key = key_of(entity)
    check_archivable(to, entity, key)
    await write_change(db, save_change(entity, verb="archive"))
    if entity.etag is None:
        raise missing_etag("archive", entity)
    write = encode_surely(structs.replace(guard_change(entity), verb="archive"))
    await commit(db, (structs.replace(write, starts=(Work(kind=kind_of(to), row_key=key.row_key, arguments="null"),)),))
    return None


# Running


async def carry_out_archives(
    db: Connection, table: str, archives: Mapping[str, Archive[Any]], decision: Decision
) -> Decision | None:
    """
    Archive the entities of a transaction. It may be done twice, by several at the same time, and again later.

    Args:
        db: Where the decision row is.
        table: The table of the decision row.
        archives: The archives by what stands for their kind.
        decision: What the decision row says.

    Returns:
        What the decision row says now; None if another writer has deleted it meanwhile.

    Raises:
        NotSupported: The archive is for rows of another table, or the row is of a newer version: leave it to others.
        StepFailed: The archive could not be reached, or refused the copy.
        TableOrmError: The entity cannot be archived or deleted, or the store did not answer.
    """
    found: Decision | None = decision
    for number, work in enumerate(decision.works):
        to = archives.get(work.kind)
        if to is None or found is None or _has_ended(found, number):
            continue
        if schema_of(to.model).table_name() != table:
            raise NotSupported(
                f"the decision row {decision.token} of table {table} starts the {work.kind!r}, which is for rows of "
                f"{schema_of(to.model).table_name()}; leave it to a program that has it in {table}"
            )
        found = await _archive(db, to, found, number)
    return found


def _has_ended(decision: Decision | None, number: int) -> bool:
    # A void one is by a worker that was late: it says that there was none any more.
    return decision is None or not decision.committed or number in decision.progress


def _ended(decision: Decision, number: int) -> Mapping[int, tuple[str | None, Any]]:
    return {**decision.progress, number: (None, None)}


@contextmanager
def _as_failure(what: str) -> Generator[None]:
    """Say that archiving has failed, where other workers could not do it either."""
    try:
        yield
    except (AccessDenied, NotSupported) as error:
        raise StepFailed(f"{what}: {type(error).__name__}: {error}") from error


async def _archive(db: Connection, to: Archive[Any], decision: Decision, number: int) -> Decision | None:
    """Archive an entity as it is now; nothing happens if there is none."""
    table = schema_of(to.model).table_name()
    key: Key[Any] = Key(to.model, table, decision.partition_key, decision.works[number].row_key)
    what, token = f"archive of {key} to {to.name!r}", step_token(table, decision, number, "copy")
    found: Decision | None = decision
    etag: str | None = None
    async with AsyncExitStack() as opened:
        with _as_failure(what):
            copy = await opened.enter_async_context(open_copy(to, db, key, token))
        async for attempt in Attempts(db):
            if attempt:
                with _as_failure(what):
                    etag = await copy.find()
            row = await read_current(db, key)
            if attempt:
                found = await read_decision(db, table, decision.partition_key, decision.token)
            if found is None or _has_ended(found, number):
                return found if found is not None and found.committed else None
            if row is not None and not is_marker(row):
                deletion = _plan_deletion(to, row)
                try:
                    with _as_failure(what):
                        await copy.write(row, etag)
                    return await delete_and_note(db, table, deletion, found, _ended(found, number))
                except (EntityExists, EntityNotFound, PreconditionFailed, OutcomeUnknown) as error:
                    if not (is_race(error) or isinstance(error, OutcomeUnknown)):
                        raise
            elif attempt:  # it was deleted, or moved, by another writer: nobody needs a copy
                if etag is not None:
                    with _as_failure(what):
                        await copy.remove(etag)
                return await note_progress(db, table, found, _ended(found, number))
    raise LostRace(f"{what}: others wrote the entity first, {ATTEMPTS} times in a row")


def _plan_deletion(to: Archive[Any], row: Row) -> PlannedWrite:
    """
    Return the delete of a row that is archived.

    Raises:
        NotSupported: The row is of a newer version: leave it to others.
        Conflict: Other entities need it.
    """
    write = encode_surely(complete(delete_change(entity_of_row(schema_of(to.model), row), verb="archive"), row))
    derive((write,))  # refuses what others need, before it is copied
    return write


async def delete_and_note(
    db: Connection,
    table: str,
    deletion: PlannedWrite,
    decision: Decision,
    progress: Mapping[int, tuple[str | None, Any]],
) -> Decision:
    """
    Delete an entity with all that is derived from it, and note in the same transaction how far the works of the
    decision are. Returns what the decision row says then.

    Raises:
        PreconditionFailed: The entity, or the decision row, has changed since.
        EntityNotFound: One of them is gone.
        OutcomeUnknown: A reply was lost.
    """
    done = attrs.evolve(decision, progress=progress)
    bag = bag_of_row(table, {**done.progress_row(), "odata.etag": decision.etag}, partial=True)
    note = encode_surely(merge_change(bag, list(bag)))
    await commit(db, (deletion, note))
    return attrs.evolve(done, etag=bag.etag)
