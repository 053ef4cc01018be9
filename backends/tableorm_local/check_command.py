"""
The command `tableorm check`, which checks a whole database file.
"""

import argparse

from tableorm.cli.output import emit
from tableorm.errors import Unavailable

from .engine.damage import find_damage
from .file_argument import add_file, open_engine


class Check:
    """
    `tableorm check FILE` checks every page, index, row, message and blob of a database file. It changes nothing.

    Examples:
        tableorm check hr.tables
    """

    help = "check a database file"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_file(parser)

    async def run(self, args: argparse.Namespace) -> int:
        """Print that the file is in order; otherwise raise what is wrong."""
        file: str = args.file
        async with open_engine(file) as engine:
            problem = await engine.read(find_damage)
        if problem is not None:
            raise Unavailable(f"{file!r} is damaged: {problem}; restore it from a backup")
        emit(args, {"file": file, "in_order": True}, f"{file} is in order")
        return 0


CHECK = Check()
