"""
Projections: what is asked for, what an entity has then, and what it says of the rest.
"""

import datetime as dt
import pickle
from decimal import Decimal
from typing import Any

import pytest

from tableorm import Database, DecodeError, Entity, Mapped, ModelError, NotLoaded, PropertyBag, Select, field, upgrade
from tableorm.models.entity import schema_of


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}", version=2):
    department: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="", name="FullName")
    age: Mapped[int | None] = field(default=None)
    pay: Mapped[Decimal | None] = field(default=None)
    hired: Mapped[dt.datetime | None] = field(default=None)
    level: Mapped[int] = field(default=1)


@upgrade(Employee, from_version=1)
def years_to_age(bag: PropertyBag) -> PropertyBag:
    bag["age"] = bag.pop("years", None)
    return bag


class Department(Entity, table="Directory", partition_key="{name}", row_key="department"):
    name: Mapped[str]
    count: Mapped[int] = field(default=0, name="Count")


class Person(
    Entity, table="People", partition_key="{country}", row_key="{kind}_{id}", abstract=True, discriminator="row_key"
):
    country: Mapped[str]
    id: Mapped[str]
    age: Mapped[int | None] = field(default=None)


class Staff(Person, kind="STAFF", version=3): ...


class Log(Entity, table="Logs", partition_key="{user}", row_key="{n:03d}", kind=None):
    user: Mapped[str]
    n: Mapped[int]
    text: Mapped[str] = field(default="")


class Flag(Entity, table="Flags", partition_key="{group:lower}", row_key="{n:03d}"):
    group: Mapped[str]
    n: Mapped[int] = field(stored=True)
    on: Mapped[bool] = field(default=False)


NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
SALES = Employee.department == "Sales"


async def fill(db: Database) -> None:
    await db.create_tables(Employee, Person, Log, Flag)
    await db.insert(Department(name="Sales", count=2))
    await db.insert(Employee(department="Sales", id=1, name="Ann", age=47, pay=Decimal(10), hired=NOON))
    await db.insert(Employee(department="Sales", id=2, name="Jun", pay=Decimal(5)))
    old: dict[str, Any] = {"EntityType": "Employee", "FullName": "Old", "years": 60, "level": 1}
    await db.insert(PropertyBag("Directory", "Sales", "empid_000003", old))


def loaded(entity: Entity) -> dict[str, Any]:
    return {name: getattr(entity, name) for name in schema_of(type(entity)).fields if hasattr(entity, name)}


async def test_what_was_asked_for_is_loaded_and_what_keys_hold(db: Database) -> None:
    """Another field raises NotLoaded, which names it; None is a value."""
    await fill(db)
    ann, jun, _ = await db.select(Employee).where(SALES).only(Employee.age, Employee.hired).all()

    assert loaded(ann) == {"department": "Sales", "id": 1, "age": 47, "hired": NOON}
    assert loaded(jun) == {"department": "Sales", "id": 2, "age": None, "hired": None}
    with pytest.raises(NotLoaded, match=r"Employee\.name: this field was not loaded"):
        _ = ann.name
    assert ann.key == Employee.key(department="Sales", id=1)
    assert ann.etag == (await db.get(ann.key)).etag


async def test_partly_loaded_entities_are_values(db: Database) -> None:
    """repr, equality, pickling and copies work, with what there is."""
    await fill(db)
    query = db.select(Employee).where(SALES, Employee.id == 1)
    ann = await query.only(Employee.age).one()
    again = await query.only(Employee.age).one()

    assert repr(ann) == "Employee(department='Sales', id=1, age=47)"
    assert ann == again and ann != await query.one() and ann != await query.only(Employee.name).one()
    back = pickle.loads(pickle.dumps(ann))
    assert back == ann and back.etag == ann.etag and not hasattr(back, "name")
    assert ann.evolve(age=48).age == 48


async def test_an_old_version_is_read_in_full(db: Database) -> None:
    """Its upgrade may need any property; it costs a request of its own."""
    await fill(db)
    before = db.stats.snapshot()
    found = await db.select(Employee).where(SALES).only(Employee.age).all()

    assert [(e.id, e.age) for e in found] == [(1, 47), (2, None), (3, 60)]
    assert found[2].name == "Old" and not hasattr(found[1], "name")
    assert db.stats.requests - before.requests == 2


async def test_what_is_selected_is_shown(db: Database) -> None:
    """Keys, what tells the kind, the fields by their stored names; and what conditions here need."""

    def selected(query: Select[Any]) -> str:
        return ",".join(query.explain().requests[0].select or ())

    mine = db.select(Employee).where(SALES).only(Employee.name)
    assert selected(mine) == "PartitionKey,RowKey,EntityType,FullName"
    assert selected(mine.where(Employee.pay > Decimal(1))) == "PartitionKey,RowKey,EntityType,FullName,pay"
    assert selected(mine.where(Employee.age > 1)) == "PartitionKey,RowKey,EntityType,FullName"
    assert "$select=PartitionKey,RowKey,EntityType,FullName" in str(mine.explain())
    assert selected(db.select(Employee).where(SALES)) == ""
    assert selected(db.select(Staff).where(Staff.country == "SE").only(Staff.age)) == (
        "PartitionKey,RowKey,EntityType,EntityVersion,age"
    )
    point = db.select(Employee).where(SALES, Employee.id == 1).only(Employee.age).explain()
    assert point.requests[0].select == ("PartitionKey", "RowKey", "EntityType", "age")
    assert point.requests[0].top is None


async def test_a_misfit_that_was_not_asked_for_is_no_error(db: Database) -> None:
    """What is asked for and does not fit is named."""
    await fill(db)
    row: dict[str, Any] = {"EntityType": "Employee:2", "age": "old", "level": 2}
    await db.insert(PropertyBag("Directory", "Sales", "empid_000004", row))
    query = db.select(Employee).where(SALES, Employee.id == 4)

    assert (await query.only(Employee.level).one()).level == 2
    with pytest.raises(DecodeError, match=r"Employee\.age.*'old'"):
        await query.only(Employee.age).one()


async def test_what_makes_no_sense_is_refused(db: Database) -> None:
    """Bags, fields of other models, and what is not a field."""
    wrong: Any = "age"
    with pytest.raises(ModelError, match="refused for bags"):
        db.select(Employee, PropertyBag).only(Employee.age)
    with pytest.raises(ModelError, match=r"only\(Log\.text\).*no Log"):
        db.select(Employee).only(Log.text)
    with pytest.raises(ModelError, match=r"only\('age'\)"):
        db.select(Employee).only(wrong)
