"""
Projections: what is asked for, what an entity has then, and what it says of the rest.
"""

import pickle
from decimal import Decimal
from typing import Any

import pytest

from tableorm import Database, DecodeError, Entity, Mapped, ModelError, PropertyBag, Select, field


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="", name="FullName")
    age: Mapped[int | None] = field(default=None)
    pay: Mapped[Decimal | None]
    level: Mapped[int] = field(default=1)


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


SALES = Employee.department == "Sales"


async def fill(db: Database) -> None:
    await db.create_tables(Employee, Person, Log, Flag)
    await db.insert(Employee(department="Sales", id=1, name="Ann", age=47, pay=Decimal(10)))
    await db.insert(Employee(department="Sales", id=2, name="Jun", pay=Decimal(5)))


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
    row: dict[str, Any] = {"EntityType": "Employee", "age": "old", "level": 2}
    await db.insert(PropertyBag("Directory", "Sales", "empid_000004", row))
    query = db.select(Employee).where(SALES, Employee.id == 4)

    assert (await query.only(Employee.level).one()).level == 2
    with pytest.raises(DecodeError, match=r"Employee\.age.*'old'"):
        await query.only(Employee.age).one()


async def test_what_makes_no_sense_is_refused(db: Database) -> None:
    """Bags, fields of other models, and what is not a field."""
    wrong: Any = "age"
    with pytest.raises(ModelError, match="rejected for bags"):
        db.select(Employee, PropertyBag).only(Employee.age)
    with pytest.raises(ModelError, match=r"only\(Log\.text\).*does not select Log"):
        db.select(Employee).only(Log.text)
    with pytest.raises(ModelError, match=r"only\('age'\)"):
        db.select(Employee).only(wrong)
