"""
Read the body of a model's class: its fields, with their annotations, defaults and property names.
"""

import inspect
import keyword
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal

import attrs

from ..errors import ModelError, shown
from ..protocol.codes import Fault
from ..protocol.limits import check_property_name
from ..types import Int32
from .fields import FieldDeclaration, Mapped, shape_of
from .property_types import (
    FieldOptions,
    Member,
    PropertyType,
    ValueType,
    annotation_name,
    property_type,
    split_optional,
)
from .reserved import RESERVED_FIELDS, is_reserved_property
from .schema import FieldInfo, Schema

Naming = Literal["as_written", "pascal"] | Callable[[str], str]


def pascal_case(name: str) -> str:
    """Turn `first_name` into `FirstName`."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def as_written(name: str) -> str:
    """Return the name as it is."""
    return name


def bare_annotation(annotation: Any) -> Any:
    """Return a field's type as key formats need it: without None, and without `Annotated` unless it is Int32."""
    bare = split_optional(annotation)[0]
    return typing.get_args(bare)[0] if typing.get_origin(bare) is typing.Annotated and bare != Int32 else bare


def refuse_odd_bases(model: type[Any]) -> None:
    """Refuse bases that a model cannot have. Raises ModelError."""
    name = model.__name__
    if getattr(model, "__parameters__", ()) or any(
        typing.get_origin(base) is not None for base in model.__dict__.get("__orig_bases__", ())
    ):
        raise ModelError(f"{name} is generic: a stored model needs fixed types; declare one class per type")
    for base in model.__mro__[1:]:
        if (
            base is object
            or "__schema__" in base.__dict__
            or base.__module__ in (f"{__package__}.entity", f"{__package__}.key")
        ):
            continue
        mapped = [field for field, text in inspect.get_annotations(base).items() if _looks_mapped(text)]
        declared = [field for field, value in vars(base).items() if isinstance(value, FieldDeclaration)]
        foreign = [attribute.name for attribute in base.__dict__.get("__attrs_attrs__", ())]
        foreign += base.__dict__.get("__dataclass_fields__", ())
        if mapped or declared or foreign:
            first = (mapped + declared + foreign)[0]
            raise ModelError(
                f"{name} inherits the field {first!r} from {base.__name__}, which is a plain class; make it "
                f"an abstract entity: class {base.__name__}(Entity, abstract=True)"
            )


def _looks_mapped(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.split("[")[0].rpartition(".")[2] == "Mapped"
    return _is_mapped(typing.get_origin(annotation) or annotation)


@attrs.frozen
class _Declared:
    """
    A field of a class body: its annotation inside `Mapped`, its `field(...)` with its shape, and the name of its
    property.
    """

    annotation: Any
    declaration: FieldDeclaration
    stored_as: str

    @property
    def key_type(self) -> Any:
        """The type that formats of keys are chosen by: that of no value where values have several members."""
        shape = self.declaration.shape
        return bare_annotation(self.annotation) if shape is None else type(shape)


def own_fields(model: type[Any], rename: Callable[[str], str], frames: int) -> dict[str, _Declared]:
    """Read the fields of the class body."""
    name = model.__name__
    annotations = inspect.get_annotations(model)
    for field, value in vars(model).items():
        if isinstance(value, FieldDeclaration) and field not in annotations:
            raise ModelError(f"{name}.{field} = field(...) has no type; write {field}: Mapped[...] = field(...)")
    own: dict[str, _Declared] = {}
    for field, text in annotations.items():
        annotation = _resolve_annotation(model, field, text, frames + 1)
        if typing.get_origin(annotation) is ClassVar or annotation is ClassVar:
            continue
        kind: Any = typing.get_origin(annotation)
        if not _is_mapped(kind):
            raise ModelError(
                f"{name}.{field} is annotated {annotation_name(annotation)}; a field is Mapped[...], for example "
                f"{field}: Mapped[str], and anything else is ClassVar[...]"
            )
        _check_field_name(name, field)
        declared = vars(model).get(field, FieldDeclaration())
        if not isinstance(declared, FieldDeclaration):
            raise ModelError(
                f"{name}.{field} has the default {declared!r}; write {field}: Mapped[...] = field(default={declared!r})"
            )
        _check_makers(f"{name}.{field}", declared)
        inner = typing.get_args(annotation)[0]
        shape = declared.shape or shape_of(kind, split_optional(inner)[0])
        if shape is not None:
            shape = shape.for_encrypted() if declared.encrypted else shape
            try:
                shape.bind(model, field, kind, inner)
            except ValueError as error:
                raise ModelError(f"{name}.{field} {error}") from None
            declared = attrs.evolve(declared, shape=shape, readonly=declared.readonly or shape.uploads)
        own[field] = _Declared(inner, declared, declared.name or rename(field))
    return own


def _is_mapped(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Mapped)


def _check_makers(label: str, declared: FieldDeclaration) -> None:
    """Refuse functions that make the value of a field and need arguments, since they get none. Raises ModelError."""
    makers = ("on_insert", declared.on_insert), ("on_write", declared.on_write)
    for argument, function in (*makers, ("factory", declared.arguments.get("factory"))):
        try:
            parameters = [] if function in _NEED_NONE else [*inspect.signature(function).parameters.values()]
        except (TypeError, ValueError):  # some of C do not tell
            continue
        needed = [each.name for each in parameters if each.default is each.empty and each.kind not in _OPEN_ENDED]
        if needed:
            raise ModelError(
                f"{label}: field({argument}={shown(function)}) is rejected: the function is called without "
                f"arguments, and this one needs {', '.join(needed)}; give a function that takes none"
            )


_NEED_NONE = (None, list, dict, set)
_OPEN_ENDED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def all_fields(model: type[Any], own: dict[str, _Declared]) -> dict[str, _Declared]:
    """Return the fields of the class and its bases, each as the nearest class declares it."""
    model.__declarations__ = own
    declared: dict[str, _Declared] = {}
    for base in reversed(model.__mro__):
        declared |= base.__dict__.get("__declarations__", {})
    for field in declared:
        if field in vars(model):
            raise ModelError(
                f"{model.__name__}.{field} = {vars(model)[field]!r} hides an inherited field; give it another "
                f"name, or declare the field again: {field}: Mapped[...] = field(default=...)"
            )
    return declared


def _check_field_name(model: str, field: str) -> None:
    if field in RESERVED_FIELDS:
        raise ModelError(
            f"{model}.{field}: every entity has an attribute {field!r}; give the field another name, and the "
            f"stored property this one: {field}_: Mapped[...] = field(name={field!r})"
        )
    if field.startswith("_") or field == "self" or keyword.iskeyword(field):
        raise ModelError(
            f"{model}.{field}: a field name must be a public identifier other than self; give the stored name "
            "by field(name=...)"
        )


def _resolve_annotation(model: type[Any], field: str, annotation: Any, frames: int) -> Any:
    """Look up the names of an annotation: in the class, around the class statement, and in the module."""
    module = sys.modules.get(model.__module__)
    frame: types.FrameType | None = sys._getframe(frames)  # pyright: ignore[reportPrivateUsage]  # as collections.namedtuple does
    scopes: list[dict[str, Any]] = []
    file = frame.f_code.co_filename if frame else ""
    while frame is not None and frame.f_code.co_filename == file:
        if frame.f_locals is not frame.f_globals:
            scopes.append(frame.f_locals)
        frame = frame.f_back
    # The names that the class statement sees come first. If only the annotation uses a name of the function around it,
    # that name is not among them. That function is usually a caller, so the names of callers come last.
    scopes[1:1] = [{model.__name__: model}, vars(module) if module else {}]
    names: dict[str, Any] = {}
    for scope in reversed(scopes):
        names |= scope
    # The annotation is resolved in a class, because ClassVar is allowed only there.
    holder = type(model.__name__, (), {"__annotations__": {field: annotation}, "__module__": model.__module__})
    try:
        hints = typing.get_type_hints(holder, names, names, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise ModelError(f"{model.__name__}.{field}: cannot resolve its annotation {annotation!r}: {error}") from None
    return hints[field]


def make_attrs_class(model: type[Any], own: dict[str, _Declared]) -> Any:
    """Turn the model into an attrs class, in place. Return the `__setattr__` of its own body, or None."""
    if "__init__" in vars(model):
        raise ModelError(
            f"{model.__name__}.__init__ is rejected: an entity is created from its fields; write a classmethod that "
            "takes other values, field(converter=...), or __attrs_post_init__"
        )
    these: dict[str, Any] = {}
    for field, each in own.items():
        arguments = each.declaration.arguments
        default = arguments.get("default")
        # A value that cannot be hashed can be changed; dataclasses use the same rule.
        if type(default).__hash__ is None:
            raise ModelError(
                f"{model.__name__}.{field} has the mutable default {default!r}, which all entities would share; use "
                f"factory={type(default).__name__}, or a function that creates the value"
            )
        these[field] = attrs.field(**arguments)
    for field in own:
        if field in vars(model):
            delattr(model, field)
    setter = vars(model).get("__setattr__")
    try:
        # Entities have their own equality and representation, which work when fields were not loaded.
        # Frozen, an entity is made through its dictionary; `guard_attributes` lets fields be set.
        attrs.define(model, these=these, slots=False, kw_only=True, eq=False, repr=False, order=False, frozen=True)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{model.__name__}: {error}") from None
    return setter


def field_infos(model: type[Any], declared: dict[str, _Declared], full: frozenset[str]) -> dict[str, FieldInfo]:
    """Return what the schema knows of each field, by name."""
    infos: dict[str, FieldInfo] = {}
    encrypts = any(each.declaration.encrypted for each in declared.values())
    for attribute in attrs.fields(model):
        field = attribute.name
        each = declared[field]
        bare, optional = split_optional(each.annotation)
        name = f"{model.__name__}.{field}"
        given = each.declaration
        other = next(_find_models(bare), None) if given.shape is None else None
        if other is not None:
            raise ModelError(
                f"{name} is declared with {other.__name__}, which is a model; declare fields for its key instead"
            )
        kind: ValueType | str
        if given.shape is None:
            kind = property_type(bare)
        else:
            kind, optional = given.shape.value_type(each.annotation)
            if encrypts and not given.encrypted:
                given = attrs.evolve(given, shape=given.shape.beside_encrypted())
        if isinstance(kind, str):
            raise ModelError(f"{name} {kind}")
        infos[field] = info = FieldInfo(
            name=field,
            members=_members(name, field, each, kind),
            type=kind,
            optional=optional,
            default=_make_default(name, attribute),
            stored=field not in full or given.stored,
            **{option.name: getattr(given, option.name) for option in attrs.fields(FieldOptions)},
        )
        _check_default(name, attribute, info)
    _check_properties(model.__name__, infos)
    return infos


def _find_models(annotation: Any) -> Iterator[type[Any]]:
    if isinstance(annotation, type) and isinstance(annotation.__dict__.get("__schema__"), Schema):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _find_models(argument)


def _members(label: str, field: str, declared: _Declared, kind: ValueType) -> tuple[Member, ...]:
    """Return the members of a field. Raises ModelError if its shape has a member of a type that is not stored."""
    shape = declared.declaration.shape
    if isinstance(kind, PropertyType) and shape is None:
        return (Member(field, field, declared.stored_as, kind),)
    assert shape is not None
    found: list[Member] = []
    for path, name, annotation in shape.members(field, declared.stored_as):
        kind_of_member = property_type(annotation)
        if isinstance(kind_of_member, str):
            raise ModelError(f"{label}: {path} {kind_of_member}")
        found.append(Member(field, path, name, kind_of_member))
    return tuple(found)


def _make_default(name: str, attribute: Any) -> Callable[[], Any] | None:
    """Return a function that makes the default of a field, already converted; None if there is none."""
    default, convert = attribute.default, attribute.converter
    if default is attrs.NOTHING:
        return None
    if isinstance(convert, attrs.Converter):
        raise ModelError(f"{name}: attrs.Converter is not supported; give a function that takes only the value")
    make: Callable[[], Any] = lambda: default  # noqa: E731
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        if default.takes_self:
            raise ModelError(f"{name}: a factory that takes the entity is not supported")
        make = default.factory
    if default is None:
        make = type(None)  # calling it costs less than calling a lambda
    return make if convert is None else lambda: convert(make())


def _check_default(name: str, attribute: Any, info: FieldInfo) -> None:
    """Refuse a default that no property can hold. What a function makes is rejected when it is written."""
    default, kind = attribute.default, info.type.name
    if default is attrs.NOTHING or isinstance(default, attrs.Factory) or attribute.converter is not None:  # type: ignore[arg-type]
        return
    if default is None:
        if not info.optional:
            raise ModelError(f"{name} has the default None; declare the field Mapped[{kind} | None]")
        return
    try:
        info.write(default)
    except ValueError as error:
        raise ModelError(f"{name} has the default {default!r}, which {error}; the field is {kind}") from None


def _check_properties(model: str, infos: dict[str, FieldInfo]) -> None:
    seen: dict[str, str] = {}
    for member in (member for info in infos.values() if info.stored for member in info.members):
        path, name = member.path, member.property
        if is_reserved_property(name):
            raise ModelError(
                f"{model}.{path} would be stored as {name!r}, which is a reserved name; choose another by "
                "field(name=...)"
            )
        try:
            check_property_name(name)
        except Fault as fault:
            raise ModelError(f"{model}.{path}: {fault.message}") from None
        if name in seen:
            raise ModelError(f"{model}: {seen[name]!r} and {path!r} are both stored as {name!r}")
        seen[name] = path
