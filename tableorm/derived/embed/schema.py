"""
The schema of an `Embedded`: which fields of which other entity an entity holds copies of.
"""

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

from ...errors import ModelError
from ...models.key import Storable
from ...models.manifest import HolderEntry, SourceEntry
from ...models.schema import Schema, concrete
from ..reference import Relation, find_target

__all__ = ["EmbedSchema", "find_embed"]


_EMBEDS: "WeakSet[EmbedSchema]" = WeakSet()
"""All that are declared: an entity must find the models of those that hold copies of it."""


def find_embed(source: Schema, entry_name: str) -> "EmbedSchema | None":
    """
    Return the declaration that a `HolderEntry` belongs to; None if this program does not declare it.

    Args:
        source: The model of the entity that has the entry.
        entry_name: The name of the entry.
    """
    stem = entry_name.partition(":")[0]
    alike = [each for each in _EMBEDS if each.stem == stem and each.schema.table == source.table]
    return next((each for each in alike if source in concrete(each.target[0])), None)


class EmbedSchema(Relation[dict[str, str]]):
    """
    An `Embedded` of a model. Its target is the other model, with the properties there by property of this model.

    Args:
        name: Name of the declaration.
        schema: The schema of the model that holds the copies.
        key: The key fields of the other entity: "{field}" of this model, or text.
        model: The other model, or a function that returns it.
        fields: By field of this model the field of the other one that it is a copy of.
    """

    entry_type = SourceEntry

    def __init__(
        self,
        name: str,
        schema: Schema,
        key: Mapping[str, str],
        *,
        model: Callable[[], type[Storable]] | type[Storable],
        fields: Mapping[str, str],
    ) -> None:
        super().__init__(name, schema, key)
        self._model, self.fields = model, fields
        _EMBEDS.add(self)
        for field in fields:
            info = schema.fields.get(field)
            if info is None or not info.maintained or not info.optional:
                raise ModelError(
                    f"{self.label}: {field!r} cannot hold a copy; declare {field}: Mapped[... | None] = "
                    "field(default=None, maintained=True)"
                )

    def resolve(self) -> tuple[Schema, dict[str, str]]:
        """Return the schema of the other model, and the properties, found anew. Raises ModelError."""
        model: Any = find_target(self.label, self._model)
        schema: Any = getattr(model, "__schema__", None)
        if not isinstance(schema, Schema):
            raise ModelError(f"{self.label}: {model!r} is not a model; give one, as in Embedded(lambda: Employee, ...)")
        if not schema.tracked:
            raise ModelError(
                f"{self.label}: {schema.name} must know that others hold copies of it; declare class "
                f"{schema.name}(Entity, ..., tracked=True)"
            )
        self.check_key(schema)
        schema.refuse_maintained(self.fields.values(), self.label, "it would copy")
        properties: dict[str, str] = {}
        for mine, theirs in self.fields.items():
            own, info = self.schema.fields[mine], schema.fields.get(theirs)
            if info is None or not info.stored or info.maintained or info.type.name != own.type.name:
                raise ModelError(
                    f"{self.label}: {mine!r} cannot be a copy of {theirs!r}: that is not a field of "
                    f"{schema.name} that it stores itself, of the same type"
                )
            properties[own.property] = info.property
        return schema, properties

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> SourceEntry | None:
        """Return what the manifest of an entity with these fields says of it. Raises NotSupported."""
        address = self.address(values, partition_key)
        return None if address is None else SourceEntry(address, self.holder_name(row_key))

    @property
    def stem(self) -> str:
        """How names of entries begin in manifests of other entities: by the kind, which stays if a class is renamed."""
        return f"{self.schema.kind}.{self.name}"

    def holder_name(self, row_key: str) -> str:
        """Return the name under which the other entity's manifest says that the one with this RowKey holds copies."""
        return f"{self.stem}:{row_key}"

    def holder_entry(self, row_key: str) -> HolderEntry:
        """Return what the other entity's manifest says then."""
        return HolderEntry(row_key, {theirs: own for own, theirs in self.target[1].items()})
