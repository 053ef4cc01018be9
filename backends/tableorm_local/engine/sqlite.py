"""
SQLite: the part of apsw's connection that the engine uses, with types that hold on every version of Python.

Every connection is made here, and is told before its first statement to run nothing that a file says: a file may have
been made by another program.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast

import apsw

_STATEMENTS = 512
_MAX_BYTES = 16 * 1024 * 1024  # of a value; no row is as large, whatever is escaped in its JSON

# What a schema could make a connection do, beside storing rows.
_WALLS = (
    (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
    (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
)

Value = bytes | int | str | None


class Cursor(Protocol):
    """The rows of a statement. Its transaction stays open until they are exhausted or the cursor is closed."""

    @property
    def get(self) -> Any:
        """All rows at once: None if there is none, the value itself if there is only one."""
        ...

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Return the rows, one after the other."""
        ...

    def close(self) -> None:
        """End the statement."""
        ...


class Connection(Protocol):
    """A connection to a file. See apsw.Connection."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction was begun and has not ended."""
        ...

    def execute(self, statements: str, bindings: Sequence[Value] | None = None) -> Cursor:
        """Run statements, the last one up to its first row."""
        ...

    def executemany(self, statements: str, bindings: Sequence[Sequence[Value]], /) -> Cursor:
        """Run a statement once for each of the bindings."""
        ...

    def changes(self) -> int:
        """Return how many rows the last statement changed."""
        ...

    def total_changes(self) -> int:
        """Return how many rows all statements so far have changed."""
        ...

    def last_insert_rowid(self) -> int:
        """Return the id that the last insert made."""
        ...

    def readonly(self, name: str) -> bool:
        """Return whether the file can only be read."""
        ...

    def config(self, option: int, value: int, /) -> int:
        """Set an option of the connection. See the constants SQLITE_DBCONFIG_ of SQLite."""
        ...

    def limit(self, number: int, value: int, /) -> int:
        """Set a limit of the connection. See the constants SQLITE_LIMIT_ of SQLite."""
        ...

    def set_progress_handler(self, handler: Callable[[], bool], steps: int, /) -> None:
        """Call a function during statements, once in so many steps; they are ended if it returns True or raises."""
        ...

    def set_busy_timeout(self, milliseconds: int) -> None:
        """Set how long a statement waits for locks."""
        ...

    def close(self) -> None:
        """Close the file. Idempotent."""
        ...


def connect(path: str, flags: int) -> Connection:
    """Open a file, ":memory:", or with the flag SQLITE_OPEN_URI a URI. Nothing in it is run."""
    connection = apsw.Connection(path, flags=flags, statementcachesize=_STATEMENTS)
    for option, value in _WALLS:
        connection.config(option, value)
    connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, _MAX_BYTES)
    # apsw's own annotations name `collections.abc.Buffer`, which Python 3.11 does not have.
    return cast("Connection", connection)
