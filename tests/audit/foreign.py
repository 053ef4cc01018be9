"""
A model with indexes, the same as programs declare it that do not have them, and writes that keep no copies right.
"""

from typing import Any

from tableorm import Database, Entity, Index, Mapped, field
from tableorm.stores import Operation, Row, RowQuery, Verb

TABLE = "Directory"


class AnyEmployee(Entity, table=TABLE, partition_key="{department}", row_key="empid_{id:06d}", abstract=True):
    department: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]
    email: Mapped[str | None] = field(default=None)
    age: Mapped[int] = field(default=30)
    active: Mapped[bool] = field(default=True)


class Employee(AnyEmployee):
    by_email = Index(row_key="email_{email}", unique=True)
    by_name = Index(row_key="name_{name}_{id:06d}", include=["age"])
    by_age = Index(row_key="age_{age:03d}_{id:06d}", include="keys", where=lambda e: e.active)


class EmployeeOfOld(AnyEmployee, kind="Employee"):
    """As a program has it that knows another index, and none of these."""

    by_shoe = Index(row_key="shoe_{age:03d}_{id:06d}")


class Clerk(Entity, table=TABLE, partition_key="{department}", row_key="clerk_{id:06d}"):
    """Another kind in the same partitions."""

    department: Mapped[str]
    id: Mapped[int]
    email: Mapped[str]

    by_email = Index(row_key="clerkmail_{email}", unique=True)


def everyone(department: str = "Sales", count: int = 5) -> list[Employee]:
    return [
        Employee(department=department, id=n, name=f"n{n % 3}", email=f"e{n}@x" if n % 4 else None, active=n != 2)
        for n in range(count)
    ]


async def fill(db: Database) -> None:
    """Two departments, with rows of other kinds among them."""
    await db.create_tables(Employee)
    for department in ("HR", "Sales"):
        for employee in everyone(department):
            await db.insert(employee)
        await db.insert(Clerk(department=department, id=1, email="clerk@x"))
        await write(db, Verb.INSERT, department, "email_of_nobody", Text="no kind")


async def write(db: Database, verb: Verb, partition_key: str, row_key: str, **members: Any) -> None:
    """A write of a program that knows nothing of copies."""
    await send(db, TABLE, verb, {"PartitionKey": partition_key, "RowKey": row_key, **members})


async def send(db: Database, table: str, verb: Verb, row: Row) -> None:
    """Write a row whatever is there."""
    if_match = "*" if verb in (Verb.MERGE, Verb.REPLACE, Verb.DELETE) else None
    await db.store.write(table, Operation(verb, row, if_match))


async def merge(db: Database, row_key: str, **members: Any) -> None:
    await write(db, Verb.MERGE, "Sales", row_key, **members)


async def snapshot(db: Database) -> dict[tuple[str, str], Row]:
    """All rows, without what differs from write to write."""
    rows: list[Row] = []
    continuation: str | None = None
    while True:
        page = await db.store.query(TABLE, RowQuery(), 1000, continuation)
        rows += page.rows
        continuation = page.continuation
        if continuation is None:
            break
    made = {"odata.etag", "Timestamp", "_w"}
    return {
        (row["PartitionKey"], row["RowKey"]): {name: value for name, value in row.items() if name not in made}
        for row in rows
    }
