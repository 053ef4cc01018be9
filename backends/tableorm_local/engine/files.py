"""
Files: opens the databases of tableorm and creates new ones. Never changes a file of another program.

Whoever can write a file owns the rows in it. What must hold is that nothing in a file runs as code: `sqlite.connect`
turns off whatever could.
"""

import contextlib
import os
import stat
import threading
import weakref
from pathlib import Path
from urllib.parse import quote

import apsw
import attrs

from tableorm.errors import NotSupported, Unavailable

from . import blob_contents, blobs, catalog, queues, stored_settings
from .faults import DAMAGE, open_error_from
from .sqlite import Connection, connect
from .writer_lock import WriterLock

APPLICATION_ID = 0x5462_4F72  # "TbOr"
FORMAT = 1

# 3.51.3 fixed the corruption of a log that is reset while another connection checkpoints.
_MIN_SQLITE = (3, 51, 3)
# Rows of up to about 2 KB stay on one page of the tree.
_PAGE_SIZE = 8192
_CACHE_KIB = 64 * 1024
_MMAP_BYTES = 1 << 30
# In pages of the log, 32 MiB: with fewer, larger checkpoints a page that changes often is written only once.
_CHECKPOINT_PAGES = 4000

# The end of a journal that names another file, which SQLite reads, and may delete.
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")

_SCHEMA = catalog.SCHEMA + queues.SCHEMA + blobs.SCHEMA + blob_contents.SCHEMA + stored_settings.SCHEMA

# Held only for moments: to open one file may take long, and others are opened and closed meanwhile.
_opening = threading.Lock()


@attrs.define(eq=False)
class Files:
    """
    The connections of one open database.

    Args:
        writer: The connection that writes; None if the file can only be read.
        reader: The connection that reads; the writer itself for a database in memory.
        writer_lock: Orders the processes that write; None without a file or without a writer.
        identity: Device and inode; None in memory.
    """

    writer: Connection | None
    reader: Connection
    writer_lock: WriterLock | None
    identity: tuple[int, int] | None

    def close(self) -> None:
        """Close everything. The last connection to a file also removes its log."""
        self.reader.close()
        if self.writer is not None:
            self.writer.close()
        if self.writer_lock is not None:
            self.writer_lock.close()
        with _opening:
            _open_files.discard(self)


# See `_check_file`.
_open_files: "weakref.WeakSet[Files]" = weakref.WeakSet()
_files_being_opened: list[tuple[int, int]] = []
_forked_files: set[tuple[int, int] | None] = set()


def _check_library() -> None:
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < _MIN_SQLITE:
        raise NotSupported(
            f"SQLite {apsw.sqlite_lib_version()} can damage a database that several connections use; install "
            f"apsw>={'.'.join(map(str, _MIN_SQLITE))}.0.",
        )


def open_memory() -> Files:
    """Make a database in memory, with one connection for everything."""
    _check_library()
    connection = connect(":memory:", apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    connection.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
    connection.execute(_SCHEMA)
    return Files(connection, connection, None, None)


def open_file(path: str, timeout: float, *, create: bool) -> Files:
    """
    Open the database at `path`, an absolute path without symbolic links; with `create`, make a missing one. Blocks.

    Raises:
        TableOrmError: The file cannot be opened; nothing was changed.
    """
    _check_library()
    try:
        with _opening:
            identity = _check_place(path, create=create)
            _files_being_opened.append(identity)
        opened = set[Files]()
        try:
            opened.add(files := _open(path, timeout, identity))
            return files
        finally:
            with _opening:
                _files_being_opened.remove(identity)
                _open_files.update(opened)
    except (apsw.Error, OSError, *DAMAGE) as error:
        raise open_error_from(error, repr(path)) from error


def _check_place(path: str, *, create: bool) -> tuple[int, int]:
    """Check a file without SQLite; with `create`, make a missing one. Return its identity."""
    _check_journal(path)
    if not os.path.lexists(path):
        if not create:
            raise Unavailable(f"there is no database {path!r}; check the path, or create it with tableorm.connect().")
        _create_empty(path)
    return _check_file(path)


def _open(path: str, timeout: float, identity: tuple[int, int]) -> Files:
    try:
        connection, writable = _connect(path, timeout)
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        # A log beside the file is needed even for reading, and cannot be made in a folder that is read-only.
        if os.access(Path(path).parent, os.W_OK):
            raise
        connection, writable = connect_immutable(path), False
    try:
        if not writable:
            return Files(None, connection, None, identity)
        reader = connect(path, apsw.SQLITE_OPEN_READONLY)
        _tune(reader)
        return Files(connection, reader, WriterLock(path + "-lock"), identity)
    except BaseException:
        connection.close()
        raise


def _check_journal(path: str) -> None:
    """Refuse a journal that names another file, which SQLite would read and could delete."""
    with contextlib.suppress(FileNotFoundError), Path(path + "-journal").open("rb") as journal:
        journal.seek(max(0, journal.seek(0, os.SEEK_END) - len(_NAMES_ANOTHER)))
        if journal.read() == _NAMES_ANOTHER:
            raise NotSupported(f"the journal beside {path!r} names another file; restore both, or remove the journal.")


def _create_empty(path: str) -> None:
    # SQLite gives the files beside it the same mode.
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass  # Another process was faster; the first one that locks the file fills it.
    except FileNotFoundError:
        folder = str(Path(path).parent)
        raise Unavailable(f"{path!r} cannot be created: there is no folder {folder!r}; create that first.") from None


def _check_file(path: str) -> tuple[int, int]:
    """
    Refuse a file that is not a database of tableorm, without touching it.

    Returns:
        Device and inode.
    """
    status = Path(path).stat()
    identity = status.st_dev, status.st_ino
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise NotSupported(f"{path!r} is {kind}; give the path of a file.")
    if identity in _forked_files:
        raise NotSupported(
            f"{path!r} was open when this process was forked; open it in the child only, or start the child with "
            "multiprocessing's 'spawn' or 'forkserver'.",
        )
    # Closing a file drops all locks that the process has on it, also those of another engine (POSIX). So the file is
    # read here only if no engine has it open; otherwise it has been checked already.
    if status.st_size == 0 or identity in _list_files_in_use():
        return identity
    with Path(path).open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise NotSupported(f"{path!r} is not a database; give the path of another file.")
    if int.from_bytes(header[68:72]) != APPLICATION_ID:
        raise NotSupported(f"{path!r} is an SQLite database of another program; give the path of another file.")
    _check_version(int.from_bytes(header[60:64]), path)
    return identity


def _list_files_in_use() -> list[tuple[int, int] | None]:
    return [*_files_being_opened, *(files.identity for files in _open_files)]


def _check_version(version: int, path: str) -> None:
    if version > FORMAT:
        raise NotSupported(
            f"{path!r} has format {version}, made by a newer tableorm; this one reads format {FORMAT}. Update.",
        )


def _check_format(connection: Connection, path: str) -> None:
    """
    Refuse a database of another program or a newer format, also if that is only in its log yet.

    Raises:
        NotSupported: It is one.
    """
    if connection.execute("PRAGMA application_id").get != APPLICATION_ID:
        raise NotSupported(f"{path!r} is not a database of tableorm; give the path of another file.")
    _check_version(connection.execute("PRAGMA user_version").get, path)


def _connect(path: str, timeout: float) -> tuple[Connection, bool]:
    """Return a connection, and whether it may write."""
    connection = connect(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        # If the file is rejected, closing it must not move its log into it.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.set_busy_timeout(int(timeout * 1000))
        writable = not connection.readonly("main")
        if writable:
            _initialise(connection)
        _check_format(connection, path)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        if writable:
            _use_log(connection, path)
        _tune(connection)
        connection.set_busy_timeout(0)
    except BaseException:
        connection.close()
        raise
    return connection, writable


def connect_immutable(path: str) -> Connection:
    """Return a connection that reads the file alone, neither its log nor a journal, and writes and locks nothing."""
    connection = connect(f"file:{quote(path)}?immutable=1", apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        _check_format(connection, path)
        _tune(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _initialise(connection: Connection) -> None:
    """Fill an empty file, in one transaction and before there is a log, so that a crash leaves all of it or nothing."""
    connection.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
    if connection.execute("PRAGMA page_count").get:
        return
    # If it fails, the connection is closed, which undoes it.
    connection.execute("BEGIN EXCLUSIVE")
    if connection.execute("PRAGMA application_id").get != APPLICATION_ID:  # another process may have been faster
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute(_SCHEMA)
    connection.execute("COMMIT")


def _use_log(connection: Connection, path: str) -> None:
    mode = connection.execute("PRAGMA journal_mode = WAL").get
    if mode != "wal":
        raise NotSupported(
            f"{path!r}: this file system has no shared memory between processes (journal mode {mode!r}); put the file "
            "on a local disk.",
        )


def _tune(connection: Connection) -> None:
    for pragma in (
        "synchronous = FULL",
        "fullfsync = ON",  # macOS: its fsync alone does not reach the disk
        "checkpoint_fullfsync = ON",
        f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
        f"journal_size_limit = {2 * _CHECKPOINT_PAGES * _PAGE_SIZE}",
        f"cache_size = -{_CACHE_KIB}",
        f"mmap_size = {_MMAP_BYTES}",
        "cell_size_check = ON",
    ):
        connection.execute("PRAGMA " + pragma)


def after_fork() -> None:
    """
    In a forked child: refuse the files that the parent had open.

    SQLite's memory says that this process holds the parent's locks, but it does not. A new connection to such a file
    would rely on them too.
    """
    _forked_files.update(_list_files_in_use())
