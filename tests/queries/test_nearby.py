"""
Entities that are read after their index entries: with few requests where their keys lie close together, and with hardly
more than one for each where they do not.
"""

import datetime as dt
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tableorm import (
    AccessDenied,
    Count,
    Database,
    Entity,
    Expression,
    Index,
    IndexList,
    Mapped,
    PropertyBag,
    Select,
    TableOrmError,
    connect,
    field,
    upgrade,
)
from tableorm.stores import Capabilities, Operation, RowPage, RowQuery, Verb
from tableorm.testing import assert_requests
from tests.database.between import Awkward, Between
from tests.rows import insert_row, merge_row


class Box(Entity, table="NearBoxes", partition_key="{shelf}", row_key="box_{id:04d}"):
    shelf: Mapped[str]
    id: Mapped[int]
    group: Mapped[str | None]
    weight: Mapped[int] = field(default=0)
    parts: Mapped[int] = field(default=0, maintained=True)

    by_group = Index(row_key="group_{group}_{id:04d}", include="keys")
    by_weight = Index(row_key="weight_{weight:04d}_{id:04d}", include="keys")
    of_group = IndexList(row_key="list_{group}")
    anywhere = Index(partition_key="all_{group}", row_key="any_{shelf}_{id:04d}", consistency="eventual")


class Part(Entity, table="NearBoxes", partition_key="{shelf}", row_key="part_{box:04d}_{number}"):
    shelf: Mapped[str]
    box: Mapped[int]
    number: Mapped[int]

    counted = Count(lambda: Box.parts, shelf="{shelf}", id="{box}")


class Parcel(Entity, table="NearBoxes", partition_key="{shelf}", row_key="parcel_{id:04d}", version=2):
    shelf: Mapped[str]
    id: Mapped[int]
    weight: Mapped[int] = field(default=0)


@upgrade(Parcel, from_version=1)
def grams_to_weight(bag: PropertyBag) -> PropertyBag:
    bag["weight"] = bag.pop("grams")
    return bag


async def fill(db: Database, boxes: Sequence[Box]) -> list[Box]:
    await db.create_tables(Box)
    async with db.bulk() as bulk:
        for box in boxes:
            await bulk.insert(box)
    return list(boxes)


def by_group(db: Database, *conditions: Expression) -> Select[Box]:
    """Select boxes of the shelf a by an index that holds their keys alone."""
    return db.select(Box.by_group).where(Box.shelf == "a", *conditions)


def shelf_of(count: int, shelf: str = "a", *, every: int = 1) -> list[Box]:
    """Boxes of which every so many are of the group x; their weights are in another order than their keys."""
    order = list(range(count))
    random.Random(1).shuffle(order)
    return [
        Box(shelf=shelf, id=number, group="x" if number % every == 0 else None, weight=order[number])
        for number in range(count)
    ]


async def test_entities_that_lie_close_together_share_a_request(db: Database) -> None:
    """All of a partition take one request after their entries, in any order of the index, with maintained fields."""
    boxes = await fill(db, shelf_of(50))
    await db.insert(Part(shelf="a", box=7, number=1))
    query = db.select(Box.by_weight).where(Box.shelf == "a")

    with assert_requests(db, 2):
        found = await query.all()
    assert [box.id for box in found] == [box.id for box in sorted(boxes, key=lambda box: box.weight)]
    assert [box.parts for box in found] == [int(box.id == 7) for box in found]
    assert found[0].etag == (await db.get(found[0].key)).etag


async def test_lookups_share_requests_too(db: Database) -> None:
    """The entities of a list are in the order of their keys, of which one request reads many."""
    await fill(db, shelf_of(50))
    with assert_requests(db, 2):
        found = await db.lookup(Box.of_group, shelf="a", group="x")
    assert [box.id for box in found] == [*range(50)]


@pytest.mark.one_of(5)
@pytest.mark.parametrize("seed", range(16))
async def test_any_set_of_keys_is_read_as_one_by_one(seed: int) -> None:
    """Dense or sparse, in few partitions or many, with conditions and limits: what plain reads find, in their order."""
    some = random.Random(seed)
    share = some.choice([1.0, 0.9, 0.5, 0.2, 0.05])
    boxes = [
        Box(shelf=shelf, id=number, group="x" if some.random() < share else None, weight=some.randrange(500))
        for shelf in "abc"[: some.randint(1, 3)]
        for number in range(some.choice([3, 30, 120]))
    ]
    backend = Between() if some.random() < 0.5 else Awkward(seed, most=40)
    async with Database(backend) as db:
        await fill(db, boxes)
        grouped = [box for box in boxes if box.group == "x"]
        light = some.randrange(500)
        heavy = [box for box in grouped if box.weight >= light]
        queries = {
            "group": by_group(db, Box.group == "x", Box.weight >= light),
            "anywhere": db.select(Box.anywhere).where(Box.group == "x", Box.weight >= light),
            "only": db.select(Box.anywhere).where(Box.group == "x", Box.weight >= light).only(Box.weight),
        }
        for name, query in queries.items():
            due = [(box.shelf, box.id) for box in heavy if box.shelf == "a" or name != "group"]
            entries = [box for box in grouped if box.shelf == "a" or name != "group"]
            with db.observe() as seen:
                assert [(box.shelf, box.id) for box in await query.all()] == due
            after = [each for each in seen.requests if each.operation == "get" or each.top != 1000]
            if type(backend) is Between:
                assert len(after) <= len(entries) + 2
                assert sum(each.rows for each in after) <= 4 * len(entries) + 20
            few = some.randint(1, 20)
            assert [(box.shelf, box.id) for box in await query.limit(few).all()] == due[:few]
            assert await query.count() == len(due)
            paged = [box async for page in query.pages(few) for box in page.items]
            assert [(box.shelf, box.id) for box in paged] == due
        listed = await db.lookup(Box.of_group, shelf="a", group="x")
        assert [box.id for box in listed] == [box.id for box in grouped if box.shelf == "a"]
        deleted = await queries["group"].delete()
        assert deleted.written == sum(box.shelf == "a" for box in heavy)
        assert await queries["group"].all() == []


@pytest.mark.parametrize("every", [5, 40])
async def test_entities_far_apart_cost_no_scan(every: int) -> None:
    """A range that brings too few of them ends after twice as many rows as were wanted; no other is tried."""
    async with connect("local::memory:") as db:
        await fill(db, shelf_of(400, every=every))
        wanted = 400 // every
        with db.observe() as seen:
            found = await by_group(db, Box.group == "x").all()
        entries, first, *others = seen.requests

        assert [box.id for box in found] == [*range(0, 400, every)]
        assert (entries.operation, entries.rows) == ("query", wanted)
        assert (first.operation, first.top, first.rows) == ("query", 2 * wanted, 2 * wanted)
        assert {each.operation for each in others} == {"get"}
        assert len(seen.requests) <= wanted + 2


async def test_a_query_learns_that_ranges_bring_too_little() -> None:
    """In twenty partitions where entities lie far apart two ranges are tried, and no more."""
    async with connect("local::memory:") as db:
        shelves = [f"s{number:02d}" for number in range(20)]
        await fill(db, [box for shelf in shelves for box in shelf_of(60, shelf, every=10)])
        with db.observe() as seen:
            assert len(await db.select(Box.anywhere).where(Box.group == "x").all()) == 120
        assert sum(each.operation == "query" for each in seen.requests) == 1 + 2


async def test_few_entities_are_read_at_the_same_time() -> None:
    """Up to four of a partition are read one by one."""
    async with connect("local::memory:") as db:
        await fill(db, shelf_of(4))
        with assert_requests(db, 5) as seen:
            await by_group(db).all()
        assert [each.operation for each in seen.requests] == ["query", *["get"] * 4]


class Overtaken(Between):
    """Deletes a row, or changes its index entry, behind the back of a query: before the first range of primaries."""

    def __init__(self) -> None:
        super().__init__()
        self.due: list[Operation] = []

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        if query.row.lower is not None and query.row.lower.startswith("box_"):
            for operation in self.due:
                await self.inner.tables.write(table, operation)
            self.due.clear()
        return await super().query(table, query, limit, continuation)


async def test_rows_that_change_between_the_two_reads() -> None:
    """An entity that has gone, or is not in the index any more, is no result; nothing is read twice for it."""
    backend = Overtaken()
    async with Database(backend) as db:
        await fill(db, shelf_of(20))
        await db.insert(Box(shelf="b", id=1, group="y"))
        row = dict(await backend.inner.tables.get("NearBoxes", "b", "box_0001"))
        backend.due = [
            Operation(Verb.DELETE, {"PartitionKey": "a", "RowKey": "box_0003"}, "*"),
            Operation(Verb.REPLACE, row | {"PartitionKey": "a", "RowKey": "box_0005"}, "*"),
        ]
        with assert_requests(db, 2):
            found = await by_group(db, Box.group == "x").all()
        assert [box.id for box in found] == [number for number in range(20) if number not in (3, 5)]


async def test_a_key_that_no_row_can_have_is_in_no_range() -> None:
    """Whoever may write an entry may name any key in it: this one alone is asked for, and refused."""
    backend = Between()
    async with Database(backend) as db:
        await fill(db, shelf_of(20))
        forged = {"PartitionKey": "a", "RowKey": "group_x_0004", "_of": "box_\x01"}
        await merge_row(backend.inner.tables, "NearBoxes", forged)
        with db.observe() as seen, pytest.raises(TableOrmError, match="RowKey"):
            await by_group(db).all()
        assert [(each.operation, each.rows) for each in seen.requests] == [("query", 20), ("query", 20), ("get", 0)]


class Unordered(Between):
    """Says that rows come in no order."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(ordered=False)


async def test_a_store_without_an_order_is_asked_row_by_row() -> None:
    """A range of it that ends early says nothing of the rows that are left."""
    async with Database(Unordered()) as db:
        await fill(db, shelf_of(20))
        with db.observe() as seen:
            assert len(await by_group(db).all()) == 20
        assert [each.operation for each in seen.requests] == ["query", *["get"] * 20]


async def test_rows_of_an_old_version_share_requests() -> None:
    """Rows that a projection has to read in full are read by ranges too."""
    backend = Between()
    async with Database(backend) as db:
        await db.create_tables(Parcel)
        for number in range(40):
            row = {"PartitionKey": "a", "RowKey": f"parcel_{number:04d}", "EntityType": "Parcel", "grams": number}
            await insert_row(backend.inner.tables, "NearBoxes", row)
        with assert_requests(db, 2):
            found = await db.select(Parcel).where(Parcel.shelf == "a").only(Parcel.weight).all()
        assert [parcel.weight for parcel in found] == [*range(40)]


class Seat(Entity, table="Seats", partition_key="{hall}", row_key="seat_{tenant}_{id:03d}"):
    hall: Mapped[str]
    tenant: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="n")

    by_name = Index(row_key="name_{tenant}_{name}_{id:03d}", include="keys", building=False)


async def test_a_scope_reads_ranges_of_its_own_partitions_alone() -> None:
    """In a partition that scopes share, a range could hold rows of others: there each row is read by itself."""
    async with connect("local::memory:") as db:
        await fill(db, shelf_of(10))
        await db.create_tables(Seat)
        for number in range(10):
            await db.insert(Seat(hall="h", tenant="acme", id=number))
        own, shared = db.scope(Box, shelf="a"), db.scope(tenant="acme")
        with assert_requests(db, 2):
            assert len(await own.select(Box.by_group).all()) == 10
        with db.observe() as seen:
            assert len(await shared.select(Seat.by_name).where(Seat.hall == "h").all()) == 10
        assert [each.operation for each in seen.requests] == ["query", *["get"] * 10]


async def test_what_a_token_does_not_open_is_refused_and_not_left_out(tmp_path: Path) -> None:
    """A range leaves out the rows that the token does not open; each of these is then asked for, and refused."""
    url = f"local:{tmp_path}/a.tables"
    async with connect(url) as db:
        await db.create_tables(Seat)
        for number in range(10):
            await db.insert(Seat(hall="h", tenant="acme", id=number))
        start = {"PartitionKey": "h", "RowKey": "name_"}
        some, whole = [
            await db.grant("Seats", "r", dt.timedelta(hours=1), start=start, end={"PartitionKey": "h", "RowKey": last})
            for last in ("seat_acme_005", "seat_z")
        ]
    async with connect(url, sas=whole) as theirs:
        with assert_requests(theirs, 2):
            assert len(await theirs.select(Seat.by_name).where(Seat.hall == "h").all()) == 10
    async with connect(url, sas=some) as theirs:
        with pytest.raises(AccessDenied, match="seat_acme_006"):
            await theirs.select(Seat.by_name).where(Seat.hall == "h").concurrency(1).all()
