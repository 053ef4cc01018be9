"""
Programs that share a file.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tableorm import Database, connect

Open = Callable[[], Awaitable[Database]]


@pytest.fixture
async def open_program(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens one more program on the same tables, each with a connection of its own."""
    opened: list[Database] = []

    async def open_one() -> Database:
        opened.append(await connect(f"local:{tmp_path / 'states.tables'}").open())
        return opened[-1]

    yield open_one
    for each in opened:
        await each.close()
