"""
Transactions: operations collected in a block, sent as one entity group transaction when it ends.
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from msgspec import structs

from ..connection.async_only import NOT_AWAITED, async_only
from ..connection.connection import Connection
from ..connection.races import ATTEMPTS, Attempts, is_race
from ..connection.tasks import map_together
from ..errors import (
    Conflict,
    EntityExists,
    EntityNotFound,
    ModelError,
    TransactionFailed,
    counted,
)
from ..expressions import Field
from ..models.entity import Entity
from ..models.key import Key
from ..models.property_bag import PropertyBag
from ..models.write_tokens import new_token
from ..outbox.workflow import Workflow, start_of
from ..protocol.codes import Code
from ..stores import RowAddress, Verb
from .commit import commit, load_existing, read_current
from .home import find_existing
from .modify import applied, check_arguments, insertion, made_new, refuse_other_version, refuse_unsaved
from .move import move_changes
from .pending import (
    Condition,
    HeldRow,
    check_follows,
    copy_subject,
    other_object,
    read_too_late,
    restore_subject,
    take_values,
    unread,
    unwritten,
)
from .plan import Change, PlannedWrite, SendOptions, in_transaction
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
from .stages.complete import complete
from .stages.compose import compose
from .stages.encode import encode, needs_row
from .stages.prepare import check_etag
from .subject import adopt, check_change, forget, key_from, key_of, key_of_target

E = TypeVar("E", bound=Entity)
M = TypeVar("M", bound=Entity | PropertyBag)
T = TypeVar("T")


@async_only
class Transaction:
    """
    The operations of one transaction, in order. Made by `db.transaction()`.

    The methods that write only collect operations, which are sent when the block ends, so you don't await them:
    `tx.insert(entity)`. `get` and `modify` read right away, and are awaited.

    Each method takes its entity as it is at the time of the call. Every row is represented by a single object: the one
    that you passed first, or the one that `get` or `modify` returned; both keep returning that object. Several
    operations on it become one when the block ends. Writing the row through another object is rejected, because that
    object doesn't know the earlier changes.

    Args:
        db: Where the rows are.
        repeat: Whether the transaction may be sent again after a lost reply.
    """

    def __init__(self, db: Connection, *, repeat: bool) -> None:
        self._db, self._repeat = db, repeat
        self._count = 0
        self._rows: dict[RowAddress, HeldRow] = {}
        self._known: set[int] = set()  # the ids of the objects in `_rows` and `_displaced`, which keep these alive
        self._displaced: list[object] = []  # objects of rows that were deleted, and then given anew by others
        self._adopt: list[tuple[Entity | PropertyBag, Entity | PropertyBag]] = []
        self._modified: list[tuple[Entity | PropertyBag, Entity | PropertyBag]] = []  # and what they were before
        self._late: dict[RowAddress, tuple[Change, int]] = {}
        self._token = new_token()
        self._existing: list[Entity | PropertyBag] = []
        self._state = "new"
        self._sent = False
        self._refused: Condition | None = None  # that of the operation that failed

    @property
    def existing(self) -> tuple[Entity | PropertyBag, ...]:
        """The entities and bags that an insert with `exist_ok` has not written, since there was a row."""
        return tuple(self._existing)

    def __repr__(self) -> str:
        return f"<transaction: {counted(self._count, 'operation')}, {self._state}>"

    def insert(self, entity: Entity | PropertyBag, *, repeat: bool = True, exist_ok: bool = False) -> None:
        """
        Insert a new entity when the block ends. Invalid values raise the same errors as in `db.insert`.

            tx.insert(Employee(department="Sales", id=10, name="Ken"))

        Args:
            entity: An entity or bag.
            repeat: As in `db.insert`; False applies to the whole transaction.
            exist_ok: Whether to accept that a row with its key exists, which is then left unchanged. Everything else
                that the block does with the entity is skipped, and `existing` lists it once the block has ended.
        """
        self._db.boundary.fill(entity)
        return self._add(insert_change(entity, self._held_write(entity), repeat=repeat, exist_ok=exist_ok))

    def save(self, entity: Entity | PropertyBag) -> None:
        """
        Write what changed since the entity was read, when the block ends. Raises the same errors as `db.save`.

            ken.age = 24
            tx.save(ken)
        """
        return self._add(save_change(entity, self._held_update(entity)))

    def merge(
        self,
        entity: Entity | PropertyBag,
        only: Sequence[Field[Any] | str] | None = None,
        *,
        if_match: str | None = None,
    ) -> None:
        """
        Merge some fields into the row when the block ends. Raises the same errors as `db.merge`.

            ken.age = 24
            tx.merge(ken, only=[Employee.age])
        """
        return self._add(merge_change(entity, only, if_match, self._held_update(entity)))

    def replace(self, entity: Entity | PropertyBag, *, if_match: str | None = None, drop_extra: bool = False) -> None:
        """
        Replace the row when the block ends. Raises the same errors as `db.replace`.

            tx.replace(ken.evolve(age=24))
        """
        return self._add(replace_change(entity, if_match, drop_extra=drop_extra, pending=self._held_update(entity)))

    def upsert(self, entity: Entity | PropertyBag, mode: Literal["merge", "replace"] = "merge") -> None:
        """
        Insert the entity, or merge it into or replace an existing row, when the block ends. Raises the same errors as
        `db.upsert`.

            tx.upsert(Employee(department="Sales", id=10, name="Ken"))
        """
        self._db.boundary.fill(entity)
        return self._add(upsert_change(entity, mode, self._held_write(entity)))

    def delete(self, target: Entity | PropertyBag | Key[Any], *, if_match: str | None = None) -> None:
        """
        Delete a row when the block ends. Raises as `db.delete`; a missing row fails the transaction.

            tx.delete(ken)
        """
        pending = None if isinstance(target, Key) else self._held_update(target)
        return self._add(delete_change(target, if_match, pending))

    def move(self, entity: Entity | PropertyBag, /, **fields: Any) -> None:
        """
        Give an entity a new key when the block ends, as `db.move` does. It counts as two of the 100 operations. Until
        then, the entity keeps its old key.

            tx.move(ken, id=12)
        """
        self._db.boundary.check_move(entity, fields)
        delete, insert = move_changes(entity, fields, self._held_update(entity))
        self._add(delete, insert)
        self._adopt.append((entity, insert.subject))
        return NOT_AWAITED

    def start(self, workflow: type[Workflow[E]], entity: E, arguments: Any = None) -> None:
        """
        Start a workflow for an entity that this transaction writes. The workflow runs only if the transaction succeeds.

            async with db.transaction() as tx:
                tx.insert(order)
                tx.start(Ship, order)

        Args:
            workflow: The workflow.
            entity: The entity.
            arguments: What the steps receive: any value that JSON can represent.

        Raises:
            NotSupported: The transaction doesn't write the entity, or has to read its row first.
            ModelError: It is not a workflow for such entities, or the arguments can't be represented in JSON.
        """
        write = self._held_write(entity)
        if write is None:
            raise unwritten(key_of(entity))
        work = start_of(workflow, key_of(entity), arguments)
        self._stand(write.change.address, HeldRow(entity, structs.replace(write, starts=(*write.starts, work))))
        return NOT_AWAITED

    @overload
    async def get(self, target: type[E], /, *, guard: bool = False, **fields: Any) -> E: ...
    @overload
    async def get(self, target: Key[M], /, *, guard: bool = False) -> M: ...
    async def get(self, target: Any, /, *, guard: bool = False, **fields: Any) -> Any:
        """
        Read one entity now, or return the object that already represents its row in this transaction.

            ken = await tx.get(Employee, department="Sales", id=10)

        Args:
            target: A model with its key fields, or a `Key`.
            guard: Fail the transaction if the row has changed by the time the block ends, even if nothing is written to
                it. An entity group transaction has no operation that only checks a row, so this sends an empty merge
                under the row's ETag; it counts as an operation and gives the row a new ETag.
            fields: The key fields.

        Raises:
            EntityNotFound: There is no such entity, or the transaction deletes it.
            ModelError: The block has not begun, or has ended.
            NotSupported: The transaction writes the row without having read it, or an object of another model
                represents the row.
        """
        self._require_open()
        key = key_from(self._db.boundary, target, fields)
        held = await self._hold(key, None)
        if not guard:
            return held.subject
        if held.write is None:
            self._add(guard_change(held.subject))
        elif _is_blind(held.write) and held.write.operation.verb is not Verb.INSERT:
            raise unread(key)
        return held.subject

    @overload
    async def modify(
        self,
        target: type[E],
        fn: Callable[[E], E | None],
        /,
        *,
        create: E | Callable[[], E] | None = None,
        if_match: str | None = None,
        **fields: Any,
    ) -> E: ...
    @overload
    async def modify(
        self,
        target: Key[M],
        fn: Callable[[M], M | None],
        /,
        *,
        create: M | Callable[[], M] | None = None,
        if_match: str | None = None,
    ) -> M: ...
    @overload
    async def modify(
        self,
        target: M,
        fn: Callable[[M], M | None],
        /,
        *,
        create: M | Callable[[], M] | None = None,
        if_match: str | None = None,
    ) -> M: ...
    async def modify(
        self,
        target: Any,
        fn: Callable[[Any], Any],
        /,
        *,
        create: Any = None,
        if_match: str | None = None,
        **fields: Any,
    ) -> Any:
        """
        Read an entity now, apply a function to it, and save what changed when the block ends. If the row has changed by
        then, the transaction fails; `db.run_transaction` runs it again.

            async with db.transaction() as tx:
                await tx.modify(Account, withdraw, branch="Lund", number=1)

        Args:
            target: A model with its key fields, a `Key`, or an entity or bag, which is read again. If an object already
                represents the row, the function gets that one. If the transaction fails, the object is restored.
            fn: As in `db.modify`.
            create: As in `db.modify`. If someone else inserts the row before the block ends, the transaction fails.
            if_match: As in `db.modify`: the ETag that the row must have when it is read.
            fields: The key fields.

        Returns:
            The object that represents the row.

        Raises:
            EntityNotFound: There is no such entity.
            PreconditionFailed: The row's ETag is not `if_match`.
            EncodeError: The entity has changes that were neither saved nor given to this transaction.
            NotSupported: As for `get`; or another object than the given one represents the row.
            ModelError: `fn` is asynchronous, or returns something other than such an entity.
        """
        check_arguments(fn, create, if_match)
        self._require_open()
        instance = target if isinstance(target, (Entity, PropertyBag)) else None
        key = key_of_target(self._db.boundary, target, fields)
        if if_match is not None:
            check_etag("modify", key, if_match)
        self._refuse_unsaved(key, instance)
        before = None if instance is None else copy_subject(instance)
        made: Any = None
        try:
            entity: Any = (await self._hold(key, instance)).subject
        except EntityNotFound:
            if create is None:
                raise
            made = made_new(self._db.boundary, create, key)
            entity = made if instance is None else instance
        if before is None:
            before = copy_subject(entity)
        try:
            if made is not None:
                take_values(entity, made)
            refuse_other_version(key, entity, if_match)
            result = applied(fn, entity, None)
            self._require_open()
            take_values(entity, result)
            if made is None:
                self._add(save_change(entity, self._held_update(entity), "modify"))
            else:
                self._add(insertion(key, entity, self._held_write(entity)))
        except BaseException:
            restore_subject(entity, before)
            raise
        self._modified.append((entity, before))
        return entity

    def _refuse_unsaved(self, key: Key[Any], instance: Entity | PropertyBag | None) -> None:
        """Refuse to modify a row whose object has changes that were not saved, nor given to this transaction."""
        held = self._rows.get(RowAddress.of(key))
        subject = instance if held is None else held.subject
        if RowAddress.of(key) in self._late or (instance is not None and subject is not instance):
            return  # refused by `_hold`
        if isinstance(subject, (Entity, PropertyBag)):
            refuse_unsaved(subject, None if held is None else held.write)

    async def _hold(self, key: Key[Any], instance: Entity | PropertyBag | None) -> HeldRow:
        """
        Return the row of a key as the transaction holds it, after reading it if it is not held.

        Args:
            key: The key.
            instance: The object that shall stand for the row; None for a new one.

        Raises:
            EntityNotFound: There is no such row, or the transaction deletes it.
            NotSupported: Another object stands for the row, or the object cannot know what is written.
        """
        address = RowAddress.of(key)
        if address in self._late:
            raise read_too_late(key)
        if address not in self._rows:
            fields = instance.__dict__ if isinstance(instance, Entity) else None
            fresh = await load_existing(self._db, key, fields)
            self._require_open()
            if address not in self._rows:  # otherwise another task has read or written it meanwhile
                if instance is not None:
                    adopt(instance, fresh)
                self._stand(address, HeldRow(fresh if instance is None else instance))
        held = self._rows[address]
        write = held.write
        if write is not None and write.after is None:
            raise EntityNotFound(f"there is no {key}: this transaction deletes it", Code.RESOURCE_NOT_FOUND, key)
        if not isinstance(held.subject, key.model) or (instance is not None and held.subject is not instance):
            raise other_object(key)
        if write is not None and _is_blind(write) and write.partial:
            raise unread(key)
        return held

    def _held_write(self, subject: Entity | PropertyBag) -> PlannedWrite | None:
        """Return the write that the transaction holds of this very object; None if it holds none."""
        if id(subject) not in self._known:  # the usual case, which need not make the key
            return None
        held = self._rows.get(_address(subject))
        return held.write if held is not None and held.subject is subject else None

    def _held_update(self, subject: Entity | PropertyBag) -> PlannedWrite | None:
        """
        Return the write that the transaction holds of this very object, unless it deletes the row.

        Raises:
            NotSupported: Another object stands for the row, or the row is to be read before it is written.
        """
        if self._late and _address(subject) in self._late:
            raise read_too_late(key_of(subject))
        if id(subject) not in self._known:
            return None
        held = self._rows.get(_address(subject))
        if held is None or held.write is None or held.write.after is None:
            return None
        if held.subject is not subject:
            raise other_object(key_of(subject))
        return held.write

    def _stand(self, address: RowAddress, held: HeldRow) -> None:
        """Let an object stand for a row, in place of the one that did."""
        before = self._rows.get(address)
        if before is not None and before.subject is not held.subject:
            self._displaced.append(before.subject)
        self._rows[address] = held
        self._known.add(id(held.subject))

    def _add(self, *changes: Change) -> None:
        """Collect the changes, each of another row, of one operation of the user's: all or none of them."""
        self._require_open()
        for change in changes:
            self._db.used_models.add(change.schema)
            check_change(self._db.boundary, change)
            held = self._rows.get(change.address)
            if held is not None:
                check_follows(change, self._count, held)
        if self._is_late(changes):
            # As they are now: what is changed later in the block belongs to another write.
            for change in changes:
                self._late[change.address] = as_given(change), self._count
            self._count += 1
            return NOT_AWAITED
        # Now: what is changed later in the block belongs to another write.
        index, given = self._count, [as_given(change) for change in changes]
        writes = [encode(change, index, self._token) for change in given]
        self._count += 1
        joined = [self._joined(write, index) for write in writes if write is not None]
        for write in joined:
            self._stand(write.change.address, HeldRow(write.change.subject, write))
        return NOT_AWAITED

    def _is_late(self, changes: Sequence[Change]) -> bool:
        """
        Return whether changes wait for rows to be read when the block ends.

        Raises:
            NotSupported: The transaction writes such a row already.
        """
        late = False
        for change in changes:
            held = self._rows.get(change.address)
            pending = None if held is None else held.write
            # What was given of the row may tell all of it.
            needs = needs_row(change) and (pending is None or pending.partial)
            if change.address in self._late or (needs and pending is not None):
                raise read_too_late(change)
            late = late or needs
        return late

    def _joined(self, write: PlannedWrite, index: int) -> PlannedWrite:
        """Return a write together with the one that is held of its row."""
        held = self._rows.get(write.change.address)
        if held is None or held.write is None:
            return write
        return compose(held.write, write.change, index, self._token)

    async def _send(self) -> None:
        """Send what was collected; again with rows read anew, if one of those was changed that are forced."""
        known = [held.write for held in self._rows.values() if held.write is not None]
        forced = {n for change, n in self._late.values() if change.if_match in (None, "*") and not change.is_copied}
        with self._db.turns.begin() as turn:
            async for attempt in Attempts(self._db, ATTEMPTS):
                await turn.take(self._late)
                late = await map_together(self._completed, list(self._late.values()))
                writes = [*known, *(write for write in late if write is not None)]
                if not writes:
                    return
                writes.sort(key=lambda write: write.index)
                try:
                    await commit(self._db, writes, SendOptions(transaction=True, repeat=self._repeat))
                except TransactionFailed as error:
                    if attempt + 1 < ATTEMPTS and (there := await self._find_existing(error, known)):
                        self._existing += [write.change.subject for write in there]
                        known = [write for write in known if write not in there]
                        continue
                    if not is_race(error.__cause__) or error.index not in forced or attempt + 1 == ATTEMPTS:
                        raise
                else:
                    return

    async def _find_existing(self, error: TransactionFailed, writes: Sequence[PlannedWrite]) -> list[PlannedWrite]:
        """Return the inserts that leave the rows as they are that they find, if one of them was rejected for that."""
        cause, at = error.__cause__, error.index
        refused = next((write for write in writes if write.index == at and write.origin.exist_ok), None)
        if refused is None or not isinstance(cause, EntityExists):
            return []
        there = await find_existing(self._db, (write.origin for write in writes))
        if not cause.index:
            there.add(refused.origin.row_key)
        return [write for write in writes if write.origin.exist_ok and write.origin.row_key in there]

    async def _completed(self, late: tuple[Change, int]) -> PlannedWrite | None:
        """Return the write of a change that needs the stored row."""
        change, index = late
        if not needs_row(change):
            return encode(change, index, self._token)
        row = await read_current(self._db, change)
        try:
            return encode(complete(change, row), index, self._token)
        except (Conflict, EntityNotFound) as error:
            raise in_transaction(change, index, error, "; nothing was sent") from error

    def _condition(self, index: int | None) -> Condition | None:
        """Return the condition of one of the user's operations; None if there is none."""
        held = (held.write for held in self._rows.values())
        found = [
            (write.origin, write.operation.if_match) for write in held if write is not None and write.index == index
        ]
        found += [(change, change.if_match) for change, number in self._late.values() if number == index]
        return next(((change.address, etag, change.subject) for change, etag in found if etag != "*"), None)

    def _require_open(self) -> None:
        if self._state != "open":
            raise ModelError(f"the transaction is {self._state}; use it inside `async with db.transaction() as tx:`")

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise ModelError("the transaction was used already; begin another with db.transaction()")
        self._state = "open"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state = "closed"
        written = False
        try:
            if kind is None:
                self._sent = True
                await self._send()
            written = kind is None
        except TransactionFailed as failed:
            self._refused = self._condition(failed.index)
            raise
        finally:
            if not written:
                for entity, before in reversed(self._modified):
                    restore_subject(entity, before)
        if written:
            for subject in self._displaced:
                forget(subject)
            for entity, moved in self._adopt:
                adopt(entity, moved)


def _address(subject: Entity | PropertyBag) -> RowAddress:
    return RowAddress.of(key_of(subject))


def _is_blind(write: PlannedWrite) -> bool:
    return write.operation.if_match in (None, "*")
