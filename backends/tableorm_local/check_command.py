"""
The command `tableorm check`, which checks a whole database file.
"""

import argparse

from tableorm.cli.output import emit
from tableorm.errors import Unavailable
from tableorm.protocol.codes import Fault

from .engine import Engine
from .engine.damage import find_damage


class Check:
    """
    `tableorm check FILE` checks every page, index, row, message and blob of a database file. It changes nothing.

    Examples:
        tableorm check hr.tables
    """

    help = "check a database file"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("file", metavar="FILE", help="the database file")

    async def run(self, args: argparse.Namespace) -> int:
        """Print that the file is in order; otherwise raise what is wrong."""
        file: str = args.file
        await _check(file)
        emit(args, {"file": file, "in_order": True}, f"{file} is in order")
        return 0


async def _check(file: str) -> None:
    engine = Engine(file, create=False)
    await engine.open()
    try:
        problem = await engine.read(find_damage)
    except Fault as fault:
        raise Unavailable(fault.message) from fault
    finally:
        await engine.close()
    if problem is not None:
        raise Unavailable(f"{file!r} is damaged: {problem}; restore it from a backup")


CHECK = Check()
