"""
Wide entities: more properties than a row holds, in several rows, read and written as one entity.

`tests/shapes/oracle.py` compares all verbs with plain Python; here is what is sent, refused, and never seen.
"""

import asyncio
import datetime as dt
import types
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, cast

import pytest

from tableorm import (
    Blob,
    BlobArchive,
    Conflict,
    Damage,
    Database,
    DecodeError,
    Entity,
    Index,
    LimitExceeded,
    Mapped,
    ModelError,
    PropertyBag,
    RetryPolicy,
    Series,
    TransactionFailed,
    field,
    series,
    upgrade,
)
from tableorm.connection.connection import connection_of
from tableorm.stores import RowPage, RowQuery, StoreLayer, StoreRequest
from tests.databases import database_fixture, memory_database
from tests.torture import Rounds


class Year(Entity, table="Wide", partition_key="p", row_key="year_{id:04d}", wide=True):
    id: Mapped[int]
    name: Mapped[str] = field(default="Ken")
    sent: Series[int] = series(1000, name="D{i:03d}", default=0)

    by_name = Index(row_key="name_{name}_{id:04d}", include="keys")


class Text(Entity, table="Wide", partition_key="p", row_key="text_{id}_", wide=2):
    id: Mapped[int]
    one: Mapped[str | None] = field(default=None)
    two: Mapped[str | None] = field(default=None)
    three: Mapped[str | None] = field(default=None)
    lines: Mapped[list[str]] = field(factory=list)
    sent: Series[int | None] = series(4)


class Album(Entity, table="Albums", partition_key="{place}", row_key="a_{id:04d}", wide=3):
    place: Mapped[str] = field(default="p")
    id: Mapped[int]
    title: Mapped[str] = field(default="new")
    text: Mapped[str] = field(default="")
    cover: Mapped[Blob | None] = field(default=None)
    sent: Series[int] = series(4, default=0)

    by_title = Index(row_key="t_{title}_{id:04d}", include="keys")


class TextV1(Entity, table="Wide", partition_key="p", row_key="old_{id:04d}", kind="Old", wide=1):
    id: Mapped[int]
    first: Mapped[str] = field(default="f")
    second: Mapped[str] = field(default="s")
    third: Mapped[str] = field(default="t")


class TextV2(Entity, table="Wide", partition_key="p", row_key="old_{id:04d}", kind="Old", version=2, wide=1):
    id: Mapped[int]
    whole: Mapped[str] = field(default="")
    more: Mapped[str | None] = field(default=None)


@upgrade(TextV2, from_version=1)
def _(bag: PropertyBag) -> PropertyBag:
    assert not {name for name in dict(bag) if name.startswith("_p")}
    bag["whole"] = bag.pop("first") + bag.pop("second") + bag.pop("third")
    return bag


db = database_fixture(Year, retry=RetryPolicy(base=0))


async def stored(db: Database) -> list[str]:
    """Return the RowKeys of the table."""
    return [bag.row_key async for bag in db.select_raw("Wide").allow_scan()]


async def test_an_entity_of_a_thousand_properties_is_read_by_one_request(db: Database) -> None:
    """By get, a query and only; whether it exists says its first row alone, a point read."""
    year = Year(id=1, sent=list(range(1000)))
    await db.insert(year)
    assert await stored(db) == ["name_Ken_0001", "year_0001", *(f"year_0001~0{part}" for part in range(1, 6))]
    years = db.select(Year)
    with db.observe() as seen:
        assert await db.get(Year, id=1) == year
        assert await db.exists(Year, id=1)
        assert await years.all() == [year]
        assert await years.where(Year.sent[700] == 700, Year.sent[0] == 0).all() == [year]
        assert await years.where(Year.sent[700] == 1).all() == []
        assert [each.sent[5] for each in await years.only(Year.sent[5]).all()] == [5]
        assert await years.count() == 1
    assert seen.cost == 7
    assert [each.operation for each in seen.requests] == ["query", "get", *["query"] * 5]
    assert dict((await db.get(Year, id=1)).extra) == {}


async def test_what_was_changed_is_sent_with_the_first_row(db: Database) -> None:
    """A slot sends a merge of its part and one of the first row, under the ETag."""
    year = Year(id=1, sent=list(range(1000)))
    await db.insert(year)
    year.sent[700] = 7
    explained = db.explain_write("save", year)
    assert [(step.method, step.path.rpartition("'")[0][-7:], step.if_match) for step in explained.steps] == [
        ("PATCH", "ar_0001", year.etag),
        ("PATCH", "0001~03", "*"),
    ]
    assert (explained.cost, explained.bytes_sent) == (1, 144)
    await db.save(year)
    assert await db.get(Year, id=1) == year


@pytest.mark.parametrize(
    ("verb", "arguments", "method"),
    [
        ("merge", {"only": [Year.sent[700]], "if_match": "*"}, "PUT"),
        ("upsert", {}, "PUT"),
        ("replace", {"if_match": "*"}, "PUT"),
        ("delete", {"if_match": "*"}, "DELETE"),
    ],
)
async def test_what_is_sent_for_what_was_not_read(db: Database, verb: Any, arguments: Any, method: str) -> None:
    """All rows of the entity are read, and those that change are written, in as many requests as are explained."""
    await db.insert(Year(id=1, sent=list(range(1000))))
    year = Year(id=1, sent=[7] * 1000)
    explained = db.explain_write(verb, year, **arguments)
    looked, guard, parts = explained.steps
    with db.observe(show_values=True) as seen:
        await getattr(db, verb)(year, **arguments)
    assert seen.requests[0].filter == looked.path.partition("$filter=")[2]
    assert [guard.method, parts.method, parts.path] == [method, method, "/Wide(...)"]
    assert guard.if_match == "the ETag that was read"
    assert explained.cost == seen.cost == 2


async def test_parts_of_an_older_version_go(db: Database) -> None:
    """A save and a delete by a query leave none that an older version with other fields has stored."""
    await db.insert(TextV1(id=1))
    (old,) = await db.select(TextV2).all()
    assert old == TextV2(id=1, whole="fst")
    await db.save(old)
    assert await stored(db) == ["old_0001"]
    old.more = "m"
    await db.save(old)
    await db.insert(TextV1(id=2))
    assert await stored(db) == ["old_0001", "old_0001~01", "old_0002", "old_0002~01", "old_0002~02"]
    report = await db.select(TextV2).delete()
    assert (report.written, report.failures) == (2, 0)
    assert await stored(db) == []


async def test_an_archive_holds_whole_entities(db: Database) -> None:
    """Its blob is read, and inserted again, without where the properties were."""
    archive = BlobArchive("old-years", Text)
    text = Text(id=1)
    await db.insert(text)
    await db.archive(await db.get(Text, id=1), to=archive)
    async with db.worker(Text, archive) as worker:
        await worker.drain()
    (blob,) = (await db.blobs.list_blobs("old-years")).blobs
    loaded = archive.load(await db.blobs.read("old-years", blob.name))

    assert await stored(db) == []
    assert loaded == text
    await db.insert(loaded)
    assert await db.get(Text, id=1) == text


async def test_pages_and_limits_count_entities(db: Database) -> None:
    """Whatever rows are between them, and wherever a page of the store ends."""
    async with db.bulk() as bulk:
        for number in range(300):
            year = Year(id=number)
            for at in range(0, 1000, 199):
                year.sent[at] = number
            await bulk.insert(year)
            await bulk.insert(PropertyBag("Wide", "p", f"year_{number:04d}_", {"x": 1}))
    years = db.select(Year)
    assert [each.sent[995] for each in await years.limit(7).all()] == [*range(7)]
    assert [each.id for each in await years.all()] == [*range(300)]
    assert [each.id for each in await years.where(Year.id > 100, Year.id <= 120).all()] == [*range(101, 121)]
    cursor, found = None, list[int]()
    while cursor is not None or not found:
        page = await years.page(90, cursor)
        assert len(page.items) <= 90
        found += [each.id for each in page.items]
        cursor = page.cursor
    assert found == [*range(300)]
    assert await years.count() == 300
    both = db.select(Year, PropertyBag).where(Year.id < 2)
    assert [type(each).__name__ for each in await both.allow_scan().all()].count("Year") == 2
    assert not (await db.audit(Year)).findings


async def test_what_is_too_large_is_refused_before_it_is_sent(db: Database) -> None:
    """A part by its size, with the remedy; an entity by its bytes, a transaction by its rows, with numbers."""
    with db.observe() as seen:
        with pytest.raises(LimitExceeded, match="such as wide=9") as part:
            await db.insert(Big(id=1, **{f"f{at}": "x" * 32_000 for at in range(36)}))
        assert part.value.size is not None
        with pytest.raises(LimitExceeded, match=r"with all of its rows: .*4194304 are allowed"):
            await db.insert(Huge(id=1, **{f"f{at}": "é" * 32_000 for at in range(72)}))
        with pytest.raises(TransactionFailed, match="119 operations, 100 are allowed"):
            async with db.transaction() as tx:
                for number in range(17):
                    tx.insert(Year(id=number, sent=[1] * 1000, name=f"n{number}"))
    assert seen.cost == 0


@pytest.mark.parametrize("verb", ["insert", "save", "replace", "upsert"])
async def test_a_bulk_sends_what_a_large_entity_gets_after_it_was_measured(db: Database, verb: str) -> None:
    """The addresses of its blobs, and the manifest, which names them and its index entries."""
    await db.create_tables(Album)
    albums = [Album(id=number) for number in range(3)]
    if verb in ("save", "replace"):
        for album in albums:
            await db.insert(album)
    async with db.bulk() as bulk:
        for album in albums:
            album.title, album.text, album.cover = f"t{album.id}", "x" * 20_000, Blob(b"cover")
            await getattr(bulk, verb)(album)

    found = await db.select(Album).where(Album.place == "p").all()
    assert [await each.cover.read() for each in found if each.cover is not None] == [b"cover"] * 3
    titles = [await db.select(Album.by_title).where(Album.place == "p", Album.title == f"t{n}").all() for n in range(3)]
    assert [[each.id for each in some] for some in titles] == [[0], [1], [2]]
    assert (await db.audit(Album)).clean


class Poem(Entity, table="Poems", partition_key="p", row_key="poem_{id:04d}", wide=2):
    id: Mapped[int]
    title: Mapped[str] = field(default="")
    stars: Mapped[int] = field(default=0)
    text: Mapped[str | None] = field(default=None, chunked=True)


async def test_a_row_that_an_entity_shows_nothing_of_is_not_forgotten(db: Database) -> None:
    """A merge leaves empty chunks in it; another entity saves, replaces, and the row goes, so that it can be new."""
    await db.create_tables(Poem)
    poem = Poem(id=1, text="a" * 40_000)
    await db.insert(poem)
    poem.text = "short"
    await db.merge(poem)
    other = await db.get(Poem, id=1)
    other.title = "new"
    await db.save(other)
    await db.replace(other)

    assert (await db.audit(Poem)).clean
    other.text = "b" * 400_000
    await db.save(other)
    assert await db.get(Poem, id=1) == other


def declared(name: str, count: int, more: dict[str, tuple[Any, Any]] | None = None, **keywords: Any) -> Any:
    """Declare a model with so many fields of text, and some of other types, each with its declaration."""
    body: dict[str, Any] = {f"f{at}": field(default="") for at in range(count)}
    annotations = {"id": Mapped[int], **dict.fromkeys(body, Mapped[str])}
    for each, (kind, declaration) in (more or {}).items():
        body[each] = declaration
        if kind is not None:
            annotations[each] = cast("Any", Mapped)[kind]
    body |= {"__annotations__": annotations, "__module__": __name__}
    keys = {"table": "Wide", "partition_key": "p", "row_key": f"{name.lower()}_{{id:04d}}", **keywords}
    return types.new_class(name, (Entity,), keys, lambda space: space.update(body))


Big, Huge = declared("Big", 36, wide=18), declared("Huge", 72, wide=8)


@pytest.mark.parametrize(
    ("keywords", "count", "message"),
    [
        ({"wide": 0.5}, 4, "wide=0.5 is rejected: give True, or the number"),
        ({"wide": -1}, 4, "a number from 1 to 246"),
        ({"wide": True}, 4, "its 4 properties fit into one row"),
        ({"wide": 10}, 2000, "2000 properties, which are 199 parts of 10 beside.*declare wide=20"),
        ({"wide": 2, "kind": None}, 4, "a kind tells parts from entities"),
        ({"wide": 2, "discriminator": "row_key"}, 4, "a kind tells parts from entities"),
        ({"wide": 2, "row_key": "x_{id}"}, 4, r"one RowKey can be the beginning of another.*\{id\}_"),
        ({"wide": 2, "row_key": "{f0}_"}, 4, "one RowKey can be the beginning of another"),
    ],
)
def test_a_model_that_cannot_be_wide_is_refused(keywords: dict[str, Any], count: int, message: str) -> None:
    """When its class is made, with the reason and a remedy."""
    with pytest.raises(ModelError, match=message):
        declared("Odd", count, **keywords)


@pytest.mark.parametrize(
    ("name", "kind", "declaration", "keywords", "message"),
    [
        ("count", int, field(default=0, maintained=True), {}, r"maintained=True\) of count: others write it"),
        ("at", dt.datetime, field(factory=dt.datetime.now, expiry=True), {}, "of at: the store finds expired rows"),
        ("by_x", None, Index(row_key="x_{f1}_{id:04d}"), {}, "by_x: its entries are rows of one part; .*'keys'"),
        (
            *("by_y", None, Index(partition_key="y_{f1}", row_key="{id:04d}", consistency="eventual"), {}),
            "by_y: it has rows in other partitions",
        ),
        ("at", dt.datetime, field(), {"table": "Wide{at:%Y%m}", "row_key": "{at:ticks}"}, "table for each period"),
    ],
)
def test_what_needs_one_row_is_refused(
    name: str, kind: Any, declaration: Any, keywords: dict[str, Any], message: str
) -> None:
    """A field that others keep, one by which entities expire, an index that holds fields, other partitions, periods."""
    with pytest.raises(ModelError, match=message):
        declared("Unfit", 4, {name: (kind, declaration)}, wide=2, **keywords)


class Pieces(StoreLayer):
    """A store whose pages have a row or two, in any order within a partition, while others write in between."""

    def __init__(self, below: Any, random: Random) -> None:
        super().__init__(below)
        self.random = random

    async def send(self, request: StoreRequest) -> Any:
        if request.method != "query":
            return await super().send(request)
        query, _, continuation = request.arguments
        rows = (await self.below.query(request.table, RowQuery(query.partition, query.row), 1000)).rows
        wanted = [row["RowKey"] for row in (await self.below.query(request.table, query, 1000)).rows]
        keys = [row["RowKey"] for row in rows if row["RowKey"] in wanted]
        left = self.random.sample(keys, len(keys)) if continuation is None else continuation.split()
        now, then = left[:1], left[1:]
        found = (await self.below.query(request.table, query, 1000)).rows
        await asyncio.sleep(0)
        return RowPage([row for row in found if row["RowKey"] in now], " ".join(then) or None)


async def test_no_reader_sees_rows_of_different_writes(rounds: Rounds) -> None:
    """While writers replace all slots, change some, delete and insert; and pages come row by row, in any order."""
    for seed in range(rounds(6, 300)):
        random = Random(seed)
        async with memory_database(Text, retry=RetryPolicy(base=0)) as db:
            connection_of(db).wrap_store(partial(Pieces, random=random))
            seen: set[tuple[Any, ...]] = {()}
            await db.insert(first := Text(id=1, one="0", three="0"))
            seen.add(content(first))
            writers = [asyncio.create_task(write(db, seen, Random(seed * 10 + n))) for n in range(2)]
            query = db.select(Text)
            for _ in range(20):
                found = await db.get_or_none(Text, id=1) if random.random() < 0.5 else await query.first()
                assert content(found) in seen, seed
            await asyncio.gather(*writers)


def content(text: Text | None) -> tuple[Any, ...]:
    return () if text is None else (text.one, text.two, text.three, *text.lines, *text.sent)


async def write(db: Database, seen: set[tuple[Any, ...]], random: Random) -> None:
    """Write at random. What may be read is noted before it is sent."""
    for number in range(15):
        value = f"{random.random()}"
        text = await db.get_or_none(Text, id=1)
        new = Text(id=1, one=value, two=random.choice([None, value]), three=value, lines=[value])
        verb: Callable[..., Any] = db.save
        if text is None:
            text, verb = new, db.insert
        elif random.random() < 0.2:
            verb = db.delete
        elif random.random() < 0.4:
            text.one, text.two, text.three, text.lines = new.one, new.two, new.three, new.lines
        else:
            text.sent[random.randrange(4)] = random.choice([None, number])
        seen.add(content(text))
        try:
            await verb(text)
        except (Conflict, LookupError):
            await asyncio.sleep(0)


class NarrowText(Entity, table="Wide", partition_key="p", row_key="text_{id}_", kind="Text"):
    id: Mapped[int]
    one: Mapped[str | None] = field(default=None)
    three: Mapped[str | None] = field(default=None)


READS: dict[str, Callable[[Database], Any]] = {
    "get": lambda db: db.get(NarrowText, id=1),
    "get_or_none": lambda db: db.get_or_none(NarrowText, id=1),
    "get_many": lambda db: db.get_many([NarrowText.key(id=1)]),
    "select": lambda db: db.select(NarrowText).where(NarrowText.id >= 0).all(),
    "only": lambda db: db.select(NarrowText).where(NarrowText.id >= 0).only(NarrowText.three).all(),
    "modify": lambda db: db.modify(NarrowText.key(id=1), lambda text: setattr(text, "one", "x")),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("grown", [False, True], ids=["inserted", "grown"])
async def test_a_model_that_is_not_wide_refuses_the_first_row(
    db: Database, read: Callable[[Database], Any], grown: bool
) -> None:
    """It would take what the parts hold for absent; also if the parts came by a merge of a row that had none."""
    if grown:
        await db.insert(NarrowText(id=1, one="1"))
        text = await db.get(Text, id=1)
        text.three = "3"
        await db.save(text)
    else:
        await db.insert(Text(id=1, one="1", three="3"))
    with pytest.raises(DecodeError, match=r"first of several rows.*class NarrowText\(\.\.\., wide=True\)"):
        await read(db)
    assert (await db.get(Text, id=1)).three == "3"


async def test_an_audit_finds_rows_that_belong_to_no_entity(db: Database) -> None:
    """Another program has deleted a first row, or a part: what is left is found, and deleted where nothing needs it."""
    for number in (1, 2, 3):
        await db.insert(Text(id=number, one="1", three="3", sent=[1, 2, 3, 4]))
    await db.delete(PropertyBag.key("Wide", "p", "text_1_"), if_match="*")
    await db.delete(PropertyBag.key("Wide", "p", "text_2_~01"), if_match="*")
    report = await db.audit(Text)
    assert sorted((each.damage, each.row_key, each.address) for each in report.findings) == [
        (Damage.ORPHAN, "text_1_", "text_1_~01"),
        (Damage.ORPHAN, "text_1_", "text_1_~02"),
        (Damage.ORPHAN, "text_1_", "text_1_~03"),
        (Damage.UNREADABLE, "text_2_", None),
    ]
    with pytest.raises(Conflict):
        await db.insert(Text(id=1, three="3"))
    assert (await db.audit(Text, repair=True)).repaired == 3
    await db.insert(Text(id=1, three="3"))
    assert [each.damage for each in (await db.audit(Text)).findings] == [Damage.UNREADABLE]
    assert await stored(db) == [
        "text_1_",
        "text_1_~01",
        "text_2_",
        "text_2_~02",
        "text_2_~03",
        "text_3_",
        *(f"text_3_~0{number}" for number in (1, 2, 3)),
    ]
