"""
Verbs that say what happened: an insert that leaves a row as it is, and a delete that says whether there was one.
"""

import datetime as dt
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import (
    Count,
    Database,
    Entity,
    EntityNotFound,
    Index,
    Mapped,
    PropertyBag,
    TableOrmError,
    UniqueViolation,
    field,
    utc_now,
)
from tableorm.connection.connection import connection_of
from tableorm.protocol.codes import Code, Fault
from tableorm.stores.layers import StoreLayer, StoreRequest
from tests.databases import memory_database
from tests.faults import before_requests
from tests.rows import delete_row, insert_row


class Stock(Entity, table="ExistOk", partition_key="{shop}", row_key="stock"):
    shop: Mapped[str]
    parts: Mapped[int] = field(default=0, maintained=True)


class Thing(Entity, table="ExistOk", partition_key="{shop}", abstract=True):
    shop: Mapped[str] = field(default="s")
    id: Mapped[int]


class Coded(Thing, abstract=True):
    code: Mapped[str]


class Part(Coded, row_key="part_{id:05d}"):
    by_code = Index(row_key="code_{code}", unique=True)
    counted = Count(lambda: Stock.parts, create=True, shop="{shop}")


class Placed(Coded, row_key="placed_{id:05d}"):
    by_code = Index(partition_key="code_{code}", row_key="x", unique=True, consistency="eventual")


class Plain(Coded, row_key="plain_{id:05d}"): ...


class Lease(Coded, row_key="lease_{id:05d}"):
    until: Mapped[dt.datetime | None] = field(default=None, expiry=True)


MODELS: list[Any] = [Part, Placed, Plain, Lease]
Way = Literal["alone", "transaction", "bulk"]
each_way = pytest.mark.parametrize("way", ["alone", "transaction", "bulk"])


async def insert_all(db: Database, way: Way, entities: list[Any]) -> list[Any]:
    """Insert entities where there are none, and return those that were there."""
    if way == "alone":
        return [each for each in entities if not await db.insert(each, exist_ok=True)]
    if way == "transaction":
        async with db.transaction() as tx:
            for each in entities:
                tx.insert(each, exist_ok=True)
        return [*tx.existing]
    async with db.bulk() as bulk:
        for each in entities:
            await bulk.insert(each, exist_ok=True)
    assert (bulk.report.written, bulk.report.existing) == (len(entities) - len(bulk.report.kept), len(bulk.report.kept))
    return [*bulk.report.kept]


@given(
    model=st.sampled_from(MODELS),
    way=st.sampled_from(["alone", "transaction", "bulk"]),
    there=st.sets(st.integers(0, 12)),
    ids=st.lists(st.integers(0, 12), unique=True, min_size=1),
)
async def test_only_what_is_missing_is_inserted(model: Any, way: Way, there: set[int], ids: list[int]) -> None:
    """Rows that exist stay byte for byte, the others are inserted with what is derived from them, and both are told."""
    async with memory_database(*MODELS, Stock) as db:
        for number in there:
            await db.insert(model(id=number, code=f"old {number}"))
        before = {entity.id: entity for entity in await db.select(model).allow_scan().all()}

        given = [model(id=number, code=f"old {number}") for number in ids]
        kept = await insert_all(db, way, given)

        assert [each.id for each in kept] == [number for number in ids if number in there]
        after = {entity.id: entity for entity in await db.select(model).allow_scan().all()}
        assert after.keys() == there | {*ids}
        assert {number: after[number].etag for number in there} == {n: each.etag for n, each in before.items()}
        assert all((each.etag is None) == (each.id in there) for each in given)
        report = await db.audit(model)
        assert report.clean
        if model is Part:
            assert (await db.get(Stock, shop="s")).parts == len(after)


@each_way
async def test_an_expired_entity_is_no_row_that_stays(db: Database, way: Way) -> None:
    """An insert takes the place of an expired entity, also beside rows that stay."""
    await db.create_tables(Lease)
    past = utc_now() - dt.timedelta(days=1)
    for number in range(9):
        await db.insert(Lease(id=number, code="old", until=past if number % 2 else None))

    kept = await insert_all(db, way, [Lease(id=number, code="new") for number in range(9)])

    assert [each.id for each in kept] == [0, 2, 4, 6, 8]
    assert [each.code for each in await db.select(Lease).where(Lease.shop == "s").all()] == ["old", "new"] * 4 + ["old"]


@each_way
@pytest.mark.parametrize("model", [Part, Placed])
async def test_a_value_that_another_entity_has_is_still_refused(db: Database, way: Way, model: Any) -> None:
    """`exist_ok` is about the row, not about a unique value that another entity has."""
    await db.create_tables(model, Stock)
    await db.insert(model(id=1, code="a"))

    with pytest.raises(TableOrmError) as caught:
        await insert_all(db, way, [model(id=2, code="a")])

    assert isinstance(caught.value, UniqueViolation) or isinstance(caught.value.__cause__, UniqueViolation)


class Named(Thing, row_key="named_{id:05d}"):
    by_id = Index(row_key="by_{id:05d}")


@each_way
@pytest.mark.parametrize("taken", ["by another kind", "by an entry that was left over"])
async def test_an_index_entry_is_not_the_row(db: Database, way: Way, taken: str) -> None:
    """An entity whose index entry has no place does not count as one that is there: nothing has its key."""
    await db.create_tables(Named)
    await db.insert(PropertyBag("ExistOk", "s", "by_00001", {"Age": 7}))
    if taken != "by another kind":
        await db.delete(PropertyBag.key("ExistOk", "s", "by_00001"), if_match="*")
        await db.insert(Named(id=1))
        await delete_row(db, "ExistOk", {"PartitionKey": "s", "RowKey": "named_00001"})

    with pytest.raises(TableOrmError):
        await insert_all(db, way, [Named(id=1), Named(id=2)])


@pytest.mark.parametrize("model", [Plain, Part])
async def test_a_bulk_of_rows_that_exist_costs_a_look_for_each_transaction(model: Any) -> None:
    """1,000 rows of one partition that exist cost a range of keys for each 100 of them, and one refused transaction."""
    async with memory_database(model, Stock) as db:
        entities = [model(id=number, code=f"c{number}") for number in range(1_000)]
        async with db.bulk() as bulk:
            for each in entities:
                await bulk.insert(each)
        before = db.stats.requests

        async with db.bulk() as bulk:
            for number in range(1_000):
                await bulk.insert(model(id=number, code=f"c{number}"), exist_ok=True)

        assert bulk.report.existing == 1_000
        assert db.stats.requests - before <= (11 if model is Plain else 25)


class Raced(StoreLayer):
    """Whenever keys were read, somebody inserts one more row."""

    next_id = 50

    async def send(self, request: StoreRequest) -> Any:
        answer = await super().send(request)
        if request.method == "query" and answer.rows and self.next_id < 60:
            key = {"PartitionKey": "s", "RowKey": f"plain_{self.next_id:05d}"}
            row = {**key, "EntityType": "Plain", "code": "theirs"}
            await insert_row(self.below, request.table, row)
            self.next_id += 1
        return answer


@pytest.mark.parametrize("way", ["transaction", "bulk"])
async def test_a_row_that_comes_after_the_look_stays(db: Database, way: Way) -> None:
    """Who inserts between the look and the write is never overwritten: that row is told like the others."""
    await db.create_tables(Plain)
    async with db.bulk() as bulk:
        for number in range(50):
            await bulk.insert(Plain(id=number, code="old"))
    raced = Raced(db.store)
    connection_of(db).wrap_store(lambda _: raced)

    kept = await insert_all(db, way, [Plain(id=number, code="new") for number in range(100)])

    there, raced.next_id = raced.next_id, 60
    assert there > 50
    assert sorted(each.id for each in kept) == [*range(there)]
    codes = [each.code for each in await db.select(Plain).where(Plain.shop == "s").all()]
    assert codes[:100] == ["old"] * 50 + ["theirs"] * (there - 50) + ["new"] * (100 - there)


async def refuse_reads(request: StoreRequest) -> None:
    """Raise as for somebody whose token only allows to add rows."""
    if request.method in ("get", "query"):
        raise Fault(Code.AUTHORIZATION_PERMISSION, "No reading.")


@each_way
async def test_who_may_not_read_is_told_too(way: Way) -> None:
    """Without a look each row that exists is rejected by the store, and stays."""
    async with memory_database(Plain) as db:
        before_requests(db, refuse_reads)
        for number in range(5):
            await db.insert(Plain(id=number, code="old"))

        kept = await insert_all(db, way, [Plain(id=number, code="new") for number in range(8)])

    assert sorted(each.id for each in kept) == [*range(5)]


async def test_what_a_transaction_does_with_an_entity_that_is_there_is_left_out(db: Database) -> None:
    """The other operations of the transaction are applied; the row and the entity's later changes are not."""
    await db.create_tables(Plain)
    await db.insert(Plain(id=1, code="old"))
    there, new = Plain(id=1, code="new"), Plain(id=2, code="new")

    async with db.transaction() as tx:
        tx.insert(there, exist_ok=True)
        tx.insert(new)
        there.code = "newer"
        tx.save(there)

    assert tx.existing == (there,)
    assert [each.code for each in await db.select(Plain).where(Plain.shop == "s").all()] == ["old", "new"]


@pytest.mark.parametrize("model", MODELS)
async def test_a_delete_says_whether_there_was_a_row(db: Database, model: Any) -> None:
    """With `missing_ok` a delete returns False where there is no row; without it that is an error."""
    await db.create_tables(model, Stock)
    await db.insert(model(id=1, code="a"))
    key, anything = model.key(shop="s", id=1), "*"

    assert await db.delete(key, if_match=anything) is True
    assert await db.delete(key, if_match=anything, missing_ok=True) is False
    with pytest.raises(EntityNotFound):
        await db.delete(key, if_match=anything)
