"""
Models that share the change feed of a department, and one beside them that has none.
"""

import datetime as dt

from tableorm import CommittedChange, Database, Entity, Feed, Index, Mapped, PropertyBag, field

KEEP = dt.timedelta(days=7)
COUNTER = "~f_counter"
"""RowKey of the row that counts the changes of a partition."""


class Employee(Entity, table="FedStaff", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str] = field(default="Sales")
    id: Mapped[int]
    count: Mapped[int] = field(default=0)
    mail: Mapped[str | None] = field(default=None)

    by_mail = Index(row_key="mail_{mail}", unique=True)
    changes = Feed(keep=KEEP)


class Desk(Entity, table="FedStaff", partition_key="{department}", row_key="desk_{name}"):
    department: Mapped[str] = field(default="Sales")
    name: Mapped[str]
    note: Mapped[str] = field(default="")

    changes = Feed(keep=KEEP)


class Visitor(Entity, table="FedStaff", partition_key="{department}", row_key="visitor_{name}"):
    department: Mapped[str] = field(default="Sales")
    name: Mapped[str]


async def changes_of(db: Database, department: str = "Sales", after: str | None = None) -> list[CommittedChange]:
    """Return the changes of a department."""
    return [change async for change in db.changes(Employee, department=department, after=after)]


async def noted(db: Database, department: str = "Sales") -> list[list[str]]:
    """Return what each change of a department says: verb and RowKey of each entity; numbers have no gap."""
    found = await changes_of(db, department)
    assert [change.number for change in found] == [*range(1, len(found) + 1)]
    return [[f"{each.verb} {each.key.row_key}" for each in change.entities] for change in found]


async def insert(db: Database, *numbers: int) -> None:
    """Insert employees, each by a change of its own."""
    for number in numbers:
        await db.insert(Employee(id=number))


async def change_row(db: Database, row_key: str, **members: str | int) -> None:
    """Write something into a row of the department, as another program does."""
    await db.merge(PropertyBag("FedStaff", "Sales", row_key, members), if_match="*")


async def remove(db: Database, row_key: str) -> None:
    """Delete a row of the department."""
    await db.delete(PropertyBag.key("FedStaff", "Sales", row_key), if_match="*")
