"""
Writes of entities that have their older keys, by programs of the newer model: before entities are moved, and while all
of them go back.

A write is encoded as it would be at the newer key, which checks it as any other. Then what the entity becomes is turned
into one of the older model, and written by that model's own rules: with what it derives, under the ETag of its row.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from ..connection.connection import Connection
from ..connection.races import ATTEMPTS, Attempts
from ..connection.rows import read_row
from ..errors import (
    EncodeError,
    EntityExists,
    EntityNotFound,
    GoingBack,
    LostRace,
    NotSupported,
    PreconditionFailed,
)
from ..models.entity import Entity
from ..models.key import Key
from ..models.marker_rows import is_marker
from ..models.state import set_state, state_of
from ..protocol.codes import Code
from ..stores import Row, RowAddress
from ..writes.commit import read_current, write_change
from ..writes.move import marker_error
from ..writes.plan import Change, Mode
from ..writes.relocation import entity_of_row
from ..writes.stages.change import delete_change, plain_insert, plain_save
from ..writes.stages.complete import complete
from ..writes.stages.encode import encode, encode_surely
from ..writes.stages.prepare import filled_values
from ..writes.subject import forget
from .phases import RekeyPhase, current_phase, load_phase
from .reads import FoundRow, find_row
from .rekeying import Rekeying, entity_to_be, note_older_place, old_place_of
from .steps import older_key_taken, source_of

_SINGLE = (Mode.INSERT, Mode.SAVE, Mode.MERGE, Mode.REPLACE, Mode.DELETE)


async def write_older(db: Connection, rekeying: Rekeying, change: Change) -> bool:
    """
    Write an entity at its older key, if it has that, or if new ones get it.

    Args:
        db: Where the rows are.
        rekeying: The models.
        change: What to write.

    Returns:
        Whether it was written. Otherwise it is written as any other: the entity is at its newer key, or nowhere.

    Raises:
        EntityExists: There is such an entity, or another one with its older key.
        EntityNotFound: There is none to be changed or deleted.
        PreconditionFailed: It has changed since it was read.
        GoingBack: An entity of that key was deleted, and its older key is not free as long as entities go back.
        NotSupported: The verb writes without looking.
        TableOrmError: What the same verb raises of the older model.
    """
    target = change.address
    fields = fields_of(change)
    met = set[str]()
    async for attempt in Attempts(db):
        if attempt:
            await load_phase(db, rekeying)  # somebody knew more
        phase = await current_phase(db, rekeying)
        if not phase.writes_older:
            return False
        if is_at_newer_key(change):
            await _refuse_gone_back(db, rekeying, change, phase)
            return False
        refuse_blind(rekeying, change, phase)
        found = await find_row(db, rekeying, target, fields)
        if change.mode is Mode.INSERT:
            if found is not None:
                raise EntityExists(f"{change}: there is such an entity", Code.ENTITY_EXISTS, change.subject)
            if await _insert(db, rekeying, change, phase, met):
                return True
        elif found is None:
            raise EntityNotFound(f"{change}: there is no such entity", Code.RESOURCE_NOT_FOUND, change.subject)
        elif found.source is None:
            return False
        elif await _overwrite(db, rekeying, change, found, found.source):
            return True
    raise LostRace(
        f"{change}: others moved it first, {ATTEMPTS} times in a row; try it again",
        Code.CONDITION_NOT_SATISFIED,
        change.subject,
    )


async def _refuse_gone_back(db: Connection, rekeying: Rekeying, change: Change, phase: RekeyPhase) -> None:
    """Refuse to write an entity at its newer key that had it when it was read, and has its older one again."""
    if phase is RekeyPhase.BACK:
        fields = change.subject.__dict__ if isinstance(change.subject, Entity) else None
        target = change.address
        found = await find_row(db, rekeying, target, fields)
        if found is not None and found.source is not None:
            raise PreconditionFailed(
                f"{change}: it has its key by {rekeying.old.name} again, {found.source}; read it again and repeat "
                "the change",
                Code.CONDITION_NOT_SATISFIED,
                change.subject,
            )


async def _insert(db: Connection, rekeying: Rekeying, change: Change, phase: RekeyPhase, met: set[str]) -> bool:
    """
    Insert an entity at its older key; return whether that was free of rows of moves. Their ETags are added to
    `met`: a row that is met again, unchanged, is one that nobody is about to remove.
    """
    made, source, older = to_older(rekeying, change)
    insert = structs.replace(plain_insert(older), verb=change.verb, repeat=change.repeat)
    try:
        await write_change(db, insert)
    except EntityExists as error:
        if error.index:
            raise
        here = await read_row(db, source)
        if here is None:
            return False
        if not is_marker(here):
            raise older_key_taken(rekeying, change, source) from error
        if phase is RekeyPhase.BACK:
            raise GoingBack(
                f"{change}: its key by {rekeying.old.name}, {source}, was that of an entity which was deleted, and "
                "is free when all entities have gone back; try it again then",
                Code.CONDITION_NOT_SATISFIED,
                change.subject,
            ) from error
        if here["odata.etag"] in met:
            problem = str(marker_error(insert, here))
            index = rekeying.old.name
            raise EntityExists(problem, Code.ENTITY_EXISTS, change.subject, index=index) from error
        met.add(here["odata.etag"])
        return False
    _note_written(rekeying, change, made, source, older)
    return True


async def _overwrite(db: Connection, rekeying: Rekeying, change: Change, found: FoundRow, source: RowAddress) -> bool:
    """Write or delete an entity at its older key; return whether its row was as it was read."""
    assert found.older is not None
    if is_marker(found.older):  # it has just gone back
        await read_current(db, Key(rekeying.old.model, *structs.astuple(source)))
        return False
    completed = complete(change, found.row)
    write = encode(completed, 0)
    if write is None:
        return True
    older = entity_of_row(rekeying.old, found.older)
    made: Entity | None = None
    if write.after is None:
        written = delete_change(older, verb=change.verb)
    else:
        made = entity_to_be(rekeying.new, write.after)
        _take_values(rekeying, older, made, found.row, source)
        written = plain_save(older, change.verb)
    try:
        await write_change(db, written)
    except (PreconditionFailed, EntityNotFound):
        return False
    if made is None:
        forget(change.subject)
    else:
        _note_written(rekeying, completed, made, source, older)
    return True


def refuse_blind(rekeying: Rekeying, change: Change, phase: RekeyPhase) -> None:
    """
    Refuse what writes an entity at its older key without looking.

    Raises:
        NotSupported: The change does.
    """
    if change.mode not in _SINGLE or (change.is_unseen and change.mode not in (Mode.INSERT, Mode.DELETE)):
        raise NotSupported(
            f"{change}: {rekeying} is in phase {phase.value!r}, in which entities are written at their older "
            "keys by insert, save, modify and delete alone; use these, or wait until entities are moved"
        )


def to_older(rekeying: Rekeying, change: Change) -> tuple[Entity, RowAddress, Entity]:
    """
    Return what an insert makes: the entity as it is to be stored, where that is by the older model, and the entity of
    that model.

    Raises:
        EncodeError: A value does not fit its field.
        ModelError: Nobody would find it by its newer key.
    """
    write = encode_surely(change)
    assert write.after is not None
    made = entity_to_be(rekeying.new, write.after)
    older: Entity = rekeying.to_old(made)
    return made, source_of(rekeying, made), older


def fields_of(change: Change) -> Mapping[str, Any] | None:
    """Return the fields that the subject of a change has; None if it is a key that does not tell them."""
    return change.values or (change.subject.__dict__ if isinstance(change.subject, Entity) else None)


def is_at_newer_key(change: Change) -> bool:
    """Return whether a change is of an entity that was read at its newer key, so that its ETag decides there."""
    before = change.before
    if before is None or change.is_unseen or change.mode is Mode.INSERT:
        return False
    return before.complete and old_place_of(before.row) is None


def _take_values(rekeying: Rekeying, older: Entity, made: Entity, before: Row, source: RowAddress) -> None:
    """
    Give an entity of the older model what it is to have.

    Args:
        rekeying: The models.
        older: The entity as it is stored.
        made: What it is to be by the newer model.
        before: What its row is by the newer model.
        source: Where it is.

    Raises:
        EncodeError: It would have another key by the older model.
    """
    old, new = rekeying.old, rekeying.new
    converted: Entity = rekeying.to_old(made)
    key = rekeying.old_key(made)
    if RowAddress.of(key) != source:
        raise EncodeError(
            f"would have another key by {old.name}, {key}, in place of {source}; delete and insert it, or change it "
            "after the re-key is sealed",
            new.name,
            "moved_from",
            made,
        )
    own: dict[str, Any] = older.__dict__
    own.update({name: converted.__dict__[name] for name in old.fields if name not in old.key_names})
    was = {name: value for name, value in before.items() if name not in new.known}
    now = state_of(made).unknown(new.known)
    if was != now:
        extra: Any = older.extra
        kept = {name: value for name, value in extra.row.items() if name not in was or name in now}
        extra.row.clear()
        extra.row.update({**kept, **now})


def _note_written(rekeying: Rekeying, change: Change, made: Entity, source: RowAddress, older: Entity) -> None:
    """Let the subject of a change know what was written, where, and under which ETag."""
    subject, written = change.subject, state_of(older)
    note_older_place(rekeying.new, made, source, str(written.etag), str(written.timestamp))
    own = subject.__dict__
    own.update(filled_values(change.made, own))
    set_state(subject, state_of(made).with_extra(state_of(subject).extra))
