"""
The command `tableorm keys`, which replaces the key of a database file that signs tokens.
"""

import argparse

from tableorm.cli.output import emit

from .file_argument import add_file, open_engine


class Keys:
    """
    `tableorm keys rotate FILE` makes the tokens invalid that were signed with the key of a file.

    Examples:
        tableorm keys rotate hr.tables
    """

    help = "replace the key of a database file, which signs tokens"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        actions = parser.add_subparsers(metavar="ACTION", required=True)
        rotate = actions.add_parser("rotate", help="make a new key; tokens that were signed with the old one end")
        add_file(rotate)
        rotate.epilog = "examples:\n    tableorm keys rotate hr.tables"

    async def run(self, args: argparse.Namespace) -> int:
        """Replace the key, and print what that means."""
        file: str = args.file
        async with open_engine(file) as engine:
            rotated = await engine.access.rotate_key()
        if rotated:
            done = "has a new key; tokens signed with the old one are rejected from now on, by running programs too"
        else:
            done = "has no key, as it has never signed a token; nothing is changed"
        emit(args, {"file": file, "rotated": rotated}, f"{file} {done}")
        return 0


KEYS = Keys()
