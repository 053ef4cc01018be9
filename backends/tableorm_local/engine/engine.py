"""
The embedded engine: a `TableStore` in one SQLite file, shared by tasks, engines and processes.

Reads are statements on the event loop: a row that is in memory arrives faster than a thread could be asked for it.
Writes go through the pump. Nothing here knows of models or of HTTP.
"""

import asyncio
import ctypes
import os
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw
import msgspec

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.limits import check_key, check_table_name
from tableorm.stores import (
    Capabilities,
    Operation,
    Row,
    RowPage,
    RowQuery,
    check_transaction,
    check_transaction_size,
    with_index,
)

from . import catalog, writes
from .access import AccessRecords
from .blobs import Blobs
from .catalog import Catalog, Table, key_of
from .faults import OpenError, busy, damaged_row, fault_from, is_missing_table, read_only, table_not_found
from .files import Files, after_fork, open_file, open_memory
from .group_commit import Pump
from .queues import Queues
from .reclaim import Reclaimer, anything_to_reclaim
from .scan import PageScan, check_limit, project
from .settings import Settings
from .sqlite import Connection
from .worker import InlineWorker, ThreadWorker, Worker
from .write_session import Session, Steps, Work

__all__ = ["Engine"]

T = TypeVar("T")

# How long a query or the checks of a transaction keep the event loop to themselves.
_SLICE_SECONDS = 0.001
# How long a page may look for rows before it ends with fewer. The service: 5 seconds.
_PAGE_SECONDS = 1.0
_BUSY_PAUSE_SECONDS = 0.001
# What reading one row may be taken to cost, with its caller's work.
_ROW_SECONDS = 0.00001


class _Open:
    """What an engine has while it is open."""

    __slots__ = ("catalog", "files", "loop", "pump", "reader", "reclaimer", "unbroken", "worker")

    def __init__(self, files: Files, worker: Worker, name: str, timeout: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.files, self.worker = files, worker
        self.reader = files.reader
        self.catalog = Catalog(files.reader)
        # Seconds of reading without a turn of the event loop.
        self.unbroken = 0.0
        self.pump: Pump | None = None
        self.reclaimer: Reclaimer | None = None
        if files.writer is not None:
            self.pump = Pump(Session(files.writer), worker, files.turnstile, name, timeout)
            self.reclaimer = Reclaimer(self.pump)


class Engine:
    """
    Tables in one file, or in memory. Belongs to the event loop that opened it.

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
        # The real path: what lies beside the file must be the same for everyone, also under another name.
        self._path = None if path is None else os.path.realpath(path)
        self._name = ":memory:" if self._path is None else repr(self._path)
        self._timeout, self._create = timeout, create
        self._open: _Open | None = None
        self._why_not = "is not open; call open() first"
        self._capabilities = Capabilities(durable=self._path is not None, retries=True)
        self.queues = Queues(self)
        self.blobs = Blobs(self)
        self.settings = Settings(self)
        self.access = AccessRecords(self.settings)

    @property
    def capabilities(self) -> Capabilities:
        """Everything, `retries` too: it waits for other processes itself. A database in memory is not durable."""
        return self._capabilities

    async def open(self) -> None:
        """
        Open the file, or create it, with mode 0600.

        Raises:
            OpenError: It cannot be opened; nothing was changed.
        """
        if self._open is not None:
            return
        path, timeout = self._path, self._timeout
        if path is None:
            self._attach(_Open(open_memory(), InlineWorker(), self._name, timeout))
            return
        worker = ThreadWorker(asyncio.get_running_loop(), f"tableorm {self._name}")
        self._attach(_Open(await _open_in(worker, path, timeout, create=self._create), worker, self._name, timeout))

    def _attach(self, state: _Open) -> None:
        self._open = state
        _engines.add(self)
        if state.reclaimer is not None and anything_to_reclaim(state.reader):
            state.reclaimer.start()

    async def close(self) -> None:
        """
        Finish what was asked for, then give everything back. Idempotent.
        """
        state, self._open = self._open, None
        self._why_not = "is closed; open it anew"
        if state is None:
            return
        closed: asyncio.Future[None] = state.loop.create_future()
        if state.reclaimer is not None:
            state.reclaimer.close()
        try:
            if state.pump is not None:
                # By then each request is done, or was refused since another process never gave way.
                await asyncio.wait_for(state.pump.drain(), self._timeout + 1)
        except TimeoutError:
            pass
        finally:
            # In turn after what the worker is doing, also if this task is cancelled.
            state.worker.run(state.files.close, lambda _: _set(closed))
            state.worker.stop()
        await asyncio.wait([closed], timeout=self._timeout)

    async def create_table(self, table: str) -> None:
        """Create a table. Fault TableAlreadyExists if one has that name in any letter case."""
        check_table_name(table)
        await self._change_tables(lambda connection: catalog.create(connection, table), _TABLE_EXISTS)

    async def delete_table(self, table: str) -> None:
        """Delete a table and its rows, in constant time. Fault ResourceNotFound if there is none."""
        check_table_name(table)
        await self._change_tables(lambda connection: catalog.drop(connection, table), _NOT_FOUND)
        self._state().catalog.forget(table)
        self.reclaim()

    async def _change_tables(self, change: Callable[[Connection], bool], refused: tuple[Code, str]) -> None:
        def work(session: Session) -> Steps:
            if not change(session.connection):
                raise Fault(*refused)
            session.dirty = True
            yield from ()
            return None

        await self._pump(self._state()).submit(work)

    async def list_tables(self) -> list[str]:
        """Names of all tables as created, ordered without regard to case."""
        return await self._read(lambda state: catalog.names(state.reader))

    async def has_table(self, table: str) -> bool:
        """Whether there is a table of that name in any letter case."""
        try:
            await self._find(table)
        except Fault as fault:
            if fault.code != Code.TABLE_NOT_FOUND:
                raise
            return False
        return True

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        """One row. Fault ResourceNotFound or TableNotFound."""
        try:
            key = key_of(partition_key, row_key)
        except UnicodeEncodeError:
            key = b""  # no row's: refused below
        try:
            body = _body(self._state(), table, key)
        except apsw.Error as error:
            body = await self._read(lambda state: _body(state, table, key), error)
        if body is None:
            check_key("PartitionKey", partition_key)
            check_key("RowKey", row_key)
            raise Fault(*_NOT_FOUND)
        try:
            row = writes.decode(body)
        except msgspec.DecodeError as error:
            raise damaged_row(self._name, error) from error
        await self._let_others_run(_ROW_SECONDS)
        return row if select is None else project(row, select)

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        """
        One page, in key order. It ends at `limit` rows, at 4 MiB of rows, and after about a second of work.
        """
        check_limit(limit)
        scan = PageScan(query, limit, (await self._find(table)).folded, continuation)
        first: Table | None = None

        def work(state: _Open, found: Table) -> bool:
            nonlocal first
            if first is not None and first.id != found.id:
                raise table_not_found()  # A page does not go on in a table that took the name meanwhile.
            done = scan.advance(state.reader, found, _SLICE_SECONDS)
            first = found
            return done

        done = False
        while not done and scan.seconds <= _PAGE_SECONDS:
            before = scan.seconds
            done = await self._read(lambda state: _on_table(state, table, lambda found: work(state, found)))
            await self._let_others_run(scan.seconds - before)
        return scan.page()

    async def write(self, table: str, operation: Operation) -> str | None:
        """Do one operation; the row's new ETag, None after a delete. Durable when it returns."""
        pump = self._pump(self._state())
        found = await self._find(table)
        item = writes.prepare(operation)
        etag: str | None = await pump.submit(lambda session: writes.write(session, found, item))
        return etag

    async def transact(self, table: str, operations: Sequence[Operation]) -> list[str | None]:
        """
        Do 1 to 100 operations of one partition, each row once, in order and all or nothing.

        Returns:
            What `write` returns, for each.
        """
        pump = self._pump(self._state())
        found = await self._find(table)
        check_transaction(operations)
        items: list[writes.Write] = []
        size, until = 0, time.perf_counter() + _SLICE_SECONDS
        for index, operation in enumerate(operations):
            try:
                item = writes.prepare(operation, keys_checked=True)
            except Fault as fault:
                raise with_index(fault, index) from None
            items.append(item)
            size += len(item.payload)
            check_transaction_size(size)
            if time.perf_counter() > until:
                await asyncio.sleep(0)
                until = time.perf_counter() + _SLICE_SECONDS
        etags: list[str | None] = await pump.submit(lambda session: writes.transaction(session, found, items))
        return etags

    async def read(self, read: Callable[[Connection], T]) -> T:
        """Call `read` with the connection for reading, again while another process keeps us from it."""
        return await self._read(lambda state: read(state.reader))

    async def submit(self, work: Work) -> Any:
        """Do `work` in a transaction, with that of others; its result, when it is durable."""
        return await self._pump(self._state()).submit(work)

    def reclaim(self) -> None:
        """Start to give back the pages of what was deleted."""
        if self._open is not None and self._open.reclaimer is not None:
            self._open.reclaimer.start()

    def disown(self) -> None:
        """In a forked child: let go of what the parent has open, without closing it."""
        state, self._open = self._open, None
        if state is not None:
            self._why_not = "was opened before this process was forked; open a database of its own in the child"
            if state.files.turnstile is not None:
                # Not a lock of SQLite's: held open here, it would stay locked when the parent dies inside.
                state.files.turnstile.close()
            # One reference too many: SQLite shall not close, and thereby tidy up, the parent's file at the child's end.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(state.files))

    def _state(self) -> _Open:
        state = self._open
        if state is None or state.loop is not asyncio.get_running_loop():
            why = self._why_not if state is None else "belongs to another event loop; open one in this loop"
            raise Fault(Code.INTERNAL_ERROR, f"The database {self._name} {why}.")
        return state

    def _pump(self, state: _Open) -> Pump:
        if state.pump is None:
            raise read_only(self._name)
        return state.pump

    async def _let_others_run(self, seconds: float) -> None:
        """
        Let the event loop turn if reads together have kept it long enough.

        Each by itself is short and never waits, so a task that reads row after row would otherwise keep it for good.
        """
        state = self._open
        if state is not None:
            state.unbroken += seconds
            if state.unbroken > _SLICE_SECONDS:
                state.unbroken = 0.0
                await asyncio.sleep(0)

    async def _find(self, name: str) -> Table:
        try:
            found = self._state().catalog.find(name)
        except apsw.Error as error:
            found = await self._read(lambda state: state.catalog.find(name), error)
        if found is None:
            raise table_not_found()
        return found

    async def _read(self, read: Callable[[_Open], T], error: apsw.Error | None = None) -> T:
        """Call `read`, again while another process keeps us from reading; `error` is that of a first try."""
        deadline = time.monotonic() + self._timeout
        while True:
            if error is not None:
                if not isinstance(error, apsw.BusyError):
                    raise fault_from(error, self._name) from error
                if time.monotonic() > deadline:
                    raise busy(self._name) from error
                await asyncio.sleep(_BUSY_PAUSE_SECONDS)
            try:
                return read(self._state())
            except apsw.Error as again:
                error = again
            except msgspec.DecodeError as damage:
                raise damaged_row(self._name, damage) from damage


_TABLE_EXISTS = Code.TABLE_EXISTS, "The table specified already exists."
_NOT_FOUND = Code.RESOURCE_NOT_FOUND, "The specified resource does not exist."


def _on_table(state: _Open, name: str, action: Callable[[Table], T]) -> T:
    """Call `action` with the table of that name, again if it was another one that has been dropped."""
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
    raise table_not_found()


def _body(state: _Open, name: str, key: bytes) -> bytes | None:
    def read(table: Table) -> bytes | None:
        body: bytes | None = state.reader.execute(table.read, (key,)).get
        return body

    return _on_table(state, name, read)


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def _open_in(worker: Worker, path: str, patience: float, *, create: bool) -> Files:
    """Open in the worker. If the caller is cancelled meanwhile, the file is closed again."""
    opened: asyncio.Future[Files] = asyncio.get_running_loop().create_future()

    def job() -> Files | OpenError:
        try:
            return open_file(path, patience, create=create)
        except OpenError as error:
            return error

    def done(outcome: Files | OpenError) -> None:
        if isinstance(outcome, OpenError):
            if not opened.done():
                opened.set_exception(outcome)
        elif not opened.done():
            opened.set_result(outcome)
            return
        else:
            worker.run(outcome.close, lambda _: None)
        worker.stop()

    worker.run(job, done)
    return await opened


_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def _after_fork() -> None:
    """
    In a forked child: no engine of the parent may be used, nor closed, which would touch the parent's files.
    """
    after_fork()
    for engine in list(_engines):
        engine.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
