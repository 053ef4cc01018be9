"""
Queries at their edges: keys that only look like a model's, rows that only reading tells, and arguments.
"""

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tableorm import (
    Access,
    Database,
    Entity,
    Index,
    Mapped,
    ModelError,
    NotLoaded,
    PartitionKey,
    PropertyBag,
    RowKey,
    ScanRefused,
    Timestamp,
    connect,
    field,
    upgrade,
)
from tableorm.queries.query import start_query
from tests.databases import memory_database


class Employee(Entity, table="Edges", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]


class Letter(Entity, table="Edges", partition_key="{department}", row_key="{name}"):
    department: Mapped[str]
    name: Mapped[str]


class Old(Entity, table="Edges", partition_key="{group}", row_key="old_{number:03d}", version=2):
    group: Mapped[str]
    number: Mapped[int]
    text: Mapped[str] = field(default="")
    more: Mapped[str] = field(default="")


@upgrade(Old, from_version=1)
def to_two(bag: PropertyBag) -> PropertyBag:
    bag["more"] = "upgraded"
    return bag


@pytest.fixture
async def edges(db: Database) -> Database:
    await db.create_tables(Employee)
    return db


class AtPlace(Entity, table="Edges", partition_key="{place}", abstract=True):
    place: Mapped[str]
    hour: Mapped[int]


class Train(AtPlace, row_key="{hour:02d}_{number:03d}"):
    number: Mapped[int]


class Sky(AtPlace, row_key="{hour:02d}"): ...


async def test_a_row_of_any_kind_has_a_field_if_any_class_of_the_base_says_so(edges: Database) -> None:
    """What compares a field of an abstract base, in rows that come as bags, and what asks whether it is there agree."""
    await edges.insert(Sky(place="here", hour=2))
    query = edges.select(Train, PropertyBag).where(PartitionKey == "here")

    assert await query.where(AtPlace.hour == 2).count() == 1
    assert await query.where(AtPlace.hour.is_none()).count() == 0
    assert await query.where(~AtPlace.hour.is_none()).count() == 1


async def test_a_key_that_no_row_can_have_finds_nothing(edges: Database) -> None:
    """Nothing is sent for it, alone and among others; beside `|`, those are found."""
    await edges.insert(Letter(department="Sales", name="a"))
    query = edges.select(Letter)
    sales = query.where(Letter.department == "Sales")
    long = "x" * 600

    for none in (
        sales.where(RowKey == "a/b"),
        sales.where(Letter.name == long),
        sales.where(Letter.name.in_([long, long + "x"])),
        query.where(Letter.name == "a", Letter.department == long),
        edges.select(Employee).where(Employee.department == "Sales", Employee.id == -1),
        query.where(PartitionKey == "Sa#les", RowKey == "a"),
        edges.select_raw("Edges").where("PartitionKey eq {} and RowKey eq {}", "Sales", "a?"),
    ):
        assert (await none.all(), await none.count(), none.explain().access) == ([], 0, Access.NOTHING)
    for one in (sales.where((RowKey == "a/b") | (RowKey == "a")), sales.where(Letter.name.in_([long, "a"]))):
        assert [each.name for each in await one.all()] == ["a"]
        assert one.explain().max_transactions == 1


async def test_pages_of_absent_points_are_few(edges: Database) -> None:
    """Points do not count towards the requests after which a page is given as it is."""
    await edges.insert(Employee(department="Sales", id=499))
    query = edges.select(Employee).where(Employee.department == "Sales", Employee.id.in_(range(500)))
    pages = [page async for page in query.pages(100)]

    assert [len(page.items) for page in pages] == [1]


CHILD = """
import sys
from tests.queries.test_query_edges import RowKey, Employee
from tableorm import connect
import asyncio
async def main():
    async with connect("local:" + sys.argv[1]) as db:
        query = db.select(Employee).where(Employee.department == "Sales", ~RowKey.in_({"a", "b", "c", "empid_000001"}))
        print((await query.page(1, sys.argv[2] or None)).cursor)
asyncio.run(main())
"""


async def test_a_cursor_of_a_set_is_good_in_another_process(tmp_path: Any) -> None:
    """A set has another order there."""
    path = f"{tmp_path}/edges.tables"
    async with connect(f"local:{path}") as db:
        await db.create_tables(Employee)
        for number in range(6):
            await db.insert(Employee(department="Sales", id=number))
    cursor = ""
    for seed in ("1", "2"):
        command = [sys.executable, "-c", CHILD, path, cursor]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."}
        )
        assert done.returncode == 0, done.stderr
        cursor = done.stdout.strip()

    assert cursor not in ("", "None")


ID: Any = Employee.id  # without its type, so that what the checkers refuse can be written
TIME: Any = Timestamp
WRONG: list[tuple[Callable[[Any], object], str]] = [
    (lambda db: ID.in_(5), r"Employee\.id\.in_\(5\)"),
    (lambda db: ID.in_([[1]]), "not a value"),
    (lambda db: RowKey.in_("001"), r"RowKey\.in_\('001'\)"),
    (lambda db: TIME.startswith("2024"), "for text"),
    (lambda db: db.select(), "one to four"),
    (lambda db: db.select(1), "one to four"),
    (lambda db: db.select(Employee, int), "'int'> is not a model"),
    (lambda db: db.select(Entity), "Entity'> is not a model"),
    (lambda db: db.select(Employee).where(True), "not a condition"),
    (lambda db: db.select(Employee).limit(-1), r"limit\(-1\)"),
    (lambda db: db.union(1), r"union\(1\)"),
    (lambda db: db.union().concurrency(0), "give an int from 1"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
async def test_wrong_arguments_are_refused(edges: Database, make: Callable[[Any], object], message: str) -> None:
    """At once, with what to give instead."""
    with pytest.raises(ModelError, match=message):
        make(edges)


async def test_more_partitions_than_requests_is_said(edges: Database) -> None:
    """The message counts them, and names no condition that is there already."""
    query = edges.select(Employee).where(Employee.department.in_([str(n) for n in range(1_001)]))
    with pytest.raises(ScanRefused, match="1,001 alternatives"):
        query.explain()
    with pytest.raises(ModelError, match=r"concurrency=-5"):
        await edges.get_many([], concurrency=-5)
    assert await edges.select(Employee).where(RowKey.is_none()).allow_scan().all() == []


async def test_a_query_is_planned_once(edges: Database) -> None:
    """Page after page; a pickled copy plans anew."""
    query = edges.select(Employee).where(Employee.department.in_(["a", "b"]))

    assert (await start_query(query))[0].plan is (await start_query(query))[0].plan
    copy = pickle.loads(pickle.dumps(query)).bind(edges)
    assert str(copy.explain()) == str(query.explain())


class Club(Entity, table="Clubs", partition_key="{country}", row_key="club_{id:03d}"):
    country: Mapped[str]
    id: Mapped[int]
    city: Mapped[str]
    members: Mapped[int] = field(default=0, maintained=True)
    by_city = Index(row_key="city_{city}_{id:03d}", include="all")
    by_name = Index(row_key="id_{city}_{id:03d}", include="keys")


async def test_what_an_index_cannot_hold_is_explained() -> None:
    """Maintained fields are not loaded by its entries; `explain` names them, and not where the entities are read."""
    async with memory_database(Club) as db:
        await db.insert(Club(country="FR", id=1, city="Lyon"))
        query = db.select(Club.by_city).where(Club.country == "FR")
        found = await query.one()
        with pytest.raises(NotLoaded):
            _ = found.members
        explained = query.explain()
        assert explained.not_loaded == ("members",)
        assert "not loaded: members, which the index does not hold; refresh(entity) reads all" in str(explained)
        await db.refresh(found)
        assert found.members == 0
        for other in (db.select(Club.by_name), db.select(Club)):
            assert other.where(Club.country == "FR").explain().not_loaded == ()
