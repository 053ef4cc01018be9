"""
What a write keeps right in other entities of its partition: counts, sums, and copies of some fields.

    employees = Count(lambda: Department.employee_count, name="{department}")         on Employee
    manager = Embedded(lambda: Employee, {"manager_name": "first_name"}, ...)         on Department
"""

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload
from weakref import WeakSet

from .derivations import Derivation, DerivationOf
from .errors import ModelError, NotSupported
from .expressions import Field
from .protocol.edm import Edm
from .schema import FieldInfo, Schema, concrete

if TYPE_CHECKING:
    from .entity import Entity

__all__ = ["Count", "EmbedSchema", "Embedded", "Sum", "TallyOf", "TallySchema", "embed_of"]

E = TypeVar("E", bound="Entity")

_REFERENCE = re.compile(r"\{(\w+)\}")


class TallyOf(DerivationOf[E]):
    """A count or sum of a model, as `Employee.employees` gives it: for `db.build_index`."""


_EMBEDS: "WeakSet[EmbedSchema]" = WeakSet()
"""All that are declared: an entity must find the models of those that hold copies of it."""


def embed_of(source: Schema, note: str) -> "EmbedSchema | None":
    """What an entity of this model notes under this name; None if this program does not declare it."""
    noted = note.partition(":")[0]
    alike = [each for each in _EMBEDS if each.noted == noted and each.schema.table == source.table]
    return next((each for each in alike if source in concrete(each.source[0])), None)


class _Tally(Derivation):
    """Common to `Count` and `Sum`."""

    on_class = TallyOf
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
        self.field: Callable[[], Field[Any]] = _function(field)
        self.create, self.key = create, dict(key)

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[E]) -> TallyOf[E]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> NoReturn: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Any: ...


def _function(field: Any) -> Callable[[], Field[Any]]:
    found: Callable[[], Field[Any]] = partial(_itself, field) if isinstance(field, Field) else field
    return found


def _itself(field: Any) -> Any:
    return field


class Count(_Tally):
    """
    A count of the entities of a model, in a field of another entity of the same partition.

    `employees = Count(lambda: Department.employee_count, name="{department}")` in the body of `Employee`: each write of
    an employee that changes it writes the department too, in the same entity group transaction. The field is declared
    `field(default=0, kept=True)`, and nothing else writes it.

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


class Sum(_Tally):
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


class Embedded(Derivation):
    """
    Copies of some fields of another entity of the same partition: the department holds its manager's name and address.

    `manager = Embedded(lambda: Employee, {"manager_name": "name"}, department="{name}", id="{manager_id}")` in the body
    of `Department`. When `manager_id` is set the fields are read from that employee; when the employee changes, so do
    they, each in one entity group transaction. An employee that is somewhere embedded cannot be deleted.

    Args:
        model: The other model, or a function that returns it. Its class says `guarded=True`, unless it has indexes.
        fields: For each field of this model that holds a copy, declared `| None` and `field(kept=True)`, the field of
            the other model that it is a copy of.
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


class _Undeclared(ModelError):
    """A name that there is not yet: perhaps of a class that is declared later."""


def _found(label: str, function: Callable[[], Any]) -> Any:
    """What a declaration refers to."""
    try:
        return function()
    except NameError as error:
        raise _Undeclared(f"{label}: {error}; declare or import it before entities are written") from error
    except AttributeError as error:
        if isinstance(error.obj, ModuleType):  # which may be on the way of being imported
            raise _Undeclared(f"{label}: {error}; declare or import it before entities are written") from error
        raise ModelError(f"{label}: {error}; give a field of the model, or the model, that is meant") from error


class _Relation:
    """Common to what refers to other models."""

    def resolve(self) -> Any:
        """The other model, checked. Raises ModelError."""
        raise NotImplementedError

    def check(self) -> None:
        """
        Refuse what does not fit the other model, if that is declared by now.

        Raises:
            ModelError: The declaration does not fit.
        """
        with suppress(_Undeclared):
            self.resolve()


class _Reference:
    """Finds the other entity by fields of this one."""

    def __init__(self, label: str, schema: Schema, key: Mapping[str, str]) -> None:
        self.label, self.schema = label, schema
        self._sources: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        for name, text in key.items():
            found = _REFERENCE.fullmatch(text)
            if found is None and ("{" in text or "}" in text):
                raise ModelError(f"{label}: {name}={text!r} is refused: give one field, as '{{name}}', or plain text")
            if found is None:
                self._texts[name] = text
                continue
            if found[1] not in schema.fields:
                raise ModelError(f"{label}: {name}={text!r} is refused: {schema.name} has no field {found[1]!r}")
            schema.refuse_kept([found[1]], label, f"{name}={text!r} has")
            self._sources[name] = found[1]
        self.fields = frozenset(self._sources.values())

    def find(self, target: Schema, values: Mapping[str, Any], partition_key: str) -> str | None:
        """
        The RowKey of the other entity; None if a field is None.

        Raises:
            TemplateError: A value does not fit the other model's key.
            NotSupported: It is in another partition.
        """
        given = {name: values[source] for name, source in self._sources.items()} | self._texts
        if any(value is None for value in given.values()):
            return None
        key = target.key(given)
        if key.partition_key != partition_key:
            raise NotSupported(
                f"{self.label}: {key} is in another partition than {partition_key!r}, and one transaction cannot write "
                "both; only entities of one partition are kept equal"
            )
        return key.row_key

    def check(self, target: Schema) -> None:
        """
        Refuse what can never be in one partition.

        Raises:
            ModelError: The other model is in another table, or the key is not its key.
        """
        if target.table != self.schema.table:
            raise ModelError(
                f"{self.label}: {target.name} is in table {target.table}, {self.schema.name} in {self.schema.table}; "
                "only entities of one partition are kept equal"
            )
        given = frozenset({*self._sources, *self._texts})
        if given != target.key_names:
            raise ModelError(
                f"{self.label}: the key of {target.name} is made of {', '.join(target.key_fields)}, given are "
                f"{', '.join(sorted(given))}"
            )
        for name, source in self._sources.items():
            mine, theirs = self.schema.fields[source].type, target.fields[name].type
            if mine.name != theirs.name and not {mine.edm, theirs.edm} <= {Edm.INT32, Edm.INT64}:
                raise ModelError(
                    f"{self.label}: {name}='{{{source}}}' is refused: {source} is {mine.name}, and {name} of "
                    f"{target.name} is {theirs.name}"
                )
        for name, text in self._texts.items():
            try:
                target.fields[name].type.encode(text)
            except ValueError as error:
                raise ModelError(f"{self.label}: {name}={text!r} is refused: it {error}") from None


class TallySchema(_Relation):
    """
    A `Count` or `Sum` of a model.

    Args:
        name: Of the declaration.
        declared: The declaration.
        schema: The schema of the model.
    """

    def __init__(self, name: str, declared: _Tally, schema: Schema) -> None:
        self.name, self.label = name, f"{schema.name}.{name}"
        self.declared, self.schema = declared, schema
        self._reference = _Reference(self.label, schema, declared.key)
        self._target: tuple[Schema, FieldInfo] | None = None
        if declared.of is not None:
            info = schema.fields.get(declared.of)
            if info is None or info.kept or info.type.edm not in (Edm.INT32, Edm.INT64):
                raise ModelError(
                    f"{self.label}: {declared.of!r} is no field of whole numbers, which alone add up exactly"
                )
            schema.refuse_kept([declared.of], self.label, "it sums")

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
        field: Any = _found(self.label, self.declared.field)
        if not isinstance(field, Field):
            raise ModelError(
                f"{self.label}: {field!r} is no field; give one, as in `lambda: Department.employee_count`"
            )
        schema: Schema = field.model.__schema__
        info = schema.fields[field.name]
        if info.type.edm not in (Edm.INT32, Edm.INT64) or not info.kept or info.default is None:
            raise ModelError(
                f"{self.label}: {schema.name}.{field.name} cannot keep it; declare {field.name}: Mapped[int] = "
                "field(default=0, kept=True)"
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

    def mark(self, values: Mapping[str, Any], partition_key: str) -> dict[str, Any] | None:
        """What an entity with these fields notes of it. Raises NotSupported."""
        address = self.address(values, partition_key)
        amount = 0 if address is None else self.amount(values)
        return {"add": [address, {self.target[1].property: amount}]} if amount else None

    def current(self, mark: Any) -> Any:
        """
        What an entity notes of it, by the name that the property has now: an upgrade of the entity that holds it may
        have renamed it since.
        """
        match mark:
            case {"add": [str(address), {**amounts}]} if len(amounts) == 1:
                schema, info = self.target
                noted, amount = next(iter(amounts.items()))
                known = any(noted in each.by_property for each in concrete(schema))
                return mark if known else {"add": [address, {info.property: amount}]}
            case _:
                return mark

    def make(self, partition_key: str, row_key: str) -> "Entity":
        """The entity that holds it, with defaults, to be inserted."""
        target = self.target[0]
        entity: Entity = target.model(**target.parse_keys(partition_key, row_key))
        return entity


class EmbedSchema(_Relation):
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
        self._reference = _Reference(self.label, schema, declared.key)
        self._source: tuple[Schema, dict[str, str]] | None = None
        _EMBEDS.add(self)
        for field in declared.fields:
            info = schema.fields.get(field)
            if info is None or not info.kept or not info.optional:
                raise ModelError(
                    f"{self.label}: {field!r} cannot hold a copy; declare {field}: Mapped[... | None] = "
                    "field(default=None, kept=True)"
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
        model: Any = _found(self.label, given) if inspect.isfunction(given) else given
        schema: Any = getattr(model, "__schema__", None)
        if not isinstance(schema, Schema):
            raise ModelError(f"{self.label}: {model!r} is no model; give one, as in Embedded(lambda: Employee, ...)")
        if not schema.guarded:
            raise ModelError(
                f"{self.label}: {schema.name} must know that others hold copies of it; declare class "
                f"{schema.name}(Entity, ..., guarded=True)"
            )
        self._reference.check(schema)
        schema.refuse_kept(self.declared.fields.values(), self.label, "it would copy")
        properties: dict[str, str] = {}
        for mine, theirs in self.declared.fields.items():
            own, info = self.schema.fields[mine], schema.fields.get(theirs)
            if info is None or not info.stored or info.kept or info.type.name != own.type.name:
                raise ModelError(
                    f"{self.label}: {mine!r} cannot be a copy of {theirs!r}: that is no field of "
                    f"{schema.name} that it stores itself, of the same type"
                )
            properties[own.property] = info.property
        return schema, properties

    def address(self, values: Mapping[str, Any], partition_key: str) -> str | None:
        """RowKey of the other entity; None if there is none. Raises NotSupported."""
        return self._reference.find(self.source[0], values, partition_key)

    def mark(self, values: Mapping[str, Any], partition_key: str, row_key: str) -> dict[str, Any] | None:
        """What an entity with these fields notes of it. Raises NotSupported."""
        address = self.address(values, partition_key)
        return None if address is None else {"from": [address, self.note(row_key)]}

    @property
    def noted(self) -> str:
        """What names under which other entities note it begin with: by kind, which stays where a class is renamed."""
        return f"{self.schema.kind}.{self.name}"

    def note(self, row_key: str) -> str:
        """The name under which the other entity notes that the one with this RowKey holds copies of it."""
        return f"{self.noted}:{row_key}"

    def mark_there(self, row_key: str) -> dict[str, Any]:
        """What the other entity notes then."""
        return {"to": [row_key, {theirs: own for own, theirs in self.source[1].items()}]}
