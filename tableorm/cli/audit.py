"""
The command `tableorm audit`, which checks what is derived from entities, and repairs it if asked to.
"""

import argparse

from ..database.database import Database
from .arguments import JOB, OwnCommand, flag, state
from .progress import run_job


async def _audit(args: argparse.Namespace) -> int:
    """
    `tableorm audit URL MODULE[:MODEL]` checks what is derived from the entities of models, and repairs it if asked to.

    The exit status is 0 if nothing is wrong, or everything was repaired; 1 if something is wrong; 2 after wrong usage.

    Examples:
        tableorm audit local:./hr.tables hr.models
        tableorm audit local:./hr.tables hr.models:Employee --repair
    """
    return await run_job(args, Database.audit, *args.models, repair=args.repair)


AUDIT = OwnCommand(
    "check indexes, lists, counts, sums and copies, and repair them",
    _audit,
    *JOB,
    flag("--repair", "repair what is found"),
    *state("audit"),
)
