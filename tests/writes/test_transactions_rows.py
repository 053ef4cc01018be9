"""
Several changes of one row in a transaction: what their one operation relies on, and what the objects of the row know
when it has succeeded.
"""

import datetime as dt
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tableorm import (
    Database,
    EncodeError,
    Entity,
    Key,
    Mapped,
    NotSupported,
    PreconditionFailed,
    PropertyBag,
    Transaction,
    TransactionFailed,
    field,
)
from tests.writes.things import Thing, more

OLD = "W/\"datetime'2000-01-01T00%3A00%3A00.0000000Z'\""
_seconds = itertools.count()


def tick() -> dt.datetime:
    return dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=next(_seconds))


class Known(Thing, kind="Known", write_token=True): ...


class Stamped(Entity, table="Things", partition_key="g", row_key="{name}"):
    name: Mapped[str]
    number: Mapped[int] = field(default=0)
    created: Mapped[dt.datetime | None] = field(default=None, on_insert=tick)
    updated: Mapped[dt.datetime | None] = field(default=None, on_write=tick)


async def load(db: Database, name: str = "a") -> Thing:
    return await db.get(Thing, name=name)


@pytest.mark.parametrize("written", ["upsert", "forced merge", "upsert of a bag"])
async def test_what_is_written_unread_is_not_read_afterwards(things: Database, written: str) -> None:
    """The object does not know what the row will be; reading it first makes both one write under its ETag."""
    await things.insert(Known(name="a", number=1))
    known = await things.get(Known, name="a")
    key: Key[Any] = PropertyBag.key("Things", "g", "a") if written == "upsert of a bag" else known.key
    calls: list[Callable[[Transaction], Awaitable[Any]]] = [
        lambda tx: tx.get(key),
        lambda tx: tx.get(key, guard=True),
        lambda tx: tx.modify(key, lambda each: None),
    ]
    for call in calls:
        with pytest.raises(NotSupported, match=r"without having read it; read it with `await tx.get\(...\)` before"):
            async with things.transaction() as tx:
                match written:
                    case "upsert":
                        tx.upsert(Known(name="a", text="t"))
                    case "forced merge":
                        known.text = "t"
                        tx.merge(known, only=[Known.text], if_match="*")
                    case _:
                        tx.upsert(PropertyBag("Things", "g", "a", {"note": "hi"}))
                await call(tx)
    assert await things.get(Known, name="a") == Known(name="a", number=1)


@pytest.mark.parametrize("mode", ["merge", "replace"])
async def test_an_upsert_and_an_etag(things: Database, mode: Any) -> None:
    """Together they are a write of that version of the row: it is there, and no other is written over."""
    thing = Thing(name="a", text="old")
    await things.insert(thing)
    async with things.transaction() as tx:
        tx.upsert(thing, mode=mode)
        thing.text = "new"
        tx.merge(thing, only=[Thing.text], if_match=thing.etag)
    assert (await load(things)).text == "new"

    with pytest.raises(TransactionFailed) as refused:
        async with things.transaction() as tx:
            tx.upsert(thing, mode=mode)
            tx.replace(thing, if_match=OLD, drop_extra=True)
    assert isinstance(refused.value.__cause__, PreconditionFailed)


async def test_what_an_object_never_saw_it_does_not_replace(things: Database) -> None:
    """After it was merged over whatever was there."""
    await things.insert(Thing(name="a"))
    thing = await load(things)
    await things.modify(Thing, more, name="a")
    with pytest.raises(PreconditionFailed, match=r"refresh\(\) it first"):
        async with things.transaction() as tx:
            thing.text = "t"
            tx.merge(thing, only=[Thing.text], if_match="*")
            tx.replace(thing, drop_extra=True)
    async with things.transaction() as tx:
        tx.merge(thing, only=[Thing.text], if_match="*")
        thing.text = "u"
        tx.save(thing)

    assert thing.etag is None
    assert await load(things) == Thing(name="a", text="u", number=1)


async def test_refusing_itself_is_not_repeated(things: Database) -> None:
    """`run_transaction` repeats what the store refused, not operations that do not fit together."""
    thing = Thing(name="a")
    await things.insert(thing)
    runs = 0

    async def run(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        thing.number += 1
        tx.save(thing)
        tx.delete(thing, if_match=OLD)

    with pytest.raises(TransactionFailed):
        await things.run_transaction(run)

    assert runs == 1


@pytest.mark.parametrize("verb", ["insert", "upsert"])
@pytest.mark.parametrize(
    ("then", "arguments"),
    [
        ("save", {}),
        ("merge", {}),
        ("merge", {"only": [Stamped.number]}),
        ("replace", {"drop_extra": True}),
        ("upsert", {}),
    ],
)
async def test_what_an_insert_filled_stays(
    things: Database, verb: str, then: str, arguments: dict[str, object]
) -> None:
    """In the row, and in the entity, whatever follows in the transaction."""
    thing = Stamped(name="a")
    async with things.transaction() as tx:
        if verb == "insert":
            tx.insert(thing)
        else:
            tx.upsert(thing, mode="replace")
        thing.number = 1
        getattr(tx, then)(thing, **arguments)

    stored = await things.get(Stamped, name="a")
    assert stored.created is not None
    assert stored == thing
    assert stored.number == 1


async def test_an_upsert_claims_no_removal_and_knows_of_deletions(things: Database) -> None:
    """As outside of a transaction: a merge cannot remove what the transaction has put there."""
    thing = Thing(name="a", text="t")
    with pytest.raises(EncodeError, match="cannot remove a property"):
        async with things.transaction() as tx:
            tx.insert(thing)
            thing.text = None
            tx.upsert(thing)
    read = Thing(name="b", text="t")
    read.extra["foo"] = "bar"
    await things.insert(read)
    async with things.transaction() as tx:
        tx.delete(read)
        read.text = None
        tx.upsert(read)

    stored = await load(things, "b")
    assert (stored.text, dict(stored.extra)) == (None, {"foo": "bar"})


async def test_an_object_that_was_deleted_knows_it(things: Database) -> None:
    """By itself, by its key, and where another object takes its place."""
    for how in ("itself", "key", "replaced"):
        thing = Thing(name="a")
        await things.upsert(thing, mode="replace")
        async with things.transaction() as tx:
            thing.number = 1
            tx.save(thing)
            tx.delete(thing.key if how == "key" else thing, if_match="*" if how == "key" else None)
            if how == "replaced":
                tx.insert(Thing(name="a", text="another"))
        assert thing.etag is None
        stored = await things.get_or_none(Thing, name="a")
        assert stored == (Thing(name="a", text="another") if how == "replaced" else None)


@pytest.mark.parametrize("verb", ["merge", "replace"])
async def test_all_fields_after_a_forced_merge_of_some_need_an_etag(things: Database, verb: str) -> None:
    """What the object does not know of its row may have changed: so all of it is not written over that unasked."""
    thing = Thing(name="a", text="t")
    await things.insert(thing)
    await things.modify(Thing.key(name="a"), more)

    async with things.transaction() as tx:
        thing.text = "u"
        tx.merge(thing, only=[Thing.text], if_match="*")
        with pytest.raises(PreconditionFailed, match="another client may have changed its row since; refresh"):
            (tx.merge if verb == "merge" else tx.replace)(thing)
        tx.merge(thing, only=[Thing.text])

    assert ((await load(things)).number, (await load(things)).text) == (1, "u")
    thing = await load(things)
    await things.modify(Thing.key(name="a"), more)
    async with things.transaction() as tx:
        tx.merge(thing, only=[Thing.text], if_match="*")
        tx.merge(thing, if_match="*")
    assert (await load(things)).number == 1
