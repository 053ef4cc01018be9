"""
The command `tableorm audit`, which checks what is derived from entities, and repairs it if asked to.
"""

import argparse

from ..database.database import Database
from .arguments import add_flag, add_job, add_state
from .progress import run_job


class Audit:
    """
    `tableorm audit URL MODULE[:MODEL]` checks what is derived from the entities of models, and repairs it if asked to.

    The exit status is 0 if nothing is wrong, or everything was repaired; 1 if something is wrong; 2 after wrong usage.

    Examples:
        tableorm audit local:./hr.tables hr.models
        tableorm audit local:./hr.tables hr.models:Employee --repair
    """

    help = "check indexes, lists, counts, sums and copies, and repair them"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_job(parser)
        add_flag(parser, "--repair", "repair what is found")
        add_state(parser, "audit")

    async def run(self, args: argparse.Namespace) -> int:
        """Run the audit and print its report."""
        return await run_job(args, Database.audit, *args.models, repair=args.repair)


AUDIT = Audit()
