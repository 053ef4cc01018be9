"""
The embedded engine: a `TableStore` in one SQLite file, shared by tasks, engines and processes.

Reads are statements on the event loop: a row that is in memory arrives faster than a thread could be asked for it.
Writes go through the group commit. Nothing here knows of models or of HTTP.
"""

import asyncio
import contextlib
import ctypes
import os
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import apsw

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.limits import check_key, check_table_name
from tableorm.stores import (
    Capabilities,
    Operation,
    Row,
    RowPage,
    RowQuery,
    check_page_limit,
    check_transaction,
    check_transaction_size,
    project,
    with_index,
)

from . import catalog, writes
from .access import AccessRecords
from .blobs import Blobs
from .catalog import Catalog, Table, key_of
from .faults import (
    DAMAGE,
    busy_fault,
    fault_from,
    is_missing_table,
    missing_table_fault,
    not_found_fault,
    read_only_fault,
)
from .files import Files, after_fork, open_file, open_memory
from .group_commit import GroupCommit
from .queues import Queues
from .reclaim import Reclaimer
from .scan import PageScan
from .sqlite import Connection
from .stored_settings import Settings
from .worker import ThreadWorker, Worker
from .write_session import Work, WriteSession

T = TypeVar("T")

# How long a query, the checks of a transaction and other work in steps keep the event loop busy.
_SLICE_SECONDS = 0.001
# How long a page may look for rows before it ends with fewer. The service takes 5 seconds.
_PAGE_SECONDS = 1.0
_BUSY_PAUSE_SECONDS = 0.001
# The time that reading one row is taken to need, with its caller's work.
_ROW_SECONDS = 0.00001


class _Open:
    """The state of an engine while it is open."""

    __slots__ = ("catalog", "commits", "files", "loop", "reader", "reclaimer", "turns", "unbroken", "worker")

    def __init__(self, files: Files, worker: Worker, name: str, timeout: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.files, self.worker = files, worker
        self.reader = files.reader
        self.catalog = Catalog(files.reader)
        # Held for one slice of a query, or one step of other work: of all of these, one is done at each turn of the
        # event loop, so that a read by key waits for one slice however many queries there are.
        self.turns = asyncio.Lock()
        # Seconds of reading since the event loop last ran other tasks.
        self.unbroken = 0.0
        self.commits: GroupCommit | None = None
        self.reclaimer: Reclaimer | None = None
        if files.writer is not None:
            self.commits = GroupCommit(WriteSession(files.writer, name), worker, files.writer_lock, timeout)
            self.reclaimer = Reclaimer(self.commits)

    def is_turn_over(self, seconds: float) -> bool:
        """
        Count seconds of reading. Return whether reads together have kept the event loop busy for so long that it must
        run other tasks now.

        Each read is short and never waits, so a task that reads row after row would otherwise keep the loop for ever.
        """
        self.unbroken += seconds
        if self.unbroken <= _SLICE_SECONDS:
            return False
        self.unbroken = 0.0
        return True


class Engine:
    """
    Tables in one file, or in memory. An engine belongs to the event loop that opened it.

    Args:
        path: The file; None for memory.
        timeout: Seconds that a call waits for other processes at most.
        create: Whether to create the file if there is none.

    Attributes:
        queues: The queues in the file.
        blobs: The blobs in the file.
        settings: The settings in the file, and of its tables.
        access: The stored access policies in the file, and its key.
    """

    def __init__(self, path: str | os.PathLike[str] | None, *, timeout: float = 30.0, create: bool = True) -> None:
        # The real path: the files beside it must be the same for all programs, also if they use another name of it.
        self._path = None if path is None else os.path.realpath(path)
        self._name = ":memory:" if self._path is None else repr(self._path)
        self._timeout, self._create = timeout, create
        self._open: _Open | None = None
        # Two tasks that open at once would open the file twice, and nobody would close one of the two.
        self._opening = asyncio.Lock()
        # How many pieces of work in steps are under way.
        self._stepping = 0
        self._why_not = "is not open; call open() first"
        # Also `retries`: it waits for other processes.
        self.capabilities = Capabilities(durable=self._path is not None, retries=True)
        self.queues = Queues(self)
        self.blobs = Blobs(self)
        self.settings = Settings(self)
        self.access = AccessRecords(self.settings)

    def __repr__(self) -> str:
        return f"<Engine {self._name}>"

    async def open(self) -> None:
        """
        Open the file, or create it, with mode 0600.

        Raises:
            TableOrmError: The file cannot be opened; nothing was changed.
        """
        async with self._opening:
            if self._open is None:
                self._attach(await self._open_files())

    async def _open_files(self) -> _Open:
        if self._path is None:
            return _Open(open_memory(), Worker(), self._name, self._timeout)
        worker = ThreadWorker(asyncio.get_running_loop(), f"tableorm {self._name}")
        files = await _open_in_worker(worker, self._path, self._timeout, create=self._create)
        return _Open(files, worker, self._name, self._timeout)

    def _attach(self, state: _Open) -> None:
        self._open = state
        _engines.add(self)
        self.reclaim()

    async def close(self) -> None:
        """
        Finish the requests that are under way, then close the file. Idempotent.
        """
        state, self._open = self._open, None
        self._why_not = "is closed; open it anew"
        if state is None:
            return
        closed = asyncio.Event()
        if state.reclaimer is not None:
            state.reclaimer.close()
        try:
            if state.commits is not None:
                with contextlib.suppress(TimeoutError):
                    # By then each request is done, or was rejected because another process kept the write lock.
                    await asyncio.wait_for(state.commits.drain(), self._timeout + 1)
        finally:
            # After the job that the worker is doing, also if this task is cancelled.
            state.worker.run(state.files.close, lambda _: closed.set())
            state.worker.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(closed.wait(), self._timeout)

    async def create_table(self, table: str) -> None:
        """Create a table. Fault TableAlreadyExists if one has that name in any letter case."""
        check_table_name(table)
        await self.submit(lambda session: catalog.create_table(session, table))

    async def delete_table(self, table: str) -> None:
        """Delete a table and its rows, in constant time. Fault ResourceNotFound if there is none."""
        check_table_name(table)
        known = self._require_open().catalog
        await self.submit(lambda session: catalog.drop_table(session, table))
        known.forget(table)
        self.reclaim()

    async def list_tables(self, start: str = "", limit: int | None = None) -> list[str]:
        """List names of tables as created, ordered without regard to case, from `start` on, which is in lower case."""
        return await self._read(lambda state: catalog.list_names(state.reader, start, limit))

    async def has_table(self, table: str) -> bool:
        """Return whether there is a table of that name in any letter case."""
        return await self._read(lambda state: state.catalog.find(table)) is not None

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        """Read one row. Fault ResourceNotFound or TableNotFound."""
        state = self._require_open()
        try:
            key = key_of(partition_key, row_key)
        except UnicodeEncodeError:
            key = b""  # the key of no row: the keys are rejected below
        try:
            row = _read_row(state, table, key, select)
        except (apsw.Error, *DAMAGE) as error:
            row = await self._read(lambda state: _read_row(state, table, key, select), error)
        if row is None:
            check_key("PartitionKey", partition_key)
            check_key("RowKey", row_key)
            raise not_found_fault()
        if state.is_turn_over(_ROW_SECONDS):
            await asyncio.sleep(0)
        return row

    async def query(
        self,
        table: str,
        query: RowQuery,
        limit: int = 1000,
        continuation: str | None = None,
        count_more: Callable[[Row], int] | None = None,
    ) -> RowPage:
        """
        Read one page, in key order. It ends at `limit` rows, at 4 MiB of rows, or after about a second of work.

        `count_more` returns how many bytes a stored row has besides, in what the caller makes of the page.
        Queries take turns: of all of them, one goes on for a slice at each turn of the event loop.
        """
        check_page_limit(limit)
        scan = PageScan(query, limit, (await self._find_table(table)).folded, continuation, count_more)

        def advance(state: _Open) -> bool:
            return _call_with_table(state, table, lambda found: scan.advance(state.reader, found, _SLICE_SECONDS))

        done = False
        while not done and scan.seconds <= _PAGE_SECONDS:
            before = scan.seconds
            async with self._require_open().turns:
                done = await self._read(advance)
                if self._require_open().is_turn_over(scan.seconds - before):
                    await asyncio.sleep(0)
        return scan.page()

    async def take_turns(self, steps: Generator[None, None, T]) -> T:
        """
        Do work step by step, and let the event loop run other tasks after each slice of time.

        It takes turns with queries and with other such work. The first slice is done at once, unless other such work is
        under way.
        """
        if self._stepping:
            await self._pass_turn()
        self._stepping += 1
        try:
            while True:
                until = time.perf_counter() + _SLICE_SECONDS
                next(steps)
                while time.perf_counter() <= until:
                    next(steps)
                await self._pass_turn()
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            self._stepping -= 1

    async def _pass_turn(self) -> None:
        """Let the event loop run other tasks, and wait for a turn."""
        async with self._require_open().turns:
            await asyncio.sleep(0)

    async def write(self, table: str, operation: Operation) -> str | None:
        """Do one operation. Return the row's new ETag, None after a delete. It is durable on return."""
        commits = self._require_commits()
        found = await self._find_table(table)
        item = writes.prepare_write(operation, keys_checked=False)
        etag: str | None = await commits.submit(lambda session: writes.apply_write(session, found, item))
        return etag

    async def transact(self, table: str, operations: Sequence[Operation]) -> list[str | None]:
        """
        Do 1 to 100 operations of one partition, each row once, in order and all or nothing.

        Returns:
            For each operation what `write` returns.
        """
        commits = self._require_commits()
        found = await self._find_table(table)
        check_transaction(operations)
        items: list[writes.Write] = []
        size, until = 0, time.perf_counter() + _SLICE_SECONDS
        for index, operation in enumerate(operations):
            try:
                item = writes.prepare_write(operation, keys_checked=True)
            except Fault as fault:
                raise with_index(fault, index) from None
            items.append(item)
            size += len(item.payload)
            check_transaction_size(size)
            if time.perf_counter() > until:
                await self._pass_turn()
                until = time.perf_counter() + _SLICE_SECONDS
        etags: list[str | None] = await commits.submit(lambda session: writes.apply_transaction(session, found, items))
        return etags

    async def read(self, read: Callable[[Connection], T]) -> T:
        """Call `read` with the connection for reading, again and again while another process prevents reading."""
        return await self._read(lambda state: read(state.reader))

    async def submit(self, work: Work) -> Any:
        """Do `work` in a transaction, with the work of others. Return its result when that is durable."""
        return await self._require_commits().submit(work)

    def reclaim(self) -> None:
        """Start to free the pages of what was deleted."""
        if self._open is not None and self._open.reclaimer is not None:
            self._open.reclaimer.start()

    def disown(self) -> None:
        """In a forked child: give up the parent's files without closing them."""
        state, self._open = self._open, None
        if state is not None:
            self._why_not = "was opened before this process was forked; open a database of its own in the child"
            if state.files.writer_lock is not None:
                # Not a lock of SQLite's: if the child kept it open, it would stay locked when the parent dies with it.
                state.files.writer_lock.close()
            # One reference too many, so that SQLite does not close and tidy up the parent's file when the child ends.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(state.files))

    def _require_open(self) -> _Open:
        state = self._open
        if state is None or state.loop is not asyncio.get_running_loop():
            why = self._why_not if state is None else "belongs to another event loop; open one in this loop"
            raise Fault(Code.INTERNAL_ERROR, f"The database {self._name} {why}.")
        return state

    def _require_commits(self) -> GroupCommit:
        commits = self._require_open().commits
        if commits is None:
            raise read_only_fault(self._name)
        return commits

    async def _find_table(self, name: str) -> Table:
        try:
            found = self._require_open().catalog.find(name)
        except apsw.Error as error:
            found = await self._read(lambda state: state.catalog.find(name), error)
        if found is None:
            raise missing_table_fault()
        return found

    async def _read(self, read: Callable[[_Open], T], error: Exception | None = None) -> T:
        """Call `read` until no other process prevents reading. `error` is the error of a first try."""
        deadline = time.monotonic() + self._timeout
        while True:
            if error is not None:
                if not isinstance(error, apsw.BusyError):
                    raise fault_from(error, self._name) from error
                if time.monotonic() > deadline:
                    raise busy_fault(self._name) from error
                await asyncio.sleep(_BUSY_PAUSE_SECONDS)
            try:
                return read(self._require_open())
            except (apsw.Error, *DAMAGE) as again:
                error = again


def _call_with_table(state: _Open, name: str, action: Callable[[Table], T]) -> T:
    """Call `action` with the table of a name. Call it again if the table that was known has been dropped."""
    table = state.catalog.find(name)
    if table is not None:
        try:
            return action(table)
        except apsw.SQLError as error:
            if not is_missing_table(error):
                raise
        table.stale = True
        table = state.catalog.find(name)
        if table is not None:
            return action(table)
    raise missing_table_fault()


def _read_row(state: _Open, name: str, key: bytes, select: tuple[str, ...] | None) -> Row | None:
    """Return the row with a key of its B-tree. Raises ValueError or the like if it is damaged."""
    body: bytes | None = _call_with_table(state, name, lambda table: state.reader.execute(table.read, (key,)).get)
    if body is None:
        return None
    row = writes.decode(body)
    return row if select is None else project(row, select)


async def _open_in_worker(worker: Worker, path: str, patience: float, *, create: bool) -> Files:
    """Open the file in the worker. If the caller is cancelled meanwhile, close it again."""
    opened: asyncio.Future[Files | BaseException] = asyncio.get_running_loop().create_future()

    def job() -> Files | BaseException:
        try:
            return open_file(path, patience, create=create)
        except BaseException as error:  # noqa: BLE001 - raised in the caller, which would wait for ever otherwise
            return error

    def abandon(done: "asyncio.Future[Files | BaseException]") -> None:
        outcome = done.result()
        if isinstance(outcome, Files):
            worker.run(outcome.close, lambda _: None)
        worker.stop()

    worker.run(job, opened.set_result)
    try:
        outcome = await asyncio.shield(opened)
    except asyncio.CancelledError:
        opened.add_done_callback(abandon)  # it may have been opened just before
        raise
    if isinstance(outcome, Files):
        return outcome
    worker.stop()
    raise outcome


_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def _after_fork() -> None:
    """
    In a forked child: give up the engines of the parent. To use or to close one would touch the parent's files.
    """
    after_fork()
    for engine in list(_engines):
        engine.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
