"""
The command `tableorm show`, which prints rows.
"""

import sys
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from ..connection.connection import connection_of
from ..database.database import Database
from ..errors import ModelError
from ..expressions import PartitionKey
from ..models.entity import Entity, schema_of
from ..models.property_bag import PropertyBag
from ..protocol.limits import MAX_PAGE
from ..stores import Bounds, RowQuery
from .arguments import DATABASE, TABLE, OwnCommand, count, models, open_existing, option
from .output import report
from .query import values_of
from .tabular import Values, print_rows


async def _show(args: Namespace) -> int:
    """
    `tableorm show URL TABLE` prints rows as lines of JSON, in key order; with models entities by their fields.

    The rows are printed as the service sends them: where JSON does not tell the type of a property, a second property
    `NAME@odata.type` does.

    Examples:
        tableorm show local:./hr.tables Directory --limit 10
        tableorm show local:./hr.tables Directory --partition Sales
        tableorm show local:./hr.tables Directory hr.models
    """
    args.json = True
    async with open_existing(args) as db:
        await print_rows(args, (_read_entities if args.models else _read_rows)(db, args), ())
    return 0


async def _read_rows(db: Database, args: Namespace) -> AsyncGenerator[Values]:
    query = RowQuery(partition=Bounds() if args.partition is None else Bounds.only(args.partition))
    left: int = sys.maxsize if args.limit is None else args.limit
    async with aclosing(
        connection_of(db).read_rows(f"show {args.table}", args.table, query, min(left, MAX_PAGE))
    ) as rows:
        async for row in rows:
            yield row
            left -= 1
            if not left:
                return


async def _read_entities(db: Database, args: Namespace) -> AsyncGenerator[Values]:
    models = [model for model in args.models if schema_of(model).may_be_in(args.table)]
    if not models:
        raise ModelError(f"none of these models is in the table {args.table!r}; leave them out, or name others")
    select: Any = db.select
    query: Any = select(*models, PropertyBag).misfits(_report_misfit).allow_scan()
    if args.partition is not None:
        query = query.where(PartitionKey == args.partition)
    if args.limit is not None:
        query = query.limit(args.limit)
    async for found in query:
        named = {"model": type(found).__name__} if isinstance(found, Entity) else {}
        yield named | values_of(found)


def _report_misfit(error: Exception) -> None:
    report(str(error))


SHOW = OwnCommand(
    "show the rows of a table as lines of JSON",
    _show,
    *DATABASE,
    TABLE,
    models(plain_tables=True, optional=True),
    option("--partition", metavar="PK", help="only the rows with this PartitionKey"),
    count("--limit", "show at most N rows"),
)
