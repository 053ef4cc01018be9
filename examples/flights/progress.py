"""
A line that tells how far a load is: redrawn in place on a terminal, a few plain lines anywhere else.
"""

import sys
import time
from types import TracebackType
from typing import Self, TextIO

WIDTH = 30
REDRAW = 0.1  # seconds
PLAIN_LINES = 4


class Progress:
    """
    Shows rows that were really written, and the rate so far.

    Args:
        total: How many rows there will be.
        stream: Where to show it; the default is standard error.
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total, self.done = max(total, 1), 0
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._started = self._shown = time.perf_counter()
        self._next_line = self.total / PLAIN_LINES

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.perf_counter() - self._started

    def advance(self, rows: int) -> None:
        """`rows` more were written."""
        self.done += rows
        if self._live:
            if time.perf_counter() - self._shown >= REDRAW:
                self._shown = time.perf_counter()
                self._stream.write("\r" + self._line())
                self._stream.flush()
        elif self.done >= self._next_line:
            while self._next_line <= self.done:
                self._next_line += self.total / PLAIN_LINES
            print(self._line(), file=self._stream, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._stream.write("\r" + self._line() + "\n")
            self._stream.flush()

    def _line(self) -> str:
        filled = WIDTH * self.done // self.total
        rate = self.done / self.seconds if self.seconds else 0.0
        bar = "#" * filled + "." * (WIDTH - filled)
        return f"  [{bar}] {self.done:>9,} of {self.total:,} rows, {rate:>8,.0f} rows/s"
