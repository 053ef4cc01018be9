"""
Stage 5, derive: what a write of an entity does to the rows that are derived from it, and to entities that it counts in.

An entity notes in the property `_ix` what there is of it elsewhere. So a writer never computes an old address from old
values, old templates or old versions: what the row says is there is replaced or deleted, nothing else. The notes,
by the name of what was declared:

    "email_x"                               the copy in an index: its RowKey
    {"list": ["lastname_x", kind]}          the index list that it is in
    {"add": ["department", {property: 1}]}  what it adds to a count or sum of another entity
    {"from": ["empid_1", name]}             the entity that it holds copies of, and the note there
    {"to": ["department", {mine: theirs}]}  an entity that holds copies of it, and of which properties
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import msgspec
from msgspec import structs

from ...derived.aggregate.aggregate import AggregateSchema
from ...derived.embed.embed import EmbedSchema, embed_of
from ...derived.entity_patch import Patch, number_of
from ...derived.index.effect import CopyEffect
from ...derived.index.index import IndexSchema
from ...derived.index_list.effect import ListEffect
from ...derived.index_list.index_list import ListSchema
from ...errors import Conflict, DecodeError, NotSupported, TableOrmError
from ...models.manifest import manifest_of
from ...models.reserved import ENTITY_TYPE, ENTITY_VERSION, MANIFEST, WRITE_TOKENS
from ...models.schema import Schema
from ...protocol.edm import ANNOTATION, SYSTEM_MEMBERS
from ...stores import Row, Verb
from ..effect import Effect, with_tokens_of
from ..plan import Mode, PlannedWrite, in_transaction
from ..write_tokens import new_token
from .encode import changes
from .maintained import keep_maintained

__all__ = ["Derived", "Fill", "derive", "derives"]

_WHOLE = frozenset({Mode.INSERT, Mode.REPLACE, Mode.SAVE, Mode.UPSERT_REPLACE, Mode.REBUILD})

_NEVER_COPIED = frozenset({MANIFEST, WRITE_TOKENS, *SYSTEM_MEMBERS})

_KIND = frozenset({ENTITY_TYPE, ENTITY_VERSION})

_DIVIDE_AT = 512 * 1024

_INSERT, _MERGE, _INSERT_OR_MERGE = Mode.INSERT, Verb.MERGE, Verb.INSERT_OR_MERGE  # an enum looks its members up

_to_json = msgspec.json.Encoder(order="sorted").encode


class Fill(msgspec.Struct, frozen=True, eq=False, gc=False):
    """
    Copies that a write has to hold of another entity.

    Args:
        row_key: Of the write.
        source: RowKey of the other entity; None if it holds none any more.
        properties: By property of the write's row the property of the other's.
        label: What was declared, for messages.
    """

    row_key: str
    source: str | None
    properties: Mapping[str, str]
    label: str


class Derived(msgspec.Struct, frozen=True, eq=False, gc=False):
    """
    Some writes, and what else they do.

    Args:
        writes: The writes, with their notes.
        effects: On other rows, by RowKey.
        fills: Copies that some of the writes have to hold.
        token: The write token of all of them.
    """

    writes: list[PlannedWrite]
    effects: dict[str, Effect]
    fills: list[Fill]
    token: str


class _Source(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A write, with what it is derived from."""

    write: PlannedWrite
    row: Row
    values: Mapping[str, Any]
    changed: set[str]
    fills: list[Fill]

    @property
    def partition_key(self) -> str:
        key: str = self.row["PartitionKey"]
        return key

    @property
    def upgraded(self) -> bool:
        """Whether the row was of an older version."""
        return self.write.change.upgraded or self.write.origin.upgraded


def derives(write: PlannedWrite) -> bool:
    """Whether a write may concern other rows."""
    schema = write.change.schema
    if schema is not None and schema.tracked:
        return True
    stored = (write.first or write.change).stored
    return stored is not None and MANIFEST in stored.row


def derive(writes: Sequence[PlannedWrite], *, transaction: bool = False) -> Derived:
    """
    The effects of some writes on other rows, and the writes with the notes of them.

    Args:
        writes: All writes of a transaction, one for each row.
        transaction: Whether the user asked for a transaction, and gets its errors.

    Raises:
        UniqueViolation: Two of them want the same unique value.
        EncodeError: A field was changed that other entities keep.
        Conflict: An entity is deleted that others need.
        NotSupported: A bag would change a row that has copies.
        TransactionFailed: The like in a transaction.
    """
    token: str | None = None
    for write in writes:
        token = token or write.token
    result = Derived([], {}, [], token or new_token())
    for write in writes:
        try:
            one, found = _derived(write, result.fills) if derives(write) else (write, [])
            for effect in found:
                earlier = result.effects.get(effect.address)
                result.effects[effect.address] = effect if earlier is None else earlier.merge_with(effect)
        except TableOrmError as error:
            raise _of(write, error, transaction=transaction) from error
        result.writes.append(one)
    for number, write in enumerate(result.writes):
        beside = result.effects.get(write.operation.row["RowKey"])
        try:
            if beside is not None:
                result.writes[number] = beside.apply_to(write)
                del result.effects[beside.address]
            if write.after is None:
                _refuse_needed(write, beside if isinstance(beside, Patch) else None)
        except TableOrmError as error:
            raise _of(write, error, transaction=transaction) from error
    return result


def _of(write: PlannedWrite, error: TableOrmError, *, transaction: bool) -> TableOrmError:
    return in_transaction(write.origin, write.index, error, "; nothing was sent") if transaction else error


def _derived(write: PlannedWrite, fills: list[Fill]) -> tuple[PlannedWrite, list[Effect]]:
    """A write with its new notes, and its effects."""
    change, first = write.change, write.origin
    schema = change.schema
    seen = None if first.mode is _INSERT or first.stored is None else first.stored.row
    if seen is not None:
        if change.mode is Mode.REBUILD:
            return _rebuilt(write, fills)
        if change.mode is Mode.GUARD and write.first is None:
            return write, []
    noted = manifest_of(seen)
    old = noted.copy()
    if schema is None and old and (write.after is not None or change.verb == "move"):
        raise NotSupported(
            f"{change}: the row notes {', '.join(old)}, which are derived from it, and which a bag cannot keep right; "
            "write it through its model"
        )
    if write.after is None:
        return write, [effect for name, mark in old.items() for effect in _undone(name, mark, write)]
    if schema is None:
        return write, []
    write = keep_maintained(write, schema, seen)
    row = cast("Row", write.after)
    changed: set[str] = set()
    if seen is not None:  # nothing is derived from a row that was not there
        changed = {name for name in changes(seen, row) if ANNOTATION not in name}
        changed |= {name for name in seen if ANNOTATION not in name and name not in row}
        if change.upgraded or first.upgraded:
            changed.update(row)  # copies are of the version that was stored
    source = _Source(write, row, _values(write, schema, row), changed, fills)
    new: dict[str, Any] = {}
    effects: list[Effect] = []
    for name, each in schema.derived():
        before = old.pop(name, None)
        if before is not None and not _is_of(each, before):
            effects += _undone(name, before, write)  # what was declared by that name was of another sort
            before = None
        mark, found = _EFFECTS[type(each)](name, each, before, source)
        if mark is not None:
            new[name] = mark
        effects += found
    for name, mark in old.items():
        if _is_held(mark):
            new[name], found = _embedded(name, mark, source)
            effects += found
        else:  # what this program does not know: no copy is better than an old one
            effects += _undone(name, mark, write)
    return _noted(write, noted, new), effects


def _rebuilt(write: PlannedWrite, fills: list[Fill]) -> tuple[PlannedWrite, list[Effect]]:
    """
    A row that stays as it is, with the right notes of some of what is declared, and what makes the rest of that right.
    The notes may be wrong, so a row that they name is read before it is replaced or deleted. A copy that the note does
    not name yet is written in any case, whatever is there: an audit that saw it without a primary deletes it under the
    ETag of then.
    """
    change, row = write.change, write.after
    schema, stored = change.schema, change.stored
    assert schema is not None
    seen = None if stored is None else stored.row
    assert row is not None
    try:
        noted: Mapping[str, Any] | None = manifest_of(seen)
    except DecodeError:
        noted = None
    names = frozenset(change.only or ())
    new = {name: mark for name, mark in (noted or {}).items() if name not in names}
    source = _Source(write, row, _values(write, schema, row), set(), fills)
    declared = {**schema.indexes, **schema.lists, **schema.aggregates, **schema.embeds}
    effects: list[Effect] = []
    for name in sorted(names):
        each, before = declared.get(name), (noted or {}).get(name)
        mark, found = (None, _left(None, name, before, write)) if each is None else _again(name, each, before, source)
        if mark is not None:
            new[name] = mark
        effects += found
    return _noted(write, noted, new), effects


def _again(name: str, each: Any, before: Any, source: _Source) -> tuple[Any, list[Effect]]:
    """The right note of something that is declared, and what makes it right, whatever is there."""
    write, values = source.write, source.values
    effects: list[Effect] = []
    match each:
        case IndexSchema():
            mark: Any = each.address(values)
            if mark is not None:
                copy, again = with_tokens_of(each.copy_of(values, source.row, mark), write), mark == before
                effects.append(CopyEffect(each, mark, write, again, copy, values, reads=again))
        case ListSchema():
            mark = each.mark(values)
            effects += [] if mark is None else [_entered(each, mark, source)]
        case AggregateSchema():
            if write.change.counts:
                return _aggregated(name, each, before, source)
            # Whether it was counted nobody knows; an audit sets the count afterwards, from all that note it.
            return each.mark(values, source.partition_key), []
        case _:
            assert isinstance(each, EmbedSchema)
            mark = each.mark(values, source.partition_key, source.row["RowKey"])
            effects += _filled(each, mark, source)
    return mark, [*effects, *_left(mark, name, before, write)]


def _left(mark: Any, name: str, before: Any, write: PlannedWrite) -> list[Effect]:
    """What takes back what is noted wrongly, as far as it can be understood."""
    if before is None or before == mark:
        return []
    if isinstance(before, str):
        index = write.change.schema.indexes.get(name) if write.change.schema is not None else None
        return [CopyEffect(index, before, write, existed=True, reads=True)]
    try:
        return _undone(name, before, write)
    except NotSupported:
        return []


def _values(write: PlannedWrite, schema: Schema, row: Row) -> Mapping[str, Any]:
    """The fields of the entity as they will be stored."""
    change = write.change
    if (
        write.first is None
        and change.mode in _WHOLE
        and not (change.partial or change.loaded is not None or schema.maintained)
    ):
        return change.values
    return cast("dict[str, Any]", schema.decode(dict(row)).__dict__)


def _noted(write: PlannedWrite, old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> PlannedWrite:
    """The write with the notes of what is derived now, if the row would not have them by itself; None is damaged."""
    operation, after = write.operation, write.after
    merges = operation.verb is _MERGE or operation.verb is _INSERT_OR_MERGE
    assert after is not None
    if not new and (not old if merges else MANIFEST not in after) and old is not None:
        return write
    # Both rows were made for this write, and nobody else has them.
    if not new and not merges:
        after.pop(MANIFEST, None)
        operation.row.pop(MANIFEST, None)
        return write
    text = _to_json(new).decode()
    after[MANIFEST] = text
    if not merges or new != old:
        operation.row[MANIFEST] = text
    else:
        operation.row.pop(MANIFEST, None)
    return write if write.weight is None else structs.replace(write, weight=write.weight + len(text))


def _refuse_needed(write: PlannedWrite, effect: Patch | None) -> None:
    """Refuse to delete what others hold copies of, or count in."""
    change, first = write.change, write.origin
    seen = None if first.mode is Mode.INSERT or first.stored is None else first.stored.row
    marks = {**manifest_of(seen), **({} if effect is None else effect.marks)}
    for name, mark in marks.items():
        if _is_held(mark):
            raise Conflict(
                f"{change}: the entity {mark['to'][0]!r} of this partition holds copies of it "
                f"({name.partition(':')[0]}); let that refer to another one first, or in the same transaction",
                None,
                change.subject,
            )
    if change.schema is None or seen is None:
        return
    for info in change.schema.maintained:
        if info.default is None or info.optional:
            continue
        added = 0 if effect is None else effect.deltas.get(info.property, 0)
        counted = seen.get(info.property)
        left = (info.default() if counted is None else number_of(counted, info.property, change, seen)) + added
        if left != info.default():
            raise Conflict(
                f"{change}: its {info.name} is {left}: other entities count in it; delete those first, or in the same "
                "transaction",
                None,
                change.subject,
            )


# By what is declared: the new note, and the effects


def _copied(_name: str, index: IndexSchema, old: Any, source: _Source) -> tuple[Any, list[Effect]]:
    address = index.address(source.values)
    effects: list[Effect] = []
    if address is not None:
        again = address == old
        if not again or _concerns(index, source.changed):
            copy = with_tokens_of(index.copy_of(source.values, source.row, address), source.write)
            canonical = source.write.operation.canonical
            effects.append(CopyEffect(index, address, source.write, again, copy, source.values, canonical=canonical))
    if old is not None and old != address:
        effects.append(CopyEffect(index, old, source.write, existed=True))
    return address, effects


def _concerns(index: IndexSchema, changed: set[str]) -> bool:
    """Whether some of the properties that change are in the copies of an index."""
    if index.index.include == "all":
        return bool(changed - _NEVER_COPIED - index.maintained_properties)
    return bool(changed & (index.properties | _KIND))


def _listed(_name: str, index: ListSchema, old: Any, source: _Source) -> tuple[Any, list[Effect]]:
    mark = index.mark(source.values)
    if mark == old and source.write.change.verb != "rebuild":
        return mark, []
    effects = [] if old in (None, mark) else _undone(index.name, old, source.write)
    if mark is not None:
        effects.append(_entered(index, mark, source))
    return mark, effects


def _entered(index: ListSchema, mark: Mapping[str, Any], source: _Source) -> Effect:
    mine = frozenset({source.row["RowKey"]})
    return ListEffect(mark["list"][0], "", source.write, index.kind, index.declared.divide_at, adds=mine)


def _aggregated(name: str, tally: AggregateSchema, old: Any, source: _Source) -> tuple[Any, list[Effect]]:
    mark, target = tally.mark(source.values, source.partition_key), tally.target[0]
    if mark == tally.current(old):
        return mark, []
    effects = [] if old is None else _undone(name, old, source.write)
    if mark is not None:
        address, amounts = mark["add"]
        needed = (
            f"{tally.label} counts it in {target.name} {address!r} of this partition, which does not exist; insert that"
        )
        create = partial(tally.make, source.partition_key, address) if tally.declared.create else None
        effects.append(
            Patch(
                address,
                source.write,
                amounts,
                needed=f"{needed} first",
                create=create,
                target=target,
            )
        )
    return mark, effects


def _held(name: str, embed: EmbedSchema, old: Any, source: _Source) -> tuple[Any, list[Effect]]:
    mark = embed.mark(source.values, source.partition_key, source.row["RowKey"])
    # An upgrade may have renamed what holds the copies, which the other entity notes.
    if mark == old and not (mark is not None and source.upgraded):
        return mark, []
    effects: list[Effect] = []
    if old is not None:
        effects += _undone(name, old, source.write)
    return mark, [*effects, *_filled(embed, mark, source)]


def _filled(embed: EmbedSchema, mark: Mapping[str, Any] | None, source: _Source) -> list[Effect]:
    """The entity holds copies of the other one, or none any more; that notes it."""
    target, properties = embed.source
    mine = source.row["RowKey"]
    source.fills.append(Fill(mine, None if mark is None else mark["from"][0], properties, embed.label))
    if mark is None:
        return []
    address, note = mark["from"]
    needed = f"{embed.label} is {target.name} {address!r} of this partition, which does not exist"
    there = embed.mark_there(mine)
    return [Patch(address, source.write, marks={note: there}, needed=needed, target=target)]


def _is_of(declared: object, mark: object) -> bool:
    """Whether a note is one of what is declared."""
    sort = _SORTS[type(declared)]
    return isinstance(mark, str) if sort is None else isinstance(mark, dict) and sort in mark


_SORTS: dict[type, str | None] = {IndexSchema: None, ListSchema: "list", AggregateSchema: "add", EmbedSchema: "from"}


def _is_held(mark: Any) -> bool:
    """Whether a note says that another entity holds copies."""
    match mark:
        case {"to": [str(), {**properties}]}:
            return all(isinstance(each, str) for each in properties.values())
        case _:
            return False


def _embedded(name: str, mark: Mapping[str, Any], source: _Source) -> tuple[Mapping[str, Any], list[Effect]]:
    """What an entity notes of another one that holds copies of some properties, and the copies that change there."""
    schema = source.write.change.schema
    assert schema is not None
    holder, properties = mark["to"]
    if source.upgraded and not all(mine in schema.by_property for mine in properties):
        embed = embed_of(schema, name)
        if embed is None:
            raise NotSupported(
                f"{source.write.change}: the entity {holder!r} of this partition holds copies of it "
                f"({name.partition(':')[0]}), and what they are called after the upgrade to version {schema.version} "
                "only that one's model says; import it, with Embedded as it is now"
            )
        # Who holds them may be of an older version as well, and is upgraded then.
        mark = embed.mark_there(holder)
        members = _copies(mark["to"][1], source)
        return mark, [Patch(holder, source.write, members=members, target=embed.schema)]
    members = _copies({mine: theirs for mine, theirs in properties.items() if mine in source.changed}, source)
    return mark, [Patch(holder, source.write, members=members)] if members else []


def _copies(properties: Mapping[str, str], source: _Source) -> Row:
    return {theirs + end: source.row.get(mine + end) for mine, theirs in properties.items() for end in ("", ANNOTATION)}


_EFFECTS: dict[type, Callable[[str, Any, Any, _Source], tuple[Any, list[Effect]]]] = {
    IndexSchema: _copied,
    ListSchema: _listed,
    AggregateSchema: _aggregated,
    EmbedSchema: _held,
}


def _undone(name: str, mark: Any, write: PlannedWrite) -> list[Effect]:
    """What takes back what a note says, whatever this program knows of its declaration."""
    match mark:
        case str():
            return [CopyEffect(None, mark, write, existed=True)]
        case {"list": [str(key), str(kind)]}:
            mine = frozenset({write.operation.row["RowKey"]})
            return [ListEffect(key, "", write, kind, _DIVIDE_AT, removes=mine)]
        case {"add": [str(), {**noted_amounts}]} if all(type(each) is int for each in noted_amounts.values()):
            tally = None if write.change.schema is None else write.change.schema.aggregates.get(name)
            noted = mark if tally is None else tally.current(mark)
            address, amounts = cast("tuple[str, dict[str, int]]", noted["add"])
            target = None if tally is None else tally.target[0]
            return [Patch(address, write, {each: -amount for each, amount in amounts.items()}, target=target)]
        case {"from": [str(address), str(note)]}:
            return [Patch(address, write, marks={note: None})]
        case _ if _is_held(mark):
            return []  # a delete is refused, unless the same transaction takes it back
        case _:
            raise NotSupported(
                f"{write.change}: the row notes {name!r} as {mark!r}, which this program does not know; update it, "
                "or let `tableorm audit --repair` correct the note"
            )
