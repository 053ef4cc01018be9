"""
The same databases as for the verbs: in memory, on the emulator of Azure, and in a file where a test asks for it.
"""

import pytest

from tableorm import Database
from tests.derived.patterns.firm import Badge, Department, Employee


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Department, Employee, Badge)
    return db
