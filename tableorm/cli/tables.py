"""
The command `tableorm tables`, which lists the tables of a database.
"""

import argparse

from .arguments import add_database, open_existing
from .output import emit, report


class Tables:
    """
    `tableorm tables URL` prints the names of the tables, one per line.

    Examples:
        tableorm tables local:./hr.tables
        tableorm tables https://hr.table.core.windows.net
    """

    help = "list the tables"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_database(parser)

    async def run(self, args: argparse.Namespace) -> int:
        """Print the names."""
        async with open_existing(args) as db:
            names = await db.tables()
            for name in names:
                emit(args, {"table": name}, name)
        if not names:
            report("there are no tables", "dim")
        return 0


TABLES = Tables()
