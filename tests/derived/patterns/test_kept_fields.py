"""
Fields that other entities keep: a write of the entity leaves them as they are stored, in value and in type.
"""

from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import pytest

from tableorm import Database
from tableorm.stores import Row
from tests.derived.patterns.firm import Department, Employee, assert_consistent
from tests.rows import replace_row
from tests.torture import on_stores

NAMES = ("EmployeeCount", "juniors", "salaries")


async def kept(db: Database) -> Row:
    row = await db.store.get("Firm", "Sales", "department")
    return {name: value for name, value in row.items() if name.partition("@")[0] in NAMES}


async def written_otherwise(db: Database, **members: Any) -> None:
    """The department with one employee, after another program has written its row."""
    await db.insert(Department(name="Sales"))
    await db.insert(Employee(id=1, salary=3))
    row = await db.store.get("Firm", "Sales", "department")
    plain = {
        name: row[name] for name in row if name.partition("@")[0] not in (*NAMES, "odata", "odata.etag", "Timestamp")
    }
    await replace_row(db, "Firm", {**plain, **members})


SPELLINGS: list[dict[str, Any]] = [
    {"EmployeeCount": 1, "juniors": 1, "salaries": 3},
    {"EmployeeCount": 1, "juniors": "1", "juniors@odata.type": "Edm.Int64", "salaries": 3},
    {"EmployeeCount": 1},
]


async def read(db: Database) -> Department:
    department = await db.get(Department, name="Sales")
    department.note = "new"
    return department


async def save(db: Database) -> None:
    await db.save(await read(db))


async def replace_as_read(db: Database) -> None:
    await db.replace(await read(db))


def sales() -> Department:
    return Department(name="Sales", note="new")


VERBS: dict[str, Callable[[Database], Awaitable[object]]] = {
    "replace": lambda db: db.replace(sales(), if_match="*"),
    "replace as read": replace_as_read,
    "merge": lambda db: db.merge(sales(), [Department.note], if_match="*"),
    "upsert merge": lambda db: db.upsert(sales()),
    "upsert replace": lambda db: db.upsert(sales(), mode="replace"),
    "save": save,
}


@pytest.mark.one_of(3)
@on_stores("case", product(VERBS, SPELLINGS), lambda case: f"{case[0]}-{len(case[1])}")
async def test_what_others_keep_stays_as_it_is_stored(db: Database, case: tuple[str, dict[str, Any]]) -> None:
    """Whatever writes the entity, seen or unseen; what is not there does not come to be."""
    verb, members = case
    await written_otherwise(db, **members)
    before = await kept(db)
    await VERBS[verb](db)

    assert await kept(db) == before
    assert (await db.get(Department, name="Sales")).note == "new"
    if "salaries" in members:
        await assert_consistent(db)
