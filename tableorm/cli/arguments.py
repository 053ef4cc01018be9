"""
What several commands share: arguments, and how they are parsed.
"""

import argparse

from ..database.connect import connect
from ..database.database import Database

__all__ = ["URL_HELP", "open_existing", "parse_count"]

URL_HELP = "what to open, as for tableorm.connect: local:./hr.tables"


def open_existing(url: str) -> Database:
    """Open a database that exists already."""
    # A mistyped path must not become an empty database.
    return connect(url, create=False) if url.startswith("local:") else connect(url)


def parse_count(text: str) -> int:
    """Return the whole number from 1 up that a command-line argument gives."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)
