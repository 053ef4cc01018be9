"""
Every verb, on an entity that was read in every way, with every sort of change: afterwards the copies are what the
primaries say, and no other row was touched.
"""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tableorm import (
    Bulk,
    BulkReport,
    Database,
    EncodeError,
    Entity,
    Index,
    Mapped,
    NotLoaded,
    NotRead,
    NotSupported,
    PropertyBag,
    Select,
    TableOrmError,
    Transaction,
    field,
    to_dict,
    upgrade,
)
from tests.databases import database_fixture
from tests.derived.index.oracle import audit, read_table, rows_of
from tests.derived.index.staff import KINDS, Desk, Employee, EmployeeV1, employee, find_wrong
from tests.torture import every

EMPLOYEE = Employee.key(department="Sales", id=1)


FIELDS: dict[str, Any] = {
    "department": "Sales",
    "id": 1,
    "email": "e1@x",
    "last_name": "Li",
    "age": 30,
    "note": "x",
    "active": True,
}
"""What is stored of the employee that is written."""

CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "what one index copies": {"note": "y"},
    "the key of one index": {"email": "new@x"},
    "no key of one index": {"email": None},
    "a condition": {"active": False},
    "everything": {"email": "z@x", "last_name": "Zed/é", "age": 77, "note": "y"},
}

EVERYTHING = len(CHANGES["everything"])

Source = Callable[[Database], Awaitable[Employee]]
Verb = Callable[[Database, Employee, dict[str, Any]], Awaitable[object]]


async def written(db: Database) -> Employee:
    await db.delete(EMPLOYEE, if_match="*")
    return await write_first(db)


async def make(db: Database) -> Employee:
    return employee(1, note="x")


async def upgraded(db: Database, read: Source) -> Employee:
    """Return what is read of an employee that a program of the version before has written."""
    await db.delete(EMPLOYEE, if_match="*")
    old = EmployeeV1(department="Sales", id=1, email="e1@x", note="x")
    old.extra["Phone"] = "555"
    await db.insert(old)
    return await read(db)


def found(db: Database, of: Any = Employee) -> Select[Employee]:
    query: Select[Employee] = db.select(of).where(Employee.department == "Sales", Employee.email == "e1@x")
    return query


def load(db: Database) -> Awaitable[Employee]:
    return db.get(EMPLOYEE)


def by_email(db: Database) -> Awaitable[Employee]:
    return db.get(Employee.by_email, department="Sales", email="e1@x")


def by_age(db: Database) -> Awaitable[Employee]:
    return db.get(Employee.by_age, department="Sales", age=30, id=1)


SOURCES: dict[str, Source] = {
    "written": written,
    "loaded": load,
    "made": make,
    "in_part": lambda db: found(db).where(Employee.id == 1).only(Employee.last_name, Employee.active).one(),
    "by_email": by_email,
    "by_name": lambda db: db.get(Employee.by_name, department="Sales", last_name="Li", id=1),
    "by_age": by_age,
    "found_by_email": lambda db: found(db, Employee.by_email).one(),
    "found_in_part": lambda db: found(db, Employee.by_email).only(Employee.age).one(),
    "upgraded": lambda db: upgraded(db, load),
    "upgraded_by_email": lambda db: upgraded(db, by_email),
    "upgraded_by_age": lambda db: upgraded(db, by_age),
}
PARTIAL = {"in_part", "by_age", "found_in_part"}
COPIED = {"by_email", "by_age", "found_by_email", "found_in_part"}


def assign(one: Employee, change: dict[str, Any]) -> Employee:
    for name, value in change.items():
        setattr(one, name, value)
    return one


def by(verb: Callable[..., Awaitable[object]], **options: Any) -> Verb:
    """Write the changed entity by this method of the database."""
    return lambda db, one, change: verb(db, assign(one, change), **options)


def in_transaction(verb: Callable[..., object], **options: Any) -> Verb:
    async def write(db: Database, one: Employee, change: dict[str, Any]) -> None:
        async with db.transaction() as tx:
            verb(tx, assign(one, change), **options)

    return write


def in_bulk(verb: Callable[..., Awaitable[object]], **options: Any) -> Verb:
    async def write(db: Database, one: Employee, change: dict[str, Any]) -> None:
        async with db.bulk(errors="report") as bulk:
            await verb(bulk, assign(one, change), **options)
        raise_first(bulk.report)

    return write


async def tx_modify(db: Database, one: Employee, change: dict[str, Any]) -> None:
    async with db.transaction() as tx:
        await tx.modify(one.key, lambda e: assign(e, change))


async def tx_delete_insert(db: Database, one: Employee, change: dict[str, Any]) -> None:
    async with db.transaction() as tx:
        tx.delete(one)
        tx.insert(assign(one, change))


async def delete_by_key(bulk: Bulk, one: Employee) -> None:
    await bulk.delete(one.key, if_match="*")


async def delete_found(query: Select[Employee]) -> None:
    assert (await query.delete()).written == 1


def raise_first(report: BulkReport) -> None:
    for failure in report.failed:
        raise failure.error


VERBS: dict[str, Verb] = {
    "save": by(Database.save),
    "merge": by(Database.merge),
    "merge_some": lambda db, one, change: db.merge(assign(one, change), only=list(change)),
    "force_merge": lambda db, one, change: db.merge(assign(one, change), only=list(change), if_match="*"),
    "replace": by(Database.replace),
    "force_replace": by(Database.replace, if_match="*"),
    "drop_extra": by(Database.replace, if_match="*", drop_extra=True),
    "upsert_merge": by(Database.upsert),
    "upsert_replace": by(Database.upsert, mode="replace"),
    "delete": by(Database.delete),
    "force_delete": by(Database.delete, if_match="*"),
    "modify": lambda db, one, change: db.modify(one, lambda e: assign(e, change)),
    "modify_key": lambda db, one, change: db.modify(one.key, lambda e: assign(e, change)),
    "tx_save": in_transaction(Transaction.save),
    "tx_force_replace": in_transaction(Transaction.replace, if_match="*"),
    "tx_upsert": in_transaction(Transaction.upsert, mode="replace"),
    "tx_modify": tx_modify,
    "tx_delete": in_transaction(Transaction.delete),
    "tx_delete_insert": tx_delete_insert,
    "bulk_save": in_bulk(Bulk.save),
    "bulk_upsert": in_bulk(Bulk.upsert, mode="replace"),
    "bulk_delete": in_bulk(delete_by_key),
    "query_delete": lambda db, one, change: delete_found(found(db).where(Employee.id == 1)),
    "index_query_delete": lambda db, one, change: delete_found(found(db, Employee.by_email)),
}
OF_ANY_KEY = [verb for verb in VERBS if verb not in ("query_delete", "index_query_delete")]
"""Verbs that take any entity, and not only the employee of these tests."""
WHOLE = {
    "replace",
    "force_replace",
    "drop_extra",
    "upsert_merge",
    "upsert_replace",
    "tx_force_replace",
    "tx_upsert",
    "tx_delete_insert",
    "bulk_upsert",
}
NEED_ETAG = {
    "bulk_save",
    "save",
    "merge",
    "merge_some",
    "replace",
    "delete",
    "modify",
    "tx_save",
    "tx_delete",
    "tx_delete_insert",
}
MERGES = {"merge", "merge_some", "force_merge", "upsert_merge"}
DELETES = {"delete", "force_delete", "tx_delete", "bulk_delete", "query_delete", "index_query_delete"}


def refusal(verb: str, source: str, change: dict[str, Any]) -> type[TableOrmError] | None:
    """What must be raised, if the verb cannot do it."""
    if source == "made" and verb in NEED_ETAG:
        return NotRead
    if source in PARTIAL and verb in WHOLE and not (source == "in_part" and len(change) == EVERYTHING):
        return NotLoaded
    if (source in COPIED or source == "in_part") and verb == "tx_delete_insert":
        return NotSupported  # where its copies are has to be read, and that is when the block ends
    if None in change.values() and verb in MERGES and not (source == "made" and verb == "upsert_merge"):
        return EncodeError
    return None


def expected(verb: str, source: str, change: dict[str, Any]) -> dict[str, Any]:
    """The fields afterwards."""
    if source == "made" and verb == "upsert_merge":
        return FIELDS | {name: value for name, value in change.items() if value is not None}
    return FIELDS | change


async def prepare(db: Database) -> None:
    """The employee of the test, and rows around it that are not to be touched."""
    await db.create_tables(Employee)
    await write_first(db)
    for other in (employee(2, note="x"), employee(1, "HR", note="x"), employee(3, email=None)):
        await db.insert(other)
    await db.insert(Desk(department="Sales", number=1))
    await db.insert(PropertyBag("Staff", "Sales", "email_", {"x": 1}))


async def write_first(db: Database) -> Employee:
    one = employee(1, note="x")
    one.extra["Phone"] = "555"
    await db.insert(one)
    return one


async def check(db: Database, verb: str, source: str, change: dict[str, Any]) -> None:
    """One cell of the matrix."""
    one = await SOURCES[source](db)
    before = await read_table(db, "Staff")
    refused = refusal(verb, source, change)
    if refused is not None:
        with pytest.raises(refused):
            await VERBS[verb](db, one, change)
        assert rows_of(await read_table(db, "Staff")) == rows_of(before)
        return

    await VERBS[verb](db, one, change)

    after = await read_table(db, "Staff")
    assert audit(after, KINDS) == []
    mine = {key for table in (before, after) for key in addresses(table)}
    assert {key: row for key, row in rows_of(after).items() if key not in mine} == {
        key: row for key, row in rows_of(before).items() if key not in mine
    }
    stored = await db.get_or_none(EMPLOYEE)
    if verb in DELETES:
        assert stored is None
        return
    assert stored is not None
    assert to_dict(stored) == expected(verb, source, change)
    unread = source in ("made", "in_part") and verb in ("upsert_replace", "tx_upsert", "bulk_upsert")
    assert dict(stored.extra) == ({} if unread or verb == "drop_extra" else {"Phone": "555"})


def addresses(table: dict[tuple[str, str], PropertyBag]) -> set[tuple[str, str]]:
    """The keys of the employee's own rows."""
    primary = ("Sales", "empid_000001")
    copies = {key for key, bag in table.items() if key[0] == "Sales" and bag.get("_of") == primary[1]}
    return {primary} | copies


memory = database_fixture()


@pytest.mark.parametrize(("verb", "source", "change"), every(53, itertools.product(VERBS, SOURCES, CHANGES)))
async def test_copies_follow(memory: Database, verb: str, source: str, change: str) -> None:
    """Whatever is written, however it was read, whatever has changed."""
    await prepare(memory)
    await check(memory, verb, source, CHANGES[change])


@pytest.mark.parametrize("verb", ["save", "upsert_merge", "delete", "tx_modify"])
async def test_the_entity_can_be_written_again(memory: Database, verb: str) -> None:
    """What a write leaves in the hands of the program is good for the next one."""
    await prepare(memory)
    one = await by_email(memory)
    await VERBS[verb](memory, one, CHANGES["everything"])
    again: Entity = one
    if verb == "delete":
        await memory.insert(one)
    elif verb == "tx_modify":
        again = await load(memory)
    assert isinstance(again, Employee)
    again.email, again.last_name = "third@x", "Third"
    await memory.save(again)

    assert await find_wrong(memory) == []
    assert (await memory.get(Employee.by_email, department="Sales", email="third@x")).last_name == "Third"


class Visitor(Entity, table="Visitors", partition_key="{house}", row_key="v_{id}"):
    house: Mapped[str]
    id: Mapped[int]
    email: Mapped[str | None] = field(default=None)
    by_email = Index(row_key="email_{email}_{id}")


@pytest.mark.parametrize("verb", ["insert", "upsert_merge", "upsert_replace", "replace", "save"])
async def test_an_entity_without_entries_has_no_manifest(memory: Database, verb: str) -> None:
    """A manifest is stored with the first entry, and goes with the last one."""
    await memory.create_tables(Visitor)
    one = Visitor(house="a", id=1)
    if verb in {"replace", "save"}:
        await memory.insert(one)
        one.email = "e@x"
        await memory.save(one)
        one.email = None
    if verb.startswith("upsert_"):
        await memory.upsert(one, mode="replace" if verb == "upsert_replace" else "merge")
    else:
        await getattr(memory, verb)(one)
    rows = rows_of(await read_table(memory, "Visitors"))

    assert "_ix" not in rows["a", "v_1"]


class AnyCoin(Entity, table="Coins", partition_key="{owner}", row_key="coin_{id}", abstract=True):
    owner: Mapped[str]
    id: Mapped[str]
    worth: Mapped[int] = field(default=5)

    by_worth = Index(row_key="worth_{worth:03d}_{id}", where=lambda e: e.worth > 0)


class CoinV1(AnyCoin, kind="Coin"): ...


class Coin(AnyCoin, version=2):
    side: Mapped[str] = field(default="heads")


@upgrade(Coin, from_version=1)
def show_heads(bag: PropertyBag) -> PropertyBag:
    bag["side"] = "heads"
    return bag


@pytest.mark.parametrize("only", [["worth"], None])
@pytest.mark.parametrize("if_match", ["*", "its own", None])
async def test_an_upgraded_entity_without_entries(db: Database, only: Any, if_match: str | None) -> None:
    """A merge, which replaces its row then, leaves neither the manifest nor the write token that the row had."""
    await db.create_tables(Coin)
    await db.insert(CoinV1(owner="ann", id="a"))
    key = PropertyBag.key("Coins", "ann", "coin_a")
    before = await db.get(key)
    coin = await db.get(Coin, owner="ann", id="a")
    coin.worth = -1
    await db.merge(coin, only=only, if_match=coin.etag if if_match == "its own" else if_match)

    after = await db.get(key)
    assert "_ix" in before.row
    assert "_ix" not in after.row
    assert str(after.row["_w"]).split(",")[0] != str(before.row["_w"]).split(",")[0]
    assert [key for _, key in await read_table(db, "Coins")] == ["coin_a"]
