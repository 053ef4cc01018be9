"""
The same databases as for the verbs: in a file, in memory, and on the emulator of Azure.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tableorm import Database, connect
from tests.azurite import Azurite
from tests.derived.patterns.firm import Badge, Department, Employee


@pytest.fixture(params=["file", "memory", "azurite"])
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
