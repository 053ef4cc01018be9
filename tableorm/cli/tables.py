"""
The command `tableorm tables`, which lists the tables of a database.
"""

import argparse

from .arguments import DATABASE, OwnCommand, open_existing
from .output import emit, report


async def _list_tables(args: argparse.Namespace) -> int:
    """
    `tableorm tables URL` prints the names of the tables, one per line.

    Examples:
        tableorm tables local:./hr.tables
        tableorm tables https://hr.table.core.windows.net
    """
    async with open_existing(args) as db:
        names = await db.tables()
        for name in names:
            emit(args, {"table": name}, name)
    if not names:
        report("there are no tables", "dim")
    return 0


TABLES = OwnCommand("list the tables", _list_tables, *DATABASE)
