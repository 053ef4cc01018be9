"""
The command `tableorm rewrap`, which wraps the content keys of encrypted rows anew.
"""

import argparse

from ..errors import counted
from .arguments import add_job, open_existing, run_options
from .output import show_progress
from .progress import draw_bar, print_report


class Rewrap:
    r"""
    `tableorm rewrap URL MODULE:MODEL --encryption MODULE:NAME` wraps the content keys of encrypted rows by the key that
    wraps new ones. If it is stopped, the next call goes on.

    The exit status is 0 if all are wrapped; 1 if some could not be; 2 after wrong usage.

    Examples:
        tableorm rewrap local:./hr.tables hr.models:Employee \
            --encryption hr.keys:encryption
    """

    help = "wrap the content keys of encrypted rows by the current key"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_job(parser)

    async def run(self, args: argparse.Namespace) -> int:
        """Wrap, and print the report."""
        async with open_existing(args) as db:
            report = await db.rewrap(
                *args.models,
                on_progress=lambda done: show_progress(f"{draw_bar(done.share)} {counted(done.entities, 'entity')}"),
                **run_options(args),
            )
        return print_report(report, args)


REWRAP = Rewrap()
