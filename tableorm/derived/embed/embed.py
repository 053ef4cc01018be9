"""
Embedded copies: some fields of another entity of the same partition, kept as they are there.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from ...errors import ModelError
from ...models.derivation import Derivation
from ...models.manifest import HolderEntry, SourceEntry
from ...models.schema import Schema, concrete
from ..reference import Reference, Relation, find_target

if TYPE_CHECKING:
    from ...models.entity import Entity

__all__ = ["EmbedSchema", "Embedded", "embed_of"]

E = TypeVar("E", bound="Entity")


_EMBEDS: "WeakSet[EmbedSchema]" = WeakSet()
"""All that are declared: an entity must find the models of those that hold copies of it."""


def embed_of(source: Schema, note: str) -> "EmbedSchema | None":
    """What an entity of this model notes under this name; None if this program does not declare it."""
    noted = note.partition(":")[0]
    alike = [each for each in _EMBEDS if each.noted == noted and each.schema.table == source.table]
    return next((each for each in alike if source in concrete(each.source[0])), None)


class Embedded(Derivation):
    """
    Copies of some fields of another entity of the same partition: the department holds its manager's name and address.

    `manager = Embedded(lambda: Employee, {"manager_name": "name"}, department="{name}", id="{manager_id}")` in the body
    of `Department`. When `manager_id` is set the fields are read from that employee; when the employee changes, so do
    they, each in one entity group transaction. An employee that is somewhere embedded cannot be deleted.

    Args:
        model: The other model, or a function that returns it. Its class says `tracked=True`, unless it has indexes.
        fields: For each field of this model that holds a copy, declared `| None` and `field(maintained=True)`, the
            field of the other model that it is a copy of.
        key: The key fields of the other entity: "{field}" of this model, or text. A field that is None embeds nothing.
    """

    instead = "; the copies are in fields of their own"

    def __init__(
        self, model: "Callable[[], type[Entity]] | type[Entity]", fields: Mapping[str, str], /, **key: str
    ) -> None:
        given: object = fields
        if not isinstance(given, Mapping) or not fields or not key or not all(isinstance(t, str) for t in key.values()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(
                'Embedded(...) needs fields and a key, as in Embedded(lambda: Employee, {"manager_name": "name"}, '
                'department="{name}", id="{manager_id}")'
            )
        super().__init__()
        self.model, self.fields, self.key = model, dict(fields), dict(key)


class EmbedSchema(Relation):
    """
    An `Embedded` of a model.

    Args:
        name: Of the declaration.
        declared: The declaration.
        schema: The schema of the model that holds the copies.
    """

    def __init__(self, name: str, declared: Embedded, schema: Schema) -> None:
        self.name, self.label = name, f"{schema.name}.{name}"
        self.declared, self.schema = declared, schema
        self._reference = Reference(self.label, schema, declared.key)
        self._source: tuple[Schema, dict[str, str]] | None = None
        _EMBEDS.add(self)
        for field in declared.fields:
            info = schema.fields.get(field)
            if info is None or not info.maintained or not info.optional:
                raise ModelError(
                    f"{self.label}: {field!r} cannot hold a copy; declare {field}: Mapped[... | None] = "
                    "field(default=None, maintained=True)"
                )

    @property
    def source(self) -> tuple[Schema, dict[str, str]]:
        """
        The schema of the other model, and by property of this one the property of that.

        Raises:
            ModelError: The declaration does not fit it.
        """
        if self._source is None:
            self._source = self.resolve()
        return self._source

    def resolve(self) -> tuple[Schema, dict[str, str]]:
        """As `source`, found anew."""
        given: Any = self.declared.model
        model: Any = find_target(self.label, given) if inspect.isfunction(given) else given
        schema: Any = getattr(model, "__schema__", None)
        if not isinstance(schema, Schema):
            raise ModelError(f"{self.label}: {model!r} is no model; give one, as in Embedded(lambda: Employee, ...)")
        if not schema.tracked:
            raise ModelError(
                f"{self.label}: {schema.name} must know that others hold copies of it; declare class "
                f"{schema.name}(Entity, ..., tracked=True)"
            )
        self._reference.check(schema)
        schema.refuse_maintained(self.declared.fields.values(), self.label, "it would copy")
        properties: dict[str, str] = {}
        for mine, theirs in self.declared.fields.items():
            own, info = self.schema.fields[mine], schema.fields.get(theirs)
            if info is None or not info.stored or info.maintained or info.type.name != own.type.name:
                raise ModelError(
                    f"{self.label}: {mine!r} cannot be a copy of {theirs!r}: that is no field of "
                    f"{schema.name} that it stores itself, of the same type"
                )
            properties[own.property] = info.property
        return schema, properties

    def address(self, values: Mapping[str, Any], partition_key: str) -> str | None:
        """RowKey of the other entity; None if there is none. Raises NotSupported."""
        return self._reference.find(self.source[0], values, partition_key)

    def mark(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> SourceEntry | None:
        """What an entity with these fields notes of it. Raises NotSupported."""
        address = self.address(values, partition_key)
        return None if address is None else SourceEntry(address, self.note(row_key))

    @property
    def noted(self) -> str:
        """What names under which other entities note it begin with: by kind, which stays where a class is renamed."""
        return f"{self.schema.kind}.{self.name}"

    def note(self, row_key: str) -> str:
        """The name under which the other entity notes that the one with this RowKey holds copies of it."""
        return f"{self.noted}:{row_key}"

    def mark_there(self, row_key: str) -> HolderEntry:
        """What the other entity notes then."""
        return HolderEntry(row_key, {theirs: own for own, theirs in self.source[1].items()})
