"""
The types that JSON text can hold, judged when a model is made, and the values of Pydantic models in it.

msgspec reads and writes all of these types but Pydantic models, which read and write themselves. Pydantic is never
imported here: a program that has a class of it has imported it.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from ..errors import InputFault


def find_unstorable(annotation: Any) -> str | None:
    """
    Return what in a type keeps its values from being JSON text, and the remedy; None if they can be.

    Raises:
        NameError, AttributeError, TypeError, SyntaxError: The type names types that are not there, or msgspec takes it
            for none of JSON.
    """
    return next(_find_unstorable(msgspec.inspect.type_info(annotation), "a value in it", set()), None)


def _find_unstorable(node: Any, place: str, seen: set[int]) -> Iterator[str]:
    if id(node) in seen:  # a class may have members of its own type
        return
    seen.add(id(node))
    kind: Any = getattr(node, "cls", None)
    name = getattr(kind, "__name__", str(kind))
    if isinstance(node, msgspec.inspect.CustomType):
        if not (is_pydantic_model(kind) or _may_hold_json(kind)):
            yield f"{place} is of type {name}; declare a type that JSON has, such as str, and convert the values"
    elif hasattr(kind, "__schema__"):
        yield f"{place} is of type {name}, which is a model; declare fields for its key instead"
    else:
        key: Any = getattr(getattr(node, "key_type", None), "cls", None)
        if is_pydantic_model(key):
            yield f"a key in it is of type {key.__name__}; keys in JSON are strings"
        for member in getattr(node, "fields", ()):
            yield from _find_unstorable(member.type, f"{name}.{member.name}", seen)
        for each in types_in(node):
            yield from _find_unstorable(each, place, seen)


def types_in(node: Any) -> list[Any]:
    """Return what msgspec says of the types in a type, without those of the members of a class."""
    names = ("type", "item_type", "key_type", "value_type")
    found = [getattr(node, name) for name in names if hasattr(node, name)]
    return [*getattr(node, "types", ()), *getattr(node, "item_types", ()), *found]


_JSON_VALUES: tuple[Any, ...] = (None, True, 1, 1.5, "", [], {})


def _may_hold_json(kind: Any) -> bool:
    """Return whether a class that is none of JSON's own has values of JSON among its instances, as `object` has."""
    try:
        return any(isinstance(value, kind) for value in _JSON_VALUES)
    except TypeError:
        return False  # a protocol, for example


# Pydantic models


def is_pydantic_model(kind: object) -> bool:
    """Return whether a type is a class of Pydantic's BaseModel."""
    pydantic: Any = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def members_of_pydantic(kind: Any) -> dict[str, Any]:
    """Return the types of the members of a Pydantic model, by their names in JSON."""
    return {each.serialization_alias or name: each.annotation for name, each in kind.model_fields.items()}


def write_pydantic(value: Any) -> Any:
    """
    Return a Pydantic model as JSON has it, under the names that the model is read by, and of a value that JSON cannot
    have what stands for it. Other values are rejected.

    Raises:
        ValueError: A member has a value that is not of its type.
        TypeError: The value is no Pydantic model.
    """
    kind = type(cast("object", value))
    if not is_pydantic_model(kind):
        if hasattr(value, "_json_summary"):
            return getattr(value, "_json_summary")  # noqa: B009 - it is not for programs
        raise TypeError(f"JSON has no values of type {kind.__name__}")
    return value.model_dump(mode="json", by_alias=True, round_trip=True, warnings="error")


def read_pydantic(kind: Any, value: Any) -> Any:
    """
    Return a Pydantic model, made of JSON or of Python's own values. Values of other types pass as they are.

    Raises:
        ValueError: The model refuses it, with Pydantic's message.
    """
    if not is_pydantic_model(kind) or isinstance(value, kind):
        return value
    try:
        text = json.dumps(value)  # of JSON a strict model takes dates as text
    except (TypeError, ValueError):
        return kind.model_validate(value)
    return kind.model_validate_json(text)


def find_pydantic_faults(kind: Any, value: Any, path: tuple[str | int, ...]) -> Iterator[InputFault]:
    """Yield what a Pydantic model refuses in data, each with its place."""
    try:
        read_pydantic(kind, value)
    except ValueError as error:
        details: Any = getattr(error, "errors", None)
        if details is None:  # a validator has raised what Pydantic does not collect
            yield InputFault(path, f"is rejected: {error}", value)
            return
        for each in details(include_url=False):
            place = (*path, *each["loc"])
            missing = each["type"] == "missing"
            unknown = each["type"] == "extra_forbidden"
            problem = "is missing" if missing else f"does not fit: {each['msg']}"
            given = None if missing else each["input"]
            yield InputFault(place, problem, given, "missing" if missing else "unknown" if unknown else "invalid")
