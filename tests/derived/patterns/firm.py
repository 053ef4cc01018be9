"""
Departments that count, sum and name their employees, and what their rows must be: worked out from the entities alone.
"""

import asyncio
import contextlib
import random
from collections import Counter

from tableorm import Conflict, Count, Database, Embedded, Entity, EntityNotFound, Index, IndexList, Mapped, Sum, field


class Department(Entity, table="Firm", partition_key="{name}", row_key="department"):
    name: Mapped[str]
    employee_count: Mapped[int] = field(default=0, name="EmployeeCount", maintained=True)
    juniors: Mapped[int] = field(default=0, maintained=True)
    salaries: Mapped[int] = field(default=0, maintained=True)
    manager_id: Mapped[int | None] = field(default=None)
    manager_name: Mapped[str | None] = field(default=None, maintained=True)
    manager_pay: Mapped[int | None] = field(default=None, maintained=True)
    note: Mapped[str | None] = field(default=None)

    manager = Embedded(
        lambda: Employee, {"manager_name": "name", "manager_pay": "salary"}, department="{name}", id="{manager_id}"
    )


class Employee(Entity, table="Firm", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str] = field(default="Sales")
    id: Mapped[int]
    name: Mapped[str] = field(default="Ann")
    last_name: Mapped[str | None] = field(default="Li")
    salary: Mapped[int | None] = field(default=None)

    by_last_name = IndexList(row_key="lastname_{last_name}", divide_at=2048)
    counted = Count(lambda: Department.employee_count, name="{department}")
    young = Count(lambda: Department.juniors, name="{department}", where=lambda e: (e.salary or 0) < 10)
    paid = Sum("salary", lambda: Department.salaries, name="{department}")


class Badge(Entity, table="Firm", partition_key="{department}", row_key="badge_{number:06d}"):
    department: Mapped[str] = field(default="Sales")
    number: Mapped[int]
    code: Mapped[str | None] = field(default=None)

    by_code = Index(row_key="code_{code}", unique=True)


async def assert_consistent(db: Database, name: str = "Sales") -> None:
    """Everything derived in a partition is what its employees make it."""
    people = await db.select(Employee).where(Employee.department == name).all()
    department = await db.get_or_none(Department, name=name)
    if department is None:
        assert not people
        return
    manager = next((each for each in people if each.id == department.manager_id), None)
    assert (department.employee_count, department.juniors, department.salaries) == (
        len(people),
        sum((each.salary or 0) < 10 for each in people),
        sum(each.salary or 0 for each in people),
    )
    assert (department.manager_id is None) == (manager is None)
    assert (department.manager_name, department.manager_pay) == (
        (None, None) if manager is None else (manager.name, manager.salary)
    )
    for last_name in {each.last_name for each in people if each.last_name is not None} | {"Li", "Wu"}:
        listed = await db.lookup(Employee.by_last_name, department=name, last_name=last_name)
        assert [each.id for each in listed] == [each.id for each in people if each.last_name == last_name]
    stored = [
        key
        async for bag in db.select_raw("Firm").where(
            "PartitionKey eq {} and EntityType eq {}", name, "Employee#by_last_name"
        )
        for part, value in bag.items()
        if part.startswith("Keys")
        for key in bytes(value).decode().splitlines()
    ]
    assert Counter(stored) == Counter(f"empid_{each.id:06d}" for each in people if each.last_name is not None)


async def write_until(done: asyncio.Event, db: Database, pick: random.Random, people: int) -> None:
    """Write employees and their department at random."""

    def appoint(department: Department) -> None:
        department.manager_id = pick.randrange(people)

    while not done.is_set():
        employee = Employee(
            department="Sales",
            id=pick.randrange(people),
            name=pick.choice("ABC"),
            last_name=pick.choice(["Li", "Wu", None]),
            salary=pick.choice([None, 0, 5, 50]),
        )
        with contextlib.suppress(Conflict, EntityNotFound):
            match pick.randrange(4):
                case 0:
                    await db.insert(employee)
                case 1:
                    await db.upsert(employee, mode=pick.choice(["merge", "replace"]))
                case 2:
                    await db.delete(employee.key, if_match="*")
                case _:
                    await db.modify(Department, appoint, name="Sales")
        await asyncio.sleep(0.01)
