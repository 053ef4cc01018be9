"""
Entries and lists in other partitions, and who may write some rows of one partition: its entities, or its decision rows.

The victims are a worker and readers with all rights.
"""

import asyncio
import json
from typing import Any

import pytest

from tableorm import Database, Entity, Index, IndexList, Mapped
from tableorm.connection.connection import TURN, Connection
from tableorm.connection.rows import read_row
from tableorm.derived.index_list import lookup
from tableorm.derived.index_list.rows import list_row
from tableorm.stores import Row, RowAddress, Verb
from tests.rows import put_row
from tests.security.world import work, write_row


class Employee(Entity, table="ForgedStaff", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]
    city: Mapped[str | None]

    by_city = Index(
        table="ForgedCities", partition_key="city_{city}", row_key="in_{department}_{id:06d}", consistency="eventual"
    )
    in_city = IndexList(table="ForgedLists", partition_key="{city}", row_key="people_{kind}", consistency="eventual")


class Boss(Employee):
    pass


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Employee)
    await db.insert(Employee(department="Sales", id=10, city="Rome"))
    await db.insert(Boss(department="Sales", id=11, city="Rome"))
    return db


async def plant(db: Database, partition: str, row_key: str, kind: str, **members: Any) -> None:
    """Write a row of the forger."""
    await write_row(db, "ForgedStaff", partition, row_key, Verb.INSERT_OR_REPLACE, EntityType=kind, **members)


async def plant_decision(db: Database, partition: str, row_key: str, entries: dict[str, list[Any]]) -> None:
    """Write a decision row of the forger."""
    works = [{"kind": "Employee", "row": row_key, "entries": entries}]
    text = json.dumps({"format": 1, "works": works})
    await plant(db, partition, "~o_aaaaaaaaaaaa", "#_decision", State="committed", Work=text)


async def derived_rows(db: Database) -> list[Row]:
    tables = ("ForgedCities", "ForgedLists")
    return [row.row for table in tables for row in await db.select_raw(table).allow_scan().all()]


@pytest.mark.parametrize(
    "token", ["x\ty", "x\n", "x\nForgedStaff\tSales\tempid_000099\tv", "\n\t\t\t", "v" * 30_000, "x\x00", ""]
)
@pytest.mark.parametrize("way", ["save", "worker"])
async def test_a_list_names_entities_and_not_what_their_rows_say(db: Database, token: str, way: str) -> None:
    """
    Whatever a row has in place of write tokens: the list that its entity comes into can be read, and names it, and
    else those that were there.
    """
    place = {"in": ["Rome", "people_Employee", "ForgedLists", "Employee#in_city"]}
    members = {} if way == "save" else {"city": "Rome", "_ix": json.dumps({"in_city": place})}
    await plant(db, "Evil", "empid_000001", "Employee", _w=token, **members)
    if way == "save":
        found = await db.get(Employee, department="Evil", id=1)
        found.city = "Rome"
        await db.save(found)
    else:
        await plant_decision(db, "Evil", "empid_000001", {"in_city": [place]})
        await work(db, Employee, Boss, table="ForgedStaff")
    listed = await db.lookup(Employee.in_city, city="Rome")
    assert [(each.department, each.id) for each in listed] == [("Evil", 1), ("Sales", 10)]
    (row,) = [row for row in await derived_rows(db) if row["RowKey"] == "people_Employee~"]
    assert len(row["Keys00"]) < 200
    await db.insert(Employee(department="Sales", id=12, city="Rome"))
    assert len(await db.lookup(Employee.in_city, city="Rome")) == 3


@pytest.mark.parametrize("table", ["forgedcities forgedlists", "FORGEDCITIES FORGEDLISTS"])
async def test_a_table_is_the_same_in_any_letter_case(db: Database, table: str) -> None:
    """A decision row that spells tables otherwise does not get right entries deleted, nor entities out of lists."""
    before = await derived_rows(db)
    cities, lists = table.split()
    entries = {
        "by_city": [{"at": ["city_Rome", "in_Sales_000010", cities]}],
        "in_city": [{"in": ["Rome", "people_Employee", lists, "Employee#in_city"]}],
    }
    await plant_decision(db, "Sales", "empid_000010", entries)
    await work(db, Employee, Boss, table="ForgedStaff")
    assert await derived_rows(db) == before


async def test_an_entity_of_another_class_stays_in_its_list(db: Database) -> None:
    """A decision row that calls an entity one of the base does not get it out of the list of its own class."""
    before = await derived_rows(db)
    entries = {
        "by_city": [{"at": ["city_Rome", "in_Sales_000011", "ForgedCities"]}],
        "in_city": [{"in": ["Rome", "people_Boss", "ForgedLists", "Boss#in_city"]}],
    }
    await plant_decision(db, "Sales", "empid_000011", entries)
    await work(db, Employee, Boss, table="ForgedStaff")
    assert await derived_rows(db) == before


async def list_employees(db: Database, *members: tuple[str, str]) -> None:
    """Write the row of the list of Rome, as who may write this table does: all ten, and others."""
    texts = [f"ForgedStaff\t{partition_key}\t{row_key}\t" for partition_key, row_key in members]
    row = list_row("Rome", "people_Employee~", "Employee#in_city", ["ForgedStaff\tSales\tempid_000010\t", *texts])
    await put_row(db, "ForgedLists", row)


@pytest.mark.parametrize("key", ["a/b", "x" * 3000, "\1", "b\0"])
async def test_a_key_that_no_row_can_have_is_nobody(db: Database, key: str) -> None:
    """A row of a list that names such a key ends no lookup of those who are in the list."""
    await list_employees(db, (key, "empid_000010"), ("Sales", key))
    assert [each.id for each in await db.lookup(Employee.in_city, city="Rome")] == [10]


async def test_a_row_of_a_list_with_very_many_keys_is_read_in_slices(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tasks get a turn while the keys of a row are read and sorted."""
    turns, before_entities = 0, list[int]()

    async def read_none(db: Connection, address: RowAddress, name: str) -> Row | None:
        before_entities.append(turns)
        return await read_row(db, address, name=name) if address.partition_key else None

    async def watch() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    await list_employees(db, *(("", f"{number:04x}") for number in range(5000)))
    monkeypatch.setattr(lookup, "read_row", read_none)
    watching = asyncio.create_task(watch())
    found = await db.lookup(Employee.in_city, city="Rome")
    watching.cancel()

    assert [each.id for each in found] == [10]
    assert before_entities[0] >= 5000 // TURN
