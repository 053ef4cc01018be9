"""
The clock: what time it is for everything that stores a time, or compares a stored one with the present.

Timestamps of the embedded engine, tokens and messages are by this clock, and so is `utc_now`. A test can stop it.
Time-outs, pauses and the dates of HTTP requests are by the system's own clocks, which go on.
"""

import datetime as dt
import time
from collections.abc import Callable
from typing import cast

from ..protocol.edm import ticks_from_datetime

_BEGIN = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Clock:
    """
    A clock that shows the system's time, until a test stops or advances it.

    Attributes:
        time_ns: Returns the time in nanoseconds since 1970. It may jump, as the system's clock does.
    """

    def __init__(self) -> None:
        self.time_ns: Callable[[], int]
        self._source: Callable[[], int]
        self._ahead: int
        self.reset()

    def now(self) -> dt.datetime:
        """Return the time in UTC, to the microsecond."""
        return _BEGIN + dt.timedelta(microseconds=self.time_ns() // 1000)

    def freeze(self, at: dt.datetime | None = None) -> None:
        """
        Stop the clock.

            tableorm_clock.freeze(dt.datetime(2030, 1, 1, tzinfo=dt.UTC))

        Args:
            at: The time to show, with a time zone; None for the current time.

        Raises:
            TypeError: `at` isn't a datetime.
            ValueError: `at` has no time zone, or is a time that a table can't store.
        """
        if not isinstance(cast("object", at), dt.datetime | None):
            raise TypeError(
                f"freeze({at!r}) is rejected: give a datetime with a time zone: datetime(2030, 1, 1, tzinfo=UTC)"
            )
        stopped = self.time_ns() if at is None else 100 * (ticks_from_datetime(at) - ticks_from_datetime(_BEGIN))
        self._show(lambda: stopped)

    def advance(self, delta: dt.timedelta) -> None:
        """
        Advance the clock, stopped or not; a negative `delta` sets it back.

            tableorm_clock.advance(dt.timedelta(hours=1))
        """
        source = self._source
        ahead = self._ahead = self._ahead + delta // dt.timedelta(microseconds=1) * 1000
        self.time_ns = lambda: source() + ahead

    def reset(self) -> None:
        """Show the system's time again."""
        self._show(time.time_ns)

    def _show(self, source: Callable[[], int]) -> None:
        self.time_ns, self._source, self._ahead = source, source, 0


CLOCK = Clock()
"""The clock of this process."""


def utc_now() -> dt.datetime:
    """
    Return the time in UTC, by the clock that a test can stop: `field(default=None, on_write=utc_now)`.
    """
    return CLOCK.now()
