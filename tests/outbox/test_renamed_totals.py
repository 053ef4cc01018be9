"""
Totals across partitions that an upgrade of the entity that holds them has renamed: nothing counts twice.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tableorm import Count, Database, Entity, Mapped, PropertyBag, Sum, connect, field, upgrade

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


class Ship(Entity, table="RenamedShips", partition_key="{port}", row_key="ship"):
    port: Mapped[str]
    cargo: Mapped[int] = field(default=0, maintained=True)


class AnyCrate(Entity, table="RenamedShips", abstract=True, partition_key="{port}", row_key="crate_{id}"):
    port: Mapped[str]
    id: Mapped[int]


class CrateV1(AnyCrate, kind="Crate"):
    loaded = Count(lambda: Ship.cargo, port="{port}")


class Crate(AnyCrate):
    counted = Count(lambda: Ship.cargo, port="{port}")


async def test_an_audit_says_that_a_count_was_renamed(tmp_path: Path) -> None:
    """The manifest has it under its former name, so that nothing is wrong with the total; repair renames it there."""
    url = f"local:{tmp_path}/ships.tables"
    async with connect(url) as old:
        await old.create_tables(Ship, CrateV1)
        await old.insert(Ship(port="x"))
        await old.insert(CrateV1(port="x", id=1))
    async with connect(url) as db:
        (finding,) = (await db.audit(Ship, Crate)).findings
        repaired = await db.audit(Ship, Crate, repair=True)
        again = await db.audit(Ship, Crate)
        ship = await db.get(Ship, port="x")
        await db.delete(Crate.key(port="x", id=1), if_match="*")
        empty = await db.get(Ship, port="x")

    assert "under the name 'loaded', which the model no longer declares; that was probably renamed" in str(finding)
    assert (repaired.repaired, again.clean, ship.cargo, empty.cargo) == (1, True, 1, 0)


class RenamedHand(AnyHand, kind="Hand"):
    total = Sum("points", lambda: Crew.score, name="{crew}", consistency="eventual")
    heads = Count(lambda: Crew.members, name="{crew}", consistency="eventual")


async def test_a_repair_drops_former_names_of_totals_in_other_partitions(db: Database) -> None:
    """Nothing takes back twice what an entity has added."""
    await db.audit(Crew, Hand, repair=True)
    assert (await db.audit(Crew, RenamedHand, repair=True)).repaired == 8
    await db.delete(RenamedHand.key(port="x", id=0), if_match="*")
    async with db.worker(Crew, RenamedHand) as worker:
        await worker.drain()
    crew = await db.get(Crew, name="a")
    assert (crew.members, crew.score) == (3, 30)
