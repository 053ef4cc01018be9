"""
The models of these tests, each with what the oracle knows of it.

`Employee` has an index of every sort: unique and sparse, of keys alone, and of some fields for those that satisfy a
condition. It is of version 2, and `EmployeeV1` is what the program before knew.
"""

from typing import Any

from tableorm import Database, Entity, Index, Mapped, PropertyBag, field, upgrade
from tests.derived.index.oracle import Bag, Copies, Kind, audit, read_table, rows_of


class AnyEmployee(Entity, table="Staff", partition_key="{department}", row_key="empid_{id:06d}", abstract=True):
    """What every version of the program knows of an employee."""

    department: Mapped[str]
    id: Mapped[int]
    email: Mapped[str | None] = field(default=None)
    last_name: Mapped[str] = field(default="Li")
    note: Mapped[str | None] = field(default=None)
    active: Mapped[bool] = field(default=True)

    by_email = Index(row_key="email_{email}", unique=True)
    by_name = Index(row_key="name_{last_name}_{id:06d}", include="keys")


class AgedEmployee(AnyEmployee, abstract=True):
    """Since version 2."""

    age: Mapped[int] = field(default=30)

    by_age = Index(row_key="age_{age:03d}_{id:06d}", include=["last_name"], where=lambda e: e.active)


class Employee(AgedEmployee, version=2): ...


@upgrade(Employee, from_version=1)
def years_to_age(bag: PropertyBag) -> PropertyBag:
    assert bag.row_key.startswith("empid_")  # an upgrade sees the entity, not one of its copies
    bag["age"] = bag.pop("years")
    return bag


class EmployeeV1(AnyEmployee, kind="Employee"):
    years: Mapped[int] = field(default=30)

    by_age = Index(row_key="age_{years:03d}_{id:06d}", include=["last_name"], where=lambda e: e.active)


class Desk(Entity, table="Staff", partition_key="{department}", row_key="desk_{number}"):
    """Of another kind in the same partitions, without indexes."""

    department: Mapped[str]
    number: Mapped[int]
    owner: Mapped[str | None] = field(default=None)


def employee(number: int, department: str = "Sales", **values: Any) -> Employee:
    """An employee with a copy in every index, if nothing else is said."""
    given: dict[str, Any] = {"department": department, "id": number, "email": f"e{number}@x", **values}
    return Employee(**given)


async def hire(db: Database) -> None:
    """Make the table, with one employee."""
    await db.create_tables(Employee)
    await db.insert(employee(1))


async def stored(db: Database) -> dict[tuple[str, str], dict[str, Any]]:
    """All rows of the table, with their ETags."""
    return rows_of(await read_table(db, "Staff"))


async def find_wrong(db: Database) -> list[str]:
    """What the oracle says of the table."""
    return audit(await read_table(db, "Staff"), KINDS)


def _age(e: Bag) -> int:
    age: int = e["age"] if "age" in e else e["years"]
    return age


EMPLOYEE = Kind(
    "Employee",
    lambda partition_key, row_key: {"department": partition_key, "id": int(row_key.removeprefix("empid_"))},
    (
        Copies(
            "by_email",
            lambda e: f"email_{e['email']}" if e.get("email") is not None else None,
            adds=lambda e: {"id": e["id"]},
        ),
        Copies("by_name", lambda e: f"name_{e['last_name'].replace('/', '^2F')}_{e['id']:06d}", frozenset()),
        Copies(
            "by_age",
            lambda e: f"age_{_age(e):03d}_{e['id']:06d}" if e["active"] else None,
            frozenset({"age", "last_name"}),
            adds=lambda e: {} if "age" in e else {"years": e["years"]},  # of the version before
        ),
    ),
)

KINDS = (EMPLOYEE,)
