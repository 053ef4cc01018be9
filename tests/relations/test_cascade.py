"""Deleting a parent whose children are in other partitions: workers delete them, and then the parent."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    Conflict,
    Count,
    Database,
    Entity,
    EntityNotFound,
    Index,
    Mapped,
    ModelError,
    PreconditionFailed,
    PropertyBag,
    connect,
    field,
    many,
)
from tableorm.connection.connection import connection_of
from tableorm.outbox.overview import find_pending
from tableorm.stores.layers import StoreLayer, StoreRequest
from tableorm.testing import temporary_database
from tableorm.testing.contract.base import everything
from tests.azurite import Azurite
from tests.databases import database_fixture
from tests.faults import before_requests
from tests.rows import delete_row, insert_row, merge_row
from tests.torture import seeds


class InTown(Entity, table="Guilds", partition_key="{town}", abstract=True):
    town: Mapped[str] = field(default="Bern")
    name: Mapped[str] = field(default="a")


class Guild(InTown, row_key="guild_{name}", tracked=True):
    motto: Mapped[str] = field(default="")
    seats: Mapped[int] = field(default=0, maintained=True)

    masters = many(lambda: Master, guild="{name}", on_delete="cascade")
    works = many(lambda: Work, town="{town}", guild="{name}", on_delete="cascade")
    halls = many(lambda: Hall, town="{town}", guild="{name}", on_delete="refuse")


GUILD = Guild.key(town="Bern", name="a")


class Master(Entity, table="Masters", partition_key="{guild}", row_key="master_{id:04d}", tracked=True):
    """Found by its keys; has children in its partition and elsewhere."""

    guild: Mapped[str]
    id: Mapped[int]
    craft: Mapped[str] = field(default="smith")

    by_craft = Index(row_key="craft_{craft}_{id:04d}")
    pupils = many(lambda: Pupil, guild="{guild}", master="{id}", on_delete="cascade")
    debts = many(lambda: Debt, debtor="{id}", on_delete="cascade")


class Pupil(Entity, table="Masters", partition_key="{guild}", row_key="pupil_{master:04d}_{id:04d}"):
    guild: Mapped[str]
    master: Mapped[int]
    id: Mapped[int]


class Debt(Entity, table="Debts", partition_key="{debtor:04d}", row_key="debt_{id:04d}"):
    debtor: Mapped[int]
    id: Mapped[int]
    until: Mapped[dt.datetime | None] = field(default=None, expiry=True)


class Work(Entity, table="Works", partition_key="{shelf}", row_key="work_{id:04d}"):
    """Found by an index in other partitions."""

    shelf: Mapped[str]
    id: Mapped[int]
    town: Mapped[str]
    guild: Mapped[str | None]

    by_guild = Index(
        partition_key="{town}_{guild}", row_key="work_{shelf}_{id:04d}", table="Shelves", consistency="eventual"
    )


class Ward(InTown, row_key="ward_{name}", tracked=True):
    doors = many(lambda: Door, town="{town}", ward="{name}", on_delete="cascade")


class Fort(InTown, row_key="fort_{name}", tracked=True):
    doors = many(lambda: Door, ward="{name}", on_delete="cascade")


class Door(Entity, table="Works", partition_key="{ward}_{town}", row_key="door_{id}"):
    ward: Mapped[str]
    town: Mapped[str]
    id: Mapped[int]

    by_ward = Index(partition_key="{ward}", row_key="door_{town}_{id}", table="Shelves", consistency="eventual")


class Hall(Entity, table="Guilds", partition_key="{town}", row_key="hall_{guild}_{id}"):
    town: Mapped[str]
    guild: Mapped[str]
    id: Mapped[int]

    counted = Count(lambda: Guild.seats, town="{town}", name="{guild}")


MODELS = (Guild, Master, Pupil, Debt, Work, Hall, Ward, Fort, Door)


db = database_fixture(*MODELS)


async def fill(db: Database, name: str) -> Guild:
    await db.insert(Guild(name=name))
    async with db.bulk() as bulk:
        for number in range(3):
            await bulk.insert(Master(guild=name, id=number))
            await bulk.insert(Pupil(guild=name, master=number, id=1))
            expired = dt.datetime(2020, 1, 1, tzinfo=dt.UTC) if number else None
            await bulk.insert(Debt(debtor=number, id=ord(name), until=expired))
            await bulk.insert(Work(shelf=f"{name}{number}", id=number, town="Bern", guild=name))
    return await db.get(Guild, town="Bern", name=name)


async def work(db: Database) -> None:
    async with db.worker(Guild, Master, Ward, Fort) as worker:
        await worker.drain()


async def keys(db: Database, *tables: str) -> list[str]:
    """Return the RowKeys of entities and index entries; void decisions are none."""
    found = [bag.row for table in tables for bag in await db.select_raw(table).allow_scan().all()]
    return [row["RowKey"] for row in found if row.get("State") != "void"]


EVERYWHERE = ("Guilds", "Masters", "Debts", "Works", "Shelves")


async def test_workers_delete_children_then_the_parent(db: Database) -> None:
    """
    Found by keys or by an index elsewhere, with what is derived from them and with children of their own; those of
    others stay. Until then the parent is there, and a second delete begins nothing.
    """
    other = await fill(db, "b")
    kept = sorted(await keys(db, *EVERYWHERE))
    guild = await fill(db, "a")
    explained = db.explain_write("delete", guild)
    with db.observe() as seen:
        assert await db.delete(guild)
    assert guild.etag is None
    assert [each.operation for each in seen.requests][: explained.cost] == [
        "get",
        "query",
        "put-message",
        "transaction",
    ]
    assert explained.cost == 4
    await db.modify(GUILD, lambda each: each.evolve(motto="last"))
    assert await db.delete(GUILD, if_match="*")
    (pending,) = [each async for each in find_pending(connection_of(db), "Guilds")]
    assert pending.to_dict(whole=False)["works"][0] | {"arguments": ""} == {
        "kind": "cascade Guild",
        "row_key": "guild_a",
        "step": None,
        "arguments": "",
    }
    await work(db)

    # Debts of masters with the same numbers are of both guilds.
    assert sorted(await keys(db, *EVERYWHERE)) == [each for each in kept if not each.startswith("debt_")]
    assert await db.delete(GUILD, if_match="*", missing_ok=True) is False
    with pytest.raises(EntityNotFound):
        await db.delete(GUILD, if_match="*")
    assert (await db.audit(*MODELS)).clean
    assert (await db.audit(Guild)).orphans == 0
    assert await db.get(Guild, town="Bern", name=other.name) == other


class Node(Entity, table="Nodes", partition_key="{name}", row_key="node", tracked=True):
    name: Mapped[str]
    above: Mapped[str | None]

    by_above = Index(partition_key="{above}", row_key="node_{name}", table="NodesAbove", consistency="eventual")
    below = many(lambda: Node, above="{name}", on_delete="cascade")


@pytest.mark.usefixtures("quick_workers")
@pytest.mark.limit(20)
@pytest.mark.parametrize("above", [None, "a", "c"])
async def test_a_tree_is_deleted_from_any_node_on(db: Database, above: str | None) -> None:
    """Also if its root is below itself, or below another node of it; then nothing is left to do."""
    await db.create_tables(Node)
    for name, it in (("a", above), ("b", "a"), ("c", "b"), ("d", "a"), ("other", None)):
        await db.insert(Node(name=name, above=it))
    async with db.worker(Node) as worker:
        await worker.drain()
        await db.delete(Node, name="a", if_match="*")
        await worker.drain()

    assert [each.name for each in await db.select(Node).allow_scan().all()] == ["other"]
    assert [each async for each in find_pending(connection_of(db), "Nodes")] == []


@pytest.mark.usefixtures("quick_workers")
async def test_a_child_that_cannot_be_read_keeps_its_parent(db: Database) -> None:
    """All other children are deleted; the error names the child, and when that can be read again, both go."""
    kept = sorted(await keys(db, *EVERYWHERE))
    guild = await fill(db, "a")
    spoilt = {"Masters": ("a", "master_0001"), "Works": ("a1", "work_0001")}
    for table, place in spoilt.items():
        await db.merge(PropertyBag(table, *place, {"craft": 7, "town": 7}), if_match="*")
    await db.delete(guild)
    await work(db)

    left = await keys(db, "Masters", "Works", "Debts")
    assert sorted(each for each in left if not each.startswith("craft_")) == [
        "debt_0097",
        "master_0001",
        "pupil_0001_0001",
        "work_0001",
    ]
    assert (await db.get(GUILD)).motto == ""
    (pending,) = [each async for each in find_pending(connection_of(db), "Guilds")]
    assert "('a', 'master_0001')" in str(pending.decision.error)
    for table, place in spoilt.items():
        await db.merge(PropertyBag(table, *place, {"craft": "smith", "town": "Bern"}), if_match="*")
    await db.delete(GUILD, if_match="*")
    await work(db)
    assert sorted(await keys(db, *EVERYWHERE)) == kept


async def test_an_index_elsewhere_loads_children(db: Database) -> None:
    """
    If nothing else bounds the relation: as each is now, with its ETag, not as an old entry tells; later those that have
    no entry yet.
    """
    guilds = [await fill(db, "a"), await fill(db, "b"), Guild(name="c")]
    explained = db.explain_load(guilds, Guild.works)
    with db.observe() as seen:
        await db.load(guilds, Guild.works)
    found = [[(each.shelf, each.guild) for each in guild.works] for guild in guilds]
    assert found == [[(f"{name}{number}", name) for number in range(3)] for name in "ab"] + [[]]
    assert explained.max_requests is None
    assert len(explained.requests) == 3 <= len(seen.requests)
    moved = guilds[0].works[0]
    moved.guild = "b"
    await db.save(moved)

    limited = Guild.works.where(Work.shelf != "a1").limit(1).only(Work.guild)
    (guild, *_) = await db.select(Guild).where(Guild.town == "Bern").load(limited).all()
    assert [(each.shelf, each.etag is None) for each in guild.works] == [("a2", False)]
    entries = await everything(db.store, "Shelves")
    (entry,) = [row for row in entries if row["RowKey"].startswith("work_a2")]
    await delete_row(db, "Shelves", entry)
    await insert_row(db, "Shelves", {**entry, "PartitionKey": "Bern_b"})
    await db.load(guilds, Guild.works)
    assert [[each.shelf for each in guild.works] for guild in guilds] == [["a1"], ["a0", "b0", "b1", "b2"], []]


class Loose(InTown, row_key="loose_{name}"):
    masters = many(lambda: Master, guild="{name}", on_delete="cascade")


class Coded(Entity, table="Guilds", partition_key="{town}", row_key="coded", tracked=True):
    town: Mapped[str]
    code: Mapped[str]

    masters = many(lambda: Master, guild="{code}", on_delete="cascade")


class Ping(Entity, table="Pings{at:%Y}", partition_key="{guild}", row_key="{at:ticks}"):
    guild: Mapped[str]
    at: Mapped[dt.datetime]


class Pinged(InTown, row_key="pinged_{name}", tracked=True):
    """No query for its children says in which tables they are."""

    pings = many(lambda: Ping, guild="{name}", on_delete="cascade")


class Sparse(InTown, row_key="sparse_{name}", tracked=True):
    """No index has all of its children: those without a guild have no entry."""

    works = many(lambda: Work, town="{name}", on_delete="cascade")


async def test_what_cannot_be_deleted_is_refused(db: Database) -> None:
    """Before anything is written, by each verb and with a reason; a model that fits no worker at its first use."""
    await fill(db, "a")
    guild = await db.get(GUILD)
    hall = Hall(town="Bern", guild="a", id=1)
    await db.insert(hall)
    before = await keys(db, *EVERYWHERE)
    with pytest.raises(PreconditionFailed):
        await db.delete(guild)
    guild = await db.get(GUILD)
    with pytest.raises(Conflict, match=r"it has Guild\.halls"):
        await db.delete(guild)
    with pytest.raises(ModelError, match="give the entity"):
        db.explain_write("delete", guild.key)
    with pytest.raises(ModelError, match=r"Loose\.masters: deleting Loose .* needs tracked=True"):
        await db.insert(Loose())
    with pytest.raises(ModelError, match=r"Coded\.masters: deleting Coded .* does not hold code in full"):
        await db.insert(Coded(town="Bern", code="a"))
    with pytest.raises(ModelError, match=r"Pinged\.pings: on_delete='cascade' is rejected for Ping, which has a table"):
        await db.insert(Pinged())
    await db.insert(Sparse())
    with pytest.raises(ModelError, match=r"Sparse\.works: town of Work bound neither"):
        await db.delete(Sparse, town="Bern", name="a", if_match="*")

    assert await keys(db, *EVERYWHERE) == [*before[:2], "sparse_a", *before[2:]]


async def test_a_scope_deletes_no_children_of_others(db: Database) -> None:
    """Workers have no scope: all children must have its fields from their parent. Otherwise nothing is written."""
    for town in ("Bern", "Basel"):
        await db.insert(Door(town=town, ward="a", id=1))
    await db.insert(Ward())
    await db.insert(Fort())
    bern = db.scope(Ward, Fort, town="Bern")
    with pytest.raises(AccessDenied, match=r"Fort\.doors: children may be of others than this scope"):
        await bern.delete(await bern.get(Fort, name="a"))
    with pytest.raises(AccessDenied, match=r"Fort\.doors: children may be of others than this scope"):
        bern.explain_write("delete", await bern.get(Fort, name="a"))
    await bern.delete(await bern.get(Ward, name="a"))
    await work(db)

    assert await keys(db, "Guilds", "Works") == ["fort_a", "door_1"]
    assert (await db.get(Door, town="Basel", ward="a", id=1)).town == "Basel"


async def test_another_entity_under_the_key_stays(db: Database) -> None:
    """With its children, if the one that was being deleted has left before a worker came."""
    guild = await fill(db, "a")
    await db.delete(guild)
    await db.move(await db.get(GUILD), name="moved")
    await db.insert(Guild())
    before = await keys(db, "Masters", "Works")
    await work(db)

    assert await keys(db, "Guilds") == ["guild_a", "guild_moved"]
    assert await keys(db, "Masters", "Works") == before


async def test_an_entity_that_changes_while_its_delete_begins_stays(db: Database) -> None:
    """Under the ETag that it was read with, whatever of its row others write: also what the model does not declare."""
    guild, changes = await fill(db, "a"), iter([1])

    async def write_first(request: StoreRequest) -> None:
        if any(each.row.get("RowKey") == "guild_a" for each in request.operations):
            for _ in changes:
                await merge_row(db, "Guilds", {"PartitionKey": "Bern", "RowKey": "guild_a", "Founded": 1191})

    before_requests(db, write_first)
    with pytest.raises(PreconditionFailed):
        await db.delete(guild)
    await work(db)

    assert next(changes, None) is None
    assert (await db.get(GUILD)).extra["Founded"] == 1191


async def test_an_entity_that_has_become_another_stays(db: Database) -> None:
    """With its children, and nothing is left for workers."""

    class Place(InTown, row_key="place_{name}", abstract=True): ...

    class Inn(Place, tracked=True):
        rooms = many(lambda: Room, town="{town}", inn="{name}", on_delete="cascade")

    class House(Place, tracked=True):
        pass

    class Room(Entity, table="Works", partition_key="{town}_{inn}", row_key="room_{id}"):
        town: Mapped[str]
        inn: Mapped[str]
        id: Mapped[int]

    await db.insert(Inn(name="Bear"))
    await db.insert(Room(town="Bern", inn="Bear", id=1))
    await db.delete(Inn, town="Bern", name="Bear", if_match="*")
    await db.save((await db.get(Inn, town="Bern", name="Bear")).become(House))
    async with db.worker(Inn) as worker:
        await worker.drain()

    assert await keys(db, "Guilds", "Works") == ["place_Bear", "room_1"]


class Watched(StoreLayer):
    """Looks after each write whether a child that was there from the beginning has lost its parent."""

    async def send(self, request: StoreRequest) -> Any:
        await asyncio.sleep(0)
        try:
            return await super().send(request)
        finally:
            if request.operations and request.table in ("Guilds", "Works"):
                guilds, works = [
                    {row["RowKey"] for row in await everything(self.below, table)} for table in ("Guilds", "Works")
                ]
                assert works.isdisjoint({"door_0", "door_1", "door_2"}) or "ward_a" in guilds


@pytest.fixture
async def two(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Database, Database]]:
    """Two programs on one store."""
    if request.param == "azurite":
        emulator: Azurite = request.getfixturevalue("azurite")
        async with (
            temporary_database(emulator.connection_string, *MODELS) as one,
            connect(emulator.connection_string, prefix=one.prefix) as other,
        ):
            yield one, other
    else:
        url = f"local:{tmp_path}/guilds.tables"
        async with connect(url) as one, connect(url) as other:
            await one.create_tables(*MODELS)
            yield one, other


@pytest.mark.parametrize("two", ["local", "azurite"], indirect=True)
@seeds(1, 30)
async def test_children_that_come_meanwhile(two: tuple[Database, Database], seed: int) -> None:
    """
    Eight tasks of two programs insert children while two workers delete their parent: at rest those that came before
    the parent went are gone, and an audit counts the others.
    """
    db, other = two
    await db.insert(Ward())
    for number in range(3):
        await db.insert(Door(town="Bern", ward="a", id=number))
    for each in two:
        connection_of(each).wrap_store(Watched)
    inserted: list[int] = []
    early: list[int] = []

    async def insert(mine: Database, first: int) -> None:
        for number in range(first, first + 8):
            await mine.insert(Door(town="Bern", ward="a", id=number))
            inserted.append(number)
            for _ in range(number * seed % 17):
                await asyncio.sleep(0)

    async def look() -> None:
        """Note what was inserted before the parent went."""
        while True:
            known = list(inserted)
            if await db.get_or_none(Ward, town="Bern", name="a") is None:
                return
            early[:] = known

    await db.delete(Ward, town="Bern", name="a", if_match="*")
    async with asyncio.TaskGroup() as group:
        for task in range(8):
            group.create_task(insert(other if task < 2 else db, 100 * (task + 1)))
        group.create_task(work(db))
        group.create_task(work(other))
        group.create_task(look())
    left = [each.id for each in await db.select(Door).where(Door.town == "Bern", Door.ward == "a").all()]

    assert not {0, 1, 2, *early} & {*left}
    assert (await db.audit(Ward)).orphans == len(left)
