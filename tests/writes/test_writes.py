"""
Writes: what is sent, what is rejected before anything is sent, and what an entity knows afterwards.
"""

import datetime as dt
import pickle
from typing import Any

import pytest

from tableorm import (
    Database,
    DecodeError,
    EncodeError,
    LimitExceeded,
    Mapped,
    ModelError,
    PreconditionFailed,
    PropertyBag,
    TemplateError,
    TransactionFailed,
    field,
)
from tests.writes.things import Grouped, put


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
