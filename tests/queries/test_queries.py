"""
Queries: what comes back is what filtering every entity in Python gives, in key order.
"""

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import Database, DecodeError, Entity, Expression, Int32, Mapped, ModelError, ScanRefused, connect, field
from tableorm.protocol.edm import utf16_key
from tableorm.protocol.filters import Op
from tableorm.stores import Operation, Verb
from tests.database.conftest import also_in_file


class Item(Entity, table="Items", partition_key="{group}", row_key="{label}_{number:03d}"):
    group: Mapped[str]
    label: Mapped[str]
    number: Mapped[int]
    text: Mapped[str | None] = field(default=None)
    count: Mapped[Int32 | None] = field(default=None)
    ratio: Mapped[float] = field(default=0.0)


class Other(Entity, table="Items", partition_key="{group}", row_key="{label}_{number:03d}"):
    group: Mapped[str]
    label: Mapped[str]
    number: Mapped[int]


TEXTS = st.text(st.sampled_from("ab_^/ éz\U0001f600\ue000\uffff"), max_size=4)
NUMBERS = st.integers(0, 999)
ITEMS = st.builds(
    Item,
    group=st.sampled_from(["a", "b", "a_", ""]),
    label=TEXTS,
    number=NUMBERS,
    text=st.none() | TEXTS,
    count=st.none() | st.integers(-3, 3),
    ratio=st.sampled_from([-0.0, 0.0, 1.5, -2.5, float("inf"), float("nan")]),
)

Truth = Callable[[Item], bool | None]
OPS: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQ: lambda a, b: a == b,
    Op.NE: lambda a, b: a != b,
    Op.LT: lambda a, b: a < b,
    Op.LE: lambda a, b: a <= b,
    Op.GT: lambda a, b: a > b,
    Op.GE: lambda a, b: a >= b,
}


def in_key(name: str, value: Any) -> Any:
    """What a value compares as: text by UTF-16 unit; the label by its text in the key, where it is escaped."""
    if name == "label":
        for char in "^_/":
            value = value.replace(char, f"^{ord(char):02X}" if char != "^" else "\x00")
        value = value.replace("\x00", "^5E")
    return utf16_key(value) if isinstance(value, str) else value


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[Expression, Truth]:
    name = draw(st.sampled_from(["group", "label", "number", "text", "count", "ratio"]))
    values: dict[str, st.SearchStrategy[Any]] = {
        "number": NUMBERS | st.sampled_from([-1, 1000]),
        "count": st.integers(-3, 3),
        "ratio": st.sampled_from([0.0, 1.5, float("inf")]),
        "group": st.sampled_from(["a", "b", "c"]),
    }
    value = draw(values.get(name, TEXTS))
    column: Any = getattr(Item, name)
    if isinstance(value, str) and draw(st.booleans()):
        return column.startswith(
            value
        ), lambda e: None if getattr(e, name) is None else getattr(e, name).startswith(value)
    op = draw(st.sampled_from(list(OPS)))
    expression: Expression = OPS[op](column, value)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def truth(entity: Item) -> bool | None:
        own = getattr(entity, name)
        return None if own is None else OPS[op](in_key(name, own), in_key(name, value))

    return expression, truth


def combine(children: st.SearchStrategy[tuple[Expression, Truth]]) -> st.SearchStrategy[tuple[Expression, Truth]]:
    def both(pair: tuple[tuple[Expression, Truth], tuple[Expression, Truth]]) -> tuple[Expression, Truth]:
        (a, f), (b, g) = pair

        def truth(e: Item) -> bool | None:
            known = (f(e), g(e))
            return False if False in known else None if None in known else True

        return a & b, truth

    def either(pair: tuple[tuple[Expression, Truth], tuple[Expression, Truth]]) -> tuple[Expression, Truth]:
        (a, f), (b, g) = pair

        def truth(e: Item) -> bool | None:
            known = (f(e), g(e))
            return True if True in known else None if None in known else False

        return a | b, truth

    def negated(one: tuple[Expression, Truth]) -> tuple[Expression, Truth]:
        a, f = one
        return ~a, lambda e: None if (known := f(e)) is None else not known

    pairs = st.tuples(children, children)
    return pairs.map(both) | pairs.map(either) | children.map(negated)


CONDITIONS = st.lists(st.recursive(comparisons(), combine, max_leaves=4), max_size=3)


@given(st.lists(ITEMS, max_size=25, unique_by=lambda e: e.key), CONDITIONS, st.none() | st.integers(0, 5))
def test_a_query_gives_what_filtering_in_python_gives(
    items: list[Item], conditions: list[tuple[Expression, Truth]], limit: int | None
) -> None:
    """For any data and conditions, in key order; rows of another kind beside them are left out."""

    async def run() -> list[Item]:
        async with connect("local::memory:") as db:
            await db.create_tables(Item)
            for item in items:
                await db.insert(item)
            await db.insert(Other(group="a", label="zzzzz", number=1))
            query = db.select(Item).where(*(condition for condition, _ in conditions)).allow_scan()
            return await (query if limit is None else query.limit(limit)).all()

    found = asyncio.run(run())

    wanted = [item for item in items if all(truth(item) is True for _, truth in conditions)]
    wanted.sort(key=lambda item: (utf16_key(item.key.partition_key), utf16_key(item.key.row_key)))
    assert [item.key for item in found] == [item.key for item in wanted[:limit]]


async def fill(db: Database, count: int, group: str = "g") -> None:
    for start in range(0, count, 100):
        async with db.transaction() as tx:
            for n in range(start, min(start + 100, count)):
                tx.insert(Item(group=group, label=f"{n // 500:02d}", number=n % 500))


async def test_a_query_goes_through_all_pages(db: Database) -> None:
    """2,500 entities take three requests; a limit takes no more rows than it needs."""
    await db.create_tables(Item)
    await fill(db, 2500)
    before = db.stats.snapshot()
    found = await db.select(Item).where(Item.group == "g").all()

    assert [(e.label, e.number) for e in found] == [(f"{n // 500:02d}", n % 500) for n in range(2500)]
    assert db.stats.requests - before.requests == 3
    before = db.stats.snapshot()
    assert len(await db.select(Item).where(Item.group == "g").limit(7).all()) == 7
    assert (db.stats.requests - before.requests, db.stats.rows - before.rows) == (1, 7)


@also_in_file
async def test_other_tasks_run_while_a_query_is_consumed(db: Database) -> None:
    """The consumer never waits itself, yet others get turns between slices of the work."""
    await db.create_tables(Item)
    await fill(db, 3000)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count_turns())
    await asyncio.sleep(0)
    before = turns
    async for _ in db.select(Item).where(Item.group == "g"):
        pass
    counter.cancel()

    assert turns - before >= 3000 // 250 - 1


@pytest.mark.parametrize("db", ["file", "memory"], indirect=True)
async def test_other_tasks_run_while_small_reads_follow_each_other(db: Database) -> None:
    """A loop of point reads, each of which is answered at once, does not keep the event loop to itself."""
    await db.create_tables(Item)
    await db.insert(Item(group="g", label="x", number=1))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count_turns())
    await asyncio.sleep(0)
    before = turns
    for _ in range(1000):
        await db.get(Item, group="g", label="x", number=1)
    after_points = turns
    for _ in range(500):
        await db.select(Item).where(Item.group == "g").all()
    counter.cancel()

    assert after_points - before >= 1000 // 250 - 1
    assert turns - after_points >= 500 // 250 - 1


async def test_a_query_is_immutable_and_can_be_run_again(db: Database) -> None:
    """Each method gives a new query; running one twice gives the same."""
    await db.create_tables(Item)
    await fill(db, 10)
    base = db.select(Item).where(Item.group == "g")
    narrow = base.where(Item.number >= 5)

    assert len(await base.all()) == 10 and len(await narrow.all()) == 5
    assert len(await narrow.limit(2).all()) == 2 and len(await narrow.all()) == 5
    assert repr(narrow.limit(2)) == ("<select(Item).where(Item.group == 'g', Item.number >= 5).limit(2)>")


async def test_a_row_that_does_not_fit_is_named(db: Database) -> None:
    """The error gives the model, the field, the key, and what is stored."""
    await db.create_tables(Item)
    row = {"PartitionKey": "g", "RowKey": "x_001", "EntityType": "Item", "ratio": "high"}
    await db.store.write("Items", Operation(Verb.INSERT, row))

    with pytest.raises(DecodeError, match=r"Item\.ratio: row \('g', 'x_001'\) holds 'high', an Edm.String") as caught:
        await db.select(Item).where(Item.group == "g").all()
    assert (caught.value.key, caught.value.field) == (("g", "x_001"), "ratio")


async def test_wrong_arguments_are_refused(db: Database) -> None:
    """Something that is no condition, a negative limit, models of two tables."""
    with pytest.raises(ModelError, match="not a condition"):
        db.select(Item).where(True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ModelError, match=r"limit\(-1\)"):
        db.select(Item).limit(-1)
    await db.create_tables(Item)
    assert await db.select(Item).where(Item.group == "g").limit(0).all() == []


class Shard(Entity, table="Shards", partition_key="{service}_{hash:04d}", row_key="{name}"):
    service: Mapped[str]
    hash: Mapped[int]
    name: Mapped[str]


async def test_a_range_of_partitions_is_allowed_by_itself() -> None:
    """`partitions="range"` lets a query read the partitions that its conditions bound, and no table."""
    async with connect("local::memory:") as db:
        await db.create_tables(Shard)
        for number in range(10):
            await db.insert(Shard(service="ab"[number % 2], hash=number, name="x"))
        bounded = db.select(Shard).where(Shard.service == "a", Shard.hash > 2, Shard.hash <= 6)
        ranged = bounded.allow_scan(partitions="range")
        wrong: Any = 3

        assert [shard.hash for shard in await ranged.all()] == [4, 6]
        assert await ranged.allow_scan(partitions="range", parallel=3).count() == 2
        assert "partition range: GET Shards()" in str(ranged.explain())
        assert str(ranged).endswith(".allow_scan(partitions='range')>")
        with pytest.raises(ScanRefused, match=r"Shard: the query visits a range of the partitions of table Shards"):
            await bounded.all()
        with pytest.raises(ScanRefused, match=r"visits every partition of table Shards.*\.allow_scan\(\) if"):
            await db.select(Shard).where(Shard.name == "x").allow_scan(partitions="range").all()
        with pytest.raises(ModelError, match=r'partitions=3\) is refused: give "all" or "range"'):
            bounded.allow_scan(partitions=wrong)


class Visit(Entity, table="Visits", partition_key="p", row_key="{day:%Y-%m}_{label}_{number:03d}"):
    day: Mapped[dt.date]
    label: Mapped[str]
    number: Mapped[int]
    count: Mapped[int]


async def test_each_comparison_with_a_value_that_is_there(db: Database) -> None:
    """Also negated, where values equal the bound, of keys and properties, and of keys that hold a part of a value."""
    await db.create_tables(Visit)
    days = [dt.date(2024, month, day) for month in (1, 2, 3) for day in (1, 15)]
    visits = [Visit(day=day, label="ab"[n % 2], number=n, count=n // 2) for n, day in enumerate(days)]
    for visit in visits:
        await db.insert(visit)

    for op, truth in OPS.items():
        for name, value in {"day": days[3], "label": "a", "number": 3, "count": 1}.items():
            condition: Any = truth(getattr(Visit, name), value)
            expected = [visit.number for visit in visits if truth(getattr(visit, name), value)]
            others = [visit.number for visit in visits if visit.number not in expected]
            where = db.select(Visit).allow_scan()
            assert [each.number for each in await where.where(condition).all()] == expected, (op, name)
            assert [each.number for each in await where.where(~condition).all()] == others, (op, name)


async def test_each_comparison_with_the_last_field_of_a_key(db: Database) -> None:
    """Also negated; the key ends there, so its bound decides whether the value itself is among them."""
    await db.create_tables(Item)
    for number in range(4):
        await db.insert(Item(group="g", label="x", number=number))

    for op, truth in OPS.items():
        condition: Any = truth(Item.number, 2)
        where = db.select(Item).where(Item.group == "g", Item.label == "x")
        expected = [number for number in range(4) if truth(number, 2)]
        assert [each.number for each in await where.where(condition).all()] == expected, op
        others = [number for number in range(4) if number not in expected]
        assert [each.number for each in await where.where(~condition).all()] == others, op
