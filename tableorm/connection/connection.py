"""
The life of a database: its stores, opened once and in one event loop, its tables, and what it counts.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self, TypeVar, cast

from ..errors import Conflict, EntityNotFound, NotSupported, TableNotFound
from ..models.entity import Entity, schema_of
from ..models.kinds import UsedModels, refuse_same_kinds
from ..models.schema import concrete
from ..protocol.codes import THROTTLING, Code, Fault
from ..stores import Backend, BlobStore, GuardedStore, PrefixedBackend, QueueStore, TableStore, Traffic
from .boundary import Boundary
from .observe import Hook, Observation, ObservedStore, QueryWork, Watch
from .retry import RetryingStore, RetryPolicy
from .stats import Counts, Stats
from .translate import translate
from .translating import TranslatingStore

__all__ = ["TURN", "Connection"]

S = TypeVar("S", QueueStore, BlobStore)
T = TypeVar("T")

# What other packages of ours use, and programs do not: `dir` leaves it out, and so does the reference.
_INTERNAL = {
    "backend",
    "boundary",
    "call",
    "count_fault",
    "count_repetition",
    "load_row",
    "require_open",
    "retry",
    "sees_all",
    "sending",
    "used_models",
    "watch",
    "wrap_store",
    "yield_to_loop",
}

TURN = 250  # entities read before other tasks get a turn: a millisecond or two


class Connection:
    """
    The stores of an open database and its counters, on which reading and writing are built.

    Args:
        backend: The backend that has the tables.
        queues: The backend that has the queues; None if it is the same one.
        blobs: The backend that has the blobs; None if it is the same one.
        retry: How requests are repeated by the mapper, where the store does not repeat them itself.
        watch: Who is told of the requests; nobody if not given.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        queues: Backend | None = None,
        blobs: Backend | None = None,
        retry: RetryPolicy | None = None,
        watch: Watch | None = None,
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
        self.watch = watch or Watch()
        self.used_models = UsedModels()

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in _INTERNAL]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    @property
    def url(self) -> str:
        """Where the tables are, without secrets, for people to read."""
        url: str = getattr(self.backend, "url", type(self.backend).__name__)
        return url

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
            store = RetryingStore(store, self.retry, self.count_fault, self._count_repeated_read)
        self._store, self._loop = store, asyncio.get_running_loop()
        self.watch.begin(self.url)
        return self

    # Requests

    def sending(
        self,
        operation: str,
        model: str,
        *,
        work: QueryWork | None = None,
        attempt: int = 1,
        retried: bool = True,
    ) -> tuple[TableStore, Counts]:
        """
        Count a request that is sent next, and return the tables to send it to: all requests for rows go this way.

        Args:
            operation: What `ObservedRequest` calls it.
            model: The model that it is for; "" if it is for none.
            work: The query that it is part of; None if it is not, or nobody is warned of slow ones.
            attempt: Which attempt it is, from 1.
            retried: Whether it may be repeated after a transient fault.

        Returns:
            The tables, and the counters in which the rows are counted by the caller.

        Raises:
            NotSupported: The database is not open, or was opened in another event loop.
        """
        store = self._store
        if store is None or asyncio.get_running_loop() is not self._loop:
            store = self.require_open()
        counts = self.stats.counts.get((operation, model))
        if counts is None:
            counts = self.stats.counts[str(operation), model] = Counts()
        counts.requests += 1
        if not retried:
            store = self.backend.tables
        if self.watch.always or self.watch.blocks:
            store = ObservedStore(store, self.watch, model, work, attempt)
        return store, counts

    def observe(self, on_request: Hook | None = None, *, show_values: bool = False) -> Observation:
        """
        Note the requests of a block, and of the tasks that are begun in it.

            with db.observe() as seen:
                await db.save(ken)
            print(seen)  # seen.requests, seen.rows, seen.cost

        Args:
            on_request: Called with each request when it has ended; it must not be asynchronous.
            show_values: Whether requests have the values of properties too.

        Raises:
            TypeError: `on_request` is not a plain function.
        """
        return self.watch.observe(on_request, show_values=show_values)

    def count_fault(self, fault: Fault) -> None:
        """Count a request that was refused for its rate, unless the backend itself counts these."""
        if fault.code in THROTTLING and not self._counts_itself:
            self.stats.traffic.throttled += 1

    def count_repetition(self) -> None:
        """Count a request that is sent again, beside what `sending` counts."""
        self.stats.traffic.retries += 1

    def _count_repeated_read(self) -> None:
        self.count_repetition()
        self.stats.counts.setdefault(("repetition", ""), Counts()).requests += 1

    async def call(self, what: str, table: str, request: Awaitable[T], *, beside: str = "") -> T:
        """
        Send one request to the store, and translate what it refuses.

        Args:
            what: What it does, as the start of a sentence: "list of tables".
            table: Name of the table; "" if it is about none.
            request: The call of the store.
            beside: What `ObservedRequest` calls it, if it is none for the tables that `sending` returns.

        Raises:
            TableOrmError: The store refused it; names what was attempted.
        """
        if beside:
            self.sending(beside, "")
            request = self.watch.send(request, beside, table)
        try:
            return await request
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
        """The tables themselves, below the mapper. What a program asks of them is neither counted nor observed."""
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

    def wrap_store(self, wrap: Callable[[TableStore], TableStore]) -> None:
        """Let every request pass through what `wrap` makes of the open store, which is below it; tests do so."""
        self._store = wrap(self.store)

    @property
    def prefix(self) -> str:
        """What the names of tables begin with in the store, and nowhere else; "" if nothing."""
        return self.backend.prefix if isinstance(self.backend, PrefixedBackend) else ""

    @property
    def _tables(self) -> TableStore:
        """The tables as the backend opens them, which know their names with the prefix."""
        store = self.backend.tables
        return getattr(store, "wrapped", store)

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
        return not isinstance(self._tables, GuardedStore)

    async def ping(self) -> None:
        """
        Ask the store for something small.

        Raises:
            Unavailable: It does not answer.
            AccessDenied: It answers, and the credentials are not good.
        """
        self.require_open()
        store = self._tables
        if not isinstance(store, GuardedStore):
            await self.tables()
            return
        await self.call("ping", "", store.ping(), beside="ping")

    # Tables

    async def create_tables(self, *targets: type[Entity] | str) -> None:
        """
        Create the tables of these models, or with these names, where they do not exist yet.

        Args:
            targets: Models, and names of tables.

        Raises:
            AccessDenied: Not permitted.
            ModelError: A count, a sum or an embedded copy does not fit the model that it is about, or two models of a
                table have one kind.
            TableOrmError: A table cannot have this name.
        """
        self.require_open()
        schemas = {t: concrete(schema_of(t)) or [schema_of(t)] for t in targets if not isinstance(t, str)}
        found = dict.fromkeys(itertools.chain.from_iterable(schemas.values()))
        refuse_same_kinds(list(found))
        self.used_models.add(*(schema for schema in found if not schema.abstract))
        names: dict[str, None] = {}
        for target in targets:
            if isinstance(target, str):
                names[target] = None
                continue
            for schema in schemas[target]:
                schema.check_relations()
                names[schema.table_name()] = None
        for name in names:
            store, _ = self.sending("create-table", "")
            try:
                await self.call(f"creation of table {name}", name, store.create_table(name))
            except Conflict as error:
                if error.code != Code.TABLE_EXISTS:
                    raise

    async def tables(self) -> list[str]:
        """Names of all tables, in order."""
        store, _ = self.sending("list-tables", "")
        return await self.call("list of tables", "", store.list_tables())

    async def drop_table(self, target: type[Entity] | str, *, missing_ok: bool = False) -> None:
        """
        Delete a table and all of its rows: those of other models too, and what is derived from them.

        Args:
            target: A model, or the name of a table.
            missing_ok: Say nothing if there is none.

        Raises:
            TableNotFound: There is none.
            AccessDenied: In a scope, since the table may have rows of others.
            ModelError: The target is an abstract model without a table, or neither a model nor a name.
        """
        name = target if isinstance(target, str) else schema_of(target).table_name()
        self.boundary.check_whole_table(f"drop_table({name!r}, missing_ok={missing_ok!r})")
        store, _ = self.sending("delete-table", "")
        try:
            await self.call(f"deletion of table {name!r}", name, store.delete_table(name))
        except EntityNotFound as error:
            if not missing_ok:
                raise TableNotFound(f"there is no table {name!r} to delete", Code.TABLE_NOT_FOUND, name) from error


def _given(store: S | None, argument: str) -> S:
    if store is None:
        raise NotSupported(
            f"this database has no {argument}; say where they are: connect(url, {argument}=...), for example "
            f'{argument}="local:./{argument}.tables"'
        )
    return cast("S", TranslatingStore(store, argument))
