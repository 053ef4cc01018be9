"""
The built-in commands: list the tables of a database, and show rows.
"""

import argparse
import asyncio
import sys

import attrs
import msgspec

from .database import Database
from .opening import connect
from .protocol.codes import Fault
from .protocol.limits import MAX_PAGE
from .stores import Bounds, RowQuery
from .translate import translate

__all__ = ["SHOW", "TABLES", "Show", "Tables"]

_URL_HELP = "what to open, as for tableorm.connect: local:./hr.tables"


def _look_into(url: str) -> Database:
    # A mistyped path must not become an empty database.
    return connect(url, create=False) if url.startswith("local:") else connect(url)


@attrs.frozen
class Tables:
    """`tableorm tables URL` prints the names of the tables, one per line."""

    help: str = "list the tables"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("url", metavar="URL", help=_URL_HELP)

    def run(self, args: argparse.Namespace) -> int:
        """Print the names."""
        return asyncio.run(self._run(args.url))

    async def _run(self, url: str) -> int:
        async with _look_into(url) as db:
            for name in await db.tables():
                print(name)
        return 0


@attrs.frozen
class Show:
    """
    `tableorm show URL TABLE` prints rows as lines of JSON, in key order.

    They are as the service sends them: a property whose type JSON does not tell has it in a sibling `NAME@odata.type`.
    """

    help: str = "show the rows of a table as lines of JSON"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("url", metavar="URL", help=_URL_HELP)
        parser.add_argument("table", metavar="TABLE", help="name of the table")
        parser.add_argument("--partition", metavar="PK", help="only the rows with this PartitionKey")
        parser.add_argument("--limit", metavar="N", type=_count, help="at most so many rows")

    def run(self, args: argparse.Namespace) -> int:
        """Print the rows."""
        partition = Bounds() if args.partition is None else Bounds.only(args.partition)
        return asyncio.run(self._run(args.url, args.table, RowQuery(partition=partition), args.limit))

    async def _run(self, url: str, table: str, query: RowQuery, limit: int | None) -> int:
        encode = msgspec.json.Encoder().encode
        continuation: str | None = None
        async with _look_into(url) as db:
            while True:
                size = MAX_PAGE if limit is None else min(limit, MAX_PAGE)
                try:
                    page = await db.store.query(table, query, limit=size, continuation=continuation)
                except Fault as fault:
                    raise translate(fault, f"show {table}", table) from fault
                for row in page.rows:
                    sys.stdout.buffer.write(encode(row) + b"\n")
                if limit is not None:
                    limit -= len(page.rows)
                continuation = page.continuation
                if continuation is None or limit == 0:
                    return 0


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


TABLES = Tables()
SHOW = Show()
