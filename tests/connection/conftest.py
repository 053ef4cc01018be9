"""
A database for each test: in a file, in memory, on a server, and on the emulator of Azure.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tableorm import Database, connect
from tableorm_local import Account, serve
from tests.azurite import Azurite

KEY = "a2V5"

Connect = Callable[..., Database]
"""Makes a database of the URL under test, with other arguments of `connect`."""


@pytest.fixture(params=["file", "memory", "server", "azurite"])
async def connecting(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Connect]:
    """`connect` to one backend after the other."""
    path = tmp_path / "test.tables"
    async with AsyncExitStack() as stack:
        url, given = f"local:{path}", dict[str, Any]()
        if request.param == "memory":
            url = "local::memory:"
        elif request.param == "azurite":
            emulator: Azurite = request.getfixturevalue("azurite")
            url = emulator.connection_string
        elif request.param == "server":
            account = Account(name="contoso", keys=(KEY,))
            server = await stack.enter_async_context(serve(path, port=0, accounts=[account]))
            url, given = server.url, {"key": KEY}

        def make(**arguments: Any) -> Database:
            return connect(url, **given, **arguments)

        yield make
        if request.param == "azurite":
            # It outlives the test, and the next one begins with nothing.
            async with connect(url) as db:
                for name in await db.tables():
                    await db.drop_table(name)
