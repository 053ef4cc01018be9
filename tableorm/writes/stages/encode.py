"""
Stage 3, encode: a Change becomes one operation on one logical row.
"""

from collections.abc import Sequence

from msgspec import structs

from ...errors import EncodeError
from ...models.property_bag import PropertyBag
from ...models.reserved import ENTITY_TYPE, ENTITY_VERSION, MANIFEST, WRITE_TOKENS
from ...models.schema import FieldInfo, Schema
from ...models.upgrades import stored_version
from ...protocol.edm import ANNOTATION, SYSTEM_MEMBERS
from ...stores import Operation, Row, Verb
from ..plan import Change, Mode, PlannedWrite
from ..write_tokens import new_token, tokens_of, with_token

__all__ = ["changes", "content", "encode", "overlaid", "removed_properties", "same_value", "unsaved"]

_VERBS = {
    Mode.INSERT: Verb.INSERT,
    Mode.REPLACE: Verb.REPLACE,
    Mode.UPSERT_REPLACE: Verb.INSERT_OR_REPLACE,
}
_INSERT_OR_MERGE = Verb.INSERT_OR_MERGE
_NOT_CONTENT = frozenset({"odata.etag", "Timestamp", WRITE_TOKENS, MANIFEST})


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
        row, weight = _whole(change)
        write = _finish(change, index, token, _VERBS[change.mode], row, row, weight)
    return write if change.stored is None or write is None else _with_view(write)


def _with_view(write: PlannedWrite) -> PlannedWrite:
    """
    A write of which the row was read for it, with what its subject knows of that afterwards. What the row has and the
    subject has not, the next save must not take for removed.
    """
    change, after = write.change, write.after
    if after is None:
        return write
    before = change.before or {}
    mine = _loaded(structs.replace(change, stored=None))
    unseen = {
        name
        for name in after
        if _is_property(name) and name not in mine and name not in before and _is_looked_at(change, name)
    }
    if not unseen:
        return write
    return structs.replace(write, view={n: v for n, v in after.items() if n.removesuffix(ANNOTATION) not in unseen})


def _is_looked_at(change: Change, name: str) -> bool:
    """Whether a subject that has no such property says so; an entity says nothing of a field that was not loaded."""
    schema = change.schema
    if schema is None:
        return True
    info = schema.by_property.get(name)
    if info is not None:
        return info.name in change.values
    return "_extra" in change.values and name in schema.unknown({name: ""})


def _delete(change: Change, index: int, _: str | None) -> PlannedWrite:
    operation = Operation(Verb.DELETE, _keys(change), change.if_match)
    return PlannedWrite(operation, change, index, None, 0, base=_head(change.seen))


def _guard(change: Change, index: int, token: str | None) -> PlannedWrite:
    return _finish(change, index, token, Verb.MERGE, _keys(change), overlaid(change.before or {}, {}), 0)


def _upsert_merge(change: Change, index: int, token: str | None) -> PlannedWrite:
    row, weight = _whole(change)
    _refuse_removal(change, row)
    if change.stored is not None:
        row = overlaid(content(change.stored), row)
        return _finish(change, index, token, Verb.REPLACE, row, row, None)
    after = row if change.before is None else overlaid(change.before, row)
    return _finish(change, index, token, _INSERT_OR_MERGE, row, after, weight, partial=True)


def _keys(change: Change) -> Row:
    return {"PartitionKey": change.partition_key, "RowKey": change.row_key}


def _head(row: Row | None) -> str | None:
    tail = tokens_of(row)
    return tail[0] if tail else None


def _finish(
    change: Change,
    index: int,
    token: str | None,
    verb: Verb,
    row: Row,
    after: Row | None,
    weight: int | None,
    *,
    partial: bool = False,
) -> PlannedWrite:
    """The planned write, with its token on the row if its rows carry tokens."""
    known = change.seen
    read = tokens_of(known)
    base = read[0] if read else None
    carries = change.schema is not None and change.schema.write_token
    # Not for rows of which nothing is known: a plain table stays as other programs expect it.
    if base is None and not carries:
        operation = Operation(verb, row, change.if_match, weight is not None)
        return PlannedWrite(operation, change, index, after, weight, partial)
    if token is None:
        token = new_token()
    # What overwrites without looking must not claim to follow what it may never have seen; nor what overwrites the
    # version of an ETag that it was given, and has itself read another one.
    blind = known is None or change.if_match in (None, "*") or change.if_match != known.get("odata.etag")
    if read[:1] == (token,):
        read = read[1:]  # what the transaction holds of the row already follows what it has seen, and no more
    elif blind:
        read = ()
    tail = with_token(read, token)
    # Both were made for this write; where they are one, the store gets another than the subject.
    after = row.copy() if after is None or after is row else after
    row[WRITE_TOKENS] = after[WRITE_TOKENS] = tail
    if weight is not None:
        weight += len(tail)
    # A model that does not carry them may have no room for one more property.
    operation = Operation(verb, row, change.if_match, carries and weight is not None)
    return PlannedWrite(operation, change, index, after, weight, partial, token, None if blind else base)


def _whole(change: Change) -> tuple[Row, int | None]:
    """The row of the whole entity or bag, with what the model does not know, and its weight if that is known."""
    schema, known = change.schema, change.known
    if schema is None:
        row = content(_bag(change).row)
        if change.stored is None:
            return row, None
        return _without(overlaid(content(change.stored), row), removed_properties(change, row)), None
    weight: int | None
    row, weight = schema.encode(change.values, change.partition_key, change.row_key)
    if known is not None:
        foreign = _keep_spelling(schema, row, known)
        if foreign | (not change.upgraded and _keep_kind(row, known)):
            weight = None
    if change.drop_extra or (known is None and "_extra" not in change.values):
        return row, weight
    extra = _extra(change, schema)
    if not extra:
        return row, weight
    row |= extra
    return row, None


def _bag(change: Change) -> PropertyBag:
    bag: PropertyBag = change.subject if change.bag is None else change.bag
    return bag


def unsaved(change: Change) -> list[str]:
    """The properties that a save would write or remove because they were changed since they were read."""
    row = _loaded(change) if change.partial else _whole(change)[0]
    changed = [
        name
        for name in changes(change.before or {}, row)
        if ANNOTATION not in name and not _is_default(change, name, row)
    ]
    if change.upgraded:
        return []  # the upgrade changed it
    return changed + removed_properties(change, row)


def content(row: Row) -> Row:
    """A row without what a write makes: ETag, Timestamp and write tokens."""
    return {name: value for name, value in row.items() if name not in _NOT_CONTENT}


def _save(change: Change, index: int, token: str | None) -> PlannedWrite | None:
    before = change.before
    assert before is not None
    if change.partial:
        return _save_part(change, index, token, before)
    row, weight = _whole(change)
    removed = [name for name in before if name not in row and _is_property(name)]
    changed = changes(before, row)
    if not (changed or removed or change.upgraded) or _only_made(change, changed, removed):
        return None
    if change.upgraded or removed:
        # A merge cannot remove a property; the row holds all that the model does not know as well.
        return _finish(change, index, token, Verb.REPLACE, row, row, weight)
    return _finish(change, index, token, Verb.MERGE, {**_keys(change), **changed}, row, weight)


def _save_part(change: Change, index: int, token: str | None, before: Row) -> PlannedWrite | None:
    """A save of what was loaded in part: only what changed among that, whatever the rest of the row is."""
    row = _loaded(change)
    changed = changes(before, row)
    # The row may have what the subject knows nothing of, and has a default for.
    unknown = [name for name in changed if _is_default(change, name, changed)]
    changed = _without(changed, unknown)
    removed = removed_properties(change, row)
    if not (changed or removed) or _only_made(change, changed, removed):
        return None
    if not removed:
        after = overlaid(before if change.stored is None else content(change.stored), changed)
        partial = change.stored is None
        return _finish(change, index, token, Verb.MERGE, {**_keys(change), **changed}, after, None, partial=partial)
    assert change.stored is not None
    whole = _without(overlaid(content(change.stored), changed), removed)
    return _finish(change, index, token, Verb.REPLACE, whole, whole, None)


def _without(row: Row, names: Sequence[str]) -> Row:
    return {name: value for name, value in row.items() if name.removesuffix(ANNOTATION) not in names}


def _only_made(change: Change, changed: Row, removed: list[str]) -> bool:
    """
    Whether nothing changed but what the write itself makes, such as `updated_at`, and what reading made of properties
    that the row does not have.
    """
    schema = change.schema
    if removed or schema is None or change.upgraded:
        return False
    made = {schema.fields[name].property for name in change.made or ()}
    names = (name for name in changed if ANNOTATION not in name)
    return all(name in made or _is_default(change, name, changed) for name in names)


def _is_default(change: Change, name: str, row: Row) -> bool:
    """Whether a row that was read has no such property, and the field what is read of that: its default."""
    schema, before = change.schema, change.before
    if schema is None or before is None or before.get(name) is not None:
        return False
    info = schema.by_property.get(name)
    if info is None or info.default is None or info.name not in change.values.get("_loaded", change.values):
        return False  # what was not loaded was set
    return (
        changes(schema.encode_some({info.name: info.default()}, (info,)), {n: row[n] for n in _members(row, name)})
        == {}
    )


def _members(row: Row, name: str) -> list[str]:
    return [member for member in (name, name + ANNOTATION) if member in row]


def _loaded(change: Change) -> Row:
    """The members of what an entity or bag has loaded, unknown properties included if they were looked at."""
    schema, before = change.schema, change.before
    if schema is None:
        return {name: value for name, value in content(_bag(change).row).items() if name not in SYSTEM_MEMBERS}
    row = schema.encode_some(change.values, (info for info in schema.stored if info.name in change.values))
    if before is not None:
        _keep_spelling(schema, row, before)
    if "_extra" in change.values:
        row |= _extra(change, schema)
    return row


def removed_properties(change: Change, row: Row | None = None) -> list[str]:
    """The properties that a save removes: set to None since they were read, or taken out of a bag or `extra`."""
    before, schema = change.before or {}, change.schema
    row = _loaded(change) if row is None else row
    if schema is None:
        return [name for name in before if _is_property(name) and name not in row]
    read = change.values.get("_loaded", change.values)
    gone: list[str] = []
    for info in schema.stored:
        known = before
        if info.name not in read:  # it was set since: whether there is something to remove is told by the row alone
            known = {info.property: True} if change.stored is None else change.stored
        if info.name in change.values and known.get(info.property) is not None:
            gone.append(info.property)
    if "_extra" in change.values:
        gone += [name for name in schema.unknown(before) if ANNOTATION not in name]
    return [name for name in gone if name not in row]


def _merge(change: Change, index: int, token: str | None) -> PlannedWrite | None:
    schema, before = change.schema, change.before
    # Of a row version that the subject has not seen, it knows no more than what it sends.
    some = change.only is not None and (schema is None or len(change.only) < len(schema.stored))
    stale = some and change.foreign and before is not None
    if schema is not None and change.upgraded and change.known is not None:
        # The first write of an upgraded entity is a replace: of what it was upgraded to, and of these fields.
        row = overlaid(content(change.known), _chosen(change))
        return structs.replace(_finish(change, index, token, Verb.REPLACE, row, row, None), stale=stale)
    row = _chosen(change)
    if not row:
        return None
    if change.stored is not None:
        after = overlaid(content(change.stored), row)
        write = _finish(change, index, token, Verb.MERGE, {**_keys(change), **row}, after, None)
        return structs.replace(write, stale=stale) if stale else write
    exact = before is not None and not change.partial and not change.foreign
    after = {**_keys(change), **row} if before is None else overlaid(before, row)
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
        _refuse_removal(change, row)
        return row
    if schema is None:
        bag = _bag(change)
        for name in only:
            if name not in bag:
                raise _no_removal("PropertyBag", name)
        return {name: value for name, value in bag.row.items() if name.removesuffix(ANNOTATION) in only}
    infos = [schema.fields[name] for name in only]
    for info in infos:
        if change.values[info.name] is None and not _surely_absent(change, info):
            raise _no_removal(schema.name, info.name)
    return schema.encode_some(change.values, infos)


def _surely_absent(change: Change, info: FieldInfo) -> bool:
    """Whether the row has no such property, so that there is nothing to remove."""
    known = change.before is not None and not change.partial and not change.foreign
    return known and change.before is not None and info.property not in change.before


def _refuse_removal(change: Change, row: Row) -> None:
    """A merge of everything must not leave in the table what was read, and is None now."""
    if change.before is None:
        return
    schema = change.schema
    for name in removed_properties(change, row):
        if schema is None:
            raise _no_removal("PropertyBag", name)
        info = schema.by_property.get(name)
        raise _no_removal(f"{schema.name}.extra", name) if info is None else _no_removal(schema.name, info.name)


def _no_removal(model: str, name: str) -> EncodeError:
    problem = "is to be removed, and a merge cannot remove a property; save() or replace() it"
    return EncodeError(problem, model, name, None)


def changes(before: Row, row: Row) -> Row:
    """The members of `row` that differ from `before`, each with its annotation."""
    changed: Row = {}
    names = _differing(before, row)
    for name, value in row.items() if names else ():
        if name not in names or not _is_property(name):
            continue
        annotation = row.get(name + ANNOTATION)
        if same_value(before.get(name), value) and before.get(name + ANNOTATION) == annotation:
            continue
        changed[name] = value
        if annotation is not None:
            changed[name + ANNOTATION] = annotation
    return changed


def _differing(before: Row, row: Row) -> set[str]:
    """The properties of `row` that may differ from `before`: all that do, found without a call for each."""
    old = before.get
    names = {
        name.removesuffix(ANNOTATION)
        for name, value in row.items()
        if value != (was := old(name)) or type(value) is not type(was) or type(value) is float
    }
    return names | {name.removesuffix(ANNOTATION) for name in before.keys() - row.keys() if ANNOTATION in name}


def same_value(old: object, value: object) -> bool:
    """Whether two JSON values are the same in the table: zero and minus zero are equal, and different values."""
    return old == value and type(old) is type(value) and (value != 0.0 or str(value) == str(old))


def overlaid(row: Row, members: Row) -> Row:
    """A row after a merge of some members: without ETag, Timestamp, and types of values that were replaced."""
    result = {name: value for name, value in row.items() if name not in ("odata.etag", "Timestamp")}
    for name in members:
        result.pop(name + ANNOTATION, None)
    result.update(members)
    return result


def _is_property(name: str) -> bool:
    return name not in SYSTEM_MEMBERS and ANNOTATION not in name and name not in (WRITE_TOKENS, MANIFEST)


def _extra(change: Change, schema: Schema) -> Row:
    """
    The unknown properties to write back: as read, or as changed through `entity.extra`. If the row was read anew for
    this write, the changes are applied to what it has now.
    """
    before, stored = change.before, change.stored
    bag: PropertyBag | None = change.values.get("_extra")
    if bag is None:
        known = change.known
        return schema.unknown(known) if known is not None and len(known) > 2 else {}
    mine = {name: value for name, value in bag.row.items() if name not in SYSTEM_MEMBERS}
    if change.dropped is not None:
        mine = changes(change.dropped, mine)
    if stored is None:
        return mine
    old, now = schema.unknown(before or {}), schema.unknown(stored)
    for name in old:
        if name not in mine:
            now.pop(name, None)
    return overlaid(now, changes(old, mine))


def _keep_spelling(schema: Schema, row: Row, before: Row) -> bool:
    """
    Where a value is what was read, write what was read: the 100 ns digit of a DateTime, an Int32 in an int field,
    JSON text with other spacing. Only a changed value takes the spelling of the declaration.

    Returns:
        Whether the row has now any that the encoder did not make.
    """
    kept = False
    for name in sorted(_differing(before, row)):
        info, new, old = schema.by_property.get(name), row.get(name), before.get(name)
        if info is None or new is None or old is None:
            continue
        annotation, before_annotation = row.get(name + ANNOTATION), before.get(name + ANNOTATION)
        if new == old and annotation == before_annotation and type(new) is type(old):
            continue
        try:
            value, read = info.type.decode(new, annotation), info.type.decode(old, before_annotation)
        except (ValueError, TypeError):
            continue  # what was stored does not fit the field: the new value replaces it
        if info.type.json_text:
            # By what would be written: equality may leave out a part of the value.
            same = info.type.encode(read) == new
        else:
            same = value == read and type(value) is type(read) and str(value) == str(read)
        if same:
            kept = True
            row[name] = old
            if before_annotation is None:
                row.pop(name + ANNOTATION, None)
            else:
                row[name + ANNOTATION] = before_annotation
    return kept


def _keep_kind(row: Row, before: Row) -> bool:
    """A row that a newer program wrote keeps its version: what this one does not know must not look older."""
    if stored_version(before) <= stored_version(row):
        return False
    for name in (ENTITY_TYPE, ENTITY_VERSION):
        for member in (name, name + ANNOTATION):
            if member in before:
                row[member] = before[member]
    return True
