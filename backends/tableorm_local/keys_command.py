"""
The command `tableorm keys`, which replaces the key of a database file that signs tokens.
"""

import argparse

from tableorm.cli.arguments import OwnCommand
from tableorm.cli.output import emit

from .file_argument import FILE, open_engine


async def _rotate(args: argparse.Namespace) -> int:
    """
    `tableorm keys rotate FILE` makes the tokens invalid that were signed with the key of a file.

    Examples:
        tableorm keys rotate hr.tables
    """
    file: str = args.file
    async with open_engine(file) as engine:
        rotated = await engine.access.rotate_key()
    if rotated:
        done = "has a new key; tokens signed with the old one are rejected from now on, by running programs too"
    else:
        done = "has no key, as it has never signed a token; nothing is changed"
    emit(args, {"file": file, "rotated": rotated}, f"{file} {done}")
    return 0


def _add_actions(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    rotate = actions.add_parser("rotate", help="make a new key; tokens that were signed with the old one end")
    FILE(rotate)
    rotate.epilog = "examples:\n    tableorm keys rotate hr.tables"


KEYS = OwnCommand("replace the key of a database file, which signs tokens", _rotate, _add_actions)
