"""
What a model says of the older model whose entities it takes over under other keys: a bound declaration.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from ..errors import NotSupported
from ..models.home import HomeRules
from ..models.key import Key
from ..models.marker_rows import MoveMark, MoveState, mark_of
from ..models.schema import Schema
from ..models.write_tokens import newest_token
from ..stores import Row, RowAddress
from ..writes.relocation import entity_of_row

__all__ = ["Rekeying", "old_place_of", "rekeying_of"]


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
