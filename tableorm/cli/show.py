"""
The command `tableorm show`, which prints rows.
"""

import argparse
import sys
from contextlib import aclosing
from typing import Any

import msgspec

from ..connection.connection import connection_of
from ..database.database import Database
from ..errors import ModelError
from ..expressions import PartitionKey
from ..models.entity import Entity, schema_of
from ..models.property_bag import PropertyBag
from ..protocol.limits import MAX_PAGE
from ..protocol.redaction import escape_unprintable
from ..queries.select import Select
from ..stores import Bounds, RowQuery
from .arguments import add_count, add_database, add_models, open_existing, parse_table
from .output import report, to_json
from .query import values_of


class Show:
    """
    `tableorm show URL TABLE` prints rows as lines of JSON, in key order; with models entities by their fields.

    The rows are printed as the service sends them: where JSON does not tell the type of a property, a second property
    `NAME@odata.type` does.

    Examples:
        tableorm show local:./hr.tables Directory --limit 10
        tableorm show local:./hr.tables Directory --partition Sales
        tableorm show local:./hr.tables Directory hr.models
    """

    help = "show the rows of a table as lines of JSON"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_database(parser)
        parser.add_argument("table", metavar="TABLE", type=parse_table, help="name of the table")
        add_models(parser, plain_tables=True, optional=True)
        parser.add_argument("--partition", metavar="PK", help="only the rows with this PartitionKey")
        add_count(parser, "--limit", "how many rows to show at most")

    async def run(self, args: argparse.Namespace) -> int:
        """Print the rows."""
        async with open_existing(args) as db:
            await (_show_entities if args.models else _show_rows)(db, args)
        return 0


async def _show_rows(db: Database, args: argparse.Namespace) -> None:
    query = RowQuery(partition=Bounds() if args.partition is None else Bounds.only(args.partition))
    encode = msgspec.json.Encoder().encode
    left: int = sys.maxsize if args.limit is None else args.limit
    found = connection_of(db).read_pages(f"show {args.table}", args.table, query, min(left, MAX_PAGE))
    async with aclosing(found):
        async for page in found:
            for row in page.rows[:left]:
                sys.stdout.buffer.write(escape_unprintable(encode(row).decode()).encode() + b"\n")
            left -= len(page.rows)
            if left <= 0:
                return


async def _show_entities(db: Database, args: argparse.Namespace) -> None:
    models = [model for model in args.models if schema_of(model).may_be_in(args.table)]
    if not models:
        raise ModelError(f"none of these models is in the table {args.table!r}; leave them out, or name others")
    select: Any = db.select
    query: Select[Entity | PropertyBag] = select(*models, PropertyBag).misfits(_report_misfit)
    if args.partition is not None:
        query = query.where(PartitionKey == args.partition)
    if args.limit is not None:
        query = query.limit(args.limit)
    async for found in query.allow_scan():
        named = {"model": type(found).__name__} if isinstance(found, Entity) else {}
        print(to_json(named | values_of(found)))


def _report_misfit(error: Exception) -> None:
    report(str(error))


SHOW = Show()
