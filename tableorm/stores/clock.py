"""
The clock: what time it is for everything that stores a time, or compares a stored one with the present.

Timestamps of the embedded engine, tokens and messages are by this clock, and so is `utc_now`. A test can stop it.
Time-outs, pauses and the dates of HTTP requests are by the system's own clocks, which go on.
"""

import datetime as dt
import time

from ..protocol.edm import EPOCH, TICKS_PER_SECOND, ticks_from_datetime

__all__ = ["CLOCK", "Clock", "utc_now"]

_UNIX_EPOCH = 719_162 * 86_400 * TICKS_PER_SECOND  # days from 0001-01-01 to 1970-01-01
assert EPOCH.toordinal() == 1


class Clock:
    """
    A clock that shows the system's time, until a test stops it or puts it forward.
    """

    def __init__(self) -> None:
        self._stopped: int | None = None
        self._ahead = 0

    def ticks(self) -> int:
        """Return the time in ticks of 100 ns since the year 1. It may jump, as the system's clock does."""
        stopped = self._stopped
        return (time.time_ns() // 100 + _UNIX_EPOCH if stopped is None else stopped) + self._ahead

    def now(self) -> dt.datetime:
        """Return the time in UTC, to the microsecond."""
        return EPOCH + dt.timedelta(microseconds=self.ticks() // 10)

    def freeze(self, at: dt.datetime | None = None) -> None:
        """
        Stop the clock.

        Args:
            at: The time that it shows from now on, with a time zone; None for the time that it shows now.

        Raises:
            ValueError: `at` has no time zone, or is a time that a table cannot store.
        """
        self._stopped, self._ahead = self.ticks() if at is None else ticks_from_datetime(at), 0

    def advance(self, delta: dt.timedelta) -> None:
        """Put the clock forward, stopped or not; a negative `delta` puts it back."""
        self._ahead += delta // dt.timedelta(microseconds=1) * 10

    def reset(self) -> None:
        """Show the system's time again."""
        self._stopped, self._ahead = None, 0


CLOCK = Clock()
"""The clock of this process."""


def utc_now() -> dt.datetime:
    """
    Return the time in UTC, by the clock that a test can stop: `field(default=None, on_write=utc_now)`.
    """
    return CLOCK.now()
