"""
The command `tableorm check`, which checks a whole database file.
"""

import argparse

from tableorm.cli.arguments import OwnCommand
from tableorm.cli.output import emit
from tableorm.errors import Unavailable

from .engine.damage import find_damage
from .file_argument import FILE, open_engine


async def _check(args: argparse.Namespace) -> int:
    """
    `tableorm check FILE` checks every page, index, row, message and blob of a database file. It changes nothing.

    Examples:
        tableorm check hr.tables
    """
    file: str = args.file
    async with open_engine(file) as engine:
        problem = await engine.read(find_damage)
    if problem is not None:
        raise Unavailable(f"{file!r} is damaged: {problem}; restore it from a backup")
    emit(args, {"file": file, "in_order": True}, f"{file} is in order")
    return 0


CHECK = OwnCommand("check every page, row, message and blob of a database file", _check, FILE)
