"""
Writes: what is sent, what is rejected before anything is sent, and what an entity knows afterwards.
"""

import datetime as dt
import pickle
import re
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tableorm import (
    Blob,
    BulkFailed,
    CursorError,
    Database,
    DecodeError,
    EncodeError,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    LimitExceeded,
    Mapped,
    ModelError,
    PreconditionFailed,
    PropertyBag,
    ScanRefused,
    TableNotFound,
    TableOrmError,
    TemplateError,
    Throttled,
    TransactionFailed,
    UniqueViolation,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import StoreLayer, StoreRequest
from tableorm.testing import Faults
from tests.rows import put_row
from tests.writes.things import Grouped


class Thing(Grouped):
    ratio: Mapped[float] = field(default=0.0)
    at: Mapped[dt.datetime | None] = field(default=None)
    tags: Mapped[list[str]] = field(factory=list)


THING = Thing.key(group="g", name="a")


async def raw(db: Database, name: str) -> dict[str, Any]:
    row = await db.store.get("Things", "g", name)
    return {
        key: value for key, value in row.items() if key not in ("odata.etag", "Timestamp", "PartitionKey", "RowKey")
    }


async def put(db: Database, name: str, **properties: Any) -> None:
    row = {"PartitionKey": "g", "RowKey": name, "EntityType": "Thing", **properties}
    await put_row(db, "Things", row)


async def test_the_seventh_digit_survives_until_the_value_changes(things: Database) -> None:
    """A datetime cannot hold 100 ns; a save of something else must not round it, nor a replace."""
    text = "2024-02-29T12:34:56.7891234Z"
    await put(things, "a", text="t", number=1, **{"at@odata.type": "Edm.DateTime", "at": text})
    thing = await things.get(THING)
    assert thing.at == dt.datetime(2024, 2, 29, 12, 34, 56, 789123, tzinfo=dt.UTC)

    thing.ratio = 2.0
    await things.save(thing)
    assert (await raw(things, "a"))["at"] == text
    thing.text = None
    await things.save(thing)
    assert (await raw(things, "a"))["at"] == text
    assert (await raw(things, "a"))["number"] == 1
    assert thing.at is not None
    thing.at += dt.timedelta(microseconds=1)
    await things.save(thing)
    assert (await raw(things, "a"))["at"] == "2024-02-29T12:34:56.7891240Z"


async def test_a_row_whose_key_is_not_what_the_template_writes_is_named(things: Database) -> None:
    """Another program wrote a raw ^ into a key: reading it says that no get finds it; a bag reads and deletes it."""
    await put(things, "a^b", text="t")
    with pytest.raises(DecodeError, match=r"a\^5Eb"):
        await things.select(Thing).where(Thing.group == "g").all()

    bag = await things.get(PropertyBag.key(Thing.__schema__.table_name(), "g", "a^b"))
    assert bag["text"] == "t"
    await things.delete(bag)
    assert await things.select(Thing).where(Thing.group == "g").all() == []


async def test_a_newer_row_is_read_and_never_loses_anything(things: Database) -> None:
    """Its version and its unknown properties stay when old code saves it, also when a property is removed."""
    await put(things, "a", EntityType="Thing:9", text="t", novel="x", number=3)
    thing = await things.get(THING)
    thing.number = 4
    await things.save(thing)
    thing.text = None
    await things.save(thing)

    assert (await raw(things, "a"))["EntityType"] == "Thing:9"
    assert (await raw(things, "a"))["novel"] == "x"
    assert (await things.get(THING)).number == 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "x" * 513}, r"Thing\.row_key: template '\{name\}'.*513 characters, 512 are allowed"),
        ({"name": None}, r"Thing\.name: None is missing: the field is str"),
        ({"name": "a", "number": 2**63}, r"Thing\.number: 9223372036854775808 is outside the range of Edm.Int64"),
        ({"name": "a", "number": "5"}, r"Thing\.number: '5' is a str, not an int"),
        ({"name": "a", "text": "\ud800"}, r"Thing\.text: .*lone surrogate U\+D800"),
        ({"name": "\udfff"}, r"row_key.*lone surrogate U\+DFFF.*'name'"),
        ({"name": "a", "at": dt.datetime(2024, 1, 1)}, r"Thing\.at: .*naive"),  # noqa: DTZ001
        ({"name": "a", "at": dt.datetime(1600, 1, 1, tzinfo=dt.UTC)}, r"Thing\.at: .*1601"),
        (
            {"name": "a", "text": "x" * 32769},
            r"field Thing\.text: .*32769 characters, 32768 are allowed.* 65538 bytes.*chunked=True\) or Mapped\[Blob\]",
        ),
        ({"name": "a", "text": "x" * 32768, "tags": ["y" * 40000]}, r"field Thing\.tags: "),
        ({"name": "a", "tags": [5]}, r"Thing\.tags: \[5\] has no exact JSON form: Expected `str`, got `int`"),
    ],
)
async def test_what_does_not_fit_is_refused_before_anything_is_sent(
    things: Database, values: dict[str, Any], message: str
) -> None:
    """The message names the field or the key, the value, and what is allowed."""
    requests = things.stats.requests

    with pytest.raises((EncodeError, TemplateError, LimitExceeded), match=message):
        await things.insert(Thing(**values))
    assert things.stats.requests == requests


async def test_the_size_of_an_entity_that_a_merge_would_make_too_large(things: Database) -> None:
    """It is that of the whole entity, not of what is sent."""
    bag = PropertyBag("Things", "g", "b", {f"p{i}": "x" * 32000 for i in range(16)})
    await things.insert(bag)
    bag["more"] = "x" * 32000
    with pytest.raises(LimitExceeded, match="1048576 are allowed") as caught:
        await things.save(bag)

    assert caught.value.limit == 1 << 20
    assert caught.value.size is not None and 17 * 64_000 < caught.value.size < 17 * 64_100


async def test_a_transaction_is_all_or_nothing_and_names_what_failed(things: Database) -> None:
    """Inserts, saves and deletes together; the index counts the operations, saves without changes included."""
    a, b = Thing(name="a"), Thing(name="b")
    await things.insert(a)
    await things.insert(b)
    stale = await things.get(Thing, group="g", name="b")
    b.number = 1
    await things.save(b)
    stale.number = 2
    a.number = 7

    with pytest.raises(TransactionFailed) as caught:
        async with things.transaction() as tx:
            tx.insert(Thing(name="c"))
            tx.save(await things.get(Thing, group="g", name="b"))
            tx.delete(a)
            tx.save(stale)
    assert (caught.value.index, caught.value.operation, caught.value.entity) == (3, "save", stale)
    assert isinstance(caught.value.__cause__, PreconditionFailed)
    assert [t.name for t in await things.select(Thing).where(Thing.group == "g").all()] == ["a", "b"]
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.index, copy.code, str(copy)) == (3, caught.value.code, str(caught.value))


async def test_a_transaction_that_raises_sends_nothing(things: Database) -> None:
    """Nor does an empty one; and it cannot be used afterwards."""
    requests = things.stats.requests
    transaction = things.transaction()
    with pytest.raises(ZeroDivisionError):
        async with transaction as tx:
            tx.insert(Thing(name="a"))
            _ = 1 // 0
    async with things.transaction():
        pass

    assert things.stats.requests == requests
    with pytest.raises(ModelError, match="closed"):
        transaction.insert(Thing(name="b"))
    with pytest.raises(ModelError, match="used already"):
        await transaction.__aenter__()


@pytest.mark.parametrize(
    ("entities", "index", "message"),
    [
        ([Thing(name="a"), Thing(name="b", group="h")], 1, "one of each"),
        ([Thing(name="a"), Thing(name="b"), Thing(name="a")], 2, "has written the row"),
        ([Thing(name=f"{i}") for i in range(101)], 100, "101 operations, 100 are allowed"),
        ([Thing(name=f"{i}", text="x" * 32000, tags=["y" * 30000]) for i in range(90)], 66, "4194304 are allowed"),
        ([Thing(name="a"), Thing(name="b", text="x" * 40000)], 1, "32768 are allowed"),
    ],
)
async def test_a_transaction_that_cannot_be_is_refused_before_it_is_sent(
    things: Database, entities: list[Thing], index: int, message: str
) -> None:
    """The error names the first operation that does not fit; nothing is written."""
    requests = things.stats.requests

    with pytest.raises(TransactionFailed, match=message) as caught:
        async with things.transaction() as tx:
            for entity in entities:
                tx.insert(entity)
    assert caught.value.index == index
    assert caught.value.entity is entities[index]
    assert things.stats.requests == requests


class Named(Entity, table="NamedThings", partition_key="{group}", row_key="id_{id}"):
    group: Mapped[str] = field(default="g")
    id: Mapped[str] = field(default="a")
    name: Mapped[str] = field(default="n")

    by_name = Index(row_key="name_{name}", unique=True)


class Pictured(Entity, table="Pictures", partition_key="{group}", row_key="id_{id}"):
    group: Mapped[str] = field(default="g")
    id: Mapped[str] = field(default="a")
    photo: Mapped[Blob | None] = field(default=None)


class Unmade(Entity, table="Unmade", partition_key="{group}", row_key="x"):
    group: Mapped[str] = field(default="g")


async def save_stale(db: Database) -> None:
    """Save a picture that another program has changed since it was read."""
    found = await db.get(Pictured, group="g", id="a")
    await db.upsert(Pictured())
    found.photo = Blob(b"late")
    await db.save(found)


async def upload_refused(db: Database) -> None:
    """Insert an entity whose blob the store does not take."""
    with Faults(db).fail_next("put-blob", with_=503):
        await db.insert(Pictured(id="b", photo=Blob(b"x")))


REFUSED: list[tuple[type[TableOrmError], Callable[[Database], Awaitable[object]], str]] = [
    (EntityExists, lambda db: db.insert(Named()), "has a row with this key already"),
    (UniqueViolation, lambda db: db.insert(Named(id="b")), "Named.by_name"),
    (UniqueViolation, lambda db: db.upsert(Named(id="b")), "Named.by_name"),
    (TemplateError, lambda db: db.insert(Named(name="x" * 600)), "by_name"),
    (ScanRefused, lambda db: db.select(Named).where(Named.name > "a").all(), "allow_scan"),
    (EntityExists, lambda db: db.insert(Pictured(photo=Blob(b"x"))), "has a row with this key already"),
    (TableNotFound, lambda db: db.select(Unmade).where(Unmade.group == "g").all(), "there is no table"),
    (TableNotFound, lambda db: db.select(Unmade).where(Unmade.group == "g").count(), "there is no table"),
    (TableNotFound, lambda db: db.select(Unmade).where(Unmade.group == "g").one(), "there is no table"),
    (TableNotFound, lambda db: db.get(Unmade, group="g"), "there is no table"),
    (TableNotFound, lambda db: db.modify(Unmade, lambda _: None, group="g"), "there is no table"),
    (TableNotFound, lambda db: db.insert(Unmade()), "no table 'Unmade'; create it with db.create_tables()"),
    (TableNotFound, lambda db: db.drop_table("Unmade"), "there is no table 'Unmade' to delete"),
    (CursorError, lambda db: db.select(Named).where(Named.group == "g").page(1, "x"), "'x' is not a cursor"),
    (EntityNotFound, lambda db: db.modify(Named, lambda _: None, group="g", id="x"), "there is no Named"),
    (PreconditionFailed, save_stale, "has changed since it was read"),
    (Throttled, upload_refused, "upload of Pictured.photo"),
]


@pytest.mark.parametrize(("error", "call", "said"), REFUSED)
async def test_the_traceback_of_a_refusal_is_short(
    db: Database, error: type[TableOrmError], call: Callable[[Database], Awaitable[object]], said: str
) -> None:
    """It shows one error, and at most five frames of tableorm: who reads it looks for their own."""
    await db.create_tables(Named, Pictured)
    await db.insert(Named())
    await db.insert(Pictured())
    with pytest.raises(error) as caught:
        await call(db)
    text = "".join(traceback.format_exception(caught.value))
    # Before Python 3.12 a comprehension has a frame of its own.
    frames = re.findall(r'File ".*tableorm/.*", line \d+, in (?!<listcomp>)', text.replace("\\", "/"))
    assert 1 <= len(frames) <= 5
    assert len(re.findall("^[a-z_.]+[A-Za-z]+: ", text, re.MULTILINE)) == 1
    assert said in text


async def test_the_fault_of_a_refusal(db: Database) -> None:
    """An error has what the store said; that of a transaction or bulk has that of its first operation that failed."""
    await db.create_tables(Named)
    await db.insert(Named())
    with pytest.raises(EntityExists) as single:
        await db.insert(Named())
    with pytest.raises(TransactionFailed) as together:
        async with db.transaction() as tx:
            tx.insert(Named(id="b", name="b"))
            tx.insert(Named())
    with pytest.raises(BulkFailed) as many:
        async with db.bulk() as bulk:
            await bulk.insert(Named())
    with pytest.raises(EntityNotFound) as missing:
        await db.get(Named, group="g", id="x")

    causes = [together.value.__cause__, many.value.__cause__]
    for error in (single.value, together.value, many.value, *causes):
        assert isinstance(error, TableOrmError)
        assert error.fault is not None and error.fault.code == Code.ENTITY_EXISTS
        text = "".join(traceback.format_exception(error))
        assert "Fault" not in text and text.count("direct cause") == (error in (together.value, many.value))
    assert all(isinstance(cause, EntityExists) for cause in causes)
    assert missing.value.fault is None


async def test_the_traceback_of_a_refused_transaction_shows_two_errors(db: Database) -> None:
    """The second is that of the operation, also where reading another row has told what is wrong."""
    await db.create_tables(Named)
    await db.insert(Named())
    with pytest.raises(TransactionFailed) as together:
        async with db.transaction() as tx:
            tx.insert(Named(id="b"))
    with pytest.raises(BulkFailed) as many:
        async with db.bulk() as bulk:
            await bulk.insert(Named(id="b"))

    for error in (together.value, many.value):
        text = "".join(traceback.format_exception(error))
        assert isinstance(error.__cause__, UniqueViolation) and error.fault is not None
        assert len(re.findall("^[a-z_.]+[A-Za-z]+: ", text, re.MULTILINE)) == 2
        assert text.count("Traceback (most recent call last)") == 1


async def test_the_traceback_of_the_program_stays(db: Database) -> None:
    """An error that the program handles while a request is rejected keeps its frames."""

    class Refusing(StoreLayer):
        async def send(self, request: StoreRequest) -> Any:
            if request.method == "get":
                raise Fault(Code.INTERNAL_ERROR, "not now")
            return await super().send(request)

    await db.create_tables(Thing)
    connection_of(db).wrap_store(Refusing)
    with pytest.raises(TableOrmError) as caught:
        try:
            int("x")
        except ValueError:
            await db.get(Thing, group="g", name="n")
    fault = caught.value.fault
    assert fault is not None and isinstance(fault.__context__, ValueError)
    assert fault.__context__.__traceback__ is not None
