"""
Bodies of requests that have some fields of a model: what a PATCH changes, and what a PUT has whose path holds the key.
"""

import typing
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar, cast

import attrs

from ..errors import ModelError
from .json_values import Form, new_entity, read_fields
from .key import Storable
from .pydantic_schema import core_schema_of, describe_anything, describe_model, schema_of_instances
from .schema import Schema

E_co = TypeVar("E_co", bound=Storable, covariant=True)
E_contra = TypeVar("E_contra", bound=Storable, contravariant=True)


@attrs.frozen(init=False)
class RequestBody:
    """Some fields of a model, as a client sends them: the base of `Partial` and `WithoutKey`."""

    model: type[Any]
    given: Mapping[str, Any]

    _form: ClassVar[Form]

    def __init__(self, model: type[Any], data: Mapping[str, Any]) -> None:
        given = read_fields(self._schema_of(model), data, self._form)
        make: Any = self  # the checkers do not know what attrs calls the method
        make.__attrs_init__(model, given)

    @classmethod
    def _schema_of(cls, model: object) -> Schema:
        schema = getattr(model, "__schema__", None)
        if not isinstance(model, type) or not isinstance(schema, Schema):
            raise ModelError(
                f"{cls.__name__} of {model!r} is rejected: it is not a model; name one, as in {cls.__name__}[Order]"
            )
        if schema.abstract and cls._form is Form.WITHOUT_KEY:
            raise ModelError(
                f"{cls.__name__}[{schema.name}] is rejected: {schema.name} is abstract; name a class of it"
            )
        return schema

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        model = next(iter(typing.get_args(source)), None)
        if isinstance(model, TypeVar):  # of a generic class that is not used for one model
            return schema_of_instances(cls, lambda body: body.given)
        schema = cls._schema_of(model)

        def read(data: Any) -> Any:
            ready = isinstance(cast("object", data), cls) and issubclass(schema.model, data.model)
            return data if ready else cls(schema.model, data)

        def fields_of(body: Any) -> Mapping[str, Any]:
            if not isinstance(cast("object", body), cls):
                raise TypeError(f"{body!r} is not a {cls.__name__}")
            given: Mapping[str, Any] = body.given
            return given

        return core_schema_of(schema, f"{cls.__name__}{schema.name}", read, fields_of)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
        if "tableorm" not in core.get("metadata", {}):
            return describe_anything(cls)
        return describe_model(core, handler, cls._form)


class Partial(RequestBody, Generic[E_contra]):
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

    __slots__ = ()
    _form = Form.PARTIAL

    def __init__(self, model: type[E_contra], data: Mapping[str, Any]) -> None:
        super().__init__(model, data)


class WithoutKey(RequestBody, Generic[E_co]):
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

    __slots__ = ()
    _form = Form.WITHOUT_KEY

    def __init__(self, model: type[E_co], data: Mapping[str, Any]) -> None:
        super().__init__(model, data)

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
        made: E_co = new_entity(self._schema_of(self.model), {**self.given, **key})
        return made
