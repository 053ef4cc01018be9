"""
Queries at their edges: keys that only look like a model's, rows that only reading tells, and arguments.
"""

import asyncio
import datetime as dt
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tableorm import (
    Access,
    Database,
    EncodeError,
    Entity,
    Index,
    Mapped,
    ModelError,
    NotLoaded,
    PartitionKey,
    PropertyBag,
    RowKey,
    ScanRefused,
    Timestamp,
    connect,
    field,
    upgrade,
)
from tableorm.queries.query import start_query


class Employee(Entity, table="Edges", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]


class Letter(Entity, table="Edges", partition_key="{department}", row_key="{name}"):
    department: Mapped[str]
    name: Mapped[str]


class Two(Entity, table="Edges", partition_key="{g}~{s}", row_key="{s}-{n:02d}"):
    g: Mapped[str]
    s: Mapped[str]
    n: Mapped[int]


def letter_or_not(bag: PropertyBag) -> type[Entity]:
    return Told if bag.get("What") == "told" else Letter


class Told(Entity, table="Edges", partition_key="{group}", row_key="{number:05d}", discriminator=letter_or_not):
    group: Mapped[str]
    number: Mapped[int]
    what: Mapped[str] = field(default="told", name="What")


class Old(Entity, table="Edges", partition_key="{group}", row_key="old_{number:03d}", version=2):
    group: Mapped[str]
    number: Mapped[int]
    text: Mapped[str] = field(default="")
    more: Mapped[str] = field(default="")


@upgrade(Old, from_version=1)
def to_two(bag: PropertyBag) -> PropertyBag:
    bag["more"] = "upgraded"
    return bag


@pytest.fixture
async def edges(db: Database) -> Database:
    await db.create_tables(Employee)
    return db


async def test_a_key_that_only_looks_like_a_models_satisfies_nothing(edges: Database) -> None:
    """A condition on a model's key field is unknown of rows of other kinds whose keys are not its; none is deleted."""
    await edges.insert(PropertyBag("Edges", "Sales", "empid_draft", {"x": 1}))
    await edges.insert(Letter(department="Sales", name="empid_zz"))
    await edges.insert(Employee(department="Sales", id=7))
    bags = edges.select(Employee, PropertyBag).where(PartitionKey == "Sales", Employee.id > 5)

    assert await bags.all() == [await edges.get(Employee, department="Sales", id=7)]
    for condition in (Employee.id > 5, Employee.id.is_none(), ~Employee.id.in_([7])):
        with pytest.raises(EncodeError, match="the query asks for no Employee"):
            await edges.select(Letter).where(Letter.department == "Sales", condition).delete()
    assert (await bags.delete()).written == 1
    assert await edges.select_raw("Edges").where("PartitionKey eq 'Sales'").count() == 2


async def test_a_field_of_another_model_is_read_from_one_of_its_keys(edges: Database) -> None:
    """Where both of its keys hold the field and disagree, plan and evaluation mean the same one."""
    await edges.insert(PropertyBag("Edges", "p~a", "zz_05", {"x": 1}))
    query = edges.select(Two, PropertyBag).where(PartitionKey == "p~a")

    found = [
        len(await query.where(condition).all())
        for condition in (Two.s == "a", Two.s != "a", (Two.s == "a") | (Two.s != "a"), Two.s.is_none())
    ]
    assert found[0] + found[1] == found[2] and found[2] + found[3] == 1


class AtPlace(Entity, table="Edges", partition_key="{place}", abstract=True):
    place: Mapped[str]
    hour: Mapped[int]


class Train(AtPlace, row_key="{hour:02d}_{number:03d}"):
    number: Mapped[int]


class Sky(AtPlace, row_key="{hour:02d}"):
    clear: Mapped[bool] = field(default=True)


async def test_a_field_of_a_common_base_is_the_same_field(edges: Database) -> None:
    """A range that is said of one kind holds for the other, which has the field from the base of both."""
    for hour in range(5):
        await edges.insert(Sky(place="here", hour=hour))
        await edges.insert(Train(place="here", hour=hour, number=1))
    query = edges.select(Train, Sky).where(Train.place == "here", Train.hour >= 1, Train.hour < 3)

    found = [(type(e).__name__, e.hour) for e in await query.all()]
    assert found == [("Sky", 1), ("Train", 1), ("Sky", 2), ("Train", 2)]


async def test_a_field_of_a_common_base_is_the_same_field_wherever_it_is_evaluated(edges: Database) -> None:
    """Whether keys answer the condition, as `>=` alone, or each row is looked at, as under `~` and beside others."""
    await edges.insert(Sky(place="here", hour=1))
    await edges.insert(Train(place="here", hour=2, number=1))
    query = edges.select(AtPlace).where(AtPlace.place == "here")

    for condition, wanted in (
        (Train.hour >= 1, [1, 2]),
        (~((Train.hour < 1) & (Sky.clear == True)), [1, 2]),  # noqa: E712 - a condition
        ((Train.hour >= 2) | (Sky.clear == True), [1, 2]),  # noqa: E712
        (Train.hour.is_none(), []),
        (Train.hour.in_([1]), [1]),
    ):
        assert [each.hour for each in await query.where(condition).all()] == wanted, str(condition)


async def test_a_row_of_any_kind_has_a_field_if_any_class_of_the_base_says_so(edges: Database) -> None:
    """What compares a field of an abstract base, in rows that come as bags, and what asks whether it is there agree."""
    await edges.insert(Sky(place="here", hour=2))
    query = edges.select(Train, PropertyBag).where(PartitionKey == "here")

    assert await query.where(AtPlace.hour == 2).count() == 1
    assert await query.where(AtPlace.hour.is_none()).count() == 0
    assert await query.where(~AtPlace.hour.is_none()).count() == 1


async def test_a_key_that_no_row_can_have_finds_nothing(edges: Database) -> None:
    """Nothing is sent for it, alone and among others; beside `|`, those are found."""
    await edges.insert(Letter(department="Sales", name="a"))
    query = edges.select(Letter)
    sales = query.where(Letter.department == "Sales")
    long = "x" * 600

    for none in (
        sales.where(RowKey == "a/b"),
        sales.where(Letter.name == long),
        sales.where(Letter.name.in_([long, long + "x"])),
        query.where(Letter.name == "a", Letter.department == long),
        query.where(PartitionKey == "Sa#les", RowKey == "a"),
        edges.select_raw("Edges").where("PartitionKey eq {} and RowKey eq {}", "Sales", "a?"),
    ):
        assert (await none.all(), await none.count(), none.explain().access) == ([], 0, Access.NOTHING)
    for one in (sales.where((RowKey == "a/b") | (RowKey == "a")), sales.where(Letter.name.in_([long, "a"]))):
        assert [each.name for each in await one.all()] == ["a"]
        assert one.explain().max_transactions == 1


@pytest.mark.parametrize("char", [" ", "%", "'", "日", "\U0001f600"])
async def test_a_long_text_is_no_url_that_is_too_long(edges: Database, char: str) -> None:
    """What has to be encoded counts as long as it is then: the condition is evaluated here instead."""
    text = char * (5_900 if char.isascii() else 600)
    await edges.insert(Old(group="g", number=1, text=text))
    await edges.insert(Old(group="g", number=2, text="else"))
    old = edges.select(Old).where(Old.group == "g")
    tails = [text[:100] + str(number) for number in range(40)]

    assert [each.number for each in await old.where(Old.text == text).all()] == [1]
    assert [each.number for each in await old.where(Old.text.in_([*tails, text])).all()] == [1]
    assert [each.number for each in await old.where(Old.text != text).all()] == [2]


class Measure(Entity, table="Edges", partition_key="{place}", row_key="m_{n:03d}"):
    place: Mapped[str]
    n: Mapped[int]
    value: Mapped[float] = field(default=math.nan)
    note: Mapped[str | None] = field(default=None)


async def test_nan_is_equal_to_nothing_wherever_it_is_looked_for(edges: Database) -> None:
    """The very object neither, which a set of Python would find."""
    await edges.insert(Measure(place="here", n=1, note="x"))
    query = edges.select(Measure).where(Measure.place == "here")
    here = Measure.value.in_([math.nan]) | Measure.note.is_none()

    assert query.where(here).explain().client_side
    assert await query.where(here).count() == 0


class Visit(Entity, table="Edges", partition_key="{at:%Y%m%d}", row_key="visit_{n:03d}"):
    at: Mapped[dt.datetime]
    n: Mapped[int]


class Call(Entity, table="Edges", partition_key="{at:%Y%m%d}", row_key="call_{n:03d}"):
    at: Mapped[dt.datetime]
    n: Mapped[int]


class Memo(Entity, table="Edges", partition_key="{place}", row_key="memo_{n:03d}"):
    place: Mapped[str]
    n: Mapped[int]
    at: Mapped[dt.datetime]


async def test_a_property_of_another_model_can_be_under_any_key(edges: Database) -> None:
    """A key that holds but a part of a field says nothing of rows of kinds that make theirs otherwise."""
    noon = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
    for entity in (Visit(at=noon, n=1), Call(at=noon, n=2), Memo(place="here", at=noon, n=3)):
        await edges.insert(entity)

    with pytest.raises(ScanRefused):
        edges.select(Visit, Memo).where(Visit.at == noon).explain()
    found = await edges.select(Visit, Memo).where(Visit.at == noon).allow_scan().all()
    assert [each.n for each in found] == [1, 3]
    alike = edges.select(Visit, Call).where(Visit.at == noon)
    assert [each.n for each in await alike.all()] == [2, 1]
    assert alike.explain().access is Access.PARTITION_SCAN


async def test_rows_that_only_reading_tells_are_not_read_one_by_one(edges: Database) -> None:
    """The first request of a limit is small; if it brings none of the kind, the next one is a whole page."""
    async with edges.bulk() as bulk:
        for number in range(1200):
            await bulk.insert(PropertyBag("Edges", "g", f"{number:05d}", {"What": "else"}))
    await edges.insert(Told(group="g", number=5000))
    before = edges.stats.snapshot()
    first = await edges.select(Told).where(Told.group == "g").first()

    assert first is not None and first.number == 5000
    assert edges.stats.requests - before.requests <= 4


async def test_pages_of_absent_points_are_few(edges: Database) -> None:
    """Points do not count towards the requests after which a page is given as it is."""
    await edges.insert(Employee(department="Sales", id=499))
    query = edges.select(Employee).where(Employee.department == "Sales", Employee.id.in_(range(500)))
    pages = [page async for page in query.pages(100)]

    assert [len(page.items) for page in pages] == [1]


async def test_old_rows_are_read_again_together(edges: Database) -> None:
    """Where only some fields are asked for, an older version is read in full; the explanation counts that."""
    for number in range(40):
        row = {"EntityType": "Old", "text": str(number)}
        await edges.insert(PropertyBag("Edges", "g", f"old_{number:03d}", row))
    query = edges.select(Old).where(Old.group == "g").only(Old.text)

    assert [(e.text, e.more) for e in await query.all()] == [(str(n), "upgraded") for n in range(40)]
    point = edges.select(Old).where(Old.group == "g", Old.number == 1).only(Old.text).explain()
    assert (point.min_transactions, point.max_transactions) == (1, 2)


CHILD = """
import sys
from tests.queries.test_query_edges import RowKey, Employee
from tableorm import connect
import asyncio
async def main():
    async with connect("local:" + sys.argv[1]) as db:
        query = db.select(Employee).where(Employee.department == "Sales", ~RowKey.in_({"a", "b", "c", "empid_000001"}))
        print((await query.page(1, sys.argv[2] or None)).cursor)
asyncio.run(main())
"""


async def test_a_cursor_of_a_set_is_good_in_another_process(tmp_path: Any) -> None:
    """A set has another order there."""
    path = f"{tmp_path}/edges.tables"
    async with connect(f"local:{path}") as db:
        await db.create_tables(Employee)
        for number in range(6):
            await db.insert(Employee(department="Sales", id=number))
    cursor = ""
    for seed in ("1", "2", "3"):
        command = [sys.executable, "-c", CHILD, path, cursor]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."}
        )
        assert done.returncode == 0, done.stderr
        cursor = done.stdout.strip()

    assert cursor not in ("", "None")


ID: Any = Employee.id  # without its type, so that what the checkers refuse can be written
TIME: Any = Timestamp
WRONG: list[tuple[Callable[[Any], object], str]] = [
    (lambda db: ID.in_(5), r"Employee\.id\.in_\(5\)"),
    (lambda db: ID.in_([[1]]), "not a value"),
    (lambda db: RowKey.in_("001"), r"RowKey\.in_\('001'\)"),
    (lambda db: TIME.startswith("2024"), "for text"),
    (lambda db: db.select(), "one to four"),
    (lambda db: db.select(1), "one to four"),
    (lambda db: db.select(Employee, int), "'int'> is not a model"),
    (lambda db: db.select(Entity), "Entity'> is not a model"),
    (lambda db: db.union(1), r"union\(1\)"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
async def test_wrong_arguments_are_refused(edges: Database, make: Callable[[Any], object], message: str) -> None:
    """At once, with what to give instead."""
    with pytest.raises(ModelError, match=message):
        make(edges)


async def test_more_partitions_than_requests_is_said(edges: Database) -> None:
    """The message counts them, and names no condition that is there already."""
    query = edges.select(Employee).where(Employee.department.in_([str(n) for n in range(1_001)]))
    with pytest.raises(ScanRefused, match="1,001 alternatives"):
        query.explain()
    with pytest.raises(ModelError, match=r"concurrency=-5"):
        await edges.get_many([], concurrency=-5)
    assert await edges.select(Employee).where(RowKey.is_none()).allow_scan().all() == []


async def test_a_stream_is_used_once(edges: Database) -> None:
    """After its block it is closed, and says so."""
    stream = edges.select(Employee).where(Employee.department == "x").stream()
    async with stream:
        assert [each async for each in stream] == []

    with pytest.raises(ModelError, match="not open"):
        stream.__aiter__()
    with pytest.raises(ModelError, match="used already"):
        await stream.__aenter__()


async def test_a_query_is_planned_once(edges: Database) -> None:
    """Page after page; a pickled copy plans anew."""
    query = edges.select(Employee).where(Employee.department.in_(["a", "b"]))

    assert (await start_query(query)).plan is (await start_query(query)).plan
    copy = pickle.loads(pickle.dumps(query)).bind(edges)
    assert str(copy.explain()) == str(query.explain())


async def test_parts_of_a_query_are_disjoint_where_a_range_begins_behind_a_partition(db: Database) -> None:
    """A range of the partitions behind one begins at no key of its own; nor do the parts of such a part."""
    await db.create_tables(Letter)
    for group in "abc":
        for number in range(4):
            await db.insert(Letter(department=group, name=f"{number}"))
    query = db.select_raw("Edges").where("PartitionKey lt 'b' or PartitionKey eq 'b' or PartitionKey gt 'b'")
    wanted = [(group, f"{number}") for group in "abc" for number in range(4)]

    for parts in range(1, 9):
        found = [bag for part in query.allow_scan().split(parts) for bag in await part.all()]
        assert [(bag.partition_key, bag.row_key) for bag in found] == wanted
        again = [bag for part in query.allow_scan().split(parts) for each in part.split(3) for bag in await each.all()]
        assert [(bag.partition_key, bag.row_key) for bag in again] == wanted


class Club(Entity, table="Clubs", partition_key="{country}", row_key="club_{id:03d}"):
    country: Mapped[str]
    id: Mapped[int]
    city: Mapped[str]
    members: Mapped[int] = field(default=0, maintained=True)
    by_city = Index(row_key="city_{city}_{id:03d}", include="all")
    by_name = Index(row_key="id_{city}_{id:03d}", include="keys")


async def test_what_an_index_cannot_hold_is_explained() -> None:
    """Maintained fields are not loaded by its entries; `explain` names them, and not where the entities are read."""
    async with connect("local::memory:") as db:
        await db.create_tables(Club)
        await db.insert(Club(country="FR", id=1, city="Lyon"))
        query = db.select(Club.by_city).where(Club.country == "FR")
        found = await query.one()
        with pytest.raises(NotLoaded):
            _ = found.members
        explained = query.explain()
        assert explained.not_loaded == ("members",)
        assert "not loaded: members, which the index does not hold; refresh(entity) reads all" in str(explained)
        await db.refresh(found)
        assert found.members == 0
        for other in (db.select(Club.by_name), db.select(Club)):
            assert other.where(Club.country == "FR").explain().not_loaded == ()
