"""
A database for each test: in memory, and on the emulator of Azure; and in a file where writers and readers meet.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tableorm import Database, connect
from tableorm.testing import MemoryStore
from tests.azurite import Azurite
from tests.faults import FaultyStore

also_in_file = pytest.mark.parametrize("db", ["file", "memory", "azurite"], indirect=True)
"""Of tests in which several tasks read and write: a file is read beside its writer, which is a thread of its own."""


@pytest.fixture(params=["memory", "azurite"])
async def db(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    if request.param == "azurite":
        emulator: Azurite = request.getfixturevalue("azurite")
        async with connect(emulator.connection_string) as database:
            yield database
            # It outlives the test, and the next one begins with nothing.
            for name in await database.tables():
                await database.drop_table(name)
        return
    url = f"local:{tmp_path}/test.tables" if request.param == "file" else "local::memory:"
    async with connect(url) as database:
        yield database


@pytest.fixture
def network() -> FaultyStore:
    """A network between a database and a store in memory, on which nothing fails yet."""
    return FaultyStore(MemoryStore())
