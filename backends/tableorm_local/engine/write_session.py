"""
The write transaction: what every write uses of the connection that holds it, and the clock that never goes back.
"""

import datetime as dt
import time
from collections.abc import Callable, Generator

import apsw

from tableorm.protocol.edm import EPOCH, TICKS_PER_SECOND

from . import catalog
from .sqlite import Connection

__all__ = ["Session", "Steps", "Work", "moment", "now"]

_UNIX_EPOCH = 719_162 * 86_400 * TICKS_PER_SECOND  # days from 0001-01-01 to 1970-01-01
assert EPOCH.toordinal() == 1


def now() -> int:
    """The time in ticks, as the operating system has it: it may jump."""
    return time.time_ns() // 100 + _UNIX_EPOCH


def moment(ticks: int) -> dt.datetime:
    """The time of a tick in UTC, to the microsecond."""
    return EPOCH + dt.timedelta(microseconds=ticks // 10)


class Session:
    """
    One connection that writes, transaction after transaction.

    Not bound to a thread, but only one at a time may use it.

    Attributes:
        connection: Where writes go.
        dirty: Whether anything was written in this transaction; writers set it.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.dirty = False
        self._tick = 0

    def begin(self) -> bool:
        """Begin a transaction; False if another connection is writing. Never waits."""
        self.roll_back()  # what a failing disk kept from being undone
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return False
        # Other processes write too, so the last tick is known only now.
        self.dirty = False
        self._tick = self.connection.execute("SELECT tick FROM clock").get
        return True

    def tick(self) -> int:
        """
        The moment of one more write: later than every write to this file before, whatever the clock says.
        """
        self._tick = max(now(), self._tick + 1)
        return self._tick

    def ticks(self, count: int) -> range:
        """The moments of several writes, one after the other."""
        first = max(now(), self._tick + 1)
        self._tick = first + count - 1
        return range(first, first + count)

    def commit(self) -> None:
        """Make the transaction durable: waits for the disk, unless nothing was written. Rolled back if that fails."""
        if not self.dirty:
            return self.roll_back()
        try:
            self.connection.execute("UPDATE clock SET tick = ?", (self._tick,))
            self.connection.execute("COMMIT")
        except BaseException:
            self.roll_back()
            raise

    def roll_back(self) -> None:
        """Undo the transaction, unless SQLite already did so itself."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def table(self, folded: str) -> catalog.Table | None:
        """The table of a name in lower case, as this transaction sees it."""
        return catalog.look_up(self.connection, folded)


Steps = Generator[None, None, object]
"""A long request under way: it may be stopped after each step and continued in another thread; returns its result."""
Work = Callable[[Session], object]
"""A request, to be done within a transaction: gives its result, or `Steps` if it is long."""
