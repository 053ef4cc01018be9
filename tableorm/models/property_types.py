"""
Fields and property types: how the values of a field are stored, according to its annotation.

`property_type(annotation)` reads an annotation once, when the class is made, and returns a `PropertyType`: the EDM type
and two functions that convert between the field's value and the row's JSON. The generated code of a model converts the
plain types inline and calls these functions for the others.
"""

import datetime as dt
import enum
import math
import re
import types
import typing
from base64 import b64decode, b64encode
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import is_dataclass
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Generic, TypeVar, cast
from uuid import UUID

import attrs
import msgspec

from ..errors import ENCRYPTED, EncodeError, ModelError, NotLoaded, shown
from ..expressions import Field
from ..protocol.edm import (
    ANNOTATION,
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    SPECIAL_DOUBLES,
    BrokenText,
    Edm,
    Value,
    check_text,
    decode,
    special_text,
    text_from_datetime,
)
from ..protocol.limits import MAX_VALUE_BYTES
from ..types import Int32
from .dataclass_defaults import make_completer
from .json_types import find_unstorable, is_pydantic_model, read_pydantic, write_pydantic

T = TypeVar("T")

# What converters and validators raise: the third where decimal NaN is compared, the last where a value is looked up.
REFUSALS = (ValueError, TypeError, ArithmeticError, LookupError)


class TooLong(ValueError):
    """A value has no place in its field. The message has sizes and what to do, and nothing of the value."""


def _class_of_values(kind: "ValueType") -> Any:
    return typing.get_origin(kind.annotation) or kind.annotation


@attrs.frozen(kw_only=True)
class ValueType:
    """
    The type of the values of a field, whatever properties they are stored in.

    Args:
        annotation: The declared type, without None and without `Annotated`.
        encode: Converts a value to its JSON value; ValueError says what does not fit.
        json_text: Whether the JSON value is JSON text; then the value may be mutable, and is compared by content.
        complete: Stores the defaults of dataclasses in a value that msgspec has made; None if there are none to store.
        base: The class of the values; by default that of the declared type.
    """

    annotation: Any
    encode: Callable[[Any], Any]
    json_text: bool = False
    complete: Callable[[Any], None] | None = None
    base: type[Any] = attrs.field(default=attrs.Factory(_class_of_values, takes_self=True))

    def check(self, value: Any) -> None:
        """
        Refuse a value of another type. Whether all that it holds can be stored is left to `encode`.

        Raises:
            ValueError: Says what the value is.
        """
        given = cast("type[object]", type(value))
        if given is self.base:
            if given is not dt.datetime or value.tzinfo is not None:
                return
        elif given is int and self.base is float:
            return
        if not self.json_text:
            self.encode(value)
        elif not isinstance(value, self.base):
            raise _wrong_type(value, f"a {self.base.__name__}")

    @property
    def name(self) -> str:
        """The declared type as a user would write it."""
        return annotation_name(self.annotation)


@attrs.frozen(kw_only=True)
class PropertyType(ValueType):
    """
    How the values of a property are stored.

    Args:
        edm: The EDM type.
        decode: Converts a JSON value and its annotation to the value; ValueError if they are not of this type.
        inline: Whether values have the EDM type's own Python type, so that generated code can convert them inline.
    """

    edm: Edm
    decode: Callable[[Any, str | None], Any]
    inline: bool = False

    @property
    def name(self) -> str:
        """The declared type as a user would write it."""
        if self.edm is not Edm.INT32:
            return annotation_name(self.annotation)
        return "Int32" if self.annotation is int else f"Annotated[{annotation_name(self.annotation)}, Int32]"


@attrs.frozen
class Member:
    """
    One property of a row that holds a field, or a part of one.

    Args:
        field: Name of the field.
        path: What conditions call it: the name of a field that has one member, otherwise such as "spot.x".
        property: Name of the property.
        type: How values are stored.
    """

    field: str
    path: str
    property: str
    type: PropertyType

    def read(self, row: Mapping[str, Any]) -> Any:
        """Return the value that a row has; None if it has none. Raises ValueError if that is no value of the type."""
        value = row.get(self.property)
        return None if value is None else self.type.decode(value, row.get(self.property + ANNOTATION))


class Shape(Generic[T]):
    """
    How the values of a kind of field are stored in several properties.

    A kind of field is a subclass of `Mapped` with a shape. Values are made of the values of members, and these of
    values, by pure functions; everything else, such as the types of properties, follows from what the members are.

    Attributes:
        apart: Whether each member is a value of its own: it can be merged and read alone, and a merge of a value leaves
            the members that the value does not have as they are. Otherwise a merge never mixes two values. Such a value
            is a sequence, and its members are of one type.
        form: What snapshots call the way in which a value that begins in the first member goes on in the others; "" if
            it does not. An empty text, empty bytes or 0 in these say that a value does not have the member: a merge
            stores them there, and is not rejected.
        uploads: Whether values have bytes in blob storage, which are sent before the row is written.
    """

    apart: ClassVar[bool] = False
    uploads: ClassVar[bool] = False
    form: str = ""

    def bind(self, model: type[Any], name: str, kind: type[Any], annotation: Any) -> None:
        """
        Take note of the field that has the shape, when the class body that declares it is read.

        Args:
            model: The class.
            name: Name of the field.
            kind: `Mapped`, or the subclass of it that the field is annotated with.
            annotation: What stands in its brackets.

        Raises:
            ValueError: Says why the shape is not for such a field.
        """

    def for_encrypted(self) -> "Shape[T]":
        """Return the shape of a field that is encrypted."""
        return self

    def beside_encrypted(self) -> "Shape[T]":
        """Return the shape of a field that a resolver may encrypt, since other fields of the model are encrypted."""
        return self

    def value_type(self, annotation: Any) -> "tuple[ValueType | str, bool]":
        """Return the type of the values, or what is wrong with the annotation; and whether the field can be None."""
        bare, optional = split_optional(annotation)
        return property_type(bare), optional

    def copy(self, value: T) -> T:
        """Return what a copy of an entity has of a value: another one if values are changed in place."""
        return value

    def members(self, name: str, property_: str) -> Sequence[tuple[str, str, Any]]:
        """
        Return path, property and type of each member.

        Args:
            name: Name of the field.
            property_: Name of the property that a field of one member would have, with which those of the members
                should begin.
        """
        raise NotImplementedError

    def write(self, value: T) -> Sequence[Any]:
        """
        Return the value of each member; None for one that has none. A field without any is read as an absent one.
        Where members are apart, `...` stands for one that was not loaded.

        Raises:
            ValueError: Says what does not fit.
        """
        raise NotImplementedError

    def read(self, values: Sequence[Any]) -> T:
        """
        Return the value that these values of members make; None stands for a member that the row does not have. Where
        members are apart, `...` stands for one that was not asked for.

        Raises:
            ValueError: They make none.
        """
        raise NotImplementedError

    def from_json(self, value: Any) -> Any:
        """Return the value that JSON stands for, or what was given if that is none of this kind."""
        return value

    def expression(self, model: type[Any], name: str) -> "Field[T]":
        """Return what stands for the field on its class."""
        raise NotImplementedError


@attrs.frozen
class _Part(Shape[Any]):
    """How a value is read of which only some members are asked for."""

    whole: Shape[Any]
    asked: tuple[bool, ...]

    def read(self, values: Sequence[Any]) -> Any:
        found = iter(values)
        return self.whole.read([next(found) if asked else ... for asked in self.asked])


@attrs.frozen(kw_only=True)
class FieldOptions:
    """
    What is said of a field besides its type, in its declaration and in its model.

    Args:
        on_insert: Makes the value when an entity is inserted that has none; None if nothing does.
        on_write: Makes the value whenever the entity is written; None if nothing does.
        maintained: Whether other entities keep it, and this one's own writes leave it alone.
        doc: What it means, for API schemas; None if nothing is said.
        expiry: Whether it says when the entity expires.
        readonly: Whether clients may not set it.
        hidden: Whether clients are not shown it.
        shape: How its values are stored in several members; None if there is one, which has the value, or if only the
            annotation says it.
        encrypted: Whether it is encrypted in the store, and shown nowhere.
        accept_plain: Whether it may also be stored as it is.
    """

    on_insert: Callable[[], Any] | None = None
    on_write: Callable[[], Any] | None = None
    maintained: bool = False
    doc: str | None = None
    expiry: bool = False
    readonly: bool = False
    hidden: bool = False
    shape: Shape[Any] | None = None
    encrypted: bool = False
    accept_plain: bool = False


@attrs.frozen(kw_only=True)
class FieldInfo(FieldOptions):
    """
    A field of a model.

    Args:
        name: In Python.
        members: The properties that hold it; of a field that a key holds in full the one that it would have.
        type: The type of its values.
        optional: Declared `| None`.
        default: Makes the default value; None if there is none.
        stored: Whether it is a property of the row; False if a key holds it in full.
    """

    name: str
    members: tuple[Member, ...]
    type: ValueType
    optional: bool
    default: Callable[[], Any] | None
    stored: bool

    @property
    def member(self) -> Member:
        """The one member of the field. Raises ModelError if its values are stored in several."""
        if self.shape is not None:
            raise ModelError(f"{self.name!r} {self.many}")
        return self.members[0]

    @property
    def many(self) -> str:
        """What to say of a field of several members where one of a single member is needed."""
        return f"is stored in {len(self.members)} properties, and this takes a field of one; declare one beside it"

    @property
    def required(self) -> bool:
        """Whether a row that lacks it cannot be read."""
        return not self.optional and self.default is None

    def write(self, value: Any) -> list[tuple[Member, Any]]:
        """
        Return what is stored of a value that is not None: the JSON value of each member that has one.

        Raises:
            ValueError: Says what does not fit.
        """
        if self.shape is None:
            return [(self.members[0], self.members[0].type.encode(value))]
        parts = zip(self.members, self._split(value), strict=True)
        return [(member, member.type.encode(part)) for member, part in parts if part is not None and part is not ...]

    def _split(self, value: Any) -> Sequence[Any]:
        assert self.shape is not None
        self.type.check(value)
        return self.shape.write(value)

    def split(self, value: Any) -> Sequence[Any]:
        """
        Return the values of the members of a field of several, to write all of it.

        Raises:
            ValueError: The value is no such.
            NotLoaded: It was loaded in part.
        """
        parts = self._split(value)
        if any(part is ... for part in parts):
            raise NotLoaded(f"{self.name} was loaded in part, and the rest would be lost; refresh() the entity first")
        return parts

    def narrowed(self, names: Container[str]) -> "FieldInfo | None":
        """Return the field with the members of these paths alone, if its own name is not among the names."""
        if self.shape is None or self.name in names:
            return self if self.name in names else None
        asked = tuple(member.path in names for member in self.members)
        if not any(asked):
            return None
        part, some = _Part(self.shape, asked), tuple(member for member in self.members if member.path in names)
        return attrs.evolve(self, members=some, shape=part, default=lambda: part.read([None] * len(some)))

    def read(self, row: Mapping[str, Any]) -> Any:
        """
        Return the value that a row has of it; None if it has none of its properties.

        Raises:
            ValueError: What is stored is no such value.
        """
        if self.shape is None:
            return self.members[0].read(row)
        values = [member.read(row) for member in self.members]
        return None if all(value is None for value in values) else self.shape.read(values)

    def is_in(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row has a property of it."""
        for member in self.members:  # noqa: SIM110 - a generator takes longer
            if row.get(member.property) is not None:
                return True
        return False

    def is_filled(self) -> bool:
        """Return whether a write makes the value."""
        return self.on_insert is not None or self.on_write is not None

    def takes_none(self) -> bool:
        """Return whether an entity can have None as the value."""
        return self.optional or self.is_filled()

    def check(self, model: str, value: object) -> None:
        """
        Refuse a value that is not of the field's type, in an entity of a model.

        Raises:
            EncodeError: Names the model, the field and the value.
        """
        if value is None:
            if not self.takes_none():
                raise self.misfit(model, None)
            return
        try:
            self.type.check(value)
        except ValueError as error:
            # A key has the text of a value of any class of strs, enums among them.
            if self.stored or self.type.base is not str or not isinstance(value, str):
                raise self.misfit(model, value, error) from None

    def misfit(self, model: str, value: object, error: ValueError | None = None) -> EncodeError:
        """Return the error of a value that does not fit the field: by default, of None."""
        if error is not None:
            problem = "does not fit" if self.encrypted and not isinstance(error, TooLong) else f"{error}"
            shown_value = ENCRYPTED if self.encrypted else value
            return EncodeError(f"{problem}; the field is {self.type.name}", model, self.name, shown_value)
        problem = f"is missing: the field is {self.type.name}; give it a value, or declare it `{self.type.name} | None`"
        return EncodeError(problem, model, self.name, None, misuse=True)

    def absent(self) -> Any:
        """Return what is read where a row lacks the property: None if the field is optional, else its default."""
        return None if self.optional or self.default is None else self.default()


def annotation_name(annotation: object) -> str:
    """Return an annotation as a user would write it, without the modules of classes; with bounds in plain words."""
    if typing.get_origin(annotation) is Annotated:
        base, *extras = typing.get_args(annotation)
        limits = " and ".join(text for each in extras if isinstance(each, msgspec.Meta) for text in _limits_of(each))
        return f"{annotation_name(base)} {limits}" if limits else annotation_name(base)
    return annotation.__name__ if isinstance(annotation, type) else re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(annotation))


def _limits_of(meta: msgspec.Meta) -> list[str]:
    """Return what a value has to be besides its type: "from 0 to 9", "at least 0"."""
    if meta.ge is not None and meta.le is not None:
        return [f"from {meta.ge} to {meta.le}"]
    if meta.min_length is not None and meta.min_length == meta.max_length:
        return [f"of length {meta.min_length}"]
    words = {
        "gt": "above {}",
        "ge": "at least {}",
        "lt": "below {}",
        "le": "at most {}",
        "multiple_of": "divisible by {}",
        "pattern": "that matches {!r}",
        "min_length": "of length {} or more",
        "max_length": "of length {} or less",
    }
    given = {name: getattr(meta, name) for name in words}
    return [words[name].format(value) for name, value in given.items() if value is not None]


def split_optional(annotation: Any) -> tuple[Any, bool]:
    """Return (X, True) for `X | None`, and (annotation, False) for anything else."""
    origin = typing.get_origin(annotation)
    if origin is typing.Union or origin is types.UnionType:
        arguments = [a for a in typing.get_args(annotation) if a is not types.NoneType]
        if len(arguments) < len(typing.get_args(annotation)):
            rest: Any = arguments[0]
            for argument in arguments[1:]:
                rest = rest | argument
            return rest, True
    return annotation, False


def property_type(annotation: Any, most: int = MAX_VALUE_BYTES // 2) -> PropertyType | str:
    """
    Return the property type of an annotation without None, or what is wrong with the annotation.

    Args:
        annotation: The annotation.
        most: How many characters JSON text may have that is read: JSON of any length would be many objects.
    """
    structured = attrs.has(annotation) or is_dataclass(annotation) or is_pydantic_model(annotation)
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        base, *extras = typing.get_args(annotation)
        return _int32_type(base) if Edm.INT32 in extras or Int32 in extras else property_type(base, most)
    plain = _BY_PYTHON_TYPE.get(annotation) if isinstance(annotation, type) else None
    if plain is not None:
        return plain
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _enum_type(annotation)
    if structured or annotation in (dict, list) or origin in (dict, list):
        return _json_type(annotation, most)
    shown = annotation_name(cast(object, annotation))
    return (
        f"is declared as {shown}, which has no stored type; use str, int, Int32, float, bool, datetime, date, UUID, "
        "bytes, Decimal, an Enum, dict, list, an attrs class, a dataclass or a Pydantic model, or one of them | None"
    )


def _wrong_type(value: object, wanted: str) -> ValueError:
    given = type(value).__name__
    return ValueError(f"is {'an' if given[0] in 'aeiouAEIOU' else 'a'} {given}, not {wanted}")


def _encode_str(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, enum.Enum):
        raise _wrong_type(value, "a str")
    fault = check_text(value)
    if fault:
        raise ValueError(f"{fault}, which cannot be stored")
    return str.__str__(value)  # the text itself, whatever str() of a subclass returns


def _decode_str(value: Any, annotation: str | None) -> str:
    if type(value) is not str or annotation not in (None, Edm.STRING):
        if isinstance(value, BrokenText):
            raise ValueError(f"holds {shown(value)}, which {check_text(value)}")
        raise _wrong_stored_type(value, annotation, Edm.STRING)
    return value


def _wrong_stored_type(value: object, annotation: str | None, wanted: Edm) -> ValueError:
    kind = str(annotation or _JSON_NAMES.get(type(value).__name__, type(value).__name__))[:40]
    return ValueError(f"holds {shown(value)}, an {kind}, where {wanted} is declared")


_JSON_NAMES = {
    "str": "Edm.String",
    "bool": "Edm.Boolean",
    "int": "Edm.Int32",
    "float": "Edm.Double",
    "list": "array",
    "dict": "object",
}


def _read(value: str | int, kind: Edm) -> Value:
    """Return a stored value of a type. Raises ValueError, which names it, if it is none."""
    try:
        return decode(value, kind)
    except ValueError as error:
        raise ValueError(f"holds what cannot be read: {error}") from None


def _make_text_decoder(kind: Edm) -> Callable[[Any, str | None], Any]:
    """Return the decoder of a type whose values are texts in JSON, with an annotation."""

    def decode_text(value: Any, annotation: str | None) -> Any:
        if type(value) is str and annotation == kind:
            return _read(value, kind)
        raise _wrong_stored_type(value, annotation, kind)

    return decode_text


def _encode_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _wrong_type(value, "a bool")
    return value


def _decode_bool(value: Any, annotation: str | None) -> bool:
    if type(value) is not bool:
        raise _wrong_stored_type(value, annotation, Edm.BOOLEAN)
    return value


def _check_integer(value: Any, low: int, high: int, kind: Edm) -> int:
    if type(value) is not int:
        raise _wrong_type(value, "an int")
    if not low <= value <= high:
        raise ValueError(f"is outside the range of {kind}, {low} to {high}")
    return value


def _encode_int64(value: Any) -> str:
    return str(_check_integer(value, INT64_MIN, INT64_MAX, Edm.INT64))


def _decode_int64(value: Any, annotation: str | None) -> int:
    if type(value) is str and annotation == Edm.INT64:
        return cast("int", _read(value, Edm.INT64))
    if type(value) is int and annotation in (None, Edm.INT32):
        return value  # reading an Int32 where Int64 is declared loses nothing
    raise _wrong_stored_type(value, annotation, Edm.INT64)


def _encode_int32(value: Any) -> int:
    return _check_integer(value, INT32_MIN, INT32_MAX, Edm.INT32)


def _decode_int32(value: Any, annotation: str | None) -> int:
    if type(value) is int and annotation in (None, Edm.INT32):
        return cast("int", _read(value, Edm.INT32))
    raise _wrong_stored_type(value, annotation, Edm.INT32)


def _encode_double(value: Any) -> float | str:
    if type(value) is not float:
        if type(value) is not int:
            raise _wrong_type(value, "a float")
        try:
            exact = int(float(value)) == value
        except OverflowError:
            exact = False
        if not exact:
            raise ValueError("is not exact as a float")
        value = float(value)
    if math.isfinite(value):
        return float(value)
    return special_text(value)


def _decode_double(value: Any, annotation: str | None) -> float:
    if type(value) is float:
        return value
    if type(value) is str and annotation == Edm.DOUBLE and value in SPECIAL_DOUBLES:
        return SPECIAL_DOUBLES[value]
    # Clients without a float type (JavaScript) send 3.0 as 3; reading that as a float loses nothing.
    if type(value) is int and annotation in (None, Edm.DOUBLE):
        return float(value)
    raise _wrong_stored_type(value, annotation, Edm.DOUBLE)


def _encode_datetime(value: Any) -> str:
    if not isinstance(value, dt.datetime):
        raise _wrong_type(value, "a datetime")
    if value.utcoffset() is None:
        raise ValueError(
            "is naive; give it a time zone, for example datetime.now(UTC), or in JSON '2024-02-29T12:00:00Z'"
        )
    try:
        return text_from_datetime(value)
    except ValueError:
        raise ValueError("is outside the range of Edm.DateTime, 1601-01-01 to 9999-12-31 in UTC") from None


def _encode_guid(value: Any) -> str:
    if not isinstance(value, UUID):
        raise _wrong_type(value, "a UUID; give UUID(text)" if isinstance(value, str) else "a UUID")
    return str(value)


def _encode_binary(value: Any) -> str:
    if type(value) is not bytes:
        raise _wrong_type(value, "bytes")
    return b64encode(value).decode("ascii")


def _decode_binary(value: Any, annotation: str | None) -> bytes:
    if type(value) is str and annotation == Edm.BINARY:
        try:
            return b64decode(value, validate=True)
        except ValueError:
            raise ValueError(f"holds {shown(value)}, which is not base64") from None
    raise _wrong_stored_type(value, annotation, Edm.BINARY)


_PLAIN = {
    kind: PropertyType(annotation=python, edm=kind, encode=encode, decode=decode, inline=True)
    for python, kind, encode, decode in (
        (str, Edm.STRING, _encode_str, _decode_str),
        (bool, Edm.BOOLEAN, _encode_bool, _decode_bool),
        (int, Edm.INT64, _encode_int64, _decode_int64),
        (int, Edm.INT32, _encode_int32, _decode_int32),
        (float, Edm.DOUBLE, _encode_double, _decode_double),
        (dt.datetime, Edm.DATETIME, _encode_datetime, _make_text_decoder(Edm.DATETIME)),
        (UUID, Edm.GUID, _encode_guid, _make_text_decoder(Edm.GUID)),
        (bytes, Edm.BINARY, _encode_binary, _decode_binary),
    )
}


def _encode_date(value: Any) -> str:
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise _wrong_type(value, "a date")
    return value.isoformat()


def _encode_decimal(value: Any) -> str:
    if not isinstance(value, Decimal):
        raise _wrong_type(value, "a Decimal")
    return str(value)


def _make_decoder(read: Callable[[str], Any], what: str) -> Callable[[Any, str | None], Any]:
    def decode(value: Any, annotation: str | None) -> Any:
        text = _decode_str(value, annotation)
        try:
            return read(text)
        except (ValueError, ArithmeticError):
            raise ValueError(f"holds {shown(value)}, which is not a {what}") from None

    return decode


_BY_PYTHON_TYPE: dict[type, PropertyType] = {
    **{plain.annotation: plain for kind, plain in _PLAIN.items() if kind is not Edm.INT32},
    dt.date: PropertyType(
        annotation=dt.date,
        edm=Edm.STRING,
        encode=_encode_date,
        decode=_make_decoder(dt.date.fromisoformat, "date"),
    ),
    Decimal: PropertyType(
        annotation=Decimal,
        edm=Edm.STRING,
        encode=_encode_decimal,
        decode=_make_decoder(Decimal, "decimal number"),
    ),
}


def _int32_type(annotation: Any) -> PropertyType | str:
    """Return the type of an int, or an enum of ints, that is stored as Edm.Int32; or what is wrong with it."""
    small = _PLAIN[Edm.INT32]
    if annotation is int:
        return small
    if not isinstance(annotation, type) or not issubclass(annotation, enum.Enum):
        declared = annotation_name(cast(object, annotation))
        return f"is declared as {declared} with Int32, which holds an int or an enum of ints"
    for member in annotation:
        try:
            small.encode(member.value)
        except ValueError as error:
            return f"is declared as {annotation.__name__} with Int32, and {member} = {shown(member.value)} {error}"
    return _stored_as(annotation, small)


def _enum_type(annotation: type[enum.Enum]) -> PropertyType | str:
    kinds: set[type[Any]] = {type(member.value) for member in annotation}
    inner = _BY_PYTHON_TYPE.get(kinds.pop()) if len(kinds) == 1 else None
    if inner is None or not inner.inline:
        return f"is declared as {annotation.__name__}, whose values are not all of one stored type such as str or int"
    return _stored_as(annotation, inner)


def _stored_as(annotation: type[enum.Enum], base: PropertyType) -> PropertyType:
    """Return the type of an enum whose values are stored as those of a plain type."""

    def encode(value: Any) -> Any:
        if not isinstance(value, annotation):
            raise _wrong_type(value, f"a {annotation.__name__}")
        return base.encode(value.value)

    def decode(value: Any, stored: str | None) -> Any:
        plain = base.decode(value, stored)
        try:
            return annotation(plain)
        except ValueError:
            known = ", ".join(repr(member.value) for member in annotation)
            raise ValueError(
                f"holds {shown(plain)}, which is not a value of {annotation.__name__}; its values are {known}"
            ) from None

    return PropertyType(annotation=annotation, edm=base.edm, encode=encode, decode=decode)


_json_writer = msgspec.json.Encoder(enc_hook=write_pydantic).encode


def _json_type(annotation: Any, most: int) -> PropertyType | str:
    try:
        reader = msgspec.json.Decoder(annotation, dec_hook=read_pydantic)
        complete = make_completer(annotation)
        problem = find_unstorable(annotation)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:  # a class may name types that are not there
        return f"is declared as {annotation_name(annotation)}, which has no JSON form: {error}"
    if problem is not None:
        return f"is declared as {annotation_name(annotation)}, which has no JSON form: {problem}"
    base, write = typing.get_origin(annotation) or annotation, _json_writer

    def encode(value: Any) -> str:
        kind.check(value)
        try:
            text = write(value)
            back = reader.decode(text)
            # JSON turns NaN into null, a tuple into a list, an int key into text. Such values are rejected.
            same = _are_equal(back, value) if _has_equality(base) else write(back) == text
        except (*REFUSALS, RecursionError) as error:
            raise ValueError(f"has no exact JSON form: {error}") from None
        if not same:
            raise ValueError(_describe_difference(value, back))
        return text.decode("utf-8")

    def decode(value: Any, stored: str | None) -> Any:
        text = _decode_str(value, stored)
        if len(text) > most:
            raise ValueError(f"holds JSON text of {len(text):,} characters, where {most:,} are allowed")
        try:
            made = reader.decode(text)
        except (msgspec.DecodeError, *REFUSALS, RecursionError) as error:
            raise ValueError(f"holds JSON text that is not a {base.__name__}: {error}") from None
        if complete is not None:
            complete(made)
        return made

    kind = PropertyType(
        annotation=annotation,
        edm=Edm.STRING,
        encode=encode,
        decode=decode,
        json_text=True,
        complete=complete,
    )
    return kind


def _describe_difference(value: Any, back: Any, place: str = "") -> str:
    """Return where a value differs from what is read back of it, and what to do."""
    for key, one, other in _pairs_of(value, back):
        if type(one) is not type(other) or not _are_equal(one, other):
            return _describe_difference(one, other, f"{place}[{key!r}]")
    given, kind = cast("object", value), type(cast("object", back))
    if isinstance(given, dict) and (attrs.has(kind) or is_dataclass(kind) or is_pydantic_model(kind)):
        what = f"the dict {shown(cast('object', given))} at {place or 'the top'}"
        return f"has {what} where the type is a class; give a {kind.__name__}"
    return (
        "contains something that JSON does not preserve, such as NaN, a tuple, or a key that is not a str: "
        f"{place or 'it'}, {shown(value)}, would be read as {shown(back)}; give a value that JSON preserves"
    )


def _pairs_of(value: Any, back: Any) -> list[tuple[Any, Any, Any]]:
    """Return the places of two lists or dicts that have the same ones, with what is there."""
    kinds: set[type[object]] = {type(value), type(back)}
    if kinds == {list}:
        return [*zip(range(len(value)), value, back, strict=True)]
    if kinds == {dict} and value.keys() == back.keys():
        return [(key, one, back[key]) for key, one in value.items()]
    return []


def _are_equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except ArithmeticError:
        return False  # the decimal sNaN cannot be compared


def _has_equality(kind: type) -> bool:
    return any("__eq__" in base.__dict__ for base in kind.__mro__ if base is not object)
