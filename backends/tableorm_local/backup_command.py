"""
The command `tableorm backup`, which copies a database file.
"""

import argparse

from tableorm.cli.arguments import add_flag
from tableorm.cli.output import emit

from .engine.backup import back_up_file
from .file_argument import add_file, parse_path


class Backup:
    """
    `tableorm backup FILE TO` copies a database file as it is at one moment, and checks the copy.

    Examples:
        tableorm backup hr.tables hr-2026-11-29.tables
    """

    help = "copy a database file while programs use it"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_file(parser)
        parser.add_argument("copy", metavar="TO", type=parse_path, help="name of the copy")
        add_flag(parser, "--overwrite", "replace a file of that name")

    def run(self, args: argparse.Namespace) -> int:
        """Copy the file, and print its name."""
        # In the main thread, so that Ctrl-C ends it before the copy has its name: another thread would complete it.
        back_up_file(args.file, args.copy, overwrite=args.overwrite)
        emit(args, {"file": args.file, "copy": args.copy}, f"{args.copy} is a copy of {args.file}, and in order")
        return 0


BACKUP = Backup()
