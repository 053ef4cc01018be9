"""
Part of stage 1, change: fields that a write fills, validators, and what a write refuses.
"""

import re
from collections.abc import Iterable, Sequence
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
from ...models.schema import MISFITS, Schema
from ...models.state import state_of
from ...protocol.codes import Code
from ...protocol.edm import ANNOTATION, timestamp_of_etag
from ...stores import Row
from ..plan import Change, PlannedWrite
from ..subject import Subject, key_of, schema_of_subject

__all__ = [
    "check_etag",
    "fill_fields",
    "loaded_in_part",
    "merged_names",
    "missing_etag",
    "no_removal",
    "refuse_new_key",
    "refuse_partial",
    "refuse_removal",
    "validate",
]

# Source: RFC 9110, "ETag".
_ENTITY_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')


def missing_etag(verb: str, subject: Subject | Key[Any], *, stale: bool = False) -> PreconditionFailed | NotRead:
    """Return the error of a write that needs an ETag where there is none: lost to another write, or never there."""
    force = "" if verb in ("save", "modify", "move") else ", or give if_match='*' to write over whatever is there"
    if stale or (isinstance(subject, Entity) and state_of(subject).superseded):
        problem = "what it does not know of its row may have been changed by somebody else; refresh() it first"
        return PreconditionFailed(f"{verb} of {subject!r}: it was written, and {problem}", entity=subject)
    if isinstance(subject, Key):
        problem = f"a key has no ETag; give one as if_match=, or if_match='*' to {verb} whatever is there"
        return NotRead(f"{verb} of {subject}: {problem}", subject)
    if verb == "delete":
        problem = (
            "it has no ETag, since it was not read or is deleted; read it first, or give if_match='*' to delete "
            "whatever is there"
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
    if isinstance(if_match, str) and _ENTITY_TAG.fullmatch(if_match):
        problem = f"no row has the ETag {shown(if_match)}; read the row, and give its entity.etag"
        raise PreconditionFailed(f"{what}: {problem}", Code.CONDITION_NOT_SATISFIED, subject)
    raise MalformedETag("is neither '*' nor an ETag; give what entity.etag was", what, "if_match", if_match)


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
    """Return the names of the fields or properties to merge. Raises ModelError or NotLoaded."""
    if isinstance(only, str) or not isinstance(only, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        name = type(subject).__name__
        raise ModelError(f"merge(only={only!r}) of {name} is refused: give a list, as in only=[{only!r}]")
    if isinstance(subject, PropertyBag):
        return [str(each) for each in only]
    schema = schema_of_subject(subject)
    names: list[str] = []
    for each in only:
        name = each.name if isinstance(each, Field) else each
        info = schema.fields.get(str(name))
        if info is None or not info.stored:
            problem = "is held by the key" if info else "is not a field"
            stored = near("" if info else str(name), [info.name for info in schema.stored], "stored field")
            raise ModelError(f"merge(only=[...]) of {schema.name}: {each} {problem}; {stored}")
        if name not in subject.__dict__:
            raise NotLoaded(f"merge(only=[...]) of {schema.name}: {name} was not loaded, so it has no value")
        names.append(name)
    return names


def fill_fields(
    schema: Schema, own: dict[str, Any], pending: PlannedWrite | None, *, inserted: bool
) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]:
    """
    The fields to write, in a copy, so that a failed write changes no entity; those of them that were made, by this
    write or earlier in its transaction; and those that this write makes.
    """
    earlier = {} if pending is None or pending.after is None else pending.change.made or {}
    standing = {name: value for name, value in earlier.items() if own.get(name) is None}
    made: dict[str, Any] = {}
    for info in schema.filled:
        if info.on_write is not None:
            made[info.name] = info.on_write()
        elif inserted and info.on_insert is not None and own.get(info.name) is None:
            made[info.name] = info.on_insert()
    return {**own, **standing, **made}, {**standing, **made}, made


def validate(subject: Entity, schema: Schema, values: dict[str, Any]) -> None:
    """Run the validators of the fields that have a value."""
    # Fields can have been changed in place.
    probe = subject
    if values is not subject.__dict__:
        probe = object.__new__(type(subject))
        probe.__dict__.update(values)
    if all(name in values for name in schema.fields):
        attrs.validate(cast(Any, probe))
        return
    for attribute in attrs.fields(cast(Any, type(subject))):
        if attribute.validator is not None and attribute.name in values:
            with suppress(NotLoaded):  # a validator that looks at what was not loaded cannot tell
                attribute.validator(probe, attribute, values[attribute.name])


def refuse_new_key(verb: str, own: dict[str, Any], schema: Schema, row: Row, *, partial: bool) -> None:
    """Refuse a changed key field. Raises EncodeError, which names `db.move`."""
    if partial and not all(name in own for name in schema.key_fields):
        return  # what was not loaded was not changed
    current = schema.make_keys(own)
    if current == (row["PartitionKey"], row["RowKey"]):
        return
    # The stored keys need not be what the template writes today: what counts is whether the fields changed.
    before = _key_fields(schema, row) if partial else schema.decode(row).__dict__
    with suppress(TemplateError):  # a key field that was not loaded
        if schema.make_keys(before) == current:
            return
    changed = [name for name in schema.key_fields if before.get(name) != own.get(name)]
    name = changed[0] if changed else schema.key_fields[0]
    given = ", ".join(f"{each}={own[each]!r}" for each in changed or [name] if each in own)
    raise EncodeError(
        f"is a new value of a key field (read as {before.get(name)!r}), and {'an' if verb == 'upsert' else 'a'} {verb} "
        f"cannot move a row; to move it, `await db.move(entity, {given})`, and to write another entity with that key "
        "beside it, `await db.insert(entity)`",
        schema.name,
        name,
        own.get(name),
    )


def _key_fields(schema: Schema, row: Row) -> dict[str, Any]:
    """The key fields of a row that was read in part, as far as it tells them."""
    found: dict[str, Any] = {}
    with suppress(ValueError):
        found |= schema.parse_keys(row["PartitionKey"], row["RowKey"])
    for name in schema.key_fields:
        info = schema.fields[name]
        value = row.get(info.property) if info.stored else None
        if value is not None:
            with suppress(*MISFITS):
                found[name] = info.type.decode(value, row.get(info.property + ANNOTATION))
    return found


def refuse_removal(change: Change, removed: Sequence[str]) -> None:
    """Refuse a merge of everything that would leave in the table what was read, and is None now. Raises EncodeError."""
    schema = change.schema
    for name in removed:
        if schema is None:
            raise no_removal("PropertyBag", name)
        info = schema.by_property.get(name)
        raise no_removal(f"{schema.name}.extra", name) if info is None else no_removal(schema.name, info.name)


def no_removal(model: str, name: str) -> EncodeError:
    """Return the error of a merge that would have to remove a property."""
    problem = "is to be removed, and a merge cannot remove a property; save() or replace() it"
    return EncodeError(problem, model, name, None, misuse=True)
