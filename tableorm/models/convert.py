"""
Convert entities to plain dictionaries and back.
"""

import datetime as dt
import enum
import math
from base64 import b64encode
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal, TypeVar
from uuid import UUID

import msgspec

from ..errors import EncodeError
from .entity import Entity, schema_of
from .schema import FieldInfo

__all__ = ["from_dict", "to_dict"]

E = TypeVar("E", bound=Entity)


def to_dict(entity: Entity, mode: Literal["python", "json"] = "python") -> dict[str, Any]:
    """
    Return the fields of an entity by name, without those that were not loaded and without unknown properties.

    Args:
        entity: The entity to convert.
        mode: "python" keeps the values. "json" gives values that JSON has: dates, UUIDs and decimals as text, bytes as
            base64, enums by value, NaN and infinities as "NaN", "Infinity" and "-Infinity".
    """
    own = entity.__dict__
    fields = schema_of(type(entity)).fields
    if mode == "python":
        return {name: own[name] for name in fields if name in own}
    if mode != "json":
        raise ValueError(f"to_dict() has no mode {mode!r}; use 'python' or 'json'")
    return {name: _to_json(own[name]) for name in fields if name in own}


def _to_json(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return _to_json(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    return msgspec.to_builtins(value)


def from_dict(model: type[E], data: Mapping[str, Any]) -> E:
    """
    Make an entity from what `to_dict` returned, in either mode.

    Raises:
        EncodeError: A value does not fit its field, or there is no such field; the message names the field.
        TypeError: A field without default is missing.
    """
    schema = schema_of(model)
    values: dict[str, Any] = {}
    for name, value in data.items():
        info = schema.fields.get(name)
        if info is None:
            raise EncodeError(
                f"is given for a field that does not exist; the model's fields are {', '.join(schema.fields)}",
                schema.name,
                name,
                value,
            )
        values[name] = None if value is None else _from_json(schema.name, info, value)
    return model(**values)


_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _from_json(model: str, info: FieldInfo, value: Any) -> Any:
    annotation: Any = info.type.annotation
    if annotation is float:
        if type(value) is int:
            value = float(value) if _misfit(info, value) is None else value
        elif isinstance(value, str):
            value = _SPECIAL.get(value, value)
    elif isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        value = next((member for member in annotation if _to_json(member) == value), value)
    # A value that can be stored as it is needs no conversion. In a list[date], for example, dates can still be text.
    converted: Any = value
    problem = _misfit(info, value)
    if problem is not None and not (annotation is float and type(value) is int):  # a float cannot hold it exactly
        try:
            converted = msgspec.convert(value, info.type.annotation, str_keys=True)
            problem = _misfit(info, converted)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            problem = f"does not fit: {error}"
    if problem is not None:
        raise EncodeError(f"{problem}; the field is {info.type.name}", model, info.name, value)
    return converted


def _misfit(info: FieldInfo, value: Any) -> str | None:
    try:
        info.type.encode(value)
    except ValueError as error:
        return str(error)
    return None
