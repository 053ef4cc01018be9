"""
Queries: what comes back is what filtering every entity in Python gives, in key order.
"""

from typing import Any

import pytest

from tableorm import Database, Entity, Int32, Mapped, ModelError, ScanRefused, field
from tests.database.conftest import also_in_file
from tests.databases import memory_database
from tests.local.engine.turns import Turns


class Item(Entity, table="Items", partition_key="{group}", row_key="{label}_{number:03d}"):
    group: Mapped[str]
    label: Mapped[str]
    number: Mapped[int]
    count: Mapped[Int32 | None] = field(default=None)


async def fill(db: Database, count: int) -> None:
    for start in range(0, count, 100):
        async with db.transaction() as tx:
            for n in range(start, min(start + 100, count)):
                tx.insert(Item(group="g", label=f"{n // 500:02d}", number=n % 500))


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
    turns = Turns()
    async for _ in db.select(Item).where(Item.group == "g"):
        pass

    assert await turns.stop() >= 3000 // 250 - 1


@pytest.mark.parametrize("db", ["file", "memory"], indirect=True)
async def test_other_tasks_run_while_small_reads_follow_each_other(db: Database) -> None:
    """A loop of point reads, each of which is answered at once, does not keep the event loop to itself."""
    await db.create_tables(Item)
    await db.insert(Item(group="g", label="x", number=1))
    turns = Turns()
    for _ in range(1000):
        await db.get(Item, group="g", label="x", number=1)
    points = turns.count
    for _ in range(500):
        await db.select(Item).where(Item.group == "g").all()

    assert points >= 1000 // 250 - 1
    assert await turns.stop() - points >= 500 // 250 - 1


class Shard(Entity, table="Shards", partition_key="{service}_{hash:04d}", row_key="{name}"):
    service: Mapped[str]
    hash: Mapped[int]
    name: Mapped[str]


async def test_a_range_of_partitions_is_allowed_by_itself() -> None:
    """`partitions="range"` lets a query read the partitions that its conditions bound, and no table."""
    async with memory_database(Shard) as db:
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
        with pytest.raises(ModelError, match=r'partitions=3\) is rejected: give "all" or "range"'):
            bounded.allow_scan(partitions=wrong)
