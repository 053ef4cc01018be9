"""
Fixtures of the tests of hostile clients and files: a server on a free port, a file with its owner and a server of it,
and clients that send what they are told.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tableorm_local import serve
from tableorm_local.engine import Engine
from tests.local.server.client import Api, root_of
from tests.local.server.conftest import api, server, session

__all__ = ["api", "file_api", "owner", "server", "session"]


@pytest.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Engine]:
    """The file itself, with all rights."""
    engine = Engine(tmp_path / "data.tables")
    await engine.open()
    yield engine
    await engine.close()


@pytest.fixture
async def file_api(owner: Engine, tmp_path: Path) -> AsyncIterator[Api]:
    """A client of a server of the owner's file."""
    async with serve(tmp_path / "data.tables", port=0) as server, aiohttp.ClientSession() as session:
        yield Api(session, root_of(server))
    assert owner is not None
