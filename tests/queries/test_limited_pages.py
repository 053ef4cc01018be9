"""
How many rows a limit reads where conditions are evaluated here: few, if the range of keys was made by these conditions.
"""

import enum
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tableorm import Database, Entity, Index, Mapped, PropertyBag, Select, field
from tests.databases import memory_database


class State(enum.Enum):
    OPEN = "open"
    DONE = "done"


class Task(Entity, table="Tasks", partition_key="{team}", row_key="task_{state}_{id}"):
    team: Mapped[str]
    state: Mapped[State]
    id: Mapped[UUID]
    number: Mapped[int] = field(default=0)
    cost: Mapped[Decimal] = field(default=Decimal(1))
    note: Mapped[str | None] = field(default=None)


class Job(Entity, table="Tasks", partition_key="{team}", row_key="job_{number:04d}"):
    team: Mapped[str]
    number: Mapped[int]
    owner: Mapped[str] = field(default="ann")

    by_owner = Index(row_key="owner_{owner}_{number:04d}", include="keys")


class Note(Entity, table="Notes", partition_key="{team}", row_key="note_{topic}_{number:04d}"):
    team: Mapped[str]
    topic: Mapped[str]
    number: Mapped[int]


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    """A database with twenty tasks, twenty jobs, and ten notes of each of three topics."""
    async with memory_database(Task, Job, Note) as db:
        await fill(db)
        yield db


async def fill(db: Database) -> None:
    async with db.transaction() as tx:
        for number in range(20):
            state = State.DONE if number % 2 else State.OPEN
            tx.insert(Task(team="a", state=state, id=UUID(int=number), number=number))
            tx.insert(Job(team="a", number=number))
    async with db.transaction() as tx:
        for topic in ("x", "x_y", "z"):
            for number in range(10):
                tx.insert(Note(team="a", topic=topic, number=number))


def tasks(db: Database) -> Select[Task]:
    return db.select(Task).where(Task.team == "a")


QueryOf = Callable[[Database], Select[Any]]

SELECTIVE: list[tuple[QueryOf, list[int]]] = [
    (lambda db: tasks(db).where(Task.state == State.OPEN), [0, 2, 4]),
    (lambda db: tasks(db).where(Task.state.in_(list(State))), [1, 3, 5]),
    (lambda db: db.select(Job.by_owner).where(Job.team == "a", Job.owner == "ann"), [0, 1, 2]),
    (lambda db: db.select(Job.by_owner).where(Job.team == "a", Job.owner == "ann", Job.number >= 4), [4, 5, 6]),
]


@pytest.mark.parametrize(("query", "numbers"), SELECTIVE)
async def test_no_more_rows_are_asked_for_where_few_are_dropped(
    db: Database, query: QueryOf, numbers: list[int]
) -> None:
    """
    The keys of a text can also be those of a longer one, so that each row is looked at here; but as a rule none is
    dropped, and the first page has as many rows as are wanted. `explain` says the same; so it is for pages.
    """
    found = query(db).limit(3)
    with db.observe() as seen:
        assert [task.number for task in await found.all()] == numbers

    assert {request.top for request in seen.requests if request.operation == "query"} == {3}
    assert {request.top for request in found.explain().requests} == {3}
    assert found.explain().client_side
    with db.observe() as seen:
        first = await query(db).page(2)
        second = await query(db).page(1, first.cursor)
    assert [task.number for task in (*first.items, *second.items)] == numbers
    assert max(request.top or 0 for request in seen.requests) == 2


async def test_after_dropped_rows_a_full_page_is_asked_for(db: Database) -> None:
    """A key of topic "x_y" begins as those of "x" do: where such rows come first, one request more finds the rest."""
    await db.insert(Note(team="a", topic="x_!", number=1))
    with db.observe() as seen:
        found = await db.select(Note).where(Note.team == "a", Note.topic == "x").limit(11).all()

    assert [note.number for note in found] == list(range(10))
    assert [request.top for request in seen.requests] == [11, 1000]


OTHERS: list[QueryOf] = [
    lambda db: tasks(db).where(Task.cost < Decimal(2)),
    lambda db: tasks(db).where(Task.id == UUID(int=4)),
    lambda db: tasks(db).where((Task.state == State.OPEN) | (Task.state >= State.DONE)),
    lambda db: db.select(Task, Job).where(Task.team == "a", Task.state == State.OPEN),
    lambda db: db.select(Note, PropertyBag).where(Note.team == "a", Note.topic == "x"),
    lambda db: db.select(Note).where(Note.team == "a", Note.topic == "x", ~(Note.topic.in_(["y", "z"]))),
]


@pytest.mark.parametrize("query", OTHERS)
async def test_any_other_condition_that_is_evaluated_here_asks_for_full_pages(db: Database, query: QueryOf) -> None:
    """How many rows satisfy it is not known: one request for many rows costs as much as one for few."""
    assert {request.top for request in query(db).limit(3).explain().requests} == {1000}
