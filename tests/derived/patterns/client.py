"""
Random writes by several clients, on stores that work and behind a network that loses: what is derived stays right.

There are two witnesses: what the models of the tests say, and audits.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

from tableorm import Conflict, Database, EntityNotFound, OutcomeUnknown, TransactionFailed, Unavailable
from tableorm.testing import MemoryStore
from tests.derived.patterns.firm import Department, Employee, assert_consistent
from tests.faults import QUICK, Fate, FaultyBackend, FaultyStore
from tests.torture import seeds

TRUE_ERRORS = (Conflict, EntityNotFound, TransactionFailed, OutcomeUnknown, Unavailable)
"""What a write may raise that lost a race, or of which the reply was lost."""


async def assert_right(db: Database) -> None:
    """Neither finds anything wrong."""
    await assert_consistent(db)
    report = await db.audit(Department, Employee)
    assert [str(each) for each in report.findings] == []
    assert not report.undecided


class Client:
    """Writes employees and their department at random."""

    def __init__(self, db: Database, seed: int, people: int = 8) -> None:
        self.db, self.random, self.people = db, random.Random(seed), people

    def employee(self) -> Employee:
        pick = self.random
        return Employee(
            department="Sales",
            id=pick.randrange(self.people),
            name=pick.choice("ABC"),
            last_name=pick.choice(["Li", "Wu", None]),
            salary=pick.choice([None, 0, 5, 50]),
        )

    def change(self, employee: Employee) -> None:
        """Another employee, with the same key."""
        other = self.employee()
        employee.name, employee.last_name, employee.salary = other.name, other.last_name, other.salary

    def appoint(self, department: Department) -> None:
        department.manager_id = self.random.choice([None, self.random.randrange(self.people)])

    def remark(self, department: Department) -> None:
        department.note = self.random.choice(["x", "y", None])

    async def step(self) -> None:
        """One write; it may fail as a write may."""
        db, pick = self.db, self.random
        key = Employee.key(department="Sales", id=pick.randrange(self.people))
        head = Department.key(name="Sales")

        async def both() -> None:
            async with db.transaction() as tx:
                tx.upsert(self.employee(), mode=pick.choice(["merge", "replace"]))
                await tx.modify(head, self.appoint)

        async def swap() -> None:
            async with db.transaction() as tx:
                one = await tx.get(key)
                tx.delete(one)
                tx.insert(self.employee())

        async def replaced() -> None:
            await db.replace(self.employee(), if_match="*")

        async def merged() -> None:
            await db.merge(
                Employee(department="Sales", id=pick.randrange(self.people), salary=9), ["salary"], if_match="*"
            )

        steps: list[Callable[[], Awaitable[object]]] = [
            lambda: db.insert(self.employee()),
            lambda: db.upsert(self.employee(), mode=pick.choice(["merge", "replace"])),
            lambda: db.modify(key, self.change),
            lambda: db.delete(key, if_match="*"),
            lambda: db.delete(key, if_match="*", missing_ok=True),
            lambda: db.modify(head, self.appoint),
            lambda: db.modify(head, self.remark),
            lambda: db.upsert(Department(name="Sales", note="z")),
            both,
            swap,
            replaced,
            merged,
        ]
        try:
            await pick.choice(steps)()
        except TRUE_ERRORS:
            pass
        except ExceptionGroup as group:
            if group.split(TRUE_ERRORS)[1] is not None:
                raise


@seeds(1, 40)
async def test_one_client(db: Database, seed: int) -> None:
    """After each write everything derived is what the employees make it."""
    await db.insert(Department(name="Sales"))
    client = Client(db, seed)
    for number in range(60):
        await client.step()
        if number % 6 == 0:
            await assert_right(db)
    await assert_right(db)


async def test_several_clients(db: Database) -> None:
    """Races are lost and run again; at rest nothing is wrong."""
    await db.insert(Department(name="Sales"))

    async def work(seed: int) -> None:
        client = Client(db, seed)
        for _ in range(25):
            await client.step()

    await asyncio.gather(*map(work, range(6)))

    await assert_right(db)


@seeds(4, 200)
async def test_behind_a_network_that_loses(seed: int) -> None:
    """Whatever is lost, late or delivered twice: nothing is counted twice, and nothing is forgotten."""
    network = FaultyStore(MemoryStore())
    backend = FaultyBackend()
    backend.tables = network
    pick = random.Random(seed)
    # Two databases, whose writers do not wait for each other.
    async with Database(backend, retry=QUICK) as db, Database(backend, retry=QUICK) as other:
        await db.create_tables(Department, Employee)
        await db.insert(Department(name="Sales"))
        clients = [Client(each, seed * 10 + number, people=5) for number, each in enumerate((db, other))]
        for _ in range(12):
            network.plan(*(pick.choice(list(Fate)) for _ in range(8)))
            await asyncio.gather(*(client.step() for client in clients for _ in range(2)))
            network.plan()
            await network.deliver()
            await assert_right(db)
