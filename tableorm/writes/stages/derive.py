"""
Stage 5, derive: what a write of an entity does to the rows that are derived from it, and to entities that it counts in.

The manifest of an entity says what there is of it elsewhere, see `tableorm.models.manifest`. What it says is replaced
or deleted, nothing else. The patterns themselves say how, see `tableorm.writes.maintainer`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import structs

from ...errors import Conflict, DecodeError, EncodeError, NotSupported, TableOrmError, shown
from ...models.manifest import (
    AggregateEntry,
    ManifestEntry,
    PlacedEntry,
    ReservedEntry,
    SubtotalEntry,
    manifest_of,
    manifest_text,
)
from ...models.marker_rows import MoveMark, MoveState, tentative_kind
from ...models.reserved import ENTITY_TYPE, ENTITY_VERSION, MANIFEST, MOVE
from ...models.schema import FieldInfo, Schema
from ...models.write_tokens import new_token
from ...outbox.decision import Work
from ...protocol.edm import ANNOTATION
from ...stores import Operation, Row, Verb, row_keys
from ..maintainer import (
    Fill,
    Maintainer,
    Source,
    effects_of_delete,
    maintainers_of,
    prover_of,
    rules_of,
    stored_values,
    undo_entry,
)
from ..patch import Expects, Extent, Value
from ..plan import Change, Effect, Mode, PlannedWrite, check_allowed, refuse_before_sending
from ..rows import changes

_MERGES = (Verb.MERGE, Verb.INSERT_OR_MERGE)


class DeferredWork(Value, frozen=True, kw_only=True):
    """
    What a write leaves to do in other partitions.

    Args:
        work: What the decision row says of it.
        origin: The write.
    """

    work: Work
    origin: PlannedWrite


class Derived(msgspec.Struct, frozen=True, eq=False, gc=False, kw_only=True):
    """
    Some writes, and what else they do.

    Args:
        writes: The writes, with their manifests.
        effects: Their effects on other rows, by RowKey.
        fills: Parts of the writes' rows that have to be made from other rows.
        deferred: What the writes leave to do in other partitions.
        token: The write token of all of them.
        claim: The token of the decision row, and of the claims of unique values.
    """

    writes: list[PlannedWrite]
    effects: dict[str, Effect] = {}
    fills: list[Fill] = []
    deferred: list[DeferredWork] = []
    token: str
    claim: str = ""


def derives(write: PlannedWrite) -> bool:
    """Return whether a write may concern other rows, is a step of a move, or starts workflows."""
    schema = write.change.schema
    if write.starts or (schema is not None and schema.tracked) or write.change.mark is not None:
        return True
    stored = write.change.stored
    return stored is not None and MANIFEST in stored.row


def derive(writes: Sequence[PlannedWrite], *, claim: str | None = None) -> Derived:
    """
    Return some writes with their manifests, and their effects on other rows.

    Args:
        writes: All writes of a transaction, one for each row.
        claim: The token of the decision row, if there is one; None for a new one.

    Raises:
        UniqueViolation: Two of them want the same unique value.
        EncodeError: A field was changed that other entities keep.
        Conflict: An entity is deleted that others need.
        NotSupported: A bag would change a row from which others are derived.
        TransactionFailed: One of these errors, in a transaction.
    """
    token: str | None = None
    for write in writes:
        token = token or write.token
    result = Derived(writes=[], token=token or new_token(), claim=claim or new_token())
    for write in writes:
        try:
            one, found = _derive_one(write, result) if derives(write) else (write, [])
            for effect in found:
                earlier = result.effects.get(effect.row_key)
                result.effects[effect.row_key] = effect if earlier is None else _merge(earlier, effect)
        except TableOrmError as error:
            refuse_before_sending(write, error)
        result.writes.append(one)
        if write.starts:
            result.deferred.extend(DeferredWork(work=each, origin=one) for each in write.starts)
    if len(writes) > 1 and result.deferred:
        _keep_moved(result)
    if len(result.deferred) > 1:
        _hand_over(result)
    for number, write in enumerate(result.writes):
        own = result.effects.pop(write.operation.row["RowKey"], None)
        if own is not None and write.after is not None:
            check_allowed(own, write.after)
        refused = write if own is None else own.origin  # the row may be right, but not what another write does to it
        try:
            if own is not None:
                result.writes[number] = own.apply_to(write)
            refused = write
            if write.after is None:
                _refuse_needed(write, own)
        except TableOrmError as error:
            refuse_before_sending(refused, error)
    return result


def _merge(earlier: Effect, effect: Effect) -> Effect:
    """Return one effect for two on the same row. Two patterns never share a row, unless a manifest is damaged."""
    if type(effect) is not type(earlier):
        origin = effect.origin.origin
        raise DecodeError(
            f"or the row of {earlier.origin.origin} has a damaged manifest: two different patterns claim the row "
            f"{shown(effect.row_key)}; repair it with `tableorm audit --repair`",
            "PropertyBag" if origin.schema is None else origin.schema.name,
            (origin.partition_key, origin.row_key),
        )
    return earlier.merge_with(effect)


Entries = dict[str, tuple[ManifestEntry, ...]]
"""What a write leaves to do: by name of the declaration, the entries that name rows in other partitions."""


def _derive_one(write: PlannedWrite, result: Derived) -> tuple[PlannedWrite, list[Effect]]:
    """Return a write with its new manifest, and its effects; put what it leaves to do into the result."""
    change = write.change
    schema = change.schema
    seen = _seen(change)
    if seen is not None:
        if change.mode is Mode.REBUILD:
            return _rebuild(write, result)
        if change.mode is Mode.GUARD and write.first is None:
            return write, []
    stored = manifest_of(seen)
    if schema is None and stored and (write.after is not None or change.verb == "move"):
        raise NotSupported(
            f"{change}: rows are derived from this one by {', '.join(stored)[:200]}, which a bag cannot keep right; "
            "write it through its model"
        )
    named = stored if schema is None else _with_current_names(write, schema, stored)
    deferred: Entries = {name: (entry,) for name, entry in named.items() if entry.deferred}
    if write.after is None:
        deferred = {name: some for name, some in deferred.items() if not some[0].transient}
        undone = [effect for name, entry in named.items() for effect in undo_entry(name, entry, write)]
        undone += effects_of_delete(write)
        if change.mark is not None:
            return write, _effects_in_move(change.mark, undone)
        if write.operation.verb is Verb.REPLACE:  # by a forward: the entity has what is its own at its new place
            deferred = {name: some for name, some in deferred.items() if not some[0].owned}
        if deferred:
            _defer(result, write, cast("Row", seen), deferred)
        return write, undone
    if schema is None:
        return write, []
    write = _keep_maintained(write, schema, seen)
    if not (schema.derived or schema.held or stored or change.mark):
        return write, []  # it is tracked for another reason, such as that it is wide
    row = cast("Row", write.after)
    source = _source(write, schema, row, seen, result)
    old, new = {**named}, dict[str, ManifestEntry]()
    effects: list[Effect] = []
    for name, each in schema.derived.items():
        if not isinstance(each, Maintainer):
            continue
        before = old.pop(name, None)
        if before is not None and type(before) is not each.entry_type:
            effects += undo_entry(name, before, write)  # the name was that of another pattern
            before = None
        entry, found = each.effects(before, source)
        if entry is not None:
            new[name] = entry
        effects += found
        if each.deferred:
            _note_entries(deferred, name, before, None if each.entry_type.owned else entry)
            if not each.leaves_work(before, entry, source):
                del deferred[name]
    for name, before in old.items():
        rules = rules_of(name, before, change)
        entry, found = rules.follow(name, before, source)
        if entry is not None:
            new[name] = entry
            if name in deferred and not rules.leaves_work(entry, source):
                del deferred[name]
        effects += found
    if seen is None and schema.held:
        new.update(schema.held)
        deferred |= {name: (entry,) for name, entry in schema.held.items()}  # some may refer to it already
    write = _with_manifest(write, stored, new)
    if change.mark is not None:
        write, effects = _with_mark(write, change.mark), _effects_in_move(change.mark, effects)
        deferred = deferred if change.mark.state is MoveState.CONFIRMED else {}
    if deferred:
        _defer(result, write, row, deferred)
    return write, effects


def _seen(change: Change) -> Row | None:
    """Return the stored row that a write changes, as far as it is known; None if it inserts one."""
    return None if change.patch.expects is Expects.ABSENT else change.stored_row


def _effects_in_move(mark: MoveMark, effects: Sequence[Effect]) -> list[Effect]:
    """Return what a write of a tentative or confirmed row does to other rows, of all that it would do by itself."""
    if mark.state is MoveState.CONFIRMED:
        return [each.confirmed() for each in effects]
    return [found for each in effects if (found := each.tentative()) is not None]


def _with_mark(write: PlannedWrite, mark: MoveMark) -> PlannedWrite:
    """Return the write of a tentative or confirmed row with its mark, after everything was derived from the row."""
    operation, schema = write.operation, write.change.schema
    row = {**operation.row, MOVE: mark.to_text()}
    if mark.state is MoveState.TENTATIVE:
        row[ENTITY_TYPE] = tentative_kind(str(row.get(ENTITY_TYPE, None if schema is None else schema.kind)))
    # A confirmed row is what was read as a tentative one, which was judged.
    canonical = operation.canonical and mark.state is MoveState.CONFIRMED
    operation = Operation(operation.verb, row, operation.if_match, canonical)
    return structs.replace(write, operation=operation, after=row.copy(), weight=None)


def _note_entries(deferred: Entries, name: str, before: ManifestEntry | None, after: ManifestEntry | None) -> None:
    """Note the entries of a deferred declaration before and after a write, each once."""
    entries = [*deferred.get(name, ()), before, after]
    deferred[name] = tuple(e for n, e in enumerate(entries) if e is not None and e not in entries[:n])


def _defer(result: Derived, write: PlannedWrite, row: Row, entries: Entries) -> None:
    """
    Note what a write leaves to do.

    Args:
        result: Gets it.
        write: The write.
        row: The row of its entity, which says of which kind and version that is.
        entries: What is left to do.
    """
    entries = {name: some for name, some in entries.items() if some}
    if not entries:
        return
    schema, kind, version = write.change.schema, row.get(ENTITY_TYPE), row.get(ENTITY_VERSION)
    if not isinstance(kind, str):
        kind = str(None if schema is None else schema.kind)
        kind = kind if version is None else f"{kind}:{version}"
    work = Work(kind=kind, row_key=row["RowKey"], entries=entries)
    result.deferred.append(DeferredWork(work=work, origin=write))


def _keep_moved(result: Derived) -> None:
    """Leave alone what one entity gives up and another one of the transaction has: it was moved in the partition."""
    dropped = [each for each in result.deferred if any(e.owned for some in each.work.entries.values() for e in some)]
    if not dropped:
        return
    kept = {entry for write in result.writes for entry in manifest_of(write.after).values() if entry.owned}
    for each in dropped if kept else ():
        found = {name: tuple(e for e in some if e not in kept) for name, some in each.work.entries.items()}
        left = {name: some for name, some in found.items() if some}
        number = result.deferred.index(each)
        work = structs.replace(each.work, entries=left)
        result.deferred[number : number + 1] = [structs.replace(each, work=work)] if left else []


def _hand_over(result: Derived) -> None:
    """
    Note each unique value that one entity gives up for another one of the transaction with the one that gets it.

    Raises:
        UniqueViolation: Two of them claim one value.
        TransactionFailed: That error, in a transaction.
    """
    claims: dict[PlacedEntry, tuple[int, str]] = {}
    for number, each in enumerate(result.deferred):
        for name, claim in claims_of(each.work, result.claim):
            if claim.place in claims:
                error = maintainer_of(each.origin, name).refuse_claim(claim, each.origin, None)
                refuse_before_sending(each.origin, error)
            claims[claim.place] = number, name
    if not claims:
        return
    entries = [dict(each.work.entries) for each in result.deferred]
    for number, each in enumerate(result.deferred):
        for name, some in each.work.entries.items():
            for entry in some:
                to = claims.get(entry.place) if isinstance(entry, ReservedEntry) else None
                if to is not None and to[0] != number:
                    entries[number][name] = tuple(e for e in entries[number][name] if e != entry)
                    entries[to[0]][to[1]] = (entry, *entries[to[0]][to[1]])
    result.deferred[:] = [
        structs.replace(each, work=structs.replace(each.work, entries={n: e for n, e in found.items() if e}))
        for each, found in zip(result.deferred, entries, strict=True)
        if any(found.values()) or each.work.arguments is not None
    ]


def claims_of(work: Work, token: str) -> list[tuple[str, ReservedEntry]]:
    """Return the unique values that a change with this token claims for an entity, each with the name of its index."""
    return [
        (name, each)
        for name, entries in work.entries.items()
        for each in entries
        if isinstance(each, ReservedEntry) and each.token == token
    ]


def maintainer_of(write: PlannedWrite, name: str) -> Maintainer:
    """Return a declaration of the model whose entity a write is of."""
    each = None if write.change.schema is None else write.change.schema.derived.get(name)
    assert isinstance(each, Maintainer)
    return each


def _source(write: PlannedWrite, schema: Schema, row: Row, seen: Row | None, result: Derived) -> Source:
    """
    Return a write as what is derived from its entity sees it.

    Args:
        write: The write.
        schema: The schema of the entity.
        row: The row as it will be.
        seen: The row as it is, to compare with; None if there is none, or nothing changes.
        result: Gets the parts of the row that have to be made from other rows.
    """
    change, changed = write.change, set[str]()
    # Derived rows are of the version that was stored.
    upgraded = change.stored is not None and change.stored.upgraded
    if seen is not None:
        changed = {name for name in (row if upgraded else changes(seen, row)) if ANNOTATION not in name}
        changed |= {name for name in seen if ANNOTATION not in name and name not in row}
    return Source(
        write=write,
        row=row,
        partition_key=row["PartitionKey"],
        row_key=row["RowKey"],
        values=_values(write, schema, row),
        changed=changed,
        upgraded=upgraded,
        fills=result.fills,
        claim=result.claim,
    )


def _rebuild(write: PlannedWrite, result: Derived) -> tuple[PlannedWrite, list[Effect]]:
    """Return a row that stays as it is, with the right entries for some names, and their effects."""
    change, row = write.change, write.after
    schema = change.schema
    assert schema is not None
    assert row is not None
    try:
        stored: Mapping[str, ManifestEntry] | None = manifest_of(change.stored_row)
    except DecodeError:
        stored = None
    names = frozenset(change.only or ())
    old = _with_current_names(write, schema, stored or {})
    new = {name: entry for name, entry in old.items() if name not in names}
    source = _source(write, schema, row, None, result)
    effects: list[Effect] = []
    # No program that declares a removed total is left to copy its subtotals: the audit verifies these.
    removed = {n for n, e in old.items() if isinstance(e, SubtotalEntry) and n not in schema.derived}
    deferred: Entries = {n: (e,) for n, e in old.items() if n in names - removed and e.deferred}
    for name in sorted(names):
        each, before = schema.derived.get(name), old.get(name)
        if isinstance(each, Maintainer):
            entry, found = each.rebuild(before, source)
            if entry is not None:
                new[name] = entry
            effects += found
            if each.deferred:
                _note_entries(deferred, name, None, entry)
        elif before is not None and before not in [entry for n, entry in new.items() if n in schema.derived]:
            effects += undo_entry(name, before, write, checked=True)
    if deferred:
        _defer(result, write, row, deferred)
    return _with_manifest(write, stored, new), effects


def _with_current_names(
    write: PlannedWrite, schema: Schema, manifest: Mapping[str, ManifestEntry]
) -> Mapping[str, ManifestEntry]:
    """Return a manifest in which renamed counts and sums have the names that they have now."""
    if manifest.keys() <= schema.derived.keys():
        return manifest
    found, values = dict(manifest), None
    for name, entry in manifest.items():
        if name in schema.derived or not isinstance(entry, (AggregateEntry, SubtotalEntry)):
            continue
        free = [each for each in maintainers_of(schema, type(entry)) if each.name not in found]
        if not free:
            continue
        # Decoded once: a manifest may have many names.
        if values is None and (values := stored_values(write)) is None:
            return manifest
        current = prover_of(free, entry, values, write)
        if current is not None:
            found[current.name] = found.pop(name)
    return found


def _values(write: PlannedWrite, schema: Schema, row: Row) -> Mapping[str, Any]:
    """Return the fields of the entity as they will be stored."""
    change, before = write.change, write.change.before
    decided = change.patch.extent is not Extent.SOME
    as_shown = change.mode is Mode.SAVE and before is not None and before.complete and not change.is_read
    if write.first is None and (decided or as_shown or change.mode is Mode.REBUILD) and not schema.maintained:
        return change.values
    return cast("dict[str, Any]", schema.decode(dict(row)).__dict__)


def _with_manifest(
    write: PlannedWrite, old: Mapping[str, ManifestEntry] | None, new: Mapping[str, ManifestEntry]
) -> PlannedWrite:
    """
    Return the write with a manifest, if the row would not have it by itself.

    Args:
        write: The write.
        old: The manifest that is stored; None if that is damaged.
        new: The manifest that the row shall have.
    """
    operation, after = write.operation, write.after
    merges = operation.verb in _MERGES
    assert after is not None
    if not new and (old == new or not merges):
        return write
    # Both rows were made for this write, and nobody else has them.
    text = manifest_text(new)
    after[MANIFEST] = text
    if not merges or new != old:
        operation.row[MANIFEST] = text
    else:
        operation.row.pop(MANIFEST, None)
    return write if write.weight is None else structs.replace(write, weight=write.weight + len(text))


def _refuse_needed(write: PlannedWrite, effect: Effect | None) -> None:
    """Refuse to delete an entity that others hold copies of, or count in."""
    change = write.change
    seen = _seen(change)
    maintained = () if change.schema is None else change.schema.maintained
    row = seen if effect is None else effect.before_delete(seen or {}, maintained)
    for name, entry in manifest_of(row).items():
        rules_of(name, entry, change).refuse_delete(name, entry, change)
    if seen is None or row is None:
        return
    for info in maintained:
        if info.optional:
            continue
        name, start = info.member.property, info.absent()
        left = start if (value := row.get(name)) is None else stored_number(value, name, change, row)
        if left != start:
            raise Conflict(
                f"{change}: its {info.name} is {left}: other entities are counted in it; delete those first, or in "
                "the same transaction",
                entity=change.subject,
            )


def _keep_maintained(write: PlannedWrite, schema: Schema, seen: Row | None) -> PlannedWrite:
    """Return the write with the maintained fields as they are stored."""
    if not schema.maintained:
        return write
    change = write.change
    row, after = dict(write.operation.row), dict(write.after or {})
    for info in schema.maintained:
        name = info.member.property
        stored = None if seen is None else seen.get(name)
        fresh = None if info.default is None else info.default()
        if stored is None:
            changed = _shown_value(change, info) != (fresh if seen is None else info.absent())
        else:
            changed = name in row and row[name] != stored
        chosen = change.mode is Mode.MERGE and change.only is not None and info.name in change.only
        if change.is_read and seen is not None and name in row:
            # The row was read for the write: what the entity had from another reading, or by default, is no change.
            before = None if change.before is None else change.before.row.get(name)
            changed = row[name] not in (stored, before) and _shown_value(change, info) != fresh
        if changed if seen is None else chosen or (changed and name in row):
            remedy = "leave it out, so that it begins with its default" if seen is None else "leave it as it was read"
            problem = f"is rejected: other entities maintain this field, and nothing else may write it; {remedy}"
            raise EncodeError(problem, schema.name, info.name, _shown_value(change, info), misuse=True)
        if seen is None:
            continue
        whole = write.operation.verb not in _MERGES
        for members, wanted in ((row, whole or name in row), (after, True)):
            if not wanted:
                continue
            for member in (name, name + ANNOTATION):
                members.pop(member, None)
                if stored is not None and member in seen:
                    members[member] = seen[member]
    operation = Operation(write.operation.verb, row, write.operation.if_match)
    return structs.replace(write, operation=operation, after=after)


def _shown_value(change: Change, info: FieldInfo) -> Any:
    """Return the value of a field that the subject of a change shows; None if it shows none."""
    return info.read(change.shown or {})


def stored_number(value: Any, name: str, change: Change, row: Row) -> int:
    """
    Return a count or sum from what is stored.

    Args:
        value: What is stored.
        name: The property.
        change: The change that needs it, for the message.
        row: The row.

    Raises:
        DecodeError: It is not a number.
    """
    try:
        return int(value or 0)
    except (TypeError, ValueError):
        raise DecodeError(
            f"has {shown(value)} as {name}, which is not a number, and {change} needs it; set it to 0, then let "
            "`tableorm audit --repair` count",
            str(row.get(ENTITY_TYPE)),
            row_keys(row),
        ) from None
