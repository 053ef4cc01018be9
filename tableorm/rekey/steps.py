"""
The steps of a re-key for one entity, and what live writers do before they write at its newer key.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ..connection.connection import Connection
from ..connection.races import ATTEMPTS, Attempts
from ..connection.rows import read_live, read_other, read_row, settle_forward, write_as_read
from ..errors import EncodeError, EntityExists, LostRace, ModelError, NotSupported, OutcomeUnknown
from ..models.entity import Entity
from ..models.key import Key
from ..models.kinds import KindSet, entity_kind_of
from ..models.marker_rows import MoveMark, MoveState, is_marker, kept_row, mark_of
from ..models.reserved import ENTITY_TYPE
from ..models.schema import Schema
from ..models.write_tokens import new_token
from ..protocol.codes import Code
from ..stores import Operation, Row, RowAddress, Verb
from ..writes.commit import commit, read_current
from ..writes.move import leaving_write, tentative_write
from ..writes.move_entity import RELOCATION
from ..writes.plan import Change, Mode, PlannedWrite
from ..writes.relocation import LOST, entity_of_row
from ..writes.stages.change import plain_insert
from .chunks import WindowReport, each_row
from .phases import RekeyPhase, current_phase
from .reads import older_places
from .rekeying import Rekeying, entity_of_old, entity_to_be, old_place_of

# The mover


async def move_row(db: Connection, rekeying: Rekeying, source: RowAddress, row: Row | None = None) -> bool:
    """
    Give an entity its newer key, unless it has that.

    Args:
        db: Where the rows are.
        rekeying: The models.
        source: Where the entity is by the older model.
        row: Its row there, if it was just read.

    Returns:
        Whether it was moved by this call; otherwise it was moved before, or there is none.

    Raises:
        EntityExists: Another entity has the newer key.
        ModelError: Nobody would find it by its newer key; or it would be dropped.
        LostRace: Others wrote the rows first, again and again.
        TableOrmError: What an insert at the newer key raises.
    """
    begun = dict[str, RowAddress]()  # the tentative rows of this call, by the id of the move
    doubt: OutcomeUnknown | None = None
    async for _ in Attempts(db):
        here, row = row or await read_row(db, source), None
        mark = mark_of(here)
        if here is None or _is_forward(here, mark):
            if mark is not None and mark.state is MoveState.FORWARD and mark.stays:
                await RELOCATION.finish(db, mark.move, source, mark.other, rekeying.new)
            for left in begun.values():
                await RELOCATION.resolve(db, left, rekeying.new)
            return mark is not None and mark.move in begun
        if is_marker(here) or mark is not None:  # of a move by the older model
            here = await _finish_older(db, rekeying, source)
            if here is None:
                await RELOCATION.resolve(db, source, rekeying.old)
                return False
        entity = entity_of_row(rekeying.old, here)
        made, target = target_of(rekeying, entity, source)
        move, etag = new_token(), here["odata.etag"]
        tentative = MoveMark(state=MoveState.TENTATIVE, move=move, other=source, etag=etag, stays=True)
        try:
            await commit(db, (tentative_write(plain_insert(made), tentative, new_token()),))
            begun[move] = target
            await commit(db, (leaving_write(entity, here, target, move, stays=True),))
            await RELOCATION.finish(db, move, source, target, rekeying.new)
            if set(begun.values()) == {target}:
                return True
        except EntityExists as error:
            if error.index:
                raise
            if not await _clear_target(db, rekeying, source, here, target):
                raise collision(rekeying, f": {source} cannot get its newer key", target, "move", made) from error
        except LOST as error:
            if isinstance(error, OutcomeUnknown) and doubt is not None:
                raise
            doubt = error if isinstance(error, OutcomeUnknown) else None
    raise LostRace(f"{rekeying} of {source}: others wrote its rows first, {ATTEMPTS} times in a row; try it again")


async def _finish_older(db: Connection, rekeying: Rekeying, source: RowAddress) -> Row | None:
    """Finish a move by the older model, and return the row of the entity; None if there is none."""
    key = Key(rekeying.old.model, source.table, source.partition_key, source.row_key)
    here = await read_current(db, key)
    return None if here is None or is_marker(here) else here


async def _clear_target(db: Connection, rekeying: Rekeying, source: RowAddress, here: Row, target: RowAddress) -> bool:
    """Return whether an insert at a newer key may succeed now, or the older row has changed meanwhile."""
    there = await read_row(db, target)
    if there is None or await RELOCATION.resolve(db, target, rekeying.new):
        return True
    again = await read_row(db, source)
    return again is None or again["odata.etag"] != here["odata.etag"]


# Live writers


async def bring_home(
    db: Connection,
    rekeying: Rekeying,
    target: RowAddress,
    fields: Mapping[str, Any] | None,
) -> bool:
    """
    Give the entity of a newer key that key, if it has its older one, before it is written.

    Args:
        db: Where the rows are.
        rekeying: The models.
        target: The newer key.
        fields: Fields of the entity, which count as far as the stored key does not tell them; None if they are not
            known.

    Returns:
        Whether the rows have changed, so that the newer one must be read again.
    """
    if await current_phase(db, rekeying) is not RekeyPhase.MOVE:
        return False
    came = False
    for source in older_places(rekeying, target, fields):
        here = await read_row(db, source)
        mark = mark_of(here)
        if mark is not None and mark.state is MoveState.TENTATIVE and not mark.stays:
            here = await _finish_older(db, rekeying, source)
        if here is None or is_marker(here):
            if here is not None and mark is not None and mark.names(target):
                await _settle_unfollowed(db, source, here, mark)
                came = True  # between the two reads, perhaps; or another entity has had this key, and is deleted
            continue
        made = entity_of_old(rekeying, here)
        if made is not None and RowAddress.of(made.key) == target:
            await move_row(db, rekeying, source, here)
            return True
    return came


async def prepare_write(db: Connection, rekeying: Rekeying, write: PlannedWrite) -> None:
    """
    Let a write at a newer key be right for those who know the older model, before it is sent.

    Args:
        db: Where the row is.
        rekeying: The models.
        write: A write of an entity of the newer model.

    Raises:
        EncodeError: It would change the older key.
        NotSupported: Entities are inserted at their older keys as yet.
        LostRace: Others wrote the older key first, again and again.
    """
    change = write.origin
    phase = await current_phase(db, rekeying)
    if phase.is_over or change.mark is not None:
        return
    if change.stored is not None and old_place_of(change.stored.row) is not None:
        raise NotSupported(
            f"{change}: in phase {phase.value!r}, an entity whose key is that of {rekeying.old.name} can only be "
            "written on its own, not together with others"
        )
    if write.after is None:
        return
    if write.operation.verb is Verb.INSERT:
        if phase is not RekeyPhase.MOVE:
            raise NotSupported(
                f"{change}: entities of {rekeying.old.name} have their older keys in phase {phase.value!r}, where "
                "only single inserts go; write it by itself"
            )
        await _take_older_key(db, rekeying, change)
        return
    stored = change.stored
    if stored is None or not stored.complete or write.partial or change.mode is Mode.GUARD:
        return
    before, after = (_old_key(rekeying, row) for row in (stored.row, write.after))
    if before != after:
        raise EncodeError(
            f"would have another key by {rekeying.old.name}, {after}, in place of {before}; programs that know "
            "that model alone would lose it: change it after the re-key is sealed, or delete and insert it",
            rekeying.new.name,
            "moved_from",
            change.subject,
        )


async def _take_older_key(db: Connection, rekeying: Rekeying, change: Change) -> None:
    """Bring home the entity of a newer key, or show at its older key that this is taken, before it is inserted."""
    target = change.address
    source = source_of(rekeying, change.subject)
    async for _ in Attempts(db):
        came = await bring_home(db, rekeying, target, change.subject.__dict__)
        if came and await read_live(db, target) is not None:
            return  # it is there, which the insert will find
        here = await read_row(db, source)
        if here is not None:
            mark = mark_of(here)
            if mark is not None and mark.names(target):
                return
            if mark is not None and not await _is_taken(db, rekeying, source, mark):
                if await settle_forward(db, source, here, target):
                    return
                continue
            raise older_key_taken(rekeying, change, source)
        insert = Operation(Verb.INSERT, settled_row(rekeying, source, target))
        if await write_as_read(db, source.table, [insert], name="", what=f"the forward {source}"):
            return
    raise LostRace(
        f"{change}: its key by {rekeying.old.name}, {source}, cannot be taken; try it again",
        Code.CONDITION_NOT_SATISFIED,
        change.subject,
    )


def older_key_taken(rekeying: Rekeying, change: Change, source: RowAddress) -> EntityExists:
    """Return the error of an insert whose older key another entity has."""
    old = rekeying.old.name
    problem = f"{change}: there is another entity with its key by {old}, {source}"
    return EntityExists(problem, Code.ENTITY_EXISTS, change.subject, index=old)


def collision(rekeying: Rekeying, what: str, place: RowAddress, again: str, entity: Entity) -> EntityExists:
    """
    Return the error of an entity whose other key is taken.

    Args:
        rekeying: The models.
        what: What cannot be done, to which row.
        place: The key that another entity has.
        again: What to do once more when one of the two is deleted.
        entity: The entity.
    """
    return EntityExists(
        f"{rekeying}{what} {place}, which another entity has; keep one of the two: read the other with db.get(), by "
        f"{rekeying.old.name} or {rekeying.new.name}, delete it, and {again} once more",
        Code.ENTITY_EXISTS,
        entity,
    )


async def _settle_unfollowed(db: Connection, source: RowAddress, here: Row, mark: MoveMark) -> None:
    """Settle a forward if there is no row where it says: a program without tableorm has deleted that."""
    if mark.state is MoveState.FORWARD and mark.stays and await read_row(db, mark.other) is None:
        await settle_forward(db, source, here)


def _is_forward(row: Row, mark: MoveMark | None) -> bool:
    """Return whether a row is a forward. An entity with such a mark, which another program has made up, is none."""
    return is_marker(row) and mark is not None and mark.state.has_left


async def _is_taken(db: Connection, rekeying: Rekeying, source: RowAddress, mark: MoveMark) -> bool:
    """Return whether an entity has an older key at which there is a row with a mark."""
    if not mark.state.has_left:
        return True
    there = await read_other(db, mark.other)
    if there is None or mark.state is MoveState.FORWARD:
        return there is not None
    new = rekeying.new
    if is_marker(there) or KindSet.alone(new).resolve(there) is None:
        return False
    # It may have been deleted, and inserted with another older key.
    return RowAddress.of(rekeying.old_key(entity_of_row(new, there))) == source


def settled_row(rekeying: Rekeying, source: RowAddress, target: RowAddress) -> Row:
    """Return the row that says at an older key that this is taken by an entity which has only a newer key."""
    mark = MoveMark(state=MoveState.SETTLED, move="", other=target, stays=True)
    return kept_row(rekeying.old, {**source.keys, ENTITY_TYPE: str(rekeying.old.kind)}, mark)


def source_of(rekeying: Rekeying, entity: Entity) -> RowAddress:
    """
    Return where an entity is by the older model.

    Raises:
        ModelError: Its newer key does not tell that, so that nobody would find it.
    """
    key = rekeying.old_key(entity)
    if key not in rekeying.old_keys(entity.__dict__):
        raise ModelError(f"{rekeying}: old_keys does not return {key} for the newer key of {entity!r}")
    return RowAddress.of(key)


def target_of(rekeying: Rekeying, entity: Entity, source: RowAddress) -> tuple[Entity, RowAddress]:
    """
    Return what an entity of the older model becomes, and where that is.

    Raises:
        ModelError: It becomes nothing; or its newer key does not tell the older one, so that nobody would find it.
    """
    made: Entity | None = rekeying.to_new(entity)
    if made is None:
        raise ModelError(
            f"{rekeying}: to_new returned None for {entity!r}; entities are dropped only while nobody writes: stop all "
            "writers and re-key offline, or delete them first"
        )
    if source not in map(RowAddress.of, rekeying.old_keys(made.__dict__)):
        raise ModelError(f"{rekeying}: old_keys does not return the key of {entity!r} for that of {made!r}")
    target = RowAddress(rekeying.new.table_name(), *rekeying.new.make_keys(made.__dict__))
    if target == source:
        raise ModelError(
            f"{rekeying}: an entity has the same key {source} by both models; let the templates of {rekeying.new.name} "
            "make keys that no entity has by the older model, or put it into another table"
        )
    return made, target


def _old_key(rekeying: Rekeying, row: Row) -> Key[Any]:
    """Return the key that the entity of a row of the newer model has by the older one."""
    return rekeying.old_key(entity_to_be(rekeying.new, row))


# Tentative rows that a mover has left at newer keys


async def resolve_window(db: Connection, rekeying: Rekeying, rows: Iterable[Row]) -> WindowReport:
    """
    Confirm the tentative rows that are entities, and delete the others after their moves were made impossible.

    Args:
        db: Where the rows are.
        rekeying: The models.
        rows: Tentative rows of the newer model; other rows are passed over. Those that were confirmed count as moved.
    """
    report, table = WindowReport(), rekeying.new.table_name()
    places = [(RowAddress.of_row(table, row), row) for row in rows]
    await each_row(report, places, lambda place, row: resolve_row(db, rekeying, place, row))
    return report


async def resolve_row(db: Connection, rekeying: Rekeying, place: RowAddress, row: Row | None) -> bool:
    """Do so with one row; return whether it was confirmed."""
    mark, new = mark_of(row), rekeying.new
    if row is None or mark is None or mark.state is not MoveState.TENTATIVE:
        return False
    if not is_in_table(new, place) or entity_kind_of(row) != new.kind:
        return False  # a forged forward may name a row of another model
    if await RELOCATION.resolve(db, place, rekeying.new):
        return False
    return await RELOCATION.finish(db, mark.move, mark.other, place, rekeying.new) is not None


def is_in_table(schema: Schema, place: RowAddress) -> bool:
    """Return whether an address is in the table of a model."""
    return place.table.lower() == schema.table_name().lower()
