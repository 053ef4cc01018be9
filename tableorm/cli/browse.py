"""
The command `tableorm browse`, which shows tables in the terminal, or in a browser.
"""

import argparse
import asyncio
import importlib
import json
import os
import sys
from typing import Any

import attrs

from ..errors import NotSupported
from ..models.entity import Entity, schema_of
from .arguments import add_database, find_targets, open_existing, parse_count
from .command_line import main

__all__ = ["BROWSE", "Browse"]

# The arguments of the program of a page, which other users of the machine must not see: they can hold a key.
_ARGUMENTS = "TABLEORM_BROWSE"


@attrs.frozen
class Browse:
    """
    `tableorm browse URL [MODULE]` shows tables, the entities of models, and what a query would cost before it runs.

    Nothing is written. With `--web` it prints the address of a page that shows the same.

    Examples:
        tableorm browse local:./hr.tables
        tableorm browse local:./hr.tables hr.models --web
    """

    help: str = "look at tables, in the terminal or in a browser"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_database(parser)
        parser.add_argument(
            "module",
            metavar="MODULE",
            nargs="?",
            help="a module with models whose entities are shown as such: hr.models",
        )
        parser.add_argument(
            "--web", action="store_true", help="print the address of a page, for a browser of this machine"
        )
        parser.add_argument("--port", metavar="N", type=parse_count, default=0, help="the port of the page")

    def run(self, args: argparse.Namespace) -> int:
        """Show the tables."""
        return asyncio.run(self._run(args))

    async def _run(self, args: argparse.Namespace) -> int:
        found: list[type[Entity]] = find_targets(args.module, (Entity,)) if args.module else []
        async with open_existing(args) as db:
            if not args.web or _ARGUMENTS in os.environ:
                models = [each for each in found if not schema_of(each).abstract]
                await _load("app").Explorer(db, models).run_async()
                return 0
        os.environ[_ARGUMENTS] = json.dumps(sys.argv[1:])
        await _load("web").serve([sys.executable, "-m", __spec__.name], args.port)
        return 0


def _load(module: str) -> Any:
    """Return a module of the explorer."""
    try:
        return importlib.import_module(f"tableorm.explorer.{module}")
    except ModuleNotFoundError as error:
        raise NotSupported(f'tableorm browse needs {error.name}: pip install "tableorm[browse]"') from error


BROWSE = Browse()

if __name__ == "__main__":
    sys.exit(main(json.loads(os.environ[_ARGUMENTS])))
