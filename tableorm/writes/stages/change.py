"""
Stage 1, change: a verb and an entity, bag or key become a Change, with its keys, its values and its condition.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from msgspec import structs

from ...errors import EncodeError, ModelError
from ...expressions import Field
from ...models.entity import Entity, schema_of
from ...models.key import Key
from ...models.marker_rows import MARKER_HEADS, MoveMark
from ...models.property_bag import PropertyBag, is_projection, read_in_part, stored_row_of
from ...models.reserved import is_reserved_property
from ...models.schema import Schema, concrete
from ...models.state import STATE, UNSTORED, EntityState, state_of
from ...protocol.edm import ANNOTATION
from ...stores import Row, RowAddress
from ..patch import HELD, Expects, Extent, Known, Patch, Proof
from ..plan import BLIND, Change, Filled, Mode, PlannedWrite
from ..rows import overlaid
from ..subject import Subject, key_of, schema_of_subject
from .patching import DELETED, UNTOUCHED, Patched, Shown, bag_patch, entity_patch, new_patch
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

_IN_FULL = (*BLIND, Mode.REPLACE)
"""Modes that write all fields."""

_MARKER_HEADS = tuple(MARKER_HEADS)

_UPSERTS = {"merge": Mode.UPSERT_MERGE, "replace": Mode.UPSERT_REPLACE}


def insert_change(
    subject: Subject,
    pending: PlannedWrite | None = None,
    verb: str = "insert",
    *,
    repeat: bool = True,
    exist_ok: bool = False,
) -> Change:
    """
    Insert an entity under the key of its fields, whether it was read before or not.

    Args:
        subject: The entity or bag.
        pending: The write of the same subject that a transaction holds already.
        verb: What the user called.
        repeat: Whether it may be sent again after a lost reply.
        exist_ok: Whether it leaves a row as it is that is there already.

    Raises:
        TemplateError: A key field is missing or does not fit.
        NotLoaded: It was loaded in part.
    """
    change = _write_change(verb, Mode.INSERT, subject, pending)
    return structs.replace(change, repeat=repeat, exist_ok=exist_ok) if exist_ok or not repeat else change


def plain_insert(entity: Entity, verb: str = "move") -> Change:
    """Insert an entity as it is: nothing is filled in, as a re-key is no change of it. Raises as `insert_change`."""
    return _write_change(verb, Mode.INSERT, entity, None, fill=False)


def plain_save(entity: Entity, verb: str) -> Change:
    """Save an entity as it is: nothing is filled in. Raises as `save_change`."""
    return _write_change(verb, Mode.SAVE, entity, None, fill=False)


def over_row(change: Change, if_match: str, stored: Known | None = None) -> Change:
    """
    Return an insert as the replace of a row that is no entity.

    Args:
        change: The insert.
        if_match: The ETag of the row.
        stored: The row; None if nothing that was derived from it is left.
    """
    mode = Mode.REPLACE if change.mode is Mode.INSERT else change.mode
    patch = structs.replace(change.patch, expects=Expects.PRESENT)
    return structs.replace(change, mode=mode, patch=patch, if_match=if_match, stored=stored)


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
    fill: bool = True,
) -> Change:
    """Make the change of a verb that writes values. Raises what the verbs raise."""
    if if_match is not None:
        check_etag(verb, subject, if_match)
    state, row = _row_of(subject)
    blind = mode in BLIND
    copied = state.copied if pending is None and not blind and if_match is None else None
    condition = None if blind else _condition(verb, mode, subject, pending, if_match, row, only=only, copied=copied)
    before: Known | None = None
    if row is not None or pending is not None:
        before = _remembered(subject, state, row, pending, condition, blind=blind, copied=copied)
    if not isinstance(subject, Entity):
        if is_projection(subject) and mode in _IN_FULL:
            raise loaded_in_part(verb, subject, "properties that were not selected")
        patched = bag_patch(mode, subject, before, only, drop_extra=drop_extra)
        return _row_change(verb, mode, subject, condition, before, patched, only=only)
    schema, own = subject.__schema__, subject.__dict__
    if state.partial and mode in _IN_FULL:
        refuse_partial(verb, subject, schema)
    values: dict[str, Any] = own
    made: dict[str, Filled] | None = None
    if fill and schema.filled:
        new_row = mode is Mode.INSERT or (blind and before is None)
        values, made, always = fill_fields(schema, own, row, state.loaded, pending, inserted=new_row)
        if only is not None:
            only = (*only, *(name for name in always if name not in only))
    if schema.has_validators:
        validate(subject, schema, values)
    new_key = before is None or mode is Mode.INSERT
    keys = schema.make_keys(values) if new_key else _stored_keys(verb, own, schema, cast("Known", before))
    if keys[1].startswith(_MARKER_HEADS):
        raise _like_marker(schema, keys[1])
    address = RowAddress(schema.only_table or schema.table_of(*keys), keys[0], keys[1])
    extra: Row = {} if state is UNSTORED else _unknown_of(state, schema)
    if before is None and blind and not extra:
        patch, whole, weight = new_patch(mode, schema, address, values)
    else:
        dropped = None if pending is None else _dropped(schema, pending)
        shown = Shown(
            schema=schema,
            address=address,
            values=values,
            extra=extra,
            before=before,
            loaded=state.loaded,
            made=made,
            dropped=dropped,
        )
        patch, whole, weight = entity_patch(mode, shown, only, drop_extra=drop_extra)
    return Change(
        verb=verb,
        mode=mode,
        subject=subject,
        schema=schema,
        address=address,
        patch=patch,
        if_match=condition,
        values=values,
        made=made,
        before=before,
        stored=before,
        shown=whole,
        weight=weight,
        only=only,
    )


def _row_of(subject: object) -> tuple[EntityState, Row | None]:
    """Return what a subject knows of its row, and the row as it remembers it. Raises ModelError if it has none."""
    if isinstance(subject, Entity) and type(subject) is not Entity:
        state: EntityState = getattr(subject, STATE, UNSTORED)
        return state, None if state is UNSTORED else state.row
    if not isinstance(subject, PropertyBag):
        schema_of_subject(subject)
        return UNSTORED, None
    return UNSTORED, stored_row_of(subject)


def _condition(
    verb: str,
    mode: Mode,
    subject: Subject,
    pending: PlannedWrite | None,
    if_match: str | None,
    row: Row | None,
    *,
    only: tuple[str, ...] | None,
    copied: frozenset[str] | None,
) -> str | None:
    """
    Return the ETag to send, or "*"; None for what was read from an index entry, and for a row that is inserted before.

    Raises:
        NotRead: There is none.
        PreconditionFailed: The subject may show less than an earlier write of the transaction has left there.
    """
    if pending is None:
        found = if_match or (None if row is None else row.get("odata.etag"))
        if found is None and copied is None:
            raise missing_etag(verb, subject)
        return found
    everything = mode is Mode.REPLACE or (mode is Mode.MERGE and only is None)
    if pending.stale and everything and if_match is None:
        raise missing_etag(verb, subject, stale=True)
    return pending.operation.if_match if if_match in (None, "*") else if_match


def _remembered(
    subject: Subject,
    state: EntityState,
    row: Row | None,
    pending: PlannedWrite | None = None,
    condition: str | None = None,
    *,
    blind: bool = False,
    copied: frozenset[str] | None = None,
) -> Known | None:
    """Return what a subject remembers of its row: in a transaction that holds a write of it, the row of that write."""
    if pending is not None:
        if pending.after is None:
            return None
        held = blind or condition == pending.operation.if_match
        shows = pending.change.shown if isinstance(subject, Entity) else pending.after
        return Known(shows or pending.after, not pending.partial, HELD if held else None, state.upgraded)
    if row is None:
        return None
    proof: Proof = copied
    if proof is None and not blind:
        etag = row.get("odata.etag")
        proof = etag if condition == etag else None
    complete = not (read_in_part(subject) if isinstance(subject, PropertyBag) else state.partial)
    return Known(row, complete, proof, state.upgraded)


def _dropped(schema: Schema, pending: PlannedWrite) -> Row | None:
    """Return the unknown properties that an entity still shows, and its write in the transaction has left out."""
    after, shown, patch = pending.after or {}, pending.change.shown, pending.change.patch
    if not shown or shown is patch.set or patch.extent is not Extent.ROW:
        return None
    return {name: value for name, value in schema.unknown(shown).items() if name not in after}


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


def _stored_keys(verb: str, own: dict[str, Any], schema: Schema, before: Known) -> tuple[str, str]:
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


def unsaved(subject: Subject, pending: PlannedWrite | None) -> dict[str, Any]:
    """
    Return what a subject has that was not saved: the values by name of the field or property, as it would save them.

    Args:
        subject: The entity or bag.
        pending: What a transaction was given of it, and holds; what changed since that counts.

    Raises:
        NotRead: It was never read nor written.
        EncodeError: A key field was changed.
    """
    state, row = _row_of(subject)
    before = _remembered(subject, state, row, pending, blind=True)
    if before is None:
        raise missing_etag("modify", subject)
    if isinstance(subject, PropertyBag):
        patch, _, _ = bag_patch(Mode.SAVE, subject, before)
        return _names_of(None, patch, subject)
    schema, own = subject.__schema__, subject.__dict__
    keys = _stored_keys("modify", own, schema, before)
    if before.upgraded:
        return {}  # the upgrade changed it
    made = None if pending is None else pending.change.made
    filled = filled_values(made, own)  # it gets them when the transaction has succeeded
    shown = Shown(
        schema=schema,
        address=RowAddress(schema.table_of(*keys), *keys),
        values={**own, **filled} if filled else own,
        extra=_unknown_of(state, schema),
        before=before,
        loaded=state.loaded,
    )
    patch, _, _ = entity_patch(Mode.SAVE, shown)
    return _names_of(schema, patch, own)


def _names_of(schema: Schema | None, patch: Patch, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a patch sets and removes, by the names that users know."""
    found = dict[str, Any]()
    for name in (*(patch.set or ()), *sorted(patch.remove)):
        if ANNOTATION not in name:
            member = None if schema is None else schema.by_property.get(name)
            known = name if member is None else member.field
            found[known] = values.get(known, (patch.set or {}).get(name))
    return found


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
    before: Known | None,
    patched: Patched,
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
        patched: What it changes, the row as the subject shows it, and the weight of that.
        more: What else the change has.
    """
    named = subject if isinstance(subject, (PropertyBag, Key)) else key_of(subject)
    schema = None if isinstance(named, PropertyBag) or named.model is PropertyBag else schema_of(named.model)
    if schema is not None and named.row_key.startswith(_MARKER_HEADS):
        raise _like_marker(schema, named.row_key)
    patch, shown, weight = patched
    return Change(
        verb=verb,
        mode=mode,
        subject=subject,
        schema=schema,
        address=RowAddress.of(named),
        patch=patch,
        if_match=if_match,
        before=before,
        stored=before,
        shown=shown,
        weight=weight,
        **more,
    )


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
        ModelError: Others must be deleted first, which only `Database.delete` does.
    """
    if verb == "delete":
        _refuse_alone(subject)
    if if_match is not None:
        check_etag(verb, subject, if_match)
    state, row = (UNSTORED, None) if isinstance(subject, Key) else _row_of(subject)
    etag = None if row is None else row.get("odata.etag")
    condition = if_match or etag or (None if pending is None else pending.operation.if_match or "*")
    copied = state.copied if if_match is None else None
    if condition is None and copied is None:
        raise missing_etag(verb, subject)
    before: Known | None = None
    if not isinstance(subject, Key):
        before = _remembered(subject, state, row, None, condition, copied=copied)
    # Of what a transaction deletes its entity shows what an earlier change has left out, and nothing else.
    dropped = _dropped(subject.__schema__, pending) if pending is not None and isinstance(subject, Entity) else None
    return _row_change(verb, Mode.DELETE, subject, condition, before, (DELETED, dropped or {}, None))


def _refuse_alone(subject: Subject | Key[Any]) -> None:
    """Refuse to delete an entity of which others are deleted first, or whose key does not tell what else is."""
    model: Any = subject.model if isinstance(subject, Key) else type(subject)
    schema: Schema | None = getattr(model, "__schema__", None)
    if schema is not None and schema.relations and schema.cascades:
        raise ModelError(
            f"{schema.name} is deleted by db.delete(...) alone, one at a time: it has a relation with "
            "on_delete='cascade', so that its children are deleted first"
        )
    if hides_class(schema):
        raise ModelError(
            f"delete of {subject} is rejected: {model.__name__} is abstract, and the class of the entity tells what is "
            "deleted with it; give the entity, or a key of its class, or use db.delete(key)"
        )


def hides_class(schema: Schema | None) -> bool:
    """Return whether a model is an abstract one that has a class of which a delete needs more than the key."""
    return (
        schema is not None
        and schema.abstract
        and any(each.tracked or each.stages or each.maintained or each.cascades for each in concrete(schema))
    )


def guard_change(subject: Subject) -> Change:
    """
    Touch a row that is as it was read: merge nothing under its ETag, which fails if the row has changed since.
    """
    return _touch("get", Mode.GUARD, subject)


def rebuild_change(subject: Entity, only: Sequence[str], *, counts: bool = False) -> Change:
    """
    Write what some indexes, counts and other declarations derive from a row that is as it was read, and nothing else.
    An upgraded entity is saved, since all that is derived from it shall be of what it was upgraded to.

    Args:
        subject: An entity that was just read in full.
        only: Names of what is declared, also of some that its model does not have: what the row notes of those goes.
        counts: Whether what it adds to counts and sums changes these too, and not its note of that alone.
    """
    if state_of(subject).upgraded:
        return structs.replace(rewrite_change(subject, "rebuild"), mode=Mode.SAVE, counts=counts)
    values = subject.__dict__
    return _touch("rebuild", Mode.REBUILD, subject, values=values, only=tuple(only), counts=counts)


def rewrite_change(subject: Entity, verb: str, mark: MoveMark | None = None) -> Change:
    """
    Write the row of an entity as it is, under its ETag: nothing is filled in, nor validated.

    Args:
        subject: An entity that was just read in full, or written.
        verb: What to call it.
        mark: What the row is to say of a move.

    Raises:
        PreconditionFailed: Nobody knows its ETag, since its row was written by others before the reply was known.
    """
    state, etag, before = _as_read(subject)
    if etag is None:
        raise missing_etag(verb, subject, stale=True)
    key, schema = key_of(subject), subject.__schema__
    address = RowAddress.of(key)
    values, extra = subject.__dict__, _unknown_of(state, schema)
    shown = Shown(schema=schema, address=address, values=values, extra=extra, before=before)
    patched = entity_patch(Mode.REPLACE, shown)
    return _row_change(verb, Mode.REPLACE, subject, etag, before, patched, values=values, mark=mark)


def _touch(verb: str, mode: Mode, subject: Subject, **more: Any) -> Change:
    """Return a change that writes nothing into a row that is as it was read."""
    _, etag, before = _as_read(subject)
    row = {} if before is None else before.row
    return _row_change(verb, mode, subject, etag, before, (UNTOUCHED, overlaid(row, {}), 0), **more)


def _as_read(subject: Subject) -> tuple[EntityState, str | None, Known | None]:
    """Return what a subject knows of its row, the ETag that this has, and the row as it was read."""
    state, row = _row_of(subject)
    etag = None if row is None else row.get("odata.etag")
    return state, etag, _remembered(subject, state, row, None, etag)


def as_given(change: Change) -> Change:
    """
    Return a change that is written later, with the values of now: what is changed until then belongs to another write.
    """
    schema, whole = change.schema, change.shown
    if schema is None or not schema.tracked or change.patch.set is None or not change.values:
        return change
    assert whole is not None
    if change.before is not None and not change.before.complete:
        return structs.replace(change, values=dict(change.values))
    return structs.replace(change, values=schema.decode(dict(whole)).__dict__)
