"""
Part of stage 1, change: fields that a write fills, validators, and what a write refuses.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import attrs

from ...errors import (
    EncodeError,
    MalformedETag,
    ModelError,
    NotLoaded,
    NotRead,
    PreconditionFailed,
    TemplateError,
    near,
    shown,
)
from ...expressions import Field
from ...models.entity import Entity
from ...models.key import Key
from ...models.property_bag import PropertyBag
from ...models.schema import MISFITS, FieldInfo, Schema
from ...models.state import state_of
from ...protocol.codes import Code
from ...protocol.edm import Edm, is_entity_tag, timestamp_of_etag
from ...stores import Row, row_keys
from ..plan import Filled, PlannedWrite
from ..rows import compare, is_absent_value
from ..subject import Subject, key_of, schema_of_subject


def missing_etag(verb: str, subject: Subject | Key[Any], *, stale: bool = False) -> PreconditionFailed | NotRead:
    """Return the error of a write that needs an ETag where there is none: lost to another write, or never there."""
    force = "" if verb in ("save", "modify", "move") else ", or pass if_match='*' to overwrite any version"
    if stale or (isinstance(subject, Entity) and state_of(subject).superseded):
        problem = "another client may have changed its row since; refresh() it first"
        return PreconditionFailed(f"{verb} of {subject!r}: it was written, and {problem}", entity=subject)
    if isinstance(subject, Key):
        problem = f"a key has no ETag; pass one as if_match=, or if_match='*' to {verb} any version"
        return NotRead(f"{verb} of {subject}: {problem}", subject)
    if verb == "delete":
        problem = (
            "it has no ETag, since it was not read or is deleted; read it first, or pass if_match='*' to delete any "
            "version"
        )
    else:
        problem = f"it was neither read nor written, so it has no ETag; insert() it, or read it first{force}"
    return NotRead(f"{verb} of {subject!r}: {problem}", subject)


def check_etag(verb: str, subject: Subject | Key[Any], if_match: object) -> None:
    """
    Check the ETag that a user gives.

    Raises:
        MalformedETag: It is neither "*" nor an ETag as HTTP has them.
        PreconditionFailed: It is an ETag that no row can have, since the service makes others.
    """
    if if_match == "*" or (isinstance(if_match, str) and timestamp_of_etag(if_match) is not None):
        return
    what = f"{verb} of {subject.model.__name__ if isinstance(subject, Key) else type(subject).__name__}"
    if isinstance(if_match, str) and is_entity_tag(if_match):
        problem = f"no row has the ETag {shown(if_match)}; read the row, and give its entity.etag"
        raise PreconditionFailed(f"{what}: {problem}", Code.CONDITION_NOT_SATISFIED, subject)
    raise MalformedETag("is neither '*' nor an ETag; pass the value of entity.etag", what, "if_match", if_match)


def refuse_partial(verb: str, subject: Entity, schema: Schema) -> None:
    """Refuse to write all fields of an entity of which some were not loaded. Raises NotLoaded."""
    missing = [name for name in schema.fields if name not in subject.__dict__]
    if missing and state_of(subject).keys is None:
        raise NotLoaded(
            f"{verb} of {subject!r}: it was loaded in part, without {', '.join(missing)}, and then deleted; set them "
            "first"
        )
    if missing:
        raise loaded_in_part(verb, subject, ", ".join(missing))


def loaded_in_part(verb: str, subject: Subject, missing: str) -> NotLoaded:
    """Return the error of a write that would lose what was not loaded."""
    return NotLoaded(
        f"{verb} of {key_of(subject)}: it was loaded in part, without {missing}, which would be lost; refresh() it "
        "first, or save() what changed, or merge(only=[...])"
    )


def merged_names(subject: Subject, only: Sequence[Field[Any] | str]) -> list[str]:
    """Return the names of the fields, parts of fields, or properties to merge. Raises ModelError or NotLoaded."""
    if isinstance(only, str) or not isinstance(only, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        name = type(subject).__name__
        raise ModelError(f"merge(only={only!r}) of {name} is rejected: give a list, as in only=[{only!r}]")
    if isinstance(subject, PropertyBag):
        return [str(each) for each in only]
    schema = schema_of_subject(subject)
    names: list[str] = []
    for each in only:
        name = each.name if isinstance(each, Field) else each
        info = schema.fields.get(schema.field_of(str(name)))
        if info is not None and info.name != name and not (info.shape and info.shape.apart):
            info = None
        if info is None or not info.stored:
            problem = "is held by the key" if info else "is not a field"
            stored = near("" if info else str(name), [info.name for info in schema.stored], "stored field")
            raise ModelError(f"merge(only=[...]) of {schema.name}: {each} {problem}; {stored}")
        if info.name not in subject.__dict__:
            raise NotLoaded(f"merge(only=[...]) of {schema.name}: {name} was not loaded, so it has no value")
        names.append(name)
    return names


def fill_fields(
    schema: Schema,
    own: dict[str, Any],
    row: Row | None,
    loaded: frozenset[str] | None,
    pending: PlannedWrite | None,
    *,
    inserted: bool,
) -> tuple[dict[str, Any], dict[str, Filled], list[str]]:
    """
    Make the values of the fields that a write fills. A failed write changes no entity, so they are in a copy.

    Args:
        schema: The schema of the entity.
        own: The entity's dictionary.
        row: The row that the entity was read as; None if it was not.
        loaded: Names of the fields that were read, if these were not all.
        pending: The write of the same entity that a transaction holds already.
        inserted: Whether the entity is new.

    Returns:
        The fields to write; what this write has made of them, or an earlier one of the transaction; and the names of
        the fields that are written with each write.
    """
    held = None if pending is None or pending.after is None else pending
    values, made = own.copy(), dict[str, Filled]()
    if held is not None and held.change.made:
        made = {name: each for name, each in held.change.made.items() if each.stands(own.get(name))}
        values.update((name, each.value) for name, each in made.items())
    new, always = inserted or (row is None and held is None), list[str]()
    for info in schema.filled:
        name, value = info.name, own.get(info.name)
        if info.on_write is not None:
            always.append(name)
            if not new and _is_assigned(schema, info, own, row, loaded, held):
                continue
            filled = info.on_write()
        elif inserted and info.on_insert is not None and value is None:
            always.append(name)
            filled = info.on_insert()
        else:
            continue
        values[name], made[name] = filled, Filled(filled, value)
    return values, made, always


def filled_values(made: Mapping[str, Filled] | None, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a write has made, without those of fields that were set since."""
    return {name: each.value for name, each in made.items() if each.stands(own.get(name))} if made else {}


def _is_assigned(
    schema: Schema,
    info: FieldInfo,
    own: dict[str, Any],
    row: Row | None,
    loaded: frozenset[str] | None,
    held: PlannedWrite | None,
) -> bool:
    """Return whether the program has given a field another value than was read, or written earlier."""
    name = info.name
    if name not in own:
        return False
    earlier = None if held is None else (held.change.made or {}).get(name)
    if earlier is not None:
        return not earlier.stands(own[name])
    if row is None:
        return held is not None  # it was, before the transaction wrote it
    if loaded is not None and name not in loaded:
        return True
    value, stored = own[name], info.is_in(row)
    if value is None:
        return stored
    if stored and _is_as_read(info, value, row):
        return False
    try:
        members = schema.encode_some(own, (info,))
    except EncodeError:
        return True  # which is rejected when it is encoded
    if not stored:
        return not is_absent_value(schema, info, members)
    return bool(compare(row, members, schema)[0])


def _is_as_read(info: FieldInfo, value: object, row: Row) -> bool:
    """Return whether a value of a plain type is surely what was read: the usual case, which need not be encoded."""
    kind = info.members[0].type
    if info.shape is not None or not kind.inline or kind.edm is Edm.DOUBLE:  # minus zero equals zero
        return False
    try:
        read = info.read(row)
    except MISFITS:
        return False
    return type(read) is type(value) and bool(read == value)


def validate(subject: Entity, schema: Schema, values: dict[str, Any]) -> None:
    """Run the validators of the fields that have a value; those of maintained fields run where these are written."""
    # Fields can have been changed in place.
    probe = subject
    if values is not subject.__dict__:
        probe = object.__new__(type(subject))
        probe.__dict__.update(values)
    if not schema.maintained and all(name in values for name in schema.fields):
        attrs.validate(cast(Any, probe))
        return
    others = {info.name for info in schema.maintained}
    for attribute in attrs.fields(cast(Any, type(subject))):
        name = attribute.name
        if attribute.validator is not None and name in values and name not in others:
            with suppress(NotLoaded):  # a validator that looks at what was not loaded cannot tell
                attribute.validator(probe, attribute, values[name])


def refuse_new_key(verb: str, own: dict[str, Any], schema: Schema, row: Row, *, partial: bool) -> None:
    """Refuse a changed key field. Raises EncodeError, which names `db.move`."""
    if partial and not all(name in own for name in schema.key_fields):
        return  # what was not loaded was not changed
    current = schema.make_keys(own)
    if current == row_keys(row):
        return
    # The stored keys need not be what the template writes today: what counts is whether the fields changed.
    before = _key_fields(schema, row) if partial else schema.decode(row).__dict__
    with suppress(TemplateError):  # a key field that was not loaded
        if schema.make_keys(before) == current:
            return
    changed = [name for name in schema.key_fields if before.get(name) != own.get(name)]
    name = changed[0] if changed else schema.key_fields[0]
    given = ", ".join(f"{each}={own[each]!r}" for each in changed or [name] if each in own)
    read, a = before.get(name), "an" if verb == "upsert" else "a"
    problem = "a move takes new values from its arguments alone" if verb == "move" else f"{a} {verb} cannot move a row"
    raise EncodeError(
        f"is a new value of a key field (read as {read!r}), and {problem}; to move it, set the field back to {read!r} "
        f"and `await db.move(entity, {given})`, and to write another entity with that key beside it, "
        "`await db.insert(entity)`",
        schema.name,
        name,
        own.get(name),
    )


def _key_fields(schema: Schema, row: Row) -> dict[str, Any]:
    """The key fields of a row that was read in part, as far as it tells them."""
    found: dict[str, Any] = {}
    with suppress(ValueError):
        found |= schema.parse_keys(*row_keys(row))
    for name in schema.key_fields:
        info = schema.fields[name]
        if info.stored and info.is_in(row):
            with suppress(*MISFITS):
                found[name] = info.read(row)
    return found


def refuse_removal(schema: Schema | None, removed: Sequence[str]) -> None:
    """Refuse a merge of everything that would leave in the table what was read, and is None now. Raises EncodeError."""
    for name in removed:
        if schema is None:
            raise no_removal("PropertyBag", name)
        member = schema.by_property.get(name)
        raise no_removal(f"{schema.name}.extra", name) if member is None else no_removal(schema.name, member.path)


def no_removal(model: str, name: str) -> EncodeError:
    """Return the error of a merge that would have to remove a property."""
    problem = "is to be removed, and a merge cannot remove a property; save() or replace() it"
    return EncodeError(problem, model, name, None, misuse=True)
