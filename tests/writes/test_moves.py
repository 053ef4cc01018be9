"""
Moves within a partition: what is sent, what survives, who wins a race, and what a lost reply leaves.
"""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator

import msgspec
import pytest
from attrs import validators

from tableorm import (
    Database,
    Edm,
    EncodeError,
    Entity,
    EntityExists,
    EntityNotFound,
    Mapped,
    ModelError,
    NotLoaded,
    NotRead,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
    PropertyBag,
    TableOrmError,
    TemplateError,
    TransactionFailed,
    field,
)
from tableorm.stores import Verb
from tests.database.conftest import also_in_file
from tests.faults import QUICK, Fate, FaultyBackend, FaultyStore

DAY = dt.datetime(2024, 2, 29, tzinfo=dt.UTC)


class Thing(Entity, table="Things", partition_key="{group}", row_key="thing_{number:03d}"):
    group: Mapped[str] = field(default="g")
    number: Mapped[int]
    text: Mapped[str | None] = field(default=None)
    count: Mapped[int] = field(default=0, validator=validators.ge(0))


class Stamped(Entity, table="Things", partition_key="stamped", row_key="{name}"):
    name: Mapped[str]
    created: Mapped[dt.datetime | None] = field(default=None, on_insert=lambda: DAY)
    writes: Mapped[dt.datetime | None] = field(default=None, on_write=lambda: DAY + dt.timedelta(days=1))


class Known(Entity, table="Things", partition_key="known", row_key="{name}", write_token=True):
    name: Mapped[str]
    count: Mapped[int] = field(default=0)


async def numbers(db: Database) -> list[int]:
    return [thing.number for thing in await db.select(Thing).where(Thing.group == "g").all()]


async def test_a_move_is_one_transaction(things: Database) -> None:
    """
    The old row is deleted under its ETag and the new one inserted, as `explain_write` says; the entity then is the new
    one, and can be saved.
    """
    thing = Thing(number=1, text="x")
    await things.insert(thing)
    etag = thing.etag
    thing.count = 5  # what was not saved is written too
    said = things.explain_write("move", thing, number=2)
    with things.observe(show_values=True) as seen:
        await things.move(thing, number=2)

    (sent,) = [request.operations for request in seen.requests]
    assert [(each.verb, each.row["RowKey"], each.if_match) for each in sent] == [
        (Verb.DELETE, "thing_001", etag),
        (Verb.INSERT, "thing_002", None),
    ]
    assert [(step.method, step.path, step.if_match) for step in said.steps] == [
        ("DELETE", "/Things(PartitionKey='g',RowKey='thing_001')", etag),
        ("POST", "/Things", None),
    ]
    row = {name: value for name, value in sent[1].row.items() if name not in ("odata.etag", "Timestamp")}
    assert said.steps[1].body == msgspec.json.encode(row)
    assert said.transaction and said.cost == 1
    assert thing.number == 2 and thing.key == Thing.key(group="g", number=2)
    found = await things.get(thing.key)
    assert found == thing == Thing(number=2, text="x", count=5) and found.etag == thing.etag != etag
    thing.text = None
    await things.save(thing)
    assert await numbers(things) == [2]


async def test_unknown_properties_move_along(things: Database) -> None:
    """What a newer program has written is in the new row, with its types; so is what was changed through `extra`."""
    bag = PropertyBag("Things", "g", "thing_001", {"EntityType": "Thing", "count": 0, "New": "a", "Old": "b"})
    bag.set("Small", 3, Edm.INT32)
    await things.insert(bag)
    thing = await things.get(Thing, group="g", number=1)
    thing.extra["New"] = "c"
    del thing.extra["Old"]
    await things.move(thing, number=2)

    moved = await things.get(PropertyBag.key("Things", "g", "thing_002"))
    assert dict(moved) == {"EntityType": "Thing", "count": 0, "New": "c", "Small": 3}
    assert moved.type_of("Small") == "Edm.Int32"
    assert dict(thing.extra) == {"New": "c", "Small": 3}


async def test_hooks_and_validators(things: Database) -> None:
    """`on_write` runs, `on_insert` only if there is no value yet, and a value that is rejected moves nothing."""
    stamped = Stamped(name="a", created=DAY - dt.timedelta(days=9))
    await things.insert(stamped)
    stamped.writes = None
    await things.move(stamped, name="b")
    thing = Thing(number=1)
    await things.insert(thing)
    thing.__dict__["count"] = -1

    found = await things.get(stamped.key)
    assert found.created == stamped.created == DAY - dt.timedelta(days=9)
    assert found.writes == stamped.writes == DAY + dt.timedelta(days=1)
    with pytest.raises(ValueError, match="'count' must be >= 0"):
        await things.move(thing, number=2)
    assert await numbers(things) == [1]


async def test_the_new_key_is_taken(things: Database) -> None:
    """Then nothing is changed, neither of the two rows nor the entity."""
    one, two = Thing(number=1), Thing(number=2, text="two")
    await things.insert(one)
    await things.insert(two)
    with pytest.raises(EntityExists, match=r"move of Thing \('g', 'thing_002'\)"):
        await things.move(one, number=2)

    assert one.number == 1 and await things.get(one.key) == one
    assert await things.get(two.key) == two
    await things.delete(one)


@also_in_file
async def test_moves_and_saves_at_the_same_time(things: Database) -> None:
    """Of several that move or save one row from the same reading one wins, and no row is doubled or lost."""
    for number in range(0, 40, 10):
        await things.insert(Thing(number=number))
        barrier = asyncio.Barrier(6)

        async def act(turn: int, number: int = number, barrier: asyncio.Barrier = barrier) -> bool:
            thing = await things.get(Thing, group="g", number=number)
            await barrier.wait()
            try:
                if turn % 2:
                    await things.move(thing, number=number + turn)
                else:
                    thing.count = turn + 1
                    await things.save(thing)
            except (PreconditionFailed, EntityNotFound):
                return False
            return True

        won = await asyncio.gather(*map(act, range(6)))

        assert won.count(True) == 1
        left = [each for each in await numbers(things) if number <= each < number + 10]
        assert left == [number + (won.index(True) if won.index(True) % 2 else 0)]


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        (
            {"group": "h"},
            NotSupported,
            r"Thing cannot be moved .* another partition.*class Thing\(\.\.\., tracked=True\)",
        ),
        ({"count": 2}, TemplateError, "does not take 'count', which is not a key field"),
        ({"nothing": 2}, TemplateError, "does not take 'nothing', which is not a field"),
        ({"number": 1000}, TemplateError, "cannot hold 1000"),
        ({"number": 1}, EncodeError, "is the key that it has already"),
        ({}, EncodeError, "is the key that it has already"),
    ],
)
async def test_moves_that_are_refused(
    things: Database, fields: dict[str, object], kind: type[TableOrmError], words: str
) -> None:
    """Before anything is sent, and the entity stays as it was."""
    thing = Thing(number=1)
    await things.insert(thing)
    etag, requests = thing.etag, things.stats.requests
    with pytest.raises(kind, match=words):
        await things.move(thing, **fields)
    with pytest.raises(kind, match=words):
        things.explain_write("move", thing, **fields)

    assert thing == Thing(number=1) and (thing.etag, things.stats.requests) == (etag, requests)


async def test_moves_of_what_is_not_known_in_full(things: Database) -> None:
    """What was never read has no ETag; what was read or written in part would lose the rest of its row."""
    thing = Thing(number=1, text="x")
    with pytest.raises(NotRead, match=r"^move of Thing.*neither read nor written[^*]*$"):
        await things.move(thing, number=2)
    await things.insert(thing)
    part = await things.select(Thing).where(Thing.group == "g").only(Thing.number).one()
    written = Thing(number=1, count=3)
    await things.upsert(written)
    for each in (part, written):
        with pytest.raises(NotLoaded, match=r"move of Thing \('g', 'thing_001'\).*refresh\(\) it first"):
            await things.move(each, number=2)
    await things.refresh(written)
    await things.move(written, number=2)

    assert await things.get(Thing, group="g", number=2) == Thing(number=2, text="x", count=3)


async def test_bags_move(things: Database) -> None:
    """A bag gets another RowKey; other fields, partitions and tables are rejected by name."""
    bag = PropertyBag("Things", "g", "a", {"A": 1})
    await things.insert(bag)
    await things.move(bag, row_key="b")

    assert bag == await things.get(PropertyBag.key("Things", "g", "b")) and bag.etag is not None
    assert await things.get_or_none(PropertyBag.key("Things", "g", "a")) is None
    for fields, kind, words in (
        ({"partition_key": "h"}, NotSupported, "another partition"),
        ({"table": "Others"}, NotSupported, "another table"),
        ({"A": "b"}, ModelError, "no key field 'A'"),
        ({"row_key": "a/b"}, EncodeError, "forbidden character"),
    ):
        with pytest.raises(kind, match=words):
            await things.move(bag, **fields)
    bag["A"] = 2
    await things.save(bag)


async def test_moves_in_transactions(things: Database) -> None:
    """A move is one operation of the user's beside others; two rows can change places with a third key between them."""
    one, two = Thing(number=1, text="one"), Thing(number=2, text="two")
    await things.insert(one)
    await things.insert(two)
    async with things.transaction() as tx:
        one.count = 7
        tx.save(one)
        tx.move(one, number=3)
        tx.move(two, number=1)
        tx.insert(Thing(number=4))
        assert (one.number, two.number) == (1, 2)

    assert (one.number, two.number) == (3, 1)
    assert await numbers(things) == [1, 3, 4]
    assert (await things.get(one.key)).count == 7 and (await things.get(two.key)).text == "two"
    one.count, two.count = 8, 8
    await things.save(one)
    await things.save(two)


async def test_errors_of_moves_in_transactions(things: Database) -> None:
    """What does not fit leaves neither half in the transaction, and no entity changes."""
    one, two = Thing(number=1), Thing(number=2)
    await things.insert(one)
    await things.insert(two)
    async with things.transaction() as tx:
        two.count = 1
        tx.save(two)
        with pytest.raises(TransactionFailed, match="the transaction has written the row"):
            tx.move(one, number=2)
    assert await numbers(things) == [1, 2] and one.etag is not None

    with pytest.raises(TransactionFailed, match="the transaction has deleted the row"):
        async with things.transaction() as tx:
            tx.move(one, number=3)
            one.count = 5
            tx.save(one)
    assert await numbers(things) == [1, 2]


@pytest.fixture
async def far(network: FaultyStore) -> AsyncIterator[Database]:
    async with Database(FaultyBackend(network), retry=QUICK) as database:
        await database.create_tables(Known)
        yield database


@pytest.mark.parametrize("fate", list(Fate))
@pytest.mark.parametrize("model", [Known, Stamped])
async def test_lost_replies_of_moves(
    far: Database, network: FaultyStore, model: type[Known] | type[Stamped], fate: Fate
) -> None:
    """A token in the new row proves the move; without tokens it is unknown if the repetition finds no old row."""
    entity = model(name="a")
    await far.insert(entity)
    network.plan(fate)
    if model is Stamped and fate is Fate.LOST_REPLY:
        with pytest.raises(OutcomeUnknown, match=r"move of Stamped \('stamped', 'a'\)"):
            await far.move(entity, name="b")
        assert entity.name == "a"
    else:
        await far.move(entity, name="b")
        assert entity.name == "b" and (await far.get(entity.key)).etag == entity.etag
    await network.deliver()

    assert [each.name for each in await far.select(model).allow_scan().all()] == ["b"]
