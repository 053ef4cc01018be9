"""
A row stage that the program knows nothing of, written here alone: entities that are stored in two rows.

`halves = Halved("note", "more")` in a class body stores these fields in a row of its own, beside that of the entity.
Each write of any of them writes its token into both rows. The stage also counts the pages of rows that it prepares.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

import pytest

from tableorm import (
    Conflict,
    Database,
    Entity,
    EntityExists,
    Index,
    Mapped,
    PreconditionFailed,
    PropertyBag,
    RetryPolicy,
    TransactionFailed,
    connect,
    field,
)
from tableorm.models.property_types import FieldInfo
from tableorm.models.reserved import PART
from tableorm.models.row_stage import SplitStage
from tableorm.protocol.edm import ANNOTATION
from tableorm.stores import Operation, Row, Verb
from tableorm.testing.faults import Faults

HEAD = "_p01"


class Halved(SplitStage):
    most_rows = 2
    prepares = True

    def __init__(self, *fields: str) -> None:
        self.fields = fields
        self.prepared: list[int] = []

    def bind(self, fields: Mapping[str, FieldInfo]) -> "Halved":
        bound = Halved(*self.fields)
        bound.elsewhere = frozenset(member.property for name in self.fields for member in fields[name].members)
        return bound

    def check(self, schema: Any) -> None:
        self.kind = schema.kind

    def seal(self, operation: Operation) -> Operation:
        return operation

    async def prepare(self, db: Any, table: str, rows: Sequence[Row], select: tuple[str, ...] | None) -> None:
        self.prepared.append(len(rows))

    def unseal(self, row: Row) -> Row:
        if HEAD in row:
            raise ValueError("its rows were not joined")
        return row

    def _is_there(self, row: Row) -> bool:
        return any(name in row for name in self.elsewhere)

    def split(self, operation: Operation, stored: Row | None) -> list[Operation]:
        verb, row = operation.verb, operation.row
        keys = {"PartitionKey": row["PartitionKey"], "RowKey": row["RowKey"] + "~"}
        had = verb is not Verb.INSERT and stored is not None and self._is_there(stored)
        gone = [Operation(Verb.DELETE, keys, "*")] if had else []
        if verb is Verb.DELETE:
            return [operation, *gone]
        other = {name: row[name] for name in row if name.removesuffix(ANNOTATION) in self.elsewhere}
        first = {name: row[name] for name in row if name not in other}
        if not other:
            return [Operation(verb, first, operation.if_match), *(gone if verb is Verb.REPLACE else [])]
        first[HEAD] = token = row["_w"].partition(",")[0]
        other |= {**keys, "EntityType": self.kind + PART, "_w": token}
        second = Operation(verb if had else Verb.INSERT, other, "*" if had else None)
        return [Operation(verb, first, operation.if_match), second]

    def owner_of(self, row_key: str) -> str:
        return row_key[:-1]

    def last_key(self, row_key: str) -> str:
        return row_key + "~"

    def is_in_first(self, select: tuple[str, ...] | None) -> bool:
        return select is not None and self.elsewhere.isdisjoint(select)

    def asks_for(self, select: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if select is None else (*select, HEAD, "_w")

    def join(self, first: Row, others: Sequence[Row]) -> Row | None:
        head = first.get(HEAD)
        if [head] * (head is not None) != [other["_w"] for other in others]:
            return None
        row = {name: value for name, value in first.items() if name != HEAD}
        for other in others:
            row |= {n: v for n, v in other.items() if n.removesuffix(ANNOTATION) in self.elsewhere and v is not None}
        return row

    def further_keys(self, row: Row) -> list[str]:
        return [f"{row['RowKey']}~"] if self._is_there(row) else []

    def hint(self) -> str:
        return "Use more rows."


class Halves(Entity, table="Halves", partition_key="{box}", row_key="half_{id:03d}", tracked=True):
    box: Mapped[str] = field(default="b")
    id: Mapped[int]
    size: Mapped[int] = field(default=0)
    note: Mapped[str | None] = field(default=None)
    more: Mapped[list[int]] = field(factory=list)

    halves = Halved("note", "more")
    by_size = Index(row_key="size_{size:03d}_{id:03d}", include="keys")


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with connect("local::memory:", retry=RetryPolicy(base=0)) as database:
        await database.create_tables(Halves)
        yield database


async def stored(db: Database) -> dict[str, dict[str, Any]]:
    """Return the rows of the table by RowKey."""
    return {bag.row_key: dict(bag) for bag in await db.select_raw("Halves").allow_scan().all()}


async def get(db: Database, number: int = 1) -> Halves:
    return await db.get(Halves, box="b", id=number)


def stage() -> Halved:
    return cast("Halved", Halves.__schema__.split)


async def test_an_entity_is_stored_in_two_rows_and_read_as_one(db: Database) -> None:
    """By get in one request, query, page, only, refresh and an index; a property bag has one of the rows."""
    one = Halves(id=1, note="n", more=[1, 2], size=7)
    await db.insert(one)
    rows = await stored(db)
    assert sorted(rows) == ["half_001", "half_001~", "size_007_001"]
    assert "note" not in rows["half_001"]
    assert rows["half_001~"]["note"] == "n"
    with db.observe() as seen:
        assert await get(db) == one
        assert await db.exists(Halves, box="b", id=1)
    assert seen.cost == 2
    query = db.select(Halves).where(Halves.box == "b")
    assert await query.all() == [one]
    assert await query.count() == 1
    assert await query.where(Halves.note == "n", Halves.size < 8).all() == [one]
    assert await query.where(Halves.note != "n").all() == []
    assert [each.note for each in await query.only(Halves.note).all()] == ["n"]
    assert await db.select(Halves).where(Halves.box == "b", Halves.size == 7).all() == [one]
    assert await db.select(Halves.by_size).where(Halves.box == "b", Halves.size == 7).all() == [one]
    assert await db.get(Halves.by_size, box="b", size=7, id=1) == one
    again = await get(db)
    again.note = "changed"
    await db.refresh(again)
    assert again == one
    assert (await db.get(PropertyBag.key("Halves", "b", "half_001~")))["note"] == "n"
    found = await db.select(Halves, PropertyBag).where(Halves.box == "b").all()
    assert [each.row_key if isinstance(each, PropertyBag) else each for each in found] == [one, "size_007_001"]
    assert not (await db.audit(Halves)).findings


async def test_every_verb_writes_both_rows(db: Database) -> None:
    """Insert, save, merge, upsert, replace, modify, transaction, bulk, a delete by a query, and delete."""
    one = Halves(id=1, note="n")
    await db.insert(one)
    with pytest.raises(EntityExists):
        await db.insert(Halves(id=1))
    other = await get(db)
    one.note = "m"
    steps = db.explain_write("save", one).steps
    assert [(step.method, step.path[-10:], step.if_match) for step in steps] == [
        ("PATCH", "half_001')", one.etag),
        ("PATCH", "alf_001~')", "*"),
    ]
    await db.save(one)
    assert await get(db) == one
    other.size = 5
    with pytest.raises(PreconditionFailed):
        await db.save(other)
    one.note, one.more = None, []
    await db.save(one)
    assert await get(db) == one
    for mode in ("merge", "replace"):
        await db.upsert(Halves(id=1, note=mode, more=[3]), mode=mode)
        assert (await get(db)).note == mode
    await db.replace(Halves(id=1, note="r"), if_match="*")
    await db.modify(Halves, lambda each: each.evolve(note=f"{each.note}!"), box="b", id=1)
    assert await get(db) == Halves(id=1, note="r!")
    async with db.transaction() as tx:
        held = await tx.get(Halves, box="b", id=1)
        held.note = "held"
        tx.save(held)
        held.size = 3
        tx.save(held)
        tx.insert(Halves(id=2, note="two"))
    with pytest.raises(TransactionFailed) as failed:
        async with db.transaction() as tx:
            tx.insert(Halves(id=3))
            tx.insert(Halves(id=2))
    assert failed.value.index == 1
    async with db.bulk() as bulk:
        for number in range(3, 120):
            await bulk.insert(Halves(id=number, note=str(number)))
    assert [(await get(db, number)).note for number in (1, 2, 103)] == ["held", "two", "103"]
    page = await db.select(Halves).where(Halves.box == "b", Halves.id > 1).page(10)
    assert [each.id for each in page.items] == [*range(2, 12)]
    found = [each.note async for each in db.select(Halves).where(Halves.box == "b")]
    assert found == ["held", "two", *map(str, range(3, 120))]
    report = await db.select(Halves).where(Halves.box == "b", Halves.id > 2).delete()
    assert (report.written, report.failures) == (117, 0)
    await db.delete(await get(db, 2))
    await db.delete(Halves, box="b", id=1, if_match="*")
    assert await stored(db) == {}


async def test_rows_are_prepared_page_by_page_before_they_are_unsealed(db: Database) -> None:
    """A point read prepares one row, a query its pages, a forced write the row that it reads."""
    async with db.bulk() as bulk:
        for number in range(20):
            await bulk.insert(Halves(id=number, note="n"))
    stage().prepared.clear()
    await get(db)
    await db.select(Halves).where(Halves.box == "b", Halves.id < 10).all()
    await db.delete(Halves, box="b", id=3, if_match="*")
    assert stage().prepared == [1, 10, 1]


async def test_a_row_without_its_other_one_is_no_entity(db: Database) -> None:
    """It is read again for a while, then refused; so is a write of the other row, which another program has deleted."""
    one = Halves(id=1, note="n")
    await db.insert(one)
    await db.delete(PropertyBag.key("Halves", "b", "half_001~"), if_match="*")
    reading = asyncio.create_task(get(db))
    one.note = "m"
    with pytest.raises(Conflict, match="another program has written or deleted"):
        await db.save(one)
    with pytest.raises(Conflict, match="did not fit together"):
        await reading


async def test_a_lost_reply_is_resolved_by_the_first_row(db: Database) -> None:
    """A save of both rows whose reply is lost happens once."""
    one = Halves(id=1, note="n")
    await db.insert(one)
    faults = Faults(db)
    for fault in (faults.lose_reply, faults.lose_request):
        one.note = f"{one.note}!"
        with fault("transaction"):
            await db.save(one)
        assert await get(db) == one
    assert one.note == "n!!"
