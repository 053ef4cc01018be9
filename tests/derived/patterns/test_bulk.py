"""
Bulk writes of entities that are counted, listed and embedded: what fails sinks nothing else, and the rest is right.
"""

import random

from tableorm import Database, EntityExists, EntityNotFound, PreconditionFailed, UniqueViolation
from tests.derived.patterns.firm import Badge, Department, Employee, assert_consistent


async def test_what_needs_the_stored_row_is_read(db: Database) -> None:
    """Upserts, forced replaces and deletes by key take back what was derived."""
    pick = random.Random(7)
    await db.insert(Department(name="Sales"))
    async with db.bulk(errors="report") as bulk:
        for number in range(60):
            await bulk.insert(Employee(department="Sales", id=number, salary=number % 20))
    async with db.bulk(errors="report") as bulk:
        for number in range(80):
            employee = Employee(department="Sales", id=number, salary=pick.choice([None, 3, 30]), last_name="Wu")
            match number % 4:
                case 0:
                    await bulk.upsert(employee, mode="replace")
                case 1:
                    await bulk.upsert(employee)
                case 2:
                    await bulk.replace(employee, if_match="*")
                case _:
                    await bulk.delete(employee.key, if_match="*")

    missing = [failure for failure in bulk.report.failed if isinstance(failure.error, EntityNotFound)]
    assert (bulk.report.written, len(missing)) == (70, 10)
    await assert_consistent(db)


async def test_a_later_change_is_another_write(db: Database) -> None:
    """What waits for its row is written as it was given."""
    await db.insert(Department(name="Sales"))
    employee = Employee(department="Sales", id=1, salary=3)
    async with db.bulk() as bulk:
        await bulk.upsert(employee)
        employee.salary = 1000

    assert (await db.get(Employee, department="Sales", id=1)).salary == 3
    await assert_consistent(db)


async def test_failures_sink_nothing_else(db: Database) -> None:
    """An insert of what is there, a stale save and a value that is taken are reported, each with its reason."""
    await db.insert(Department(name="Sales"))
    await db.insert(Employee(department="Sales", id=1))
    stale = await db.get(Employee, department="Sales", id=1)
    await db.modify(Employee, lambda e: setattr(e, "salary", 5), department="Sales", id=1)
    stale.salary = 7
    await db.insert(Badge(department="Sales", number=1, code="a"))
    async with db.bulk(errors="report") as bulk:
        await bulk.save(stale)
        await bulk.insert(Employee(department="Sales", id=2))
        await bulk.insert(Badge(department="Sales", number=2, code="a"))
        await bulk.insert(Badge(department="Sales", number=1, code="b"))
        await bulk.insert(Badge(department="Sales", number=3, code="c"))
        await bulk.insert(Badge(department="Sales", number=4, code="c"))

    assert bulk.report.written == 2
    errors = {type(failure.error) for failure in bulk.report.failed}
    assert errors == {PreconditionFailed, UniqueViolation, EntityExists}
    assert bulk.report.failures == 4
    await assert_consistent(db)


async def test_deleting_what_a_query_finds(db: Database) -> None:
    """Copies, lists and counts go with the entities; nothing is read twice for it."""
    await db.insert(Department(name="Sales"))
    async with db.bulk(errors="report") as bulk:
        for number in range(120):
            await bulk.insert(Employee(department="Sales", id=number, salary=number))
            await bulk.insert(Badge(department="Sales", number=number, code=f"c{number}"))

    report = await db.select(Employee).where(Employee.department == "Sales", Employee.salary >= 60).delete()
    assert (report.written, report.failures) == (60, 0)
    by_code = db.select(Badge.by_code).where(Badge.department == "Sales", Badge.code.startswith("c1"))
    report = await by_code.delete()
    assert (report.written, report.failures) == (31, 0)
    assert await db.select(Badge).where(Badge.department == "Sales").count() == 89
    assert await db.select(Badge.by_code).where(Badge.department == "Sales").count() == 89
    await assert_consistent(db)
