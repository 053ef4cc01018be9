"""
What other entities do not allow is rejected at once, by every verb: no repetition changes them.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tableorm import Conflict, Database, DecodeError, Key, NotSupported, PropertyBag, ReferenceNotFound, TableOrmError
from tableorm.stores import Row
from tests.database.between import Between
from tests.derived.index.test_verbs import raise_first
from tests.derived.patterns.firm import Department, Employee, assert_consistent
from tests.rows import merge_row

ADA = Employee.key(department="Sales", id=1)
SALES = Department.key(name="Sales")
LOST = Employee.key(department="Nowhere", id=1)

Call = Callable[[Database], Awaitable[object]]


def appoint(department: Department) -> None:
    department.manager_id = 99


async def upsert_in_bulk(db: Database) -> None:
    async with db.bulk(errors="report") as bulk:
        await bulk.upsert(Employee(department="Nowhere", id=1))
    raise_first(bulk.report)


async def delete_in_bulk(db: Database) -> None:
    async with db.bulk(errors="report") as bulk:
        await bulk.delete(ADA, if_match="*")
    raise_first(bulk.report)


TO_NOTHING: dict[str, tuple[Call, Key[Any]]] = {
    "insert": (lambda db: db.insert(Employee(department="Nowhere", id=1)), Department.key(name="Nowhere")),
    "upsert": (lambda db: db.upsert(Employee(department="Nowhere", id=1)), Department.key(name="Nowhere")),
    "upsert in a bulk": (upsert_in_bulk, Department.key(name="Nowhere")),
    "modify": (lambda db: db.modify(SALES, appoint), Employee.key(department="Sales", id=99)),
    "replace": (
        lambda db: db.replace(Department(name="Sales", manager_id=99), if_match="*"),
        Employee.key(department="Sales", id=99),
    ),
}
OF_WHAT_IS_NEEDED: dict[str, Call] = {
    "delete": lambda db: db.delete(ADA, if_match="*"),
    "delete in a bulk": delete_in_bulk,
    "delete of the keeper": lambda db: db.delete(SALES, if_match="*"),
}


async def fill(db: Database) -> None:
    await db.insert(Department(name="Sales"))
    await db.insert(Employee(id=1, salary=5))
    await db.modify(SALES, lambda department: department.evolve(manager_id=1))


async def refusal(db: Database, call: Call) -> TableOrmError:
    """What is raised, after no more than a few requests."""
    before = db.stats.requests
    with pytest.raises((Conflict, ReferenceNotFound)) as caught:
        await call(db)
    assert db.stats.requests - before <= 4
    await assert_consistent(db)
    return caught.value


@pytest.mark.parametrize("verb", TO_NOTHING)
async def test_a_reference_to_nothing(db: Database, verb: str) -> None:
    """The error says what is missing; a lost race it is not."""
    await fill(db)
    call, missing = TO_NOTHING[verb]

    error = await refusal(db, call)

    assert isinstance(error, ReferenceNotFound)
    assert "insert that first" in str(error) or "which does not exist" in str(error)
    assert error.key == (missing.partition_key, missing.row_key)
    assert await db.get_or_none(LOST) is None


@pytest.mark.parametrize("verb", OF_WHAT_IS_NEEDED)
async def test_a_delete_of_what_others_need(db: Database, verb: str) -> None:
    """The error says who needs it."""
    await fill(db)

    error = await refusal(db, OF_WHAT_IS_NEEDED[verb])

    assert isinstance(error, Conflict)
    assert "delete" in str(error) and ("holds copies" in str(error) or "other entities are counted in it" in str(error))
    assert await db.exists(ADA) and await db.exists(SALES)


async def damage(db: Database, row_key: str, **members: Any) -> None:
    row = {"PartitionKey": "Sales", "RowKey": row_key, **members}
    await merge_row(db, "Firm", row)


async def test_a_count_that_is_no_number(db: Database) -> None:
    """Another program has written text there: the error names row and property, of each write of a bulk as well."""
    await db.insert(Department(name="Sales"))
    await damage(db, "department", EmployeeCount="many")
    wanted = r"row \('Sales', 'department'\) has 'many' as EmployeeCount, which is not a number"

    with pytest.raises(DecodeError, match=wanted):
        await db.insert(Employee(id=1))
    async with db.bulk(errors="report") as bulk:
        for number in range(3):
            await bulk.upsert(Employee(id=number))
    assert bulk.report.written == 0
    with pytest.raises(DecodeError, match=wanted):
        raise_first(bulk.report)
    with pytest.raises(DecodeError, match=wanted):
        await db.delete(SALES, if_match="*")

    await damage(db, "department", **{"EmployeeCount": "0", "EmployeeCount@odata.type": "Edm.Int64"})
    await db.insert(Employee(id=1))
    await assert_consistent(db)


async def test_a_count_that_is_a_list() -> None:
    """A server answers so, which no table can hold: the error names row and property all the same."""

    class Answering(Between):
        async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
            return {**await super().get(table, partition_key, row_key, select), "EmployeeCount": [1]}

    async with Database(Answering()) as db:
        await db.create_tables(Department)
        await db.insert(Department(name="Sales"))
        with pytest.raises(
            DecodeError, match=r"row \('Sales', 'department'\) has \[1\] as EmployeeCount, which is not"
        ):
            await db.insert(Employee(id=1))


async def test_a_bag_that_is_deleted_is_not_asked_what_it_counts(db: Database) -> None:
    """It has no model, so no field that others count in: no damaged number keeps it from being deleted."""
    bag = PropertyBag("Firm", "Sales", "department", {"EmployeeCount": "many"})
    await db.insert(bag)
    async with db.bulk(errors="report") as bulk:
        await bulk.insert(Employee(id=1))
        await bulk.delete(bag)

    assert "delete" not in [failure.operation for failure in bulk.report.failed]
    assert await db.get_or_none(PropertyBag.key("Firm", "Sales", "department")) is None


async def test_a_note_of_a_newer_program_is_left_to_it(db: Database) -> None:
    """No audit of this one corrects what it doesn't declare, so the error names the property instead."""
    await fill(db)
    await db.insert(Employee(id=2, last_name=None))
    await damage(db, "empid_000002", _ix='{"by_shoe":{"new":["shoe_30"]}}')

    with pytest.raises(NotSupported, match=r"if no newer one has written it, remove that from _ix"):
        await db.delete(Employee, department="Sales", id=2, if_match="*")


@pytest.mark.parametrize(
    "note",
    [
        '{"Department.manager:department":{"to":[]}}',
        '{"Department.manager:department":{"to":["department",["name"]]}}',
        '{"counted":{"add":["department"]}}',
        '{"counted":{"add":["department",{"EmployeeCount":"x"}]}}',
        '{"by_last_name":{"list":["lastname_Li"]}}',
    ],
)
async def test_a_damaged_note_can_be_repaired(db: Database, note: str) -> None:
    """No write is made upon what a note cannot mean, and the error says what corrects it."""
    await fill(db)
    await db.insert(Employee(id=2, last_name=None))
    await damage(db, "empid_000002", _ix=note)

    with pytest.raises(NotSupported, match=r"tableorm audit --repair"):
        await db.upsert(Employee(id=2, last_name="Wu"))
    with pytest.raises(NotSupported, match=r"manifest of the row has .* which this program does not know"):
        await db.delete(Employee, department="Sales", id=2, if_match="*")

    assert (await db.audit(Department, Employee, repair=True)).clean
    await db.upsert(Employee(id=2, last_name="Wu"))
    await assert_consistent(db)
