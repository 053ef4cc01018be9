"""
The parts of a field declaration in a model's class body: `Mapped[T]` and `field(...)`.
"""

import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypedDict, TypeVar, Unpack, overload

import attrs

from ..errors import ModelError, NotLoaded, near, shown
from ..expressions import Field
from .property_types import FieldOptions, Shape

T = TypeVar("T")


class Mapped(Generic[T]):
    """
    The annotation of a field. On the class the field is a `Field[T]`, on an instance a value of type T.
    """

    _shape: ClassVar[Shape[Any] | None] = None  # of a subclass, whose fields are stored in several properties

    if TYPE_CHECKING:  # how checkers read `Model.name`, `entity.name` and `entity.name = value`

        @overload
        def __get__(self, instance: None, owner: type[Any]) -> Field[T]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> T: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> Field[T] | T: ...
        def __set__(self, instance: object, value: T) -> None: ...


def shape_of(annotation: type[Mapped[Any]], values: Any) -> Shape[Any] | None:
    """
    Return how fields with an annotation are stored in several properties; None if in one.

    Args:
        annotation: `Mapped`, or a subclass of it.
        values: What stands in its brackets, without None: a class may say how its values are stored.
    """
    make: type[Shape[Any]] | None = getattr(values, "_shape_of_values", None)
    if typing.get_origin(values) is list:
        make = getattr(typing.get_args(values)[0], "_shape_of_elements", None)
    return make() if make is not None else annotation._shape  # pyright: ignore[reportPrivateUsage]


SHAPES: dict[str, Callable[..., Shape[Any]]] = {}
"""What makes the shape of a field, by the option of `field` that asks for it; the modules of `shapes` fill it."""


class FieldDescriptor:
    """
    The attribute of a class that stands for a field. It has no `__set__`, so that Python finds a value in the
    instance's own dictionary first, at native speed; only a field that was not loaded leads here.
    """

    __slots__ = ("expression",)

    def __init__(self, expression: Field[Any]) -> None:
        self.expression = expression

    def __get__(self, instance: object | None, owner: type) -> Field[Any]:
        if instance is None:
            return self.expression
        raise NotLoaded(
            f"{self.expression}: this field was not loaded; read the whole entity, or select this field too"
        )


@attrs.frozen(kw_only=True)
class FieldDeclaration(FieldOptions):
    """
    The arguments of `field(...)`.

    Args:
        name: Name of the stored property, None for the default.
        stored: Store the field as a property although a key holds it in full.
        arguments: The remaining arguments, for `attrs.field`.
    """

    name: str | None = None
    stored: bool = False
    arguments: dict[str, Any] = attrs.field(factory=dict[str, Any])


class _AnyOptions(TypedDict, Generic[T], total=False):
    """The arguments that `field` and `encrypted` share, but for `default` and `factory`."""

    name: str | None
    validator: Any
    converter: Callable[[Any], T] | None
    on_insert: Callable[[], T] | None
    on_write: Callable[[], T] | None
    doc: str | None
    readonly: bool
    hidden: bool
    chunked: bool
    compress: bool


class _Options(_AnyOptions[T], total=False):
    """The arguments of `field`; its docstring explains them."""

    stored: bool
    maintained: bool
    expiry: bool


_ATTRS_ARGUMENTS = ("default", "factory", "validator", "converter")


@overload
def field(*, default: T, **options: Unpack[_Options[T]]) -> Mapped[T]: ...
@overload
def field(*, factory: Callable[[], T], **options: Unpack[_Options[T]]) -> Mapped[T]: ...
@overload
def field(*, init: bool = True, **options: Unpack[_Options[Any]]) -> Any: ...
def field(
    *,
    name: str | None = None,
    stored: bool = False,
    init: bool = True,
    on_insert: Callable[[], Any] | None = None,
    on_write: Callable[[], Any] | None = None,
    maintained: bool = False,
    doc: str | None = None,
    expiry: bool = False,
    readonly: bool = False,
    hidden: bool = False,
    chunked: bool = False,
    compress: bool = False,
    **arguments: Any,
) -> Any:
    """
    Declare more about a field than its type.

        created_at: Mapped[dt.datetime | None] = field(default=None, on_insert=utc_now)

    Args:
        default: The value if none is given, and if a stored row lacks the property. (A field declared `| None` reads as
            None if its property is absent.)
        factory: A function that makes the default, such as `uuid.uuid4` or `dict`.
        name: The name of the stored property. Defaults to the name of the field, as changed by the model's `naming`.
        stored: Whether to store the field as a property even though a key contains it in full.
        validator: One of `attrs.validators`, or a list of them. Runs when the entity is created and when the field is
            set.
        converter: Applied to every value that is given or set, as in `attrs.field`.
        init: Always True: every field can be passed to the model.
        on_insert: Makes the value, for example of `created_at`. It's called without arguments if the field is None when
            the entity is inserted, or upserted without having been read.
        on_write: Makes the value, for example of `updated_at`. It's called without arguments for every write, whatever
            the value was, unless another value was assigned since the entity was read. The entity receives the values
            of both functions once the write has succeeded.
        maintained: Whether writes of other entities maintain the field, through a `Count`, `Sum` or `Embedded`. Writes
            of the entity itself leave it unchanged.
        doc: A description for JSON schemas and OpenAPI.
        expiry: Whether the field holds the time at which the entity expires. From then on no read finds it, until
            `Database.sweep` deletes it; with None it never expires. The type is `datetime | None`, and a model has at
            most one such field.
        readonly: Whether clients are barred from setting the field: `from_dict`, `Partial` and `WithoutKey` accept no
            value other than the default. The program itself can set it.
        hidden: Whether to hide the field from clients: `to_dict`, Pydantic and FastAPI omit it unless it is included by
            name.
        chunked: Whether to store a long str, bytes or JSON value in up to 15 properties of 64 KiB.
        compress: Whether to compress a long value with zlib.
        arguments: `default`, `factory`, `validator` and `converter`, which are passed to `attrs.field`.

    Returns:
        A declaration, which the class turns into the field.
    """
    if not init:
        raise TypeError(
            "field(init=False) is not supported: an entity must be made from all of its fields; leave init out"
        )
    for argument in arguments:
        if argument not in _ATTRS_ARGUMENTS:
            known = (*_Options.__annotations__, "default", "factory")
            raise ModelError(
                f"field({argument}=...) is rejected: there is no such argument; {near(argument, known, 'argument')}"
            )
    if "default" in arguments and "factory" in arguments:
        raise ModelError("field(default=..., factory=...) is rejected: give one of them")
    if compress and not chunked:
        raise ModelError("field(compress=True) is rejected: it is for long values; add chunked=True")
    for argument, function in (("on_insert", on_insert), ("on_write", on_write), ("factory", arguments.get("factory"))):
        if not (function is None or callable(function)):
            raise ModelError(f"field({argument}={shown(function)}) is rejected: give a function that makes the value")
    arguments = {key: value for key, value in arguments.items() if key in ("default", "factory") or value is not None}
    return FieldDeclaration(
        name=name,
        stored=stored,
        on_insert=on_insert,
        on_write=on_write,
        maintained=maintained,
        doc=doc,
        expiry=expiry,
        readonly=readonly,
        hidden=hidden,
        arguments=arguments,
        shape=SHAPES["chunked"](compress=compress) if chunked else None,
    )


class _EncryptedOptions(_AnyOptions[T], total=False):
    """The arguments of `encrypted`."""

    accept_plain: bool


@overload
def encrypted(*, default: T, **options: Unpack[_EncryptedOptions[T]]) -> Mapped[T]: ...
@overload
def encrypted(*, factory: Callable[[], T], **options: Unpack[_EncryptedOptions[T]]) -> Mapped[T]: ...
@overload
def encrypted(*, init: bool = True, **options: Unpack[_EncryptedOptions[Any]]) -> Any: ...
def encrypted(*, accept_plain: bool = False, **options: Any) -> Any:
    """
    Declare a field that is stored encrypted.

        diagnosis: Mapped[str] = encrypted()

    The database needs keys: `connect(url, encryption=Encryption(keys))`. Queries can't have conditions on the field.

    Args:
        accept_plain: Whether to read rows whose value isn't encrypted, such as those written before the field was
            declared `encrypted`. Anyone who can write to the table can then plant values, so remove this
            once `tableorm rewrite` has encrypted all rows.
        options: The options of `field`, except `stored`, `maintained` and `expiry`.
    """
    for argument in ("stored", "maintained", "expiry"):
        if argument in options:
            raise ModelError(f"encrypted({argument}=...) is rejected: that needs to see the value; use field()")
    declared: Any = field(**options)
    return attrs.evolve(declared, encrypted=True, accept_plain=accept_plain)
