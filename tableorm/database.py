"""
The database: what an application opens once and shares between its tasks.
"""

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import attrs

from .bag import PropertyBag
from .declare import concrete
from .entity import Entity, schema_of
from .errors import EntityNotFound, ModelError, NotSupported, TableNotFound, WrongKind
from .keys import Key
from .kinds import Kinds, describe_kind
from .protocol.codes import Code, Fault
from .protocol.limits import check_table_name
from .query import TURN, Select
from .schema import Schema
from .stores import Backend, BlobStore, QueueStore, TableStore
from .transaction import Transaction
from .translate import translate
from .writes import plan_writes
from .writes.change import Change, delete_change, insert_change, save_change
from .writes.encode import encode
from .writes.execute import execute
from .writes.plan import PlannedWrite

__all__ = ["Database", "Stats"]

E = TypeVar("E", bound=Entity)
S = TypeVar("S", QueueStore, BlobStore)
M = TypeVar("M", bound=Entity | PropertyBag)
A = TypeVar("A", bound=Entity | PropertyBag)
B = TypeVar("B", bound=Entity | PropertyBag)
C = TypeVar("C", bound=Entity | PropertyBag)
D = TypeVar("D", bound=Entity | PropertyBag)


@attrs.define
class Stats:
    """
    What a database has sent and received since it was opened.

    Args:
        requests: Requests to the store; a transaction is one.
        rows: Rows read.
        operations: Rows written or deleted.
    """

    requests: int = 0
    rows: int = 0
    operations: int = 0

    def snapshot(self) -> "Stats":
        """A copy that stays as it is."""
        return attrs.evolve(self)


class Database:
    """
    A set of tables, opened by `connect`. Safe to share between the tasks of one event loop; another loop gets an error.

    Use it as `async with connect(url) as db`, or call `open` and `close`.
    """

    def __init__(self, backend: Backend, *, queues: Backend | None = None, blobs: Backend | None = None) -> None:
        self.backend = backend
        self._queues, self._blobs = queues or backend, blobs or backend
        self.stats = Stats()
        self._store: TableStore | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kinds: dict[type[Any], Kinds] = {}
        self._since_turn = 0

    # Life

    async def open(self) -> Self:
        """
        Open the database.

        Raises:
            NotSupported: The file is another program's, or newer than this version.
            AccessDenied: It may not be read.
            Unavailable: It cannot be reached.
        """
        if self._store is not None:
            raise NotSupported("the database is open already; open it once and share it")
        async with AsyncExitStack() as opened:
            for backend in self._backends():
                await backend.open()
                opened.push_async_callback(backend.close)
            opened.pop_all()
        self._store, self._loop = self.backend.tables, asyncio.get_running_loop()
        return self

    async def close(self) -> None:
        """Finish what was begun and release everything. Idempotent; a closed database refuses every other call."""
        if self._store is not None:
            self._store = None
            async with AsyncExitStack() as closing:
                for backend in self._backends():
                    closing.push_async_callback(backend.close)

    def _backends(self) -> list[Backend]:
        return list({id(each): each for each in (self.backend, self._queues, self._blobs)}.values())

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def store(self) -> TableStore:
        """The tables themselves, below the mapper."""
        if self._store is None:
            raise NotSupported("the database is not open; use `async with connect(url) as db`")
        return self._store

    @property
    def queues(self) -> QueueStore:
        """
        The queues.

        Raises:
            NotSupported: There are none; the message names the argument of `connect` that says where they are.
        """
        _ = self.store
        return _given(self._queues.queues, "queues")

    @property
    def blobs(self) -> BlobStore:
        """
        The blobs.

        Raises:
            NotSupported: There are none; the message names the argument of `connect` that says where they are.
        """
        _ = self.store
        return _given(self._blobs.blobs, "blobs")

    def check_usable(self) -> None:
        """
        Refuse use when not open, or from another event loop.

        Raises:
            NotSupported: Says which.
        """
        self._usable()

    def _usable(self) -> TableStore:
        if asyncio.get_running_loop() is not self._loop and self._loop is not None:
            raise NotSupported("the database was opened in another event loop; open one in each loop that uses it")
        return self.store

    async def take_turn(self, entities: int) -> None:
        """
        Let other tasks run now and then: an embedded store answers without waiting, so that a task that reads in a loop
        would otherwise keep the event loop to itself.
        """
        self._since_turn += entities
        if self._since_turn >= TURN:
            self._since_turn = 0
            await asyncio.sleep(0)

    async def ping(self) -> None:
        """
        Ask the store for something small.

        Raises:
            Unavailable: It does not answer.
        """
        await self.tables()

    # Tables

    async def create_tables(self, *models: type[Entity]) -> None:
        """
        Create the tables of these models, where they do not exist yet.

        Raises:
            AccessDenied: Not permitted.
        """
        store = self._usable()
        names = dict.fromkeys(s.table_name() for m in models for s in (concrete(schema_of(m)) or [schema_of(m)]))
        for name in names:
            self.stats.requests += 1
            try:
                await store.create_table(name)
            except Fault as fault:
                if fault.code != Code.TABLE_EXISTS:
                    raise translate(fault, f"creation of table {name}", name) from fault

    async def tables(self) -> list[str]:
        """Names of all tables, in order."""
        self.stats.requests += 1
        store = self._usable()
        try:
            return await store.list_tables()
        except Fault as fault:
            raise translate(fault, "list of tables", "") from fault

    async def drop_table(self, name: str, *, missing_ok: bool = False) -> None:
        """
        Delete a table and all of its rows.

        Args:
            name: Name of the table.
            missing_ok: Say nothing if there is none.

        Raises:
            TableNotFound: There is none.
        """
        store = self._usable()
        self.stats.requests += 1
        try:
            check_table_name(name)
            await store.delete_table(name)
        except Fault as fault:
            if fault.code == Code.RESOURCE_NOT_FOUND:
                if missing_ok:
                    return
                raise TableNotFound(f"there is no table {name!r} to delete", Code.TABLE_NOT_FOUND, name) from fault
            raise translate(fault, f"deletion of table {name!r}", name) from fault

    # Reading

    @overload
    async def get(self, target: type[E], /, **fields: Any) -> E: ...
    @overload
    async def get(self, target: Key[M], /) -> M: ...
    async def get(self, target: Any, /, **fields: Any) -> Any:
        """
        Read one entity by its key: a point query.

        Args:
            target: A model, with its key fields; or a `Key`.
            fields: The key fields.

        Raises:
            EntityNotFound: There is none.
            WrongKind: The row is of another kind.
            TemplateError: A key field is missing, unknown, or does not fit.
            DecodeError: The row does not fit the model.

        Source: Table service REST, "Query Entities", addressed by PartitionKey and RowKey.
        """
        entity = await self._point(target, fields)
        if entity is None:
            raise self._not_found(target, fields)
        return entity

    @overload
    async def get_or_none(self, target: type[E], /, **fields: Any) -> E | None: ...
    @overload
    async def get_or_none(self, target: Key[M], /) -> M | None: ...
    async def get_or_none(self, target: Any, /, **fields: Any) -> Any:
        """As `get`, but None if there is no such row."""
        return await self._point(target, fields)

    async def _point(self, target: Any, fields: dict[str, Any]) -> Any:
        store = self._usable()
        model: Any
        if isinstance(target, Key):
            if fields:
                raise ModelError(f"{target!r} is a key already; give it without fields")
            key = _any_key(target)
            table, partition_key, row_key, model = key.table, key.partition_key, key.row_key, key.model
        else:
            schema: Schema = getattr(target, "__schema__", None) or schema_of(target)
            if fields.keys() != schema.key_names or schema.abstract:
                self._refuse_fields(schema, fields)
            partition_key, row_key = schema.make_keys(fields)
            table, model = schema.table_name(), target
        self.stats.requests += 1
        try:
            row = await store.get(table, partition_key, row_key)
        except Fault as fault:
            if fault.code == Code.RESOURCE_NOT_FOUND:
                return None
            raise translate(fault, f"get of {model.__name__} ({partition_key!r}, {row_key!r})", table) from fault
        self.stats.rows += 1
        self._since_turn += 1
        if self._since_turn >= TURN:  # as take_turn, without a call
            self._since_turn = 0
            await asyncio.sleep(0)
        if model is PropertyBag:
            return PropertyBag.of_row(table, row)
        entity = self._kinds_of(model).load(row)
        if entity is None:
            raise WrongKind(
                f"the row ({partition_key!r}, {row_key!r}) in table {table} is no {model.__name__}: it has "
                f"{describe_kind(row)}; read it with PropertyBag.key({table!r}, {partition_key!r}, {row_key!r})",
                (partition_key, row_key),
                row.get("EntityType"),
            )
        return entity

    @staticmethod
    def _not_found(target: Any, fields: dict[str, Any]) -> EntityNotFound:
        key = _any_key(target) if isinstance(target, Key) else schema_of(target).key(fields)
        return EntityNotFound(f"there is no {key}", Code.RESOURCE_NOT_FOUND, key)

    @staticmethod
    def _refuse_fields(schema: Schema, fields: dict[str, Any]) -> None:
        if schema.abstract:
            raise ModelError(f"{schema.name} is abstract: get one of its concrete classes, or give a Key")
        schema.key(fields)  # raises, and says which field is missing or unknown

    def _kinds_of(self, model: type[Any]) -> Kinds:
        kinds = self._kinds.get(model)
        if kinds is None:
            kinds = Kinds.of([model])
            if not schema_of(model).abstract:  # an abstract base can still get more kinds
                self._kinds[model] = kinds
        return kinds

    @overload
    def select(self, model: type[A], /) -> Select[A]: ...
    @overload
    def select(self, model: type[A], model2: type[B], /) -> Select[A | B]: ...
    @overload
    def select(self, model: type[A], model2: type[B], model3: type[C], /) -> Select[A | B | C]: ...
    @overload
    def select(self, model: type[A], model2: type[B], model3: type[C], model4: type[D], /) -> Select[A | B | C | D]: ...
    def select(self, *models: Any) -> Select[Any]:
        """
        A query for entities of these models, which share a table.

        Args:
            models: One to four classes. An abstract base brings all of its kinds; `PropertyBag` among them brings rows
                of every other kind as bags.

        Raises:
            ModelError: They live in different tables.
        """
        kinds = self._kinds_of(models[0]) if len(models) == 1 and models[0] is not PropertyBag else Kinds.of(models)
        return Select(self, kinds)

    # Writing

    async def insert(self, entity: Entity | PropertyBag) -> None:
        """
        Insert a new entity; it gets its ETag and timestamp.

        Raises:
            EntityExists: There is a row with its key.
            EncodeError: A value does not fit its field.
            LimitExceeded: A limit of the service would be passed; nothing was sent.
            TableNotFound: There is no such table.
        """
        await self._write(insert_change(entity))

    async def save(self, entity: Entity) -> None:
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

    async def delete(
        self, target: Entity | PropertyBag | Key[Any], *, if_match: str | None = None, missing_ok: bool = False
    ) -> None:
        """
        Delete a row.

        Args:
            target: An entity or bag that was read, or a `Key`.
            if_match: ETag that the row must have, or "*" for any; default is the one it was read with.
            missing_ok: Say nothing if there is no such row.

        Raises:
            PreconditionFailed: The row has changed, or there is no ETag.
            EntityNotFound: There is no such row.
        """
        try:
            await self._write(delete_change(target, if_match))
        except EntityNotFound:
            if not missing_ok:
                raise

    async def _write(self, change: Change) -> None:
        store = self._usable()
        write = encode(change, 0)
        if write is not None:
            plan = plan_writes((write,))
            self.stats.requests += 1
            self.stats.operations += 1
            await execute(store, plan, transaction=False)

    def transaction(self) -> Transaction:
        """
        An entity group transaction: `async with db.transaction() as tx: tx.insert(...)`.

        What is collected is sent when the block ends, all or nothing; nothing if the block raises. One table, one
        partition, at most 100 operations and 4 MiB.

        Raises:
            TransactionFailed: When the block ends: an operation failed, nothing was applied; `index` says which.
        """
        return Transaction(self)

    async def run_writes(self, writes: list[PlannedWrite]) -> None:
        """Send encoded changes as one transaction."""
        store = self._usable()
        plan = plan_writes(writes, transaction=True)
        self.stats.requests += 1
        self.stats.operations += len(plan.writes)
        await execute(store, plan, transaction=True)


def _given(store: S | None, argument: str) -> S:
    if store is None:
        raise NotSupported(
            f"this database has no {argument}; say where they are: connect(url, {argument}=...), for example "
            f'{argument}="local:./{argument}.tables"'
        )
    return store


def _any_key(key: Any) -> Key[Any]:
    found: Key[Any] = key
    return found
