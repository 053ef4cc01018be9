"""
The command `tableorm inspect`, which proposes models for a table that other programs have written.
"""

import argparse
import sys

from ..advice import inspect_table
from .arguments import DATABASE, TABLE, OwnCommand, count, open_existing
from .output import emit
from .progress import show_reading


async def _inspect(args: argparse.Namespace) -> int:
    """
    `tableorm inspect URL TABLE > models.py` writes a module of models for the rows of a table.

    On stderr it says how many rows each model reads exactly, with examples of the others. The status is 1 if there are
    any.

    Examples:
        tableorm inspect local:./old.tables Customers
        tableorm inspect local:./old.tables Customers --rows 5000
    """
    async with open_existing(args) as db:
        proposal = await inspect_table(db, args.table, rows=args.rows, on_progress=show_reading(args.table))
    names = [model.name for model in proposal.models]
    emit(args, {"module": proposal.text, "models": names}, *proposal.text.removesuffix("\n").split("\n"))
    for model in proposal.models:
        print(model, file=sys.stderr)
    return int(any(model.exact < model.rows for model in proposal.models))


INSPECT = OwnCommand(
    "propose models for a table that other programs have written",
    _inspect,
    *DATABASE,
    TABLE,
    count("--rows", "read about N rows, the first of evenly spread ranges of keys"),
)
