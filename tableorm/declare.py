"""
From a class body to a schema: what `class Employee(Entity, ...)` declares, checked when the class is made.
"""

import enum
import inspect
import keyword
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import attrs

from .derivations import Derivation
from .errors import ModelError, NotSupported
from .expressions import Field
from .families import check_copies, check_heads
from .fields import FieldDeclaration, FieldDescriptor, Mapped
from .indexes import Index, IndexSchema, refuse_meeting
from .lists import IndexList, ListSchema
from .properties import Int32, PropertyType, property_type, split_optional
from .protocol.codes import Fault
from .protocol.edm import check_text
from .protocol.limits import MAX_CUSTOM_PROPERTIES, check_property_name, check_table_name
from .related import Count, Embedded, EmbedSchema, Sum, TallySchema
from .reserved import RESERVED_FIELDS, is_reserved_property
from .schema import Discriminator, FieldInfo, Schema
from .template_syntax import parse_template
from .templates import Template

if TYPE_CHECKING:
    from .entity import Entity

__all__ = ["Auto", "Naming", "declare"]

Naming = Literal["as_written", "pascal"] | Callable[[str], str]


class Auto(enum.Enum):
    """Default of the class keyword `kind`, where None means something else."""

    CLASS_NAME = "the name of the class"


def _pascal(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def _as_written(name: str) -> str:
    return name


def declare(
    model: "type[Entity]",
    *,
    table: str | None,
    partition_key: str | None,
    row_key: str | None,
    kind: str | Auto | None,
    version: int,
    discriminator: Discriminator | None,
    abstract: bool,
    naming: Naming | None,
    write_token: bool | None,
    guarded: bool | None,
    frames: int,
) -> Schema:
    """
    Make an attrs class of `model` and read its schema.

    Args:
        model: The new class.
        table: Class keyword, None if not given; inherited like the next two.
        partition_key: Class keyword.
        row_key: Class keyword.
        kind: Class keyword; the class name if not given.
        version: Class keyword.
        discriminator: Class keyword.
        abstract: Class keyword.
        naming: Class keyword.
        write_token: Class keyword, None if not given; inherited.
        guarded: Class keyword, None if not given; inherited.
        frames: How many frames up the class statement stands, to resolve names local to a function.

    Raises:
        ModelError: The declaration is wrong; names the class and the field or keyword.
    """
    name = model.__name__
    _refuse_odd_bases(model)
    _check_texts(name, table=table, partition_key=partition_key, row_key=row_key)
    found = [base.__dict__.get("__schema__") for base in model.__mro__[1:]]
    parents = [schema for schema in found if isinstance(schema, Schema)]
    inherited = parents[0].naming if parents else _as_written
    rename = (
        {"as_written": _as_written, "pascal": _pascal}.get(naming) if isinstance(naming, str) else naming or inherited
    )
    if rename is None:
        raise ModelError(f"{name}: naming={naming!r} is unknown; use 'as_written', 'pascal' or a function")
    own = _own_fields(model, rename, frames + 1)
    chosen: Any = discriminator or (parents[0].discriminator if parents else "property")
    if chosen not in ("property", "row_key", "partition_key") and not callable(chosen):
        raise ModelError(
            f"{name}: discriminator={chosen!r} is unknown; use 'property', 'row_key', 'partition_key' or a "
            "function from a PropertyBag to a model"
        )
    stored_kind = name if isinstance(kind, Auto) else kind
    _check_kind(name, stored_kind, version)
    if table is None:
        table = next((p.table for p in parents if p.table), None)
    if table is not None:
        try:
            check_table_name(table)
        except Fault as fault:
            raise ModelError(f"{name}: table={table!r} is refused: {fault.message}") from None
    _make_attrs(model, own)
    declared = _all_fields(model, own)
    annotations = {field: _bare(each.annotation) for field, each in declared.items()}
    if partition_key is None:
        partition_key = next((p.partition.text for p in parents if p.partition), None)
    if row_key is None:
        row_key = next((p.row.text for p in parents if p.row), None)
    texts = {"partition_key": partition_key, "row_key": row_key}
    templates: dict[str, Template | None] = {
        key: None if text is None else parse_template(text, name, key, annotations, stored_kind)
        for key, text in texts.items()
    }
    if not abstract:
        missing = [key for key, template in {"table": table, **templates}.items() if template is None]
        if missing:
            raise ModelError(
                f"{name} needs {', '.join(missing)}: class {name}(Entity, table=..., partition_key=..., row_key=...), "
                "or abstract=True for a base without entities"
            )
    full = frozenset[str]().union(*(t.full_fields for t in templates.values() if t))
    fields = _field_infos(model, declared, full)
    schema = Schema(
        model=model,
        table=table,
        abstract=abstract,
        kind=stored_kind,
        version=version,
        discriminator=cast(Discriminator, chosen),
        naming=rename,
        partition=templates["partition_key"],
        row=templates["row_key"],
        fields=fields,
        write_token=bool(parents and parents[0].write_token) if write_token is None else bool(write_token),
        guarded=bool(parents and parents[0].guarded) if guarded is None else bool(guarded),
    )
    for info in schema.filled:
        if info.name in schema.key_fields:
            raise ModelError(f"{name}.{info.name} is part of the key, which no write can fill; use factory=")
    for info in schema.kept:
        if info.name in schema.key_fields or info in schema.filled or info.default is None:
            raise ModelError(
                f"{name}.{info.name} = field(kept=True) is refused: other entities keep it, so it cannot be part of "
                "the key, nor be filled on write, and needs a default: field(default=0, kept=True)"
            )
    derived = _declared_derived(model, fields)
    if not abstract:
        check_heads(schema, parents)
        _add_derived(schema, derived, annotations)
        check_copies(schema, parents)
    for field in fields:
        setattr(model, field, FieldDescriptor(Field(model, field)))
    schema.check_relations()
    return schema


def _declared_derived(model: type[Any], fields: Mapping[str, FieldInfo]) -> dict[str, Derivation]:
    """What is derived from entities, as the class and its bases declare it, each as the nearest class does."""
    declared: dict[str, Derivation] = {}
    for base in reversed(model.__mro__):
        for name, each in vars(base).items():
            if isinstance(each, Derivation):
                declared[name] = each
            elif isinstance(each, type) and issubclass(each, Derivation):
                raise ModelError(f"{model.__name__}.{name} is the class {each.__name__}; write {each.__name__}(...)")
            elif name in declared:
                raise ModelError(f"{model.__name__}.{name} = {each!r} hides an inherited index; call it otherwise")
    for name, each in declared.items():
        if name in fields:
            raise ModelError(f"{model.__name__}.{name} is a field, and hides an inherited index; call it otherwise")
        if getattr(each, "name", name) != name:
            raise ModelError(
                f"{model.__name__}.{name} is the same object as one that is called {each.name!r}; make another "
                f"{type(each).__name__}(...) for it"
            )
        if name in RESERVED_FIELDS or name.startswith("_"):
            raise ModelError(
                f"{model.__name__}.{name} = {type(each).__name__}(...): the name {name!r} is not free; call it "
                "otherwise"
            )
    return declared


def _add_derived(schema: Schema, declared: Mapping[str, Any], annotations: dict[str, Any]) -> None:
    assert schema.partition is not None
    templates: dict[str, Template] = {}
    for name, each in declared.items():
        label = f"{schema.name}.{name}"
        if isinstance(each, Embedded):
            schema.embeds[name] = EmbedSchema(name, each, schema)
        elif isinstance(each, (Count, Sum)):
            schema.tallies[name] = TallySchema(name, each, schema)
        else:
            row = parse_template(each.row_key, label, "row_key", annotations, schema.kind)
            if isinstance(each, IndexList):
                schema.lists[name] = ListSchema(each, schema, row)
                row = schema.lists[name].rows
            else:
                _check_partition(label, each, schema.partition)
                schema.indexes[name] = IndexSchema(each, schema, row)
            for other, template in templates.items():
                refuse_meeting(label, row, f"{schema.name}.{other}", template)
            templates[name] = row
    copied = [field for each in schema.embeds.values() for field in each.declared.fields]
    twice = next((field for field in copied if copied.count(field) > 1), None)
    if twice is not None:
        raise ModelError(f"{schema.name}.{twice} would hold copies by two Embedded(...); give each fields of its own")
    if declared:
        schema.guarded = schema.write_token = True
    count = len(schema.stored) + len(schema.kind_properties) + 2
    if schema.guarded and count > MAX_CUSTOM_PROPERTIES:
        raise ModelError(
            f"{schema.name} has {len(schema.stored)} stored fields, and with the note of what is derived from them "
            f"{count} properties; a row holds {MAX_CUSTOM_PROPERTIES}"
        )


def _check_partition(label: str, index: Index, partition: Template) -> None:
    if index.consistency == "eventual":
        raise NotSupported(
            f"{label}: consistency='eventual' is not supported yet; leave it out, and the index {index.row_key!r} is "
            "in the partition of the entity, and transactional"
        )
    if index.partition_key is not None and index.partition_key != partition.text:
        raise NotSupported(
            f"{label}: partition_key={index.partition_key!r} is not the model's, {partition.text!r}; an index in "
            "another partition needs consistency='eventual', which is not supported yet"
        )


def _bare(annotation: Any) -> Any:
    """The type of a field as key formats take it: without None, and without what `Annotated` adds except Int32."""
    bare = split_optional(annotation)[0]
    return typing.get_args(bare)[0] if typing.get_origin(bare) is typing.Annotated and bare != Int32 else bare


def _check_texts(name: str, **keywords: object) -> None:
    for keyword_name, value in keywords.items():
        if value is not None and not isinstance(value, str):
            raise ModelError(f"{name}: {keyword_name}={value!r} is refused: give a str")


def _refuse_odd_bases(model: type[Any]) -> None:
    name = model.__name__
    if getattr(model, "__parameters__", ()) or any(
        typing.get_origin(base) is not None for base in model.__dict__.get("__orig_bases__", ())
    ):
        raise ModelError(f"{name} is generic: a stored model needs types that are known; declare one class per type")
    for base in model.__mro__[1:]:
        if (
            base is object
            or "__schema__" in base.__dict__
            or base.__module__ == __name__.rpartition(".")[0] + ".entity"
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
    return typing.get_origin(annotation) is Mapped or annotation is Mapped


@attrs.frozen
class _Declared:
    """A field of a class body: its annotation inside `Mapped`, its `field(...)`, and the name of its property."""

    annotation: Any
    declaration: FieldDeclaration | None
    property: str


def _own_fields(model: type[Any], rename: Callable[[str], str], frames: int) -> dict[str, _Declared]:
    """The fields of the class body."""
    name = model.__name__
    annotations = inspect.get_annotations(model)
    for field, value in vars(model).items():
        if isinstance(value, FieldDeclaration) and field not in annotations:
            raise ModelError(f"{name}.{field} = field(...) has no type; write {field}: Mapped[...] = field(...)")
    own: dict[str, _Declared] = {}
    for field, text in annotations.items():
        annotation = _resolve(model, field, text, frames + 1)
        if typing.get_origin(annotation) is ClassVar or annotation is ClassVar:
            continue
        if typing.get_origin(annotation) is not Mapped:
            raise ModelError(
                f"{name}.{field} is annotated {_shown(annotation)}; a field is Mapped[...], for example "
                f"{field}: Mapped[str], and anything else is ClassVar[...]"
            )
        _check_field_name(name, field)
        declared = vars(model).get(field)
        if declared is not None and not isinstance(declared, FieldDeclaration):
            raise ModelError(
                f"{name}.{field} has the default {declared!r}; write {field}: Mapped[...] = field(default={declared!r})"
            )
        given = declared.name if declared is not None else None
        own[field] = _Declared(typing.get_args(annotation)[0], declared, given or rename(field))
    return own


def _all_fields(model: type[Any], own: dict[str, _Declared]) -> dict[str, _Declared]:
    """The fields of the class and its bases, each as the nearest class declares it."""
    model.__declarations__ = own
    declared: dict[str, _Declared] = {}
    for base in reversed(model.__mro__):
        declared |= base.__dict__.get("__declarations__", {})
    for field in declared:
        if field in vars(model):
            raise ModelError(
                f"{model.__name__}.{field} = {vars(model)[field]!r} hides an inherited field; call it otherwise, or "
                f"declare the field again: {field}: Mapped[...] = field(default=...)"
            )
    return declared


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _check_field_name(model: str, field: str) -> None:
    if field in RESERVED_FIELDS:
        raise ModelError(
            f"{model}.{field}: the name {field!r} belongs to every entity; call the field otherwise and give the "
            f"stored name: {field}_: Mapped[...] = field(name={field!r})"
        )
    if field.startswith("_") or field == "self" or keyword.iskeyword(field):
        raise ModelError(
            f"{model}.{field}: a field name is a public identifier other than self; give the stored name by "
            "field(name=...)"
        )


def _resolve(model: type[Any], field: str, annotation: Any, frames: int) -> Any:
    """An annotation with its names looked up: in the class, where the class statement stands, in the module."""
    module = sys.modules.get(model.__module__)
    frame: types.FrameType | None = sys._getframe(frames)  # pyright: ignore[reportPrivateUsage]  # as collections.namedtuple does
    scopes: list[dict[str, Any]] = []
    file = frame.f_code.co_filename if frame else ""
    while frame is not None and frame.f_code.co_filename == file:
        if frame.f_locals is not frame.f_globals:
            scopes.append(frame.f_locals)
        frame = frame.f_back
    # What the class statement sees comes first. A name of a function around it, which only the annotation uses, is not
    # among its own; that function is usually a caller, whose names serve where nothing else does.
    scopes[1:1] = [{model.__name__: model}, vars(module) if module else {}]
    names: dict[str, Any] = {}
    for scope in reversed(scopes):
        names |= scope
    # A class of its own: only there is ClassVar allowed.
    holder = type(model.__name__, (), {"__annotations__": {field: annotation}, "__module__": model.__module__})
    try:
        hints = typing.get_type_hints(holder, names, names, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise ModelError(f"{model.__name__}.{field}: cannot resolve its annotation {annotation!r}: {error}") from None
    return hints[field]


def _make_attrs(model: type[Any], own: dict[str, _Declared]) -> None:
    these: dict[str, Any] = {}
    for field, each in own.items():
        arguments = dict(each.declaration.arguments) if each.declaration else {}
        default = arguments.get("default")
        # As dataclasses do: what cannot be hashed can be changed.
        if type(default).__hash__ is None:
            raise ModelError(
                f"{model.__name__}.{field} has the mutable default {default!r}, which all entities would share; use "
                f"factory={type(default).__name__}, or a function that makes it"
            )
        these[field] = attrs.field(**arguments)
    for field in own:
        if field in vars(model):
            delattr(model, field)
    try:
        # Equality and representation are the entity's own: they must work when fields were not loaded.
        attrs.define(model, these=these, slots=False, kw_only=True, eq=False, repr=False, order=False)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{model.__name__}: {error}") from None


def _check_kind(name: str, kind: str | None, version: int) -> None:
    _check_texts(name, kind=kind)
    if kind is not None and (not kind or ":" in kind or "#" in kind or check_text(kind)):
        raise ModelError(f"{name}: kind={kind!r} is refused: it must be text that is not empty and holds no ':' or '#'")
    if kind is None and version != 1:
        raise ModelError(f"{name}: version={version!r} is refused with kind=None, which stores no version")
    if type(version) is not int or version < 1:
        raise ModelError(f"{name}: version={version!r} is refused: versions count from 1")


def _field_infos(model: type[Any], declared: dict[str, _Declared], full: frozenset[str]) -> dict[str, FieldInfo]:
    infos: dict[str, FieldInfo] = {}
    for attribute in attrs.fields(model):
        field = attribute.name
        each = declared[field]
        bare, optional = split_optional(each.annotation)
        name = f"{model.__name__}.{field}"
        other = next(_models_in(bare), None)
        if other is not None:
            raise ModelError(
                f"{name} is declared with {other.__name__}, a model of its own; store the fields of its key"
            )
        kind = property_type(bare)
        if isinstance(kind, str):
            raise ModelError(f"{name} {kind}")
        given = each.declaration
        infos[field] = FieldInfo(
            field,
            each.property,
            kind,
            optional,
            _default_maker(name, attribute, kind, optional=optional),
            stored=field not in full or bool(given and given.stored),
            on_insert=given.on_insert if given else None,
            on_write=given.on_write if given else None,
            kept=bool(given and given.kept),
        )
    _check_properties(model.__name__, infos)
    return infos


def _models_in(annotation: Any) -> Iterator[type[Any]]:
    if isinstance(annotation, type) and isinstance(annotation.__dict__.get("__schema__"), Schema):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)


def _default_maker(name: str, attribute: Any, kind: PropertyType, *, optional: bool) -> Callable[[], Any] | None:
    """What makes the default of a field, as a new entity gets it: converted."""
    default, convert = attribute.default, attribute.converter
    if default is attrs.NOTHING:
        return None
    if isinstance(convert, attrs.Converter):
        raise ModelError(f"{name}: attrs.Converter is not supported; give a function that takes the value alone")
    make: Callable[[], Any] = lambda: default  # noqa: E731
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        if default.takes_self:
            raise ModelError(f"{name}: a factory that takes the entity is not supported")
        make = default.factory
    elif convert is None:
        _check_default(name, default, kind, optional=optional)
    return make if convert is None else lambda: convert(make())


def _check_default(name: str, default: Any, kind: PropertyType, *, optional: bool) -> None:
    if default is None:
        if not optional:
            raise ModelError(f"{name} has the default None; declare the field Mapped[{kind.name} | None]")
        return
    try:
        kind.encode(default)
    except ValueError as error:
        raise ModelError(f"{name} has the default {default!r}, which {error}; the field is {kind.name}") from None


def _check_properties(model: str, infos: dict[str, FieldInfo]) -> None:
    seen: dict[str, str] = {}
    for field, info in infos.items():
        if not info.stored:
            continue
        if is_reserved_property(info.property):
            raise ModelError(
                f"{model}.{field} would be stored as {info.property!r}, a reserved name; choose another by "
                "field(name=...)"
            )
        try:
            check_property_name(info.property)
        except Fault as fault:
            raise ModelError(f"{model}.{field}: {fault.message}") from None
        if info.property in seen:
            raise ModelError(f"{model}: {seen[info.property]!r} and {field!r} are both stored as {info.property!r}")
        seen[info.property] = field
