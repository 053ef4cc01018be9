"""
The command `tableorm keys`, which checks a database file and replaces the key in it that signs tokens.
"""

import argparse
import asyncio
import datetime as dt
import sys

import attrs

from tableorm.errors import Unavailable
from tableorm.protocol.codes import Fault

from .engine import Engine
from .engine.damage import clock_ahead, find_damage

__all__ = ["KEYS", "Keys"]


# How far the clock of a file may be ahead, as by a machine whose clock is a little wrong.
_AHEAD = dt.timedelta(days=1)


@attrs.frozen
class Keys:
    """`tableorm keys rotate FILE` checks a file and makes the tokens invalid that were signed with its key."""

    help: str = "replace the key of a database file, which signs tokens"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        actions = parser.add_subparsers(metavar="ACTION", required=True)
        rotate = actions.add_parser(
            "rotate", help="check the whole file and make a new key; tokens that were signed with the old one end"
        )
        rotate.add_argument("file", metavar="FILE", help="the database file")

    def run(self, args: argparse.Namespace) -> int:
        """Replace the key, and print what that means."""
        file: str = args.file
        if asyncio.run(_rotate(file)):
            done = "has a new key; tokens signed with the old one are refused from now on, by running programs too"
        else:
            done = "has no key, as it has never signed a token; nothing is changed"
        print(f"{file} is in order and {done}")  # noqa: T201 - what the program says
        return 0


async def _rotate(file: str) -> bool:
    engine = Engine(file, create=False)
    await engine.open()
    try:
        # The file may be somebody else's: opening it checks only the tables that list others.
        problem = await engine.read(find_damage)
        if problem is not None:
            raise Unavailable(
                f"{file!r} is damaged ({problem}); nothing is changed. Restore it from a backup. If somebody gave "
                "it to you, do not use it."
            )
        ahead = await engine.read(clock_ahead)
        if ahead > _AHEAD:
            warning = (
                f"tableorm: the clock of {file} is ahead of this machine's by {ahead.days} days, so what a program "
                "deletes or repairs after some time stays so much longer; if no machine's clock was wrong, the maker "
                "of the file has set it"
            )
            print(warning, file=sys.stderr)  # noqa: T201 - what the program says
        return await engine.access.rotate_key()
    except Fault as fault:
        raise Unavailable(fault.message) from fault
    finally:
        await engine.close()


KEYS = Keys()
