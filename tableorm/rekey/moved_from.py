"""
`moved_from=`: a model takes over the entities of an older one under other keys, while both are in use.

Entities are copied by the names of their fields, unless functions say how one becomes the other. The way back is needed
for programs that know the older model alone, and for undoing everything.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Generic, TypeVar, cast, overload

import msgspec

from ..errors import ModelError, NotSupported, TemplateError, shown
from ..models.entity import copy_unknown
from ..models.json_values import new_entity
from ..models.key import Key, Storable
from ..models.schema import FieldInfo, Schema
from ..models.state import state_of
from .home import RekeyedHome

O = TypeVar("O", bound=Storable)  # noqa: E741
N = TypeVar("N", bound=Storable)
M = TypeVar("M", bound=Storable)

MAX_OLD_KEYS = 16
"""How many older keys an entity may have had, as far as its newer key tells."""


class MovedFrom(Generic[O, N]):
    """
    Declare that a model takes over the entities of an older model under new keys.

        class Flight(
            Entity, table="Flights2", ..., moved_from=MovedFrom(OldFlight)
        ): ...

    Args:
        old: The older model.
        to_new: Converts an entity of the older model to the newer one, or returns None to drop the entity. None copies
            the fields that have the same names, and the properties that the older model doesn't know.
        to_old: Converts an entity of the newer model to the older one. None copies the fields that have the same names.
        old_keys: Takes the fields of the newer key by name, and returns the fields of each older key that the entity
            may have had, at most 16. It's not needed if the newer key has all fields of the older one.
    """

    @overload
    def __init__(
        self: "MovedFrom[M, Any]",
        old: type[M],
        *,
        old_keys: Callable[..., Iterable[Mapping[str, Any]]] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        old: type[O],
        *,
        to_new: Callable[[O], N | None] | None = None,
        to_old: Callable[[N], O] | None = None,
        old_keys: Callable[..., Iterable[Mapping[str, Any]]] | None = None,
    ) -> None: ...

    def __init__(
        self: "MovedFrom[Any, Any]",
        old: type[Any],
        *,
        to_new: Callable[[Any], Any] | None = None,
        to_old: Callable[[Any], Any] | None = None,
        old_keys: Callable[..., Iterable[Mapping[str, Any]]] | None = None,
    ) -> None:
        self.old, self.to_new, self.to_old, self.old_keys = old, to_new, to_old, old_keys

    def __repr__(self) -> str:
        return f"<MovedFrom {getattr(self.old, '__name__', self.old)}>"

    def _bind_home(self, schema: Schema) -> RekeyedHome:
        return _bind(self, schema)


def _bind(declared: MovedFrom[Any, Any], schema: Schema) -> RekeyedHome:
    """
    Bind what a model says in `moved_from=`.

    Args:
        declared: What it says.
        schema: The schema of the newer model.

    Raises:
        ModelError: The two models, or functions, do not fit.
    """
    old: Schema | None = getattr(cast("object", declared.old), "__schema__", None)
    if old is None:
        raise ModelError(
            f"{schema.name}: moved_from=MovedFrom({shown(declared.old)}) is rejected: give a model whose entities it "
            "takes over"
        )
    label = f"{schema.name}: moved_from={old.name}"
    for each in (old, schema):
        _refuse_layout(label, each)
    if not old.tracked:
        raise ModelError(
            f"{label} is rejected: {old.name} is not tracked, so that an upsert of it would overwrite what says where "
            f"an entity is by then; declare class {old.name}(..., tracked=True)"
        )
    if old.home is not None:
        raise ModelError(f"{label} is rejected: {old.name} has moved_from= itself; finish that re-key first")
    if old.table_name().lower() == schema.table_name().lower() and old.kind == schema.kind:
        raise ModelError(
            f"{label} is rejected: both have the kind {old.kind!r} in table {old.table}, so their rows can't be "
            f'distinguished; give the newer model a different kind: class {schema.name}(Entity, kind="...", ...)'
        )
    to_new = declared.to_new or copy_fields(label, old, schema, "to_new")
    to_old = declared.to_old or copy_fields(label, schema, old, "to_old")
    missing = [name for name in old.key_fields if name not in schema.key_names]
    if declared.old_keys is None and missing:
        raise ModelError(
            f"{label} is rejected: the key of {schema.name} lacks {missing[0]!r}, so that it does not tell the key by "
            f"{old.name}; give old_keys=, which returns the fields of the keys that an entity may have had"
        )

    def old_key(entity: Any) -> Key[Any]:
        back = checked_old(entity)
        return Key(old.model, old.table_name(), *old.make_keys(back.__dict__))

    def checked_old(entity: Any) -> Any:
        return _complete(label, "to_old", entity, to_old(entity), old)

    def checked_new(entity: Any) -> Any:
        made = to_new(entity)
        return None if made is None else _complete(label, "to_new", entity, made, schema)

    def old_keys(fields: Mapping[str, Any]) -> Sequence[Key[Any]]:
        if declared.old_keys is None:
            return (old.key({name: fields[name] for name in old.key_fields}),)
        return _make_keys(label, old, declared.old_keys, {name: fields[name] for name in schema.key_fields})

    layouts = [
        [each.table_name().lower(), each.kind, *(template.text for template in each.templates())]
        for each in (old, schema)
    ]
    digest = blake2b(msgspec.json.encode(layouts), digest_size=16).hexdigest()
    own, other = ({name: _type_of(info) for name, info in each.fields.items()} for each in (old, schema))
    copied = [name for name in own if own[name] == other.get(name)]
    return RekeyedHome(
        old=old,
        new=schema,
        copied=frozenset(copied if declared.to_new is None else ()),
        digest=digest,
        to_new=checked_new,
        to_old=checked_old,
        old_key=old_key,
        old_keys=old_keys,
    )


def _type_of(info: FieldInfo) -> tuple[Any, ...]:
    """Return what must be the same of a field in two models so that a condition means the same."""
    return info.type.annotation, [member.type.edm for member in info.members]


def _refuse_layout(label: str, schema: Schema) -> None:
    """Refuse a model whose rows cannot be moved in steps that every reader understands."""
    name = schema.name
    if schema.abstract:
        raise ModelError(f"{label} is rejected: {name} is abstract; name a model that has entities")
    if schema.kind is None or callable(schema.discriminator):
        raise ModelError(
            f"{label} is rejected: a row of {name} that is about to be moved could be read as an entity; give {name} a "
            "kind and discriminator='property', 'row_key' or 'partition_key'"
        )
    if schema.stages:
        raise ModelError(
            f"{label} is rejected: {name} is wide or has encrypted fields, and a re-key takes rows as they are stored; "
            "give entities their new keys one by one"
        )
    causes = {
        "a table for each period": schema.periods is not None,
        "entities that expire": schema.expiry is not None,
        "fields that other entities keep": bool(schema.maintained),
        **{
            each.label: not each.movable or each.deferred or each.row_schema is None for each in schema.derived.values()
        },
    }
    for what, refused in causes.items():
        if refused:
            raise ModelError(
                f"{label} is rejected: {name} has {what}, and only an Index in the partition of its entities follows a "
                "re-key; stop all writers, and re-key offline"
            )


def copy_fields(label: str, source: Schema, target: Schema, argument: str) -> Callable[[Any], Any]:
    """Return the function that makes an entity by copying fields of the same name."""
    lost = [name for name in source.fields if name not in target.fields]
    needed = [name for name, info in target.fields.items() if name not in source.fields and info.required]
    if lost or needed:
        what = f"has no field {lost[0]!r}, so that its value would be lost" if lost else f"needs {needed[0]!r}"
        raise ModelError(f"{label} is rejected: {target.name} {what}; declare the field, or give {argument}=")
    added = {name for name, member in target.by_property.items() if member.field not in source.fields}

    def copy(entity: Any) -> Any:
        own = entity.__dict__
        taken = next((name for name in state_of(entity).unknown(source.known) if name in added), None)
        if taken is not None:
            raise NotSupported(
                f"{label}: {entity.key} has a property {taken!r}, which is a field of {target.name} and not of "
                f"{source.name}, so that its value would be lost; remove it from the row, or give {argument}="
            )
        made = new_entity(target, {name: own[name] for name in source.fields})
        copy_unknown(entity, made)
        return made

    return copy


def _complete(label: str, function: str, entity: Any, made: Any, target: Schema) -> Any:
    """Return what a function made of an entity, with its unknown properties unless the function gave it others."""
    if getattr(cast(Any, type(made)), "__schema__", None) is not target:
        raise ModelError(f"{label}: {function} returned {shown(made)}, which is not a {target.name}")
    if not state_of(made).unknown(target.known):
        copy_unknown(entity, made)
    return made


def _make_keys(
    label: str, old: Schema, function: Callable[..., Iterable[Mapping[str, Any]]], fields: Mapping[str, Any]
) -> Sequence[Key[Any]]:
    """Return the older keys that a function tells of the fields of a newer key, each once."""
    try:
        found = [old.key(dict(each)) for each in function(**fields)]
    except TemplateError as error:
        raise ModelError(f"{label}: old_keys returned fields that make no key: {error}") from error
    found = list(dict.fromkeys(found))
    if not 0 < len(found) <= MAX_OLD_KEYS:
        raise ModelError(
            f"{label}: old_keys returned {len(found)} keys for {shown(dict(fields))}; return one to {MAX_OLD_KEYS}"
        )
    return found
