"""
Fixtures of the server's tests: a server on a free port, and a client that sends what it is told.
"""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tableorm_local.server import Server, serve
from tests.local.server.client import Api, Wire, root_of


@pytest.fixture(autouse=True)
async def close_wires() -> AsyncIterator[None]:
    yield
    for wire in [*Wire.opened]:
        await wire.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server of a database in memory, with the development account."""
    async with serve(None, port=0) as server:
        yield server


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """Connections."""
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def api(server: Server, session: aiohttp.ClientSession) -> Api:
    """A client of the server, with the empty table `T`."""
    api = Api(session, root_of(server))
    assert (await api("POST", "/Tables", {"TableName": "Tab"})).status == 201
    return api
