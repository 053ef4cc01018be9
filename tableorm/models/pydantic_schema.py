"""
What pydantic asks of a type: how it is read and written, and the JSON schema of it. Pydantic is imported only by
functions that pydantic itself calls.
"""

import datetime as dt
import inspect
import re
import typing
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, cast

import attrs
import msgspec

from ..errors import InvalidInput, ModelError
from ..protocol.edm import Edm
from .json_types import is_pydantic_model
from .json_values import Form, fields_in, members_of, to_json
from .property_types import FieldInfo, PropertyType, split_optional
from .schema import Schema, concrete


def core_schema_of(
    schema: Schema, name: str, read: Callable[[Any], Any], fields_of: Callable[[Any], Mapping[str, Any]]
) -> Any:
    """
    Return the core schema of a type whose values have fields of a model.

    Args:
        schema: The model.
        name: The type's name, in messages and in JSON schemas.
        read: Makes a value from data, and hands on what is a value already; raises InvalidInput.
        fields_of: Returns the fields of a value, by name; raises TypeError if it is a value of another type.
    """
    from pydantic_core import (
        InitErrorDetails,
        PydanticCustomError,
        PydanticSerializationUnexpectedValue,
        ValidationError,
    )
    from pydantic_core import core_schema as core

    make_type: Any = PydanticCustomError  # it is typed as if messages were literals
    types = {"missing": "missing", "unknown": "extra_forbidden", "invalid": "invalid_value"}

    def validate(data: Any) -> Any:
        try:
            return read(data)
        except InvalidInput as error:
            details = [
                InitErrorDetails(
                    type=make_type(types[fault.kind], str(fault)),
                    loc=fault.path,
                    input=fault.value,
                )
                for fault in error.faults
            ]
            raise ValidationError.from_exception_data(name, details) from None

    def serialize(value: Any, info: core.SerializationInfo[Any]) -> Any:
        try:
            fields = fields_of(value)
        except TypeError as error:
            raise PydanticSerializationUnexpectedValue(str(error)) from None
        include, exclude = _whole_fields(name, info.include), _whole_fields(name, info.exclude)
        return {
            field: to_json(each) if info.mode == "json" else each
            for field, each in fields.items()
            if (not schema.fields[field].hidden if include is None else field in include)
            and (exclude is None or field not in exclude)
            and not (info.exclude_none and each is None)
            and not (info.exclude_defaults and _is_default(schema.fields[field], each))
        }

    validate.__name__ = validate.__qualname__ = name  # errors in a union name it
    return core.no_info_plain_validator_function(
        validate,
        ref=f"{schema.model.__module__}.{name}:{id(schema.model)}",
        metadata={"tableorm": schema, "title": name},
        serialization=core.plain_serializer_function_ser_schema(serialize, info_arg=True),
    )


def schema_of_instances(kind: type[Any], fields_of: Callable[[Any], Mapping[str, Any]]) -> Any:
    """
    Return the core schema of a type that does not say which model its values are of: it takes values that are ready.

    Args:
        kind: The type.
        fields_of: Returns the fields of a value, by name.
    """
    from pydantic_core import core_schema as core

    def serialize(value: Any, info: core.SerializationInfo[Any]) -> Any:
        return {name: to_json(each) if info.mode == "json" else each for name, each in fields_of(value).items()}

    return core.is_instance_schema(
        kind, serialization=core.plain_serializer_function_ser_schema(serialize, info_arg=True)
    )


def describe_anything(kind: type[Any]) -> dict[str, Any]:
    """Return the JSON schema of a type that does not say which model its values are of: any object."""
    return {"type": "object", "title": kind.__name__}


def page_schema(page: type[Any], item: Any, handler: Any) -> Any:
    """
    Return the core schema of a page of results.

    Args:
        page: The class of pages.
        item: The type of an item.
        handler: Pydantic's handler of core schemas.
    """
    from pydantic_core import core_schema as core

    items = core.list_schema(handler.generate_schema(item))
    members = {"items": items, "cursor": core.nullable_schema(core.str_schema())}
    # What clients are shown has no words for programmers.
    shown_as = type(page.__name__, (), {"__doc__": "One page of results.", "__module__": page.__module__})
    fields = core.typed_dict_schema({name: core.typed_dict_field(each) for name, each in members.items()}, cls=shown_as)

    def read(data: Any, read_fields: Callable[[Any], dict[str, Any]]) -> Any:
        return data if isinstance(data, page) else page(**read_fields(data))

    def write(value: Any, write_fields: Callable[[Any], Any]) -> Any:
        return write_fields({name: getattr(value, name) for name in members})

    return core.no_info_wrap_validator_function(
        read,
        fields,
        ref=f"{page.__module__}.Page[{item.__name__}]:{id(item)}" if isinstance(item, type) else None,
        serialization=core.wrap_serializer_function_ser_schema(write, schema=fields),
    )


def _whole_fields(name: str, given: Any) -> Container[object] | None:
    """Return the fields to include or exclude. Raises ValueError for a part of a field, which cannot be chosen."""
    parts: Mapping[Any, Any] = given if hasattr(given, "values") else {}
    if any(part is not True for part in parts.values()):
        raise ValueError(f"{name}: {given!r} is rejected: a field is included or excluded as a whole")
    fields: Container[object] | None = given
    return fields


def _is_default(info: FieldInfo, value: object) -> bool:
    return info.default is not None and bool(info.default() == value)


def union_of(schema: Schema, handler: Any) -> Any:
    """
    Return the core schema of an abstract model: that of any of its concrete classes, the derived ones first.

    Raises:
        ModelError: It has none yet.
    """
    from pydantic_core import core_schema as core

    models = sorted((each.model for each in concrete(schema)), key=lambda model: -len(model.__mro__))
    if not models:
        raise ModelError(f"{schema.name} is abstract and has no concrete classes yet; import or declare them first")
    return core.union_schema([(handler.generate_schema(model), model.__name__) for model in models])


def describe_model(core: Any, handler: Any, form: Form = Form.WHOLE) -> dict[str, Any]:
    """
    Return the JSON schema of a core schema that `core_schema_of` has made.

    Args:
        core: The core schema.
        handler: Pydantic's handler of JSON schemas.
        form: Which fields it has.
    """
    schema: Schema = core["metadata"]["tableorm"]
    # Nobody sends or gets what is hidden and not the clients' to set.
    infos = {name: info for name, info in fields_in(schema, form).items() if not (info.hidden and _is_set_here(info))}
    changes = form is Form.PARTIAL
    shapes = _describe_types(schema, [info.type.annotation for info in infos.values()], handler)
    required = [] if changes else [name for name, info in infos.items() if info.default is None]
    return {
        "type": "object",
        "title": core["metadata"]["title"],
        **_describe_class(schema.model),
        "properties": {
            name: _describe_field(schema, info, shape, changes=changes)
            for (name, info), shape in zip(infos.items(), shapes, strict=True)
        },
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _describe_types(schema: Schema, annotations: Sequence[Any], handler: Any) -> list[dict[str, Any]]:
    """Return the JSON schemas of the types of fields, and define the classes and enums that they have links to."""
    enums = [each for each in annotations if isinstance(each, type) and issubclass(each, Enum)]
    types = [each for each in annotations if each not in enums]
    found, components = msgspec.json.schema_components(
        types, schema_hook=lambda kind: _define_pydantic(handler, kind), ref_template="{name}"
    )
    classes = _classes_of(components, types)
    links: dict[Any, dict[str, Any]] = {
        name: _define(handler, classes[name]) if name in classes else _define(handler, schema.model, name)
        for name in components
    }
    for name, component in components.items():
        described = _link(component, links)
        if members := members_of(classes.get(name, object)):
            described["additionalProperties"] = False
            for member, (hint, _) in members.items():
                _add_format(described["properties"][member], hint)
        handler.resolve_ref_schema(links[name]).update(described)
    for kind in enums:  # msgspec describes those of texts and ints alone
        links[kind] = _define(handler, kind)
        values = [to_json(member) for member in kind]
        described = {"title": kind.__name__, "type": _JSON_TYPES[type(values[0])], "enum": values}
        handler.resolve_ref_schema(links[kind]).update(described, **_describe_class(kind))
    shapes = (_link(shape, links) for shape in found)
    return [{**links[each]} if each in enums else next(shapes) for each in annotations]


_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}

_FORMATS = {Edm.INT32: "int32", Edm.INT64: "int64", Edm.DOUBLE: "double", Edm.BINARY: "byte"}


def _describe_field(schema: Schema, info: FieldInfo, shape: dict[str, Any], *, changes: bool) -> dict[str, Any]:
    _add_format(shape, info.type.annotation)
    kind = info.type
    if isinstance(kind, PropertyType) and kind.inline and kind.edm in _FORMATS:
        shape["format"] = _FORMATS[kind.edm]
    if info.optional:
        shape = {"anyOf": [shape, {"type": "null"}]}
    if info.doc:
        shape["description"] = info.doc
    if _is_set_here(info):
        shape["readOnly"] = True
    elif info.hidden:
        shape["writeOnly"] = True
    declared = getattr(attrs.fields(cast("Any", schema.model)), info.name).default
    if info.default is not None and not changes and not isinstance(declared, attrs.Factory):  # type: ignore[arg-type]
        shape["default"] = to_json(info.default())
    return shape


def _is_set_here(info: FieldInfo) -> bool:
    """Return whether a field gets its value from the program or from tableorm, and not from clients."""
    return info.readonly or info.maintained or info.is_filled()


def _add_format(shape: dict[str, Any], annotation: Any) -> None:
    """Add the format of moments, which msgspec leaves out because it also reads those without a time zone."""
    if split_optional(annotation)[0] is dt.datetime:
        for each in shape.get("anyOf", (shape,)):
            if each["type"] == "string":
                each["format"] = "date-time"


def _describe_class(kind: type[Any]) -> dict[str, str]:
    return {"description": inspect.cleandoc(kind.__doc__)} if kind.__doc__ else {}


class _OneMode:
    """Pydantic has one definition for what is read and written of this: it would find two where a class has itself."""

    __pydantic_config__: ClassVar = {"json_schema_mode_override": "validation"}


def _define(handler: Any, kind: type[Any], name: str = "") -> dict[str, Any]:
    """Return a link to a definition of its own, which is empty as yet: that of a class, or of a name beside it."""
    from pydantic_core import core_schema as core

    ref = f"{kind.__module__}.{name or kind.__qualname__}:{id(kind)}"
    return _describe_inside(handler, core.any_schema(ref=ref), cls=_OneMode)


def _define_pydantic(handler: Any, kind: Any) -> dict[str, Any]:
    """Return a link to the definition of a Pydantic model, which it makes itself."""
    # Other kinds are such as `object`: anything.
    return _describe_inside(handler, kind.__pydantic_core_schema__) if is_pydantic_model(kind) else {}


def _describe_inside(handler: Any, part: Any, **options: Any) -> dict[str, Any]:
    """Return the description of a part: the generator makes definitions only of what stands in something else."""
    from pydantic_core import core_schema as core

    holder = core.typed_dict_schema({"it": core.typed_dict_field(part)}, **options)
    described: dict[str, Any] = handler(holder)["properties"]["it"]
    return described


def _link(part: Any, links: Mapping[Any, dict[str, Any]]) -> Any:
    """Return a part of a JSON schema in which each name of a component has become a link to its definition."""
    if isinstance(cast("object", part), list):
        parts: list[Any] = part
        return [_link(each, links) for each in parts]
    if not isinstance(cast("object", part), dict):
        return part
    schema: dict[str, Any] = part
    linked = {key: _link(value, links) for key, value in schema.items()}
    name = schema.get("$ref")
    return {**linked, **links[name]} if isinstance(name, str) and name in links else linked


def _classes_of(components: Mapping[str, Any], annotations: Iterable[Any]) -> dict[str, Any]:
    """Return the classes that components describe, by the names of these: in full where a short name is not enough."""
    classes: dict[str, Any] = {}
    seen: set[object] = set()
    left = list(annotations)
    while left:
        annotation = left.pop()
        left += typing.get_args(annotation)
        if isinstance(annotation, type) and annotation not in seen and not is_pydantic_model(annotation):
            seen.add(annotation)
            left += typing.get_type_hints(annotation, include_extras=True).values()
            for name in (f"{annotation.__module__}.{annotation.__qualname__}", annotation.__name__):
                classes.setdefault(re.sub(r"[^a-zA-Z0-9.\-_]", "_", name), annotation)
    return {name: classes[name] for name in components if name in classes}
