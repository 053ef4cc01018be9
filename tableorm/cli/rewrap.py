"""
The command `tableorm rewrap`, which wraps the content keys of encrypted rows anew.
"""

import argparse

from ..database.database import Database
from .arguments import add_job
from .progress import run_job


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
        return await run_job(args, Database.rewrap, *args.models)


REWRAP = Rewrap()
