"""
What "equal" and "not" mean: the same by the store and by this program, in `in_` and in `==`, of whatever is stored.
"""

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

from tableorm import Entity, Expression, Index, Mapped, PropertyBag, RowKey, connect, field
from tableorm.models.property_bag import bag_of_row
from tableorm.stores import Row
from tests.queries.foreign_worlds import Sample


class Badge(Entity, table="Badges", partition_key="{group}", row_key="{badge}"):
    group: Mapped[str]
    badge: Mapped[UUID]
    price: Mapped[Decimal | None] = field(default=None)


class Client(Entity, table="Clients", partition_key="{group}", row_key="client_{name:lower}"):
    group: Mapped[str]
    name: Mapped[str]
    email: Mapped[str]

    by_email = Index(row_key="email_{email:lower}", unique=True)


def typed(name: str, value: object, kind: str) -> Row:
    return {name: value, f"{name}@odata.type": f"Edm.{kind}"}


NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
WIDE = 2**40

NUMBERS: dict[str, Row] = {
    "absent": {},
    "bool": {"number": True},
    "double": {"number": 5.0},
    "int32": {"number": 5},
    "int64": typed("number", "5", "Int64"),
    "nan": typed("number", "NaN", "Double"),
    "text": {"number": "5"},
    "wide double": {"number": float(WIDE)},
    "wide int64": typed("number", str(WIDE), "Int64"),
}
"""The same numbers in each type in which another program can have stored them."""

MOMENTS: dict[str, Row] = {
    "noon": typed("moment", "2024-02-29T12:00:00Z", "DateTime"),
    "tick later": typed("moment", "2024-02-29T12:00:00.0000001Z", "DateTime"),  # read as a datetime, it is noon
}
DAYS: dict[str, Row] = {"dashed": {"day": "2024-02-29"}, "plain": {"day": "20240229"}}


async def matching(rows: dict[str, Row], condition: Expression, model: Any = Sample) -> list[str]:
    """
    Return the RowKeys of the rows that satisfy a condition, having asked the store and this program alike.

    The rows are of no kind, so that none is decoded: a bag is what it is.
    """
    never = model.price < Decimal(-1_000)  # no service evaluates it: what is joined with it by `|` is evaluated here
    async with connect("local::memory:") as db:
        await db.create_tables(model)
        for name, members in rows.items():
            row: Row = {"PartitionKey": "g", "RowKey": name, **members}
            await db.insert(bag_of_row(model.__schema__.table, row))
        query = db.select(model, PropertyBag).where(model.group == "g")
        found = [bag.row_key for bag in await query.where(condition).all()]

        here = query.where(condition | never)
        assert here.explain().client_side
        assert [bag.row_key for bag in await here.all()] == found
    return found


async def test_a_wide_constant_is_promoted_to_doubles() -> None:
    """An Int64 constant equals a Double of the same value."""
    assert await matching(NUMBERS, Sample.number == WIDE) == ["wide double", "wide int64"]
    assert await matching(NUMBERS, Sample.number.in_([WIDE])) == ["wide double", "wide int64"]


async def test_dates_are_equal_as_text() -> None:
    """A date is stored as text, so another text of the same day is another value."""
    for equal in (Sample.day == NOON.date(), Sample.day.in_([NOON.date()])):
        assert await matching(DAYS, equal) == ["dashed"]
        assert await matching(DAYS, ~equal) == ["plain"]


# What `~` is of an order


async def test_an_order_of_declared_integers_has_an_opposite() -> None:
    """Where rows are of one kind that declares an integer, `~` stays one comparison."""
    async with connect("local::memory:") as db:
        query = db.select(Sample).where(Sample.group == "g", ~(Sample.number <= 5))
        assert "number gt 5" in str(query.explain())
        both = db.select(Sample, PropertyBag).where(Sample.group == "g", ~(Sample.number <= 5))
        assert "not (number le 5)" in str(both.explain())


async def test_a_key_that_holds_a_part_is_got_by_it_and_a_condition_compares_the_whole() -> None:
    """Whichever way a query finds the row: no condition depends on the keys. RowKey is compared as stored."""
    async with connect("local::memory:") as db:
        await db.create_tables(Client)
        ann = Client(group="a", name="Ann", email="Ann@x.org")
        await db.insert(ann)
        clients, entries = (db.select(kind).where(Client.group == "a") for kind in (Client, Client.by_email))

        assert await db.get(Client, group="a", name="ANN") == ann
        assert await db.get(Client.by_email, group="a", email="ANN@X.ORG") == ann
        for query in (clients, entries):
            assert await query.where(Client.email == "Ann@x.org").all() == [ann]
            assert await query.where(Client.email == "ann@x.org").all() == []
            assert await query.where(Client.name == "ann").all() == []
        assert await entries.where(RowKey == "email_ann@x.org").all() == [ann]
