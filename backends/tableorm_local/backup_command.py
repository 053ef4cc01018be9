"""
The command `tableorm backup`, which copies a database file.
"""

import argparse

from tableorm.cli.arguments import OwnCommand, flag, option
from tableorm.cli.output import emit

from .engine.backup import back_up_file
from .file_argument import FILE, parse_path


def _back_up(args: argparse.Namespace) -> int:
    """
    `tableorm backup FILE TO` copies a database file as it is at one moment, and checks the copy.

    Examples:
        tableorm backup hr.tables hr-2026-11-29.tables
    """
    # In the main thread, so that Ctrl-C ends it before the copy has its name: another thread would complete it.
    back_up_file(args.file, args.copy, overwrite=args.overwrite)
    emit(args, {"file": args.file, "copy": args.copy}, f"{args.copy} is a copy of {args.file}, and in order")
    return 0


BACKUP = OwnCommand(
    "copy a database file while programs use it",
    _back_up,
    FILE,
    option("copy", metavar="TO", type=parse_path, help="name of the copy"),
    flag("--overwrite", "replace a file of that name"),
)
