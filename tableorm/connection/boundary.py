"""
The boundary of a connection: what it may read and write.

A database has no boundary; a scope fills in its own (`tableorm.access.scope`). Whoever reads a row by its key, plans a
query, takes a change, or acts on a whole table asks it, so that a tenant is kept in at few places and not by each verb.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from ..expressions import Expression
from ..models.entity import Entity
from ..models.key import Key
from ..models.kinds import KindSet
from ..models.property_bag import PropertyBag
from ..models.schema import Schema
from ..protocol.key_range import KeyRange
from ..stores import RowAddress

Subject = Entity | PropertyBag

Fields = Mapping[str, Any]


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

    def fill_key(self, schema: Schema, fields: dict[str, Any], names: AbstractSet[str] | None = None) -> dict[str, Any]:
        """
        Return key fields of a model, completed by the boundary's values.

        Args:
            schema: The schema of the model.
            fields: The key fields that are given.
            names: The fields of the key, if it is that of an index or list; None for the model's own.
        """
        del schema, names
        return fields

    def check(self, subject: Subject | Key[Any]) -> None:
        """Refuse an entity, bag or key outside of the boundary."""

    def check_bag(self, bag: PropertyBag, *, merged: bool) -> None:
        """
        Refuse to write a bag which other rows would have to be derived from, be they outside of the boundary or not.

        Args:
            bag: The bag.
            merged: Whether but some of its properties are sent.
        """

    def check_row(self, schema: Schema | None, address: RowAddress) -> None:
        """Refuse to write a row whose keys are outside of the boundary; `schema` is None for a bag."""

    def holds_row(self, schema: Schema | None, address: RowAddress) -> bool:
        """Return whether a row that was found, say by an index entry, is within the boundary."""
        del schema, address
        return True

    def holds_partition(self, schema: Schema, partition_key: str) -> bool:
        """Return whether all rows of a partition of a model are within the boundary, so that ranges may be read."""
        del schema, partition_key
        return True

    def check_derived_row(self, schema: Schema | None, address: RowAddress) -> bool:
        """
        Refuse to change a row because an entity of a model, or a bag, is written: a holder, or an index entry.

        Returns:
            Whether the key tells that the row is within the boundary. Otherwise it may be one of others.
        """
        del schema, address
        return True

    def check_move(self, subject: Subject, fields: Fields) -> None:
        """Refuse to move an entity or bag from outside of the boundary, or to give it a key outside."""

    # Queries

    def narrow(self, kinds: KindSet, where: Sequence[Expression]) -> tuple[Expression, ...]:
        """
        Return the conditions that a query must satisfy besides its own.

        Args:
            kinds: The kinds of entities that are queried.
            where: The query's own conditions, which are rejected where they ask for what is outside.
        """
        del kinds, where
        return ()

    # Tables

    def check_whole_table(self, action: str) -> None:
        """Refuse an action that reads or changes a whole table; `action` names it in the message."""

    def check_range(self, what: str, schema: Schema | None, start: Fields, end: Fields, keys: KeyRange) -> None:
        """
        Refuse a range of keys for a grant that holds keys outside.

        Args:
            what: What the range is for, for messages.
            schema: The schema of the model whose keys they are; None if only a table is named.
            start: The fields of the first key, as `fill_key` returned them.
            end: The fields of the last key.
            keys: The range.
        """
