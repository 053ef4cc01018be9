"""
What an entity knows of its row: one frozen value in the entity's dictionary, replaced as a whole.

A list of many entities must not take twice the memory because each remembers its row. So a row that has nothing but
what its model declares is kept as the tuple of its values: the generated decoder of the model makes that tuple, and a
function that was generated with it makes the row again when a write needs it. The struct is never part of a cycle, so
the garbage collector need not look at it, nor at the tuple (`gc=False`).
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import structs

from ..protocol.edm import timestamp_of_etag
from ..stores import Row
from .property_bag import PropertyBag

__all__ = ["STATE", "UNSTORED", "EntityState", "Unpack", "set_state", "state_of"]

STATE = "_state"
"""Where an entity's dictionary has its state; absent means `UNSTORED`."""

Unpack = Callable[[tuple[Any, ...]], Row]
"""Makes the row of its values, of which the first four are ETag, Timestamp, PartitionKey and RowKey."""


class EntityState(msgspec.Struct, frozen=True, eq=False, gc=False):
    """
    What an entity knows of its row.

    The first four are positional, because one is made for each row that is read.

    Args:
        unpack: Makes the row of `values`; None if `values` is the row itself.
        values: The row that the entity was read as or written as, as a tuple or a row; None if it is not stored.
        partial: Whether the stored row may have more.
        loaded: Names of the fields that were read, if these were not all; None otherwise.
        upgraded: Whether the row was of an older version, so that the row here is what it was upgraded to.
        superseded: Whether the row was changed by others since the entity was written.
        copied: The properties of the row that the entity knows, if it was read from an index entry; None otherwise.
        found_at: RowKey of the index entry that it was found by; None if it was found at its own key.
        extra: The unknown properties, once somebody has looked at them; they may have been changed there.
    """

    unpack: Unpack | None = None
    values: Any = None
    partial: bool = False
    loaded: frozenset[str] | None = None
    upgraded: bool = False
    superseded: bool = False
    copied: frozenset[str] | None = None
    found_at: str | None = None
    extra: PropertyBag | None = None

    @property
    def row(self) -> Row | None:
        """The row that the entity was read as or written as; None if it is not stored. It must not be changed."""
        row: Row | None = self.values if self.unpack is None else self.unpack(self.values)
        return row

    @property
    def etag(self) -> str | None:
        """The ETag of the row; None if there is none."""
        if self.unpack is not None:
            etag: str | None = self.values[0]
            return etag
        return None if self.values is None else self.values.get("odata.etag")

    @property
    def keys(self) -> tuple[str, str] | None:
        """The PartitionKey and RowKey of the row; None if it is not stored."""
        values = self.values
        if values is None:
            return None
        return (values["PartitionKey"], values["RowKey"]) if self.unpack is None else values[2:4]

    @property
    def position(self) -> tuple[str, str]:
        """The PartitionKey and the RowKey that the entity was found at."""
        keys = self.keys
        assert keys is not None
        return keys if self.found_at is None else (keys[0], self.found_at)

    @property
    def timestamp(self) -> str | None:
        """The Timestamp of the row; None if there is none."""
        if self.unpack is not None:
            stamp: str | None = self.values[1]
            return stamp
        if self.values is None:
            return None
        # The ETag is made of it: of a row that was read in part, or was written, it is all there is.
        etag = self.values.get("odata.etag")
        return self.values.get("Timestamp") or (timestamp_of_etag(etag) if etag else None)

    def written(self, row: Row, *, partial: bool, superseded: bool, extra: PropertyBag | None) -> "EntityState":
        """
        Return the state after a write.

        Args:
            row: The row as it was written.
            partial: Whether the stored row may have more.
            superseded: Whether others have changed the row since.
            extra: The unknown properties that the entity has now, if somebody has looked at them.
        """
        loaded = self.loaded if partial else None
        return EntityState(None, row, partial, loaded, False, superseded, None, self.found_at, extra)

    def forgotten(self, *, complete: bool) -> "EntityState":
        """
        Return the state after the row was deleted.

        Args:
            complete: Whether the entity has all of its fields.
        """
        return EntityState(
            None,
            None,
            self.partial and not complete,
            None if complete else self.loaded,
            found_at=self.found_at,
            extra=self.extra,
        )

    def with_extra(self, extra: PropertyBag | None) -> "EntityState":
        """Return the state with these unknown properties."""
        return structs.replace(self, extra=extra)

    def adopt(self, other: "EntityState") -> "EntityState":
        """Return the state with the row of another one, which a function has changed a copy of."""
        return structs.replace(self, unpack=other.unpack, values=other.values, upgraded=other.upgraded)

    def __copy__(self) -> "EntityState":
        return self if self.extra is None else self.with_extra(self.extra.copy())

    def __deepcopy__(self, memo: dict[int, Any]) -> "EntityState":
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        rest = (self.upgraded, self.superseded, self.copied, self.found_at, self.extra)
        return EntityState, (None, self.row, self.partial, self.loaded, *rest)


UNSTORED = EntityState()
"""The state of an entity that was neither read nor written."""


def state_of(entity: object) -> EntityState:
    """Return what an entity knows of its row."""
    state: EntityState = getattr(entity, STATE, UNSTORED)  # makes no dictionary where there is none
    return state


def set_state(entity: object, state: EntityState) -> None:
    """Replace what an entity knows of its row."""
    entity.__dict__[STATE] = state
