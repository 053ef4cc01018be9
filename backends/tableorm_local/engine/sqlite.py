"""
SQLite: the part of apsw's connection that the engine uses, with types that hold on every version of Python.

Every connection is made here, and is told before its first statement to trust nothing that a file says: a file may have
been made by somebody else. So every statement has an end, also on pages that lead in a circle.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

import apsw

__all__ = ["MAX_BYTES", "Connection", "Cursor", "bound_statements", "connect"]

_STATEMENTS = 512
MAX_BYTES = 16 * 1024 * 1024
"""The most bytes of a value that is read. No row is as large, whatever is escaped in its JSON."""
# The most steps of a statement, and how often they are counted. The longest of ours read a list of all tables, some
# 50 steps for each, of which there may be a million.
_MAX_STEPS = 50_000_000
_COUNTED_STEPS = 1_000_000

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

    def cache_stats(self) -> Mapping[str, Any]:
        """Return how many statements were found among those that are kept ("hits"), and how many not ("misses")."""
        ...

    def set_progress_handler(self, callable: Callable[[], bool] | None, nsteps: int = ...) -> None:  # noqa: A002
        """Call a function every so many steps of a statement, which fails if that returns True."""
        ...

    def set_busy_timeout(self, milliseconds: int) -> None:
        """Set how long a statement waits for locks."""
        ...

    def close(self) -> None:
        """Close the file. Idempotent."""
        ...


def connect(path: str, flags: int) -> Connection:
    """Open a file, ":memory:", or with the flag SQLITE_OPEN_URI a URI. Nothing in it is run; every statement ends."""
    connection = apsw.Connection(path, flags=flags, statementcachesize=_STATEMENTS)
    for option, value in _WALLS:
        connection.config(option, value)
    connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_BYTES)
    # apsw's own annotations name `collections.abc.Buffer`, which Python 3.11 does not have.
    typed = cast("Connection", connection)
    bound_statements(typed)
    return typed


def bound_statements(connection: Connection) -> None:
    """Let each statement from now on fail, as on a damaged file, when it takes more steps than any of the engine's."""
    reference = weakref.ref(connection)
    statement, steps = 0, 0

    def count_steps() -> bool:
        nonlocal statement, steps
        stats = cast("Connection", reference()).cache_stats()
        # SQLite counts on when a statement is run again. Whether one still runs is seen by the number of statements.
        before, statement = statement, stats["hits"] + stats["misses"]
        steps = steps + _COUNTED_STEPS if statement == before else 0
        if steps >= _MAX_STEPS:
            raise apsw.CorruptError("a statement comes to no end")
        return False

    connection.set_progress_handler(count_steps, _COUNTED_STEPS)
