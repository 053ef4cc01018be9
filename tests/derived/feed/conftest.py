"""
A database in memory for each test, with the table of the models that have change feeds.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm import Database
from tableorm.testing import temporary_database
from tests.azurite import Azurite
from tests.derived.feed.staff import Employee


@pytest.fixture
async def db(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """In memory, or where the test says so on the emulator of Azure."""
    url = "local::memory:"
    if getattr(request, "param", "memory") == "azurite":
        emulator: Azurite = request.getfixturevalue("azurite")
        url = emulator.connection_string
    async with temporary_database(url, Employee) as database:
        yield database
