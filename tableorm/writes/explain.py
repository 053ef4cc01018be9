"""
What a write would send, as a value that can be printed and compared: `db.explain_write`.

The functions that plan a write plan it here too; what is listed is what is read before it, and what follows it in other
partitions. Nothing is sent. The write itself isn't run on a store that records its writes and lets its reads through:
an explanation would cost these requests, and need a table, a network and permissions. It would also call services that
wrap keys, and use up streams of blobs, which can be read once. So an explanation says whether it is complete, and a
test with random models compares each request of it with what is sent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from typing import Any, cast

import attrs
import msgspec
from msgspec import structs

from ..connection.boundary import Boundary
from ..connection.requests import row_path
from ..connection.staged import query_of_entity
from ..errors import ModelError, counted, shown
from ..models.entity import Entity
from ..models.key import Key
from ..models.manifest import (
    BlobListEntry,
    CopyEntry,
    HeldEntry,
    ManifestEntry,
    PlacedEntry,
    PlacedListEntry,
    ReservedEntry,
    SubtotalEntry,
    UploadEntry,
    manifest_of,
    share_address,
)
from ..models.reserved import BLOB_FIELDS, BLOB_LISTS, OPENED
from ..outbox.bell import OUTBOX
from ..outbox.decision import decision_key
from ..outbox.uploads import row_of_blob
from ..protocol.filters import to_odata
from ..protocol.notebook import html_table
from ..stores import METHODS, Operation, Row, RowAddress, Verb
from .commit import check_effects
from .deferred import coming_entries, doorbell_for
from .move import (
    check_movable,
    command_to_move,
    entity_at_target,
    leaving_write,
    marking_write,
    move_changes,
    tentative_mark,
    tentative_write,
)
from .patch import Known
from .plan import Change, Effect, Mode, PlannedWrite, WritePlan
from .relocation import entity_of_row
from .stages.change import delete_change, insert_change, merge_change, replace_change, save_change, upsert_change
from .stages.complete import complete
from .stages.derive import DeferredWork, Derived, claims_of, derive, derives
from .stages.encode import encode, encode_surely, needs_row
from .stages.execute import plan_derived, plan_writes
from .stages.seal import sealed
from .subject import check_change
from .uploads import explained_uploads, uploads_of

TOKEN = "-" * 12  # a real one is drawn when it is sent

BATCH = "/$batch"


def _default_body(step: "WriteStep") -> bytes | None:
    """Return None, for a body that is not known, if the method has one."""
    return None if step.method in ("POST", "PATCH", "PUT") else b""


@attrs.frozen
class WriteStep:
    """
    One request.

    Args:
        method: GET, POST (insert), PATCH (merge), PUT (replace), DELETE, or HEAD of a blob.
        path: The table and keys.
        if_match: The ETag in `If-Match`, or "*". None if there is no such header, which makes PATCH and PUT upserts.
        body: The row as JSON; empty if there is none, and None if it depends on what is read first. Write tokens appear
            as `------------`.
    """

    method: str
    path: str
    if_match: str | None = None
    body: bytes | None = attrs.Factory(_default_body, takes_self=True)

    def __str__(self) -> str:
        lines = [f"{self.method} {self.path}"]
        if self.if_match is not None:
            lines.append(f"If-Match: {self.if_match}")
        if self.body is None:
            lines.append("(what was read, with what is to be written)")
        elif self.body:
            lines.append(self.body.decode("utf-8"))
        return "\n".join(lines)


@attrs.frozen
class WriteExplanation:
    """
    What a write sends, in order. It is empty if nothing changed.

    Args:
        steps: The operations.
        transaction: Whether the operations that write are sent as one request, an entity group transaction.
        before: What is sent before these writes: the message to workers, if there are rows in other partitions.
        after: What is sent after them, one request each: the updates of rows in other partitions. The call doesn't wait
            for the last two requests, which delete the decision row and the message.
        complete: False if the stored row, which this program hasn't read, determines which other rows are read and
            written. They're missing then, in the cost too.
    """

    steps: tuple[WriteStep, ...]
    transaction: bool = False
    before: tuple[WriteStep, ...] = ()
    after: tuple[WriteStep, ...] = ()
    complete: bool = True

    @property
    def cost(self) -> int:
        """The number of storage transactions that are billed: one for each request."""
        reads = sum(step.method == "GET" for step in self.steps)
        return len(self.before) + (reads + 1 if self.transaction else len(self.steps)) + len(self.after)

    @property
    def bytes_sent(self) -> int:
        """The total size of all bodies that are known."""
        return sum(len(step.body or b"") for step in (*self.before, *self.steps, *self.after))

    def _repr_html_(self) -> str:
        steps = (*self.before, *self.steps, *self.after)
        rows = [{"request": f"{each.method} {each.path}", "If-Match": each.if_match} for each in steps]
        return html_table(f"{counted(self.cost, 'request')}, {self.bytes_sent} bytes", rows)

    def __str__(self) -> str:
        reads = [str(step) for step in self.steps if step.method == "GET"]
        writes = [str(step) for step in self.steps if step.method != "GET"]
        if self.transaction:
            writes = [f"POST {BATCH}", *("  " + text.replace("\n", "\n  ") for text in writes)]
        writes = [*map(str, self.before), *writes, *map(str, self.after)]
        noun = "" if self.complete else " and those of derived rows"
        return "\n".join([*reads, *writes, f"({counted(self.cost, 'request')}{noun}, {self.bytes_sent} bytes)"])


_VERBS: Mapping[str, tuple[Callable[..., Change], tuple[str, ...]]] = {
    "insert": (insert_change, ()),
    "save": (save_change, ()),
    "merge": (merge_change, ("only", "if_match")),
    "replace": (replace_change, ("if_match", "drop_extra")),
    "upsert": (upsert_change, ("mode",)),
    "delete": (delete_change, ("if_match",)),
}
"""What makes the change of each verb, and the arguments that it takes beside the entity."""


def changes_of_verb(boundary: Boundary, verb: str, target: Any, given: dict[str, Any]) -> tuple[Change, ...]:
    """
    Return what a verb makes of its arguments: the delete and the insert of a move, one change of anything else.

    Args:
        boundary: The connection's.
        verb: The method of the database.
        target: An entity or bag; to be deleted also a key.
        given: The keyword arguments; of a move the new key fields.

    Raises:
        AccessDenied: The row is outside of the boundary.
        ModelError: There is no such verb, or it does not take them.
        TableOrmError: What the verb would raise.
    """
    if not isinstance(cast("object", verb), str) or (verb != "move" and verb not in _VERBS):
        raise ModelError(f"explain_write({shown(verb)}) is unknown; use {', '.join(_VERBS)}, move")
    if verb == "move":
        boundary.check_move(target, given)
    else:
        if verb in ("insert", "upsert") and isinstance(target, Entity):
            target = target.evolve()  # the entity itself stays as it is
            boundary.fill(target)
        boundary.check(target)
    if verb != "delete" and isinstance(target, Key):
        raise ModelError(f"explain_write({verb!r}): {target!r} is a key; give an entity or a bag")
    if verb == "move":
        return move_changes(target, given)
    make, names = _VERBS[verb]
    for name in given:
        if name not in names:
            takes = " and ".join(names) or "nothing"
            raise ModelError(f"explain_write({verb!r}, {name}=...) is rejected: {verb} takes {takes} beside the entity")
    return (make(target, **given),)


AS_READ = "the ETag that was read"

_MESSAGES = f"/{OUTBOX}/messages"

_LOWER = tuple(f"/{place}/" for place in (OUTBOX, BLOB_FIELDS, BLOB_LISTS))
"""What paths begin with whose names have no capitals, not even in a prefix."""


def explain(boundary: Boundary, changes: Sequence[Change]) -> WriteExplanation:
    """
    The requests of one change, or of the two of a move.

    Args:
        boundary: The connection's, which the changes and what is derived from them must not leave.
        changes: The changes.

    Raises:
        AccessDenied: A row is outside of the boundary.
        EncodeError: A value does not fit its field.
        LimitExceeded: A limit of the service would be passed.
    """
    for change in changes:
        check_change(boundary, change)
    if needs_row(changes[0]):
        return _explain_as_read(boundary, changes[0]) if _is_surely_read(changes) else explain_after_reading(changes)
    return explain_writes(boundary, [write for change in changes if (write := encode(change, 0, TOKEN)) is not None])


def explain_writes(boundary: Boundary, writes: Sequence[PlannedWrite]) -> WriteExplanation:
    """Explain encoded writes. Raises what `explain` raises."""
    if not any(map(uploads_of, writes)):
        return _explain_addressed(boundary, writes)
    with explained_uploads(writes, TOKEN) as uploads:
        found = _explain_addressed(boundary, writes)
    before = [
        step
        for address, body in uploads
        for step in (
            WriteStep("POST", _MESSAGES, body=body),
            WriteStep("PUT", f"/{BLOB_FIELDS}/{address.name}", body=b""),
        )
    ]
    done = [WriteStep("DELETE", f"{_MESSAGES}/{TOKEN}")] * len(uploads)
    return attrs.evolve(found, before=(*before, *found.before), after=(*found.after, *done))


def _explain_addressed(boundary: Boundary, writes: Sequence[PlannedWrite]) -> WriteExplanation:
    """Explain encoded writes whose blobs have addresses."""
    if not writes:
        return WriteExplanation(())
    if not any(map(derives, writes)):
        return _explanation(plan_writes(writes), (), frozenset())
    derived = derive(writes, claim=TOKEN)
    check_effects(boundary, derived)
    read = [effect for effect in derived.effects.values() if effect.reads]
    known = {row_key: effect for row_key, effect in derived.effects.items() if not effect.reads}
    rows = {effect.row_key for effect in read}
    unread = [fill for fill in derived.fills if fill.source in rows or isinstance(fill.source, RowAddress)]
    fills = [fill for fill in derived.fills if fill not in unread]
    plan = plan_derived(structs.replace(derived, effects=known, fills=fills), {})
    found = _explanation(plan, read, frozenset(fill.row_key for fill in unread))
    others = [get_step(fill.source) for fill in unread if isinstance(fill.source, RowAddress)]
    found = attrs.evolve(found, steps=(*others, *found.steps))
    if plan.decision is None:
        return found
    path = _path(RowAddress.of_row(plan.table, plan.writes[-1].operation.row))
    message = doorbell_for(plan, plan.decision).to_message()
    reserved = chain.from_iterable(map(_reserving_steps, derived.deferred))
    done = chain.from_iterable(_deferred_steps(plan, each) for each in derived.deferred)
    before = (*_asked_steps(derived), WriteStep("POST", _MESSAGES, body=message), *reserved)
    return attrs.evolve(found, before=before, after=(*_joined_steps(plan, derived.deferred), *done, *_last(path)))


def explain_relocation(boundary: Boundary, entity: Entity, fields: dict[str, Any]) -> WriteExplanation:
    """
    The requests of a move to another partition, of which the transaction is the one that moves the entity.

    Args:
        boundary: The connection's.
        entity: The entity.
        fields: The new key fields.

    Raises:
        TableOrmError: What the move would raise before anything is sent.
    """
    boundary.check_move(entity, fields)
    schema = entity.__schema__
    check_movable(schema)
    change = save_change(entity, verb="move")
    saved = explain(boundary, (change,))
    if saved.steps and not needs_row(change):  # it moves as it is saved
        write = encode_surely(change, TOKEN)
        with explained_uploads((write,), TOKEN):  # its blobs are stored by then
            row = {**(derive((write,), claim=TOKEN).writes[0].after or {}), "odata.etag": AS_READ}
        opened = {name: value for name, value in (change.stored_row or {}).items() if name == OPENED}
        entity = entity_of_row(schema, {**row, **opened})
    known: Row = {"odata.etag": AS_READ, **(delete_change(entity).before or Known({})).row}
    moved = entity_at_target(entity, schema, fields)
    command = command_to_move(entity, known, moved, fields, TOKEN)
    marking = marking_write(entity, command, TOKEN)
    marked = explain_writes(boundary, [marking])
    mark = [attrs.evolve(step, if_match=AS_READ) if saved.steps else step for step in marked.steps]
    command = structs.replace(command, etag=AS_READ)
    row = {**marking.operation.row, "odata.etag": AS_READ}
    left = explain_writes(boundary, [leaving_write(entity, row, command.target, TOKEN)])
    insert = insert_change(moved, verb="move")
    tentative = derive((tentative_write(insert, tentative_mark(command), TOKEN),)).effects
    check_change(boundary, insert)
    confirming = encode_surely(insert, TOKEN)  # writes over the tentative row
    confirming = structs.replace(confirming, change=structs.replace(insert, mode=Mode.REPLACE))
    confirmed = explain_writes(boundary, [confirming])
    reads = [step for step in confirmed.steps if step.method == "GET"]
    asked = [*takewhile(lambda step: step.method != "POST", confirmed.before)]
    confirmed = attrs.evolve(confirmed, before=confirmed.before[len(asked) :])
    lost = [_asked_step(each) for each in manifest_of(known).values()]
    asked = [step for step in asked if step not in lost]
    here, there = map(get_step, (command.source, command.target))
    beside = {_path(command.target.beside(row_key)) for row_key in derive((confirming,), claim=TOKEN).effects}
    batch = WriteStep("POST", BATCH)
    before = [
        *([here] if boundary.narrows else ()),
        *saved.before,
        *(step for step in saved.steps if step.method == "GET" or not saved.transaction),
        *[batch] * saved.transaction,
        *saved.after,
        here,
        *asked,
        *mark,
        WriteStep("POST", _MESSAGES, body=command.to_message()),
        here,
        *(step for step in reads if step.path in beside),  # what is copied from other partitions is not filled in yet
        batch if tentative else WriteStep("POST", f"/{command.target.table}"),
        *left.before,
    ]
    after = [
        *(*left.after, there, here, *reads, *confirmed.before),
        batch if confirmed.transaction else put_step(command.target),
        *confirmed.after,
        _delete_step(command.source),
        put_step(command.target),
        WriteStep("DELETE", f"{_MESSAGES}/{TOKEN}"),
    ]
    return attrs.evolve(left, before=tuple(before), after=tuple(after), complete=saved.complete)


def _last(decision_path: str) -> tuple[WriteStep, ...]:
    """Return the requests that end the work on a decision row."""
    return WriteStep("DELETE", decision_path, "*"), WriteStep("DELETE", f"{_MESSAGES}/{TOKEN}")


def _asked_steps(derived: Derived) -> Iterator[WriteStep]:
    """Yield the requests that ask, before anything is written, whether there is room for what entities get."""
    for maintainer, entry in coming_entries(derived, ()):
        step = _asked_step(entry)
        if step is not None and not getattr(maintainer, "create", False):
            yield step


def _asked_step(entry: ManifestEntry | None) -> WriteStep | None:
    """Return the request that asks whether there is room for an entry; None if nothing is asked."""
    if isinstance(entry, BlobListEntry):
        return WriteStep("HEAD", _list_path(entry))
    return get_step(entry.holder) if isinstance(entry, SubtotalEntry) else None


def _reserving_steps(deferred: DeferredWork) -> Iterator[WriteStep]:
    """Yield the requests that reserve unique values before the write of an entity, if they are free."""
    for name, claim in claims_of(deferred.work, TOKEN):
        held = [each for each in deferred.work.entries[name] if isinstance(each, ReservedEntry) and each != claim]
        if any(each.place == claim.place for each in held):  # the same transaction gives it up
            yield get_step(RowAddress.of(claim))
        else:
            yield _entry_step(deferred.origin, name, claim)


def _giver_of(plan: WritePlan, claim: ReservedEntry) -> str:
    """Return the RowKey of the entity of a transaction that gives up a value."""
    writes = [each.origin for each in plan.writes]
    found = [each.row_key for each in writes if each.stored and claim in manifest_of(each.stored.row).values()]
    return next(iter(found), "")


def _list_path(place: PlacedListEntry) -> str:
    """Return the path of a list: of its blob, or of its first row."""
    if isinstance(place, BlobListEntry):
        return f"/{BLOB_LISTS}/{place.blob_name}"
    return _path(RowAddress.of(place))


def _joined_steps(plan: WritePlan, deferred: Sequence[DeferredWork]) -> Iterator[WriteStep]:
    """Yield the requests that bring lists and totals up to date: once for all entities that a write changes in one."""
    looks: dict[str, dict[WriteStep, None]] = {}  # at the entities, by the paths of their lists
    totals: dict[tuple[RowAddress, str], None] = {}
    for each in deferred:
        look = get_step(plan.at(each.work.row_key))
        for entry in chain.from_iterable(each.work.entries.values()):
            if isinstance(entry, PlacedListEntry):
                looks.setdefault(_list_path(entry), {})[look] = None
            elif isinstance(entry, SubtotalEntry):
                totals[entry.holder, entry.row_key] = None
    for path, entities in looks.items():
        yield from (WriteStep("GET", path), *entities, WriteStep("PUT", path, AS_READ), *entities)
    for holder, row_key in totals:
        subtotal = plan.at(row_key)
        yield from map(get_step, (holder, share_address(holder, subtotal), subtotal))
        yield WriteStep("POST", BATCH)  # the total, and what it has of the subtotal


def _deferred_steps(plan: WritePlan, deferred: DeferredWork) -> Iterator[WriteStep]:
    """Yield the other requests that make rows in other partitions right after the write of an entity."""
    write, work = deferred.origin, deferred.work
    look = get_step(plan.at(work.row_key))
    inserted, noted = write.origin.mode is Mode.INSERT, manifest_of(write.after)
    confirms = write.change.verb == "move" and write.change.mode is Mode.REPLACE  # an entity that was elsewhere
    for name, entries in work.entries.items():
        for each in entries:
            if isinstance(each, ReservedEntry) and each.token != TOKEN:
                held = RowAddress.of(each)
                yield get_step(held)
                if each.place == getattr(noted.get(name), "place", None):
                    giver = plan.at(_giver_of(plan, each))
                    yield from (get_step(giver), look, put_step(held), look)
                else:
                    yield _delete_step(held)
            elif isinstance(each, HeldEntry):  # a page of holders, each of which is read, then the source
                yield from (WriteStep("GET", f"/{each.table}()"), WriteStep("GET", f"/{each.table}(...)"), look)
                yield WriteStep("PUT", f"/{each.table}(...)", AS_READ)
            elif isinstance(each, UploadEntry):
                held = row_of_blob(each)
                yield from (get_step(held), WriteStep("DELETE", f"/{BLOB_FIELDS}/{each.name}"), _delete_step(held))
        if any(isinstance(each, CopyEntry) for each in entries):
            yield look
            if isinstance(source := noted.get(name), CopyEntry):
                yield get_step(RowAddress.of(source))
        places = [entry for entry in entries if type(entry) is PlacedEntry]
        if places and not inserted:
            yield from (*map(get_step, map(RowAddress.of, places)), look)
        for place in places:
            if place != noted.get(name):
                yield _delete_step(RowAddress.of(place))
            elif inserted or confirms or place is places[-1] is not places[0]:
                yield _entry_step(write, name, place)
            else:
                yield _entry_step(write, name, place, Verb.REPLACE, AS_READ)
        if places:
            yield look


def _entry_step(
    write: PlannedWrite, name: str, place: PlacedEntry, verb: Verb = Verb.INSERT, etag: str | None = None
) -> WriteStep:
    """Return the request that writes an entry, whose body is not known if it depends on what is read before."""
    schema, after, at, row = write.change.schema, write.after, RowAddress.of(place), None
    assert schema is not None
    assert after is not None
    derived = schema.derived.get(name)
    if derived is not None and not write.partial:
        row = derived.derive_row(place, schema.decode(dict(after)).__dict__, after)
    return _step(at.table, Operation(verb, row or at.keys, etag), known=row is not None)


def _is_surely_read(changes: Sequence[Change]) -> bool:
    """Return whether a change is of a row that was read in full, and is read again only to be sure of it."""
    change, known = changes[0], changes[0].before
    if len(changes) > 1 or known is None or not known.complete or change.is_copied:
        return False
    return change.if_match in (None, "*", known.proof)


def _explain_as_read(boundary: Boundary, change: Change) -> WriteExplanation:
    """Explain a write that reads the stored row first, which is as it was read before unless somebody wrote it."""
    assert change.before is not None
    etag = AS_READ if change.if_match in (None, "*") else change.if_match
    write = encode(complete(change, {**change.before.row, "odata.etag": etag}), 0, TOKEN)
    found = explain_writes(boundary, [] if write is None else [write])
    return attrs.evolve(found, steps=(_reading_step(change), *found.steps))


def _reading_step(change: Change) -> WriteStep:
    """Return the request that reads the row of a change; all of them, if the entity is stored in several."""
    address, schema = change.address, change.schema
    if schema is None or schema.split is None:
        return get_step(address)
    rows = query_of_entity(address, (schema.split,), None).filter
    assert rows is not None
    return WriteStep("GET", f"/{address.table}()?$filter={to_odata(rows)}")


def explain_after_reading(changes: Sequence[Change]) -> WriteExplanation:
    """Explain writes whose effects depend on the stored row, which is read first."""
    first = changes[0]
    etag = AS_READ if first.if_match in (None, "*") else first.if_match
    verb = "DELETE" if first.mode is Mode.DELETE else "PUT"
    steps = [_reading_step(first), WriteStep(verb, _path(first.address), etag)]
    if first.schema is not None and first.schema.split is not None:
        steps.append(WriteStep(verb, f"/{first.table}(...)", "*"))  # those of its other rows that change
    steps += (WriteStep("POST", f"/{each.table}") for each in changes[1:])
    tracked = first.schema is not None and first.schema.tracked
    before: tuple[WriteStep, ...] = ()
    after: tuple[WriteStep, ...] = ()
    if first.schema is not None and any(each.deferred for each in first.schema.derived.values()):
        steps.append(WriteStep("POST", f"/{first.table}"))
        before = (WriteStep("POST", _MESSAGES),)
        after = _last(_path(first.address.beside(decision_key(TOKEN))))
    return WriteExplanation(tuple(steps), tracked, before, after, complete=not tracked)


def _explanation(plan: WritePlan, read: Sequence[Effect], unknown: frozenset[str]) -> WriteExplanation:
    """
    The requests of a plan.

    Args:
        plan: What is known of it.
        read: What is done to rows that are read first.
        unknown: RowKeys of those of its rows that hold something of what is read.
    """
    steps = [get_step(plan.at(effect.row_key)) for effect in read]
    sent = (operation for each in plan.writes for operation in sealed(each))
    steps += (_step(plan.table, each, known=each.row["RowKey"] not in unknown) for each in sent)
    for effect in read:
        if not effect.idle:
            # A row that is not there yet is inserted instead.
            method = "PUT" if effect.replaces else "PATCH"
            steps.append(WriteStep(method, _path(plan.at(effect.row_key)), AS_READ))
            steps += [WriteStep("POST", f"/{plan.table}")] * effect.inserts
    return WriteExplanation(tuple(steps), len(steps) - len(read) > 1)


def _step(table: str, operation: Operation, *, known: bool) -> WriteStep:
    """Return the request of an operation. The keys are in its path, except those of an insert."""
    verb, row = operation.verb, operation.row
    path = f"/{table}" if verb is Verb.INSERT else _path(RowAddress.of_row(table, row))
    keys = () if verb is Verb.INSERT else ("PartitionKey", "RowKey")
    body = b"" if verb is Verb.DELETE else msgspec.json.encode({name: row[name] for name in row if name not in keys})
    return WriteStep(METHODS[verb], path, operation.if_match, body if known else None)


def with_prefix(explanation: WriteExplanation, prefix: str) -> WriteExplanation:
    """Return the same requests for tables, queues and containers whose names begin with `prefix` in the store."""

    def prefixed_path(path: str) -> str:
        if path == BATCH:
            return path
        return f"/{prefix.lower() if path.startswith(_LOWER) else prefix}{path[1:]}"

    def prefixed(steps: tuple[WriteStep, ...]) -> tuple[WriteStep, ...]:
        return tuple(attrs.evolve(step, path=prefixed_path(step.path)) for step in steps)

    return attrs.evolve(
        explanation,
        steps=prefixed(explanation.steps),
        before=prefixed(explanation.before),
        after=prefixed(explanation.after),
    )


def get_step(address: RowAddress) -> WriteStep:
    """Return the request that reads a row."""
    return WriteStep("GET", _path(address))


def put_step(address: RowAddress) -> WriteStep:
    """Return the request that writes a row as it was read, with changes that are not known."""
    return WriteStep("PUT", _path(address), AS_READ)


def _delete_step(address: RowAddress) -> WriteStep:
    """Return the request that deletes a row as it was read."""
    return WriteStep("DELETE", _path(address), AS_READ)


def _path(address: RowAddress) -> str:
    return "/" + row_path(address)
