"""
Workers on Azurite: an index, a workflow and the queue, as the service has them.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm import Database, Workflow, workflow
from tableorm.connection.connection import connection_of
from tableorm.outbox import shared_bell
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.outbox.worker import Outcome
from tableorm.testing import temporary_database
from tableorm.writes import deferred
from tests.azurite import Azurite
from tests.outbox.staff import Person, committed_decisions, extra_entries, wrong_entries


@workflow("welcome")
class Welcome(Workflow[Person]):
    async def find_desk(self, db: Database) -> str:
        return "desk 7"

    async def greet(self, db: Database) -> None:
        def greet(person: Person) -> None:
            person.name = f"{self.arguments} of {self.key.row_key}"

        await db.modify(self.key, greet)


@pytest.fixture
async def db(azurite: Azurite) -> AsyncIterator[Database]:
    async with temporary_database(azurite.connection_string, Person) as db:
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
    assert await wrong_entries(db.store) == [] and await extra_entries(db.store) == set()


async def test_a_worker_goes_on_after_a_crash(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What writers have left after their commit is done by a worker: entries, and the steps of a workflow."""

    async def die(self: deferred.Deferral) -> None: ...

    monkeypatch.setattr(shared_bell, "HIDDEN_SECONDS", 0)
    monkeypatch.setattr(deferred.Deferral, "finish", die)
    for number in range(3):
        await db.insert(Person(team="red", id=number, city="Rome"))
    monkeypatch.undo()
    person = Person(team="red", id=9, city="Oslo")
    async with db.transaction() as tx:
        tx.insert(person)
        tx.start(Welcome, person)
    assert len(await committed_decisions(db.store)) == 4
    async with db.worker(Person, Welcome) as worker:
        await worker.drain()

    assert worker.counts[Outcome.DONE] == 4
    assert await committed_decisions(db.store) == []
    assert await wrong_entries(db.store) == [] and await extra_entries(db.store) == set()
    assert (await db.get(Person, team="red", id=9)).name == "desk 7 of person_009"
    assert await outbox_queues(connection_of(db)).length(OUTBOX) == 0
