"""
From a class body to a schema: what `class Employee(Entity, ...)` declares, checked when the class is made.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Literal, TypedDict, cast

from ..errors import ModelError, near
from ..expressions import Field
from ..keys.overlap import refuse_meeting
from ..keys.parse import parse_template
from ..keys.template import Template
from ..protocol.codes import Fault
from ..protocol.edm import check_text
from ..protocol.limits import MAX_CUSTOM_PROPERTIES, check_table_name
from .attributes import guard_attributes
from .class_body import (
    Naming,
    all_fields,
    as_written,
    field_infos,
    make_attrs_class,
    own_fields,
    pascal_case,
    refuse_odd_bases,
)
from .derivation import (
    DERIVATIONS_OF_SHAPES,
    Derivation,
    HomeDeclaration,
    RelationRules,
    bind_derivation,
    bind_home,
)
from .expiry import check_expiry
from .fields import FieldDescriptor
from .inheritance import check_derived_rows, check_heads
from .key import Storable
from .marker_rows import check_marker_rows
from .periods import refuse_in_periods
from .placement import check_placement_of, check_table_of, declared_models, may_share_partition, note_model
from .reserved import RESERVED_FIELDS, VERB_OPTIONS, is_reserved_table
from .row_stage import FIELD_STAGES, STAGE_KEYWORDS, RowStage
from .schema import Discriminator, FieldInfo, Schema


class ClassKeywords(TypedDict, total=False):
    """The keywords of the class statement of a model, as the docstring of `Entity` explains them."""

    table: str | None
    partition_key: str | None
    row_key: str | None
    keys: Literal["escaped", "verbatim"] | None
    kind: str | None
    version: int
    discriminator: Discriminator | None
    abstract: bool
    naming: Naming | None
    write_token: bool | None
    tracked: bool | None
    moved_from: HomeDeclaration | None
    wide: bool | int | None


def declare(model: type[Storable], given: ClassKeywords, frames: int) -> Schema:
    """
    Make an attrs class of `model` and read its schema.

    Args:
        model: The new class.
        given: Its class keywords.
        frames: How many frames up the class statement stands, to resolve names local to a function.

    Raises:
        ModelError: The declaration is wrong; names the class and the field or keyword.
    """
    name = model.__name__
    unknown = [keyword for keyword in given if keyword not in ClassKeywords.__annotations__]
    if unknown:
        keywords = ClassKeywords.__annotations__
        raise ModelError(f"{name}: there is no class keyword {unknown[0]!r}; {near(unknown[0], keywords, 'keyword')}")
    refuse_odd_bases(model)
    table, version, naming = given.get("table"), given.get("version", 1), given.get("naming")
    texts = {"partition_key": given.get("partition_key"), "row_key": given.get("row_key")}
    abstract = given.get("abstract", False)
    _check_types(name, given, ("table", "partition_key", "row_key", "kind"), str, "a str")
    _check_types(name, given, ("abstract", "write_token", "tracked"), bool, "True or False")
    for attribute in RESERVED_FIELDS & vars(model).keys() - inspect.get_annotations(model).keys():
        raise ModelError(
            f"{name}.{attribute} is rejected: every entity has an attribute {attribute!r}; "
            + (f"write class {name}(Entity, kind=...)" if attribute == "kind" else "rename it")
        )
    found = [base.__dict__.get("__schema__") for base in model.__mro__[1:]]
    parents = [schema for schema in found if isinstance(schema, Schema)]
    rename: Callable[[str], str] | None = parents[0].naming if parents else as_written
    if naming:
        named: Mapping[str, Callable[[str], str]] = {"as_written": as_written, "pascal": pascal_case}
        rename = named.get(naming) if isinstance(naming, str) else naming
    if rename is None:
        raise ModelError(f"{name}: naming={naming!r} is unknown; use 'as_written', 'pascal' or a function")
    own = own_fields(model, rename, frames + 1)
    chosen: Any = given.get("discriminator") or (parents[0].discriminator if parents else "property")
    if chosen not in ("property", "row_key", "partition_key") and not callable(chosen):
        raise ModelError(
            f"{name}: discriminator={chosen!r} is unknown; use 'property', 'row_key', 'partition_key' or a "
            "function from a PropertyBag to a model"
        )
    kind = given.get("kind", name)
    _check_kind(name, kind, version)
    if table is None:
        table = next((p.table for p in parents if p.table), None)
    if table is not None:
        try:
            if "{" not in table:  # otherwise it is a template of names
                check_table_name(table)
        except Fault as fault:
            raise ModelError(f"{name}: table={table!r} is rejected: {fault.message}") from None
        if is_reserved_table(table) and model.__module__.partition(".")[0] not in ("tableorm", "tableorm_migrations"):
            raise ModelError(f"{name}: table={table!r} is rejected: tableorm keeps its own records there; use another")
    setter = make_attrs_class(model, own)
    declared = all_fields(model, own)
    annotations = {field: each.key_type for field, each in declared.items()}
    if texts["partition_key"] is None:
        texts["partition_key"] = next((p.partition.text for p in parents if p.partition), None)
    if texts["row_key"] is None:
        texts["row_key"] = next((p.row.text for p in parents if p.row), None)
    keys: str = given.get("keys") or ("verbatim" if parents and parents[0].verbatim else "escaped")
    if keys not in ("escaped", "verbatim"):
        raise ModelError(f"{name}: keys={keys!r} is unknown; use 'escaped' or 'verbatim'")
    verbatim = keys == "verbatim"
    templates: dict[str, Template | None] = {
        key: None if text is None else parse_template(text, name, key, annotations, kind, verbatim=verbatim)
        for key, text in texts.items()
    }
    if not abstract:
        missing = [key for key, template in {"table": table, **templates}.items() if template is None]
        if missing:
            raise ModelError(
                f"{name} needs {', '.join(missing)}: class {name}(Entity, table=..., partition_key=..., row_key=...), "
                "or abstract=True for a base without entities"
            )
    write_token, tracked = given.get("write_token"), given.get("tracked")
    full = frozenset[str]().union(*(t.full_fields for t in templates.values() if t))
    fields = field_infos(model, declared, full)
    for parent in parents:
        for field, info in parent.fields.items():
            if [each.path for each in info.members] != [each.path for each in fields[field].members]:
                raise ModelError(
                    f"{name}.{field} has other members than {parent.name}.{field}, so no condition could match both; "
                    "rename one of them"
                )
    guard_attributes(model, setter, fields)
    for keyword, make in STAGE_KEYWORDS.items():
        if given.get(keyword) not in (None, False):
            setattr(model, f"_{keyword}", make(name, given.get(keyword)))
    derivations, home = _derivations(model, fields), given.get("moved_from")
    inherits = bool(parents and parents[0].tracked) if tracked is None else bool(tracked)
    schema = Schema(
        model=model,
        table=table,
        abstract=abstract,
        kind=kind,
        version=version,
        discriminator=cast(Discriminator, chosen),
        naming=rename,
        partition=templates["partition_key"],
        row=templates["row_key"],
        verbatim=verbatim,
        fields=fields,
        write_token=bool(parents and parents[0].write_token) if write_token is None else bool(write_token),
        tracked=inherits or bool((derivations or home) and not abstract),
        stages=_row_stages(model, fields),
    )
    for field in schema.key_fields:
        if field in VERB_OPTIONS:
            raise ModelError(
                f"{name}.{field} is part of the key, and methods that take key fields have an option {field!r}; "
                f"rename the field, for example to {field}_"
            )
    for info in schema.filled:
        if info.name in schema.key_fields:
            raise ModelError(f"{name}.{info.name} is part of the key, so a write can't fill it; use factory=")
    for info in schema.maintained:
        if info.shape is not None:
            raise ModelError(f"{name}.{info.name} = field(maintained=True) is rejected: it {info.many}")
        if info.name in schema.key_fields or info in schema.filled or info.default is None:
            raise ModelError(
                f"{name}.{info.name} = field(maintained=True) is rejected: writes of other entities maintain it, so "
                "it can't be a key field or filled on write, and needs a default: field(default=0, maintained=True)"
            )
    check_expiry(schema)
    if not abstract:
        check_heads(schema, parents)
        refused = {f"{name}.{info.name} = field(maintained=True)": True for info in schema.maintained}
        refuse_in_periods(schema, refused or {"tracked=True": bool(schema.tracked and not derivations)})
        _bind_derivations(schema, derivations, annotations)
        check_derived_rows(schema, parents)
        _check_opaque(schema)
        for stage in schema.stages:
            stage.check(schema)
        models = declared_models(schema)
        check_table_of(schema, models)
        check_marker_rows(schema, models)
        check_placement_of(schema, models)
        if home is not None:
            schema.home = bind_home(home, schema)
    for field in fields:
        shape = fields[field].shape
        setattr(model, field, FieldDescriptor(shape.expression(model, field) if shape else Field(model, field)))
    schema.check_relations()
    schema.relations = _relations(model)
    if not abstract:
        note_model(schema)
    return schema


def _derivations(model: type[Any], fields: Mapping[str, FieldInfo]) -> dict[str, Derivation]:
    """Return the derivations that the class and its bases declare, each as the nearest class declares it."""
    declared: dict[str, Derivation] = {}
    for base in reversed(model.__mro__):
        for name, each in vars(base).items():
            if isinstance(each, Derivation):
                declared[name] = each
            elif isinstance(each, type) and issubclass(each, Derivation):
                raise ModelError(f"{model.__name__}.{name} is the class {each.__name__}; write {each.__name__}(...)")
            elif name in declared:
                raise ModelError(f"{model.__name__}.{name} = {each!r} hides an inherited index; rename it")
    for name, each in declared.items():
        if name in fields:
            raise ModelError(f"{model.__name__}.{name} is a field, and hides an inherited index; rename it")
        if getattr(each, "name", name) != name:
            raise ModelError(
                f"{model.__name__}.{name} is the same object as {each.name!r}; create a separate "
                f"{type(each).__name__}(...) for it"
            )
        if name in RESERVED_FIELDS or name.startswith("_"):
            raise ModelError(
                f"{model.__name__}.{name} = {type(each).__name__}(...): the name {name!r} is reserved; rename it"
            )
    made = {name: DERIVATIONS_OF_SHAPES.get(type(info.shape)) for name, info in fields.items() if info.shape}
    return declared | {name: make(name) for name, make in made.items() if make is not None}


def _bind_derivations(schema: Schema, derivations: Mapping[str, Derivation], annotations: Mapping[str, Any]) -> None:
    """Bind what is declared to the schema, each told from the others by the keys of its rows."""
    for name, each in derivations.items():
        bound = bind_derivation(each, schema, annotations)
        for other in schema.derived.values():
            if not may_share_partition(bound, other):
                continue
            for row in bound.row_templates():
                for its_row in other.row_templates():
                    refuse_meeting(bound.label, row, other.label, its_row)
        schema.derived[name] = bound
    refuse_in_periods(schema, {each.label: not each.in_periods for each in schema.derived.values()})
    count = len(schema.by_property) + len(schema.kind_properties) + 2
    if schema.tracked and schema.split is None and count > MAX_CUSTOM_PROPERTIES:
        raise ModelError(
            f"{schema.name} stores {len(schema.by_property)} properties, or {count} with those that tableorm adds; a "
            f"row holds {MAX_CUSTOM_PROPERTIES}: set wide=True, or combine fields in a JSON field"
        )


def _relations(model: type[Any]) -> list[RelationRules]:
    """Return the relations that the class and its bases declare. Raises ModelError if one hides another."""
    found: dict[str, RelationRules] = {}
    for base in reversed(model.__mro__):
        for name, each in vars(base).items():
            if each is not found.get(name, each):
                raise ModelError(
                    f"{model.__name__}.{name} hides an inherited relation, which queries for the base class also "
                    "load for this class; rename it"
                )
            if isinstance(each, RelationRules):
                found[name] = each
    for name in found:
        if name.startswith("_"):
            raise ModelError(f"{model.__name__}.{name} is a relation, so its name can't begin with '_'; rename it")
    return [*found.values()]


def _row_stages(model: type[Any], fields: Mapping[str, FieldInfo]) -> list[RowStage]:
    """
    Return the row stages that the class and its bases declare, each as the nearest class declares it, and those that
    its fields ask for.
    """
    bases = reversed(model.__mro__)
    named = {name: each for base in bases for name, each in vars(base).items() if isinstance(each, RowStage)}
    asked = (make(fields) for make in FIELD_STAGES)
    return [*named.values(), *(stage for stage in asked if stage is not None)]


def _check_opaque(schema: Schema) -> None:
    """Refuse what needs to see properties in the store that a row stage makes opaque. Raises ModelError."""
    opaque = {schema.by_property[name].field for name in schema.opaque}
    uses: dict[str, AbstractSet[str]] = {
        "the key of the model": schema.key_names,
        "expiry=True": {info.name for info in schema.fields.values() if info.expiry},
        "maintained=True": {info.name for info in schema.maintained},
    }
    for each in schema.derived.values():
        rows, templates = each.row_schema, [*each.row_templates(), each.partition]
        held = {name for template in templates if template is not None for name in template.fields}
        sealed = set[str]() if rows is None else {rows.by_property[name].field for name in rows.opaque}
        uses[each.label] = held if rows is None else held | (rows.fields.keys() - sealed)
    for what, fields in uses.items():
        if opaque & fields:
            raise ModelError(
                f"{schema.name}.{min(opaque & fields)} can't be used by {what}: the store doesn't have its value; "
                "leave it out"
            )


def _check_types(name: str, given: Mapping[str, object], keywords: Iterable[str], kind: type, what: str) -> None:
    for keyword in keywords:
        if not isinstance(given.get(keyword), kind | None):
            raise ModelError(f"{name}: {keyword}={given[keyword]!r} is rejected: give {what}")


def _check_kind(name: str, kind: str | None, version: int) -> None:
    if kind is not None and (not kind or ":" in kind or "#" in kind or check_text(kind)):
        raise ModelError(
            f"{name}: kind={kind!r} is rejected: give a string that isn't empty and doesn't contain ':' or '#'"
        )
    if kind is None and version != 1:
        raise ModelError(
            f"{name}: version={version!r} is rejected with kind=None, which stores no version; give a kind"
        )
    if type(version) is not int or version < 1:
        raise ModelError(f"{name}: version={version!r} is rejected: give an int from 1")
