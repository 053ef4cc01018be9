"""
What a model says of the older model whose entities it takes over under other keys, a bound declaration; and entities of
the newer model, made of rows of the older one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from ..errors import NotSupported
from ..models.entity import Entity
from ..models.home import HomeRules
from ..models.key import Key
from ..models.kinds import KindSet
from ..models.marker_rows import MoveMark, MoveState, mark_of
from ..models.reserved import MOVE
from ..models.schema import Schema
from ..models.state import EntityState, set_state, state_of
from ..models.write_tokens import newest_token
from ..stores import Row, RowAddress
from ..writes.relocation import entity_of_row


@attrs.define(kw_only=True, eq=False, slots=False)
class Rekeying(HomeRules):
    """
    How entities of an older model become entities of a newer one.

    Args:
        old: The schema of the older model.
        new: The schema of the newer model.
        copied: Names of the fields that an entity has by both models, with the same values.
        digest: Identifies the two layouts, whichever program declares them.
        to_new: Makes an entity of the newer model; None if that drops the entity.
        to_old: Makes an entity of the older model.
        old_key: Returns the key that an entity of the newer model has by the older model.
        old_keys: Returns the keys that an entity may have had by the older model, from the fields of its newer key.
    """

    old: Schema
    new: Schema
    copied: frozenset[str]
    digest: str
    to_new: Callable[[Any], Any]
    to_old: Callable[[Any], Any]
    old_key: Callable[[Any], Key[Any]]
    old_keys: Callable[[Mapping[str, Any]], Sequence[Key[Any]]]

    def __str__(self) -> str:
        return f"re-key of {self.old.name} to {self.new.name}"

    def is_elsewhere(self, row: Row) -> bool:
        """Return whether the entity that remembers this row was read at its older key."""
        return old_place_of(row) is not None

    def etag_now(self, etag: str | None, remembered: Row, row: Row) -> str | None:
        """Return the ETag of the row at the newer key, if that is what became of the older row that was read."""
        old, mark = old_place_of(remembered), mark_of(row)
        if old is None or mark is None or etag != old.etag:
            return etag
        same = mark.names(old.other) and mark.etag == old.etag and newest_token(row) == mark.move
        return str(row["odata.etag"]) if same else etag

    def may_come_from(self, row: Row, place: RowAddress) -> bool:
        """Return whether an address is one of the older keys that the entity of a row may have."""
        keys = self.old_keys(entity_of_row(self.new, row).__dict__)
        return any(RowAddress.of(key).is_same(place) for key in keys)

    def check_movable(self) -> None:
        """Refuse to move an entity to another partition. Raises NotSupported."""
        raise NotSupported(
            f"{self.new.name} cannot be moved to another partition while it takes over the entities of "
            f"{self.old.name}: delete the entity and insert it at its new key, or take away moved_from= when the "
            "re-key is done"
        )


def rekeying_of(schema: Schema) -> Rekeying | None:
    """Return how a model takes over the entities of an older one; None if it does not."""
    return schema.home if isinstance(schema.home, Rekeying) else None


def old_place_of(row: Row | None) -> MoveMark | None:
    """Return where an entity was read by its older key, with its ETag there; None if it was read elsewhere."""
    mark = mark_of(row)
    return mark if mark is not None and mark.state is MoveState.OLD else None


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
