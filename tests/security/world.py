"""
What attacks have in common: a file with its owner, and a server of it.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tableorm_local import serve
from tableorm_local.engine import Engine
from tests.local.server.client import Api, root_of

__all__ = ["serve_file"]


@asynccontextmanager
async def serve_file(path: Path) -> AsyncGenerator[tuple[Engine, Api], None]:
    """Open a file with all rights, and serve it to a client that sends what it is told."""
    owner = Engine(path)
    await owner.open()
    try:
        async with serve(path, port=0) as server, aiohttp.ClientSession() as session:
            yield owner, Api(session, root_of(server))
    finally:
        await owner.close()
