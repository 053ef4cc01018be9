"""
What is shown of a run: its report, and bars on a terminal, one for all of it, and one for each range that is worked on.
"""

import argparse
from collections.abc import Callable

from tableorm.cli.output import emit, show_progress
from tableorm.cli.progress import draw_bar, each_second
from tableorm.jobs.report import RunReport

from ..revisions import StepReport


def show_run(args: argparse.Namespace) -> Callable[[RunReport | StepReport], None]:
    """Return what shows how far a run or a step is, once a second; with `--json` as the outcome will be."""

    def show(report: RunReport | StepReport) -> None:
        if args.json:
            emit(args, report.to_dict())
        else:
            show_progress(str(report), *(show_bars(report) if isinstance(report, RunReport) else ()))

    return each_second(show)


def show_bars(report: RunReport) -> list[str]:
    """Return a line for all of a run, with rate and time left, and one for each range that is worked on now."""
    left = "" if report.seconds_left is None else f", about {_show_time(report.seconds_left)} left"
    lines = [f"{'all':>9} {draw_bar(report.share)} {report.rate:,.0f} entities/s{left}"]
    lines += [f"range {each.number:>3} {draw_bar(each.share)} {each.entities:,} entities" for each in report.working]
    return lines


def _show_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
