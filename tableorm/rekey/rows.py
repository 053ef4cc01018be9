"""
Entities of a newer model, made of rows of the older one.
"""

from ..models.entity import Entity
from ..models.kinds import KindSet
from ..models.marker_rows import MoveMark, MoveState
from ..models.reserved import MOVE
from ..models.schema import Schema
from ..models.state import EntityState, set_state, state_of
from ..stores import Row, RowAddress
from .rekeying import Rekeying, old_place_of

__all__ = [
    "entity_of_old",
    "entity_to_be",
    "has_old_key_of",
    "note_older_place",
    "renewed",
]


def entity_of_old(rekeying: Rekeying, row: Row) -> Entity | None:
    """
    Return the entity of the newer model that a row of the older one becomes; None if the row is of another kind.

    Its state has the row that it will have, under the ETag of the older one, and a mark that says where that is.

    Raises:
        DecodeError: The row does not fit the older model.
        ModelError: It cannot be made an entity of the newer model.
    """
    entity = KindSet.alone(rekeying.old).load(row)
    return renewed(rekeying, entity) if isinstance(entity, Entity) else None


def renewed(rekeying: Rekeying, entity: Entity) -> Entity | None:
    """
    Return what an entity of the older model, as it was just read in full, becomes; None if that drops it.

    Raises:
        ModelError: It cannot be made an entity of the newer model.
    """
    made: Entity | None = rekeying.to_new(entity)
    state = state_of(entity)
    if made is not None and state.keys is not None:
        place = RowAddress(rekeying.old.table_name(), *state.keys)
        note_older_place(rekeying.new, made, place, str(state.etag), str(state.timestamp))
    return made


def has_old_key_of(rekeying: Rekeying, made: Entity) -> bool:
    """
    Return whether an entity was read at an older key that its newer key tells, where reads by key find it. What another
    program has written may have fields that are not those of its key.
    """
    mark = old_place_of(state_of(made).row)
    found = rekeying.old_keys(made.__dict__)
    return mark is not None and any(mark.names(RowAddress.of(k)) for k in found)


def entity_to_be(schema: Schema, row: Row) -> Entity:
    """Return the entity of a row that is to be written, and has no ETag yet."""
    entity: Entity = schema.decode({"odata.etag": "", "Timestamp": "", **row})
    return entity


def note_older_place(schema: Schema, entity: Entity, place: RowAddress, etag: str, timestamp: str) -> None:
    """
    Let an entity know that it is stored as it is now, at an older key.

    Args:
        schema: The newer model.
        entity: The entity.
        place: Where it is by the older model.
        etag: Its ETag there.
        timestamp: Its Timestamp there.
    """
    stored, _ = schema.encode(entity.__dict__, *schema.make_keys(entity.__dict__))
    state = state_of(entity)
    stored |= state.unknown(schema.known)
    mark = MoveMark(state=MoveState.OLD, move="", other=place, etag=etag)
    stored |= {"odata.etag": etag, "Timestamp": timestamp, MOVE: mark.to_text()}
    set_state(entity, EntityState(stored=stored, extra=state.extra))
