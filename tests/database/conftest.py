"""
A database for each test, once in a file and once in memory.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tableorm import Database, connect


@pytest.fixture(params=["file", "memory"])
async def db(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    url = f"local:{tmp_path}/test.tables" if request.param == "file" else "local::memory:"
    async with connect(url) as database:
        yield database
