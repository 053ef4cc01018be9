"""
What several commands share: arguments, how they are parsed, and how names are printed.
"""

import argparse

from ..database.connect import connect
from ..database.database import Database

__all__ = ["URL_HELP", "escape_unprintable", "open_existing", "parse_count"]

URL_HELP = "what to open, as for tableorm.connect: local:./hr.tables"


def open_existing(url: str) -> Database:
    """Open a database that exists already."""
    # A mistyped path must not become an empty database.
    return connect(url, create=False) if url.startswith("local:") else connect(url)


def escape_unprintable(text: str) -> str:
    r"""Return the text with `\uXXXX`, as in JSON, for what a terminal would obey instead of showing it."""
    return text if text.isprintable() else "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def parse_count(text: str) -> int:
    """Return the whole number from 1 up that a command-line argument gives."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)
