"""
Stage 3, encode: a Change becomes one operation on one logical row, after stage 2 where it needs the stored row.
"""

from collections.abc import Collection, Sequence

from msgspec import structs

from ...errors import EncodeError
from ...models.property_bag import PropertyBag
from ...models.rekeyed_rows import old_place_of
from ...models.reserved import ENTITY_TYPE, ENTITY_VERSION, MANIFEST, MOVE, WRITE_TOKENS
from ...models.schema import FieldInfo, Schema
from ...models.upgrades import stored_version
from ...models.write_tokens import new_token, tokens_of, with_token
from ...protocol.edm import ANNOTATION, SYSTEM_MEMBERS
from ...stores import Operation, Row, Verb
from ..plan import Change, Mode, PlannedWrite
from ..rows import NOT_PROPERTIES, changes, compare, content, is_absent_value, overlaid, rebased
from .prepare import no_removal, refuse_removal

__all__ = ["encode", "is_partial", "is_upgraded", "needs_row", "own_extra", "unsaved"]

_VERBS = {
    Mode.INSERT: Verb.INSERT,
    Mode.REPLACE: Verb.REPLACE,
    Mode.UPSERT_REPLACE: Verb.INSERT_OR_REPLACE,
}
_UPSERTS = (Mode.UPSERT_MERGE, Mode.UPSERT_REPLACE)
_MAY_NEED_ROW = frozenset({Mode.SAVE, Mode.REPLACE, Mode.MERGE, Mode.UPSERT_MERGE})


def needs_row(change: Change) -> bool:
    """
    Whether the stored row must be read before this can be written.

    A model with indexes needs it wherever the entity was not read in full: the row tells where its copies are. So does
    what was read from a copy, which has no ETag of its own. A plain model needs it seldom: to remove a property from a
    row that was loaded in part, to replace one of which the unknown properties are not known, and to write an upgraded
    entity over another version of the row than was read.
    """
    schema = change.schema
    if change.mode not in _MAY_NEED_ROW and not change.copied and (schema is None or not schema.tracked):
        return False  # most of them
    if change.stored is not change.before or change.mode in (Mode.INSERT, Mode.GUARD):
        return False  # it has been read, or nobody needs it
    needed = change.copied is not None or _reads_first(change)
    # What writes nothing reads nothing.
    return needed and (change.mode is not Mode.SAVE or is_upgraded(change) or bool(unsaved(change)))


def _reads_first(change: Change) -> bool:
    before = change.before
    partial = is_partial(change)
    if change.schema is not None and change.schema.tracked:
        # Where its copies are is told by the row alone.
        if partial or before is None or change.unseen or change.mode in _UPSERTS:
            return True
        return change.schema.moved_from is not None and old_place_of(before.row) is not None
    if change.mode is Mode.SAVE:
        return partial and bool(_removed_properties(change))
    if change.mode is Mode.REPLACE and not change.drop_extra:
        # A bag is all that its row shall be, whoever has added to that.
        return partial or ((before is None or change.unseen) and change.schema is not None)
    return change.mode is not Mode.REPLACE and is_upgraded(change) and change.unseen


def encode(change: Change, index: int, token: str | None = None) -> PlannedWrite | None:
    """
    The operation of a change; None for one that has nothing to write.

    Args:
        change: What to write.
        index: Its position among the user's changes.
        token: The write token, if the row carries them; a new one if not given.

    Raises:
        EncodeError: A value does not fit its field, or a merge was to remove a property.
    """
    special = _SPECIAL.get(change.mode)
    if special is not None:
        write = special(change, index, token)
    else:
        row, weight, _ = _whole(change)
        write = _finish(change, index, token, _VERBS[change.mode], row, row, weight)
    return _with_view(write) if change.extends and write is not None else write


def _with_view(write: PlannedWrite) -> PlannedWrite:
    """
    A write of which the row was read for it, with what its subject knows of that afterwards. What the row has and the
    subject has not, the next save must not take for removed.
    """
    change, after = write.change, write.after
    if after is None:
        return write
    before = _remembered(change)
    mine = _loaded(structs.replace(change, stored=change.before, extends=False))
    unseen = {name for name in after if _is_property(name) and name not in mine and name not in before}
    if change.schema is not None:
        # An entity says nothing of a field that was not loaded, nor of what its model does not know.
        unseen &= {info.property for info in change.schema.stored if info.name in change.values}
    if not unseen:
        return write
    return structs.replace(write, view={n: v for n, v in after.items() if n.removesuffix(ANNOTATION) not in unseen})


def _remembered(change: Change) -> Row:
    """The members that the subject remembers of its row."""
    return {} if change.before is None else change.before.row


def is_partial(change: Change) -> bool:
    """Whether the row may have more than the subject remembers."""
    return change.before is not None and not change.before.complete


def is_upgraded(change: Change) -> bool:
    """Whether the row was of an older version, so that it is written in full."""
    return change.stored is not None and change.stored.upgraded


def _delete(change: Change, index: int, _: str | None) -> PlannedWrite:
    operation = Operation(Verb.DELETE, _keys(change), change.if_match)
    tokens = () if change.stored is None else tokens_of(change.stored.row)
    base = tokens[0] if tokens else None
    return PlannedWrite(operation=operation, change=change, index=index, after=None, weight=0, base=base)


def _guard(change: Change, index: int, token: str | None) -> PlannedWrite:
    return _finish(change, index, token, Verb.MERGE, _keys(change), overlaid(_remembered(change), {}), 0)


def _upsert_merge(change: Change, index: int, token: str | None) -> PlannedWrite:
    row, weight, _ = _whole(change)
    refuse_removal(change, _removed_properties(change, row) if change.before is not None else ())
    if change.extends and change.stored is not None:
        row = overlaid(content(change.stored.row), row)
        return _finish(change, index, token, Verb.REPLACE, row, row, None)
    after = row if change.before is None else overlaid(change.before.row, row)
    return _finish(change, index, token, Verb.INSERT_OR_MERGE, row, after, weight, partial=True)


def _keys(change: Change) -> Row:
    return {"PartitionKey": change.partition_key, "RowKey": change.row_key}


def _finish(
    change: Change,
    index: int,
    token: str | None,
    verb: Verb,
    row: Row,
    after: Row,
    weight: int | None,
    *,
    partial: bool = False,
) -> PlannedWrite:
    """The planned write, with its token on the row if its rows carry tokens."""
    stored = change.stored
    read = () if stored is None or WRITE_TOKENS not in stored.row else tokens_of(stored.row)
    base = read[0] if read else None
    carries = change.schema is not None and change.schema.write_token
    # Not for rows of which nothing is known: a plain table stays as other programs expect it. Nor for a copy of a row:
    # derived rows name its tokens.
    if (base is None and not carries) or WRITE_TOKENS in row:
        token, blind = None, True
    else:
        token = token or new_token()
        # What overwrites without looking must not claim to follow what it may never have seen; nor what overwrites the
        # version of an ETag that it was given, and has itself read another one.
        blind = stored is None or change.if_match in (None, "*") or change.if_match != stored.row.get("odata.etag")
        if read[:1] == (token,):
            read = read[1:]  # what the transaction holds of the row already follows what it has seen, and no more
        elif blind:
            read = ()
        tokens = with_token(read, token)
        # Both were made for this write; where they are one, the store gets another than the subject.
        after = row.copy() if after is row else after
        for members in (row, after):
            members[WRITE_TOKENS] = tokens
            members.pop(WRITE_TOKENS + ANNOTATION, None)  # the name is reserved, whoever has used it
        if weight is not None:
            weight += len(tokens)
    # A model whose rows do not carry tokens may have no room for one more property.
    canonical = weight is not None and (token is None or carries)
    return PlannedWrite(
        operation=Operation(verb, row, change.if_match, canonical),
        change=change,
        index=index,
        after=after,
        weight=weight,
        partial=partial,
        token=token,
        base=None if blind else base,
    )


def _whole(change: Change) -> tuple[Row, int | None, Row | None]:
    """
    Encode the whole entity or bag, with what the model does not know.

    Returns:
        The row, its weight if that is known, and the members that differ from the row that the write builds on; None
        for these where there is no such row, or it is a bag's.
    """
    schema = change.schema
    base = change.stored if change.extends else change.before
    if schema is None:
        row = _content_of_bag(change)
        if not change.extends or base is None:
            return row, None, None
        return _without(overlaid(content(base.row), row), _removed_properties(change, row)), None, None
    weight: int | None
    row, weight = schema.encode(change.values, change.partition_key, change.row_key)
    if base is None:
        if change.extra and not change.drop_extra and (extra := _extra(change, schema)):
            row |= extra
            weight = None
        return row, weight, None
    if _keep_kind(row, base.row):
        weight = None
    if not change.drop_extra and (extra := _extra(change, schema)):
        row |= extra
        weight = None
    changed, respelled = compare(base.row, row, schema)
    return row, None if respelled else weight, changed


def _bag(change: Change) -> PropertyBag:
    bag: PropertyBag = change.subject if change.bag is None else change.bag
    return bag


def _content_of_bag(change: Change) -> Row:
    """
    The row of a bag without what the write makes. A row that was read is changed with what is derived from it; one that
    is inserted, or was never read, may be the copy of one elsewhere, and is written with its manifest and its tokens.

    Raises:
        EncodeError: The user has set a property that tableorm keeps.
    """
    row = _bag(change).row
    if change.mode is Mode.INSERT or change.before is None:
        return {name: value for name, value in row.items() if name not in ("odata.etag", "Timestamp")}
    for name in (MANIFEST, MOVE):
        if name in row and row[name] != change.before.row.get(name):
            problem = "says what is derived from the row, and is written with that alone; use the model of the row"
            raise EncodeError(problem, "PropertyBag", name, row[name], misuse=True)
    return content(row)


def unsaved(change: Change) -> list[str]:
    """The properties that a save would write or remove because they were changed since they were read."""
    if is_upgraded(change):
        return []  # the upgrade changed it
    row = _loaded(change) if is_partial(change) else _whole(change)[0]
    changed = [
        name
        for name in changes(_remembered(change), row)
        if ANNOTATION not in name and not _is_default(change, name, row)
    ]
    return changed + _removed_properties(change, row)


def _save(change: Change, index: int, token: str | None) -> PlannedWrite | None:
    before, upgraded = change.before, is_upgraded(change)
    assert before is not None
    weight: int | None = None
    if before.complete:
        row, weight, differing = _whole(change)
        changed = changes(before.row, row) if differing is None or change.extends else differing
        removed = [name for name in before.row if name not in row and _is_property(name)]
    else:
        row = _loaded(change)
        changed = changes(before.row, row)
        # The row may have what the subject knows nothing of, and has a default for.
        changed = _without(changed, [name for name in changed if _is_default(change, name, changed)])
        removed = _removed_properties(change, row)
    if not removed and (not (changed or before.complete) if upgraded else _is_only_made(change, changed)):
        return None
    if before.complete:
        if upgraded or removed:
            # A merge cannot remove a property; the row holds all that the model does not know as well.
            return _finish(change, index, token, Verb.REPLACE, row, row, weight)
        return _finish(change, index, token, Verb.MERGE, {**_keys(change), **changed}, row, weight)
    # Of what was loaded in part only what changed among that is written, whatever the rest of the row is.
    read = change.stored if change.extends else None
    if not removed:
        after = overlaid(before.row if read is None else content(read.row), changed)
        return _finish(
            change, index, token, Verb.MERGE, {**_keys(change), **changed}, after, None, partial=read is None
        )
    assert read is not None
    whole = _without(overlaid(content(read.row), changed), removed)
    return _finish(change, index, token, Verb.REPLACE, whole, whole, None)


def _is_only_made(change: Change, changed: Row) -> bool:
    """
    Whether nothing differs but what the write itself makes, such as `updated_at`, and what reading made of properties
    that the row does not have.
    """
    by_property = {} if change.schema is None else change.schema.by_property
    made = change.made or ()
    return all(
        ANNOTATION in name
        or _is_default(change, name, changed)
        or ((info := by_property.get(name)) is not None and info.name in made)
        for name in changed
    )


def _without(row: Row, names: Sequence[str]) -> Row:
    return {name: value for name, value in row.items() if name.removesuffix(ANNOTATION) not in names}


def _is_default(change: Change, name: str, row: Row) -> bool:
    """Whether a row that was read has no such property, and the field the value that was read of that."""
    schema, before = change.schema, change.before
    if schema is None or before is None or before.row.get(name) is not None:
        return False
    info = schema.by_property.get(name)
    if info is None or info.name not in _read_names(change):
        return False  # what was not loaded was set
    return is_absent_value(schema, info, {n: row[n] for n in _members(row, name)})


def _read_names(change: Change) -> Collection[str]:
    """The fields that were read: what is not among them was set since."""
    return change.values if change.loaded is None else change.loaded


def _members(row: Row, name: str) -> list[str]:
    return [member for member in (name, name + ANNOTATION) if member in row]


def _loaded(change: Change) -> Row:
    """The members of what an entity or bag has loaded, with the unknown properties that were changed."""
    schema, before = change.schema, change.before
    if schema is None:
        return {name: value for name, value in _content_of_bag(change).items() if name not in SYSTEM_MEMBERS}
    row = schema.encode_some(change.values, (info for info in schema.stored if info.name in change.values))
    if before is not None:
        compare(before.row, row, schema)
    row |= changes(schema.unknown(_remembered(change)), own_extra(change))
    return row


def _removed_properties(change: Change, row: Row | None = None) -> list[str]:
    """The properties that a save removes: set to None since they were read, or taken out of a bag or `extra`."""
    before, schema = _remembered(change), change.schema
    row = _loaded(change) if row is None else row
    if schema is None:
        return [name for name in before if _is_property(name) and name not in row]
    read = _read_names(change)
    gone: list[str] = []
    for info in schema.stored:
        known = before
        if info.name not in read:  # it was set since: whether there is something to remove is told by the row alone
            known = change.stored.row if change.extends and change.stored is not None else {info.property: True}
        if info.name in change.values and known.get(info.property) is not None:
            gone.append(info.property)
    mine, now = own_extra(change), before if change.stored is None else change.stored.row
    unknown = [name for name in schema.unknown(before) if name not in mine and name in now and ANNOTATION not in name]
    return [name for name in gone if name not in row] + unknown


def _merge(change: Change, index: int, token: str | None) -> PlannedWrite | None:
    schema, before = change.schema, change.before
    # Of a row version that the subject has not seen, it knows no more than what it sends.
    some = change.only is not None and (schema is None or len(change.only) < len(schema.stored))
    stale = some and change.unseen and before is not None
    base = change.stored if change.extends else before
    row = _chosen(change)
    if schema is not None and base is not None:
        compare(base.row, row, schema)  # what is sent keeps the types of the stored row
    if schema is not None and is_upgraded(change) and base is not None:
        # The first write of an upgraded entity is a replace: of what it was upgraded to, and of these fields.
        row = overlaid(content(base.row), row)
        write = _finish(change, index, token, Verb.REPLACE, row, row, None)
    elif not row:
        return None
    elif change.extends and base is not None:
        after = overlaid(content(base.row), row)
        write = _finish(change, index, token, Verb.MERGE, {**_keys(change), **row}, after, None)
    else:
        exact = before is not None and before.complete and not change.unseen
        after = {**_keys(change), **row} if before is None else overlaid(before.row, row)
        write = _finish(change, index, token, Verb.MERGE, {**_keys(change), **row}, after, None, partial=not exact)
    return structs.replace(write, stale=stale) if stale else write


_SPECIAL = {
    Mode.DELETE: _delete,
    Mode.GUARD: _guard,
    Mode.REBUILD: _guard,
    Mode.SAVE: _save,
    Mode.MERGE: _merge,
    Mode.UPSERT_MERGE: _upsert_merge,
}
"""The modes that do not simply write the whole row."""


def _chosen(change: Change) -> Row:
    """The members that a merge sends."""
    schema, only = change.schema, change.only
    if only is None:
        row = _loaded(change)
        refuse_removal(change, _removed_properties(change, row) if change.before is not None else ())
        return row
    if schema is None:
        bag = _bag(change)
        for name in only:
            if name not in bag:
                raise no_removal("PropertyBag", name)
        return {name: value for name, value in bag.row.items() if name.removesuffix(ANNOTATION) in only}
    infos = [schema.fields[name] for name in only]
    for info in infos:
        if change.values[info.name] is None and not _surely_absent(change, info):
            raise no_removal(schema.name, info.name)
    return schema.encode_some(change.values, infos)


def _surely_absent(change: Change, info: FieldInfo) -> bool:
    """Whether the row has no such property, so that there is nothing to remove."""
    before = change.before
    return before is not None and before.complete and not change.unseen and info.property not in before.row


def _is_property(name: str) -> bool:
    return name not in NOT_PROPERTIES and ANNOTATION not in name


def own_extra(change: Change) -> Row:
    """
    Return the unknown properties of an entity. If an earlier change of the transaction has replaced the row without
    some of them, return those alone that the entity has got or changed since.
    """
    return change.extra if change.dropped is None else changes(change.dropped, change.extra)


def _extra(change: Change, schema: Schema) -> Row:
    """
    The unknown properties to write: those of the entity, and an upsert writes them all. If the row was read anew for
    another write, what was changed in them is applied to what the row has now.
    """
    mine = own_extra(change)
    if not change.extends or change.stored is None or change.mode is Mode.UPSERT_MERGE:
        return mine
    return rebased(schema.unknown(change.stored.row), schema.unknown(_remembered(change)), mine)


def _keep_kind(row: Row, before: Row) -> bool:
    """A row that a newer program wrote keeps its version: what this one does not know must not look older."""
    if before.get(ENTITY_TYPE) == row.get(ENTITY_TYPE) and before.get(ENTITY_VERSION) == row.get(ENTITY_VERSION):
        return False
    if stored_version(before) <= stored_version(row):
        return False
    for name in (ENTITY_TYPE, ENTITY_VERSION):
        for member in (name, name + ANNOTATION):
            if member in before:
                row[member] = before[member]
    return True
