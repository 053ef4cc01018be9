"""
The life of a database: its stores, opened once and in one event loop, its tables, and what it counts.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, TypeVar, cast

import attrs

from ..errors import Conflict, EntityNotFound, ModelError, NotSupported, TableNotFound, shown
from ..models.entity import Entity, schema_of
from ..models.kinds import refuse_same_kinds
from ..models.schema import concrete
from ..protocol.codes import THROTTLING, Code, Fault
from ..stores import Backend, BlobStore, GuardedStore, QueueStore, TableStore, Traffic
from .boundary import Boundary
from .retry import RetryingStore, RetryPolicy
from .translate import translate

__all__ = ["TURN", "Connection", "Stats"]

S = TypeVar("S", QueueStore, BlobStore)
T = TypeVar("T")

TURN = 250  # entities read before other tasks get a turn: a millisecond or two


@attrs.define
class Stats:
    """
    What a database has sent and received since it was opened.

    Args:
        requests: Requests to the store; a transaction is one.
        rows: Rows read.
        operations: Rows written or deleted.
        traffic: What became of the requests on their way.
    """

    requests: int = 0
    rows: int = 0
    operations: int = 0
    traffic: Traffic = attrs.Factory(Traffic)

    @property
    def retries(self) -> int:
        """Requests that were sent again, by the mapper or below it."""
        return self.traffic.retries

    @property
    def throttled(self) -> int:
        """Answers that refused a request for its rate; most of these requests went through later."""
        return self.traffic.throttled

    def snapshot(self) -> "Stats":
        """A copy that stays as it is."""
        return attrs.evolve(self, traffic=attrs.evolve(self.traffic))


class Connection:
    """
    The stores of an open database and its counters, on which reading and writing are built.

    Args:
        backend: The backend that has the tables.
        queues: The backend that has the queues; None if it is the same one.
        blobs: The backend that has the blobs; None if it is the same one.
        retry: How requests are repeated by the mapper, where the store does not repeat them itself.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        queues: Backend | None = None,
        blobs: Backend | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.backend = backend
        self.retry = retry or RetryPolicy()
        self._queues, self._blobs = queues or backend, blobs or backend
        counted: Traffic | None = getattr(backend, "traffic", None)
        self._counts_itself = counted is not None
        self.stats = Stats(traffic=counted or Traffic())
        self._store: TableStore | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._since_turn = 0
        self.boundary = Boundary()

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
        store = self.backend.tables
        if not store.capabilities.retries:
            store = RetryingStore(store, self.retry, self.count_fault, self.count_repetition)
        self._store, self._loop = store, asyncio.get_running_loop()
        return self

    def count_fault(self, fault: Fault) -> None:
        """Count a request that was refused for its rate, unless the backend itself counts these."""
        if fault.code in THROTTLING and not self._counts_itself:
            self.stats.traffic.throttled += 1

    def count_repetition(self) -> None:
        """Count a request that is sent again."""
        self.stats.requests += 1
        self.stats.traffic.retries += 1

    def count_request(self, request: Awaitable[T]) -> Awaitable[T]:
        """Count a request of the store, and return it to be awaited: all go this way, those of `call` too."""
        self.stats.requests += 1
        return request

    async def call(self, what: str, table: str, request: Awaitable[T]) -> T:
        """
        Send one request to the store, and translate what it refuses.

        Args:
            what: What it does, as the start of a sentence: "list of tables".
            table: Name of the table; "" if it is about none.
            request: The call of the store.

        Raises:
            TableOrmError: The store refused it; names what was attempted.
        """
        try:
            return await self.count_request(request)
        except Fault as fault:
            raise translate(fault, what, table) from fault

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
            raise NotSupported(
                "the database is closed, by close() or the end of its `async with`; make another with connect(url)"
                if self._loop is not None
                else "the database is not open; use `async with connect(url) as db`"
            )
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

    def require_open(self) -> TableStore:
        """
        The tables, for use now.

        Raises:
            NotSupported: The database is not open, or was opened in another event loop.
        """
        if asyncio.get_running_loop() is not self._loop and self._store is not None:
            raise NotSupported(
                "the database was opened in another event loop, which may have ended; open one in each loop that uses "
                "it: one `async with connect(url)` within each asyncio.run()"
            )
        return self.store

    async def yield_to_loop(self, entities: int) -> None:
        """
        Let other tasks run now and then: an embedded store answers without waiting, so that a task that reads in a loop
        would otherwise keep the event loop to itself.
        """
        self._since_turn += entities
        if self._since_turn >= TURN:
            self._since_turn = 0
            await asyncio.sleep(0)

    @property
    def sees_all(self) -> bool:
        """Whether all rows of its tables can be read: with a token perhaps only some, and others than their copies."""
        return not isinstance(self.backend.tables, GuardedStore)

    async def ping(self) -> None:
        """
        Ask the store for something small.

        Raises:
            Unavailable: It does not answer.
            AccessDenied: It answers, and the credentials are not good.
        """
        self.require_open()
        store = self.backend.tables
        if not isinstance(store, GuardedStore):
            await self.tables()
            return
        await self.call("ping", "", store.ping())

    # Tables

    async def create_tables(self, *models: type[Entity]) -> None:
        """
        Create the tables of these models, where they do not exist yet.

        Raises:
            AccessDenied: Not permitted.
            ModelError: A count, a sum or an embedded copy does not fit the model that it is about, or two models of a
                table have one kind.
        """
        store = self.require_open()
        schemas = [s for m in models for s in (concrete(schema_of(m)) or [schema_of(m)])]
        refuse_same_kinds(list(dict.fromkeys(schemas)))
        for schema in schemas:
            schema.check_relations()
        names = dict.fromkeys(schema.table_name() for schema in schemas)
        for name in names:
            try:
                await self.call(f"creation of table {name}", name, store.create_table(name))
            except Conflict as error:
                if error.code != Code.TABLE_EXISTS:
                    raise

    async def tables(self) -> list[str]:
        """Names of all tables, in order."""
        return await self.call("list of tables", "", self.require_open().list_tables())

    async def drop_table(self, name: str, *, missing_ok: bool = False) -> None:
        """
        Delete a table and all of its rows.

        Args:
            name: Name of the table.
            missing_ok: Say nothing if there is none.

        Raises:
            TableNotFound: There is none.
            AccessDenied: In a scope, since the table may have rows of others.
            ModelError: `name` is not a str.
        """
        if not isinstance(cast("object", name), str):
            raise ModelError(f"drop_table({shown(name)}) is refused: give the name of the table, a str")
        self.boundary.check_whole_table(f"drop_table({name!r}, missing_ok={missing_ok!r})")
        request = self.require_open().delete_table(name)
        try:
            await self.call(f"deletion of table {name!r}", name, request)
        except EntityNotFound as error:
            if not missing_ok:
                raise TableNotFound(f"there is no table {name!r} to delete", Code.TABLE_NOT_FOUND, name) from error


def _given(store: S | None, argument: str) -> S:
    if store is None:
        raise NotSupported(
            f"this database has no {argument}; say where they are: connect(url, {argument}=...), for example "
            f'{argument}="local:./{argument}.tables"'
        )
    return store
