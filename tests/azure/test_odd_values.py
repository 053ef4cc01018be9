"""
Values that are none of their type, as Azurite stores them for other programs: they hide no row, and are not changed.
"""

import datetime as dt
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import (
    BlobArchive,
    Database,
    DatabaseArchive,
    DecodeError,
    EncodeError,
    Entity,
    Int32,
    Mapped,
    PropertyBag,
    TableOrmError,
    connect,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.protocol.edm import ANNOTATION, decode
from tableorm.stores import Operation, Row, Verb
from tableorm_azure.codec import decode_page
from tests.azure.stub import ETAG, KEY, Stub, page_answer, row_answer
from tests.azurite import Azurite

# What Azurite stores, with the type that it says; and what it gives back, where that is not the same.
ODD: dict[str, tuple[Any, str | None, Any]] = {
    "unset date of .NET": ("0001-01-01T00:00:00Z", "Edm.DateTime", None),
    "nine digits of a second": ("2024-02-29T12:34:56.123456789Z", "Edm.DateTime", None),
    "date alone": ("2024-02-29", "Edm.DateTime", "2024-02-29Z"),
    "no date": ("soon", "Edm.DateTime", None),
    "half of a surrogate pair": ("a\ud800b", None, None),
    "no guid": ("ABC", "Edm.Guid", None),
    "no base64": ("$$", "Edm.Binary", None),
    "no number": ("abc", "Edm.Int64", None),
    "above Int64": ("99999999999999999999", "Edm.Int64", None),
    "above Int32": (3_000_000_000, None, None),
}


class OddRow(Entity, table="OddValues", partition_key="{p}", row_key="{r}", abstract=True):
    p: Mapped[str]
    r: Mapped[str]


def odd_model(kind: Any) -> Any:
    class Odd(OddRow, kind=None):
        odd: Mapped[kind | None] = field(default=None)  # pyright: ignore[reportInvalidTypeForm]

    return Odd


Moment, Small, Text = (odd_model(kind) for kind in (dt.datetime, Int32, str))


class Other(OddRow, kind=None):
    size: Mapped[int] = field(default=0)
    text: Mapped[str | None] = field(default=None)


MODELS: dict[str | None, Any] = {
    "Edm.DateTime": Moment,
    "Edm.Guid": odd_model(UUID),
    "Edm.Binary": odd_model(bytes),
    "Edm.Int64": odd_model(int),
}


@pytest.fixture
async def db(azurite: Azurite) -> AsyncIterator[Database]:
    async with connect(azurite.connection_string) as database:
        await database.create_tables("OddValues")
        yield database
        await database.drop_table("OddValues")


def odd_members(name: str) -> tuple[Row, Row]:
    """What is written, and what is read of it."""
    value, annotation, back = ODD[name]
    members: Row = {"odd": value} if annotation is None else {"odd": value, "odd" + ANNOTATION: annotation}
    return members, members if back is None else {**members, "odd": back}


async def put(db: Database, row_key: str, members: Row) -> None:
    """Store a row as another program does, whose values nobody judges."""
    row = {"PartitionKey": "p", "RowKey": row_key, **members}
    await connection_of(db).require_open().write("OddValues", Operation(Verb.INSERT, row, canonical=True))


async def odd_of(db: Database, row_key: str = "b", partition_key: str = "p", table: str = "OddValues") -> Row:
    """What the store has of the odd property."""
    row = await connection_of(db).require_open().get(table, partition_key, row_key)
    return {name: value for name, value in row.items() if name.startswith("odd") and "etag" not in name}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", list(ODD))
async def test_a_value_that_is_none_of_its_type_hides_no_row(db: Database, name: str) -> None:
    """A bag has the value as it came; a model that declares it says what it is, and other rows are read."""
    members, back = odd_members(name)
    model = Small if name == "above Int32" else MODELS.get(members.get("odd" + ANNOTATION), Text)
    for row_key, some in (("a", {}), ("b", members), ("c", {})):
        await put(db, row_key, some)

    bags = await db.select_raw("OddValues").where("PartitionKey eq 'p'").all()
    assert [bag.row_key for bag in bags] == ["a", "b", "c"]
    assert {n: bags[1].row[n] for n in back} == back and await odd_of(db) == back
    with pytest.raises(DecodeError, match=r"odd: row \('p', 'b'\) has a value that is none of its type"):
        bags[1]["odd"]
    assert "odd" in repr(bags[1])

    seen: list[str] = []
    with pytest.raises(DecodeError) as caught:
        async for entity in db.select(model).where(model.p == "p"):
            seen += [entity.r]
    error = caught.value
    assert seen == ["a"] and error.key == ("p", "b") and error.field == "odd"
    assert repr(back["odd"]) in str(error)
    with pytest.raises(DecodeError):
        await db.get(model, p="p", r="b")
    assert [entity.r for entity in await db.select(model).where(model.p == "p").misfits("skip").all()] == ["a", "c"]


def anything(name: str, key: object) -> object:
    return key


async def test_a_key_that_is_no_text_hides_no_row(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bag has it as it came, a model says what it is, and a cursor goes on behind it; no request can name it."""
    with monkeypatch.context() as other_program:
        other_program.setattr("tableorm_azure.tables.check_key", anything)
        for row_key in ("a", "b\ud83d", "b\U0001f400", "c"):
            await put(db, row_key, {})

    query = db.select_raw("OddValues").where("PartitionKey eq 'p'")
    bags = [page.items[0] async for page in query.pages(1) if page.items]
    assert [bag.row_key for bag in bags] == ["a", "b\ud83d", "b\U0001f400", "c"]
    assert [bag.row_key for bag in await query.all()] == [bag.row_key for bag in bags]
    cursor: str | None = None
    async with db.select(Text).where(Text.p == "p").stream() as stream:
        entities = aiter(stream)
        assert (await anext(entities)).r == "a"
        with pytest.raises(DecodeError, match=r"row_key 'b\\ud83d' has a lone surrogate U\+D83D") as caught:
            await anext(entities)
        cursor = stream.cursor
    assert caught.value.key == ("p", "b\ud83d")
    async with db.select(Text).where(Text.p == "p").stream(cursor) as stream:
        assert [entity.r async for entity in stream] == ["b\U0001f400", "c"]

    bags[1]["odd"] = "x"
    for write in (db.save, db.delete, db.refresh):
        with pytest.raises(TableOrmError, match=r"RowKey .* has a lone surrogate"):
            await write(bags[1])


Write = Callable[[Database, Any], Awaitable[object]]


async def in_transaction(db: Database, subject: Any) -> None:
    async with db.transaction() as tx:
        tx.replace(subject)


async def in_bulk(db: Database, subject: Any) -> None:
    async with db.bulk() as bulk:
        await bulk.upsert(subject, mode="replace")


WRITES: dict[str, Write] = {
    "save": lambda db, subject: db.save(subject),
    "replace": lambda db, subject: db.replace(subject),
    "upsert": lambda db, subject: db.upsert(subject, mode="replace"),
    "merging upsert": lambda db, subject: db.upsert(subject),
    "transaction": in_transaction,
    "bulk": in_bulk,
}


def drop_size(bag: PropertyBag) -> None:
    """A change that replaces the row."""
    del bag["size"]


@pytest.mark.parametrize("name", ["unset date of .NET", "half of a surrogate pair", "no guid", "above Int32"])
async def test_a_value_is_written_back_as_it_came(db: Database, name: str) -> None:
    """By each verb, of a bag and of an entity whose model does not know it, with its type; a new one is rejected."""
    members, back = odd_members(name)
    await put(db, "b", {**members, "size": 1, "text": "x"})

    for number, write in enumerate(WRITES.values()):
        bag = await db.get(PropertyBag.key("OddValues", "p", "b"))
        bag["size"] = number
        await write(db, bag)
        entity = await db.get(Other, p="p", r="b")
        entity.size = number + 10
        await write(db, entity)
        assert await odd_of(db) == back and (await db.get(Other, p="p", r="b")).size == number + 10
    entity = await db.get(Other, p="p", r="b")
    entity.text = None  # which replaces the row
    await db.save(entity)
    assert await odd_of(db) == back
    with pytest.raises(DecodeError, match=r"Other\.extra\['odd'\]: row \('p', 'b'\) has a value"):
        entity.extra["odd"]
    assert "odd" in repr(entity.extra) and entity.extra == entity.evolve().extra

    await db.modify(PropertyBag.key("OddValues", "p", "b"), drop_size)
    await db.move(await db.get(PropertyBag.key("OddValues", "p", "b")), row_key="d")
    assert await odd_of(db, "d") == back
    await db.move(await db.get(Other, p="p", r="d"), r="e")
    assert await odd_of(db, "e") == back
    bag = await db.get(PropertyBag.key("OddValues", "p", "e"))
    bag.row["odder"] = "0001-01-01T00:00:00Z"
    bag.row["odder" + ANNOTATION] = "Edm.DateTime"
    with pytest.raises(Exception, match="odder"):
        await db.save(bag)


# What no service sends for a property, and what may be said of its type.
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(["0001-01-01T00:00:00Z", "2024-02-29T12:34:56Z", "a\ud800", "5", "NaN", "AA==", "1_0", "inf"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
KNOWN = ("String", "Boolean", "Int32", "Int64", "Double", "DateTime", "Guid", "Binary")
TYPES = st.sampled_from([None, *(f"Edm.{name}" for name in KNOWN), "Edm.SByte", "", 7])


@given(VALUES, TYPES)
def test_whatever_a_value_is_the_other_rows_are_read(value: Any, annotation: Any) -> None:
    """The value stays as it came, with its annotation; or it is spelt as rows have it, and means the same."""
    rows: list[Row] = [
        {"odata.etag": ETAG, "PartitionKey": "p", "RowKey": key, "A": "x", "A" + ANNOTATION: "Edm.String"}
        for key in "abc"
    ]
    rows[1] |= {"odd": value} if annotation is None else {"odd": value, "odd" + ANNOTATION: annotation}

    found = decode_page(json.dumps({"value": rows}).encode())
    assert [(row["RowKey"], row["A"]) for row in found] == [("a", "x"), ("b", "x"), ("c", "x")]
    kept, kind = found[1]["odd"], found[1].get("odd" + ANNOTATION)
    if kept != value or kind != annotation:
        meant = float(value) if kind in (None, "Edm.Double") and annotation in (None, "Edm.Double") else value
        read = decode(kept, kind)
        assert read in (meant, value) or read == decode(value, annotation)


@pytest.mark.parametrize(
    "members",
    [
        {"odd": [1, {"a": None}]},
        {"odd": [1], "odd@odata.type": "Edm.DateTime"},
        {"EntityType": [1], "odd": {}},
    ],
)
async def test_what_azurite_cannot_store(stub: Stub, members: Row) -> None:
    """A list, or an object: the other rows are given, and the value is as it came."""
    rows: list[Row] = [json.loads(row_answer(RowKey=key).body) for key in "abc"]
    rows[1] |= members
    stub.answers = [page_answer(*rows)]
    async with connect(stub.url, key=KEY) as db:
        bags = await db.select_raw("OddValues").where("PartitionKey eq 'p'").all()
        read = await db.select(Moment).where(Moment.p == "p").misfits("skip").all()
        others = await db.select(Other).where(Other.p == "p").all()

    assert [bag.row for bag in bags] == rows
    assert [entity.r for entity in read] == ["a", "c"]
    assert [entity.r for entity in others] == ["a", "b", "c"]


async def test_infinity_as_azurite_spells_it(db: Database) -> None:
    """Azurite answers a number beyond Double with a word that is not JSON: it is the number that it means."""
    await put(db, "a", {})
    body = b'{"PartitionKey":"p","RowKey":"b","odd":-1e999}'
    store: Any = connection_of(db).require_open()
    await store._pipeline.send("POST", f"{store._url}/OddValues", {"Content-Type": "application/json"}, body)

    bags = await db.select_raw("OddValues").where("PartitionKey eq 'p'").all()
    assert [bag.get("odd") for bag in bags] == [None, float("-inf")]


class Moving(OddRow, table="OddMoves", partition_key="{p}", row_key="row_{r}", tracked=True):
    pass


class Kept(OddRow, table="OddKept", partition_key="kept_{p}", row_key="{r}", tracked=True):
    pass


@pytest.fixture
async def moves(azurite: Azurite) -> AsyncIterator[tuple[Database, Database]]:
    """Two databases with the tables of moves."""
    url = azurite.connection_string
    async with connect(url) as database, connect(url, prefix="OddCold") as cold:
        await database.create_tables(Moving, Kept)
        await cold.create_tables(Moving)
        yield database, cold
        await cold.drop_table("OddMoves")
        for table in await database.tables():
            await database.drop_table(table)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", list(ODD))
async def test_a_value_moves_as_it_came(azurite: Azurite, moves: tuple[Database, Database], name: str) -> None:
    """
    To another partition, to another database and into a blob; or it is rejected by its name before anything is moved:
    to the table of another model, whose row it is not yet, and where JSON has no such text.
    """
    (db, cold), (members, back) = moves, odd_members(name)
    to_blob = BlobArchive("odd-values", Moving)
    to_database = DatabaseArchive("odd", Moving, lambda: connect(azurite.connection_string, prefix="OddCold"))
    for r in "abcd":
        await db.insert(Moving(p="p", r=r))
        row = {"PartitionKey": "p", "RowKey": f"row_{r}", **members}
        await connection_of(db).require_open().write("OddMoves", Operation(Verb.MERGE, row, "*", canonical=True))
    one, two, three, four = [await db.get(Moving, p="p", r=r) for r in "abcd"]

    await db.move(one, p="q")
    with pytest.raises(TableOrmError, match="odd: "):
        await db.archive(two, to=Kept)
    await db.archive(three, to=to_database)
    if name == "half of a surrogate pair":
        with pytest.raises(EncodeError, match=r"Moving.extra\['odd'\]: .*lone surrogate"):
            await db.archive(four, to=to_blob)
    else:
        await db.archive(four, to=to_blob)
    async with db.worker(Moving, to_database, to_blob, visibility=1) as worker:
        await worker.drain()

    left = [bag.row_key for bag in await db.select_raw("OddMoves").where("PartitionKey eq 'p'").all()]
    assert left == ["row_b", *(["row_d"] * (name == "half of a surrogate pair"))]
    assert await odd_of(db, "row_b", "p", "OddMoves") == back and not await db.exists(Kept, p="p", r="b")
    assert await odd_of(db, "row_a", "q", "OddMoves") == back and one == await db.get(Moving, p="q", r="a")
    assert await odd_of(cold, "row_c", "p", "OddMoves") == back
    if name != "half of a surrogate pair":
        (blob,) = (await db.blobs.list_blobs("odd-values", to_blob.prefix(four.key))).blobs
        content = await db.blobs.read("odd-values", blob.name)
        assert to_blob.load(content) == four
        assert {member: json.loads(content)["row"][member] for member in back} == back
        await db.blobs.delete("odd-values", blob.name)
