"""
The built-in commands: list the tables of a database, show rows, and audit what is derived from entities.
"""

import argparse
import asyncio

import attrs

from ..database.connect import connect
from ..database.database import Database

__all__ = ["TABLES", "URL_HELP", "Tables", "open_existing"]

URL_HELP = "what to open, as for tableorm.connect: local:./hr.tables"


def open_existing(url: str) -> Database:
    """Open a database that exists already."""
    # A mistyped path must not become an empty database.
    return connect(url, create=False) if url.startswith("local:") else connect(url)


@attrs.frozen
class Tables:
    """`tableorm tables URL` prints the names of the tables, one per line."""

    help: str = "list the tables"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("url", metavar="URL", help=URL_HELP)

    def run(self, args: argparse.Namespace) -> int:
        """Print the names."""
        return asyncio.run(self._run(args.url))

    async def _run(self, url: str) -> int:
        async with open_existing(url) as db:
            for name in await db.tables():
                print(name)
        return 0


TABLES = Tables()
