"""
The command `tableorm browse`, which shows tables in the terminal, or in a browser.
"""

import argparse
import importlib
import json
import os
import sys
from typing import Any

from ..errors import NotSupported
from .arguments import DATABASE, OwnCommand, flag, models, open_existing, option, parse_port
from .command_line import main
from .conditions import parse_where
from .output import emit, report

# The arguments of the program of a page, which other users of the machine must not see: they can hold a key.
_ARGUMENTS = "TABLEORM_BROWSE"


async def _browse(args: argparse.Namespace) -> int:
    """
    `tableorm browse URL [MODULE[:MODEL] ...]` shows tables, entities, and what a query would send before it runs.

    Nothing is written without `--write`. With `--web` it prints the address of a page that shows the same.

    Examples:
        tableorm browse local:./hr.tables
        tableorm browse local:./hr.tables hr.models
        tableorm browse local:./hr.tables hr.models --web
        tableorm browse local:./hr.tables hr.models --write
    """
    if not args.web and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise NotSupported("tableorm browse needs a terminal; give --web for a page that shows the same")
    async with open_existing(args) as db:
        if not args.web or _ARGUMENTS in os.environ:
            await _load("app").Explorer(db, args.models, parse_where, write=args.write).run_async()
            return 0
    os.environ[_ARGUMENTS] = json.dumps(sys.argv[1:])

    def show(url: str) -> None:
        emit(args, {"url": url}, url)

    await _load("web").serve([sys.executable, "-m", __spec__.name], args.port, show)
    report("stopped; the page is no longer served", "dim")
    return 0


def _load(module: str) -> Any:
    """Return a module of the explorer."""
    try:
        return importlib.import_module(f"tableorm.explorer.{module}")
    except ModuleNotFoundError as error:
        raise NotSupported(f"tableorm browse needs {error.name}: install tableorm with its extra 'browse'") from error


BROWSE = OwnCommand(
    "explore tables, in the terminal or in a browser",
    _browse,
    *DATABASE,
    models(optional=True),
    flag("--web", "print the address of a page for a browser of this machine"),
    flag("--write", "allow deleting rows and changing their values"),
    option("--port", metavar="N", type=parse_port, default=0, help="the port of the page; default: any free one"),
)

if __name__ == "__main__":
    sys.exit(main(json.loads(os.environ[_ARGUMENTS])))
