"""
Databases in memory that tests open, with the tables of their models.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tableorm import Database, Entity, connect


@asynccontextmanager
async def memory_database(*tables: type[Entity] | str, **options: Any) -> AsyncGenerator[Database]:
    """
    Open a database in memory.

    Args:
        tables: Models whose tables it has, and names of tables.
        options: Other arguments of `connect`.
    """
    async with connect("local::memory:", **options) as db:
        await db.create_tables(*tables)
        yield db


def database_fixture(*tables: type[Entity] | str, **options: Any) -> Any:
    """Return a fixture: such a database for each test."""

    @pytest.fixture
    async def open_database() -> AsyncIterator[Database]:
        async with memory_database(*tables, **options) as db:
            yield db

    return open_database
