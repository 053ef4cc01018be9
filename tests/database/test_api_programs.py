"""
The programs of the public API, as a user writes them.
"""

import datetime as dt

import pytest

from tableorm import (
    Database,
    EntityExists,
    EntityNotFound,
    Key,
    PropertyBag,
    ScanRefused,
    TransactionFailed,
    from_dict,
    to_dict,
)
from tests.database.programs import Department, Employee


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
    await db.insert(employee(7, "Old"))
    await db.create_tables(Department, Employee)
    jun = await db.get(Employee, department="Sales", id=223)
    key = Employee.key(department="Sales", id=223)
    key = Employee.key_of("Sales", "empid_000223")
    jun = await db.get(key)
    some = await db.get_many([key])
    there = await db.exists(key)
    await db.refresh(jun)
    older = jun.evolve(age=48)
    data = to_dict(older, mode="json")
    await db.delete(key, if_match="*")
    report = await db.select(Employee).where(Employee.department == "Old").delete()

    assert await db.tables() == ["Directory", "TableormUpkeep"]
    assert key == Employee.key(department="Sales", id=223) == jun.key
    assert (some, there) == ([jun], True)
    assert {key: 1}[Employee.key(department="Sales", id=223)] == 1
    assert (older.age, older.etag) == (48, jun.etag)
    assert from_dict(Employee, data) == older
    assert await db.get_or_none(key) is None and await db.exists(key) is False
    assert (report.written, report.failures) == (1, 0)

    def one_more(bag: PropertyBag) -> None:
        bag["EmployeeCount"] += 1

    counted = await db.modify(PropertyBag.key("Directory", "Sales", "department"), one_more)
    assert counted["EmployeeCount"] == 1 and (await db.get(Department, name="Sales")).employee_count == 1
    await db.drop_table("Directory")
    assert await db.tables() == ["TableormUpkeep"]


async def test_reading(directory: Database) -> None:
    """Points, a range with a projection, pages, streams, several partitions and kinds, a scan, independent queries."""
    db = directory
    await db.insert(employee(7, "Marketing", age=61))
    jun = await db.get(Employee, department="Sales", id=223)
    maybe = await db.get_or_none(Employee, department="Sales", id=224)
    assert (jun.age, maybe) == (22, None)
    jun.email = "junc@contoso.com"
    await db.save(jun)
    assert await db.get(Employee.by_email, department="Sales", email="junc@contoso.com") == jun
    with pytest.raises(EntityNotFound, match=r"Employee \('Sales', 'empid_000224'\) in table Directory"):
        await db.get(Employee, department="Sales", id=224)

    q = (
        db.select(Employee)
        .where(Employee.department == "Sales", Employee.id.between(100, 199), Employee.age > 10)
        .only(Employee.first_name, Employee.age)
    )
    assert "range: GET Directory()?$filter=PartitionKey eq 'Sales' and RowKey ge 'empid_000100' and RowKey le " in (
        str(q.explain())
    )
    assert [(e.id, e.first_name, e.age) async for e in q] == [(150, "Jun", 15), (199, "Jun", 19)]
    async with q.stream() as stream:
        async for e in stream:
            assert e.id == 150
            break

    page = await q.page(size=1)
    assert [e.id for e in page.items] == [150]
    page = await q.page(size=1, cursor=page.cursor)
    assert ([e.id for e in page.items], page.cursor) == ([199], None)
    first = await q.first()
    assert first is not None and first.id == 150
    everyone = await db.select(Employee).where(Employee.department.in_(["Sales", "Marketing"])).all()
    assert [e.id for e in everyone] == [7, 100, 150, 199, 223]
    old = await db.select(Employee).where(Employee.age > 60).allow_scan().count()
    assert old == 1
    with pytest.raises(ScanRefused, match="no equality on department"):
        await db.select(Employee).where(Employee.age > 60).count()

    things = [thing async for thing in db.select(Department, Employee).where(Employee.department == "Sales")]
    assert [type(thing) for thing in things] == [Department, Employee, Employee, Employee, Employee]
    raw = db.select_raw("Directory").where("PartitionKey eq {} and age ge {}", "Sales", 19)
    assert [bag["age"] async for bag in raw] == [22, 19, 22]  # the first is the copy in the index
    union = db.union(*(db.select(Employee).where(Employee.department == d) for d in ("Sales", "Marketing")))
    assert [e.id async for e in union] == [100, 150, 199, 223, 7]


async def test_writing(directory: Database) -> None:
    """Every verb as it is written in the contract, one after the other on one entity."""
    db = directory
    ken = Employee(department="Sales", id=10, first_name="Ken", last_name="Kwok", age=23)
    await db.insert(ken)
    inserted = ken.etag
    assert ken.timestamp is not None and abs(dt.datetime.now(dt.UTC) - ken.timestamp) < dt.timedelta(minutes=5)
    ken.age = 24
    await db.save(ken)
    assert ken.etag != inserted
    assert (await db.get(Employee, department="Sales", id=10)) == ken
    await db.merge(ken, only=[Employee.age])
    await db.replace(ken)
    await db.upsert(ken, mode="merge")
    await db.replace(ken, if_match="*")

    def birthday(e: Employee) -> None:
        e.age = (e.age or 0) + 1

    await db.modify(ken, birthday)
    assert ken.age == 25 and (await db.get(Employee, department="Sales", id=10)).etag == ken.etag
    assert str(db.explain_write("save", ken)) == "(0 requests, 0 bytes)"
    with pytest.raises(EntityExists, match=r"insert of Employee \('Sales', 'empid_000010'\)"):
        await db.insert(employee(10))
    await db.delete(ken, missing_ok=True)
    await db.delete(Employee.key(department="Sales", id=10), if_match="*", missing_ok=True)


async def test_transactions_and_bulk(directory: Database) -> None:
    """A transaction with a modify, one that fails and names its operation, and ten thousand upserts."""
    db = directory

    def one_more(d: Department) -> None:
        d.employee_count += 1

    async with db.transaction() as tx:
        tx.insert(Employee(department="Sales", id=11, first_name="Ann", last_name="Li"))
        await tx.modify(Department, one_more, name="Sales")
    assert (await db.get(Department, name="Sales")).employee_count == 1
    with pytest.raises(TransactionFailed) as caught:
        async with db.transaction() as tx:
            tx.insert(employee(12))
            tx.insert(employee(11))
            await tx.modify(Department, one_more, name="Sales")
    error = caught.value
    assert (error.index, error.operation, error.code) == (1, "insert", "EntityAlreadyExists")
    assert error.entity == employee(11) and isinstance(error.__cause__, EntityExists)
    assert await db.get_or_none(Employee, department="Sales", id=12) is None

    async with db.bulk(concurrency=16, errors="report") as bulk:
        for n in range(500):
            await bulk.upsert(Employee(department=f"D{n % 50}", id=n, first_name="x", last_name="y"))
    assert (bulk.report.written, bulk.report.failed, bulk.report.requests) == (500, (), 50)


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
    assert dict(stored) == {
        "EntityType": "Employee:2",
        "first_name": "Ann",
        "last_name": "Li",
        "age": 5,
        "badge": 7,
    } | {"_w": stored["_w"]}
    before = ann.etag
    await directory.save(ann)
    assert ann.etag == before
