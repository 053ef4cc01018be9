"""
The same databases as for the verbs: in memory, on the emulator of Azure, and in a file where a test asks for it.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tableorm import Database, connect
from tests.azurite import Azurite
from tests.derived.patterns.firm import Badge, Department, Employee


@pytest.fixture(params=["memory", "azurite"])
async def db(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    if request.param == "azurite":
        emulator: Azurite = request.getfixturevalue("azurite")
        async with connect(emulator.connection_string) as database:
            await database.create_tables(Department, Employee, Badge)
            yield database
            for name in await database.tables():
                await database.drop_table(name)
        return
    url = f"local:{tmp_path}/test.tables" if request.param == "file" else "local::memory:"
    async with connect(url) as database:
        await database.create_tables(Department, Employee, Badge)
        yield database
