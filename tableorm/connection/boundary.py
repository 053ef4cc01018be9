"""
The boundary of a connection: what it may read and write.

A database has no boundary; a scope fills in its own (`tableorm.access.scope`). Whoever reads a row by its key, plans a
query, takes a change, or acts on a whole table asks it, so that a tenant is kept in at few places and not by each verb.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

from ..expressions import Expression
from ..models.entity import Entity
from ..models.key import Key
from ..models.kinds import KindSet
from ..models.property_bag import PropertyBag
from ..models.schema import Schema
from ..protocol.key_range import KeyRange

__all__ = ["Boundary", "DerivedKeys", "Subject"]

Subject = Entity | PropertyBag

Fields = Mapping[str, Any]


class DerivedKeys(Protocol):
    """
    What the boundary must know of an index or an index list.
    """

    @property
    def primary(self) -> Schema:
        """The schema of its entities."""
        ...

    @property
    def key_names(self) -> AbstractSet[str]:
        """The fields that its keys are made of."""
        ...


class Boundary:
    """
    The boundary of a whole database: it fills in nothing, and lets everything through.

    Methods named `fill` give fields the values that they have within the boundary; methods named `check` raise
    `AccessDenied` for what lies outside of it, and `ModelError` for what cannot be told.
    """

    narrows: bool = False
    """Whether it keeps anything out."""

    # Rows

    def fill(self, subject: Subject) -> None:
        """Give the boundary's values to those fields of a new entity that are None."""

    def fill_key(self, schema: Schema, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the key fields of a model, completed by the boundary's values."""
        del schema
        return fields

    def fill_derived_key(self, schemas: Sequence[DerivedKeys], fields: dict[str, Any]) -> dict[str, Any]:
        """Return the key fields of an index or list, completed by those of the boundary's values that its keys have."""
        del schemas
        return fields

    def check(self, subject: Subject | Key[Any]) -> None:
        """Refuse an entity, bag or key outside of the boundary."""

    def check_row(self, schema: Schema | None, table: str, partition_key: str, row_key: str) -> None:
        """Refuse to write a row whose keys are outside of the boundary; `schema` is None for a bag."""

    def holds_row(self, schema: Schema | None, table: str, partition_key: str, row_key: str) -> bool:
        """Return whether a row that was found, say by an index entry, is within the boundary."""
        del schema, table, partition_key, row_key
        return True

    def check_derived_row(self, schema: Schema | None, table: str, partition_key: str, row_key: str) -> None:
        """Refuse to change a row because an entity of a model, or a bag, is written: a holder, or an index entry."""

    def check_move(self, subject: Subject, fields: Fields) -> None:
        """Refuse to move an entity or bag from outside of the boundary, or to give it a key outside."""

    # Queries

    def narrow(self, kinds: KindSet, where: Sequence[Expression]) -> tuple[Expression, ...]:
        """
        Return the conditions that a query must satisfy besides its own.

        Args:
            kinds: The kinds of entities that are queried.
            where: The query's own conditions, which are refused where they ask for what is outside.
        """
        del kinds, where
        return ()

    # Tables

    def check_whole_table(self, action: str) -> None:
        """Refuse an action that reads or changes a whole table; `action` names it in the message."""

    def fill_range(
        self, what: str, schema: Schema | None, start: Fields | None, end: Fields | None
    ) -> tuple[Fields | None, Fields | None]:
        """Return the ends of the range of keys that a grant opens, completed by the boundary's values."""
        del what, schema
        return start, end

    def check_range(self, what: str, schema: Schema | None, start: Fields, end: Fields, keys: KeyRange) -> None:
        """Refuse a range of keys, made of the ends that `fill_range` returned, that holds keys outside."""
