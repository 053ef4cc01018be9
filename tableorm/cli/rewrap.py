"""
The command `tableorm rewrap`, which wraps the content keys of encrypted rows anew.
"""

import argparse

from ..database.database import Database
from .arguments import JOB, OwnCommand
from .progress import run_job


async def _rewrap(args: argparse.Namespace) -> int:
    r"""
    `tableorm rewrap URL MODULE:MODEL --encryption MODULE:NAME` wraps the content keys of encrypted rows by the key that
    wraps new ones. If it is stopped, the next call goes on.

    The exit status is 0 if all are wrapped; 1 if some could not be; 2 after wrong usage.

    Examples:
        tableorm rewrap local:./hr.tables hr.models:Employee \
            --encryption hr.keys:encryption
    """
    return await run_job(args, Database.rewrap, *args.models)


REWRAP = OwnCommand("wrap the content keys of encrypted rows by the current key", _rewrap, *JOB)
