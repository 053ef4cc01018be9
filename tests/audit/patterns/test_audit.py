"""
`db.audit` of lists, counts, sums and embedded copies: every damage is found and repaired, and nothing else is touched.
"""

import asyncio
import json
import random
from base64 import b64decode, b64encode
from itertools import product
from typing import Any

import pytest

from tableorm import AuditReport, Damage, Database, Entity, IndexList, Mapped, PropertyBag, field
from tableorm.derived.index_list.rows import bits_of, list_row
from tableorm.stores import Row, RowQuery, Verb
from tests.audit.foreign import send
from tests.audit.turns import MOST, count_snapshots
from tests.damage import Case, Cases, found_by
from tests.database.conftest import also_in_file
from tests.derived.patterns.firm import Department, Employee, assert_consistent, write_until
from tests.rows import insert_row, put_row, replace_row
from tests.torture import on_stores, seeds

E1, E2, E3 = "empid_000001", "empid_000002", "empid_000003"
HEAD, LI = "department", "lastname_Li~"
KIND = "Employee#by_last_name"
MANAGER = f"Department.manager:{HEAD}"


async def write(db: Database, verb: Verb, row_key: str, **members: Any) -> None:
    """A write of a program that knows nothing of what is derived."""
    await send(db, "Firm", verb, {"PartitionKey": "Sales", "RowKey": row_key, **members})


async def repair(db: Database) -> AuditReport:
    return await db.audit(Employee, repair=True)


async def merge(db: Database, row_key: str, **members: Any) -> None:
    await write(db, Verb.MERGE, row_key, **members)


async def stored(db: Database, row_key: str) -> Row:
    return await db.store.get("Firm", "Sales", row_key)


async def note(db: Database, row_key: str, **marks: Any) -> None:
    """Change some of what an entity notes; None removes it."""
    known = json.loads((await stored(db, row_key)).get("_ix", "{}"))
    changed = {name: mark for name, mark in {**known, **marks}.items() if mark is not None}
    await merge(db, row_key, _ix=json.dumps(changed))


async def put(db: Database, row_key: str, *keys: str, divided: bool = False) -> None:
    """A row of a list, as a program writes it that gets it wrong."""
    row = list_row("Sales", row_key, KIND, keys, divided=divided)
    await put_row(db, "Firm", row)


async def set_number(db: Database, row_key: str, name: str, number: int) -> None:
    """Set a number, in the form that the store has it."""
    row = await stored(db, row_key)
    changed = {each: row[each] for each in (name, f"{name}@odata.type") if each in row}
    await merge(db, row_key, **{**changed, name: str(number) if isinstance(row[name], str) else number})


async def keys_in(db: Database, row_key: str) -> set[str]:
    row = await stored(db, row_key)
    return set(b64decode(row.get("Keys00", "")).decode().splitlines())


async def fill(db: Database, people: int = 5) -> None:
    """Two departments; that of Sales is led by the first employee."""
    for name in ("HR", "Sales"):
        await db.insert(Department(name=name))
        for number in range(1, people + 1):
            last_name = "Wu" if number == 3 else None if number == 4 else "Li"
            employee = Employee(department=name, id=number, last_name=last_name, salary=5 * number)
            await db.insert(employee)
    await db.modify(Department, lambda each: setattr(each, "manager_id", 1), name="Sales")


async def snapshot(db: Database) -> dict[tuple[str, str], Row]:
    """All rows, without what differs from write to write."""
    page = await db.store.query("Firm", RowQuery())
    assert page.continuation is None
    made = {"odata.etag", "Timestamp", "_w"}
    rows = {(row["PartitionKey"], row["RowKey"]): row for row in page.rows}
    return {key: {name: value for name, value in row.items() if name not in made} for key, row in rows.items()}


CASES = Cases()


# Lists


@CASES.case((Damage.MISSING, "by_last_name", E1, LI))
async def key_is_missing(db: Database) -> None:
    await put(db, LI, E2, "empid_000005")


@CASES.case(
    (Damage.MISSING, "by_last_name", E1, LI),
    (Damage.MISSING, "by_last_name", E2, LI),
    (Damage.MISSING, "by_last_name", "empid_000005", LI),
)
async def list_is_deleted(db: Database) -> None:
    await write(db, Verb.DELETE, LI)


@CASES.case((Damage.ORPHAN, "by_last_name", "empid_000099", LI))
async def key_of_nobody(db: Database) -> None:
    await put(db, LI, E1, E2, "empid_000005", "empid_000099")


@CASES.case((Damage.STALE, "by_last_name", "", LI))
async def list_is_damaged(db: Database) -> None:
    await merge(db, LI, Keys00="nonsense")


async def replaced(db: Database, row: Row) -> None:
    await replace_row(db, "Firm", row)


@CASES.case((Damage.MISSING, "by_last_name", E1, "lastname_Wu~"), same=False)
async def entity_belongs_into_another_list(db: Database) -> None:
    await merge(db, E1, last_name="Wu")


@CASES.case((Damage.ORPHAN, "by_last_name", E1, LI), same=False)
async def entity_belongs_into_no_list(db: Database) -> None:
    await replaced(db, {name: value for name, value in (await stored(db, E1)).items() if name != "last_name"})


@CASES.case((Damage.MANIFEST, "by_last_name", E1, LI))
async def list_is_not_noted(db: Database) -> None:
    await note(db, E1, by_last_name=None)


# Counts and sums


@CASES.case((Damage.STALE, "employee_count", HEAD, HEAD))
async def count_is_wrong(db: Database) -> None:
    await set_number(db, HEAD, "EmployeeCount", 77)


@CASES.case((Damage.STALE, "salaries", HEAD, HEAD), (Damage.STALE, "juniors", HEAD, HEAD))
async def several_are_wrong(db: Database) -> None:
    for name in ("salaries", "juniors"):
        await set_number(db, HEAD, name, 3_000)


@CASES.case((Damage.UNDECLARED, "once", E1, HEAD))
async def amount_of_a_count_that_was_removed(db: Database) -> None:
    await note(db, E1, once={"add": [HEAD, {"Once": 1}]})


@CASES.case((Damage.MANIFEST, "counted", E2, HEAD), (Damage.MANIFEST, "paid", E2, HEAD))
async def amounts_are_not_noted(db: Database) -> None:
    await note(db, E2, counted=None, paid=None)


@CASES.case(
    (Damage.MANIFEST, "paid", E2, HEAD),
    (Damage.MANIFEST, "young", E2, HEAD),
    (Damage.STALE, "salaries", HEAD, HEAD),
    (Damage.STALE, "juniors", HEAD, HEAD),
    same=False,
)
async def salary_changed(db: Database) -> None:
    await set_number(db, E2, "salary", 3)


@CASES.case(
    (Damage.STALE, "employee_count", HEAD, HEAD),
    (Damage.STALE, "salaries", HEAD, HEAD),
    (Damage.ORPHAN, "by_last_name", E2, LI),
    same=False,
)
async def entity_is_deleted(db: Database) -> None:
    await write(db, Verb.DELETE, E2)


@CASES.case(
    (Damage.MANIFEST, "counted", "empid_000009", HEAD),
    (Damage.MANIFEST, "young", "empid_000009", HEAD),
    (Damage.MISSING, "by_last_name", "empid_000009", LI),
    (Damage.STALE, "employee_count", HEAD, HEAD),
    (Damage.STALE, "juniors", HEAD, HEAD),
    same=False,
)
async def entity_is_inserted(db: Database) -> None:
    await write(db, Verb.INSERT, "empid_000009", EntityType="Employee", name="Bo", last_name="Li")


# Embedded copies


@CASES.case((Damage.STALE, "manager", HEAD, E1))
async def copy_is_changed(db: Database) -> None:
    await merge(db, HEAD, manager_name="Somebody")


@CASES.case((Damage.MANIFEST, "manager", HEAD, E1))
async def holder_is_not_noted(db: Database) -> None:
    await note(db, E1, **{MANAGER: None})


@CASES.case((Damage.MANIFEST, MANAGER, E2, HEAD))
async def holder_is_noted_by_another(db: Database) -> None:
    await note(db, E2, **{MANAGER: json.loads((await stored(db, E1))["_ix"])[MANAGER]})


@CASES.case((Damage.MANIFEST, "manager", HEAD, E1))
async def source_is_not_noted(db: Database) -> None:
    await note(db, HEAD, manager=None)


@CASES.case(
    (Damage.STALE, "manager", HEAD, E2),
    (Damage.MANIFEST, "manager", HEAD, E2),
    same=False,
)
async def reference_is_changed(db: Database) -> None:
    await set_number(db, HEAD, "manager_id", 2)


@CASES.case((Damage.STALE, "manager", HEAD, None), (Damage.MANIFEST, "manager", HEAD, None), same=False)
async def reference_is_removed(db: Database) -> None:
    row = await stored(db, HEAD)
    await replaced(db, {name: value for name, value in row.items() if not name.startswith("manager_id")})


@CASES.case(
    (Damage.MANIFEST, None, E1, None),
    (Damage.MANIFEST, "by_last_name", E1, LI),
    (Damage.MANIFEST, "counted", E1, HEAD),
    (Damage.MANIFEST, "young", E1, HEAD),
    (Damage.MANIFEST, "paid", E1, HEAD),
    (Damage.MANIFEST, "manager", HEAD, E1),
)
async def notes_are_illegible(db: Database) -> None:
    await merge(db, E1, _ix="nonsense")


@pytest.mark.one_of(3)
@on_stores("case", CASES, lambda case: case.name)
async def test_damage_is_found_and_repaired(db: Database, case: Case) -> None:
    """What is found is just that damage; once it is repaired all is right, and nothing else has changed."""
    await fill(db)
    before = await snapshot(db)
    await case.harm(db)
    harmed = await snapshot(db)

    requests = db.stats.requests
    report = await db.audit(Employee)
    assert report.requests == db.stats.requests - requests
    assert found_by(report) == case.found
    assert len({str(each) for each in report.findings}) == len(report.findings) == report.found
    assert await snapshot(db) == harmed
    assert report.undecided == 0

    # One after the other, as they lie: what has to be repaired first does not happen to be.
    repaired = await db.audit(Employee, repair=True, parallel=1)
    assert found_by(repaired) <= case.found
    assert repaired.clean and repaired.repaired == repaired.found
    again = await db.audit(Department, Employee)
    assert [str(each) for each in again.findings] == []
    await assert_consistent(db)
    await assert_consistent(db, "HR")
    if case.same:
        assert await snapshot(db) == before


# Lists that were divided


in_memory = pytest.mark.parametrize("db", ["memory"], indirect=True)
"""Of tests of long lists that are alike on every store; how they are sent, one of them shows on the emulator."""


async def fill_many(db: Database, people: int = 400) -> None:
    await db.insert(Department(name="Sales"))
    async with db.bulk() as bulk:
        for number in range(people):
            await bulk.insert(Employee(department="Sales", id=number))
    assert (await stored(db, LI))["Divided"] is True


async def assert_clean(db: Database) -> None:
    """Assert that an audit finds nothing, and that what is derived agrees with the entities."""
    assert [str(each) for each in (await db.audit(Employee)).findings] == []
    await assert_consistent(db)


async def audited(db: Database) -> set[tuple[Damage, str | None, str, str | None]]:
    """What an audit finds, after the repair of it is checked."""
    report = await db.audit(Employee)
    repaired = await repair(db)
    assert (report.undecided, repaired.undecided) == (0, 0)
    assert repaired.clean
    await assert_clean(db)
    return found_by(report)


Found = set[tuple[Damage, str | None, str, str | None]]


async def put_key_twice(db: Database) -> Found:
    """In a row that was divided, and where it belongs: it goes from the first."""
    await put(db, LI, E1, divided=True)
    return {(Damage.ORPHAN, "by_last_name", key, LI) for key in ("", E1)}


async def put_key_into_the_wrong_row(db: Database) -> Found:
    """By the bits of its hash it belongs into the other half."""
    mine, other = (f"{LI}{bit}" for bit in sorted("01", key=lambda bit: bit != bits_of(E1, 1)))
    await put(db, mine, *(await keys_in(db, mine) - {E1}))
    await put(db, other, *await keys_in(db, other), E1)
    return {(Damage.MISSING, "by_last_name", E1, mine), (Damage.ORPHAN, "by_last_name", E1, other)}


async def let_row_not_say_that_it_was_divided(db: Database) -> Found:
    """It does again, and what it got meanwhile is where it belongs."""
    mine = LI + bits_of(E1, 1)
    await put(db, mine, *(await keys_in(db, mine) - {E1}))
    await put(db, LI, E1)
    return {(Damage.STALE, "by_last_name", "", LI)}


async def delete_first_row(db: Database) -> Found:
    """Writers would begin the list anew; it is put back, and its halves are untouched."""
    await write(db, Verb.DELETE, LI)
    return {(Damage.MISSING, "by_last_name", "", LI)}


@in_memory
async def test_what_happens_to_a_divided_list(db: Database) -> None:
    """Each damage is found and repaired, and all rows are as they were."""
    await fill_many(db, 200)
    before = await snapshot(db)
    for harm in (put_key_twice, put_key_into_the_wrong_row, let_row_not_say_that_it_was_divided, delete_first_row):
        expected = await harm(db)
        found = await audited(db)

        assert expected <= found, harm
        assert found == expected or harm in (let_row_not_say_that_it_was_divided, delete_first_row), harm
        assert await snapshot(db) == before, harm


async def test_half_is_damaged(db: Database) -> None:
    """Its keys are gathered from the entities."""
    await fill_many(db, 200)
    before = await snapshot(db)
    await merge(db, f"{LI}0", Keys00=b64encode(b"\xff\xfe").decode())

    assert await audited(db) == {(Damage.STALE, "by_last_name", "", f"{LI}0")}
    assert await snapshot(db) == before


@in_memory
async def test_one_wrong_key_makes_one_suspect(db: Database) -> None:
    """Of a list of many, those that are right are not looked at one by one."""
    await fill_many(db)
    clean = await db.audit(Employee)
    bits = LI + bits_of(E1, 2)
    await put(db, bits, *(await keys_in(db, bits) - {E1}))

    report = await db.audit(Employee)
    assert report.counts == {"missing": 1}
    assert report.requests - clean.requests < 25


async def test_row_of_another_kind(db: Database) -> None:
    """Where a list belongs: that is left."""
    await db.insert(Department(name="Sales"))
    await write(db, Verb.INSERT, "lastname_Ng~", Text="no list")
    await db.insert(Employee(department="Sales", id=1, last_name="Li"))
    await merge(db, E1, last_name="Ng")

    report = await repair(db)
    assert [(each.damage, each.index, each.repaired) for each in report.findings] == [
        (Damage.BLOCKED, "by_last_name", False)
    ]
    assert (await stored(db, "lastname_Ng~"))["Text"] == "no list"


# Rows that no list has


NO_LISTS = [
    "empid_000009",  # of an entity of the model
    "lastname_Ng",  # of no row of a list, which all have a "~"
    "firstname_Ng~",  # of another template
    "lastname_Ng~012",  # what follows the "~" are bits
    "lastname_Ng~" + "01" * 17,  # more bits than rows of lists have
]
MEMBERS: list[Row] = [{}, {"Divided": True}, {"Keys00": "nonsense"}]


@pytest.mark.one_of(3)
@on_stores("strange", product(NO_LISTS, MEMBERS), lambda each: f"{each[0]}-{each[1]}")
async def test_a_row_whose_key_no_list_can_have_is_left(db: Database, strange: tuple[str, Row]) -> None:
    """It says that it is of the list: that is reported, with few requests, and nothing is written where it leads."""
    row_key, members = strange
    await fill(db)
    clean = await db.audit(Employee)
    await write(db, Verb.INSERT, row_key, EntityType=KIND, **members)
    before = await snapshot(db)

    report = await repair(db)
    assert [(each.damage, each.index, each.row_key, each.address, each.repaired) for each in report.findings] == [
        (Damage.FOREIGN, "by_last_name", "", row_key, False)
    ]
    assert "delete" in report.findings[0].remedy
    assert (report.clean, report.undecided) == (False, 0)
    assert report.requests - clean.requests < 10
    assert await snapshot(db) == before

    await db.delete(PropertyBag.key("Firm", "Sales", row_key), if_match="*")
    assert (await db.audit(Employee)).clean


class Guest(Entity, table="Firm", partition_key="floor_{floor:02d}", row_key="guest_{id:03d}"):
    floor: Mapped[int]
    id: Mapped[int]
    name: Mapped[str] = field(default="Ann")

    by_name = IndexList(row_key="guests_{name}")


async def test_a_row_in_a_partition_that_no_entity_can_be_in_is_left(db: Database) -> None:
    """The PartitionKey too has to be one that the model makes."""
    await db.insert(Guest(floor=1, id=1))
    row = list_row("Sales", "guests_Ann~01", "Guest#by_name", ["guest_001"])
    await insert_row(db, "Firm", row)
    before = await snapshot(db)

    report = await db.audit(Guest, repair=True)
    assert [(each.damage, each.partition_key, each.address) for each in report.findings] == [
        (Damage.FOREIGN, "Sales", "guests_Ann~01")
    ]
    assert await snapshot(db) == before


async def test_a_row_deep_in_a_list_costs_few_requests(db: Database) -> None:
    """All rows on the way to it are gone: they are inserted together."""
    await fill(db)
    clean = await db.audit(Employee)
    last = "lastname_Ng~" + "01" * 16
    await put(db, last)

    report = await repair(db)
    assert [(each.damage, each.address, each.repaired) for each in report.findings] == [
        (Damage.MISSING, "lastname_Ng~", True)
    ]
    assert report.requests - clean.requests < 3 * 32 + 20
    assert report.undecided == 0
    assert (await db.audit(Employee)).clean


async def test_a_recount_lets_others_work_between_rows(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn of the event loop counts more than a few of the entities that are read to be counted anew."""
    await fill(db, people=30)
    await merge(db, HEAD, juniors=77)
    async with count_snapshots(monkeypatch) as counts:
        report = await db.audit(Department, Employee)

    assert not report.clean
    assert counts.most <= MOST


# What does not exist


async def test_counted_where_nothing_is(db: Database) -> None:
    """That is left to the user; when the entity is there again, the repair counts."""
    await fill(db)
    await write(db, Verb.DELETE, HEAD)

    report = await repair(db)
    found = {(each.damage, each.index, each.address, each.repaired) for each in report.findings}
    assert found >= {(Damage.DANGLING, "counted", HEAD, False)}
    assert not report.clean and report.undecided == 0

    await db.insert(Department(name="Sales"))
    assert (await repair(db)).clean
    await assert_clean(db)


async def test_reference_to_nobody(db: Database) -> None:
    """That is left to the user; nothing is written."""
    await fill(db)
    await db.modify(Department, lambda each: setattr(each, "manager_id", None), name="Sales")
    await merge(db, HEAD, manager_id=77)
    before = await snapshot(db)

    report = await db.audit(Department, repair=True)
    assert [(each.damage, each.index, each.address) for each in report.findings] == [
        (Damage.DANGLING, "manager", "empid_000077")
    ]
    assert await snapshot(db) == before


async def test_what_cannot_be_repaired_first_is_reported(db: Database) -> None:
    """Copies of an entity that does not fit its model, and whose notes cannot be read, stay as they are."""
    await fill(db)
    await merge(db, HEAD, manager_name="Somebody")
    await merge(db, E1, _ix="nonsense", name=5)

    report = await db.audit(Department, Employee, repair=True, parallel=1)

    found = [(each.damage, each.row_key, each.index, each.repaired) for each in report.findings]
    assert found.count((Damage.STALE, HEAD, "manager", False)) == 1
    assert (Damage.UNREADABLE, E1, None, False) in found
    assert report.undecided == 0
    assert (await stored(db, HEAD))["manager_name"] == "Somebody"


async def test_lists_that_are_not_known_are_left(db: Database) -> None:
    """Rows of a list that another program declares are no copies of nobody."""
    await fill(db)
    row = list_row("Sales", "shoe_9~", "Employee#by_shoe", [E1])
    await insert_row(db, "Firm", row)

    assert (await repair(db)).found == 0
    assert await keys_in(db, "shoe_9~") == {E1}


# While others write


@also_in_file
async def test_repairs_while_others_write(db: Database) -> None:
    """Damage is repaired among writers, and at rest all is right."""
    await fill(db, people=8)
    pick = random.Random(5)
    done = asyncio.Event()

    async def harm() -> None:
        await set_number(db, HEAD, "salaries", pick.randrange(999))
        await merge(db, HEAD, manager_name="Nobody")
        await put(db, LI, "empid_000001", "empid_000088")

    async def harm_and_repair() -> None:
        try:
            for _ in range(4):
                await harm()
                await repair(db)
        finally:
            done.set()

    await asyncio.gather(harm_and_repair(), *(write_until(done, db, random.Random(seed), 8) for seed in (1, 2)))
    await repair(db)
    await assert_clean(db)


# At random


async def harm(db: Database, pick: random.Random) -> None:
    """Something that a program does which knows nothing of what is derived; departments stay."""
    rows = [row for (partition_key, _), row in (await snapshot(db)).items() if partition_key == "Sales"]
    row = pick.choice(rows)
    row_key, is_list = row["RowKey"], "~" in row["RowKey"]
    if row_key == HEAD:
        match pick.randrange(4):
            case 0:
                await set_number(db, HEAD, "salaries", pick.randrange(99))
            case 1:
                await merge(db, HEAD, manager_name="X")
            case 2:
                await merge(db, HEAD, _ix=pick.choice(["{}", "nonsense"]))
            case _:
                await replaced(db, {name: value for name, value in row.items() if not name.startswith("manager_id")})
    elif is_list:
        known = [f"empid_{number:06d}" for number in range(12)]
        match pick.randrange(4):
            case 0:
                await write(db, Verb.DELETE, row_key)
            case 1:
                await merge(db, row_key, Keys00=pick.choice(["nonsense", "AAA="]))
            case 2:
                await put(db, row_key, *pick.sample(known, 4), divided=pick.random() < 0.3)
            case _:
                await put(db, row_key + pick.choice("01"), *pick.sample(known, 3))
    else:
        match pick.randrange(4):
            case 0 if MANAGER not in row.get("_ix", ""):
                await write(db, Verb.DELETE, row_key)
            case 1:
                await merge(db, row_key, last_name=pick.choice(["Li", "Wu", "Ng"]), name=pick.choice("XY"))
            case 2:
                await merge(
                    db, row_key, _ix=pick.choice(["{}", "nonsense", '{"paid":1,"by_last_name":{"list":["x","y"]}}'])
                )
            case _:
                note_of = json.dumps({MANAGER: {"to": [HEAD, {"name": "manager_name"}]}})
                await merge(db, row_key, _ix=note_of)


@also_in_file
@seeds(1, 60)
async def test_whatever_others_do_can_be_repaired(db: Database, seed: int) -> None:
    """One repair makes all right again, in segments as in one, and the entities stay as they were left."""
    pick = random.Random(seed)
    await fill(db, people=8)
    for _ in range(pick.randrange(1, 6)):
        await harm(db, pick)
    people = await db.select(Employee).where(Employee.department == "Sales").all()
    found = await db.audit(Department, Employee)

    report = await db.audit(Department, Employee, repair=True)

    assert (found.undecided, report.undecided) == (0, 0)
    assert found.clean is (report.found == 0)
    assert await db.select(Employee).where(Employee.department == "Sales").all() == people
    left = {each.damage for each in report.findings if not each.repaired}
    assert left <= {Damage.DANGLING}
    again = await db.audit(Department, Employee)
    assert {each.damage for each in again.findings} <= left
    if not left:
        assert [str(each) for each in again.findings] == []
        await assert_consistent(db)
