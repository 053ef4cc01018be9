"""
Row stages: how rows of a model are stored otherwise than its fields say, such as with some properties encrypted.

A model has the stages that stand in its class body. Everything between the two ends works with rows as the model
says: a stage seals an operation when it is sent, and unseals a row when an entity is made of it. Who names no model
sees rows as they are stored: property bags, filters on properties, other programs.
"""

from collections.abc import Mapping

from ..stores import Operation, Row
from .property_types import FieldInfo

__all__ = ["RowStage"]


class RowStage:
    """
    One stage of the rows of a model, declared in its class body. The stages of a base come before those of its classes;
    rows are unsealed in the opposite order.

    A stage turns one row into one row, each property by itself: an operation may have some of a row's properties, and
    so may a row that is read. What is derived from entities never holds opaque properties; their keys, their kind and
    what tableorm keeps in a row are not for stages.

    Attributes:
        opaque: The properties that the store does not hold as the fields say, so that it cannot be asked about them.
    """

    opaque: frozenset[str] = frozenset()

    def bind(self, fields: Mapping[str, FieldInfo]) -> "RowStage":
        """
        Return the stage of a model: another object for each, since classes inherit what their bases declare.

        Args:
            fields: The fields of the model.

        Raises:
            ModelError: The stage does not fit them.
        """
        raise NotImplementedError

    def seal(self, operation: Operation) -> Operation:
        """Return an insert, merge or replace as it is sent. The operation itself must not be changed."""
        raise NotImplementedError

    def unseal(self, row: Row) -> Row:
        """
        Return a row as the model says. Some properties may not have been read, and those that a projection did not find
        may be None. The row itself must not be changed.

        Raises:
            ValueError: It was not sealed by the stage.
        """
        raise NotImplementedError
