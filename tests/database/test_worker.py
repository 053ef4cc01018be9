"""
`db.worker`: which workers it makes, and which it refuses.
"""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from tableorm import AccessDenied, Database, Entity, Mapped, ModelError, NotSupported, Outcome, Workflow, connect
from tableorm.connection.connection import connection_of
from tableorm.outbox.bell import ring
from tableorm.outbox.decision import Decision, Work, read_decision
from tableorm.outbox.doorbell import Begun, Doorbell
from tests.databases import memory_database
from tests.rows import insert_row


class Person(Entity, abstract=True, partition_key="{team}", table="Staff"):
    team: Mapped[str]
    id: Mapped[int]


class Employee(Person, row_key="empid_{id}", version=3):
    pass


class Guest(Person, row_key="guest_{id}"):
    pass


class Double(Entity, kind="Guest", table="Guests", partition_key="{team}", row_key="guest_{id}"):
    team: Mapped[str]
    id: Mapped[int]


class Plain(Entity, kind=None, table="Plain", partition_key="{team}", row_key="{id}"):
    team: Mapped[str]
    id: Mapped[int]


async def begin(db: Database, token: str, kind: str) -> None:
    """Commit a change that has nothing left to do, and ring for it."""
    begun = Begun(table="Staff", partition_key="red", token=token)
    await ring(connection_of(db), Doorbell(changes=(begun,), kinds=(kind,)), delay_seconds=0)
    decision = Decision(partition_key="red", token=token, works=(Work(kind=kind, row_key="empid_1"),))
    await insert_row(db, "Staff", decision.to_row())


async def test_a_worker_knows_all_older_versions() -> None:
    """An abstract base stands for its models; changes of their versions up to now are carried out, others are left."""
    kinds = {"Employee": True, "Employee:2": True, "Employee:3": True, "Guest": True, "Employee:4": False}
    async with memory_database(Employee) as db:
        for number, kind in enumerate(kinds):
            await begin(db, f"token_{number:07d}", kind)
        async with db.worker(Person) as worker:
            await worker.drain()

        assert worker.counts == {Outcome.DONE: 4, Outcome.LEFT: 1}
        connection = connection_of(db)
        left = [await read_decision(connection, "Staff", "red", f"token_{number:07d}") for number in range(5)]
        assert [decision is None for decision in left] == list(kinds.values())


@pytest.mark.parametrize(
    ("models", "options", "problem"),
    [
        ((), {}, "name the models"),
        ((Plain,), {}, "Plain.*kind=None"),
        ((Guest, Double), {}, "Guest and Double have one kind"),
        ((Guest, Workflow), {}, "is not a workflow"),
        (("Guest",), {}, "Guest"),
        ((Guest,), {"concurrency": 0}, "concurrency=0"),
        ((Guest,), {"visibility": 1.5}, r"visibility=1\.5"),
        ((Guest,), {"tries": True}, "tries=True"),
    ],
)
async def test_workers_that_are_refused(models: Any, options: Any, problem: str) -> None:
    """A worker names models with kinds that tell them apart, and whole numbers."""
    async with connect("local::memory:") as db:
        with pytest.raises(ModelError, match=problem):
            db.worker(*models, **options)


async def test_a_worker_of_a_scope() -> None:
    """A scope has no worker, since the messages are of whole tables."""
    async with connect("local::memory:") as db:
        with pytest.raises(AccessDenied, match="worker"):
            db.scope(Employee, team="red").worker(Employee)


async def test_a_worker_with_a_token(tmp_path: Path) -> None:
    """A database that a token opens has no queues, which is said."""
    url = f"local:{tmp_path / 'db.tables'}"
    async with connect(url) as db:
        await db.create_tables(Employee)
        token = await db.grant(Employee, "raud", dt.timedelta(hours=1))
    async with connect(url, sas=str(token)) as limited:
        with pytest.raises(NotSupported, match=r"shared access signature.*queues"):
            limited.worker(Employee)
