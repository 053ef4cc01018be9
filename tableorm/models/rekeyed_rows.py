"""
Entities of a newer model, made of rows of the older one.
"""

from ..stores import Row
from .entity import Entity
from .kinds import KindSet
from .marker_rows import MoveMark, MoveState, Place, mark_of
from .rekeying import Rekeying
from .reserved import MOVE
from .schema import Schema
from .state import EntityState, set_state, state_of

__all__ = ["entity_of_old", "old_place_of"]


def entity_of_old(rekeying: Rekeying[Schema], row: Row) -> Entity | None:
    """
    Return the entity of the newer model that a row of the older one becomes; None if the row is of another kind.

    Its state has the row that it will have, under the ETag of the older one, and a mark that says where that is.

    Raises:
        DecodeError: The row does not fit the older model.
        ModelError: It cannot be made an entity of the newer model.
    """
    old, new = rekeying.old, rekeying.new
    entity = KindSet((old,), old.table_name(), bags=False).load(row)
    if not isinstance(entity, Entity):
        return None
    made: Entity | None = rekeying.to_new(entity)
    if made is None:
        return None
    place, etag = Place(old.table_name(), row["PartitionKey"], row["RowKey"]), row["odata.etag"]
    stored, _ = new.encode(made.__dict__, *new.make_keys(made.__dict__))
    state = state_of(made)
    if state.extra is not None:
        stored |= state.unknown(new.known)
    mark = MoveMark(state=MoveState.OLD, move="", other=place, etag=etag)
    stored |= {"odata.etag": etag, MOVE: mark.to_text()}
    set_state(made, EntityState(stored=stored, extra=state.extra))
    return made


def old_place_of(row: Row | None) -> MoveMark | None:
    """Return where an entity was read by its older key, with its ETag there; None if it was read elsewhere."""
    mark = mark_of(row)
    return mark if mark is not None and mark.state is MoveState.OLD else None
