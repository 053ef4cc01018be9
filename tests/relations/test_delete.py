"""What becomes of children when their parent is deleted."""

import asyncio
import datetime as dt
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tableorm import (
    AuditReport,
    Conflict,
    Count,
    Database,
    DecodeError,
    Entity,
    EntityNotFound,
    Index,
    Key,
    LostRace,
    Mapped,
    ModelError,
    NotRead,
    PreconditionFailed,
    PropertyBag,
    ReferenceNotFound,
    TableOrmError,
    TransactionFailed,
    WrongKind,
    connect,
    field,
    many,
)
from tableorm.connection.connection import connection_of
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import RowPage
from tableorm.stores.layers import StoreLayer, StoreRequest
from tableorm.testing.contract.base import everything
from tests.databases import database_fixture
from tests.faults import before_requests
from tests.rows import merge_row
from tests.torture import seeds


class OnDisk(Entity, table="Files", partition_key="{disk}", abstract=True):
    disk: Mapped[str] = field(default="d")


class Folder(OnDisk, row_key="folder_{name}"):
    name: Mapped[str]
    note: Mapped[str] = field(default="")
    files: Mapped[int] = field(default=0, maintained=True)

    contents = many(lambda: File, disk="{disk}", folder="{name}", on_delete="cascade")
    shares = many(lambda: Share, disk="{disk}", folder="{name}", on_delete="keep")


FOLDER = Folder.key(disk="d", name="a")


class File(OnDisk, row_key="file_{folder}_{id:04d}"):
    folder: Mapped[str] = field(default="a")
    id: Mapped[int]
    size: Mapped[int] = field(default=1)
    until: Mapped[dt.datetime | None] = field(default=None, expiry=True)

    by_size = Index(row_key="size_{size:06d}_{folder}_{id:04d}")
    counted = Count(lambda: Folder.files, disk="{disk}", name="{folder}")


class Share(OnDisk, row_key="share_{folder}_{id}"):
    folder: Mapped[str]
    id: Mapped[str]


class Disk(OnDisk, row_key="disk"):
    """Its folders are not counted, and have files of their own; a field has the name of what keys have."""

    model: Mapped[str] = field(default="")

    folders = many(lambda: Folder, disk="{disk}", on_delete="cascade")


class Named(Entity, table="Kept", partition_key="{name}", abstract=True):
    name: Mapped[str]


class Kept(Named, row_key="kept"):
    count: Mapped[int] = field(default=0, maintained=True)

    items = many(lambda: Item, name="{name}", on_delete="refuse")


class Item(Named, row_key="item_{id}"):
    id: Mapped[str]

    counted = Count(lambda: Kept.count, name="{name}")


class Uncounted(Named, row_key="uncounted"):
    items = many(lambda: Item, name="{name}", on_delete="refuse")


class House(OnDisk, row_key="house"):
    staying: Mapped[int] = field(default=0, maintained=True)
    hands: Mapped[int] = field(default=0, maintained=True)
    size: Mapped[int] = field(default=0, maintained=True)

    rooms = many(lambda: Room, disk="{disk}", on_delete="cascade")
    guests = many(lambda: Guest, disk="{disk}", on_delete="refuse")


class Room(OnDisk, row_key="room_{id}"):
    id: Mapped[int]

    counted = Count(lambda: House.size, disk="{disk}")


class Guest(OnDisk, row_key="guest_{id}"):
    id: Mapped[int]

    counted = Count(lambda: House.staying, disk="{disk}")


class Hand(OnDisk, row_key="hand_{id}"):
    id: Mapped[int]

    counted = Count(lambda: House.hands, disk="{disk}")


db = database_fixture(Folder, File, Share, Disk, Kept, Item)


async def fill(db: Database, name: str = "a", count: int = 3) -> Folder:
    await db.insert(Folder(name=name))
    for number in range(count):
        await db.insert(File(folder=name, id=number))
    await db.insert(Share(folder=name, id="x"))
    return await db.get(Folder, disk="d", name=name)


async def keys(db: Database) -> list[str]:
    return [bag.row["RowKey"] async for bag in db.select_raw("Files").allow_scan()]


async def test_children_are_deleted_first(db: Database) -> None:
    """With their index entries and counts; those of other parents, and of relations that keep, stay."""
    folder = await fill(db)
    await fill(db, "ab", 1)
    await db.delete(folder)
    assert await keys(db) == ["file_ab_0000", "folder_ab", "share_a_x", "share_ab_x", "size_000001_ab_0000"]
    assert folder.etag is None
    with pytest.raises(EntityNotFound):
        await db.delete(FOLDER, if_match="*")
    await db.delete(FOLDER, if_match="*", missing_ok=True)
    with pytest.raises(NotRead):
        await db.delete(Folder.key(disk="d", name="ab"))
    assert (await db.audit(Folder)).clean


class Node(Entity, table="Nodes", partition_key="{tree}", row_key="node_{name}"):
    """Found by the entries of an index, which have no ETag of their entity."""

    tree: Mapped[str]
    name: Mapped[str]
    above: Mapped[str | None]
    note: Mapped[list[str]] = field(factory=list)

    by_above = Index(row_key="above_{above}_{name}")
    below = many(lambda: Node, tree="{tree}", above="{name}", on_delete="cascade")


@pytest.mark.parametrize("above", [None, "a", "c"])
async def test_a_tree_is_deleted_from_any_node_on(db: Database, above: str | None) -> None:
    """Also if its root is below itself, or below another node of it; nodes of another tree stay."""
    await db.create_tables(Node)
    pairs = [("a", above), ("b", "a"), ("c", "b"), ("d", "a"), ("other", None)]
    for name, it in pairs:
        await db.insert(Node(tree="t", name=name, above=it))
    await db.delete(Node, tree="t", name="a", if_match="*")

    assert [each.name for each in await db.select(Node).where(Node.tree == "t").all()] == ["other"]
    assert (await db.audit(Node)).clean


async def test_an_entity_of_an_index_is_deleted_if_it_is_as_it_was(db: Database) -> None:
    """With its children: as its fields tell, since the entry has no ETag."""
    await db.create_tables(Node)
    for name, it in (("a", None), ("b", "a"), ("c", "a"), ("d", "b")):
        await db.insert(Node(tree="t", name=name, above=it))
    b, c = await db.select(Node.by_above).where(Node.tree == "t", Node.above == "a").all()
    await db.modify(c.key, lambda each: each.evolve(note=["new"]))

    await db.delete(b)
    with pytest.raises(PreconditionFailed):
        await db.delete(c)

    assert (b.etag, c.etag) == (None, None)
    assert [each.name for each in await db.select(Node).where(Node.tree == "t").all()] == ["a", "c"]


@pytest.mark.parametrize("counted", [False, True])
async def test_a_child_that_others_change_meanwhile_is_deleted_all_the_same(db: Database, *, counted: bool) -> None:
    """A child with children of its own, whose row others write between two looks at it, ends no delete."""
    await db.insert(Disk())
    await fill(db)
    changes = iter([1])

    async def write_first(request: StoreRequest) -> None:
        if request.keys == ("d", "folder_a"):
            for number in changes:
                if counted:
                    await db.insert(File(id=100 + number))
                else:
                    await db.modify(FOLDER, lambda each: each.evolve(note="new"))

    before_requests(db, write_first)
    await db.delete(Disk, disk="d", if_match="*")

    assert await keys(db) == ["share_a_x"]
    assert next(changes, None) is None


async def test_nothing_else_finds_what_has_expired_meanwhile(db: Database) -> None:
    """
    A child that has expired is deleted too: the search for children finds it, and what runs within a write of the
    delete does not.
    """
    found = list[File]()

    async def ask_first(request: StoreRequest) -> None:
        if request.operations:
            found.extend(await db.select(File).where(File.disk == "d", File.folder == "a").all())

    folder = await fill(db, count=0)
    await db.insert(File(id=7, until=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)))
    before_requests(db, ask_first)
    await db.delete(folder, if_match="*")
    assert await keys(db) == ["share_a_x"]
    assert not found


async def test_a_child_that_cannot_be_read_keeps_its_parent(db: Database) -> None:
    """The other children are deleted, then the error names it."""
    folder = await fill(db)
    await merge_row(db, "Files", {"PartitionKey": "d", "RowKey": "file_a_0001", "size": "many"})

    with pytest.raises(DecodeError, match="size"):
        await db.delete(folder, if_match="*")
    assert await keys(db) == ["file_a_0001", "folder_a", "share_a_x", "size_000001_a_0001"]


async def test_a_count_that_was_in_the_way_is_forgotten(db: Database) -> None:
    """Once others have taken away what was counted, the parent is deleted, after the children that came meanwhile."""
    await fill(db, count=1)
    searches, looks = iter(range(100)), iter(range(100))

    async def write_first(request: StoreRequest) -> None:
        if request.method == "query" and next(searches) == 0:
            await db.delete(File, disk="d", folder="a", id=0, if_match="*")
        if request.keys == ("d", "folder_a") and request.method == "get" and next(looks) == 1:
            await db.insert(File(id=7))

    before_requests(db, write_first)
    assert await db.delete(FOLDER, if_match="*")

    assert await keys(db) == ["share_a_x"]
    assert next(looks) > 2


@pytest.mark.parametrize("guest", [True, False])
async def test_a_delete_that_is_refused_deletes_no_child(db: Database, *, guest: bool) -> None:
    """By a relation that refuses, or by a count of entities that stay; a count of those that go is no reason."""
    await db.create_tables(House, Room, Guest, Hand)
    await db.insert(House())
    for number in range(3):
        await db.insert(Room(id=number))
    await db.insert(Guest(id=1) if guest else Hand(id=1))
    before = await keys(db)

    with pytest.raises(Conflict, match=r"it has House\.guests" if guest else "its hands is 1"):
        await db.delete(House, disk="d", if_match="*")
    assert await keys(db) == before
    await db.delete(Guest if guest else Hand, disk="d", id=1, if_match="*")
    await db.delete(House, disk="d", if_match="*")
    assert await keys(db) == []


@pytest.mark.limit(20)
async def test_children_that_keep_coming_end_in_a_lost_race(db: Database) -> None:
    """Also where others insert faster than a delete reads and deletes: no look for children goes on for ever."""
    await db.insert(House())
    numbers = iter(range(2000))

    class Busy(StoreLayer):
        """Short pages, and more new children before each that is read in full than it has."""

        async def send(self, request: StoreRequest) -> Any:
            if request.method != "query":
                return await super().send(request)
            query, limit, continuation = request.arguments
            for _ in range(3 if query.select is None else 0):
                await db.insert(Room(id=next(numbers)))
            return await super().send(StoreRequest("query", request.table, (query, min(limit, 2), continuation)))

    plain = db.store
    connection_of(db).wrap_store(Busy)
    with pytest.raises(LostRace, match="50 times in a row"):
        await db.delete(House, disk="d", if_match="*")
    connection_of(db).wrap_store(lambda _: plain)

    left = await db.select(Room).where(Room.disk == "d").count()
    assert (await db.get(House, disk="d")).size == left > 0


class EmptyFirst(StoreLayer):
    async def send(self, request: StoreRequest) -> Any:
        if request.method == "query":
            query, limit, cursor = request.arguments
            if (pages := int(cursor or 0)) < 12:
                return RowPage([], str(pages + 1))
            request = StoreRequest("query", request.table, (query, limit, None))
        return await super().send(request)


async def test_a_parent_without_children_goes_after_empty_pages(db: Database) -> None:
    """The service may look at other rows, and give a page of none with a cursor."""
    folder = Folder(disk="d", name="a")
    await db.insert(folder)
    connection_of(db).wrap_store(EmptyFirst)

    assert await db.delete(folder) and not await db.exists(FOLDER)


@pytest.mark.parametrize("fate", ["reply lost", "request lost", "crash"])
async def test_a_delete_that_is_interrupted_can_be_repeated(db: Database, fate: str) -> None:
    """At each of its requests: no child has lost its parent, the count is right, and another delete ends it."""
    await fill(db, "other", 1)
    plain, at, sent = db.store, 0, 0

    class Interrupted(StoreLayer):
        async def send(self, request: StoreRequest) -> Any:
            nonlocal sent
            sent += 1
            if sent > at and fate == "crash":
                raise _StopError
            if sent != at + 1:
                return await super().send(request)
            if fate == "reply lost":
                await super().send(request)
            raise Fault(Code.NO_ANSWER, "lost", doubt=bool(request.operations))

    while sent >= at:
        await db.upsert(Folder(name="a"))
        for number in range(3):
            await db.insert(File(id=number))
        connection_of(db).wrap_store(Interrupted)
        sent = 0
        with suppress(_StopError, TableOrmError):
            await db.delete(FOLDER, if_match="*")
        connection_of(db).wrap_store(lambda _: plain)

        folder = await db.get_or_none(FOLDER)
        left = await db.select(File).where(File.disk == "d", File.folder == "a").count()
        assert left == (0 if folder is None else folder.files) <= 3
        assert (await db.audit(Folder, File)).clean
        await db.delete(FOLDER, if_match="*", missing_ok=True)
        assert await keys(db) == ["file_other_0000", "folder_other", "share_other_x", "size_000001_other_0000"]
        at += 1

    assert at > 5


async def test_a_parent_that_has_changed_stays(db: Database) -> None:
    """With its children: under the ETag that it was read with, or the one given."""
    folder = await fill(db)
    await db.modify(FOLDER, lambda each: each.evolve(note="new"))
    with pytest.raises(PreconditionFailed):
        await db.delete(folder)
    with pytest.raises(PreconditionFailed):
        await db.delete(folder.key, if_match=str(folder.etag))
    assert len(await keys(db)) == 8
    await db.delete(folder, if_match="*")
    assert await keys(db) == ["share_a_x"]


async def test_other_verbs_refuse_it(db: Database) -> None:
    """Transactions, bulks and queries delete no entity whose children must go first."""
    folder = await fill(db)
    with pytest.raises(ModelError, match="Folder is deleted by"):
        async with db.transaction() as tx:
            tx.delete(folder)
    with pytest.raises(ModelError, match="Folder is deleted by"):
        async with db.bulk() as bulk:
            await bulk.delete(folder)
    with pytest.raises(ModelError, match="what the delete sends depends on the children"):
        db.explain_write("delete", folder)
    with pytest.raises(ModelError, match="Folder is deleted by"):
        await db.select(Folder).where(Folder.disk == "d").delete()
    assert len(await keys(db)) == 8


async def test_a_parent_with_children_is_refused(db: Database) -> None:
    """By every verb, as its count says; without a count the relation is rejected when the model is first used."""
    await db.insert(Kept(name="a"))
    await db.insert(Item(name="a", id="1"))
    kept = await db.get(Kept, name="a")
    with pytest.raises(Conflict, match="its count is 1"):
        await db.delete(kept)
    with pytest.raises(TransactionFailed, match="its count is 1"):
        async with db.transaction() as tx:
            tx.delete(kept)
    assert (await db.select(Kept).where(Kept.name == "a").delete()).failures == 1
    await db.delete(Item, name="a", id="1", if_match="*")
    await db.delete(Kept, name="a", if_match="*")
    for use in (db.insert(Uncounted(name="a")), db.delete(Uncounted, name="a", if_match="*")):
        with pytest.raises(ModelError, match=r"Uncounted\.items: on_delete='refuse' needs a count of all Item"):
            await use


class Place(Entity, table="Places", partition_key="{town}", row_key="place_{id}", abstract=True):
    town: Mapped[str]
    id: Mapped[str]


class Inn(Place):
    rooms = many(lambda: Chamber, town="{town}", inn="{id}", on_delete="cascade")


class Stall(Place):
    ware: Mapped[str] = field(default="tea")
    debts: Mapped[int] = field(default=0, maintained=True)

    by_ware = Index(row_key="ware_{ware}_{id}")


class Ruin(Place): ...


class Chamber(Entity, table="Places", partition_key="{town}", row_key="room_{inn}_{number}"):
    town: Mapped[str]
    inn: Mapped[str]
    number: Mapped[int]


class Debt(Entity, table="Places", partition_key="{town}", row_key="debt_{stall}_{number}"):
    town: Mapped[str]
    stall: Mapped[str]
    number: Mapped[int]

    counted = Count(lambda: Stall.debts, town="{town}", id="{stall}")


async def test_the_key_of_a_base_deletes_as_the_class_of_its_row_does(db: Database) -> None:
    """With children and index entries, unless others are counted in it; transactions and bulks ask for the class."""
    await db.create_tables(Inn, Stall, Ruin, Chamber, Debt)
    for place in (Inn(town="a", id="1"), Stall(town="a", id="2"), Stall(town="a", id="3"), Ruin(town="a", id="4")):
        await db.insert(place)
    await db.insert(Chamber(town="a", inn="1", number=1))
    await db.insert(Debt(town="a", stall="3", number=1))
    inn, stall, owing, ruin, none = (Key(Place, "Places", "a", f"place_{number}") for number in range(1, 6))

    with pytest.raises(ModelError, match="Place is abstract"):
        async with db.transaction() as tx:
            tx.delete(inn, if_match="*")
    with pytest.raises(ModelError, match="Place is abstract"):
        async with db.bulk() as bulk:
            await bulk.delete(stall, if_match="*")
    with pytest.raises(Conflict, match="its debts is 1"):
        await db.delete(owing, if_match="*")
    for key in (inn, stall, ruin):
        await db.delete(key, if_match="*")
    with pytest.raises(EntityNotFound):
        await db.delete(none, if_match="*")
    await db.insert(PropertyBag("Places", "a", "place_6", {"EntityType": "Other"}))
    with pytest.raises(WrongKind):
        await db.delete(Key(Place, "Places", "a", "place_6"), if_match="*")
    left = [bag.row["RowKey"] async for bag in db.select_raw("Places").allow_scan()]

    assert not await db.delete(none, if_match="*", missing_ok=True)
    assert left == ["debt_3_1", "place_3", "place_6", "ware_tea_3"]


class Watched(StoreLayer):
    """Looks for orphans after each request that writes."""

    async def send(self, request: StoreRequest) -> Any:
        await asyncio.sleep(0)
        try:
            return await super().send(request)
        finally:
            if request.operations:
                names = {row["RowKey"] for row in await everything(self.below, "Files")}
                files = {name.split("_")[1] for name in names if name.startswith("file_")}
                assert {f"folder_{name}" for name in files} <= names


@seeds(2, 50)
async def test_no_child_is_ever_without_its_parent(tmp_path: Path, seed: int) -> None:
    """
    Eight tasks of two programs insert files while their folder is deleted: the delete begins again, and in the end an
    insert is rejected.
    """
    url = f"local:{tmp_path}/files.tables"
    async with connect(url) as db, connect(url) as other:
        await db.create_tables(Folder, File, Share)
        await fill(db)
        for each in (db, other):
            connection_of(each).wrap_store(Watched)
        numbers, rolls = iter(range(100, 1000)), random.Random(seed)
        refused = 0

        async def insert(mine: Database) -> None:
            nonlocal refused
            pause = 20
            while not refused:
                pause *= 2
                for _ in range(rolls.randrange(pause)):
                    await asyncio.sleep(0)
                try:
                    await mine.insert(File(id=next(numbers)))
                except ReferenceNotFound:
                    refused += 1

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(insert(other if number < 2 else db))
            group.create_task(db.delete(FOLDER, if_match="*"))
        assert await keys(db) == ["share_a_x"]
        assert refused


class Shelf(Entity, table="Shelves", partition_key="{room}", row_key="shelf_{name}"):
    room: Mapped[str]
    name: Mapped[str]
    size: Mapped[int] = field(default=0)

    books = many(lambda: Book, room="{room}", shelf="{name}", on_delete="keep")


class Book(Entity, table="Shelves", partition_key="{room}", row_key="book_{shelf}_{id:04d}"):
    room: Mapped[str]
    shelf: Mapped[str]
    id: Mapped[int]


async def test_an_audit_counts_orphans(db: Database) -> None:
    """
    Children that were kept when their parent went are counted, with few requests or at a given rate, also by an audit
    that goes on. They are no finding.
    """
    await db.create_tables(Shelf, Book)
    async with db.bulk() as bulk:
        for room in ("a", "b"):
            for name in ("one", "two", "three"):
                await bulk.insert(Shelf(room=room, name=name))
                for number in range(40):
                    await bulk.insert(Book(room=room, shelf=name, id=number))
    assert (await db.audit(Shelf)).orphans == 0

    await db.delete(Shelf, room="b", name="two", if_match="*")
    await db.delete(Shelf, room="a", name="one", if_match="*")
    with db.observe() as seen:
        report = await db.audit(Shelf)

    async with db.bulk() as bulk:
        for number in range(1000):
            await bulk.insert(Book(room="b", shelf="three", id=100 + number))
    stopped: list[str | None] = []
    await db.audit(Shelf, on_progress=lambda each: stopped.append(each.cursor))
    assert (await db.audit(Shelf, cursor=stopped[0])).orphans == 80
    begun = time.monotonic()
    paced = await db.audit(Shelf, rate=20_000)  # from the start, since how far the cursor is depends on the machine
    assert (paced.orphans, time.monotonic() - begun > 0.1) == (80, True)

    assert (report.orphans, report.clean, report.found) == (80, True, 0)
    assert "80 orphans" in str(report) and len(seen.requests) <= 2 + 1 + 6  # a request for each parent at most


async def test_programs_that_share_an_audit_count_orphans_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each counts those in its own ranges, and the report adds them up; also if one has stopped and another goes on."""
    monkeypatch.setattr("tableorm.jobs.plan.LEAST_ROWS", 10)
    monkeypatch.setattr("tableorm.relations.orphans.MAX_PAGE", 7)
    url = f"local:{tmp_path}/books.tables"
    async with connect(url) as db, connect(url) as other:
        await db.create_tables(Shelf, Book)
        async with db.bulk() as bulk:
            for number in range(200):
                await bulk.insert(Book(room=f"room {number % 20:02d}", shelf="one", id=number))
            for number in range(0, 20, 2):
                await bulk.insert(Shelf(room=f"room {number:02d}", name="one"))
        together = await asyncio.gather(*(each.audit(Shelf, name="together", parallel=2) for each in (db, other)))

        def stop(report: AuditReport) -> None:
            if report.orphans:
                raise _StopError

        with pytest.raises(_StopError):
            await db.audit(Shelf, name="in turn", parallel=1, on_progress=stop)
        resumed = await other.audit(Shelf, name="in turn", parallel=1)
        ranges = {each.name: each.ranges for each in await db.runs()}

    assert [each.orphans for each in together] == [100, 100]
    assert resumed.orphans == 100
    assert min(ranges.values()) > 10


class _StopError(Exception):
    """A program is ended."""


async def test_damaged_parents_end_no_audit(db: Database) -> None:
    """A parent that does not fit its model is there all the same; a row of another kind under its key is no parent."""
    await db.create_tables(Shelf, Book)
    for name, changed in (("one", {"size": "wide"}), ("two", {"EntityType": "Box"}), ("three", {})):
        await db.insert(Shelf(room="a", name=name))
        for number in range(2):
            await db.insert(Book(room="a", shelf=name, id=number))
        bag = await db.get(PropertyBag.key("Shelves", "a", f"shelf_{name}"))
        bag.update(changed)
        await db.replace(bag)

    assert (await db.audit(Shelf)).orphans == 2
