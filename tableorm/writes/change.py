"""
Stage 1, change: a verb and an entity, bag or key become a Change, with its keys, its values and its condition.
"""

from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, Literal, cast

import attrs
from msgspec import structs

from ..bag import PropertyBag
from ..entity import Entity, schema_of, stored_row
from ..errors import EncodeError, ModelError, NotLoaded, PreconditionFailed, TemplateError
from ..expressions import Field
from ..keys import Key
from ..protocol.edm import ANNOTATION
from ..schema import MISFITS, Schema
from ..stores import Row
from .plan import Change, Mode, PlannedWrite

__all__ = [
    "Change",
    "as_given",
    "delete_change",
    "guard_change",
    "insert_change",
    "key_of",
    "merge_change",
    "rebuild_change",
    "replace_change",
    "save_change",
    "state_change",
    "upsert_change",
]

Subject = Entity | PropertyBag

# Until Python 3.12 to look a member up on its class costs more than all else that is done with it.
_INSERT = Mode.INSERT
_UPSERTS = {"merge": Mode.UPSERT_MERGE, "replace": Mode.UPSERT_REPLACE}


def insert_change(subject: Subject, pending: PlannedWrite | None = None, verb: str = "insert") -> Change:
    """
    Insert an entity under the key of its fields, whether it was read before or not.

    Args:
        subject: The entity or bag.
        pending: The write of the same subject that a transaction holds already.
        verb: What the user called.

    Raises:
        TemplateError: A key field is missing or does not fit.
        NotLoaded: It was loaded in part.
    """
    return _in_full(verb, _INSERT, subject, pending)


def upsert_change(subject: Subject, mode: Literal["merge", "replace"], pending: PlannedWrite | None = None) -> Change:
    """
    Insert an entity, or merge it into the row or replace the row that is there, without looking.

    Raises:
        ModelError: There is no such mode.
        TemplateError: A key field is missing or does not fit.
        NotLoaded: It was loaded in part.
    """
    chosen = _UPSERTS.get(mode)
    if chosen is None:
        raise ModelError(f"upsert(mode={mode!r}) is unknown; use 'merge' or 'replace'")
    return _in_full("upsert", chosen, subject, pending)


def _in_full(verb: str, mode: Mode, subject: Subject, pending: PlannedWrite | None) -> Change:
    inserts = mode is _INSERT
    foreign = not inserts and pending is None
    if isinstance(subject, PropertyBag):
        before, partial = subject.before, subject.partial
        if pending is not None:  # nothing after a delete
            before, partial = pending.after, pending.partial
        if subject.selected:
            raise _partly(verb, subject, "properties that were not selected")
        table, keys = subject.table, (subject.partition_key, subject.row_key)
        return Change(verb, mode, subject, None, table, *keys, before=before, partial=partial, foreign=foreign)
    schema, own = _schema(subject), subject.__dict__
    before, partial = own.get("_row"), own.get("_partial", False)
    if partial:
        _refuse_partial(verb, subject, schema)
    if pending is not None:
        before, partial = pending.after, pending.partial
    if pending is not None and pending.after is None:
        _ = subject.extra  # as after a delete: what the model does not know stays with the entity
    values: dict[str, Any] = own
    made: dict[str, Any] | None = None
    if schema.filled:
        values, made, _ = _filled(schema, own, pending, inserted=before is None or inserts)
    if schema.has_validators:
        _validate(subject, schema, values)
    partition_key, row_key = schema.make_keys(values)
    if before is not None and not inserts:
        if partition_key != before["PartitionKey"] or row_key != before["RowKey"]:
            _refuse_new_key(verb, own, schema, before, partial=partial)
        # The keys it was read with need not be what the template writes today.
        partition_key, row_key = before["PartitionKey"], before["RowKey"]
    return Change(
        verb,
        mode,
        subject,
        schema,
        schema.table_name(),
        partition_key,
        row_key,
        None,
        values,
        made,
        before,
        partial,
        dropped=None if pending is None else pending.change.dropped,
        foreign=foreign,
    )


def save_change(subject: Subject, pending: PlannedWrite | None = None, verb: str = "save") -> Change:
    """
    Write what changed since the entity was read, under its ETag and the keys it was read with.

    Args:
        subject: The entity or bag.
        pending: The write of the same subject that a transaction holds already; what changed since that counts.
        verb: What the user called.

    Raises:
        PreconditionFailed: It was never read nor written.
        EncodeError: A key field was changed.
    """
    return _update(verb, Mode.SAVE, subject, None, pending)


def merge_change(
    subject: Subject,
    only: Sequence[Field[Any] | str] | None,
    if_match: str | None,
    pending: PlannedWrite | None = None,
) -> Change:
    """
    Merge some fields, or all, whether they changed or not.

    Raises:
        PreconditionFailed: There is no ETag.
        EncodeError: A key field was changed.
        ModelError: One of `only` is no stored field of the model.
    """
    names = None if only is None else tuple(_names(subject, only))
    return _update("merge", Mode.MERGE, subject, if_match, pending, only=names)


def replace_change(
    subject: Subject, if_match: str | None, *, drop_extra: bool, pending: PlannedWrite | None = None
) -> Change:
    """
    Replace the row by the entity and, unless told to drop them, the properties that the model does not know.

    Raises:
        PreconditionFailed: There is no ETag.
        EncodeError: A key field was changed.
        NotLoaded: It was loaded in part.
    """
    return _update("replace", Mode.REPLACE, subject, if_match, pending, drop_extra=drop_extra)


def _update(
    verb: str,
    mode: Mode,
    subject: Subject,
    if_match: str | None,
    pending: PlannedWrite | None,
    *,
    only: tuple[str, ...] | None = None,
    drop_extra: bool = False,
) -> Change:
    before, etag, partial = _base(subject)
    if pending is not None:
        before, partial, etag = pending.after, pending.partial, pending.operation.if_match
        condition = etag if if_match in (None, "*") else if_match
        everything = mode is Mode.REPLACE or (mode is Mode.MERGE and only is None)
        if pending.stale and everything and if_match is None:
            raise _no_etag(verb, subject, stale=True)
    else:
        condition = if_match or etag
        if condition is None and _copied(subject) is None:
            raise _no_etag(verb, subject)
    foreign = condition != etag
    if isinstance(subject, PropertyBag):
        if mode is Mode.REPLACE and subject.selected:
            raise _partly(verb, subject, "properties that were not selected")
        keys = subject.partition_key, subject.row_key
        return Change(
            verb,
            mode,
            subject,
            None,
            subject.table,
            *keys,
            condition,
            before=before,
            partial=partial,
            only=only,
            drop_extra=drop_extra,
            foreign=foreign,
        )
    schema = _schema(subject)
    own = subject.__dict__
    if mode is Mode.REPLACE and own.get("_partial", False):
        _refuse_partial(verb, subject, schema)
    values, made, new = _filled(schema, own, pending, inserted=False)
    if new and only is not None:
        only = (*only, *(name for name in new if name not in only))
    if drop_extra:
        bag: PropertyBag | None = own.get("_extra")
        dropped: Row | None = schema.unknown(own.get("_row") or {}) if bag is None else bag.row.copy()
    else:
        dropped = None if pending is None else pending.change.dropped
    if schema.has_validators:
        _validate(subject, schema, values)
    if before is None:
        keys = schema.make_keys(values)
    else:
        _refuse_new_key(verb, own, schema, before, partial=partial)
        keys = before["PartitionKey"], before["RowKey"]
    return Change(
        verb,
        mode,
        subject,
        schema,
        schema.table_name(),
        *keys,
        condition,
        values,
        made,
        before,
        partial,
        None,
        only,
        drop_extra,
        dropped,
        foreign,
        copied=_copied(subject) if if_match is None else None,
    )


def state_change(subject: Subject, pending: PlannedWrite | None = None) -> Change:
    """
    What a subject has that was not saved: a save that fills and validates nothing, and is not to be sent.

    Args:
        subject: The entity or bag.
        pending: What a transaction was given of it, and holds; what changed since that counts.

    Raises:
        PreconditionFailed: It was never read nor written.
        EncodeError: A key field was changed.
    """
    before, etag, partial = _base(subject)
    made: dict[str, Any] | None = None
    dropped: Row | None = None
    if pending is not None:
        before, partial, made, dropped = pending.after, pending.partial, pending.change.made, pending.change.dropped
    if before is None:
        raise _no_etag("modify", subject)
    key = key_of(subject)
    keys = key.table, key.partition_key, key.row_key
    if isinstance(subject, PropertyBag):
        return Change("modify", Mode.SAVE, subject, None, *keys, etag, before=before, partial=partial)
    schema, own = _schema(subject), subject.__dict__
    _refuse_new_key("modify", own, schema, before, partial=partial)
    values = own if made is None else {**own, **made}  # it gets them when the transaction has succeeded
    return Change(
        "modify", Mode.SAVE, subject, schema, *keys, etag, values, before=before, partial=partial, dropped=dropped
    )


def delete_change(
    subject: Subject | Key[Any], if_match: str | None, pending: PlannedWrite | None = None, verb: str = "delete"
) -> Change:
    """
    Delete a row: under the ETag it was read with, or under `if_match`.

    Raises:
        PreconditionFailed: There is no ETag; say if_match="*" to delete whatever is there.
    """
    if isinstance(subject, Key):
        schema = None if subject.model is PropertyBag else schema_of(subject.model)
        before, etag, partial, key = None, None, False, subject
    else:
        schema = None if isinstance(subject, PropertyBag) else _schema(subject)
        before, etag, partial = _base(subject)
        key = key_of(subject)
    condition = if_match or etag or (None if pending is None else pending.operation.if_match or "*")
    copied = _copied(subject) if if_match is None else None
    if condition is None and copied is None:
        raise _no_etag(verb, subject)
    return Change(
        verb,
        Mode.DELETE,
        subject,
        schema,
        key.table,
        key.partition_key,
        key.row_key,
        condition,
        before=before,
        partial=partial,
        dropped=None if pending is None else pending.change.dropped,
        foreign=condition != etag,
        copied=copied,
    )


def guard_change(subject: Subject) -> Change:
    """
    Touch a row that is as it was read: merge nothing under its ETag, which fails if the row has changed since.
    """
    before, etag, partial = _base(subject)
    key = key_of(subject)
    schema = None if isinstance(subject, PropertyBag) else _schema(subject)
    return Change(
        "get",
        Mode.GUARD,
        subject,
        schema,
        key.table,
        key.partition_key,
        key.row_key,
        etag,
        before=before,
        partial=partial,
    )


def rebuild_change(subject: Entity, only: Sequence[str], *, counts: bool = False) -> Change:
    """
    Write what some indexes, counts and the like derive from a row that is as it was read, and nothing else. An upgraded
    entity is saved, since all that is derived from it shall be of what it was upgraded to.

    Args:
        subject: An entity that was just read in full.
        only: Names of what is declared, also of some that its model does not have: what the row notes of those goes.
        counts: Whether what it adds to counts and sums changes these too, and not its note of that alone.
    """
    before, etag, _ = _base(subject)
    schema, key, own = _schema(subject), key_of(subject), subject.__dict__
    keys = key.table, key.partition_key, key.row_key
    if own.get("_upgraded", False):
        return Change("rebuild", Mode.SAVE, subject, schema, *keys, etag, own, before=before)
    return Change(
        "rebuild", Mode.REBUILD, subject, schema, *keys, etag, own, before=before, only=tuple(only), counts=counts
    )


def as_given(change: Change) -> Change:
    """A change that is written later, of its subject as it is now: what changes until then belongs to another write."""
    if isinstance(change.subject, PropertyBag):
        return structs.replace(change, bag=change.subject.copy())
    return structs.replace(change, values=deepcopy(change.values))


def key_of(subject: Subject) -> Key[Any]:
    """
    The key of an entity or bag: as stored if it was read.

    Raises:
        ModelError: It is neither.
    """
    if isinstance(subject, PropertyBag):
        return Key(PropertyBag, subject.table, subject.partition_key, subject.row_key)
    if not hasattr(type(subject), "__schema__"):
        raise ModelError(f"{subject!r} is no entity; give an instance of a model, or a bag")
    key: Key[Any] = subject.key
    return key


def _base(subject: Subject) -> tuple[Row | None, str | None, bool]:
    """What a subject knows of the stored row, its ETag, and whether the row may have more."""
    if isinstance(subject, PropertyBag):
        return subject.before, subject.etag, subject.partial
    _schema(subject)
    row = stored_row(subject)
    return row, None if row is None else row.get("odata.etag"), subject.__dict__.get("_partial", False)


def _copied(subject: object) -> frozenset[str] | None:
    """Of an entity that was read from a copy, and not written since, the properties that it knows."""
    return subject.__dict__.get("_copied") if isinstance(subject, Entity) else None


def _schema(subject: object) -> Schema:
    schema = getattr(type(subject), "__schema__", None)
    if not isinstance(schema, Schema):
        raise ModelError(f"{subject!r} cannot be written: it is no entity; give an instance of a model, or a bag")
    return schema


def _no_etag(verb: str, subject: Subject | Key[Any], *, stale: bool = False) -> PreconditionFailed:
    if stale or (isinstance(subject, Entity) and subject.__dict__.get("_superseded", False)):
        return PreconditionFailed(
            f"{verb} of {subject!r}: it was written, and what it does not know of its row may have been changed by "
            "somebody else; refresh() it first",
            None,
            subject,
        )
    if verb == "delete":
        return PreconditionFailed(
            f"delete of {subject!r}: it has no ETag, since it was not read or is deleted; read it first, or give "
            "if_match='*' to delete whatever is there",
            None,
            subject,
        )
    force = "" if verb in ("save", "modify", "move") else ", or give if_match='*' to write over whatever is there"
    return PreconditionFailed(
        f"{verb} of {subject!r}: it was neither read nor written, so it has no ETag; insert() it, or read it "
        f"first{force}",
        None,
        subject,
    )


def _refuse_partial(verb: str, subject: Entity, schema: Schema) -> None:
    missing = [name for name in schema.fields if name not in subject.__dict__]
    if missing and stored_row(subject) is None:
        raise NotLoaded(
            f"{verb} of {subject!r}: it was loaded in part, without {', '.join(missing)}, and then deleted; set them "
            "first"
        )
    if missing:
        raise _partly(verb, subject, ", ".join(missing))


def _partly(verb: str, subject: Subject, missing: str) -> NotLoaded:
    return NotLoaded(
        f"{verb} of {key_of(subject)}: it was loaded in part, without {missing}, which would be lost; refresh() it "
        "first, or save() what changed, or merge(only=[...])"
    )


def _names(subject: Subject, only: Sequence[Field[Any] | str]) -> list[str]:
    if isinstance(subject, PropertyBag):
        return [str(each) for each in only]
    schema = _schema(subject)
    names: list[str] = []
    for each in only:
        name = each.name if isinstance(each, Field) else each
        info = schema.fields.get(name)
        if info is None or not info.stored:
            problem = "is held by the key" if info else "is no field"
            raise ModelError(f"merge(only=[...]) of {schema.name}: {each} {problem}; give some of {_some(schema)}")
        if name not in subject.__dict__:
            raise NotLoaded(f"merge(only=[...]) of {schema.name}: {name} was not loaded, so it has no value")
        names.append(name)
    return names


def _some(schema: Schema) -> str:
    return ", ".join(f"{schema.name}.{info.name}" for info in schema.stored[:3]) or "none: it stores none"


def _filled(
    schema: Schema, own: dict[str, Any], pending: PlannedWrite | None, *, inserted: bool
) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]:
    """
    The fields to write, in a copy, so that a failed write changes no entity; those of them that were made, by this
    write or earlier in its transaction; and those that this write makes.
    """
    if not schema.filled:
        return own, None, {}
    earlier = {} if pending is None or pending.after is None else pending.change.made or {}
    standing = {name: value for name, value in earlier.items() if own.get(name) is None}
    made: dict[str, Any] = {}
    for info in schema.filled:
        if info.on_write is not None:
            made[info.name] = info.on_write()
        elif inserted and info.on_insert is not None and own.get(info.name) is None:
            made[info.name] = info.on_insert()
    return {**own, **standing, **made}, {**standing, **made}, made


def _validate(subject: Entity, schema: Schema, values: dict[str, Any]) -> None:
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


def _refuse_new_key(verb: str, own: dict[str, Any], schema: Schema, row: Row, *, partial: bool) -> None:
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
    remedy = "insert a copy with evolve() and delete the old one"
    if current[0] == row["PartitionKey"]:
        given = ", ".join(f"{each}={own[each]!r}" for each in changed or [name] if each in own)
        remedy = f"`await db.move(entity, {given})`"
    raise EncodeError(
        f"is a new value of a key field (read as {before.get(name)!r}), and {'an' if verb == 'upsert' else 'a'} {verb} "
        f"cannot move a row; to move it, {remedy}",
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
