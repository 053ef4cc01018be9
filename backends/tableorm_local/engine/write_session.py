"""
The write session: the connection that writes, its transactions, and the clock that never goes back.

And the host: the part of the engine that queues, blobs and settings use, which do their writes in a session.
"""

import datetime as dt
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

import apsw

from tableorm.protocol.edm import EPOCH, TICKS_PER_SECOND
from tableorm.stores import CLOCK, Capabilities

from .sqlite import Connection, Value

T = TypeVar("T")

_UNIX_EPOCH = 719_162 * 86_400 * TICKS_PER_SECOND  # days from 0001-01-01 to 1970-01-01
assert EPOCH.toordinal() == 1


def now() -> int:
    """Return the time in ticks by the clock of the process, which may jump."""
    return CLOCK.time_ns() // 100 + _UNIX_EPOCH


def moment(ticks: int) -> dt.datetime:
    """Return the time of a tick in UTC, to the microsecond."""
    return EPOCH + dt.timedelta(microseconds=ticks // 10)


class WriteSession:
    """
    One connection that writes, transaction after transaction.

    It is not bound to a thread, but only one thread at a time may use it.

    Attributes:
        connection: The connection that writes.
        name: The name of the database, for messages.
        dirty: Whether anything was written in this transaction; writers set it.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection, self.name = connection, name
        self.dirty = False
        self._tick = 0

    def begin(self) -> bool:
        """Begin a transaction. Return False if another connection is writing. Never waits."""
        self.roll_back()  # a transaction that a failing disk kept from being undone
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return False
        # Other processes write too, so the last tick is known only here.
        self.dirty = False
        self._tick = self.connection.execute("SELECT tick FROM clock").get
        return True

    def write(self, statement: str, bindings: Sequence[Value]) -> None:
        """Execute a statement that writes, so that the transaction is committed."""
        self.connection.execute(statement, bindings)
        self.dirty = True

    def tick(self) -> int:
        """
        Return the time of one more write, later than all earlier writes to this file, whatever the clock says.
        """
        self._tick = max(now(), self._tick + 1)
        return self._tick

    def ticks(self, count: int) -> range:
        """Return the times of several writes, one after the other."""
        first = max(now(), self._tick + 1)
        self._tick = first + count - 1
        return range(first, first + count)

    def commit(self) -> None:
        """Make the transaction durable: wait for the disk, unless nothing was written. If it fails, roll it back."""
        if self.dirty:
            self.connection.execute("UPDATE clock SET tick = ?", (self._tick,))
            self.connection.execute("COMMIT")
        else:
            self.roll_back()

    def roll_back(self) -> None:
        """Undo the transaction, unless SQLite has done so itself."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")


Steps = Generator[None, None, object]
"""A long request under way. It may stop after each step and go on in another thread; it returns the result."""
LongSteps = Generator[bool, None, None]
"""Steps where each that yields True is followed by a long one, which is not done on the event loop."""
Work = Callable[[WriteSession], object]
"""A request, done within a transaction: it returns its result, or `Steps` or `LongSteps` if it is long."""


class Host(Protocol):
    """An engine. A call is rejected while that is not open."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of everything in the file."""
        ...

    async def read(self, read: Callable[[Connection], T]) -> T:
        """Run a read on the event loop; after a pause again, as long as another process prevents it."""
        ...

    async def submit(self, work: Work) -> Any:
        """Do `work` in a transaction, and return its result when that is durable."""
        ...

    def reclaim(self) -> None:
        """Start to free the pages of what was deleted."""
        ...


# Queues and containers each have a table of names; those that are deleted have none.


def find_number(connection: Connection, table: str, name: str | None) -> int | None:
    """Return the number of what has a name, or of something deleted; None if there is nothing."""
    number: int | None = connection.execute(f"SELECT id FROM {table} WHERE name IS ? LIMIT 1", (name,)).get  # noqa: S608
    return number


async def list_names(host: Host, table: str, prefix: str) -> list[str]:
    """Return the names that start with a prefix, in order."""
    sql = f"SELECT name FROM {table} WHERE name IS NOT NULL ORDER BY name"  # noqa: S608
    names = await host.read(lambda connection: [name for (name,) in connection.execute(sql)])
    return [name for name in names if name.startswith(prefix)]
