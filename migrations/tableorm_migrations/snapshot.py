"""
Snapshots of models: what the stored rows of some models look like, as JSON that is kept beside the program.

A snapshot is a pure description: it names classes, and imports none. `tableorm_migrations.evolution` compares two.
"""

import enum
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from tableorm import Entity, ModelError
from tableorm.audit.check import AuditedMaintainer
from tableorm.models.entity import concrete_schemas
from tableorm.models.json_types import is_pydantic_model, members_of_pydantic
from tableorm.models.property_types import FieldInfo, PropertyType, annotation_name
from tableorm.models.schema import Schema
from tableorm.models.upgrades import upgrade_step

Identity = tuple[str, str]
"""The table of a model, and what its rows say that they are; of a model without a kind, the name of the class."""

HAVE_STATES = ("Index", "IndexList")
"""The patterns of which the store says whether they are complete."""

_FORMAT = 1


class FieldLayout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    A field of a model.

    Args:
        type: The declared type, without None.
        edm: The EDM type of its property.
        property: Name of the property; None if keys hold the field.
        optional: Whether it is declared `| None`.
        default: Whether it has a default, or writes fill it.
        maintained: Whether other entities keep it.
        expiry: Whether it says when the entity expires.
        values: The stored values of an enum.
        classes: By name the members of the classes that its JSON text is made of, with their types.
        form: How a value is stored that begins in the property, and may go on in others; "" if it does not.
        encrypted: Whether it is encrypted; of a field of several properties only the first one says it.
        accept_plain: Whether it may also be stored as it is.
    """

    type: str
    edm: str
    property: str | None = None
    optional: bool = False
    default: bool = False
    maintained: bool = False
    expiry: bool = False
    values: tuple[str | int | float | bool, ...] = ()
    classes: dict[str, dict[str, str]] = {}
    form: str = ""
    encrypted: bool = False
    accept_plain: bool = False


class ModelLayout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    A model.

    Args:
        name: Name of the class.
        table: Name of the table.
        kind: What rows say that they are; None if they say nothing.
        version: The version.
        discriminator: How kinds are told apart.
        partition_key: Template of the PartitionKey.
        row_key: Template of the RowKey.
        verbatim: Whether keys hold texts as they are, without escapes.
        wide: Whether an entity is stored in several rows.
        fields: The fields by name.
        derived: What is derived from its entities, by name of the declaration.
        building: The names of indexes and lists that are declared with `building=True`.
        unasked: The names of indexes and lists that are declared with `building=False`.
        upgrades: The versions that functions upgrade from.
        removed_fields: By property the fields that it had once.
        removed_derived: By name the declarations that it had once.
    """

    name: str
    table: str
    kind: str | None
    version: int = 1
    discriminator: str = "property"
    partition_key: str
    row_key: str
    verbatim: bool = False
    wide: bool = False
    fields: dict[str, FieldLayout]
    derived: dict[str, dict[str, Any]] = {}
    building: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()
    upgrades: tuple[int, ...] = ()
    removed_fields: dict[str, FieldLayout] = {}
    removed_derived: dict[str, dict[str, Any]] = {}

    @property
    def identity(self) -> Identity:
        """What tells it from other models, whatever its class is called."""
        return self.table, self.kind if self.kind is not None else f" {self.name}"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    The layouts of models, and of removed models, whose kinds can't be used again with another meaning.

    Args:
        format: The version of the file format.
        models: The models.
        removed: The models that were removed.
        revision: The revision with which it was last written; None if there is none.
    """

    format: int = _FORMAT
    models: tuple[ModelLayout, ...]
    removed: tuple[ModelLayout, ...] = ()
    revision: str | None = None


def describe_models(models: Iterable[type[Entity]]) -> Snapshot:
    """
    Return the snapshot of models as they are declared.

        write_snapshot(path, describe_models([Employee, Department]))

    Args:
        models: The classes; an abstract base stands for all of its subclasses.

    Raises:
        ModelError: No model was passed, or one refers to a model that isn't declared.
    """
    layouts = describe_each(models).values()
    return Snapshot(models=tuple(sorted(layouts, key=lambda layout: layout.identity)))


def describe_each(models: Iterable[type[Entity]]) -> dict[type[Entity], ModelLayout]:
    """
    Return the layouts of the concrete classes of models.

    Raises:
        ModelError: There is none, or one refers to a model that is not declared.
    """
    schemas = concrete_schemas(models)
    if not schemas:
        raise ModelError("there is no model to describe: give at least one class with entities")
    return {cast("type[Entity]", schema.model): _describe(schema) for schema in schemas}


def read_snapshot(path: Path) -> Snapshot:
    """
    Read a snapshot from a file.

    Raises:
        ModelError: The file isn't a snapshot, or has an unknown format.
        OSError: The file can't be read.
    """
    try:
        snapshot = msgspec.json.decode(path.read_bytes(), type=Snapshot)
    except (ValueError, RecursionError) as error:  # msgspec raises UnicodeDecodeError and ValidationError alike
        raise ModelError(f"{path} is no snapshot of models: {error}; restore it from the repository") from None
    if snapshot.format != _FORMAT:
        raise ModelError(f"{path} has the format {snapshot.format}; this version of tableorm reads {_FORMAT}")
    return snapshot


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """
    Write a snapshot to a file, completely or not at all.

    Raises:
        OSError: The file can't be written.
    """
    data = msgspec.to_builtins(snapshot)
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(msgspec.json.format(msgspec.json.encode({"format": _FORMAT, **data}), indent=2) + b"\n")
    new.replace(path)


def _describe(schema: Schema) -> ModelLayout:
    partition, row = schema.templates()
    derived = {
        name: dict(each.describe())
        for name, each in schema.derived.items()
        if isinstance(each, AuditedMaintainer) and name not in schema.fields  # what a field brings along is the field
    }
    return ModelLayout(
        name=schema.name,
        table=schema.table_text(),
        kind=schema.kind,
        version=schema.version,
        discriminator=schema.discriminator if isinstance(schema.discriminator, str) else "function",
        partition_key=partition.text,
        row_key=row.text,
        verbatim=schema.verbatim,
        wide=schema.split is not None,
        fields={name: layout for info in schema.fields.values() for name, layout in _describe_field(info)},
        derived=derived,
        building=tuple(name for name, each in schema.derived.items() if each.building),
        unasked=tuple(name for name, each in schema.derived.items() if each.declaration and each.building is False),
        upgrades=tuple(number for number in range(1, schema.version) if upgrade_step(schema, number) is not None),
    )


def _describe_field(info: FieldInfo) -> Iterator[tuple[str, FieldLayout]]:
    """Yield the layouts of a field: one for each of its members, or one if its values go on from one to the next."""
    form = "" if info.shape is None else info.shape.form
    for member in info.members[:1] if form else info.members:
        kind, first = info.type if form else member.type, member is info.members[0]
        yield (
            info.name if form else member.path,
            FieldLayout(
                type=kind.name,
                edm=member.type.edm.value,
                property=member.property if info.stored else None,
                optional=info.optional,
                default=info.default is not None or info.is_filled(),
                maintained=info.maintained,
                expiry=info.expiry,
                values=_values(member.type),
                classes=_classes(kind.annotation) if kind.json_text else {},
                form=form,
                encrypted=info.encrypted and first,
                accept_plain=info.accept_plain and first,
            ),
        )


def _values(kind: PropertyType) -> tuple[Any, ...]:
    annotation = kind.annotation
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        values = ((member, cast("object", member.value)) for member in annotation)
        return tuple(value if isinstance(value, str | int | float) else kind.encode(member) for member, value in values)
    return ()


def _classes(annotation: object, found: dict[str, dict[str, str]] | None = None) -> dict[str, dict[str, str]]:
    """Return the members of the classes that a type is made of, by their names in JSON, with their types."""
    found = {} if found is None else found
    for each in typing.get_args(annotation):
        _classes(each, found)
    members, name = _members(annotation), annotation_name(annotation)
    if members and name not in found:
        found[name] = {member: annotation_name(kind) for member, kind in members.items()}
        for kind in members.values():
            _classes(kind, found)
    return found


def _members(annotation: object) -> Mapping[str, object]:
    """
    Return the members of a class, with their types; none for any other type.

    Raises:
        ModelError: A type cannot be resolved.
    """
    kind: Any = typing.get_origin(annotation) or annotation
    if not isinstance(kind, type):
        return {}
    if is_pydantic_model(kind):
        return members_of_pydantic(kind)
    try:
        fields: tuple[Any, ...] = getattr(msgspec.inspect.type_info(cast("Any", annotation)), "fields", ())
        hints = typing.get_type_hints(kind, include_extras=True) if fields else {}
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise ModelError(
            f"the types of the members of {kind.__name__} cannot be resolved: {error}; its module must define them or "
            "import them, at run time too"
        ) from None
    return {each.encode_name: hints[each.name] for each in fields}
