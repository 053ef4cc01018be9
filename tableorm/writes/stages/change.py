"""
Stage 1, change: a verb and an entity, bag or key become a Change, with its keys, its values and its condition.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Literal, cast

from msgspec import structs

from ...errors import EncodeError, ModelError
from ...expressions import Field
from ...models.entity import Entity, schema_of
from ...models.key import Key
from ...models.marker_rows import MARKER_HEADS
from ...models.property_bag import PropertyBag, is_projection, read_in_part, stored_row_of
from ...models.reserved import is_reserved_property
from ...models.schema import Schema
from ...models.state import STATE, UNSTORED, EntityState, state_of
from ...protocol.edm import ANNOTATION
from ...stores import Row
from ..plan import Change, Filled, Mode, PlannedWrite, Stored
from ..subject import Subject, key_of, schema_of_subject
from .prepare import (
    check_etag,
    fill_fields,
    filled_values,
    loaded_in_part,
    merged_names,
    missing_etag,
    refuse_new_key,
    refuse_partial,
    validate,
)

__all__ = [
    "as_given",
    "delete_change",
    "fill_nothing",
    "guard_change",
    "insert_change",
    "merge_change",
    "plain_insert",
    "rebuild_change",
    "replace_change",
    "save_change",
    "state_change",
    "upsert_change",
]

_BLIND = frozenset({Mode.INSERT, Mode.UPSERT_MERGE, Mode.UPSERT_REPLACE})
"""Modes that need no ETag."""

_IN_FULL = _BLIND | {Mode.REPLACE}
"""Modes that write all fields."""

_MARKER_HEADS = tuple(MARKER_HEADS)

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
    return _write_change(verb, Mode.INSERT, subject, pending)


def plain_insert(entity: Entity, verb: str = "move") -> Change:
    """Insert an entity as it is: nothing is filled in, as a re-key is no change of it. Raises as `insert_change`."""
    return fill_nothing(insert_change(entity, verb=verb))


def fill_nothing(change: Change) -> Change:
    """Return the change of an entity with the values that it has: what a write would fill in is left as it is."""
    return structs.replace(change, values=change.subject.__dict__, made=None) if change.made else change


def upsert_change(
    subject: Subject, mode: Literal["merge", "replace"] = "merge", pending: PlannedWrite | None = None
) -> Change:
    """
    Insert an entity, or merge it into the row or replace the row that is there, without looking.

    Raises:
        ModelError: There is no such mode.
        EncodeError: The entity never expires, and is to be merged into a row that may have a time.
        TemplateError: A key field is missing or does not fit.
        NotLoaded: It was loaded in part.
    """
    chosen = _UPSERTS.get(mode) if isinstance(cast("object", mode), str) else None
    if chosen is None:
        raise ModelError(f"upsert(mode={mode!r}) is unknown; use 'merge' or 'replace'")
    change = _write_change("upsert", chosen, subject, pending)
    expiry = None if change.schema is None else change.schema.expiry
    if expiry is not None and chosen is Mode.UPSERT_MERGE and change.values[expiry.name] is None:
        raise EncodeError(
            "is None, for never, and an upsert that merges would leave the time at which the entity expires that may "
            "be stored; give mode='replace', or a time",
            change.model,
            expiry.name,
            None,
            misuse=True,
        )
    return change


def _write_change(
    verb: str,
    mode: Mode,
    subject: Subject,
    pending: PlannedWrite | None,
    if_match: str | None = None,
    *,
    only: tuple[str, ...] | None = None,
    drop_extra: bool = False,
) -> Change:
    """Make the change of a verb that writes values. Raises what the verbs raise."""
    state, before = _state_of(subject)
    read = None if before is None else before.row
    etag = None if read is None else read.get("odata.etag")
    before, condition = before if pending is None else _pending_row(before, pending), None
    blind, inserts = mode in _BLIND, mode is Mode.INSERT
    if if_match is not None:
        check_etag(verb, subject, if_match)
    unseen = pending is None
    if not blind:
        if pending is None:
            condition = if_match or etag
            if condition is None and state.copied is None:
                raise missing_etag(verb, subject)
        else:
            etag = pending.operation.if_match
            condition = etag if if_match in (None, "*") else if_match
            everything = mode is Mode.REPLACE or (mode is Mode.MERGE and only is None)
            if pending.stale and everything and if_match is None:
                raise missing_etag(verb, subject, stale=True)
        unseen = condition != etag
    dropped = None if pending is None else pending.change.dropped
    copied = None if blind or if_match is not None else state.copied
    if isinstance(subject, Entity):  # asked first: to ask for a bag takes longer
        schema, own = subject.__schema__, subject.__dict__
        if state.partial and mode in _IN_FULL:
            refuse_partial(verb, subject, schema)
        values: dict[str, Any] = own
        made: dict[str, Filled] | None = None
        if schema.filled:
            new_row = inserts or (blind and before is None)
            values, made, always = fill_fields(schema, own, read, state.loaded, pending, inserted=new_row)
            if only is not None:
                only = (*only, *(name for name in always if name not in only))
        if schema.has_validators:
            validate(subject, schema, values)
        extra = _unknown_of(state, schema)
        keys = schema.make_keys(values) if before is None or inserts else _stored_keys(verb, own, schema, before)
        if keys[1].startswith(_MARKER_HEADS):
            raise _like_marker(schema, keys[1])
        # Python passes more than 15 keyword arguments as a dictionary, which takes five times as long.
        change = Change(
            verb=verb,
            mode=mode,
            subject=subject,
            schema=schema,
            table=schema.only_table or schema.table_of(*keys),
            partition_key=keys[0],
            row_key=keys[1],
            if_match=condition,
            values=values,
            made=made,
            extra=extra,
            loaded=state.loaded,
            before=before,
            stored=before,
            unseen=unseen,
        )
        if drop_extra:
            dropped = extra
    else:
        if is_projection(subject) and mode in _IN_FULL:
            raise loaded_in_part(verb, subject, "properties that were not selected")
        change = _row_change(verb, mode, subject, condition, before, unseen=unseen)
    if only is None and dropped is None and copied is None and not drop_extra:
        return change
    return structs.replace(change, only=only, drop_extra=drop_extra, dropped=dropped, copied=copied)


def _state_of(subject: object) -> tuple[EntityState, Stored | None]:
    """Return what a subject knows of its row, and the row as it remembers it. Raises ModelError if it has none."""
    if isinstance(subject, Entity) and type(subject) is not Entity:
        state: EntityState = getattr(subject, STATE, UNSTORED)
        row = None if state is UNSTORED else state.row
        return state, None if row is None else Stored(row, not state.partial, state.upgraded)
    if not isinstance(subject, PropertyBag):
        schema_of_subject(subject)
        return UNSTORED, None
    before = stored_row_of(subject)
    return UNSTORED, None if before is None else Stored(before, not read_in_part(subject))


def _unknown_of(state: EntityState, schema: Schema | None) -> Row:
    """
    Return the members of the unknown properties of an entity; a packed state has none.

    Raises:
        EncodeError: The user has put a reserved property among them: it would make the row one of another kind.
    """
    if state.stored is None and state.extra is None:
        return {}  # always for a bag or key
    assert schema is not None
    unknown = state.unknown(schema.known)
    if state.extra is not None:
        for name, value in unknown.items():
            reserved = is_reserved_property(name.removesuffix(ANNOTATION))
            if reserved and (state.stored is None or state.stored.get(name) != value):
                raise EncodeError(
                    "is no unknown property: the name is reserved", schema.name, f"extra[{name!r}]", value
                )
    return unknown


def _pending_row(before: Stored | None, pending: PlannedWrite | None) -> Stored | None:
    """Return what a subject remembers of its row: in a transaction that holds a write of it, the row of that write."""
    if pending is None:
        return before
    if pending.after is None:
        return None
    upgraded = before is not None and before.upgraded
    return Stored(pending.after, not pending.partial, upgraded)


def _stored_keys(verb: str, own: dict[str, Any], schema: Schema, before: Stored) -> tuple[str, str]:
    """
    Return the keys that the row was read with, which need not be what the templates write today.

    Raises:
        EncodeError: A key field was changed.
    """
    row = before.row
    keys: tuple[str, str] = row["PartitionKey"], row["RowKey"]
    if not before.complete or schema.make_keys(own) != keys:
        refuse_new_key(verb, own, schema, row, partial=not before.complete)
    return keys


def save_change(subject: Subject, pending: PlannedWrite | None = None, verb: str = "save") -> Change:
    """
    Write what changed since the entity was read, under its ETag and the keys it was read with.

    Args:
        subject: The entity or bag.
        pending: The write of the same subject that a transaction holds already; what changed since that counts.
        verb: What the user called.

    Raises:
        NotRead: It was never read nor written.
        EncodeError: A key field was changed.
    """
    return _write_change(verb, Mode.SAVE, subject, pending)


def merge_change(
    subject: Subject,
    only: Sequence[Field[Any] | str] | None = None,
    if_match: str | None = None,
    pending: PlannedWrite | None = None,
) -> Change:
    """
    Merge some fields, or all, whether they changed or not.

    Raises:
        NotRead: There is no ETag.
        EncodeError: A key field was changed.
        ModelError: One of `only` is no stored field of the model.
    """
    names = None if only is None else tuple(merged_names(subject, only))
    return _write_change("merge", Mode.MERGE, subject, pending, if_match, only=names)


def replace_change(
    subject: Subject, if_match: str | None = None, *, drop_extra: bool = False, pending: PlannedWrite | None = None
) -> Change:
    """
    Make the change that replaces a row by an entity. Properties that the model does not know stay, unless `drop_extra`.

    Raises:
        NotRead: There is no ETag.
        EncodeError: A key field was changed.
        NotLoaded: It was loaded in part.
    """
    return _write_change("replace", Mode.REPLACE, subject, pending, if_match, drop_extra=drop_extra)


def state_change(subject: Subject, pending: PlannedWrite | None) -> Change:
    """
    What a subject has that was not saved: a save that fills and validates nothing, and is not to be sent.

    Args:
        subject: The entity or bag.
        pending: What a transaction was given of it, and holds; what changed since that counts.

    Raises:
        NotRead: It was never read nor written.
        EncodeError: A key field was changed.
    """
    _, before = _state_of(subject)
    before = _pending_row(before, pending)
    if before is None:
        raise missing_etag("modify", subject)
    if isinstance(subject, PropertyBag):
        return _row_change("modify", Mode.SAVE, subject, None, before)
    own = subject.__dict__
    _stored_keys("modify", own, schema_of_subject(subject), before)
    made, dropped = (None, None) if pending is None else (pending.change.made, pending.change.dropped)
    filled = filled_values(made, own)  # it gets them when the transaction has succeeded
    values = {**own, **filled} if filled else own
    return _row_change("modify", Mode.SAVE, subject, None, before, values=values, dropped=dropped)


def _like_marker(schema: Schema, row_key: str) -> EncodeError:
    """Return the error of a write by a model of a row that could be, or overwrite, a marker row."""
    head = next(each for each in MARKER_HEADS if row_key.startswith(each))
    return EncodeError(
        f"begins with {head!r}, as {MARKER_HEADS[head]} do, which no model may overwrite; give the entity another "
        "key; a row that is there already is deleted as a PropertyBag",
        schema.name,
        "row_key",
        row_key,
    )


def _row_change(
    verb: str,
    mode: Mode,
    subject: Subject | Key[Any],
    if_match: str | None,
    before: Stored | None,
    *,
    unseen: bool = False,
    **more: Any,
) -> Change:
    """
    Return a change of the row of a bag or key; or of an entity, which fills and validates nothing.

    Args:
        verb: As the user called it.
        mode: What it does to the row.
        subject: The entity, bag or key.
        if_match: ETag to send, "*", or None.
        before: What the subject remembers of the row.
        unseen: Whether the row may be another version than that.
        more: What else the change has.
    """
    named = subject if isinstance(subject, (PropertyBag, Key)) else key_of(subject)
    schema = None if isinstance(named, PropertyBag) or named.model is PropertyBag else schema_of(named.model)
    if schema is not None and named.row_key.startswith(_MARKER_HEADS):
        raise _like_marker(schema, named.row_key)
    state = state_of(subject) if isinstance(subject, Entity) else UNSTORED
    change = Change(
        verb=verb,
        mode=mode,
        subject=subject,
        schema=schema,
        table=named.table,
        partition_key=named.partition_key,
        row_key=named.row_key,
        if_match=if_match,
        values={},
        extra=_unknown_of(state, schema),
        loaded=state.loaded,
        before=before,
        stored=before,
        unseen=unseen,
    )
    return structs.replace(change, **more) if more else change


def delete_change(
    subject: Subject | Key[Any],
    if_match: str | None = None,
    pending: PlannedWrite | None = None,
    verb: str = "delete",
) -> Change:
    """
    Delete a row: under the ETag it was read with, or under `if_match`.

    Raises:
        NotRead: There is no ETag; say if_match="*" to delete whatever is there.
    """
    if if_match is not None:
        check_etag(verb, subject, if_match)
    state, before = (UNSTORED, None) if isinstance(subject, Key) else _state_of(subject)
    etag = None if before is None else before.row.get("odata.etag")
    condition = if_match or etag or (None if pending is None else pending.operation.if_match or "*")
    copied = state.copied if if_match is None else None
    if condition is None and copied is None:
        raise missing_etag(verb, subject)
    dropped = None if pending is None else pending.change.dropped
    unseen = condition != etag
    return _row_change(verb, Mode.DELETE, subject, condition, before, dropped=dropped, unseen=unseen, copied=copied)


def guard_change(subject: Subject) -> Change:
    """
    Touch a row that is as it was read: merge nothing under its ETag, which fails if the row has changed since.
    """
    _, before = _state_of(subject)
    return _row_change("get", Mode.GUARD, subject, None if before is None else before.row.get("odata.etag"), before)


def rebuild_change(subject: Entity, only: Sequence[str], *, counts: bool = False) -> Change:
    """
    Write what some indexes, counts and other declarations derive from a row that is as it was read, and nothing else.
    An upgraded entity is saved, since all that is derived from it shall be of what it was upgraded to.

    Args:
        subject: An entity that was just read in full.
        only: Names of what is declared, also of some that its model does not have: what the row notes of those goes.
        counts: Whether what it adds to counts and sums changes these too, and not its note of that alone.
    """
    _, before = _state_of(subject)
    etag, upgraded = (None, False) if before is None else (before.row.get("odata.etag"), before.upgraded)
    return _row_change(
        "rebuild",
        Mode.SAVE if upgraded else Mode.REBUILD,
        subject,
        etag,
        before,
        values=subject.__dict__,
        only=None if upgraded else tuple(only),
        counts=counts,
    )


def as_given(change: Change) -> Change:
    """A change that is written later, of its subject as it is now: what changes until then belongs to another write."""
    if isinstance(change.subject, PropertyBag):
        return structs.replace(change, bag=change.subject.copy())
    return structs.replace(change, values=deepcopy(change.values))
