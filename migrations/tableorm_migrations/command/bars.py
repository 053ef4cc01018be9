"""
Bars that show on a terminal how far a run is: one for all of it, and one for each range that is worked on.
"""

from tableorm.cli.progress import draw_bar
from tableorm.jobs.report import RunReport

__all__ = ["show_bars"]


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
