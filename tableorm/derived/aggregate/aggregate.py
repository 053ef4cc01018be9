"""
Counts and sums over entities, kept in a field of another entity of the same partition.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from ...errors import ModelError
from ...expressions import Field
from ...models.derivation import Derivation, DerivationOf
from ...models.manifest import AggregateEntry, ManifestEntry
from ...models.schema import FieldInfo, Schema, concrete
from ...protocol.edm import Edm
from ..reference import Reference, Relation, as_function, find_target

if TYPE_CHECKING:
    from ...models.entity import Entity

__all__ = ["Aggregate", "AggregateOf", "AggregateSchema", "Count", "Sum"]

E = TypeVar("E", bound="Entity")


class AggregateOf(DerivationOf[E]):
    """A count or sum of a model, as `Employee.employees` gives it: for `db.build_index`."""


class Aggregate(Derivation):
    """Common to `Count` and `Sum`."""

    on_class = AggregateOf
    instead = "; the entity in which it counts has the number"
    of: str | None = None

    def __init__(
        self,
        field: Callable[[], Field[int]] | Field[int],
        *,
        where: Callable[[Any], bool] | None,
        create: bool,
        key: Mapping[str, str],
    ) -> None:
        super().__init__(where)
        what = type(self).__name__
        if isinstance(field, type) or not (isinstance(field, Field) or callable(field)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f"{what}({field!r}) is refused: give a field, as in `lambda: Department.employee_count`")
        if not key or not all(isinstance(text, str) for text in key.values()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ModelError(f'{what}(...) needs the key of the entity that keeps it, as in name="{{department}}"')
        self.field: Callable[[], Field[Any]] = as_function(field)
        self.create, self.key = create, dict(key)

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[E]) -> AggregateOf[E]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> NoReturn: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Any: ...


class Count(Aggregate):
    """
    A count of the entities of a model, in a field of another entity of the same partition.

    `employees = Count(lambda: Department.employee_count, name="{department}")` in the body of `Employee`: each write of
    an employee that changes it writes the department too, in the same entity group transaction. The field is declared
    `field(default=0, maintained=True)`, and nothing else writes it.

    Args:
        field: The field of the other model that holds the count, or a function that returns it.
        where: Takes the entity; only those for which it is true are counted.
        create: Whether a missing entity that holds the count is inserted, with defaults; otherwise it must be there.
        key: The key fields of that entity: "{field}" of this model, or text.
    """

    def __init__(
        self,
        field: Callable[[], Field[int]] | Field[int],
        *,
        where: Callable[[Any], bool] | None = None,
        create: bool = False,
        **key: str,
    ) -> None:
        super().__init__(field, where=where, create=create, key=key)


class Sum(Aggregate):
    """
    A sum over a field of the entities of a model, in a field of another entity of the same partition; as `Count`.

    Args:
        of: Name of the field that is summed: whole numbers; None counts as 0.
        field: The field of the other model that holds the sum, or a function that returns it.
        where: Takes the entity; only those for which it is true are summed.
        create: Whether a missing entity that holds the sum is inserted, with defaults.
        key: The key fields of that entity: "{field}" of this model, or text.
    """

    def __init__(
        self,
        of: str,
        field: Callable[[], Field[int]] | Field[int],
        *,
        where: Callable[[Any], bool] | None = None,
        create: bool = False,
        **key: str,
    ) -> None:
        super().__init__(field, where=where, create=create, key=key)
        self.of = of


class AggregateSchema(Relation):
    """
    A `Count` or `Sum` of a model.

    Args:
        name: Of the declaration.
        declared: The declaration.
        schema: The schema of the model.
    """

    def __init__(self, name: str, declared: Aggregate, schema: Schema) -> None:
        self.name, self.label = name, f"{schema.name}.{name}"
        self.declared, self.schema = declared, schema
        self._reference = Reference(self.label, schema, declared.key)
        self._target: tuple[Schema, FieldInfo] | None = None
        if declared.of is not None:
            info = schema.fields.get(declared.of)
            if info is None or info.maintained or info.type.edm not in (Edm.INT32, Edm.INT64):
                raise ModelError(
                    f"{self.label}: {declared.of!r} is no field of whole numbers, which alone add up exactly"
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
        """As `target`, found anew."""
        field: Any = find_target(self.label, self.declared.field)
        if not isinstance(field, Field):
            raise ModelError(
                f"{self.label}: {field!r} is no field; give one, as in `lambda: Department.employee_count`"
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
        """What an entity with these fields adds."""
        where, of = self.declared.where, self.declared.of
        if not self.schema.satisfies(where, values, self.label):
            return 0
        return 1 if of is None else int(values[of] or 0)

    def address(self, values: Mapping[str, Any], partition_key: str) -> str | None:
        """RowKey of the entity that holds it; None if a field of its key is None. Raises NotSupported."""
        return self._reference.find(self.target[0], values, partition_key)

    def mark(self, values: Mapping[str, Any], partition_key: str) -> AggregateEntry | None:
        """What an entity with these fields notes of it. Raises NotSupported."""
        address = self.address(values, partition_key)
        amount = 0 if address is None else self.amount(values)
        return AggregateEntry(address, {self.target[1].property: amount}) if address is not None and amount else None

    def current(self, mark: ManifestEntry) -> ManifestEntry:
        """
        What an entity notes of it, by the name that the property has now: an upgrade of the entity that holds it may
        have renamed it since.
        """
        if not isinstance(mark, AggregateEntry) or len(mark.amounts) != 1:
            return mark
        schema, info = self.target
        noted, amount = next(iter(mark.amounts.items()))
        known = any(noted in each.by_property for each in concrete(schema))
        return mark if known else AggregateEntry(mark.row_key, {info.property: amount})

    def make(self, partition_key: str, row_key: str) -> "Entity":
        """The entity that holds it, with defaults, to be inserted."""
        target = self.target[0]
        entity: Entity = target.model(**target.parse_keys(partition_key, row_key))
        return entity
