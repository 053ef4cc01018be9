"""
Keys: where an entity is stored, as a value.
"""

from abc import ABCMeta
from typing import Any, ClassVar, Generic, TypeVar

import attrs

from ..errors import ModelError


class StorableClass(ABCMeta):
    """The class of models and of `PropertyBag`. Nothing is registered with one, and an ABC takes long to ask for it."""

    __instancecheck__ = type.__instancecheck__
    __subclasscheck__ = type.__subclasscheck__


class Storable:
    """What can be stored as a row of a table: the base of entities and property bags."""

    __slots__ = ()


E_co = TypeVar("E_co", bound=Storable, covariant=True)


@attrs.frozen(repr=False)
class Key(Generic[E_co]):
    """
    The stored keys of one entity. Keys are immutable, hashable and picklable. You can pass a key wherever a model with
    its key fields is accepted.

        key = Employee.key(department="Sales", id=7)
        employee = await db.get(key)

    Args:
        model: The class of the entity, or `PropertyBag`.
        table: The name of the table.
        partition_key: The PartitionKey, as stored.
        row_key: The RowKey, as stored.

    Raises:
        ModelError: Entities of the model are in another table, so its templates don't apply to the key.
    """

    _shape_of_values: ClassVar[Any]
    _shape_of_elements: ClassVar[Any]
    model: type[E_co]
    table: str
    partition_key: str
    row_key: str

    def __attrs_post_init__(self) -> None:
        schema = getattr(self.model, "__schema__", None)
        table = getattr(schema, "table", None)
        if table is not None and table != self.table and table.lower() != self.table.lower():
            if schema is not None and schema.periods is not None:
                table = schema.table_of(self.partition_key, self.row_key)
                if table.lower() == self.table.lower():
                    return
            raise ModelError(
                f"{self!r} is rejected: {self.model.__name__} is in table {table}; give that table, or make the key of "
                f"a row of any kind: PropertyBag.key({self.table!r}, {self.partition_key!r}, {self.row_key!r})"
            )

    def __repr__(self) -> str:
        return f"Key({self.model.__name__}, {self.table!r}, {self.partition_key!r}, {self.row_key!r})"

    def __str__(self) -> str:
        return f"{self.model.__name__} ({self.partition_key!r}, {self.row_key!r}) in table {self.table}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.model, self.table, self.partition_key, self.row_key)
