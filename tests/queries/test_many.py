"""
Many at once: queries divided among tasks or machines, several queries, several keys; and what a query costs.
"""

import asyncio
import json
import pickle
from decimal import Decimal
from typing import Any

import pytest

from tableorm import (
    Access,
    Database,
    Entity,
    Key,
    Mapped,
    ModelError,
    NotSupported,
    PropertyBag,
    ScanRefused,
    Select,
    WrongKind,
    connect,
    field,
)
from tests.database.between import Gated, Recorded


class Item(Entity, table="Items", partition_key="{group}", row_key="{number:05d}"):
    group: Mapped[str]
    number: Mapped[int]
    price: Mapped[Decimal] = field(default=Decimal(0))


class Offer(Entity, table="Items", partition_key="{group}", row_key="{number:05d}"):
    group: Mapped[str]
    number: Mapped[int]


class Note(Entity, table="Notes", partition_key="{id:spread(8)}", row_key="{id}"):
    id: Mapped[str]


class Other(Entity, table="Others", partition_key="{name}", row_key="other"):
    name: Mapped[str]


GROUPS = ["a", "k", "t", "é"]


async def fill(db: Database, count: int = 40) -> None:
    await db.create_tables(Item, Note, Other)
    for group in GROUPS:
        async with db.transaction() as tx:
            for number in range(count):
                tx.insert(Item(group=group, number=number * 2000))
    for number in range(count):
        await db.insert(Note(id=f"n{number}"))


def queries(db: Database) -> dict[str, Select[Any]]:
    return {
        "scan": db.select(Item).allow_scan(),
        "range": db.select(Item).where(Item.group == "a", Item.number.between(10_000, 59_999)),
        "partition": db.select(Item).where(Item.group == "k"),
        "partitions": db.select(Item).where(Item.group.in_(GROUPS), Item.number > 30_000),
        "points": db.select(Item).where(Item.group == "a", Item.number.in_(range(0, 40_000, 2000))),
        "buckets": db.select(Note).allow_scan(),
    }


@pytest.mark.parametrize(
    ("name", "most"),
    [("scan", 80), ("range", 8), ("partition", 14), ("partitions", 18), ("points", 6), ("buckets", 22)],
)
async def test_parts_share_the_work(name: str, most: int) -> None:
    """Where keys say how: numbers and buckets evenly, text by its first letter."""
    async with connect("local::memory:") as db:
        await fill(db)
        shares = queries(db)[name].split(8)

        assert len(shares) == 8
        assert max([len(await share.all()) for share in shares]) <= most


async def test_a_part_is_a_query() -> None:
    """It has pages and cursors, is counted, narrowed and explained; a scan stays one."""
    async with connect("local::memory:") as db:
        await fill(db)
        first, second = db.select(Item).allow_scan().split(2)
        page = await second.page(7)
        rest = await second.page(1000, page.cursor)

        assert len(page.items + rest.items) == await second.count()
        assert await first.count() + await second.count() == 160
        assert first.explain().access is Access.TABLE_SCAN
        assert "PartitionKey" in str(second.explain())
        assert await second.where(Item.group == "t").count() == 40


async def test_what_cannot_be_split_is_refused() -> None:
    """A limit counts all parts together; a part that was pickled needs a database; a scan, permission."""
    async with connect("local::memory:") as db:
        await fill(db, 1)
        with pytest.raises(ModelError, match=r"limit applies to the whole query, not to its parts; remove it"):
            db.select(Item).allow_scan().limit(5).split(2)
        for parts in (0, -1, True):
            with pytest.raises(ModelError, match="give an int from 1"):
                db.select(Item).allow_scan().split(parts)
        lost: Select[Item] = pickle.loads(pickle.dumps(db.select(Item).where(Item.group == "a")))
        with pytest.raises(NotSupported, match=r"use \.bind\(db\)"):
            await lost.all()
        with pytest.raises(ScanRefused):
            await db.select(Item).split(2)[0].all()


async def test_a_union_gives_query_after_query(db: Database) -> None:
    """In the order given, each with its own limit, kinds and table; what several find comes several times."""
    await fill(db, 4)
    t = db.select(Item).where(Item.group == "t")
    a = db.select(Item).where(Item.group == "a").limit(2)
    notes = db.select(Note).where(Note.id.in_(["n0", "n3"])).only()
    union = db.union(t, a, notes, a)

    found = await union.all()
    assert [getattr(e, "number", None) for e in found] == [0, 2000, 4000, 6000, 0, 2000, None, None, 0, 2000]
    assert sorted(map(repr, await union.unordered().all())) == sorted(map(repr, found))
    assert [e async for e in union] == found
    assert await db.union().all() == []
    assert repr(db.union(a).unordered()) == "<union(<select(Item).where(Item.group == 'a').limit(2)>).unordered()>"


async def test_a_union_refuses_a_scan_before_it_sends_anything() -> None:
    """Whichever of its queries it is."""
    async with Database(backend := Recorded()) as db:
        await fill(db, 1)
        backend.asked.clear()
        with pytest.raises(ScanRefused):
            await db.union(db.select(Item).where(Item.group == "a"), db.select(Item)).all()

        assert backend.asked == []


async def test_get_many_keeps_the_order(db: Database) -> None:
    """None where there is none; a key twice is read once; keys of other tables and bags among them."""
    await fill(db, 3)
    await db.insert(Other(name="x"))
    one, none = Item.key(group="a", number=0), Item.key(group="a", number=1)
    other = Other.key(name="x")
    bag: Key[Any] = PropertyBag.key("Items", "k", "02000")
    found = await db.get_many([none, one, other, bag, one])

    assert [None if e is None else type(e) for e in found] == [None, Item, Other, PropertyBag, Item]
    assert found[1] is found[4]
    assert await db.get_many(key for key in [one]) == [found[1]]
    assert await db.get_many([]) == []


async def test_get_many_runs_at_once() -> None:
    """Within bounds; an error ends the rest."""
    async with Database(gated := Gated()) as db:
        await db.create_tables(Item)
        async with db.bulk() as bulk:
            for number in range(40):
                await bulk.insert(Item(group=f"{number}", number=number))
        gated.shut = True
        keys = [Item.key(group=f"{number}", number=number) for number in range(40)]
        task = asyncio.create_task(db.get_many(keys, concurrency=5))
        await gated.until_waiting(5)
        gated.permit(100)
        found = await task

        assert gated.most == 5
        assert [None if item is None else item.number for item in found] == [*range(40)]


async def test_exists_reads_little(db: Database) -> None:
    """By fields or by key; another kind is an error, as for get."""
    await fill(db, 1)

    assert await db.exists(Item, group="a", number=0) is True
    assert await db.exists(Item.key(group="a", number=1)) is False
    assert await db.exists(PropertyBag.key("Items", "a", "00000")) is True
    with pytest.raises(WrongKind):
        await db.exists(Offer.key(group="a", number=0))


# What it costs


async def test_an_explanation_is_text_and_values(db: Database) -> None:
    """For people, for assertions, for JSON; nothing is sent for it."""
    query = db.select(Item).where(Item.group.in_(["a", "k"]), Item.number < 100, Item.price > Decimal(1)).limit(5)
    before = db.stats.requests
    explained = query.explain()

    assert db.stats.requests == before
    assert (explained.access, explained.path, len(explained.requests)) == (Access.RANGE, "primary key", 2)
    assert explained.client_side == ("Item.price > Decimal('1')",)
    assert json.loads(json.dumps(explained.to_dict()))["requests"][1] == {
        "access": "range",
        "path": "Items()",
        "filter": "PartitionKey eq 'k' and RowKey lt '00100' and "
        "(EntityType eq 'Item' or EntityType ge 'Item:' and EntityType lt 'Item;')",
        "select": None,
        "top": 1000,
        "client_side": ["Item.price > Decimal('1')"],
        "url": "GET Items()?$filter=PartitionKey eq 'k' and RowKey lt '00100' and "
        "(EntityType eq 'Item' or EntityType ge 'Item:' and EntityType lt 'Item;')&$top=1000",
    }
    text = str(explained)
    assert text.startswith(str(query)) and "then here: Item.price > Decimal('1')" in text
    assert "2 in parallel, results in key order" in text


async def test_many_requests_are_not_all_shown(db: Database) -> None:
    """Text stays readable; the values have all."""
    explained = db.select(Item).where(Item.group == "a", Item.number.in_(range(100))).explain()

    assert len(explained.requests) == 100 and len(str(explained).splitlines()) < 20
    assert "... and 90 more requests" in str(explained)
    assert "cost: 100 storage transactions" in str(explained)
