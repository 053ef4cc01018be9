"""
The command `tableorm show`, which prints rows.
"""

import argparse
import sys

import attrs
import msgspec

from ..connection.connection import connection_of
from ..protocol.limits import MAX_PAGE
from ..protocol.redaction import escape_unprintable
from ..stores import Bounds, RowQuery
from .arguments import add_database, open_existing, parse_count, parse_table
from .parser import add_examples

__all__ = ["SHOW", "Show"]


@attrs.frozen
class Show:
    """
    `tableorm show URL TABLE` prints rows as lines of JSON, in key order.

    The rows are printed as the service sends them: where JSON does not tell the type of a property, a second property
    `NAME@odata.type` does.
    """

    help: str = "show the rows of a table as lines of JSON"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_database(parser)
        parser.add_argument("table", metavar="TABLE", type=parse_table, help="name of the table")
        parser.add_argument("--partition", metavar="PK", help="only the rows with this PartitionKey")
        parser.add_argument("--limit", metavar="N", type=parse_count, help="how many rows to show at most")
        add_examples(parser, "local:./hr.tables Directory --limit 10", "local:./hr.tables Directory --partition Sales")

    async def run(self, args: argparse.Namespace) -> int:
        """Print the rows."""
        table: str = args.table
        limit: int | None = args.limit
        query = RowQuery(partition=Bounds() if args.partition is None else Bounds.only(args.partition))
        encode = msgspec.json.Encoder().encode
        continuation: str | None = None
        async with open_existing(args) as db:
            while True:
                size = MAX_PAGE if limit is None else min(limit, MAX_PAGE)
                store, _ = connection_of(db).sending("query", "")
                request = store.query(table, query, limit=size, continuation=continuation)
                page = await connection_of(db).call(f"show {table}", table, request)
                for row in page.rows:
                    sys.stdout.buffer.write(escape_unprintable(encode(row).decode()).encode() + b"\n")
                if limit is not None:
                    limit -= len(page.rows)
                continuation = page.continuation
                if continuation is None or limit == 0:
                    return 0


SHOW = Show()
