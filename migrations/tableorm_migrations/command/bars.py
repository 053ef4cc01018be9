"""
What is shown of a run: its report, and bars on a terminal, one for all of it, and one for each range that is worked on.
"""

from tableorm.cli.progress import draw_bar
from tableorm.jobs.report import RunReport
from tableorm.protocol.redaction import escape_unprintable

from .output import Output


def print_run(output: Output, report: RunReport) -> None:
    """Print the report of a run, and each of its failures on a line of its own."""
    output.print("\n".join(map(escape_unprintable, [str(report), *report.failures])), report.to_dict())


def show_run(output: Output, report: RunReport) -> None:
    """Show how far a run is."""
    output.progress(str(report), report.to_dict(), show_bars(report))


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
