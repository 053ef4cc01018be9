"""
The database: what an application opens once and shares between its tasks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ..errors import (
    Conflict,
    EntityExists,
    EntityNotFound,
    ModelError,
    OutcomeUnknown,
    PreconditionFailed,
    TransactionFailed,
)
from ..expressions import Field
from ..models.entity import Entity, schema_of
from ..models.key import Key
from ..models.property_bag import PropertyBag
from ..protocol.codes import Code
from ..stores import Row
from ..writes.bulk.bulk import Bulk
from ..writes.bulk.report import BulkReport
from ..writes.commit import commit
from ..writes.explain import WriteExplanation, changes_of, explain
from ..writes.modify import adopt, applied, check_function, forget, refuse_unsaved
from ..writes.move import move_changes
from ..writes.plan import Change, PlannedWrite, SendOptions
from ..writes.races import ATTEMPTS, is_race, pause_of
from ..writes.stages.change import (
    delete_change,
    insert_change,
    merge_change,
    replace_change,
    save_change,
    upsert_change,
)
from ..writes.stages.complete import complete, needs_row
from ..writes.stages.encode import encode
from ..writes.subject import key_of
from ..writes.transaction import Transaction
from ..writes.write_tokens import new_token
from .upkeep import Upkeep

if TYPE_CHECKING:
    from ..access.scope import Scope

__all__ = ["Database"]

E = TypeVar("E", bound=Entity)
M = TypeVar("M", bound=Entity | PropertyBag)
T = TypeVar("T")


class Database(Upkeep):
    """
    A set of tables, opened by `connect`. Safe to share between the tasks of one event loop; another loop gets an error.

    Use it as `async with connect(url) as db`, or call `open` and `close`.

    Every write raises `OutcomeUnknown` if its reply was lost and nothing proves what happened, and `Unavailable` if the
    store could not be reached in time and surely nothing was written. An entity that was written has its new ETag and
    timestamp; one of which the write failed, or was cancelled, is as it was.
    """

    async def insert(self, entity: Entity | PropertyBag, *, repeat: bool = True) -> None:
        """
        Insert a new entity; it gets its ETag and timestamp.

        Args:
            entity: An entity or bag.
            repeat: Whether to insert again after a lost reply, if then there is no such row. Not for rows that others
                consume by deleting them: what one of them had already taken would be there once more.

        Raises:
            EntityExists: There is a row with its key.
            EncodeError: A value does not fit its field.
            LimitExceeded: A limit of the service would be passed; nothing was sent.
            TableNotFound: There is no such table.
        """
        await self._write(insert_change(entity), repeat=repeat)

    async def save(self, entity: Entity | PropertyBag) -> None:
        """
        Write what changed since the entity was read or written, if it is still as it was then.

        Merges the changed properties; a field set to None is removed, by a replace that keeps what the model does not
        know. An upgraded entity is replaced in full. Sends nothing when nothing changed.

        Raises:
            PreconditionFailed: The row has changed, or the entity was never read.
            EntityNotFound: The row is gone.
            EncodeError: A value does not fit its field, or a key field was changed.
        """
        await self._write(save_change(entity))

    async def merge(
        self,
        entity: Entity | PropertyBag,
        only: Sequence[Field[Any] | str] | None = None,
        *,
        if_match: str | None = None,
    ) -> None:
        """
        Merge fields into the row, whether they changed or not; all others stay as they are there.

        If some are merged into another version of the row than the entity was read from, it has no ETag afterwards:
        `refresh` it before its next write. An upgraded entity then reads the row first, and replaces it.

        Args:
            entity: An entity or bag.
            only: The fields to send: `[Employee.age]`, or names of properties of a bag; None for all that it has. A
                field that is None cannot be merged, since a merge cannot remove a property; `save` can.
            if_match: ETag that the row must have, or "*" for any; default is the one it was read with.

        Raises:
            PreconditionFailed: The row has changed, or there is no ETag.
            EntityNotFound: There is no such row.
            EncodeError: A value does not fit its field, is None, or a key field was changed.
        """
        await self._write(merge_change(entity, only, if_match))

    async def replace(
        self, entity: Entity | PropertyBag, *, if_match: str | None = None, drop_extra: bool = False
    ) -> None:
        """
        Write the whole entity in place of the row.

        Properties that the model does not know are written back as they were read. If nobody has read them, as when an
        entity replaces whatever is there, or another version of the row than it was read from, the row is read first.

        Args:
            entity: An entity or bag.
            if_match: ETag that the row must have, or "*" for any; default is the one it was read with.
            drop_extra: Leave out what the model does not know.

        Raises:
            PreconditionFailed: The row has changed, or there is no ETag.
            EntityNotFound: There is no such row.
            NotLoaded: The entity was loaded in part; names the missing fields.
            EncodeError: A value does not fit its field, or a key field was changed.
        """
        await self._write(replace_change(entity, if_match, drop_extra=drop_extra))

    async def upsert(self, entity: Entity | PropertyBag, mode: Literal["merge", "replace"] = "merge") -> None:
        """
        Insert the entity, or write it over the row that is there, without looking: the last writer wins. Only an
        upgraded entity reads the row first.

        Args:
            entity: An entity or bag.
            mode: "merge" leaves what the entity does not have; "replace" leaves nothing but what the entity has,
                unknown properties that it was read with included.

        Raises:
            EncodeError: A value does not fit its field; or a merge would have to remove a field that was set to None.
            NotLoaded: The entity was loaded in part; names the missing fields.
        """
        await self._write(upsert_change(entity, mode))

    async def delete(
        self,
        target: Entity | PropertyBag | Key[Any] | type[Entity],
        /,
        *,
        if_match: str | None = None,
        missing_ok: bool = False,
        **fields: Any,
    ) -> None:
        """
        Delete a row.

        Args:
            target: An entity or bag that was read, a `Key`, or a model with its key fields.
            if_match: ETag that the row must have, or "*" for any; default is the one it was read with.
            missing_ok: Say nothing if there is no such row.
            fields: The key fields.

        Raises:
            PreconditionFailed: The row has changed, or there is no ETag.
            EntityNotFound: There is no such row.
        """
        key = self.key_of_target(target, fields)
        subject = target if isinstance(target, (Entity, PropertyBag)) else key
        try:
            await self._write(delete_change(subject, if_match), missing_ok=missing_ok)
        except EntityNotFound:
            if not missing_ok:
                raise
            forget(subject)

    async def move(self, entity: Entity | PropertyBag, /, **fields: Any) -> None:
        """
        Give an entity another key within its partition: in one transaction its row is deleted, if it is still as it was
        read, and inserted under the new key. The entity has the new key fields then, and the new row's ETag.

        It is written as it is, with what was changed and not saved, and with the properties that the model does not
        know.

        Args:
            entity: An entity or bag that was read or written.
            fields: The new key fields, such as `id=11`; of a bag `row_key="..."`.

        Raises:
            EntityExists: There is a row with the new key.
            PreconditionFailed: The row has changed, or there is no ETag.
            EntityNotFound: The row is gone.
            NotSupported: The new key is in another partition or table, where no transaction reaches.
            NotLoaded: The entity was loaded in part; names the missing fields.
            TemplateError: A field is no key field, or does not fit.
            EncodeError: The new key is the old one, or a value does not fit its field.
        """
        delete, insert = move_changes(entity, fields)
        self.require_open()
        if needs_row(delete):
            delete = complete(delete, await self.read_row(delete.table, delete.partition_key, delete.row_key))
        token = new_token()
        writes = [write for change in (delete, insert) if (write := encode(change, 0, token)) is not None]
        await commit(self, writes)
        adopt(entity, insert.subject)

    async def refresh(self, entity: Entity | PropertyBag) -> None:
        """
        Read the entity anew, in full, in place. What was changed and not saved is lost.

        Raises:
            EntityNotFound: There is no such row any more.
            WrongKind: The row is of another kind now.
            DecodeError: The row does not fit the model.
        """
        adopt(entity, await self._current(key_of(entity)))

    @overload
    async def modify(
        self, target: type[E], fn: Callable[[E], E | None], /, *, attempts: int = ATTEMPTS, **fields: Any
    ) -> E: ...
    @overload
    async def modify(self, target: Key[M], fn: Callable[[M], M | None], /, *, attempts: int = ATTEMPTS) -> M: ...
    @overload
    async def modify(self, target: M, fn: Callable[[M], M | None], /, *, attempts: int = ATTEMPTS) -> M: ...
    async def modify(self, target: Any, fn: Callable[[Any], Any], /, *, attempts: int = ATTEMPTS, **fields: Any) -> Any:
        """
        Read an entity, apply a function, and save what changed if the row is still as it was read; otherwise again,
        after a pause.

        Args:
            target: A model, with its key fields; a `Key`; or an entity or bag, which gets the result.
            fn: Takes the entity, and changes it or returns a changed copy. It is called once for each attempt, so it
                must do nothing else; it cannot await.
            attempts: How often it is tried at most.
            fields: The key fields.

        Returns:
            The entity as it was written.

        Raises:
            Conflict: Every attempt lost its race; `entity` is the entity as it was read last.
            EntityNotFound: There is no such row.
            EncodeError: The entity given has changes that were not saved, or a value does not fit its field.
            ModelError: `fn` is asynchronous, or returns something else than such an entity.
        """
        check_function(fn)
        if attempts < 1:
            raise ModelError(f"modify(attempts={attempts!r}) is refused: try at least once")
        instance = target if isinstance(target, (Entity, PropertyBag)) else None
        if instance is not None:
            refuse_unsaved(instance)
        key = self.key_of_target(target, fields)
        for attempt in range(attempts):
            if attempt:
                await asyncio.sleep(pause_of(self, attempt))
            row = await self._existing(key)
            result = applied(fn, self.load_row(key.model, key.table, row.copy()), instance)
            try:
                await self._write(save_change(result, verb="modify"))
            except (PreconditionFailed, EntityNotFound) as error:
                if not is_race(error):
                    raise
                continue  # if it was deleted, reading says so
            if instance is not None:
                adopt(instance, result)
            return result
        raise Conflict(
            f"modify of {key}: lost {attempts} races in a row; spread the writers, or give it more attempts",
            Code.CONDITION_NOT_SATISFIED,
            await self._current(key),
        )

    @overload
    def explain_write(
        self,
        verb: Literal["insert", "save", "merge", "replace", "upsert", "delete"],
        target: Entity | PropertyBag | Key[Any],
        /,
        *,
        only: Sequence[Field[Any] | str] | None = None,
        mode: Literal["merge", "replace"] = "merge",
        if_match: str | None = None,
        drop_extra: bool = False,
    ) -> WriteExplanation: ...
    @overload
    def explain_write(
        self, verb: Literal["move"], target: Entity | PropertyBag, /, **fields: Any
    ) -> WriteExplanation: ...
    def explain_write(self, verb: str, target: Any, /, **arguments: Any) -> WriteExplanation:
        """
        What a write would send: each request, its body, and what it costs. Sends nothing itself.

        Args:
            verb: The method of the database: "insert", "save", "merge", "replace", "upsert", "delete" or "move".
            target: What it would be given.
            arguments: What the verb would be given beside it: `only`, `mode`, `if_match`, `drop_extra`; the new key
                fields of a move.

        Raises:
            ModelError: There is no such verb, or it does not take these arguments.
            TableOrmError: What the write would raise before anything is sent.
        """
        return explain(self._changes_of(verb, target, arguments))

    def transaction(self, *, repeat: bool = True) -> Transaction:
        """
        An entity group transaction: `async with db.transaction() as tx: tx.insert(...)`.

        What is collected is sent when the block ends, all or nothing; nothing if the block raises. One table, one
        partition, at most 100 operations and 4 MiB; changes of one row are one operation.

        Args:
            repeat: Whether to send it again after a lost reply; otherwise that is `OutcomeUnknown`, unless a write
                token proves that it was applied.

        Raises:
            TransactionFailed: When the block ends: an operation failed, nothing was applied; `index` says which.
        """
        return Transaction(self, repeat=repeat)

    async def run_transaction(
        self, fn: Callable[[Transaction], Awaitable[T]], *, attempts: int = ATTEMPTS, repeat: bool = True
    ) -> T:
        """
        QueryExecution a function in a transaction, and all of it again, in a new one, if a row has changed meanwhile.

        Args:
            fn: `async def fn(tx)`: reads by `tx.get` and `tx.modify`, and writes. It may be called several times.
            attempts: How often it is tried at most.
            repeat: As of `transaction`.

        Returns:
            What `fn` returned in the attempt that succeeded.

        Raises:
            TransactionFailed: An operation failed for another reason, or all attempts lost their races.
        """
        existing: int | None = None
        for attempt in range(attempts):
            if attempt:
                await asyncio.sleep(pause_of(self, attempt))
            tx = self.transaction(repeat=repeat)
            try:
                async with tx:
                    return await fn(tx)
            except TransactionFailed as error:
                if not tx.sent:
                    raise  # its own operations do not fit together, and will not
                cause = error.__cause__
                # Whether a row is there the function may have asked; that it blindly inserts one shows the second time.
                again = isinstance(cause, (EntityExists, EntityNotFound)) and error.index != existing
                existing = error.index if again else None
                if attempt + 1 == attempts or not (again or isinstance(cause, PreconditionFailed)):
                    raise
        raise ModelError(f"run_transaction(attempts={attempts!r}) is refused: try at least once")

    def bulk(
        self,
        *,
        concurrency: int = 16,
        rate: float | None = None,
        on_progress: Callable[[BulkReport], object] | None = None,
    ) -> Bulk:
        """
        Many writes over any partitions: `async with db.bulk() as bulk: await bulk.upsert(...)`, then `bulk.report`.

        They are sent as entity group transactions, by partition, and are atomic per transaction only. What is fed in
        faster than it can be written waits at the call, so any number of entities takes bounded memory. If the block
        raises, what was not sent yet is dropped.

        Args:
            concurrency: Transactions under way at most, each of another partition; fewer while the store refuses
                because it is asked for too much.
            rate: Operations a second at most; None for any number.
            on_progress: Called with the report so far after each transaction.

        Raises:
            ModelError: `concurrency` or `rate` is not above 0.
        """
        return Bulk(self, concurrency=concurrency, rate=rate, on_progress=on_progress)

    def scope(self, *models: type[Entity], **fields: Any) -> "Scope":
        """
        A view of this database in which key fields have one value: `mine = db.scope(tenant="acme")`.

        It fills these fields in keys, queries and new entities, and refuses what has another value.

        Args:
            models: Models whose keys say which rows of their tables are of the scope, so that rows can be read and
                written without a model too: `select_raw`, property bags.
            fields: The fields and their values: key fields of every model that is used in the scope.

        Raises:
            ModelError: No field is given, or the keys of a model do not tell which rows are of the scope.
        """
        from ..access.scope import Scope  # noqa: PLC0415 - a scope is a database

        return Scope(self, models, fields)

    async def run_writes(self, writes: Sequence[PlannedWrite], *, repeat: bool = True) -> None:
        """Send encoded changes as one transaction; again after a lost reply if it may be repeated."""
        await commit(self, writes, SendOptions(transaction=True, repeat=repeat))

    def _changes_of(self, verb: str, target: Any, arguments: dict[str, Any]) -> Sequence[Change]:
        return changes_of(verb, target, arguments)

    async def _write(self, change: Change, *, repeat: bool = True, missing_ok: bool = False) -> None:
        self.require_open()
        if needs_row(change):
            await self._write_completed(change, missing_ok=missing_ok)
            return
        write = encode(change, 0)
        if write is not None:
            await commit(self, (write,), SendOptions(repeat=repeat, missing_ok=missing_ok))

    async def _write_completed(self, change: Change, *, missing_ok: bool = False) -> None:
        """Write what needs the stored row, under the ETag it is read with; again after a lost race, if forced."""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(pause_of(self, attempt))
            row = await self.read_row(change.table, change.partition_key, change.row_key)
            write = encode(complete(change, row), 0)
            if write is None:
                return
            try:
                await commit(self, (write,), SendOptions(missing_ok=missing_ok))
            except (PreconditionFailed, EntityExists, EntityNotFound, OutcomeUnknown) as error:
                # Forced: whoever wrote meanwhile is written over, also if that was our own lost request.
                if (
                    not (is_race(error) or (isinstance(error, OutcomeUnknown) and error.found is not None))
                    or change.if_match not in (None, "*")
                    or (change.copied is not None and not isinstance(error, Conflict))
                ):
                    raise
                continue
            return
        raise Conflict(f"{change}: lost {ATTEMPTS} races in a row; spread the writers", None, change.subject)

    # Rows

    def key_from(self, target: Any, fields: dict[str, Any]) -> Key[Any]:
        """
        The key of a `Key`, or of a model and its key fields.

        Raises:
            ModelError: It is neither, or the model is abstract.
            TemplateError: A key field is missing, unknown, or does not fit.
        """
        if isinstance(target, Key):
            key = _any_key(target)
            if fields:
                raise ModelError(f"{key!r} is a key already; give it without fields")
            return key
        schema = schema_of(target)
        if schema.abstract:
            raise ModelError(f"{schema.name} is abstract: name one of its concrete classes, or give a Key")
        return schema.key(fields)

    def key_of_target(self, target: Any, fields: dict[str, Any]) -> Key[Any]:
        """
        The key of an entity or bag, or what `key_from` takes.

        Raises:
            ModelError: As `key_from`; or it is an entity, which has its key, and there are fields.
        """
        if not isinstance(target, (Entity, PropertyBag)):
            return self.key_from(target, fields)
        if fields:
            raise ModelError(f"{target!r} has its key already; give it without fields")
        return key_of(target)

    async def _existing(self, key: Key[Any]) -> Row:
        row = await self.read_row(key.table, key.partition_key, key.row_key)
        if row is None:
            raise EntityNotFound(f"there is no {key}", Code.RESOURCE_NOT_FOUND, key)
        return row

    async def _current(self, key: Key[Any]) -> Any:
        return self.load_row(key.model, key.table, await self._existing(key))


def _any_key(key: Any) -> Key[Any]:
    found: Key[Any] = key
    return found
