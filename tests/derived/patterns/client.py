"""
A client that writes employees and their department at random.
"""

import random
from collections.abc import Awaitable, Callable

from tableorm import Conflict, Database, EntityNotFound, OutcomeUnknown, TransactionFailed, Unavailable
from tests.derived.patterns.firm import Department, Employee

TRUE_ERRORS = (Conflict, EntityNotFound, TransactionFailed, OutcomeUnknown, Unavailable)
"""What a write may raise that lost a race, or of which the reply was lost."""


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
