"""
Stage 1, change: a verb and an entity, bag or key become a Change, with its keys, its values and its condition.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Literal

from msgspec import structs

from ...errors import ModelError
from ...expressions import Field
from ...models.entity import Entity, schema_of
from ...models.key import Key
from ...models.property_bag import PropertyBag
from ...stores import Row
from ..plan import Change, Mode, PlannedWrite
from ..subject import Subject, copied_properties, key_of, known_state, schema_of_subject
from .prepare import fill_fields, loaded_in_part, merged_names, missing_etag, refuse_new_key, refuse_partial, validate

__all__ = [
    "as_given",
    "delete_change",
    "guard_change",
    "insert_change",
    "merge_change",
    "rebuild_change",
    "replace_change",
    "save_change",
    "state_change",
    "upsert_change",
]

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
            raise loaded_in_part(verb, subject, "properties that were not selected")
        table, keys = subject.table, (subject.partition_key, subject.row_key)
        return Change(verb, mode, subject, None, table, *keys, before=before, partial=partial, foreign=foreign)
    schema, own = schema_of_subject(subject), subject.__dict__
    before, partial = own.get("_row"), own.get("_partial", False)
    if partial:
        refuse_partial(verb, subject, schema)
    if pending is not None:
        before, partial = pending.after, pending.partial
    if pending is not None and pending.after is None:
        _ = subject.extra  # as after a delete: what the model does not know stays with the entity
    values: dict[str, Any] = own
    made: dict[str, Any] | None = None
    if schema.filled:
        values, made, _ = fill_fields(schema, own, pending, inserted=before is None or inserts)
    if schema.has_validators:
        validate(subject, schema, values)
    partition_key, row_key = schema.make_keys(values)
    if before is not None and not inserts:
        if partition_key != before["PartitionKey"] or row_key != before["RowKey"]:
            refuse_new_key(verb, own, schema, before, partial=partial)
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
    names = None if only is None else tuple(merged_names(subject, only))
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
    before, etag, partial = known_state(subject)
    if pending is not None:
        before, partial, etag = pending.after, pending.partial, pending.operation.if_match
        condition = etag if if_match in (None, "*") else if_match
        everything = mode is Mode.REPLACE or (mode is Mode.MERGE and only is None)
        if pending.stale and everything and if_match is None:
            raise missing_etag(verb, subject, stale=True)
    else:
        condition = if_match or etag
        if condition is None and copied_properties(subject) is None:
            raise missing_etag(verb, subject)
    foreign = condition != etag
    if isinstance(subject, PropertyBag):
        if mode is Mode.REPLACE and subject.selected:
            raise loaded_in_part(verb, subject, "properties that were not selected")
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
    schema = schema_of_subject(subject)
    own = subject.__dict__
    if mode is Mode.REPLACE and own.get("_partial", False):
        refuse_partial(verb, subject, schema)
    values, made, new = fill_fields(schema, own, pending, inserted=False)
    if new and only is not None:
        only = (*only, *(name for name in new if name not in only))
    if drop_extra:
        bag: PropertyBag | None = own.get("_extra")
        dropped: Row | None = schema.unknown(own.get("_row") or {}) if bag is None else bag.row.copy()
    else:
        dropped = None if pending is None else pending.change.dropped
    if schema.has_validators:
        validate(subject, schema, values)
    if before is None:
        keys = schema.make_keys(values)
    else:
        refuse_new_key(verb, own, schema, before, partial=partial)
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
        copied=copied_properties(subject) if if_match is None else None,
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
    before, etag, partial = known_state(subject)
    made: dict[str, Any] | None = None
    dropped: Row | None = None
    if pending is not None:
        before, partial, made, dropped = pending.after, pending.partial, pending.change.made, pending.change.dropped
    if before is None:
        raise missing_etag("modify", subject)
    key = key_of(subject)
    keys = key.table, key.partition_key, key.row_key
    if isinstance(subject, PropertyBag):
        return Change("modify", Mode.SAVE, subject, None, *keys, etag, before=before, partial=partial)
    schema, own = schema_of_subject(subject), subject.__dict__
    refuse_new_key("modify", own, schema, before, partial=partial)
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
        schema = None if isinstance(subject, PropertyBag) else schema_of_subject(subject)
        before, etag, partial = known_state(subject)
        key = key_of(subject)
    condition = if_match or etag or (None if pending is None else pending.operation.if_match or "*")
    copied = copied_properties(subject) if if_match is None else None
    if condition is None and copied is None:
        raise missing_etag(verb, subject)
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
    before, etag, partial = known_state(subject)
    key = key_of(subject)
    schema = None if isinstance(subject, PropertyBag) else schema_of_subject(subject)
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
    before, etag, _ = known_state(subject)
    schema, key, own = schema_of_subject(subject), key_of(subject), subject.__dict__
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
