"""
One open database: its stores, opened once and in one event loop, its boundary, and what it counts.
"""

import asyncio
import copy
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Hashable
from contextlib import AsyncExitStack
from contextvars import Context
from typing import Any, TypeVar
from weakref import WeakMethod

import attrs

from ..errors import Conflict, ModelError, NotSupported, shown
from ..models.kinds import UsedModels
from ..models.placement import staged_models
from ..protocol.codes import THROTTLING, Code, Fault
from ..protocol.limits import MAX_PAGE
from ..stores import (
    Backend,
    BlobStore,
    GuardedStore,
    PrefixedBackend,
    QueueStore,
    RetryPolicy,
    Row,
    RowPage,
    RowQuery,
    StoreLayer,
    TableStore,
    Traffic,
)
from .boundary import Boundary
from .listening import HeardStore, Listener
from .observe import ObservedStore, QueryWork, Watch
from .retry import RetryingStore
from .staged import StagedStore
from .stats import Counts, Stats
from .translate import translate
from .turns import Turns

S = TypeVar("S", QueueStore, BlobStore)
T = TypeVar("T")

_MOST_LATER = 64  # pieces of work that nobody waits for, at the same time

TURN = 250  # entities read before other tasks get a turn: a millisecond or two


@attrs.define(eq=False)
class KnownStates:
    """
    What a connection and its views know of the states of indexes, which `index_states` loads.

    Attributes:
        readable: The digests of the declarations that the store says are complete.
        created: The tables that were made by the connection, in lower case.
        asked: When the store was asked for them last, by the loop's clock; None if it has to be asked.
        denied: Whether it refused to tell.
        lock: Held by who asks, so that the others wait for the answer.
    """

    readable: set[str] = attrs.field(factory=set[str])
    created: set[str] = attrs.field(factory=set[str])
    asked: float | None = None
    denied: bool = False
    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)


@attrs.define(eq=False)
class KnownPhase:
    """
    What a connection and its views know of the phase of a re-key.

    Attributes:
        phase: The phase; None if the store was not asked yet.
        asked: When the store was asked last, by the loop's clock.
        lock: Held by who asks, so that the others wait for the answer.
    """

    phase: str | None = None
    asked: float = 0.0
    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)


@attrs.define(eq=False)
class _Opened:
    """
    What a connection and its views have open: tables, what wraps queues and blobs, event loop, index states, phases of
    re-keys, tables that are being made, and who is told of writes, None if nobody was yet.
    """

    store: TableStore | None = None
    loop: asyncio.AbstractEventLoop | None = None
    queues: QueueStore | None = None
    blobs: BlobStore | None = None
    outbox: QueueStore | None = None
    states: KnownStates = attrs.field(factory=KnownStates)
    phases: dict[str, KnownPhase] = attrs.field(factory=dict[str, KnownPhase])
    making: dict[str, asyncio.Task[bool]] = attrs.field(factory=dict[str, asyncio.Task[bool]])
    listeners: set[WeakMethod[Listener]] | None = None


class Connection:
    """
    The stores of an open database and its counters, on which reading and writing are built.

    Args:
        backend: The backend that has the tables.
        queues: The backend that has the queues; None if it is the same one.
        blobs: The backend that has the blobs; None if it is the same one.
        retry: How requests are repeated by the mapper, where the store does not repeat them itself.
        watch: Who is told of the requests; nobody if not given.
        encryption: The content keys of encrypted fields, for the row stage of these; None if there are none.

    Attributes:
        boundary: What it may read and write.
        stats: What it has sent and received since it was opened.
        used_models: The models that it was used with.
        asked_for: The stores beside the tables that it was asked for: "queues", "blobs".
        turns: The turns of its writers at rows that several of them change.
        lines: Calls that are made together, by what they are about: see `tableorm.writes.modify_together`.
        reader: The database, or scope, that reads by it: queries load relations by its method `load`, and
            writes make entities of rows by `_load_row`.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        queues: Backend | None = None,
        blobs: Backend | None = None,
        retry: RetryPolicy | None = None,
        watch: Watch | None = None,
        encryption: Any = None,
    ) -> None:
        self.backend, self.encryption = backend, encryption
        self.retry = retry or RetryPolicy()
        self._queues, self._blobs = queues or backend, blobs or backend
        counted: Traffic | None = getattr(backend, "traffic", None)
        self._counts_itself = counted is not None
        self.stats = Stats(traffic=counted or Traffic())
        self._opened = _Opened()
        self._since_turn = 0
        self._later: set[asyncio.Task[None]] = set()
        self.boundary = Boundary()
        self.watch = watch or Watch()
        self.used_models = UsedModels()
        self.asked_for: set[str] = set()
        self.turns = Turns()
        self.lines: dict[Hashable, Any] = {}
        self.reader: Any = None

    def within(self, boundary: Boundary) -> "Connection":
        """Return a view of this connection with another boundary, which is open while this one is."""
        view = copy.copy(self)
        view.boundary = boundary
        return view

    @property
    def url(self) -> str:
        """Where the tables are, without secrets, for people to read."""
        url: str = getattr(self.backend, "url", type(self.backend).__name__)
        return url

    # Life

    async def open(self) -> None:
        """Open all stores, or none. Raises what `Database.open` raises."""
        if self._opened.store is not None:
            raise NotSupported("the database is open already; open it once and share it")
        async with AsyncExitStack() as opened:
            for backend in self._backends():
                await backend.open()
                opened.push_async_callback(backend.close)
            opened.pop_all()
        store = self.backend.tables
        if not store.capabilities.retries:
            store = RetryingStore(store, self.retry, self.count_fault, self._count_repeated_read)
        if self._opened.listeners is not None:
            self._opened.listeners = set()
            store = HeardStore(store, self._opened.listeners)
        self._opened.store, self._opened.loop = store, asyncio.get_running_loop()
        self._opened.states, self._opened.phases = KnownStates(), {}
        self.watch.begin(self.url)

    async def close(self) -> None:
        """Finish what was begun and release everything, if it is open. Raises what `Database.close` raises."""
        if self._opened.store is not None:
            if asyncio.get_running_loop() is not self._opened.loop:
                raise NotSupported(
                    "close() is rejected: the database was opened in another event loop, where its requests end; close "
                    "it there, by one `async with connect(url)` within each asyncio.run()"
                )
            while work := {*self._later, *self._opened.making.values()}:
                await asyncio.wait(work)
            self._opened.store = self._opened.queues = self._opened.blobs = self._opened.outbox = None
            async with AsyncExitStack() as closing:
                for backend in self._backends():
                    closing.push_async_callback(backend.close)

    async def run_later(self, work: Coroutine[Any, Any, None]) -> None:
        """
        Let the caller go on while something is done that nobody waits for, except who closes the database.

        Args:
            work: What is done. It raises nothing.
        """
        while len(self._later) >= _MOST_LATER:
            await asyncio.wait(self._later, return_when=asyncio.FIRST_COMPLETED)
        self.run(work)

    def run(self, work: Coroutine[Any, Any, None], context: Context | None = None) -> None:
        """
        Begin something that goes on whatever becomes of the caller; `close` waits for it.

        Args:
            work: What is done. It raises nothing.
            context: Its context variables; None for those of the caller.
        """
        task = asyncio.create_task(work, context=context)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def _backends(self) -> list[Backend]:
        return list({id(each): each for each in (self.backend, self._queues, self._blobs)}.values())

    # Stores

    @property
    def store(self) -> TableStore:
        """The tables. Raises NotSupported if the database is not open."""
        if self._opened.store is None:
            raise NotSupported(
                "the database is closed, by close() or the end of its `async with`; `await db.open()` opens it again"
                if self._opened.loop is not None
                else "the database is not open; use `async with connect(url) as db`"
            )
        return self._opened.store

    @property
    def queues(self) -> QueueStore:
        """The queues, which raise faults. Raises NotSupported if there are none, or the database is not open."""
        _ = self.store
        return self._beside(self._opened.queues or self._queues.queues, "queues")

    @property
    def blobs(self) -> BlobStore:
        """The blobs, which raise faults. Raises NotSupported if there are none, or the database is not open."""
        _ = self.store
        return self._beside(self._opened.blobs or self._blobs.blobs, "blobs")

    @property
    def has_own_blobs(self) -> bool:
        """Whether the blobs are where the tables are, so that the same credential opens them."""
        return self._blobs is self.backend

    def outbox(self, make: Callable[[QueueStore | None], QueueStore]) -> QueueStore:
        """
        Return the queues of the outbox, which raise faults.

        Args:
            make: Makes them of the queues of the database, None if it has none; called once for a connection and its
                views.

        Raises:
            NotSupported: The database is not open.
        """
        _ = self.store
        if self._opened.outbox is None:
            self._opened.outbox = make(None if self._queues.queues is None else self.queues)
        return self._opened.outbox

    def _beside(self, store: S | None, argument: str) -> S:
        if store is None:
            raise NotSupported(
                f"this database has no {argument}; say where they are: connect(url, {argument}=...), for example "
                f'{argument}="local:./{argument}.tables"'
            )
        self.asked_for.add(argument)
        return store

    def require_open(self) -> TableStore:
        """
        The tables, for use now.

        Raises:
            NotSupported: The database is not open, or was opened in another event loop.
        """
        if asyncio.get_running_loop() is not self._opened.loop and self._opened.store is not None:
            raise NotSupported(
                "the database was opened in another event loop, which may have ended; open one in each loop that uses "
                "it: one `async with connect(url)` within each asyncio.run(); a test of a web service calls it with "
                "httpx.ASGITransport, and not with a TestClient, which has a loop of its own"
            )
        return self.store

    def require_whole_tables(self, action: str) -> None:
        """
        Let through, before anything is sent, what reads or writes whole tables.

        Args:
            action: The call, for the message.

        Raises:
            NotSupported: The database is not open, or was opened in another event loop.
            AccessDenied: It is limited to a scope.
        """
        self.require_open()
        self.boundary.check_whole_table(action)

    def listen(self, listener: Listener) -> bool:
        """
        Tell a method of the writes of this connection and its views that begin from now on. Return whether it was told
        of none since they were opened.
        """
        opened = self._opened
        if opened.listeners is None:
            opened.listeners = set()
            if opened.store is not None:
                opened.store = HeardStore(opened.store, opened.listeners)
        method = WeakMethod(listener)
        new = method not in opened.listeners
        opened.listeners.add(method)
        return new

    def wrap_store(self, wrap: Callable[[TableStore], TableStore]) -> None:
        """Let every request pass through what `wrap` makes of the open store, which is below it; tests do so."""
        self._opened.store = wrap(self.store)

    def wrap_queues(self, wrap: Callable[[QueueStore], QueueStore]) -> None:
        """Let every request for queues pass through what `wrap` makes of the open store, if there is one; tests do."""
        queues = self._opened.queues or self._queues.queues
        if queues is not None:
            self._opened.queues, self._opened.outbox = wrap(queues), None

    def wrap_blobs(self, wrap: Callable[[BlobStore], BlobStore]) -> None:
        """Let every request for blobs pass through what `wrap` makes of the open store, if there is one; tests do."""
        blobs = self._opened.blobs or self._blobs.blobs
        if blobs is not None:
            self._opened.blobs = wrap(blobs)

    @property
    def known_states(self) -> KnownStates:
        """What is known of the states of indexes."""
        return self._opened.states

    def known_phase(self, digest: str) -> KnownPhase:
        """Return what is known of the phase of a re-key, by its digest."""
        return self._opened.phases.setdefault(digest, KnownPhase())

    @property
    def tables_in_making(self) -> dict[str, asyncio.Task[bool]]:
        """The tables of periods that are being made now, by name."""
        return self._opened.making

    @property
    def prefix(self) -> str:
        """What the names of tables begin with in the store, and nowhere else; "" if nothing."""
        return self.backend.prefix if isinstance(self.backend, PrefixedBackend) else ""

    @property
    def guarded(self) -> GuardedStore | None:
        """
        The tables as a token opens them: perhaps only some rows, and others than their copies. None without one, and
        for a backend that has no tables before it is opened.
        """
        try:
            store = self.backend.tables
        except NotSupported:
            return None
        if isinstance(self.backend, PrefixedBackend) and isinstance(store, StoreLayer):
            store = store.below  # the tables by their names with the prefix
        return store if isinstance(store, GuardedStore) else None

    # Requests

    def sending(
        self,
        operation: str,
        model: str,
        *,
        work: QueryWork | None = None,
        attempt: int = 1,
    ) -> tuple[TableStore, Counts]:
        """
        Count a request that is sent next, and return the tables to send it to: all requests for rows go this way.

        Args:
            operation: What `ObservedRequest` calls it.
            model: The model that it is for, or its index, or several models with ", " between; "" if it is for none.
                Whoever names a model with row stages reads its entities as one row each, others the rows that are
                stored.
            work: The query that it is part of; None if it is not, or nobody is warned of slow ones.
            attempt: Which attempt it is, from 1.

        Returns:
            The tables, and the counters in which the rows are counted by the caller.

        Raises:
            NotSupported: The database is not open, or was opened in another event loop.
        """
        opened = self._opened
        store = opened.store
        if store is None or asyncio.get_running_loop() is not opened.loop:
            store = self.require_open()
        counts = self.stats.counts.get((operation, model))
        if counts is None:
            counts = self.stats.counts[str(operation), model] = Counts()
        counts.requests += 1
        if self.watch.always or self.watch.blocks:
            store = ObservedStore(store, self.watch, model, work, attempt)
        if model and operation in ("get", "query") and (schemas := staged_models(model)):
            store = StagedStore(store, schemas, counts, self)
        return store, counts

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
            raise translate(fault, what, table) from None

    async def read_page(
        self,
        what: str,
        table: str,
        query: RowQuery,
        size: int = MAX_PAGE,
        continuation: str | None = None,
        *,
        model: str = "",
    ) -> RowPage:
        """
        Read a page of rows.

        Args:
            what: What it does, for messages.
            table: Name of the table.
            query: Which rows.
            size: How many at most.
            continuation: Where the page begins.
            model: What `sending` takes as its model.

        Raises:
            TableOrmError: The store refused it; names what was attempted.
        """
        store, counts = self.sending("query", model)
        page = await self.call(what, table, store.query(table, query, size, continuation))
        counts.rows += len(page.rows)
        return page

    async def read_rows(
        self, what: str, table: str, query: RowQuery, size: int = MAX_PAGE, *, model: str = ""
    ) -> AsyncGenerator[Row]:
        """Read rows, page by page. Takes and raises what `read_page` does."""
        continuation: str | None = None
        while True:
            page = await self.read_page(what, table, query, size, continuation, model=model)
            for row in page.rows:
                yield row
            continuation = page.continuation
            if continuation is None:
                return

    async def list_tables(self) -> list[str]:
        """Return the names of all tables, in order. Raises what `call` does."""
        store, _ = self.sending("list-tables", "")
        return await self.call("list of tables", "", store.list_tables())

    async def create_table(self, table: str) -> bool:
        """Create a table, and return whether it is new. Raises what `call` does, unless the table exists."""
        store, _ = self.sending("create-table", "")
        try:
            await self.call(f"creation of table {table}", table, store.create_table(table))
        except Conflict as error:
            if error.code != Code.TABLE_EXISTS:
                raise
            return False
        return True

    def count_fault(self, fault: Fault) -> None:
        """Count a request that was rejected for its rate, unless the backend itself counts these."""
        if fault.code in THROTTLING and not self._counts_itself:
            self.stats.traffic.throttled += 1

    def count_repetition(self) -> None:
        """Count a request that is sent again, beside what `sending` counts."""
        self.stats.traffic.retries += 1

    def _count_repeated_read(self) -> None:
        self.count_repetition()
        self.stats.counts.setdefault(("repetition", ""), Counts()).requests += 1

    async def yield_to_loop(self, entities: int) -> None:
        """
        Let other tasks run now and then: an embedded store answers without waiting, so that a task that reads in a loop
        would otherwise keep the event loop to itself.
        """
        self._since_turn += entities
        if self._since_turn >= TURN:
            self._since_turn = 0
            await asyncio.sleep(0)


class Connected:
    """What programs hold of a connection: the base of a database and of its scopes."""

    _connection: Connection


def connection_of(db: Connected) -> Connection:
    """
    Return the connection of a database or a scope.

    Raises:
        ModelError: It is neither.
    """
    connection = getattr(db, "_connection", None)
    if not isinstance(connection, Connection):
        raise ModelError(f"{shown(db)} is not a database; give one that connect(url) has made, or a scope of it")
    return connection
