"""
The programs of the public API, as a user writes them.
"""

import datetime as dt

import pytest

from tableorm import (
    Database,
    Entity,
    EntityExists,
    EntityNotFound,
    Key,
    Mapped,
    PropertyBag,
    ScanRefused,
    TransactionFailed,
    field,
    from_dict,
    to_dict,
    upgrade,
)


class Department(Entity, table="Directory", partition_key="{name}", row_key="department"):
    name: Mapped[str]
    employee_count: Mapped[int] = field(default=0, name="EmployeeCount")


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}", version=2):
    department: Mapped[str]
    id: Mapped[int]
    first_name: Mapped[str]
    last_name: Mapped[str]
    age: Mapped[int | None] = field(default=None)
    email: Mapped[str | None] = field(default=None)


@upgrade(Employee, from_version=1)
def years_to_age(bag: PropertyBag) -> PropertyBag:
    bag["age"] = bag.pop("years", None)
    return bag


def employee(number: int, department: str = "Sales", age: int | None = None) -> Employee:
    return Employee(department=department, id=number, first_name="Jun", last_name="Cao", age=age)


@pytest.fixture
async def directory(db: Database) -> Database:
    await db.create_tables(Department, Employee)
    async with db.transaction() as tx:
        tx.insert(Department(name="Sales"))
        for number in (100, 150, 199, 223):
            tx.insert(employee(number, age=number // 10))
    return db


async def test_everyday(directory: Database) -> None:
    """Creating tables is idempotent; an entity is read by its fields, or by a key made of fields or stored keys."""
    db = directory
    await db.create_tables(Department, Employee)
    jun = await db.get(Employee, department="Sales", id=223)
    key = Employee.key(department="Sales", id=223)

    assert await db.tables() == ["Directory"]
    assert Employee.key_of("Sales", "empid_000223") == key == jun.key
    assert await db.get(key) == jun
    assert {key: 1}[Employee.key(department="Sales", id=223)] == 1
    older = jun.evolve(age=48)
    assert (older.age, older.etag) == (48, jun.etag)
    assert from_dict(Employee, to_dict(older, mode="json")) == older
    await db.delete(key, if_match="*")
    assert await db.get_or_none(key) is None
    await db.drop_table("Directory")
    assert await db.tables() == []


async def test_reading(directory: Database) -> None:
    """A point, a range, and several kinds of one partition in one query."""
    db = directory
    q = db.select(Employee).where(Employee.department == "Sales", Employee.id.between(100, 199), Employee.age > 10)

    assert [e.id for e in await q.all()] == [150, 199]
    assert [e.id async for e in q.limit(1)] == [150]
    things = await db.select(Department, Employee).where(Employee.department == "Sales").all()
    assert [type(thing) for thing in things] == [Department, Employee, Employee, Employee, Employee]
    assert await db.get_or_none(Employee, department="Sales", id=224) is None
    with pytest.raises(EntityNotFound, match=r"Employee \('Sales', 'empid_000224'\) in table Directory"):
        await db.get(Employee, department="Sales", id=224)
    with pytest.raises(ScanRefused, match="no equality on department"):
        await db.select(Employee).where(Employee.age > 60).all()
    assert len(await db.select(Employee).where(Employee.age > 10).allow_scan().all()) == 3


async def test_writing(directory: Database) -> None:
    """Insert sets ETag and timestamp; save merges what changed; a failing transaction names its operation."""
    db = directory
    ken = Employee(department="Sales", id=10, first_name="Ken", last_name="Kwok", age=23)
    await db.insert(ken)
    inserted = ken.etag
    assert ken.timestamp is not None and abs(dt.datetime.now(dt.UTC) - ken.timestamp) < dt.timedelta(minutes=5)
    ken.age = 24
    await db.save(ken)

    assert ken.etag != inserted
    assert (await db.get(Employee, department="Sales", id=10)) == ken
    with pytest.raises(EntityExists, match=r"insert of Employee \('Sales', 'empid_000010'\)"):
        await db.insert(employee(10))
    with pytest.raises(TransactionFailed) as caught:
        async with db.transaction() as tx:
            tx.insert(employee(11))
            tx.insert(employee(10))
    error = caught.value
    assert (error.index, error.operation, error.code) == (1, "insert", "EntityAlreadyExists")
    assert error.entity == employee(10) and isinstance(error.__cause__, EntityExists)
    assert await db.get_or_none(Employee, department="Sales", id=11) is None
    await db.delete(ken, missing_ok=True)
    await db.delete(Employee.key(department="Sales", id=10), if_match="*", missing_ok=True)


async def test_a_first_version_is_upgraded_when_read_and_persisted_when_saved(directory: Database) -> None:
    """The old property is gone, the new one is there, unknown ones stay; keys and ETag are those that were read."""
    old = PropertyBag(
        "Directory",
        "Sales",
        "empid_000007",
        {"EntityType": "Employee", "first_name": "Ann", "last_name": "Li", "years": 5, "badge": 7},
    )
    await directory.insert(old)
    ann = await directory.get(Employee, department="Sales", id=7)
    assert (ann.age, ann.etag, dict(ann.extra)) == (5, old.etag, {"badge": 7})

    await directory.save(ann)

    key: Key[PropertyBag] = PropertyBag.key("Directory", "Sales", "empid_000007")
    stored = await directory.get(key)
    assert dict(stored) == {"EntityType": "Employee:2", "first_name": "Ann", "last_name": "Li", "age": 5, "badge": 7}
    before = ann.etag
    await directory.save(ann)
    assert ann.etag == before
