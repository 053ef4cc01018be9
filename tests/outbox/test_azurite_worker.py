"""
A writer and a worker on Azurite, which has queues.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm import Database
from tableorm.testing import temporary_database
from tests.azurite import Azurite
from tests.outbox.staff import MODELS, Person, find_problems


@pytest.fixture
async def db(azurite: Azurite) -> AsyncIterator[Database]:
    async with temporary_database(azurite.connection_string, *MODELS) as db:
        yield db


async def test_nothing_is_left_to_workers(db: Database) -> None:
    """A writer that does not crash takes its message back, without having taken it."""
    person = Person(team="red", id=1, name="Ann", city="Rome")
    await db.insert(person)
    person.city = "Oslo"
    await db.save(person)
    async with db.worker(Person) as worker:
        await worker.drain()

    assert worker.counts == {}
    assert await find_problems(db) == []
