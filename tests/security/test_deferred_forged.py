"""
Rows by which changes of several partitions keep their state, forged by who may write the rows of one partition.

The victim has all rights: a program that writes, a worker, an audit.
"""

import asyncio
import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest

from tableorm import Database, Entity, Index, IndexList, Mapped, PropertyBag, Workflow, field, workflow
from tableorm.audit import check, decisions
from tableorm.derived.index_list.rows import bits_of
from tableorm.stores import Operation, Row, Verb
from tests.security.world import work


class Employed(Entity, abstract=True):
    department: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="?")


class Employee(Employed, table="Current", partition_key="{department}", row_key="empid_{id:06d}"):
    city: Mapped[str | None] = field(default=None)

    by_city = Index(
        table="Cities", partition_key="city_{city}", row_key="in_{department}_{id:06d}", consistency="eventual"
    )
    in_city = IndexList(table="Lists", partition_key="{city}", row_key="people", consistency="eventual")


class Former(Employed, table="ForgedArchive", partition_key="{department}", row_key="empid_{id:06d}"):
    pass


class Right(Entity, table="Rights", partition_key="{user}", row_key="{right}"):
    user: Mapped[str]
    right: Mapped[str]
    by: Mapped[str | None] = field(default=None)


RUN: list[tuple[str, Any]] = []


@workflow("deferred-ship")
class Ship(Workflow[Employee]):
    async def check(self, db: Database) -> None:
        RUN.append((self.key.row_key, self.arguments))


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Employee, Former, Right)
    await db.insert(Employee(department="Sales", id=10, name="Ann", city="Rome"))
    return db


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three hours pass."""

    class Later:
        @staticmethod
        def now() -> dt.datetime:
            return dt.datetime.now(dt.UTC) + dt.timedelta(hours=3)

    for module in (check, decisions):
        monkeypatch.setattr(module, "CLOCK", Later)


def entity(partition: str, row_key: str, kind: str = "Employee", **members: Any) -> Operation:
    """Return the write of an entity as the forger wants it."""
    return Operation(
        Verb.INSERT_OR_REPLACE, {"PartitionKey": partition, "RowKey": row_key, "EntityType": kind, **members}
    )


async def plant(db: Database, **entries: object) -> None:
    """Write an employee whose manifest has some entries."""
    await db.store.write("Current", entity("Evil", "empid_000001", _ix=json.dumps(entries)))


def decision(partition: str, works: list[dict[str, Any]], row_key: str = "~o_aaaaaaaaaaaa") -> Operation:
    """Return the write of a decision row as the forger wants it."""
    text = json.dumps({"format": 1, "works": works})
    return entity(partition, row_key, "#_decision", State="committed", Work=text)


async def rows_of(db: Database, *tables: str) -> list[dict[str, Any]]:
    """Return all rows of some tables, without their write tokens."""
    return [
        {n: v for n, v in row.row.items() if n not in ("_w", "_v", "odata.etag", "Timestamp")}
        for table in tables
        for row in await db.select_raw(table).allow_scan().all()
    ]


OF_ANN = {
    "by_city": {"at": ["city_Rome", "in_Sales_000010", "Cities"]},
    "in_city": {"in": ["Rome", "people", "Lists", "Employee#in_city"]},
}


async def save(db: Database) -> None:
    """Save the row of the other table."""
    former = await db.get(Former, department="Sales", id=10)
    former.name = "changed"
    await db.save(former)


async def delete(db: Database) -> None:
    """Delete it."""
    await db.delete(await db.get(Former, department="Sales", id=10))


async def delete_bag(db: Database) -> None:
    """Delete it by a program that does not know its model."""
    await db.delete(await db.get(PropertyBag.key("ForgedArchive", "Sales", "empid_000010")))


@pytest.mark.parametrize("write", [save, delete, delete_bag], ids=lambda each: each.__name__)
async def test_a_manifest_reaches_no_entries_of_another_table(db: Database, write: Callable[[Database], Any]) -> None:
    """A row of one table with the keys of an entity in another one does not get the entries of that deleted."""
    await db.store.write("ForgedArchive", entity("Sales", "empid_000010", "Former", name="x", _ix=json.dumps(OF_ANN)))
    before = await rows_of(db, "Cities", "Lists")
    await write(db)
    assert await rows_of(db, "Cities", "Lists") == before


async def test_a_decision_row_is_about_entities_of_its_table(db: Database) -> None:
    """A worker that is told again of a decision row of one table does not replace the entries of another one's."""
    fake = entity("Sales", "empid_000010", "Employee", name="Mallory", city="Rome", _ix=json.dumps(OF_ANN))
    await db.store.write("ForgedArchive", fake)
    task = {"kind": "Employee", "row": "empid_000010", "entries": {n: [e] for n, e in OF_ANN.items()}}
    await db.store.write("ForgedArchive", decision("Sales", [task]))
    before = await rows_of(db, "Cities", "Lists")
    await work(db, Employee, table="ForgedArchive")
    assert await rows_of(db, "Cities", "Lists") == before


@pytest.mark.parametrize("kind", ["Right", "Employee#in_city"])
@pytest.mark.parametrize("existed", [False, True], ids=["inserted", "overwritten"])
async def test_a_decision_row_adds_to_lists_of_its_model_alone(
    db: Database, later: None, existed: bool, kind: str
) -> None:
    """An audit that carries out a decision row inserts and replaces no rows that are no lists of the model."""
    if existed:
        await db.insert(Right(user="mallory", right="admin~", by="the owner"))
    place = {"in": ["mallory", "admin", "Rights", kind]}
    await plant(db, in_city=place)
    task = {"kind": "Employee", "row": "empid_000001", "entries": {"in_city": [place]}}
    await db.store.write("Current", decision("Evil", [task]))
    before = await rows_of(db, "Rights")
    await db.audit(Employee, repair=True)
    assert await rows_of(db, "Rights") == before


@pytest.mark.parametrize(
    "entries", [[], [{"at": ["a", "b", "Cities"]}, "x"], [{"at": ["a", "b", "Cities"]}, OF_ANN["in_city"], {"x": 1}]]
)
async def test_an_odd_decision_row_ends_no_audit(db: Database, later: None, entries: list[Any]) -> None:
    """An audit reports a decision row whose work nobody can do, and goes on."""
    await db.store.write("Current", decision("Evil", [{"kind": "Employee", "row": "x", "entries": {"nope": entries}}]))
    report = await db.audit(Employee, repair=True)
    assert not report.clean


async def test_a_list_that_is_divided_for_ever_is_refused(db: Database) -> None:
    """A write that follows a list through rows which are all divided ends after as many reads as a list can need."""
    place = {"in": ["Evil", "x", "Current", "Employee#in_city"]}
    member = "Current\tEvil\tempid_000001"
    rows: list[Row] = [
        {"PartitionKey": "Evil", "RowKey": "x~" + bits_of(member, n), "EntityType": "Employee#in_city", "Divided": True}
        for n in range(100)
    ]
    await db.store.transact("Current", [Operation(Verb.INSERT, row) for row in rows])
    await plant(db, in_city=place)
    employee = await db.get(Employee, department="Evil", id=1)
    employee.name = "changed"
    before = db.stats.requests
    await asyncio.wait_for(db.save(employee), 20)
    assert db.stats.requests - before < 100


async def test_a_step_has_a_token_of_its_own(db: Database) -> None:
    """
    The token of a step is that of no workflow of another partition, table or class, also if a decision row there has
    the same RowKey: what a step writes under its token would replace what that of the other workflow wrote.
    """
    tokens: list[str] = []

    @workflow("deferred-tokens")
    class Tokens(Workflow[Employee]):
        async def note(self, db: Database) -> None:
            tokens.append(self.token)

    @workflow("deferred-others")
    class Others(Workflow[Employee]):
        async def note(self, db: Database) -> None:
            tokens.append(self.token)

    @workflow("deferred-former")
    class OfFormer(Workflow[Former]):
        async def note(self, db: Database) -> None:
            tokens.append(self.token)

    for table, partition, kind in (
        ("Current", "Sales", "tokens"),
        ("Current", "Evil", "tokens"),
        ("Current", "Odd", "others"),
        ("ForgedArchive", "Sales", "former"),
    ):
        task: dict[str, Any] = {
            "kind": f"workflow deferred-{kind}:1",
            "row": "empid_000001",
            "entries": {},
            "arguments": "{}",
        }
        await db.store.write(table, decision(partition, [task]))
    for table in ("Current", "ForgedArchive"):
        await work(db, Employee, Former, Tokens, Others, OfFormer, table=table)
    assert len(set(tokens)) == 4


async def test_a_decision_row_starts_workflows_of_its_table_alone(db: Database) -> None:
    """A worker that is told of a decision row of one table runs no workflow about entities of another one."""
    RUN.clear()
    task: dict[str, Any] = {"kind": "workflow deferred-ship:1", "row": "empid_000001", "entries": {}, "arguments": "{}"}
    await db.store.write("ForgedArchive", decision("Evil", [task]))
    await work(db, Employee, Ship, table="ForgedArchive")
    assert RUN == []


@pytest.mark.one_of(3)
@pytest.mark.parametrize("entry", [{"add": ["a", {"b": 1}]}, {"to": ["a", {"b": "c"}]}, {"zz": []}, 5])
@pytest.mark.parametrize("name", ["in_city", "by_city", "nope"])
async def test_an_entry_of_another_form_ends_no_audit(db: Database, name: str, entry: object) -> None:
    """An audit reports a manifest that has an entry of another form under the name of a declaration, and goes on."""
    for repair in (False, True):
        await plant(db, **{name: entry})
        report = await db.audit(Employee, repair=repair)
        assert report.findings or name == "nope"


@pytest.mark.parametrize("name", ["in_city", "nope"])
async def test_the_same_entry_many_times_is_one(db: Database, later: None, name: str) -> None:
    """A decision row that names an entry again and again costs no more than one that names it once."""
    spent: list[int] = []
    for times in (1, 100):
        place = {"in": ["Rome", "people", "Lists", f"Employee#{name}"]}
        task = {"kind": "Employee", "row": "empid_000001", "entries": {name: [place] * times}}
        await db.store.write("Current", decision("Evil", [task]))
        before = db.stats.requests
        await db.audit(Employee, repair=True)
        spent.append(db.stats.requests - before)
    assert spent[0] == spent[1]
