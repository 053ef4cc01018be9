"""
`db.build_index` of lists, counts and sums: entities that were there before come into them, while others write.
"""

import asyncio
import random
from typing import Any

import pytest

from tableorm import Count, Database, Entity, IndexList, Mapped, PropertyBag, field, upgrade
from tableorm.audit import build as build_module
from tableorm.derived.aggregate import audit as aggregate_audit
from tests.audit.patterns.test_audit import HEAD, set_number
from tests.database.conftest import also_in_file
from tests.derived.patterns.firm import Badge, Department, Employee, assert_consistent, write_until


class EmployeeOfOld(Entity, table="Firm", kind="Employee", partition_key="{department}", row_key="empid_{id:06d}"):
    """As a program has it that derives nothing."""

    department: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="Ann")
    last_name: Mapped[str | None] = field(default="Li")
    salary: Mapped[int | None] = field(default=None)


class BadgeOfOld(Entity, table="Firm", kind="Badge", partition_key="{department}", row_key="badge_{number:06d}"):
    department: Mapped[str]
    number: Mapped[int]
    code: Mapped[str | None]


async def fill(db: Database, people: int) -> None:
    for name in ("HR", "Sales"):
        await db.insert(Department(name=name))
        async with db.bulk() as bulk:
            for number in range(people):
                last_name = ("Li", "Wu", None)[number % 3]
                await bulk.insert(EmployeeOfOld(department=name, id=number, last_name=last_name, salary=number % 20))


async def build(db: Database) -> list[int]:
    """All of it; how many entities got something each time."""
    built: list[int] = []
    for each in (Employee.by_last_name, Employee.counted, Employee.young, Employee.paid):
        report = await db.build_index(each)
        assert (report.complete, report.what) == (True, f"build {each}")
        built.append(report.written)
    return built


async def test_all_come_in(db: Database) -> None:
    """Into lists that are divided meanwhile, and into counts and sums; a second time there is nothing to do."""
    await fill(db, 300)
    assert await build(db) == [2 * 200, 600, 300, 2 * 285]

    await assert_consistent(db)
    await assert_consistent(db, "HR")
    assert await build(db) == [0, 0, 0, 0]
    assert (await db.audit(Employee)).found == 0


@pytest.mark.parametrize(("people", "transactions"), [(98, 1), (99, 2)])
async def test_a_transaction_of_counted_entities_is_as_full_as_it_may_be(
    db: Database, people: int, transactions: int
) -> None:
    """It holds 98 entities and the row of the count, and has room for one row that tells of other partitions."""
    await db.insert(Department(name="Sales"))
    async with db.bulk() as bulk:
        for number in range(people):
            await bulk.insert(EmployeeOfOld(department="Sales", id=number))
    sent: list[str] = []
    with db.observe(lambda request: sent.append(f"{request.operation} {request.table}")):
        report = await db.build_index(Employee.counted)

    assert (report.complete, report.written) == (True, people)
    assert sent.count("transaction Firm") == transactions


@pytest.mark.parametrize(("people", "transactions"), [(49, 1), (50, 2), (98, 2)])
async def test_no_transaction_of_index_entries_is_too_large(db: Database, people: int, transactions: int) -> None:
    """Each entity takes two rows, so that 49 fit; the report counts no transaction that could not be sent."""
    async with db.bulk() as bulk:
        for number in range(people):
            await bulk.insert(BadgeOfOld(department="Sales", number=number, code=f"c{number}"))
    sent: list[str] = []
    with db.observe(lambda request: sent.append(f"{request.operation} {request.table}")):
        assert (await db.build_index(Badge.by_code, parallel=1)).written == people

    assert sent.count("transaction Firm") == transactions


@pytest.mark.one_of(3)
@also_in_file
async def test_while_others_write(db: Database) -> None:
    """Those who have the declarations may write: nobody is counted twice, and nobody is forgotten."""
    await db.insert(Department(name="Sales"))
    async with db.bulk() as bulk:
        for number in range(150):
            await bulk.insert(EmployeeOfOld(department="Sales", id=number, salary=number % 20))
    done = asyncio.Event()

    async def all_built() -> None:
        try:
            for each in (Employee.by_last_name, Employee.counted, Employee.young, Employee.paid):
                await db.build_index(each)
        finally:
            done.set()

    await asyncio.gather(all_built(), *(write_until(done, db, random.Random(seed), 150) for seed in (1, 2)))
    await build(db)
    await assert_consistent(db)
    assert [str(each) for each in (await db.audit(Employee)).findings] == []


async def test_a_wrong_count_is_set_right(db: Database) -> None:
    """What the field held before, from a program that counted otherwise, does not add to it."""
    await fill(db, 10)
    await set_number(db, HEAD, "EmployeeCount", 77)

    report = await db.build_index(Employee.counted)
    assert report.complete
    await build(db)
    await assert_consistent(db)


async def test_a_count_that_others_change_all_the_time(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Whom an older program inserts behind the builder is counted and noted at once, also if nobody can verify the count
    because others change it in each look; the report says so.
    """
    await fill(db, 10)
    audit_range, late = vars(build_module)["audit_range"], iter(range(10, 15))

    async def audit_late(*arguments: Any) -> Any:
        for number in late:  # when all entities are built
            await db.insert(EmployeeOfOld(department="Sales", id=number))
        async for step in audit_range(*arguments):
            yield step

    monkeypatch.setattr(build_module, "audit_range", audit_late)
    add_up: Any = vars(aggregate_audit)["_add_up"]

    async def add_up_while_others_write(*arguments: Any) -> Any:
        totals = await add_up(*arguments)
        await db.insert(Employee(department="Sales", id=await db.select(Employee).allow_scan().count()))
        return totals

    monkeypatch.setattr(aggregate_audit, "_add_up", add_up_while_others_write)
    report = await db.build_index(Employee.counted)
    assert not report.complete and report.failed == 1
    assert "others wrote during each look at 1 row" in report.failures[0]
    employees = await db.select(Employee).where(Employee.department == "Sales").count()
    assert (await db.get(Department, name="Sales")).employee_count == employees > 15


async def test_where_nothing_counts(db: Database) -> None:
    """Entities whose department does not exist are told, and not noted as counted."""
    async with db.bulk() as bulk:
        for number in range(3):
            await bulk.insert(EmployeeOfOld(department="Sales", id=number))
    report = await db.build_index(Employee.counted)

    assert not report.complete and any(": dangling: " in each for each in report.failures)
    await db.insert(Department(name="Sales"))
    assert (await db.build_index(Employee.counted)).complete
    assert (await db.get(Department, name="Sales")).employee_count == 3


class PersonOfOld(Entity, table="Firm", kind="Person", partition_key="{department}", row_key="person_{id:03d}"):
    department: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]


async def test_other_versions_are_upgraded(db: Database) -> None:
    """They come into the list by what they are upgraded to."""

    class Person(Entity, table="Firm", version=2, partition_key="{department}", row_key="person_{id:03d}"):
        department: Mapped[str]
        id: Mapped[int]
        first: Mapped[str]

        by_first = IndexList(row_key="first_{first}")
        counted = Count(lambda: Department.employee_count, name="{department}")

    @upgrade(Person, from_version=1)
    def _(bag: PropertyBag) -> PropertyBag:
        bag["first"] = str(bag["name"]).partition(" ")[0]
        return bag

    await db.insert(Department(name="Sales"))
    for number in range(3):
        await db.insert(PersonOfOld(department="Sales", id=number, name=f"Ann {number}"))

    assert (await db.build_index(Person.by_first, no_older_writers=True)).readable
    assert (await db.build_index(Person.counted)).complete
    assert [each.id for each in await db.lookup(Person.by_first, department="Sales", first="Ann")] == [0, 1, 2]
    assert (await db.get(Department, name="Sales")).employee_count == 3
    assert (await db.audit(Person)).found == 0


def test_counts_belong_to_the_class() -> None:
    """An entity that is counted has no number; the message says who has. So does that of embedded copies."""
    with pytest.raises(AttributeError, match=r"it belongs to the class, Employee\.counted; the entity in which"):
        _ = Employee(department="Sales", id=1).counted
    with pytest.raises(AttributeError, match=r"it belongs to the class, Department\.manager; the copies"):
        _ = Department(name="Sales").manager
    assert repr(Employee.counted) == "Employee.counted"
