"""
The command `tableorm stats`, which prints how many rows tables have, how large they are, and where they are.
"""

import argparse

import attrs

from ..advice import measure_table
from .arguments import ANY_TABLES, DATABASE, Argument, OwnCommand, count, number, open_existing, option
from .output import emit
from .progress import show_reading
from .tabular import TITLES, add_bars


async def _print_statistics(args: argparse.Namespace) -> int:
    """
    `tableorm stats URL [TABLE ...]` prints rows, bytes, kinds, the largest partitions and costs of tables.

    All tables are measured if none is named, each in full, or by a sample with `--sample`.

    Examples:
        tableorm stats local:./hr.tables
        tableorm stats local:./hr.tables Directory --sample 100
    """
    async with open_existing(args) as db:
        tables: list[str] = args.tables or await db.tables()
        if not tables and not args.json:
            print("no tables")
        for table in tables:
            measured = await measure_table(
                db, table, sample=args.sample, parallel=args.parallel, on_progress=show_reading(table)
            )
            said, text = measured.to_dict(), str(measured)
            if args.gib_price is not None or args.request_price is not None:
                cost = measured.cost(gib_price=args.gib_price or 0.0, request_price=args.request_price or 0.0)
                said["cost"] = attrs.asdict(cost)
                text += f"\n  cost: {cost.storage:.6g} a month for storage, {cost.scan:.6g} to read all rows once"
            emit(args, said, *add_bars(text.split("\n")), styles=TITLES, wrap=True)
    return 0


def _price(name: str, what: str) -> Argument:
    parse = number("a price, such as 0.045", 0, kind=float)
    return option(f"--{name}-price", metavar="PRICE", type=parse, help=f"price of {what}; prints costs")


STATS = OwnCommand(
    "count rows, bytes and kinds, and show the largest partitions",
    _print_statistics,
    *DATABASE,
    ANY_TABLES,
    count("--sample", "read only the first page of N evenly spaced ranges of each table"),
    count("--parallel", "number of key ranges to read in parallel", 8),
    _price("gib", "storing a GiB for a month"),
    _price("request", "10,000 requests"),
)
