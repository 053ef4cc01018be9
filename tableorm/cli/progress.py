"""
What long commands share: lines of progress, and a file that keeps how far they got.
"""

import argparse
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ParamSpec, Self, TextIO

from ..audit.report import AuditReport
from ..errors import counted
from ..jobs.report import RunReport
from ..queries.sweep_report import SweepReport
from ..stores.draft import write_draft
from ..transfer.report import TransferReport
from .arguments import open_existing, run_options
from .output import emit, show_progress

P = ParamSpec("P")
Report = AuditReport | SweepReport | TransferReport | RunReport

_SECONDS = 1.0  # between two lines of progress, and between two writes of the state file
_WIDTH = 24


def draw_bar(share: float) -> str:
    """Return a bar that shows a share from 0 to 1; 0 also means that nobody knows it, as within one partition."""
    done, percent = int(share * _WIDTH), f"{share:.0%}" if share else "?"
    return f"[{'#' * done}{'-' * (_WIDTH - done)}] {percent:>4}"


def each_second(show: Callable[P, object]) -> Callable[P, None]:
    """Return what calls a function, if a second has passed since it was last called."""
    last = time.monotonic()

    def call(*args: P.args, **options: P.kwargs) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS:
            last = time.monotonic()
            show(*args, **options)

    return call


def show_report(report: Any) -> None:
    """Show the report of what is under way behind a bar; a terminal gets a bar for each range that is worked on too."""
    bars: list[str] = []
    if isinstance(report, RunReport):
        left = "" if report.seconds_left is None else f", about {timedelta(seconds=round(report.seconds_left))} left"
        bars += [f"{report.rate:,.0f} entities/s{left}"]
        bars += [f"{draw_bar(each.share)} range {each.number}: {each.entities:,} entities" for each in report.working]
    show_progress(f"{draw_bar(report.share)} {report}" if hasattr(report, "share") else str(report), *bars)


def show_reading(table: str) -> Callable[[int, float], None]:
    """Return what shows how many rows of a table were read, and the share of the table that is done."""
    return each_second(lambda rows, share: show_progress(f"{draw_bar(share)} {table}: {counted(rows, 'row')}"))


def print_report(report: Report, args: argparse.Namespace, file: TextIO | None = None) -> int:
    """Print what a report has found wrong, and the report, on stdout or elsewhere; return the status of the command."""
    found: Sequence[object]
    if isinstance(report, AuditReport):
        found, number, good = report.findings, report.found, report.clean
    else:
        found, number = report.failures, report.failed
        good = report.complete if isinstance(report, RunReport) else not number
    more = number - len(found)
    emit(
        args,
        report.to_dict(),
        *map(str, found),
        *[f"and {more:,} more"] * (more > 0),
        str(report),
        file=file,
        wrap=True,
    )
    return 0 if good else 1


class ProgressReporter:
    """
    Reports how far a command got, once a second: on stderr, and in a state file, from which another run resumes.

    Args:
        state: The state file; None if there is none.
    """

    def __init__(self, state: Path | None) -> None:
        self._state = state
        self._latest: Any = None
        self._tell = each_second(self._show)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.save()  # also when it was interrupted

    def read_cursor(self) -> str | None:
        """Return where an earlier run got to; None if there was none, or it came to its end."""
        state = self._state
        return state.read_text("ascii", errors="replace").strip() if state is not None and state.exists() else None

    def note(self, report: object) -> None:
        """Take note of a report, and tell of it if a second has passed."""
        self._latest = report
        self._tell()

    def _show(self) -> None:
        show_report(self._latest)
        self.save()

    def save(self) -> None:
        """Write where to go on to the state file, in full or not at all; remove the file when all is done."""
        if self._state is None or self._latest is None:
            return
        cursor = self._latest.cursor
        if cursor is None:
            self._state.unlink(missing_ok=True)
            return
        # It holds keys of rows, so only this user may read it.
        with write_draft(self._state, overwrite=True) as file:
            file.write(f"{cursor}\n".encode("ascii"))


async def run_job(
    args: argparse.Namespace, work: Callable[..., Awaitable[Report]], *models: object, **options: object
) -> int:
    """
    Work on the rows of a database, and print the report; return the status of the command.

    Args:
        args: The arguments, among them those of `JOB`, and perhaps those of `state`.
        work: The method of the database that does it.
        models: Whose rows it works on.
        options: Its other arguments.
    """
    with ProgressReporter(getattr(args, "state", None)) as progress:
        if "state" in args:
            options["cursor"] = progress.read_cursor()
        async with open_existing(args) as db:
            report = await work(db, *models, on_progress=progress.note, **run_options(args), **options)
    return print_report(report, args)
