"""
Models that the explorer shows, and a database that has entities of them.
"""

import datetime as dt

from tableorm import Database, Entity, Index, Mapped, PropertyBag

SALES, SITES = 210, 20


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]
    age: Mapped[int]
    hired: Mapped[dt.date]

    by_age = Index(row_key="age_{age:03d}_{id}")


class Visit(Entity, table="Visits", partition_key="{site}_{day}", row_key="{number:04d}"):
    site: Mapped[str]
    day: Mapped[dt.date]
    number: Mapped[int]


async def fill(db: Database) -> None:
    """Make a large partition and some small ones, and a row that no terminal should obey."""
    await db.create_tables(Employee, Visit, "Rough")
    hired = dt.date(2026, 1, 1)
    async with db.bulk() as bulk:
        for id_ in range(SALES):
            employee = Employee(department="Sales", id=id_, age=20 + id_ % 40, hired=hired + dt.timedelta(id_))
            await bulk.insert(employee)
        for site in range(SITES):
            await bulk.insert(Employee(department=f"Site{site:02d}", id=1, age=30, hired=hired))
    await db.insert(Visit(site="Oslo", day=hired, number=1))
    await db.insert(PropertyBag("Rough", "[red]place", "[bold]key", {"name": "\x1b]52;c;AAAA\x07[/red]", "count": 1}))
