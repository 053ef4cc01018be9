"""
Series: a field of a fixed number of slots, each of which is stored in a property of its own if it has a value.

`sent: Series[int] = series(24, name="H{i:02d}", default=0)` counts by hour. A save sends the slots that were changed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, TypeVar, Unpack, cast, overload

import msgspec

from ..errors import ENCRYPTED, EncodeError, ModelError, NotLoaded, shown
from ..expressions import Field
from ..models.fields import FieldDeclaration, Mapped
from ..models.property_types import PropertyType, Shape, ValueType, annotation_name, property_type, split_optional

T = TypeVar("T")


class Slots(Sequence[T]):
    """
    The value of a series. It behaves like a list of fixed length; a slot without a value reads as the default of the
    series, or None.
    """

    __slots__ = ("_shape", "_stored")
    __hash__ = None  # type: ignore[assignment]  # it is mutable

    def __init__(self, shape: "_SeriesShape", stored: list[Any]) -> None:
        self._shape, self._stored = shape, stored

    def __len__(self) -> int:
        return len(self._stored)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        position = self._shape.position(index)
        value: Any = self._stored[position]
        if value is ...:
            raise NotLoaded(f"{self._shape.label(position)}: this slot was not loaded; read the whole series")
        found: T = self._shape.default if value is None else value
        return found

    def __setitem__(self, index: int, value: T) -> None:
        position = self._shape.position(index)
        if value is None and self._stored[position] is ...:
            raise NotLoaded(f"{self._shape.label(position)} = None: this slot was not loaded; read the whole series")
        self._stored[position] = self._shape.checked(position, value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list):
            return [*self] == other
        if not isinstance(other, Slots):
            return NotImplemented
        one, two = cast("Any", self), cast("Any", other)
        return bool(one._shape.shown(one._stored) == two._shape.shown(two._stored))

    def __repr__(self) -> str:
        if self._shape.encrypted:
            return repr(ENCRYPTED)
        filled = ", ".join(f"{at}: {value!r}" for at, value in enumerate(self._stored) if value not in (None, ...))
        return f"<{len(self)} slots {{{filled}}}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._shape.model, self._shape.name, self._stored)


def _restored(model: type[Any], name: str, stored: list[Any]) -> Slots[Any]:
    return Slots(model.__schema__.fields[name].shape, [*stored])


class SeriesField(Field[Slots[T]]):
    """A series of a model, such as `Stats.sent`. Its slots can be compared and selected: `Stats.sent[9] > 100`."""

    __slots__ = ()

    def __getitem__(self, index: int) -> Field[T]:
        shape: _SeriesShape = self.model.__schema__.fields[self.name].shape
        return self.parts[shape.position(index)]


class _SeriesShape(Shape[Slots[Any]]):
    apart = True
    model: type[Any]
    name: str
    annotation: Any
    slot: PropertyType

    def __init__(self, length: int, default: Any, *, encrypted: bool = False) -> None:
        self.length, self.default, self.encrypted = length, default, encrypted

    def bind(self, model: type[Any], name: str, kind: type[Any], annotation: Any) -> None:
        bare, optional = split_optional(annotation)
        found, declared = property_type(bare), annotation_name(annotation)
        if not self.length:
            raise ValueError("is a series without its length; write series(24)")
        if kind is not Series:
            right = declared if declared.startswith("Series[") else f"Series[{declared}]"
            raise ValueError(f"= series(...) is annotated {kind.__name__}[...]; write {name}: {right}")
        if getattr(self, "model", model) is not model or getattr(self, "name", name) != name:
            raise ValueError(f"is the same series(...) as {self.model.__name__}.{self.name}; write another")
        if isinstance(found, str) or found.json_text:
            raise ValueError(f"is a series of {declared}; a slot is a number, a bool, a datetime or a string")
        if optional is (self.default is not None):
            bare_name = annotation_name(bare)
            raise ValueError(
                f"is a Series[{declared}] with default={shown(self.default)}; what is not stored is None in a "
                f"Series[{bare_name} | None] without a default, or the default of a Series[{bare_name}]"
            )
        self.model, self.name, self.annotation, self.slot = model, name, bare, found
        if self.default is not None:
            self.checked(0, self.default)

    def value_type(self, annotation: Any) -> tuple[ValueType, bool]:
        size = msgspec.Meta(min_length=self.length, max_length=self.length)
        listed: Any = Annotated[list[annotation], size]
        return ValueType(annotation=listed, encode=self.convert, base=Slots), False

    def members(self, name: str, property_: str) -> Sequence[tuple[str, str, Any]]:
        template = property_ if "{" in property_ else f"{property_}{{i:0{len(str(self.length - 1))}d}}"
        try:
            names = [template.format(i=number) for number in range(self.length)]
        except (LookupError, ValueError, AttributeError) as error:
            problem = f"name={property_!r} is rejected: {error!r}; write the number of a slot as {{i:02d}}"
            raise ModelError(f"{self.model.__name__}.{name}: {problem}") from None
        return [(f"{name}[{number}]", each, self.annotation) for number, each in enumerate(names)]

    def write(self, value: object) -> Sequence[Any]:
        return self.convert(value)._stored  # pyright: ignore[reportPrivateUsage]

    def read(self, values: Sequence[Any]) -> Slots[Any]:
        return Slots(self, [*values])

    def copy(self, value: Any) -> Slots[Any]:
        return self.read(value._stored)

    def expression(self, model: type[Any], name: str) -> SeriesField[Any]:
        return SeriesField(model, name, [f"{name}[{number}]" for number in range(self.length)])

    def empty(self) -> Slots[Any]:
        """Return a value without anything in it, which is the default of the field."""
        return self.read([None] * self.length)

    def convert(self, value: Any) -> Slots[Any]:
        """Return what is set as a value of its own. Raises EncodeError."""
        if getattr(value, "_shape", None) is self:
            return Slots(self, [*value._stored])
        if type(value) not in (Slots, list, tuple):
            raise self._misfit(self.name, value, f"is a {type(value).__name__}, not a list of {self.length} slots")
        if len(value) != self.length:
            raise self._misfit(self.name, value, f"has {len(value)} values, and the series {self.length} slots")
        return Slots(self, [self.checked(at, each) for at, each in enumerate(value)])

    def shown(self, stored: Sequence[Any]) -> list[Any]:
        """Return what slots are read as."""
        return [self.default if value is None else value for value in stored]

    def label(self, position: int) -> str:
        """Return the name of a slot, for messages."""
        return f"{self.model.__name__}.{self.name}[{position}]"

    def position(self, index: int) -> int:
        """Return which slot an index says. Raises IndexError, or TypeError if it is no number."""
        if not isinstance(index, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{self.model.__name__}.{self.name}[{index!r}] is rejected: a slot has a number")
        position = index + self.length if index < 0 else index
        if not 0 <= position < self.length:
            raise IndexError(f"{self.label(index)}: the series has {self.length} slots")
        return position

    def checked(self, position: int, value: Any) -> Any:
        """Return the value of a slot. Raises EncodeError, which names it, if no property can hold the value."""
        path = f"{self.name}[{position}]"
        if value is None:
            if self.default is None:
                return None
            raise self._misfit(path, None, f"is None; a slot is {self.slot.name}: {shown(self.default)} if not stored")
        try:
            self.slot.check(value)
            self.slot.encode(value)
        except ValueError as error:
            problem = "does not fit" if self.encrypted else f"{error}"
            raise self._misfit(path, value, f"{problem}; a slot is {self.slot.name}") from None
        return value

    def _misfit(self, path: str, value: object, problem: str) -> EncodeError:
        hidden = self.encrypted and value is not None
        return EncodeError(problem, self.model.__name__, path, ENCRYPTED if hidden else value)


class Series(Mapped[Slots[T]]):
    """
    The annotation of a series, with the type of its slots: any type of field except JSON. The slots of `Series[int |
    None]` may be None; those of `Series[int]` have a default.
    """

    _shape = _SeriesShape(0, None)

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: type[Any]) -> SeriesField[T]: ...
        @overload
        def __get__(self, instance: object, owner: type[Any]) -> Slots[T]: ...
        def __get__(self, instance: object | None, owner: type[Any]) -> SeriesField[T] | Slots[T]: ...
        def __set__(self, instance: object, value: Sequence[T]) -> None: ...


class _Options(TypedDict, total=False):
    """The arguments of `series` but for `length` and `default`."""

    name: str | None
    doc: str | None
    readonly: bool
    hidden: bool
    encrypted: bool
    accept_plain: bool


@overload
def series(length: int, *, default: T, **options: Unpack[_Options]) -> Series[T]: ...
@overload
def series(length: int, **options: Unpack[_Options]) -> Series[Any]: ...
def series(
    length: int,
    *,
    default: Any = None,
    name: str | None = None,
    doc: str | None = None,
    readonly: bool = False,
    hidden: bool = False,
    encrypted: bool = False,
    accept_plain: bool = False,
) -> Any:
    """
    Declare a series: a field with one property for each of its slots, annotated `Series[...]`.

        # one number per hour
        sent: Series[int] = series(24, name="H{i:02d}", default=0)

    Args:
        length: The number of slots. A row holds 252 properties, and each slot is one of them.
        default: The value of a slot that isn't stored. Without a default it is None, and the annotation is `Series[int
            | None]`.
        name: The names of the properties, with the number of the slot, such as "H{i:02d}". Defaults to the name of the
            field followed by the number.
        doc: A description for JSON schemas and OpenAPI.
        readonly: Whether clients are barred from setting the field, as in `field`.
        hidden: Whether to hide the field from clients, as in `field`.
        encrypted: Whether to store each slot encrypted, like a field of `encrypted()`.
        accept_plain: Whether to read rows whose slots aren't encrypted, as in `encrypted`.

    Returns:
        A declaration, which the class turns into the field. An entity that is created without the field has an empty
        series.
    """
    if type(length) is not int or length < 1:
        raise ModelError(f"series({shown(length)}) is rejected: give the number of slots")
    if accept_plain and not encrypted:
        raise ModelError("series(accept_plain=True) is rejected: its slots are plain; add encrypted=True")
    shape = _SeriesShape(length, default, encrypted=encrypted)
    return FieldDeclaration(
        name=name,
        doc=doc,
        readonly=readonly,
        hidden=hidden,
        arguments={"factory": shape.empty, "converter": shape.convert},
        shape=shape,
        encrypted=encrypted,
        accept_plain=accept_plain,
    )
