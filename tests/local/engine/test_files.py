"""
Which files the engine opens, which it leaves alone, and what happens when the disk does not play along.
"""
# ruff: noqa: ASYNC240 - a test may look at its files
# pyright: reportPrivateUsage=false

import importlib.util
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import apsw
import pytest

from tableorm.errors import NotSupported, TableOrmError, Unavailable
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Operation, RowQuery, Verb
from tableorm_local.engine import Engine, files, writer_lock
from tableorm_local.engine.sqlite import Connection, connect
from tests.local.engine.conftest import Child, opened
from tests.local.engine.rows import change_file, row
from tests.rows import delete_row, insert_row


async def refused(path: Path) -> TableOrmError:
    """The error of opening a file, which must leave it and its folder as they were."""
    before = {each: each.read_bytes() for each in path.parent.iterdir() if each.is_file()}
    with pytest.raises(TableOrmError) as caught:
        await Engine(path).open()
    assert {each: each.read_bytes() for each in path.parent.iterdir() if each.is_file()} == before
    return caught.value


async def test_new_file_is_private(engine: Engine, path: Path) -> None:
    """The file and those beside it can be read and written by their owner only, whatever the umask."""
    await insert_row(engine, "Shared", row("r"))

    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert modes == dict.fromkeys([path.name, path.name + "-wal", path.name + "-shm", path.name + "-lock"], 0o600)


@pytest.mark.parametrize(
    "content", [b"x", b"hello, world\n" * 100, b"SQLite format 3\0", b"SQLite format 3\0".ljust(99), bytes(8192)]
)
async def test_no_database(path: Path, content: bytes) -> None:
    """A file that is no database is rejected, and not touched."""
    path.write_bytes(content)

    error = await refused(path)
    assert isinstance(error, NotSupported)
    assert str(error) == f"{str(path)!r} is not a database; give the path of another file."


@pytest.mark.parametrize("mode", ["delete", "wal"])
async def test_database_of_another_program(path: Path, mode: str) -> None:
    """An SQLite database of another program is rejected, and not touched; its log is left alone too."""
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA journal_mode = {mode}")
    other.execute("CREATE TABLE mine (x)")
    other.commit()

    error = await refused(path)
    assert isinstance(error, NotSupported)
    assert "another program" in str(error)
    other.close()
    assert isinstance(await refused(path), NotSupported)


@pytest.mark.parametrize(
    ("pragma", "said", "said_of_log"),
    [
        ("user_version = 99", "has format 99, made by a newer tableorm; this one reads format 1. Update.", None),
        (
            "user_version = 16777217",
            "has format 16777217, made by a newer tableorm; this one reads format 1. Update.",
            None,
        ),
        (
            "application_id = 5",
            "is an SQLite database of another program; give the path of another file.",
            "is not a database of tableorm; give the path of another file.",
        ),
    ],
)
@pytest.mark.parametrize("in_log", [True, False])
async def test_another_format(
    engine: Engine, path: Path, pragma: str, said: str, said_of_log: str | None, *, in_log: bool
) -> None:
    """A file of a newer format, or of another program, is rejected by its numbers, also if they are only in its log."""
    await engine.close()
    other = connect(str(path), apsw.SQLITE_OPEN_READWRITE)
    other.execute(f"PRAGMA {pragma}")
    if not in_log:
        other.close()
    with pytest.raises(NotSupported) as caught:
        await engine.open()

    assert str(caught.value) == f"{str(path)!r} {said_of_log or said if in_log else said}"
    other.close()


async def test_folder_and_special_file(tmp_path: Path) -> None:
    """A folder or a pipe is rejected; the pipe is not waited for."""
    os.mkfifo(tmp_path / "pipe")

    assert "is a folder" in str(await refused(tmp_path))
    with pytest.raises(TableOrmError, match="not a regular file"):
        await Engine(tmp_path / "pipe").open()


async def test_missing_folder(tmp_path: Path) -> None:
    """The folder is not made; the error names it. A file in its place is named too."""
    path = tmp_path / "none" / "data"
    with pytest.raises(Unavailable) as caught:
        await Engine(path).open()
    assert str(caught.value) == (
        f"{str(path)!r} cannot be created: there is no folder {str(path.parent)!r}; create that first."
    )
    assert list(tmp_path.iterdir()) == []
    path.parent.touch()
    with pytest.raises(Unavailable, match=rf"'{path}' cannot be opened .* check its folder and the disk"):
        await Engine(path).open()


async def test_damaged_file(engine: Engine, path: Path) -> None:
    """A file whose pages are damaged is reported as such, whenever that shows."""
    for number in range(300):
        await insert_row(engine, "Shared", row(str(number), Body="x" * 1000))
    await engine.close()
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xa5" * (len(content) - 8192)
    path.write_bytes(content)

    async def use() -> None:
        await engine.open()
        await engine.query("Shared", RowQuery())

    with pytest.raises((TableOrmError, Fault), match="damaged"):
        await use()


async def test_relative_path_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path means the working directory at construction, also after that changes."""
    monkeypatch.chdir(tmp_path)
    engine = Engine("data")
    monkeypatch.chdir("/")
    await engine.open()
    await engine.close()

    assert (tmp_path / "data").exists()


async def test_two_engines_on_one_file(engine: Engine, path: Path, tmp_path: Path) -> None:
    """Engines of one process share a file, also through a link; each sees what the other wrote, at once."""
    (tmp_path / "link").symlink_to(path)
    async with opened(tmp_path / "link") as other:
        await insert_row(other, "Shared", row("1", A=1))

        assert (await engine.get("Shared", "p", "1"))["A"] == 1
        await engine.delete_table("Shared")
        with pytest.raises(Fault, match="TableNotFound"):
            await other.get("Shared", "p", "1")
        await engine.create_table("SHARED")
        assert (await other.query("Shared", RowQuery())).rows == []
        await insert_row(other, "Shared", row("2"))
    assert len((await engine.query("Shared", RowQuery())).rows) == 1


IS_LOCKED = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)  # what every reader of SQLite has locked
    except OSError:
        print("locked")
    else:
        print("free")
"""


def is_locked(path: Path) -> str:
    """What another process finds."""
    command = [sys.executable, "-c", IS_LOCKED, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(sys.platform == "win32", reason="capability: this system has other locks")
async def test_engines_that_close_leave_the_locks_of_another(engine: Engine, path: Path) -> None:
    """One of two engines closes, a third one opens and closes: the file stays locked for the one that is open."""
    other, third = Engine(path), Engine(path)
    await other.open()
    await other.list_tables()
    await engine.close()
    await third.open()
    await third.close()
    while_open = is_locked(path)
    await other.close()

    assert (while_open, is_locked(path)) == ("locked", "free")


async def test_a_file_that_another_process_has_just_made(
    engine: Engine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who finds no file, and then one that was made meanwhile, opens that one, with what is in it."""
    monkeypatch.setattr(os.path, "lexists", Mock(return_value=False))
    async with opened(path) as other:
        assert await other.list_tables() == ["Shared"]


@pytest.fixture
def connections() -> Iterator[list[Connection]]:
    """Connections made in the test, so that it can limit the pages of their file: a disk that is full."""
    connections: list[Connection] = []
    apsw.connection_hooks.append(connections.append)
    yield connections
    apsw.connection_hooks.remove(connections.append)


async def test_every_connection_has_the_settings_of_the_engine(path: Path, connections: list[Connection]) -> None:
    """Those that write and those that read have the same bounds of memory and log, check what they read, never wait."""
    async with opened(path):
        (reader,) = [each for each in connections if each.readonly("main")]
        (writer,) = [each for each in connections if not each.readonly("main")]
        expected = {
            "page_size": 8192,
            "synchronous": 2,
            "fullfsync": 1,
            "journal_mode": "wal",
            "checkpoint_fullfsync": 1,
            "wal_autocheckpoint": 4000,
            "journal_size_limit": 2 * 4000 * 8192,
            "cache_size": -64 * 1024,
            "mmap_size": 1 << 30,
            "cell_size_check": 1,
            "busy_timeout": 0,
            "application_id": int.from_bytes(b"TbOr", "big"),  # all files have these two, so they stay as they are
            "user_version": 1,
            "trusted_schema": 0,
        }
        for connection in (reader, writer):
            found = {name: connection.execute(f"PRAGMA {name}").get for name in expected}
            assert found == expected
            assert connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, -1) == 0


@pytest.mark.parametrize("journal", [None, bytes(512)], ids=["no journal", "journal"])
async def test_opening_waits_as_long_as_the_engine_may(
    engine: Engine, path: Path, monkeypatch: pytest.MonkeyPatch, journal: bytes | None
) -> None:
    """SQLite waits for other processes for so many milliseconds until the file is open, and never afterwards."""
    waits = list[int]()

    class Noting(apsw.Connection):
        def set_busy_timeout(self, milliseconds: int) -> None:
            waits.append(milliseconds)
            super().set_busy_timeout(milliseconds)

    await engine.close()
    if journal is not None:
        path.with_name(path.name + "-journal").write_bytes(journal)
    monkeypatch.setattr(apsw, "Connection", Noting)
    async with opened(path, patience=2.5):
        pass

    assert waits == [2500, 0] if journal is None else [2500, 2500, 0]


async def test_full_disk(path: Path, connections: list[Connection]) -> None:
    """On a full disk writes are rejected with a clear fault and reads go on; when there is room so do writes."""
    async with opened(path, "Shared") as engine:
        writer = next(each for each in connections if not each.readonly("main"))
        pages = writer.execute("PRAGMA page_count").get
        writer.execute(f"PRAGMA max_page_count = {pages + 20}")
        written: list[str] = []

        async def fill() -> None:
            for number in range(1000):
                await insert_row(engine, "Shared", row(f"{number:04d}", Body="x" * 8000))
                written.append(f"{number:04d}")

        with pytest.raises(Fault, match="the disk is full") as caught:
            await fill()

        assert caught.value.code == Code.SERVER_BUSY
        assert [each["RowKey"] for each in (await engine.query("Shared", RowQuery())).rows] == written
        with pytest.raises(Fault, match="the disk is full"):
            await engine.transact("Shared", [Operation(Verb.INSERT, row(f"t{n}", Body="x" * 8000)) for n in range(30)])
        await delete_row(engine, "Shared", row(written[0]))
        await insert_row(engine, "Shared", row("small"))
        writer.execute("PRAGMA max_page_count = 1000000")
        await insert_row(engine, "Shared", row("large", Body="x" * 30_000))
        keys = [each["RowKey"] for each in (await engine.query("Shared", RowQuery())).rows]
        assert keys == [*written[1:], "large", "small"]


async def test_full_disk_while_a_file_is_made(path: Path) -> None:
    """Nothing of the tables is written, so that the file can be opened when there is room."""

    def limit(connection: Any) -> None:
        connection.execute("PRAGMA max_page_count = 5")

    engine = Engine(path)
    apsw.connection_hooks.append(limit)
    try:
        with pytest.raises(Unavailable) as caught:
            await engine.open()
    finally:
        apsw.connection_hooks.remove(limit)
    left = {each.name: each.stat().st_size for each in path.parent.iterdir()}
    await engine.open()
    await engine.create_table("Shared")
    await engine.close()

    assert str(caught.value) == f"{str(path)!r}: the disk is full; free space, then open it again."
    assert left == {path.name: 0}


def is_closed(connection: Connection) -> bool:
    try:
        connection.changes()
    except apsw.ConnectionClosedError:
        return True
    return False


@pytest.mark.parametrize("statement", ["", "PRAGMA application_id = 5", "PRAGMA user_version = 99"])
@pytest.mark.parametrize("immutable", [False, True])
async def test_no_connection_stays_open(
    path: Path,
    connections: list[Connection],
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    *,
    immutable: bool,
) -> None:
    """Of a file that is rejected, and of one that is closed; each open checks it again."""
    async with opened(path) as engine:
        pass
    if statement:
        change_file(path, statement)
    if immutable:
        forbid_logs(monkeypatch, apsw.CantOpenError)
    for _ in range(2):
        if statement:
            with pytest.raises(NotSupported, match=r"another program|has format 99"):
                await engine.open()
        else:
            await engine.open()
            assert [is_closed(each) for each in connections].count(False) == (1 if immutable else 2)
            await engine.close()
        assert all(map(is_closed, connections))
    path.write_bytes(b"x" * 8192)
    with pytest.raises(NotSupported, match="is not a database"):
        await engine.open()


async def test_closing_waits_until_the_file_is_closed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has closed the engine may copy or delete the file."""
    engine, real, closed = Engine(path), files.Files.close, list[files.Files]()

    def close(opened: files.Files) -> None:
        time.sleep(0.05)
        real(opened)
        closed.append(opened)

    monkeypatch.setattr(files.Files, "close", close)
    await engine.open()
    await engine.close()
    assert len(closed) == 1


async def test_no_connection_stays_open_if_a_second_one_fails(
    path: Path, connections: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the connection for reading cannot be made, that for writing is closed."""
    async with opened(path) as engine:
        pass

    def fail(name: str, flags: int) -> Connection:
        if flags == apsw.SQLITE_OPEN_READONLY:
            raise apsw.CantOpenError("too many open files")
        return connect(name, flags)

    monkeypatch.setattr(files, "connect", fail)
    with pytest.raises(Unavailable, match="too many open files"):
        await engine.open()
    assert all(map(is_closed, connections))
    assert {each.name for each in path.parent.iterdir()} == {path.name, path.name + "-lock"}


@pytest.mark.parametrize(
    "error", [apsw.IOError("odd"), OSError("odd"), ValueError("odd"), KeyError("odd"), RecursionError("odd")], ids=repr
)
async def test_whatever_fails_while_a_file_is_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The error is one of the project's, and names the file, which can be opened later."""
    engine = Engine(path)
    with monkeypatch.context() as patch:
        patch.setattr(files, "_open", Mock(side_effect=error))
        with pytest.raises(Unavailable, match=rf"{path}.*odd"):
            await engine.open()
    await engine.open()
    await engine.close()


def forbid_logs(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    """Let no log be made beside a file, as in a folder that can only be read."""

    def fail(path: str, timeout: float) -> tuple[Connection, bool]:
        raise error(f"{path}, {timeout}")

    def access(path: Path, mode: int) -> bool:
        return not (path.is_dir() and mode == os.W_OK)

    monkeypatch.setattr(files, "_connect", fail)
    monkeypatch.setattr(os, "access", access)


@pytest.mark.parametrize("error", [apsw.CantOpenError, apsw.ReadOnlyError])
@pytest.mark.parametrize("name", ["data.tables", "100%41?a=b#c"])
async def test_a_file_in_a_folder_that_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception], name: str
) -> None:
    """It is opened as it stands, for reading alone, and nothing is made beside it; in a writable folder it is not."""
    async with opened(tmp_path / name, "Shared") as engine:
        await insert_row(engine, "Shared", row("r", A=1))
    (tmp_path / f"{name}-lock").unlink()
    forbid_logs(monkeypatch, error)
    await engine.open()
    assert (await engine.get("Shared", "p", "r"))["A"] == 1
    assert len((await engine.query("Shared", RowQuery())).rows) == 1
    assert engine._open is not None
    assert engine._open.reader.execute("PRAGMA cell_size_check").get == 1  # damaged pages are found as in other files
    for write in (delete_row(engine, "Shared", row("r")), engine.create_table("Other")):
        with pytest.raises(Fault, match="opened for reading only") as caught:
            await write
        assert caught.value.code == Code.AUTHORIZATION_FAILURE
    assert [each.name for each in tmp_path.iterdir()] == [name]
    await engine.close()

    monkeypatch.setattr(os, "access", Mock(return_value=True))
    with pytest.raises(TableOrmError):
        await engine.open()


def test_a_file_system_without_shared_memory(path: Path) -> None:
    """Where there can be no log that processes share, the file is rejected, with what to do."""
    memory = connect(":memory:", apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    with pytest.raises(NotSupported, match=r"no shared memory between processes.*put the file on a local disk"):
        files._use_log(memory, str(path))  # pyright: ignore[reportPrivateUsage]


class Msvcrt(ModuleType):
    """How Windows locks bytes of a file: from the position on, for one handle, until that unlocks them or is closed."""

    LK_UNLCK, LK_NBLCK = 0, 2

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.holders = dict[tuple[int, int, int], int]()

    def locking(self, fd: int, mode: int, count: int) -> None:
        region = os.fstat(fd).st_ino, os.lseek(fd, 0, os.SEEK_CUR), count
        holder = self.holders.pop(region, None)
        if holder is not None and is_open(holder) and (holder, mode) != (fd, self.LK_UNLCK):
            self.holders[region] = holder
            raise PermissionError("another handle has locked these bytes")
        if mode == self.LK_NBLCK and count:
            self.holders[region] = fd
        elif mode != self.LK_UNLCK or holder is None:
            raise PermissionError("nothing is locked")


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@pytest.fixture(params=["this system", "Windows"])
def lock_module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the lock of writers, as it is on this system and as it is on Windows."""
    if request.param == "this system":
        return writer_lock
    monkeypatch.setitem(sys.modules, "msvcrt", Msvcrt())
    spec = importlib.util.spec_from_file_location("writer_lock_of_windows", writer_lock.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        spec.loader.exec_module(module)
    assert "msvcrt" in vars(module)
    return module


def test_the_lock_of_writers_is_one_at_a_time(lock_module: ModuleType, path: Path) -> None:
    """Whoever has it keeps the others out until it is given back, or its file is closed; to close twice is good."""
    first, second, third = (lock_module.WriterLock(str(path)) for _ in range(3))
    assert first.try_acquire()
    assert not second.try_acquire()
    first.release()
    second.acquire()
    assert not first.try_acquire()
    second.close()
    second.close()
    assert third.try_acquire()
    third.close()
    assert first.try_acquire()
    first.close()


@pytest.mark.parametrize("lock_module", ["Windows"], indirect=True)
def test_the_lock_of_writers_is_waited_for_on_windows(
    lock_module: ModuleType, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it is tried for again and again, as its own way to wait gives up, and pauses for a second."""
    first, second = lock_module.WriterLock(str(path)), lock_module.WriterLock(str(path))
    pauses = list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            first.release()

    monkeypatch.setattr(lock_module, "time", SimpleNamespace(sleep=pause))
    assert first.try_acquire()
    second.acquire()
    assert not first.try_acquire()
    first.close()
    second.close()

    assert pauses == [0.001] * 3


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users reach, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("mode", [0o777, 0o555], ids=["writable folder", "read-only folder"])
async def test_read_only_file(public_folder: Path, child: Child, mode: int) -> None:
    """Who may only read opens for reading, and gets a clear fault for a write."""
    path = public_folder / "data"
    async with opened(path, "Shared") as engine:
        await insert_row(engine, "Shared", row("r", A=1))
    path.chmod(0o444)
    public_folder.chmod(mode)
    out, _ = child("read_only_fault", path).communicate()
    public_folder.chmod(0o755)

    lines = out.splitlines()
    assert lines[0] == "read 1"
    assert lines[1].startswith("refused AuthorizationFailure")
    assert "opened for reading only" in lines[1]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("exists", [True, False])
async def test_forbidden_file(public_folder: Path, child: Child, *, exists: bool) -> None:
    """Who may not read the file, or not make it, is told so."""
    path = public_folder / "data"
    if exists:
        async with opened(path):
            pass
        path.chmod(0o000)
    public_folder.chmod(0o555)
    out, _ = child("read_only_fault", path).communicate()
    public_folder.chmod(0o755)

    assert out.startswith("AccessDenied")
    assert "permission denied" in out
    assert str(path) in out


async def test_old_sqlite(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An SQLite with the bug that damages logs is rejected, and told what to install."""
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.46.1")

    with pytest.raises(TableOrmError, match=r"SQLite 3\.46\.1 can damage .* install apsw>=3\.51\.3\.0"):
        await Engine(path).open()
    assert not path.exists()


@pytest.mark.parametrize("in_memory", [True, False])
async def test_what_was_open_before_a_fork(path: Path, *, in_memory: bool) -> None:
    """An engine that is given up says so at each call, and keeps no lock of writers; others of the file go on."""
    engine, other = Engine(None if in_memory else path), Engine(path, timeout=5.0)
    engine.disown()
    with pytest.raises(Fault, match=r"is not open; call open\(\) first"):
        await engine.list_tables()
    await engine.open()
    engine.disown()
    with pytest.raises(Fault, match="was opened before this process was forked; open a database of its own"):
        await engine.list_tables()
    await engine.close()
    await other.open()
    await other.create_table("Shared")
    await other.close()


def test_forked_child(tmp_path: Path) -> None:
    """In a forked child the parent's engine and its file are rejected; the parent goes on undisturbed."""
    script = """
import asyncio, os, sys
from tableorm.protocol.codes import Fault
from tableorm.stores import Operation, Verb
from tableorm.errors import TableOrmError
from tableorm_local.engine import Engine

async def main():
    engine = Engine(sys.argv[1])
    await engine.open()
    await engine.create_table("Shared")
    await engine.write("Shared", Operation(Verb.INSERT, {"PartitionKey": "p", "RowKey": "before"}))
    return engine

async def in_child(engine):
    try:
        await engine.get("Shared", "p", "before")
    except Fault as fault:
        print(fault.message)
    try:
        await Engine(sys.argv[1]).open()
    except TableOrmError as error:
        print(error)
    await engine.close()

async def after(engine):
    await engine.write("Shared", Operation(Verb.INSERT, {"PartitionKey": "p", "RowKey": "after"}))
    print("rows", len((await engine.query("Shared", __import__("tableorm.stores").stores.RowQuery())).rows))
    await engine.close()

with asyncio.Runner() as runner:
    engine = runner.run(main())
    pid = os.fork()
    if pid == 0:
        asyncio.set_event_loop(None)
        asyncio.events._set_running_loop(None)
        asyncio.run(in_child(engine))
        sys.stdout.flush()
        os._exit(0)  # as multiprocessing does: tidying up the loop would disturb the parent's
    os.waitpid(pid, 0)
    runner.run(after(engine))
"""
    # From 3.12 on Python warns of any fork beside threads.
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=True,
    )

    lines = done.stdout.splitlines()
    assert "was opened before this process was forked" in lines[0]
    assert "was open when this process was forked" in lines[1]
    assert lines[2] == "rows 2"
    assert done.stderr == ""
