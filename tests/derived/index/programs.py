"""
Two programs that share a file.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tableorm import Database, connect


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    """Open a program."""
    async with connect(f"local:{tmp_path / 'states.tables'}") as program:
        yield program


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[Database]:
    """Open one more program on the same tables, with a connection of its own."""
    async with connect(f"local:{tmp_path / 'states.tables'}") as program:
        yield program
