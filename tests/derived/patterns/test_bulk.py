"""
Bulk writes of entities that are counted, listed and embedded: what fails sinks nothing else, and the rest is right.
"""

from tableorm import Database, EntityExists, PreconditionFailed, UniqueViolation
from tests.derived.patterns.firm import Badge, Department, Employee, assert_consistent


async def test_failures_sink_nothing_else(db: Database) -> None:
    """An insert of what is there, a stale save and a value that is taken are reported, each with its reason."""
    await db.insert(Department(name="Sales"))
    await db.insert(Employee(id=1))
    stale = await db.get(Employee, department="Sales", id=1)
    await db.modify(Employee, lambda e: setattr(e, "salary", 5), department="Sales", id=1)
    stale.salary = 7
    await db.insert(Badge(number=1, code="a"))
    async with db.bulk(errors="report") as bulk:
        await bulk.save(stale)
        await bulk.insert(Employee(id=2))
        await bulk.insert(Badge(number=2, code="a"))
        await bulk.insert(Badge(number=1, code="b"))
        await bulk.insert(Badge(number=3, code="c"))
        await bulk.insert(Badge(number=4, code="c"))

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
            await bulk.insert(Employee(id=number, salary=number))
            await bulk.insert(Badge(number=number, code=f"c{number}"))

    report = await db.select(Employee).where(Employee.department == "Sales", Employee.salary >= 60).delete()
    assert (report.written, report.failures) == (60, 0)
    by_code = db.select(Badge.by_code).where(Badge.department == "Sales", Badge.code.startswith("c1"))
    report = await by_code.delete()
    assert (report.written, report.failures) == (31, 0)
    assert await db.select(Badge).where(Badge.department == "Sales").count() == 89
    assert await db.select(Badge.by_code).where(Badge.department == "Sales").count() == 89
    await assert_consistent(db)
