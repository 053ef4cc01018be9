"""
Bodies of requests that have some fields of a model: what a PATCH changes, and what a PUT has whose path holds the key.
"""

import typing
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import attrs

from ..errors import ModelError
from .json_values import Form, new_entity, read_fields
from .key import Storable
from .pydantic_schema import core_schema_of, describe_anything, describe_model, schema_of_instances
from .schema import Schema

E_co = TypeVar("E_co", bound=Storable, covariant=True)
E_contra = TypeVar("E_contra", bound=Storable, contravariant=True)


B = TypeVar("B")


def _fill(body: Any, model: type[Any], data: Mapping[str, Any]) -> None:
    body.__attrs_init__(model, read_fields(_schema_of(type(body), model), data, body._form))


def _schema_of(body: Any, model: object) -> Schema:
    schema = getattr(model, "__schema__", None)
    if not isinstance(model, type) or not isinstance(schema, Schema):
        raise ModelError(
            f"{body.__name__} of {model!r} is rejected: it is not a model; name one, as in {body.__name__}[Order]"
        )
    if schema.abstract and body._form is Form.WITHOUT_KEY:
        raise ModelError(f"{body.__name__}[{schema.name}] is rejected: {schema.name} is abstract; name a class of it")
    return schema


def _core_schema(body: Any, source: Any, _: Any) -> Any:
    model = next(iter(typing.get_args(source)), None)
    if isinstance(model, TypeVar):  # of a generic class that is not used for one model
        return schema_of_instances(body, lambda filled: filled.given)
    schema = _schema_of(body, model)

    def read(data: Any) -> Any:
        ready = isinstance(data, body) and issubclass(schema.model, data.model)
        return data if ready else body(schema.model, data)

    def fields_of(filled: Any) -> Mapping[str, Any]:
        if not isinstance(filled, body):
            raise TypeError(f"{filled!r} is not a {body.__name__}")
        given: Mapping[str, Any] = filled.given
        return given

    return core_schema_of(schema, f"{body.__name__}{schema.name}", read, fields_of)


def _json_schema(body: Any, core: Any, handler: Any) -> Any:
    if "tableorm" not in core.get("metadata", {}):
        return describe_anything(body)
    return describe_model(core, handler, body._form)


def _request_body(cls: type[B]) -> type[B]:
    """Let Pydantic and FastAPI read and describe the bodies that a class stands for, in the form that it names."""
    body: Any = cls
    body.__get_pydantic_core_schema__ = classmethod(_core_schema)
    body.__get_pydantic_json_schema__ = classmethod(_json_schema)
    return cls


@_request_body
@attrs.frozen(init=False)
class Partial(Generic[E_contra]):
    """
    Some fields of an entity, to be set by `entity.update(...)`: the body of a PATCH request.

        @app.patch("/orders/{id}")
        async def patch_order(id: int, changes: Partial[Order]) -> Order: ...

    In Pydantic and FastAPI, use `Partial[Order]` as a type: an object with any of the fields of `Order`, except key
    fields and fields that are filled on write or maintained by other entities. Elsewhere, `Partial(Order, data)` makes
    one.

    Args:
        model: The model; an abstract base stands for all of its classes.
        data: Fields by name, in either mode of `to_dict`.

    Attributes:
        model: The model.
        given: The fields that were given, by name. A field that wasn't given is absent, which is different from None.

    Raises:
        InvalidInput: A field does not exist or can't be changed, or a value does not fit; the error lists all of these.
    """

    model: type[Any]
    given: Mapping[str, Any]

    _form: ClassVar = Form.PARTIAL

    def __init__(self, model: type[E_contra], data: Mapping[str, Any]) -> None:
        _fill(self, model, data)


@_request_body
@attrs.frozen(init=False)
class WithoutKey(Generic[E_co]):
    """
    The fields of a new entity except those of its key: the body of a PUT or POST request whose path contains the key.

        @app.put("/orders/{customer}/{id}")
        async def put_order(
            customer: str, id: int, content: WithoutKey[Order]
        ) -> Order:
            order = content.entity(customer=customer, id=id)
            ...

    In Pydantic and FastAPI, use `WithoutKey[Order]` as a type: an object with the fields of `Order`, except key fields
    and fields that are filled on write or maintained by other entities. Elsewhere, `WithoutKey(Order, data)` makes one.

    Args:
        model: The model.
        data: Fields by name, in either mode of `to_dict`. Fields with a default may be missing.

    Attributes:
        model: The model.
        given: The fields that were given, by name.

    Raises:
        InvalidInput: A field is missing, does not exist or can't be given, or a value does not fit; the error lists all
            of these.
    """

    model: type[Any]
    given: Mapping[str, Any]

    _form: ClassVar = Form.WITHOUT_KEY

    def __init__(self, model: type[E_co], data: Mapping[str, Any]) -> None:
        _fill(self, model, data)

    def entity(self, **key: Any) -> E_co:
        """
        Return a new entity with the fields of the body and these.

            order = content.entity(customer="jun", id=1)

        Args:
            key: The key fields; those with a default may be omitted. You can also pass other fields, which override the
                body.

        Raises:
            InvalidInput: A value fails its validator.
            ModelError: A field without a default is missing, or there is no such field.
        """
        made: E_co = new_entity(_schema_of(WithoutKey, self.model), {**self.given, **key})
        return made
