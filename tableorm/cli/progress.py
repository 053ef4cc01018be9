"""
What long commands share: lines of progress, and a file that keeps how far they got.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Self, TextIO, TypeVar

import attrs

from ..errors import counted
from ..jobs.ranges import RangeReport
from ..queries.sweep_report import SweepReport
from ..transfer.report import TransferReport
from .output import emit, show_progress

R = TypeVar("R", bound=RangeReport)

_SECONDS = 1.0  # between two lines of progress, and between two writes of the state file
_WIDTH = 24


def draw_bar(share: float) -> str:
    """Return a bar that shows a share from 0 to 1; 0 also means that nobody knows it, as within one partition."""
    done, percent = int(share * _WIDTH), f"{share:.0%}" if share else "?"
    return f"[{'#' * done}{'-' * (_WIDTH - done)}] {percent:>4}"


class TableProgress:
    """Prints how far the reading of a table is, once a second, on stderr."""

    def __init__(self, table: str) -> None:
        self._table, self._printed = table, time.monotonic()

    def __call__(self, rows: int, share: float) -> None:
        """Print it: how many rows were read, and the share of the table that is done."""
        if time.monotonic() - self._printed >= _SECONDS:
            self._printed = time.monotonic()
            show_progress(f"{draw_bar(share)} {self._table}: {counted(rows, 'row')}")


def print_report(report: SweepReport | TransferReport, args: argparse.Namespace, file: TextIO | None = None) -> int:
    """Print the failures of a report, and the report, on stdout or elsewhere; return the exit status of the command."""
    more = report.failed - len(report.failures)
    lines = [*map(str, report.failures), *([f"and {more} more"] if more > 0 else []), str(report)]
    emit(args, report.to_dict(), *lines, file=file)
    return 1 if report.failed else 0


@attrs.define
class ProgressReporter(Generic[R]):
    """
    Tells how far a command got, once a second: on stderr, and in a state file, where another run goes on.

    Args:
        state: The state file; None if there is none.
        describe: Returns the line of progress for a report.
    """

    state: Path | None
    describe: Callable[[R], str]
    _latest: R | None = attrs.field(init=False, default=None)
    _told: float = attrs.field(init=False, factory=time.monotonic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.save()  # also when it was interrupted

    def read_cursor(self) -> str | None:
        """Return where an earlier run got to; None if there was none, or it came to its end."""
        state = self.state
        return state.read_text(encoding="ascii").strip() if state is not None and state.exists() else None

    def note(self, report: R) -> None:
        """Take note of a report, and tell of it if a second has passed."""
        self._latest = report
        if time.monotonic() - self._told >= _SECONDS:
            self._told = time.monotonic()
            show_progress(self.describe(report))
            self.save()

    def save(self) -> None:
        """Write where to go on to the state file, in full or not at all; remove the file when all is done."""
        if self.state is None or self._latest is None:
            return
        cursor = self._latest.cursor
        if cursor is None:
            self.state.unlink(missing_ok=True)
            return
        draft = self.state.with_name(self.state.name + ".new")
        # It holds keys of rows, so it is made for this user alone, and not where a link in its place leads.
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(cursor + "\n")
        draft.replace(self.state)
