"""
Totals across partitions that an upgrade of the entity that holds them has renamed: nothing counts twice.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import Count, Damage, Database, Entity, Mapped, PropertyBag, Sum, connect, field, upgrade
from tests.databases import memory_database

pytestmark = pytest.mark.usefixtures("quick_workers")


class CrewV1(Entity, kind="Crew", table="RenamedCrews", partition_key="crews", row_key="crew_{name}"):
    name: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)
    points: Mapped[int] = field(default=0, maintained=True)


class AnyHand(Entity, abstract=True, table="RenamedHands", partition_key="{port}", row_key="hand_{id:03d}"):
    port: Mapped[str]
    id: Mapped[int]
    crew: Mapped[str] = field(default="a")
    points: Mapped[int] = field(default=10)


class HandV1(AnyHand, kind="Hand"):
    summed = Sum("points", lambda: CrewV1.points, name="{crew}", consistency="eventual")
    counted = Count(lambda: CrewV1.size, name="{crew}", consistency="eventual")


class Crew(Entity, table="RenamedCrews", partition_key="crews", row_key="crew_{name}", version=2):
    name: Mapped[str]
    members: Mapped[int] = field(default=0, maintained=True)
    score: Mapped[int] = field(default=0, maintained=True)


@upgrade(Crew, from_version=1)
def rename(bag: PropertyBag) -> PropertyBag:
    bag["members"], bag["score"] = bag.pop("size", 0), bag.pop("points", 0)
    return bag


class Hand(AnyHand):
    summed = Sum("points", lambda: Crew.score, name="{crew}", consistency="eventual")
    counted = Count(lambda: Crew.members, name="{crew}", consistency="eventual")


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    """The tables of the older program, with two hands in each of two ports; the database of the newer one."""
    url = f"local:{tmp_path}/crews.tables"
    async with connect(url) as old:
        await old.create_tables(CrewV1, HandV1)
        await old.insert(CrewV1(name="a"))
        for number in range(4):
            await old.insert(HandV1(port="xy"[number % 2], id=number))
        async with old.worker(CrewV1, HandV1) as worker:
            await worker.drain()
    async with connect(url) as database:
        yield database


async def totals(db: Database) -> tuple[int, int]:
    async with db.worker(Crew, Hand) as worker:
        await worker.drain()
    crew = await db.get(Crew, name="a")
    return crew.members, crew.score


async def test_writes_move_what_was_added(db: Database) -> None:
    """What an entity has added under the former name is taken back when it is changed, or deleted."""
    hand = await db.get(Hand, port="x", id=0)
    hand.points = 11
    await db.save(hand)
    await db.insert(Hand(port="z", id=9))
    assert await totals(db) == (5, 51)
    await db.delete(await db.get(Hand, port="x", id=2))
    await db.delete(hand)
    assert await totals(db) == (3, 30)


@pytest.mark.parametrize("writes", [0, 1])
async def test_an_audit_moves_the_rest(db: Database, writes: int) -> None:
    """No total is wrong at any moment; afterwards all is right by the names of now."""
    for number in range(writes):
        hand = await db.get(Hand, port="x", id=number)
        hand.points = 11
        await db.save(hand)
    expected = (4, 40 + writes)
    await db.audit(Crew, Hand)
    assert await totals(db) == expected
    await db.audit(Crew, Hand, repair=True)
    assert await totals(db) == expected
    again = await db.audit(Crew, Hand)
    assert again.clean and not again.findings
    assert await totals(db) == expected


class Box(Entity, table="RenamedItems", partition_key="{box}", row_key="box"):
    box: Mapped[str]
    number: Mapped[int] = field(default=0, maintained=True)
    weight: Mapped[int] = field(default=0, maintained=True)


class Shelf(Entity, table="RenamedShelves", partition_key="shelves", row_key="shelf_{shelf}"):
    shelf: Mapped[str]
    weight: Mapped[int] = field(default=0, maintained=True)


class AnyItem(Entity, abstract=True, table="RenamedItems", partition_key="{box}", row_key="item_{id}", tracked=True):
    box: Mapped[str]
    id: Mapped[int]
    weight: Mapped[int]
    shelf: Mapped[str] = field(default="a")


class OldItem(AnyItem, kind="Item"):
    counted = Count(lambda: Box.number, box="{box}", where=lambda item: item.weight > 0)
    heavy = Count(lambda: Box.number, box="{box}", where=lambda item: item.weight > 1)
    weighed = Sum("weight", lambda: Box.weight, box="{box}")
    lent = Sum("weight", lambda: Shelf.weight, shelf="a", create=True, consistency="eventual")
    carried = Sum("weight", lambda: Shelf.weight, shelf="{shelf}", create=True, consistency="eventual")


class NewItem(AnyItem, kind="Item"):
    number = Count(lambda: Box.number, box="{box}", where=lambda item: item.weight > 0)
    heavy = Count(lambda: Box.number, box="{box}", where=lambda item: item.weight > 1)
    weight_of_all = Sum("weight", lambda: Box.weight, box="{box}")
    lent_again = Sum("weight", lambda: Shelf.weight, shelf="a", create=True, consistency="eventual")
    load = Sum("weight", lambda: Shelf.weight, shelf="{shelf}", create=True, consistency="eventual")


class BareItem(AnyItem, kind="Item"):
    """Declares no totals any longer."""


class Weight(Entity, table="RenamedItems", partition_key="{box}", row_key="weight_{id}"):
    """Adds to the same fields."""

    box: Mapped[str]
    id: Mapped[int]
    weight: Mapped[int]

    summed = Sum("weight", lambda: Box.weight, box="{box}")
    carried = Sum("weight", lambda: Shelf.weight, shelf="a", create=True, consistency="eventual")


ItemModel: TypeAlias = type[OldItem] | type[NewItem]
STEPS = st.lists(st.tuples(st.sampled_from([OldItem, NewItem]), st.integers(1, 3), st.integers(-1, 2)), max_size=9)


async def box_and_shelves(db: Database, item: type[AnyItem]) -> tuple[int, int, dict[str, int]]:
    async with db.worker(item, Weight, Box, Shelf) as worker:
        await worker.drain()
    box = await db.get(Box, box="x")
    return box.number, box.weight, {each.shelf: each.weight async for each in db.select(Shelf) if each.weight}


@given(steps=STEPS, build=st.booleans())
async def test_a_renamed_total_follows_the_writes_of_both_programs(
    steps: list[tuple[ItemModel, int, int]], build: bool
) -> None:
    """Whatever name the manifest of an entity has; what follows a rename finds nothing to count again."""
    async with memory_database(Box, OldItem, Weight, Shelf) as db:
        await db.insert(Box(box="x"))
        weights: dict[int, int] = {}
        for model, number, weight in steps:
            if weight < 0:
                await db.delete(model.key(box="x", id=number), if_match="*", missing_ok=True)
                weights.pop(number, None)
                continue
            shelf = "ab"[weight % 2]
            if number in weights:
                item = await db.get(model, box="x", id=number)
                item.weight, item.shelf = weight, shelf
                await db.save(item)
            else:
                await db.insert(model(box="x", id=number, weight=weight, shelf=shelf))
            weights[number] = weight
        shelves = {"ab"[odd]: sum(each for each in weights.values() if each % 2 == odd) for odd in (0, 1)}
        shelves["a"] += sum(weights.values())
        expected = (
            sum((each > 0) + (each > 1) for each in weights.values()),
            sum(weights.values()),
            {shelf: weight for shelf, weight in shelves.items() if weight},
        )
        assert await box_and_shelves(db, NewItem) == expected
        if build:
            for declared in (NewItem.number, NewItem.weight_of_all, NewItem.lent_again, NewItem.load):
                await db.build_index(declared)
        else:
            await db.audit(NewItem, Box, Shelf, repair=True)
        assert await box_and_shelves(db, NewItem) == expected
        assert (await db.audit(NewItem, Box, Shelf)).clean
        if not build:
            rows = db.select_raw("RenamedItems").allow_scan()
            names = {name for bag in await rows.all() for name in json.loads(bag.get("_ix", "{}"))}
            assert names <= set(NewItem.__schema__.derived)


async def test_an_audit_says_that_a_count_was_renamed() -> None:
    """The manifest has it under its former name, so that nothing is wrong with the total; repair renames it there."""
    async with memory_database(Box, OldItem, Weight, Shelf) as db:
        await db.insert(Box(box="x"))
        await db.insert(OldItem(box="x", id=1, weight=0))
        await db.insert(OldItem(box="x", id=2, weight=1, shelf="b"))
        found = await db.audit(NewItem, Box, Shelf)
        repaired = await db.audit(NewItem, Box, Shelf, repair=True)
        again = await db.audit(NewItem, Box, Shelf)
        await db.delete(NewItem.key(box="x", id=2), if_match="*")
        assert await box_and_shelves(db, NewItem) == (0, 0, {})

    assert {each.index for each in found.findings} == {"number", "weight_of_all", "load", "lent_again"}
    assert all("no longer declares; that was probably renamed" in str(each) for each in found.findings)
    assert (repaired.repaired, again.clean) == (4, True)


async def test_a_repair_takes_removed_totals_back(caplog: pytest.LogCaptureFixture) -> None:
    """Also those across partitions; afterwards writes of the entities leave nothing to do."""
    async with memory_database(Box, OldItem, Weight, Shelf) as db:
        await db.insert(Box(box="x"))
        await db.insert(Weight(box="x", id=1, weight=100))
        for number in (1, 2):
            await db.insert(OldItem(box="x", id=number, weight=number))
        assert await box_and_shelves(db, OldItem) == (3, 103, {"a": 106})
        found = await db.audit(BareItem, Weight, Box, Shelf)
        assert sum(each.damage is Damage.UNDECLARED for each in found.findings) == 9
        await db.audit(BareItem, Weight, Box, Shelf, repair=True)
        assert (await box_and_shelves(db, BareItem))[1:] == (100, {"a": 100})
        assert (await db.audit(BareItem, Weight, Box, Shelf)).clean
        await db.delete(BareItem.key(box="x", id=1), if_match="*")
        assert (await box_and_shelves(db, BareItem))[1:] == (100, {"a": 100})
    assert "left to workers" not in caplog.text
