"""
The schema of a count or sum: which field of which other entity holds it, and what an entity adds to it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from ...errors import ModelError
from ...expressions import Field
from ...models.key import Storable
from ...models.manifest import AggregateEntry, ManifestEntry
from ...models.schema import DerivedSchema, FieldInfo, Schema, concrete
from ...protocol.edm import Edm
from ..reference import Reference, Relation, find_target

__all__ = ["AggregateOptions", "AggregateSchema"]


@attrs.frozen(kw_only=True)
class AggregateOptions:
    """
    What a count or sum is declared with.

    Args:
        name: Name of the declaration.
        field: Returns the field of the other model that holds it.
        of: Name of the field that is summed; None for a count.
        where: Takes the entity; only entities for which it is true count. None for all.
        create: Whether a missing entity that holds it is inserted.
        key: The key fields of that entity: "{field}" of this model, or text.
    """

    name: str
    field: Callable[[], Field[Any]]
    of: str | None
    where: Callable[[Any], bool] | None
    create: bool
    key: Mapping[str, str]


class AggregateSchema(Relation, DerivedSchema):
    """
    A `Count` or `Sum` of a model.

    Args:
        declared: What it is declared with.
        schema: The schema of the model.
    """

    def __init__(self, declared: AggregateOptions, schema: Schema) -> None:
        super().__init__(declared.name, schema)
        self.declared = declared
        self._reference = Reference(self.label, schema, declared.key)
        self._target: tuple[Schema, FieldInfo] | None = None
        if declared.of is not None:
            info = schema.fields.get(declared.of)
            if info is None or info.maintained or info.type.edm not in (Edm.INT32, Edm.INT64):
                raise ModelError(
                    f"{self.label}: {declared.of!r} is not a field of whole numbers, which alone add up exactly"
                )
            schema.refuse_maintained([declared.of], self.label, "it sums")

    @property
    def target(self) -> tuple[Schema, FieldInfo]:
        """
        The schema and the field that hold it.

        Raises:
            ModelError: The field cannot hold it.
        """
        if self._target is None:
            self._target = self.resolve()
        return self._target

    def resolve(self) -> tuple[Schema, FieldInfo]:
        """Return the schema and the field that hold it, found anew. Raises ModelError."""
        field: Any = find_target(self.label, self.declared.field)
        if not isinstance(field, Field):
            raise ModelError(
                f"{self.label}: {field!r} is not a field; give one, as in `lambda: Department.employee_count`"
            )
        schema: Schema = field.model.__schema__
        info = schema.fields[field.name]
        if info.type.edm not in (Edm.INT32, Edm.INT64) or not info.maintained or info.default is None:
            raise ModelError(
                f"{self.label}: {schema.name}.{field.name} cannot keep it; declare {field.name}: Mapped[int] = "
                "field(default=0, maintained=True)"
            )
        self._reference.check(schema)
        missing = [
            name
            for name, each in schema.fields.items()
            if each.default is None and not each.optional and name not in schema.key_holders
        ]
        if self.declared.create and (schema.abstract or missing):
            why = "is abstract" if schema.abstract else f"has no default for {missing[0]}"
            raise ModelError(
                f"{self.label}: create=True is refused: {schema.name} {why}, so none can be made by its key"
            )
        return schema, info

    def amount(self, values: Mapping[str, Any]) -> int:
        """Return what an entity with these fields adds."""
        where, of = self.declared.where, self.declared.of
        if where is not None and not self.schema.satisfies(where, values, self.label):
            return 0
        return 1 if of is None else int(values[of] or 0)

    def address(self, values: Mapping[str, Any], partition_key: str) -> str | None:
        """Return the RowKey of the entity that holds it; None if a field of its key is None. Raises NotSupported."""
        return self._reference.find(self.target[0], values, partition_key)

    def related(self) -> Sequence[Schema]:
        """Return the model that holds it."""
        return (self.target[0],)

    def entry(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> AggregateEntry | None:
        """Return what an entity with these fields adds, and where. Raises NotSupported."""
        del row_key
        address = self.address(values, partition_key)
        amount = 0 if address is None else self.amount(values)
        return AggregateEntry(address, {self.target[1].property: amount}) if address is not None and amount else None

    def current_entry(self, entry: ManifestEntry) -> ManifestEntry:
        """
        Return an entry with the name that the property has now: an upgrade of the entity that holds it may have renamed
        it since.
        """
        if not isinstance(entry, AggregateEntry) or len(entry.amounts) != 1:
            return entry
        schema, info = self.target
        stored, amount = next(iter(entry.amounts.items()))
        known = any(stored in each.by_property for each in concrete(schema))
        return entry if known else AggregateEntry(entry.row_key, {info.property: amount})

    def make_holder(self, partition_key: str, row_key: str) -> Storable:
        """Return the entity that holds it, with defaults, to be inserted."""
        target = self.target[0]
        model: Any = target.model
        entity: Storable = model(**target.parse_keys(partition_key, row_key))
        return entity
