"""
Transactions: operations collected in a block, sent as one entity group transaction when it ends.
"""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from msgspec import structs

from ..errors import Conflict, EntityNotFound, NotSupported, TransactionFailed
from ..expressions import Field
from ..models.entity import Entity
from ..models.key import Key
from ..models.property_bag import PropertyBag
from ..models.state import state_of
from ..protocol.codes import Code
from ..stores import Row, Verb
from .modify import adopt, applied, check_function, forget, refuse_unsaved
from .move import move_changes
from .pending import Address, Pending
from .plan import Change, Mode, PlannedWrite, in_transaction
from .races import ATTEMPTS, is_race, pause_of
from .rows import overlaid
from .stages.change import (
    as_given,
    delete_change,
    guard_change,
    insert_change,
    merge_change,
    replace_change,
    save_change,
    upsert_change,
)
from .stages.coalesce import coalesce, gone, with_read_etag
from .stages.complete import complete, needs_row
from .stages.encode import encode
from .subject import key_of
from .write_tokens import new_token

if TYPE_CHECKING:
    from ..database.database import Database

__all__ = ["Transaction"]

E = TypeVar("E", bound=Entity)

M = TypeVar("M", bound=Entity | PropertyBag)


class Transaction:
    """
    The operations of one transaction, in order. Made by `db.transaction()`.

    Each takes its entity as it is when it is called. Several of one row become one operation when the block ends; they
    must go through one object, which is the one that was given before, or what `get` or `modify` has returned since.
    Another one knows nothing of what was changed, and would undo it.
    """

    def __init__(self, db: "Database", *, repeat: bool = True) -> None:
        self._db, self._repeat = db, repeat
        self._count = 0
        self._rows: dict[Address, Pending] = {}
        self._known: set[int] = set()  # the ids of the subjects of all rows, which stay as long as the transaction
        self._adopt: list[tuple[Entity | PropertyBag, Entity | PropertyBag]] = []
        self._late: dict[Address, tuple[Change, int]] = {}
        self._token = new_token()
        self._state = "new"
        self.sent = False

    def insert(self, entity: Entity | PropertyBag, *, repeat: bool = True) -> None:
        """
        Insert a new entity when the block ends. Raises what `db.insert` raises of its values.

        Args:
            entity: An entity or bag.
            repeat: As of `db.insert`; False holds for the whole transaction.
        """
        change = insert_change(entity, self._pending(entity))
        self._add(change if repeat else structs.replace(change, repeat=False))

    def save(self, entity: Entity | PropertyBag) -> None:
        """Write what has changed since the entity was read when the block ends. Raises as `db.save`."""
        self._add(save_change(entity, self._standing(entity)))

    def merge(
        self,
        entity: Entity | PropertyBag,
        only: Sequence[Field[Any] | str] | None = None,
        *,
        if_match: str | None = None,
    ) -> None:
        """Merge some fields when the block ends. Raises as `db.merge`."""
        self._add(merge_change(entity, only, if_match, self._standing(entity)))

    def replace(self, entity: Entity | PropertyBag, *, if_match: str | None = None, drop_extra: bool = False) -> None:
        """Replace the row when the block ends. Raises as `db.replace`."""
        self._add(replace_change(entity, if_match, drop_extra=drop_extra, pending=self._standing(entity)))

    def upsert(self, entity: Entity | PropertyBag, mode: Literal["merge", "replace"] = "merge") -> None:
        """Insert, or merge or replace the row that is there, when the block ends. Raises as `db.upsert`."""
        self._add(upsert_change(entity, mode, self._pending(entity)))

    def delete(self, target: Entity | PropertyBag | Key[Any], *, if_match: str | None = None) -> None:
        """Delete a row when the block ends. Raises as `db.delete`; a missing row fails the transaction."""
        pending = None if isinstance(target, Key) else self._standing(target)
        self._add(delete_change(target, if_match, pending))

    def move(self, entity: Entity | PropertyBag, /, **fields: Any) -> None:
        """
        Give an entity another key when the block ends, as `db.move` does: one operation of yours, two of the 100. Until
        then the entity is the one that is deleted.
        """
        delete, insert = move_changes(entity, fields, self._standing(entity))
        self._add(delete, insert)
        self._adopt.append((entity, insert.subject))

    @overload
    async def get(self, target: type[E], /, *, guard: bool = False, **fields: Any) -> E: ...
    @overload
    async def get(self, target: Key[M], /, *, guard: bool = False) -> M: ...
    async def get(self, target: Any, /, *, guard: bool = False, **fields: Any) -> Any:
        """
        Read one entity now, as this transaction would leave it.

        Args:
            target: A model, with its key fields; or a `Key`.
            guard: Fail the transaction if the row has changed since by the time the block ends, although nothing is
                written to it. An entity group transaction has no operation that only looks, so the row is touched: an
                empty merge under its ETag, which counts as an operation and gives the row a new ETag.
            fields: The key fields.

        Raises:
            EntityNotFound: There is none, or the transaction deletes it.
            NotSupported: The block has ended, or is to write the row after reading it then.
        """
        self._require_open()
        key = self._db.key_from(target, fields)
        pending = self._rows.get((key.table, key.partition_key, key.row_key))
        if (key.table, key.partition_key, key.row_key) in self._late:
            raise NotSupported(
                f"get of {key}: this transaction writes the row when the block ends, after reading it; read it before, "
                "or use `await tx.modify(...)` for both"
            )
        if pending is not None:
            return await self._pending_entity(key, pending, guard=guard)
        entity = await self._db.get(key)
        if guard:
            self._require_open()
            self._add(guard_change(entity))
        return entity

    @overload
    async def modify(self, target: type[E], fn: Callable[[E], E | None], /, **fields: Any) -> E: ...
    @overload
    async def modify(self, target: Key[M], fn: Callable[[M], M | None], /) -> M: ...
    @overload
    async def modify(self, target: M, fn: Callable[[M], M | None], /) -> M: ...
    async def modify(self, target: Any, fn: Callable[[Any], Any], /, **fields: Any) -> Any:
        """
        Read an entity now, apply a function, and save what changed when the block ends, if the row is then as it was
        read; otherwise the transaction fails, and `db.run_transaction` repeats it.

        Args:
            target: A model, with its key fields; a `Key`; or an entity or bag, which gets the result.
            fn: As in `db.modify`.
            fields: The key fields.

        Raises:
            EntityNotFound: There is none.
            EncodeError: The entity has changes that were not saved, nor given to this transaction.
            ModelError: `fn` is asynchronous, or returns something else than such an entity.
        """
        check_function(fn)
        instance = target if isinstance(target, (Entity, PropertyBag)) else None
        if instance is not None:
            if _address(instance) in self._late:
                raise _two_late(key_of(instance))
            pending = self._rows.get(_address(instance))
            refuse_unsaved(instance, None if pending is None else pending.last_view(instance))
        key = self._db.key_of_target(target, fields)
        subject: Any = await self.get(key)
        result = applied(fn, subject, instance)
        self._require_open()
        pending = self._rows.get(_address(result))
        view = None if pending is None else pending.view(subject)
        if pending is not None and view is not None:
            self._know(pending, result, view)  # it may be returned in place of what it was given
        self._add(save_change(result, self._standing(result), "modify"))
        if instance is not None:
            self._adopt.append((instance, result))
        return result

    async def _pending_entity(self, key: Key[Any], pending: Pending, *, guard: bool) -> Any:
        """
        What a row will be. Where that takes reading it, its write then is one of the very row that was read: what the
        function does with it holds only for that.
        """
        write = pending.write
        if write.after is None:
            raise EntityNotFound(f"there is no {key}: this transaction deletes it", Code.RESOURCE_NOT_FOUND, key)
        stored: Row | None = None
        if write.partial or (guard and _is_blind(write)):
            stored = await self._db.read_row(key.table, key.partition_key, key.row_key)
            self._require_open()
            write = pending.write = with_read_etag(pending.write, stored)  # another task may have added to it
        after: Row = overlaid(stored or {}, write.operation.row) if write.partial else dict(write.after or {})
        if not _is_blind(write):
            after["odata.etag"] = write.operation.if_match
        entity: Any = self._db.load_row(key.model, key.table, after)
        # Upgraded, if it was of an older version.
        seen = after if isinstance(entity, PropertyBag) else state_of(entity).row
        self._know(pending, entity, structs.replace(write, after=overlaid(seen or {}, {}), partial=False, stale=False))
        return entity

    def _know(self, pending: Pending, subject: object, write: PlannedWrite) -> None:
        """From now on `subject` stands for the row."""
        pending.know(subject, write)
        self._known.add(id(subject))

    def _pending(self, subject: Entity | PropertyBag) -> PlannedWrite | None:
        """The write that the transaction holds of this very object, or of what it is a copy of."""
        if id(subject) not in self._known:  # the usual case, which need not make the key
            return None
        pending = self._rows.get(_address(subject))
        return None if pending is None else pending.view(subject)

    def _standing(self, subject: Entity | PropertyBag) -> PlannedWrite | None:
        """
        The like, if it leaves a row.

        Raises:
            NotSupported: Another object has changed that since, or the row is to be read before it is written.
        """
        if self._late and _address(subject) in self._late:
            raise _two_late(key_of(subject))
        if id(subject) not in self._known:
            return None
        pending = self._rows.get(_address(subject))
        if pending is None or pending.write.after is None:
            return None
        view = pending.view(subject)
        if view is None:
            raise _other_object(key_of(subject))
        return view

    def _add(self, *changes: Change) -> None:
        """Collect the changes, each of another row, of one operation of the user's: all or none of them."""
        self._require_open()
        if self._is_late(changes):
            # As they are now: what is changed later in the block belongs to another write.
            for change in changes:
                self._late[_row_of(change)] = as_given(change), self._count
            self._count += 1
            return
        # Now: what is changed later in the block belongs to another write.
        writes = [encode(change, self._count, self._token) for change in changes]
        self._count += 1
        held = [(write, self._held(write)) for write in writes if write is not None]
        for write, folded in held:
            change = write.change
            pending = self._rows.setdefault(_row_of(change), Pending(folded))
            pending.given(change.subject, folded)
            self._known.add(id(change.subject))

    def _is_late(self, changes: Sequence[Change]) -> bool:
        """
        Whether changes wait for rows to be read when the block ends.

        Raises:
            NotSupported: The transaction writes such a row already.
        """
        late = False
        for change in changes:
            pending = self._rows.get(_row_of(change))
            needs = needs_row(change)
            if needs and pending is not None and not pending.write.partial:
                needs = False  # what was given of the row tells all of it
                if change.mode is not Mode.DELETE:
                    _check_follows(change, self._count, pending)
            if _row_of(change) in self._late or (needs and pending is not None):
                raise _two_late(change)
            late = late or needs
        return late

    def _held(self, write: PlannedWrite) -> PlannedWrite:
        """A write together with what is held of its row."""
        change = write.change
        pending = self._rows.get(_row_of(change))
        if pending is None:
            return write
        if write.operation.verb not in (Verb.INSERT, Verb.DELETE):
            _check_follows(change, write.index, pending)
        return coalesce(pending.view(change.subject) or pending.write, write)

    async def _send(self) -> None:
        """Send what was collected; again with rows read anew, if one of those was changed that are forced."""
        known = [pending.write for pending in self._rows.values()]
        forced = {n for change, n in self._late.values() if change.if_match in (None, "*") and change.copied is None}
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(pause_of(self._db, attempt))
            late = await asyncio.gather(*(self._completed(change, index) for change, index in self._late.values()))
            writes = [*known, *(write for write in late if write is not None)]
            if not writes:
                return
            try:
                await self._db.run_writes(sorted(writes, key=lambda write: write.index), repeat=self._repeat)
            except TransactionFailed as error:
                if not is_race(error.__cause__) or error.index not in forced or attempt + 1 == ATTEMPTS:
                    raise
            else:
                return

    async def _completed(self, change: Change, index: int) -> PlannedWrite | None:
        """The write of a change that needs the stored row."""
        if not needs_row(change):
            return encode(change, index, self._token)
        row = await self._db.read_row(change.table, change.partition_key, change.row_key)
        try:
            return encode(complete(change, row), index, self._token)
        except (Conflict, EntityNotFound) as error:
            raise in_transaction(change, index, error, "; nothing was sent") from error

    def _require_open(self) -> None:
        if self._state != "open":
            raise NotSupported(f"the transaction is {self._state}; use it inside `async with db.transaction() as tx:`")

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise NotSupported("the transaction was used already; begin another with db.transaction()")
        self._state = "open"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state = "closed"
        if kind is not None:
            return
        if self._rows or self._late:
            self.sent = True
            await self._send()
        for pending in self._rows.values():
            self._serve(pending)
        for instance, result in self._adopt:
            adopt(instance, result)

    def _serve(self, pending: Pending) -> None:
        """Let all objects of a row become what it was written as, if the last of them knows all of it."""
        write = pending.write
        last = write.change.subject
        known = not (write.partial or write.stale)
        for each in pending.subjects:
            if write.after is None:
                forget(each)
            elif not known or each is last or type(each) is not type(last):
                continue
            elif isinstance(each, (Entity, PropertyBag)):
                adopt(each, self._db.load_row(type(each), write.change.table, write.after.copy()))


def _row_of(change: Change) -> Address:
    return change.table, change.partition_key, change.row_key


def _check_follows(change: Change, index: int, pending: Pending) -> None:
    """Refuse what builds on a row that the transaction deletes, or that the subject does not know as it will be."""
    if pending.write.after is None:
        if change.mode in (Mode.SAVE, Mode.MERGE, Mode.REPLACE):
            raise gone(change, index)
    elif pending.view(change.subject) is None:
        raise _other_object(change)


def _other_object(what: Change | Key[Any]) -> NotSupported:
    return NotSupported(
        f"{what}: this transaction writes the row already, through another object, and this one knows nothing of that "
        "change; change the other one, or what `await tx.get(...)` returns"
    )


def _two_late(what: Change | Key[Any]) -> NotSupported:
    return NotSupported(
        f"{what}: this transaction writes the row already, and one of the two needs properties of the row that "
        "were not read; refresh() the entity before, or use `await tx.modify(...)`"
    )


def _is_blind(write: PlannedWrite) -> bool:
    return write.operation.if_match in (None, "*")


def _address(subject: Entity | PropertyBag) -> Address:
    key = key_of(subject)
    return key.table, key.partition_key, key.row_key
