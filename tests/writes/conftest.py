"""
A database for each test of writes: in memory, and on the emulator of Azure; and a network that fails.
"""

import pytest

from tableorm import Database
from tableorm.testing import MemoryStore
from tests.database.conftest import db
from tests.faults import FaultyStore

__all__ = ["db", "network", "things"]


@pytest.fixture
def network() -> FaultyStore:
    """A network between a database and a store in memory, on which nothing fails yet."""
    return FaultyStore(MemoryStore())


@pytest.fixture
async def things(db: Database) -> Database:
    """The database, with the table Things."""
    await db.create_tables("Things")
    return db
