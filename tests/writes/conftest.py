"""
A database for each test of writes: in memory, and on the emulator of Azure; and a network that fails.
"""

import pytest

from tableorm import Database
from tests.database.conftest import db, network

__all__ = ["db", "network", "things"]


@pytest.fixture
async def things(db: Database) -> Database:
    """The database, with the table Things."""
    await db.create_tables("Things")
    return db
