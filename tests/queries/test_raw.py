"""
Raw queries: filters in the service's own language, with parameters, over bags of any kind.
"""

import datetime as dt
import operator as op
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import (
    Access,
    Database,
    Edm,
    Entity,
    Int32,
    Mapped,
    ModelError,
    PropertyBag,
    RowKey,
    ScanRefused,
    field,
)
from tests.databases import memory_database

NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)


class Person(Entity, table="People", partition_key="{team}", row_key="{name}"):
    team: Mapped[str]
    name: Mapped[str]
    age: Mapped[Int32 | None] = field(default=None)
    badge: Mapped[UUID | None] = field(default=None)
    since: Mapped[dt.datetime | None] = field(default=None)


@pytest.fixture
async def people(db: Database) -> Database:
    await db.create_tables(Person)
    for team in ("a", "b"):
        for number in range(5):
            await db.insert(Person(team=team, name=f"n{number}", age=20 + number, badge=UUID(int=number), since=NOON))
    await db.insert(PropertyBag("People", "a", "o'neil", {"Age": "old"}))
    return db


def keys(bags: list[PropertyBag]) -> list[tuple[str, str]]:
    return [(bag.partition_key, bag.row_key) for bag in bags]


async def test_rows_of_any_kind_come_as_bags(people: Database) -> None:
    """With every property, in key order; no model is needed."""
    found = await people.select_raw("People").where("PartitionKey eq {}", "a").all()

    assert keys(found) == [("a", f"n{number}") for number in range(5)] + [("a", "o'neil")]
    assert found[0]["age"] == 20 and found[0]["EntityType"] == "Person" and found[5]["Age"] == "old"


async def test_conditions_on_keys_give_the_requests(people: Database) -> None:
    """A point, points, a range and a partition scan; a scan is rejected unless it is asked for."""
    raw = people.select_raw("People")

    def access(text: str) -> Access:
        return raw.where(text).explain().access

    assert access("PartitionKey eq 'a' and RowKey eq 'n1'") is Access.POINT
    assert access("PartitionKey eq 'a' and (RowKey eq 'n1' or RowKey eq 'n2')") is Access.POINTS
    assert access("PartitionKey eq 'a' and RowKey gt 'n1'") is Access.RANGE
    assert access("PartitionKey eq 'a' and age gt 5") is Access.PARTITION_SCAN
    with pytest.raises(ScanRefused, match=r"People.*one PartitionKey.*allow_scan"):
        await raw.where("age gt 5").all()
    assert await raw.where("age gt 23").allow_scan().count() == 2


async def test_true_and_false_as_conditions(people: Database) -> None:
    """`true` narrows nothing, so it is no leave to read every partition; `false` finds nothing, and nothing is sent."""
    query = people.select_raw("People")

    assert len(await query.where("PartitionKey eq 'a' and true").all()) == 6
    assert len(await query.where("true").where("(false or PartitionKey eq 'a') and not {}", False).all()) == 6
    assert await query.where("not true").all() == []
    assert query.where("PartitionKey eq 'a'").where("false").explain().requests == ()
    assert "where(true, false)" in repr(query.where("true").where("false"))
    with pytest.raises(ScanRefused):
        await query.where("true").all()


KEY: Any = RowKey  # without its type, so that what the checkers refuse can be written
WRONG: list[tuple[Callable[[Database], object], str]] = [
    (lambda db: db.select_raw("x y"), r"select_raw\('x y'\)"),
    (lambda db: db.select_raw("People").where("a eq"), r"select_raw\('People'\).*position 4.*a eq>>>"),
    (lambda db: db.select_raw("People").where("a eq {}"), "position 5"),
    (lambda db: db.select_raw("People").where("a eq {}", 1, 2), "2 values|values"),
    (lambda db: db.select_raw("People").where("a eq {}", dt.datetime(2024, 1, 1)), "naive"),  # noqa: DTZ001
    (lambda db: db.select_raw("People").where("startswith(a, 'b')"), "function"),
    (lambda db: db.select_raw("People").where("a eq b"), "position"),
    (lambda db: db.select_raw("People").where(KEY == "b"), r"where\(RowKey eq 'b'\).*as a string"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
async def test_wrong_filters_are_refused(people: Database, make: Callable[[Database], object], message: str) -> None:
    """Before anything is sent, with the place."""
    with pytest.raises(ModelError, match=message):
        make(people)


class Priced(Entity, table="Prices", kind=None, partition_key="{shop}", row_key="{name}"):
    shop: Mapped[str]
    name: Mapped[str]
    price: Mapped[float]
    sold: Mapped[int]


@given(data=st.data())
async def test_numbers_of_any_stored_type_are_found(data: st.DataObject) -> None:
    """JavaScript stores 20 as Int32 beside 20.5 as Double: a condition finds both, whatever it compares with."""
    numbers = st.sampled_from([-(2**31), -3, 0, 20, 2**31 - 1])
    prices = data.draw(st.lists(numbers | st.sampled_from([-3.5, 19.75, 20.5, 1e12]), min_size=1), "prices")
    sold = data.draw(st.lists(numbers | st.sampled_from([-(2**40), 2**31, 2**40]), min_size=len(prices)), "sold")
    limit = data.draw(numbers | st.sampled_from([20.25, -3.5, 1e12, -1e12, float("inf"), 2.0**31]), "limit of prices")
    bound = data.draw(numbers | st.sampled_from([2**31, 2**40, -(2**31) - 1]), "bound of sold")
    async with memory_database(Priced) as db:
        for at, (price, count) in enumerate(zip(prices, sold, strict=False)):
            bag = PropertyBag("Prices", "s", f"{at:03d}")
            bag.set("price", price, Edm.INT32 if type(price) is int else Edm.DOUBLE)
            bag.set("sold", count, Edm.INT32 if -(2**31) <= count < 2**31 and at % 2 else Edm.INT64)
            await db.insert(bag)
        rows = await db.select(Priced).where(Priced.shop == "s").all()
        for compare in (op.eq, op.ne, op.lt, op.le, op.gt, op.ge):
            for field_of, value in ((Priced.price, limit), (Priced.sold, bound)):
                wanted = [row.name for row in rows if compare(getattr(row, field_of.name), value)]
                found = await db.select(Priced).where(Priced.shop == "s", compare(field_of, value)).all()
                assert [row.name for row in found] == wanted
                others = await db.select(Priced).where(Priced.shop == "s", ~compare(field_of, value)).all()
                assert [row.name for row in others] == [row.name for row in rows if row.name not in wanted]
