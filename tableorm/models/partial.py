"""
Partial: the fields of a model that a request wants to change.
"""

import typing
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

import attrs

from ..errors import ModelError
from .json_values import read_fields
from .key import Storable
from .pydantic_schema import core_schema_of, describe_model
from .schema import Schema

__all__ = ["Partial"]

E_contra = TypeVar("E_contra", bound=Storable, contravariant=True)


@attrs.frozen(init=False)
class Partial(Generic[E_contra]):
    """
    Some fields of an entity, to be set by `entity.update(...)`: the body of a PATCH request.

    Pydantic and FastAPI take `Partial[Order]` as a type: an object with any of the fields of `Order`, but for those of
    its key and those that other entities maintain. `Partial(Order, data)` makes one without them.

    Args:
        model: The model; an abstract base stands for the entities of all its classes.
        data: Fields by name, in either mode of `to_dict`.

    Attributes:
        model: The model.
        given: The fields that were given, by name. One that was not given is absent, which differs from None.

    Raises:
        InvalidInput: A field does not exist or cannot be changed, or a value does not fit; it lists all of these.
    """

    model: type[Any]
    given: Mapping[str, Any]

    def __init__(self, model: type[E_contra], data: Mapping[str, Any]) -> None:
        given = read_fields(_schema_of(model), data, changes=True)
        make: Any = self  # the checkers do not know what attrs calls the method
        make.__attrs_init__(model, given)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        model = next(iter(typing.get_args(source)), None)
        schema = _schema_of(model)

        def read(data: Any) -> Any:
            ready = isinstance(cast("object", data), cls) and issubclass(schema.model, data.model)
            return data if ready else cls(cast("Any", schema.model), data)

        def fields_of(changes: Any) -> Mapping[str, Any]:
            if not isinstance(cast("object", changes), cls):
                raise TypeError(f"{changes!r} is not a Partial")
            given: Mapping[str, Any] = changes.given
            return given

        return core_schema_of(schema, f"Partial{schema.name}", read, fields_of)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
        return describe_model(core, handler, changes=True)


def _schema_of(model: object) -> Schema:
    schema = getattr(model, "__schema__", None)
    if not isinstance(model, type) or not isinstance(schema, Schema):
        raise ModelError(f"Partial of {model!r} is refused: it is not a model; name one, as in Partial[Order]")
    return schema
