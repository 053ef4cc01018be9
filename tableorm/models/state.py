"""
What an entity knows of its row: one frozen value in the entity, replaced as a whole.

A list of many entities must not take twice the memory because each remembers its row. So of a row that has nothing but
what its model declares only the values are kept: each model has a `PackedState` of its own with a field for each of
them, which the generated decoder fills, and which makes the row again when a write needs it. States are never part of
a cycle, so the garbage collector need not look at them (`gc=False`).
"""

from collections.abc import Callable, Container, Sequence
from typing import Any

import msgspec
from msgspec import structs

from ..protocol.edm import SYSTEM_MEMBERS, timestamp_of_etag
from ..stores import Row
from .property_bag import PropertyBag

STATE = "_state"
"""The attribute of an entity that has its state; absent means `UNSTORED`."""


class EntityState(msgspec.Struct, frozen=True, eq=False, gc=False, kw_only=True):
    """
    What an entity knows of its row.

    Args:
        stored: The row that the entity was read as or written as; None if it is not stored.
        partial: Whether the stored row may have more.
        loaded: Names of the fields that were read, if these were not all; None otherwise.
        upgraded: Whether the row was of an older version, so that the row here is what it was upgraded to.
        superseded: Whether the row was changed by others since the entity was written.
        copied: The properties of the row that the entity knows, if it was read from an index entry; None otherwise.
        found_at: PartitionKey and RowKey of the index entry that it was found by; None if it was found at its own key.
        extra: The mapping of unknown properties that the user was given, which may be changed there; None as long as
            nobody has asked for it. Use `unknown`, which is the same in both cases.
    """

    stored: Row | None = None
    partial: bool = False
    loaded: frozenset[str] | None = None
    upgraded: bool = False
    superseded: bool = False
    copied: frozenset[str] | None = None
    found_at: tuple[str, str] | None = None
    extra: PropertyBag | None = None

    @property
    def row(self) -> Row | None:
        """The row that the entity was read as or written as; None if it is not stored. It must not be changed."""
        return self.stored

    @property
    def etag(self) -> str | None:
        """The ETag of the row; None if there is none."""
        return None if self.stored is None else self.stored.get("odata.etag")

    @property
    def timestamp(self) -> str | None:
        """The Timestamp of the row; None if there is none."""
        # The ETag is made of it: of a row that was read in part, or was written, it is all there is.
        etag = self.etag
        stamp = None if self.stored is None else self.stored.get("Timestamp")
        return stamp or (timestamp_of_etag(etag) if etag else None)

    @property
    def keys(self) -> tuple[str, str] | None:
        """The PartitionKey and RowKey of the row; None if it is not stored."""
        return None if self.stored is None else (self.stored["PartitionKey"], self.stored["RowKey"])

    @property
    def position(self) -> tuple[str, str]:
        """The PartitionKey and the RowKey that the entity was found at."""
        found_at = self.found_at or self.keys
        assert found_at is not None
        return found_at

    def unknown(self, known: Container[str]) -> Row:
        """
        Return the members of the unknown properties that the entity has, as they were read or as the user changed them.

        Args:
            known: Names of the members that the model knows.
        """
        if self.extra is not None:
            return {name: value for name, value in self.extra.row.items() if name not in SYSTEM_MEMBERS}
        return {} if self.stored is None else {n: value for n, value in self.stored.items() if n not in known}

    def forgotten(self, *, complete: bool) -> "EntityState":
        """
        Return the state after the row was deleted.

        Args:
            complete: Whether the entity has all of its fields.
        """
        return EntityState(
            partial=self.partial and not complete,
            loaded=None if complete else self.loaded,
            found_at=self.found_at,
            extra=self.extra,
        )

    def with_extra(self, extra: PropertyBag | None) -> "EntityState":
        """Return the state with these unknown properties."""
        return structs.replace(self, extra=extra)

    def adopt(self, other: "EntityState") -> "EntityState":
        """Return the state with the row of another one, which a function has changed a copy of."""
        return structs.replace(
            other,
            partial=self.partial,
            loaded=self.loaded,
            superseded=self.superseded,
            copied=self.copied,
            found_at=self.found_at,
            extra=self.extra,
        )

    def __copy__(self) -> "EntityState":
        return self if self.extra is None else self.with_extra(self.extra.copy())

    def __deepcopy__(self, memo: dict[int, Any]) -> "EntityState":
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        rest = (self.upgraded, self.superseded, self.copied, self.found_at, self.extra)
        return _rebuild, (self.row, self.partial, self.loaded, *rest)


def _rebuild(stored: Row | None, *rest: Any) -> EntityState:
    return EntityState(stored=stored, **dict(zip(EntityState.__struct_fields__[1:], rest, strict=True)))


class PackedState(EntityState, frozen=True, eq=False, gc=False):
    """
    The state of an entity that was read from a row with nothing unknown. `packed_state` adds a field for each value.

    Args:
        stored_etag: The ETag of the row.
        stored_timestamp: The Timestamp of the row.
        partition_key: As stored.
        row_key: As stored.
    """

    stored_etag: str
    stored_timestamp: str
    partition_key: str
    row_key: str

    @property
    def etag(self) -> str | None:
        """The ETag of the row."""
        return self.stored_etag

    @property
    def timestamp(self) -> str | None:
        """The Timestamp of the row."""
        return self.stored_timestamp

    @property
    def keys(self) -> tuple[str, str] | None:
        """The PartitionKey and RowKey of the row."""
        return self.partition_key, self.row_key


def packed_state(model: str, values: Sequence[str], unpack: Callable[[Any], Row]) -> type[PackedState]:
    """
    Make the class of states that keep the values of rows of a model.

    Args:
        model: Name of the model.
        values: Names of the fields for its values.
        unpack: Makes the row of a state.
    """
    state: Any = msgspec.defstruct(
        f"{model}State",
        values,
        bases=(PackedState,),
        namespace={"row": property(unpack)},
        frozen=True,
        eq=False,
        gc=False,
    )
    found: type[PackedState] = state
    return found


UNSTORED = EntityState()
"""The state of an entity that was neither read nor written."""


def state_of(entity: object) -> EntityState:
    """Return what an entity knows of its row."""
    state: EntityState = getattr(entity, STATE, UNSTORED)  # makes no dictionary where there is none
    return state


def set_state(entity: object, state: EntityState) -> None:
    """Replace what an entity knows of its row."""
    entity.__dict__[STATE] = state
