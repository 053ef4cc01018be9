"""
What the checkers know of a program that uses models as it should: `assert_type` says it, line by line.

Checked by `test_typing.py`. That such programs run is what all other tests show.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Any, ClassVar, assert_type

from tableorm import (
    Access,
    BulkFailure,
    BulkReport,
    Database,
    Entity,
    EntityStream,
    Expression,
    Field,
    Index,
    IndexList,
    IndexOf,
    Int32,
    Key,
    LoadExplanation,
    ManyOf,
    Mapped,
    OneOf,
    Page,
    Partial,
    PropertyBag,
    Select,
    Series,
    SeriesField,
    Slots,
    Transaction,
    WithoutKey,
    WriteStep,
    field,
    from_dict,
    many,
    one,
    series,
    to_dict,
)


class Stamped(Entity, abstract=True):
    created: Mapped[dt.datetime | None] = field(default=None)


class Department(Entity, table="Directory", partition_key="{name}", row_key="department"):
    name: Mapped[str]
    employee_count: Mapped[int] = field(default=0)


class Employee(Stamped, table="Directory", partition_key="{department}", row_key="empid_{id:06d}"):
    COMPANY: ClassVar[str] = "Contoso"

    department: Mapped[str]
    id: Mapped[int]
    first_name: Mapped[str]
    age: Mapped[int | None] = field(default=None)
    level: Mapped[Int32] = field(default=0)

    by_age = Index(row_key="age_{age:03d}_{id:06d}")
    by_first_name = IndexList(row_key="first_{kind}_{first_name}")


class Manager(Employee, kind="manager"):
    bonus: Mapped[float] = field(default=0.0)


class Team(Entity, table="Directory", partition_key="{department}", row_key="team_{name}", kind=None):
    department: Mapped[str]
    name: Mapped[str]


class Traffic(Entity, table="Traffic", partition_key="{user}", row_key="{day}"):
    user: Mapped[str]
    day: Mapped[dt.date]
    sent: Series[int] = series(24, default=0)
    peaks: Series[float | None] = series(3)


def slots() -> None:
    traffic = Traffic(user="ken", day=dt.date(2026, 1, 1), sent=[1] * 24)
    traffic.peaks = [1, None, 2.5]
    assert_type(traffic.sent, Slots[int])
    assert_type(traffic.peaks[0], float | None)
    assert_type(traffic.peaks[1:], list[float | None])
    assert_type([*traffic.peaks], list[float | None])
    assert_type(Traffic.sent, SeriesField[int])
    assert_type(Traffic.sent[3], Field[int])


def instances() -> None:
    """A field of an instance is a value of its type; those with a default need not be given."""
    jun = Employee(department="Sales", id=223, first_name="Jun")
    assert_type(jun, Employee)
    assert_type(jun.age, int | None)
    assert_type(jun.level, int)
    assert_type(jun.COMPANY, str)
    assert_type(jun.etag, str | None)
    assert_type(jun.timestamp, dt.datetime | None)
    assert_type(jun.kind, str | None)
    boss = Manager(department="Sales", id=1, first_name="Ann", bonus=1.5)
    assert_type(boss.evolve(bonus=2.0), Manager)


def fields_of_the_class() -> None:
    """On the class a field is an expression, and a comparison a condition."""
    assert_type(Employee.age, Field[int | None])
    assert_type(Manager.bonus, Field[float])
    assert_type((Employee.age > 30) & ~(Employee.id == 5) | (Employee.first_name != "x"), Expression)


def keys() -> None:
    """A key knows its model."""
    jun = Employee(department="Sales", id=223, first_name="Jun")
    assert_type(Employee.key(department="Sales", id=223), Key[Employee])
    assert_type(Manager.key_of("Sales", "empid_000223"), Key[Manager])
    assert_type(jun.key, Key[Employee])
    assert_type(PropertyBag.key("Directory", "Sales", "department"), Key[PropertyBag])
    wide: Key[Employee] = Manager.key_of("Sales", "empid_000001")
    hash(wide)


def dictionaries() -> None:
    """A dictionary becomes the model that is asked for."""
    department = from_dict(Department, {"name": "Sales"})
    assert_type(department, Department)
    assert_type(to_dict(department, mode="json"), dict[str, Any])


def partials(changes: Partial[Employee], stamps: Partial[Stamped]) -> None:
    """A partial of a model, or of a base of it, updates an entity."""
    jun = Manager(department="Sales", id=223, first_name="Jun", bonus=1.0)
    jun.update(changes)
    jun.update(stamps)
    assert_type(Partial(Employee, {"age": 5}), Partial[Employee])
    assert_type(changes.given, Mapping[str, Any])


def contents(content: WithoutKey[Employee]) -> None:
    """A body without key makes an entity of its model."""
    assert_type(content.entity(department="Sales", id=223), Employee)


def bags() -> None:
    """A bag is a mapping of any values."""
    bag = PropertyBag("Directory", "Sales", "x", {"Age": 5})
    assert_type(bag["Age"], Any)
    assert_type(list(bag), list[str])


async def reading(db: Database) -> None:
    """What is read is of the model that was asked for, and of each of several."""
    jun = await db.get(Employee, department="Sales", id=223)
    assert_type(jun, Employee)
    assert_type(await db.get(Employee.key(department="Sales", id=223)), Employee)
    assert_type(await db.get_or_none(Employee, department="Sales", id=1), Employee | None)
    assert_type(await db.get_or_none(jun.key), Employee | None)

    query = db.select(Employee)
    assert_type(query, Select[Employee])
    assert_type(query.where(Employee.department == "Sales", Employee.age > 30).limit(5), Select[Employee])
    async for employee in query.allow_scan():
        assert_type(employee, Employee)
    assert_type(db.select(Department, Employee), Select[Department | Employee])
    assert_type(db.select(Department, Employee, Team), Select[Department | Employee | Team])
    assert_type(db.select(Department, Employee, Team, PropertyBag), Select[Department | Employee | Team | PropertyBag])


async def indexes(db: Database) -> None:
    """What is read by an index is of its model; of an inherited one of the class that is named."""
    assert_type(Employee.by_age, IndexOf[Employee])
    assert_type(Manager.by_age, IndexOf[Manager])
    assert_type(await db.get_or_none(Employee.by_age, department="Sales", age=30, id=1), Employee | None)
    assert_type(db.select(Employee.by_age), Select[Employee])
    assert_type(db.select(Manager.by_age), Select[Manager])
    assert_type(await db.exists(Employee.by_age, department="Sales", age=30, id=1), bool)
    assert_type(await db.lookup(Employee.by_first_name, department="Sales", first_name="Jun"), list[Employee])


async def got(db: Database) -> Employee:
    """The type that `get` gives for an index."""
    return assert_type(await db.get(Employee.by_age, department="Sales", age=30, id=1), Employee)


async def running(db: Database) -> None:
    """However a query is run, what comes is of its models."""
    query = db.select(Employee).where(Employee.department == "Sales")
    both = db.select(Department, Employee)
    assert_type(await both.first(), Department | Employee | None)
    assert_type(await query.one(), Employee)
    assert_type(await query.one_or_none(), Employee | None)
    assert_type(await query.count(), int)
    assert_type(await query.exists(), bool)
    page = await both.page(size=50)
    assert_type(page, Page[Department | Employee])
    async for each in query.pages(10):
        assert_type(each, Page[Employee])
    async with query.stream() as stream:
        assert_type(stream, EntityStream[Employee])
        async for employee in stream:
            assert_type(employee, Employee)
    assert_type(query.only(Employee.age, Employee.level).unordered().concurrency(2), Select[Employee])
    assert_type(query.split(4), list[Select[Employee]])
    assert_type(query.allow_scan(parallel=2).bind(db), Select[Employee])
    assert_type(query.explain().access, Access)
    assert_type(await db.union(query, db.select(Team).allow_scan()).all(), list[Employee | Team])
    scans = db.select(Team).allow_scan(), db.select(Department).allow_scan()
    assert_type(await db.union(query, *scans).all(), list[Employee | Team | Department])
    keys = [Employee.key(department="Sales", id=1)]
    assert_type(await db.get_many(keys), list[Employee | None])
    assert_type(await db.exists(keys[0]), bool)


async def writing(db: Database) -> None:
    """Entities, bags and keys go where they are written and deleted."""
    jun = await db.get(Employee, department="Sales", id=223)

    def older(employee: Employee) -> None:
        employee.age = (employee.age or 0) + 1

    assert_type(await db.modify(jun, older), Employee)
    assert_type(await db.modify(jun.key, older), Employee)
    assert_type(await db.modify(Employee, older, department="Sales", id=223), Employee)
    assert_type(await db.modify(Employee, lambda e: e.evolve(age=1), department="Sales", id=223), Employee)
    assert_type(await db.modify(jun.key, older, create=jun), Employee)
    assert_type(await db.modify(Employee, older, create=lambda: jun, department="Sales", id=223), Employee)
    assert_type(await db.get_or_insert(jun), tuple[Employee, bool])
    assert_type(db.explain_write("save", jun).steps, tuple[WriteStep, ...])

    async def hire(tx: Transaction) -> int:
        assert_type(await tx.get(jun.key, guard=True), Employee)
        assert_type(await tx.modify(Employee, older, department="Sales", id=223), Employee)
        assert_type(await tx.modify(jun.key, older, create=lambda: jun), Employee)
        return 5

    assert_type(await db.run_transaction(hire), int)
    async with db.bulk(concurrency=2, rate=1000, on_progress=lambda report: assert_type(report, BulkReport)) as bulk:
        pass
    assert_type(bulk.report.failed, tuple[BulkFailure, ...])
    assert_type([each.entity for each in bulk.report.failed], list[Entity | PropertyBag | Key[Any]])


class Desk(Entity, table="Directory", partition_key="{department}", row_key="desk_{number}"):
    department: Mapped[str]
    number: Mapped[int]
    user: Mapped[Key[Employee] | None] = field(default=None)

    colleagues = many(lambda: Employee, department="{department}", on_delete="keep")
    owner = one(lambda: Employee, key="user")


class CornerDesk(Desk, row_key="corner_{number}"):
    pass


async def relations(db: Database, desks: list[Desk], corners: list[CornerDesk]) -> None:
    assert_type(Desk.colleagues, ManyOf[Desk, Employee])
    assert_type(Desk.owner, OneOf[Desk, Employee])
    assert_type(desks[0].colleagues, tuple[Employee, ...])
    assert_type(desks[0].owner, Employee | None)
    await db.load(desks, Desk.colleagues.where(Employee.age > 30).limit(5).only(Employee.age))
    await db.load(corners, CornerDesk.colleagues)
    assert_type(await db.select(Desk).load(Desk.owner).all(), list[Desk])
    assert_type(db.explain_load(iter(desks), Desk.owner), LoadExplanation)


async def forwarding(db: Database, **key: Any) -> None:
    """Key fields that a function was given are handed on: as Any, or, whatever their type, in a key."""
    assert_type(await db.modify(Employee, lambda e: e.evolve(age=1), **key), Employee)
    values: dict[str, object] = {**key}
    assert_type(await db.modify(Employee.key(**values), lambda e: e.evolve(age=1)), Employee)
