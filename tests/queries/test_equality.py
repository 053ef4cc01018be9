"""
What "equal" and "not" mean: the same by the store and by this program, in `in_` and in `==`, of whatever is stored.
"""

import datetime as dt
import enum
import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tableorm import Entity, Expression, Index, Mapped, PropertyBag, RowKey, connect, field
from tableorm.models.property_bag import bag_of_row
from tableorm.stores import Row
from tests.queries.foreign_worlds import Sample


class Event(Entity, table="Events", partition_key="{group}", row_key="{at:ticks}"):
    group: Mapped[str]
    at: Mapped[dt.datetime]
    price: Mapped[Decimal | None] = field(default=None)


class Power(enum.Enum):
    LOW = 1
    HIGH = 2**40


class Engine(Entity, table="Engines", partition_key="{group}", row_key="engine_{name}"):
    group: Mapped[str]
    name: Mapped[str]
    power: Mapped[Power] = field(default=Power.LOW)
    speed: Mapped[int] = field(default=0)


class Gauge(Entity, table="Engines", partition_key="{group}", row_key="gauge_{name}"):
    group: Mapped[str]
    name: Mapped[str]
    speed: Mapped[float] = field(default=0.0)


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
PRICES: dict[str, Row] = {
    "double": {"price": 5.0},
    "five": {"price": "5"},
    "nan": {"price": "NaN"},
    "none": {"price": "cheap"},
    "signalling": {"price": "sNaN"},
    "zeros": {"price": "5.00"},
}


def renamed(rows: dict[str, Row], to: str) -> dict[str, Row]:
    """Return the same rows with another property."""
    return {
        name: {key.replace("number", to): value for key, value in members.items()} for name, members in rows.items()
    }


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


@pytest.mark.parametrize("name", ["number", "small"])
async def test_numbers_are_equal_in_every_type(name: str) -> None:
    """A constant is promoted to wider types, and never to a narrower one; True is not 1, and text is no number."""
    rows, number = renamed(NUMBERS, name), getattr(Sample, name)
    others = sorted(rows.keys() - {"absent", "double", "int32", "int64"})

    for equal, unequal in (
        (number == 5, number != 5),
        (number.in_([5]), ~number.in_([5])),
        (number.in_([5, 6]), ~number.in_([5, 6])),
        ((number == 5) | (number == 6), (number != 5) & (number != 6)),
    ):
        assert await matching(rows, equal) == ["double", "int32", "int64"]
        assert await matching(rows, unequal) == others
    assert await matching(rows, number.in_([1])) == []


async def test_a_wide_constant_is_promoted_to_doubles() -> None:
    """An Int64 constant equals a Double of the same value."""
    assert await matching(NUMBERS, Sample.number == WIDE) == ["wide double", "wide int64"]
    assert await matching(NUMBERS, Sample.number.in_([WIDE])) == ["wide double", "wide int64"]


async def test_a_double_constant_equals_doubles_alone() -> None:
    """There is no promotion to narrower types; NaN equals nothing, and is one of nothing."""
    rows = renamed(NUMBERS, "ratio")

    assert await matching(rows, Sample.ratio == 5.0) == ["double"]
    assert await matching(rows, Sample.ratio.in_([5.0, math.nan])) == ["double"]
    assert await matching(rows, Sample.ratio.in_([math.nan])) == []
    assert await matching(rows, ~Sample.ratio.in_([math.nan])) == sorted(rows.keys() - {"absent"})


async def test_a_datetime_equals_each_moment_of_its_microsecond() -> None:
    """A stored moment has digits of 100 ns, which a datetime has not: it stands for all of them."""
    for equal in (Sample.moment == NOON, Sample.moment.in_([NOON]), Sample.moment <= NOON):
        assert await matching(MOMENTS, equal) == ["noon", "tick later"]
        assert await matching(MOMENTS, ~equal) == []
    assert await matching(MOMENTS, Sample.moment > NOON - dt.timedelta(microseconds=1)) == ["noon", "tick later"]


async def test_dates_are_equal_as_text() -> None:
    """A date is stored as text, so another text of the same day is another value."""
    for equal in (Sample.day == NOON.date(), Sample.day.in_([NOON.date()])):
        assert await matching(DAYS, equal) == ["dashed"]
        assert await matching(DAYS, ~equal) == ["plain"]


async def test_decimals_are_equal_as_numbers() -> None:
    """They are compared here always; what is stored and is no decimal number is equal to none."""
    for equal in (Sample.price == Decimal(5), Sample.price.in_([Decimal(5), Decimal(6)])):
        assert await matching(PRICES, equal) == ["five", "zeros"]
        assert await matching(PRICES, ~equal) == ["double", "nan", "none", "signalling"]


async def test_keys_are_equal_as_text() -> None:
    """A field that a key holds is compared by the text of the key, as the store compares it."""
    ticks = 638_448_048_000_000_000  # noon
    rows: dict[str, Row] = {f"{ticks:019d}": {}, f"{ticks + 1:019d}": {}}
    first, later = rows

    for equal in (Event.at == NOON, Event.at.in_([NOON])):
        assert await matching(rows, equal, Event) == [first]
        assert await matching(rows, ~equal, Event) == [later]
    for within in (Event.at <= NOON, ~(Event.at > NOON)):  # in order it stands for its whole microsecond
        assert await matching(rows, within, Event) == [first, later]
        assert await matching(rows, ~within, Event) == []
    badge = UUID("c9da6455-213d-42c9-9a79-3e9149a57833")
    rows = {str(badge).upper(): {}, str(badge): {}}
    for equal in (Badge.badge == badge, Badge.badge.in_([badge])):
        assert await matching(rows, equal, Badge) == [str(badge)]
        assert await matching(rows, ~equal, Badge) == [str(badge).upper()]


# What `~` is of an order


@pytest.mark.parametrize("name", ["number", "small", "ratio"])
async def test_nan_is_on_neither_side_of_an_order(name: str) -> None:
    """So `~(x <= c)` finds it, whatever the type of the constant, where a Double can be in the property."""
    rows, number = renamed(NUMBERS, name), getattr(Sample, name)

    for constant in (-5, WIDE) if name == "number" else (-5,):
        for below in (number <= constant, number < constant, number > constant, number >= constant):
            found, rest = await matching(rows, below), await matching(rows, ~below)
            assert sorted(found + rest) == sorted(rows.keys() - {"absent"})
            assert "nan" in rest


@pytest.mark.parametrize("constant", ["-5", "-5L", "-5.0"])
async def test_a_raw_filter_finds_nan_by_not(constant: str) -> None:
    """Whatever the type of the constant; what has no such property is not found."""
    async with connect("local::memory:") as db:
        await db.create_tables(Sample)
        for name, members in NUMBERS.items():
            row: Row = {"PartitionKey": "g", "RowKey": name, **members}
            await db.insert(bag_of_row("Samples", row))
        found = await db.select_raw("Samples").where(f"PartitionKey eq 'g' and not (number le {constant})").all()

    assert "nan" in [bag.row_key for bag in found]
    assert not {"absent", "bool"} & {bag.row_key for bag in found}


async def test_a_timestamp_is_on_neither_side_of_what_is_no_moment() -> None:
    """So `not (Timestamp gt 5)` finds every row, as the comparison finds none."""
    async with connect("local::memory:") as db:
        await db.create_tables(Sample)
        await db.insert(Sample(group="g", name="a"))
        query = db.select_raw("Samples").allow_scan()
        for text in ("Timestamp gt 5", "Timestamp le 5", "Timestamp gt 'x'"):
            assert await query.where(text).count() == 0
            assert await query.where(f"not ({text})").count() == 1


async def test_an_order_of_declared_integers_has_an_opposite() -> None:
    """Where rows are of one kind that declares an integer, `~` stays one comparison."""
    async with connect("local::memory:") as db:
        query = db.select(Sample).where(Sample.group == "g", ~(Sample.number <= 5))
        assert "number gt 5" in str(query.explain())
        both = db.select(Sample, PropertyBag).where(Sample.group == "g", ~(Sample.number <= 5))
        assert "not (number le 5)" in str(both.explain())


async def test_a_wide_constant_of_an_enum_has_no_order_with_what_is_stored_as_int32() -> None:
    """So `~(x > c)` finds the row, as `x > c` does not."""
    async with connect("local::memory:") as db:
        await db.create_tables(Engine)
        row: Row = {"PartitionKey": "g", "RowKey": "engine_a", "EntityType": "Engine", "power": 1, "speed": 0}
        await db.insert(bag_of_row("Engines", row))
        query = db.select(Engine).where(Engine.group == "g")

        assert await query.where(Engine.power > Power.HIGH).all() == []
        assert [each.power for each in await query.where(~(Engine.power > Power.HIGH)).all()] == [Power.LOW]


async def test_rows_of_another_kind_can_have_nan_where_an_integer_is_declared() -> None:
    """A condition on a field of one kind is asked of the property of that name in rows of the others too."""
    async with connect("local::memory:") as db:
        await db.create_tables(Engine)
        await db.insert(Gauge(group="g", name="a", speed=math.nan))
        await db.insert(Engine(group="g", name="b", speed=7))
        query = db.select(Engine, Gauge).where(Engine.group == "g")

        assert await query.where(Engine.speed <= 5).count() == 0
        assert await query.where(~(Engine.speed <= 5)).count() == 2


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
