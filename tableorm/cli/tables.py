"""
The command `tableorm tables`, which lists the tables of a database.
"""

import argparse
import asyncio

import attrs

from ..protocol.redaction import escape_unprintable
from .arguments import add_database, open_existing

__all__ = ["TABLES", "Tables"]


@attrs.frozen
class Tables:
    """`tableorm tables URL` prints the names of the tables, one per line."""

    help: str = "list the tables"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_database(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Print the names."""
        return asyncio.run(self._run(args))

    async def _run(self, args: argparse.Namespace) -> int:
        async with open_existing(args) as db:
            for name in await db.tables():
                print(escape_unprintable(name))
        return 0


TABLES = Tables()
