"""
What commands on a database file share: its argument, and the engine that opens it.
"""

import argparse
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tableorm.cli.arguments import option
from tableorm.errors import Unavailable
from tableorm.protocol.codes import Fault

from .engine import Engine


def parse_path(text: str) -> str:
    """Return the path that a command-line argument gives; reject a URL, which other commands take."""
    path = text.removeprefix("local:")
    if path != text:
        raise argparse.ArgumentTypeError(f"{text!r} is a URL; give the path, {path}")
    return path


FILE = option("file", metavar="FILE", type=parse_path, help="path of the database file")
"""The database file that a command is for."""


@asynccontextmanager
async def open_engine(file: str) -> AsyncGenerator[Engine]:
    """
    Open the engine of a database file.

    Raises:
        Unavailable: There is no such file, or it is damaged.
    """
    engine = Engine(file, create=False)
    await engine.open()
    try:
        yield engine
    except Fault as fault:
        raise Unavailable(fault.message) from fault
    finally:
        await engine.close()
