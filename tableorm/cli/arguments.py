"""
What several commands share: arguments, and how they are parsed.
"""

import argparse
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from ..database.connect import connect, find_backend
from ..database.database import Database
from ..errors import NotSupported
from ..stores import RetryPolicy

__all__ = ["add_database", "open_existing", "parse_count", "parse_url"]

_URL = "TABLEORM_URL"
_RETRY = RetryPolicy(attempts=8)  # some seconds, since somebody waits at the prompt
_CREDENTIALS = {"key": "TABLEORM_KEY", "sas": "TABLEORM_SAS"}


def add_database(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that say which database to open."""
    parser.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        type=parse_url,
        default=os.environ.get(_URL, ""),
        help=f"what to open, as for tableorm.connect: local:./hr.tables; may be left out where {_URL} is set",
    )
    parser.add_argument("--prefix", default="", help="what the names of all tables begin with, as for tableorm.connect")


@asynccontextmanager
async def open_existing(args: argparse.Namespace) -> AsyncGenerator[Database]:
    """
    Open the database that the arguments name, which exists already, with the credential that the environment gives.

    Raises:
        NotSupported: There are two credentials, or nothing opens such a URL.
    """
    local = args.url.startswith("local:")
    # A mistyped path must not become an empty database.
    options: dict[str, Any] = {"create": False} if local else {}
    # What stands beside the URL of the environment belongs to it: another host must not get that token.
    if not local and args.url == (os.environ.get(_URL) or args.url):
        options |= {name: os.environ[variable] for name, variable in _CREDENTIALS.items() if os.environ.get(variable)}
    async with AsyncExitStack() as opened:
        find_credential = getattr(find_backend(args.url), "find_credential", None)
        credential = None if options or find_credential is None else find_credential(args.url)
        if credential is not None:
            options["credential"] = await opened.enter_async_context(credential)
        try:
            db = connect(args.url, prefix=args.prefix, retry=_RETRY, **options)
        except TypeError as error:
            given = ", ".join(f"{name} is {variable}" for name, variable in _CREDENTIALS.items())
            raise NotSupported(f"{error} ({given})") from error
        yield await opened.enter_async_context(db)


def parse_url(text: str) -> str:
    """Return the URL that a command-line argument or the environment gives; refuse the empty one of neither."""
    if not text:
        raise argparse.ArgumentTypeError(f"no database is named; give its URL first, or set {_URL}")
    return text


def parse_count(text: str) -> int:
    """Return the whole number from 1 up that a command-line argument gives."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)
