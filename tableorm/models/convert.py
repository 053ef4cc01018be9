"""
Convert entities to plain dictionaries and back.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, TypeVar, cast

from ..errors import ModelError, NotLoaded, shown
from ..expressions import Field
from .entity import Entity, schema_of
from .json_values import make_entity, to_json
from .loaded import loaded_of
from .schema import Schema

E = TypeVar("E", bound=Entity)


def to_dict(
    entity: Entity,
    mode: Literal["python", "json"] = "python",
    *,
    include: Collection[Field[Any] | str] | None = None,
    exclude: Collection[Field[Any] | str] = (),
    etag: bool = False,
    relations: bool = False,
) -> dict[str, Any]:
    """
    Return the fields of an entity by name. Fields that weren't loaded, hidden fields, and unknown properties are left
    out.

        return to_dict(order, mode="json", exclude=["internal_note"])

    Args:
        entity: The entity to convert.
        mode: "python" keeps the values. "json" converts them to what JSON can represent: dates, UUIDs and decimals
            become strings, bytes become base64, enums become their values, and NaN and infinities become "NaN",
            "Infinity" and "-Infinity".
        include: The fields to return, such as `[Employee.age]`, or their names; None for all that aren't hidden.
        exclude: Fields to leave out.
        etag: Whether to add the entity's ETag, as "etag".
        relations: Whether to add loaded relations, with every related entity in full.

    Raises:
        ModelError: The model has no such field.
        NotLoaded: A field to include was not loaded.
    """
    if isinstance(cast("object", entity), type):
        raise ModelError(f"to_dict({shown(entity)}) is rejected: give an entity, and not its model")
    schema = schema_of(type(entity))
    own = entity.__dict__
    if mode not in ("python", "json"):
        raise ValueError(f"to_dict() has no mode {mode!r}; use 'python' or 'json'")
    names: Collection[str] = [name for name, info in schema.fields.items() if include is not None or not info.hidden]
    if include is not None:
        wanted = _names(schema, "include", include)
        names = [name for name in names if name in wanted]
        missing = next((name for name in names if name not in own), None)
        if missing is not None:
            raise NotLoaded(f"to_dict(include=...) of {schema.name}: {missing} was not loaded, so it has no value")
    if exclude:
        left_out = _names(schema, "exclude", exclude)
        names = [name for name in names if name not in left_out]
    data = {name: own[name] for name in names if name in own}
    if mode == "json":
        data = {name: to_json(value) for name, value in data.items()}
    if relations:
        for name in loaded_of(entity):
            with suppress(NotLoaded):  # it was loaded for other values of the entity's fields
                data[name] = _related(getattr(entity, name), mode, etag=etag)
    return {**data, "etag": entity.etag} if etag else data


def _related(value: Any, mode: Literal["python", "json"], *, etag: bool) -> Any:
    if isinstance(value, tuple):
        return [_related(each, mode, etag=etag) for each in cast("Any", value)]
    return None if value is None else to_dict(value, mode, etag=etag, relations=True)


def _names(schema: Schema, argument: str, fields: Collection[Field[Any] | str]) -> set[str]:
    several = isinstance(cast("object", fields), Iterable) and not isinstance(fields, str)
    given: Iterable[Any] = fields if several else [fields]
    names = {each.name if isinstance(each, Field) else each for each in given}
    wrong = sorted(names.difference(schema.fields), key=str)
    if wrong or isinstance(fields, str):
        problem = f"{wrong[0]!r} is not a field" if wrong else f"{fields!r} is a str; give a list of fields"
        some = ", ".join(f"{schema.name}.{name}" for name in schema.fields)
        raise ModelError(f"to_dict({argument}=...) of {schema.name}: {problem}; its fields are {some}")
    return names


def from_dict(model: type[E], data: Mapping[str, Any], *, trusted: bool = False) -> E:
    """
    Make an entity from what `to_dict` returned, in either mode.

        order = from_dict(Order, await request.json())

    Args:
        model: The class of the entity.
        data: Fields by name.
        trusted: Whether the data is the program's own, so that it may set fields that are read-only for clients.

    Raises:
        InvalidInput: A field is missing, does not exist or is read-only, or a value does not fit; the error lists all
            of these, with paths.
    """
    entity: E = make_entity(schema_of(model), data, trusted=trusted)
    return entity
