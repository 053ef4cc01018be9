"""
What several commands share: arguments, and how they are parsed.
"""

import argparse
from typing import Any

from ..database.connect import connect
from ..database.database import Database

__all__ = ["add_database", "open_existing", "parse_count"]


def add_database(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that say which database to open."""
    parser.add_argument("url", metavar="URL", help="what to open, as for tableorm.connect: local:./hr.tables")
    parser.add_argument("--prefix", default="", help="what the names of all tables begin with, as for tableorm.connect")


def open_existing(args: argparse.Namespace) -> Database:
    """Open the database that the arguments name, which exists already."""
    # A mistyped path must not become an empty database.
    options: dict[str, Any] = {"create": False} if args.url.startswith("local:") else {}
    return connect(args.url, prefix=args.prefix, **options)


def parse_count(text: str) -> int:
    """Return the whole number from 1 up that a command-line argument gives."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)
