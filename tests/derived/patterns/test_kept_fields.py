"""
Fields that other entities keep: a write of the entity leaves them as they are stored, in value and in type.
"""

from itertools import product
from typing import Any, Literal

import pytest

from tableorm import Database
from tableorm.stores import Operation, Row, Verb
from tests.derived.patterns.firm import Department, Employee, assert_consistent
from tests.torture import on_stores

NAMES = ("EmployeeCount", "juniors", "salaries")


async def kept(db: Database) -> Row:
    row = await db.store.get("Firm", "Sales", "department")
    return {name: value for name, value in row.items() if name.partition("@")[0] in NAMES}


async def written_otherwise(db: Database, **members: Any) -> None:
    """The department with one employee, after another program has written its row."""
    await db.insert(Department(name="Sales"))
    await db.insert(Employee(department="Sales", id=1, salary=3))
    row = await db.store.get("Firm", "Sales", "department")
    plain = {
        name: row[name] for name in row if name.partition("@")[0] not in (*NAMES, "odata", "odata.etag", "Timestamp")
    }
    await db.store.write("Firm", Operation(Verb.REPLACE, {**plain, **members}, "*"))


SPELLINGS: list[dict[str, Any]] = [
    {"EmployeeCount": 1, "juniors": 1, "salaries": 3},
    {"EmployeeCount": 1, "juniors": "1", "juniors@odata.type": "Edm.Int64", "salaries": 3},
    {"EmployeeCount": 1},
]


VERBS = ["replace", "replace as read", "merge", "upsert merge", "upsert replace", "save"]


@pytest.mark.one_of(3)
@on_stores("case", product(VERBS, SPELLINGS), lambda case: f"{case[0]}-{len(case[1])}")
async def test_what_others_keep_stays_as_it_is_stored(db: Database, case: tuple[str, dict[str, Any]]) -> None:
    """Whatever writes the entity, seen or unseen; what is not there does not come to be."""
    verb, members = case
    await written_otherwise(db, **members)
    before = await kept(db)
    match verb.split():
        case ["upsert", ("merge" | "replace") as mode]:
            await db.upsert(Department(name="Sales", note="new"), mode=mode_of(mode))
        case ["save"]:
            department = await db.get(Department, name="Sales")
            department.note = "new"
            await db.save(department)
        case ["replace", "as", "read"]:
            department = await db.get(Department, name="Sales")
            department.note = "new"
            await db.replace(department)
        case ["merge"]:
            await db.merge(Department(name="Sales", note="new"), [Department.note], if_match="*")
        case _:
            await db.replace(Department(name="Sales", note="new"), if_match="*")

    assert await kept(db) == before
    assert (await db.get(Department, name="Sales")).note == "new"
    if "salaries" in members:
        await assert_consistent(db)


def mode_of(text: str) -> Literal["merge", "replace"]:
    return "merge" if text == "merge" else "replace"
