"""
Several changes of one row in a transaction: what their one operation relies on, and what the objects of the row know
when it has succeeded.
"""

import datetime as dt
import itertools

import pytest

from tableorm import (
    Database,
    EncodeError,
    Entity,
    Mapped,
    NotSupported,
    PreconditionFailed,
    PropertyBag,
    Transaction,
    TransactionFailed,
    field,
)

OLD = "W/\"datetime'2000-01-01T00%3A00%3A00.0000000Z'\""
_seconds = itertools.count()


def tick() -> dt.datetime:
    return dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=next(_seconds))


class Thing(Entity, table="Things", partition_key="g", row_key="{name}"):
    name: Mapped[str]
    text: Mapped[str | None] = field(default=None)
    number: Mapped[int] = field(default=0)


class Known(Entity, table="Things", partition_key="g", row_key="{name}", write_token=True):
    name: Mapped[str]
    text: Mapped[str | None] = field(default=None)
    number: Mapped[int] = field(default=0)


class Stamped(Entity, table="Things", partition_key="g", row_key="{name}"):
    name: Mapped[str]
    number: Mapped[int] = field(default=0)
    created: Mapped[dt.datetime | None] = field(default=None, on_insert=tick)
    updated: Mapped[dt.datetime | None] = field(default=None, on_write=tick)


@pytest.fixture
async def things(db: Database) -> Database:
    await db.create_tables(Thing)
    return db


async def load(db: Database, name: str = "a") -> Thing:
    return await db.get(Thing, name=name)


def more(thing: Thing) -> None:
    thing.number += 1


def more_known(known: Known) -> None:
    known.number += 1


async def test_what_is_modified_after_an_unconditional_write_is_read_modified_and_written(things: Database) -> None:
    """The write of the row becomes one of the version that was read: no other's change is lost between."""
    key = PropertyBag.key("Things", "g", "a")
    await things.insert(PropertyBag("Things", "g", "a", {"n": 4}))
    runs = 0

    def count(bag: PropertyBag) -> None:
        bag["n"] += 1

    async def run(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        tx.upsert(PropertyBag("Things", "g", "a", {"note": "hi"}))
        await tx.modify(key, count)
        if runs == 1:
            await things.modify(key, count)

    await things.run_transaction(run)

    assert runs == 2
    assert dict(await things.get(key)) == {"n": 6, "note": "hi"}


async def test_the_like_of_a_forced_merge_and_of_rows_with_tokens(things: Database) -> None:
    """The tail of the row that was read goes on."""
    await things.insert(Known(name="a", number=1))
    first = (await things.get(PropertyBag.key("Things", "g", "a"))).row["_w"]
    known = await things.get(Known, name="a")
    async with things.transaction() as tx:
        known.text = "t"
        tx.merge(known, only=[Known.text], if_match="*")
        result = await tx.modify(Known, more_known, name="a")

    stored = await things.get(PropertyBag.key("Things", "g", "a"))
    assert (stored["text"], stored["number"]) == ("t", 2)
    assert stored.row["_w"].split(",")[1:] == [first]
    assert result.etag == stored.etag == known.etag
    assert known == result


async def test_modifying_an_upserted_row_that_is_not_there_inserts_it(things: Database) -> None:
    """And fails if somebody else inserts it meanwhile."""
    async with things.transaction() as tx:
        tx.upsert(Thing(name="a", text="t"))
        await tx.modify(Thing, more, name="a")
    assert await load(things) == Thing(name="a", text="t", number=1)

    with pytest.raises(TransactionFailed):
        async with things.transaction() as tx:
            tx.upsert(Thing(name="b", text="t"))
            await tx.modify(Thing, more, name="b")
            await things.insert(Thing(name="b", number=7))
    assert await load(things, "b") == Thing(name="b", number=7)


@pytest.mark.parametrize("replace", [True, False])
async def test_a_guard_guards_a_row_that_is_written_without_condition(things: Database, replace: bool) -> None:
    """Although the transaction writes the row anyway."""
    await things.insert(Thing(name="a"))
    with pytest.raises(TransactionFailed) as caught:
        async with things.transaction() as tx:
            tx.upsert(Thing(name="a", text="t"), mode="replace" if replace else "merge")
            await tx.get(Thing, name="a", guard=True)
            await things.modify(Thing, more, name="a")

    assert isinstance(caught.value.__cause__, PreconditionFailed)
    assert await load(things) == Thing(name="a", number=1)


async def test_an_etag_that_is_given_counts_after_other_changes(things: Database) -> None:
    """It is the condition of the operation; of a row that the transaction inserts it cannot be true."""
    thing = Thing(name="a")
    await things.insert(thing)
    with pytest.raises(TransactionFailed):
        async with things.transaction() as tx:
            tx.upsert(thing)
            tx.replace(thing, if_match=OLD, drop_extra=True)
    new = Thing(name="b")
    with pytest.raises(TransactionFailed) as caught:
        async with things.transaction() as tx:
            tx.insert(new)
            tx.merge(new, only=[Thing.number], if_match=OLD)

    assert caught.value.index == 1
    assert await things.get_or_none(Thing, name="b") is None


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
@pytest.mark.parametrize("then", ["save", "merge", "only", "replace", "upsert"])
async def test_what_an_insert_filled_stays(things: Database, verb: str, then: str) -> None:
    """In the row, and in the entity, whatever follows in the transaction."""
    thing = Stamped(name="a")
    async with things.transaction() as tx:
        if verb == "insert":
            tx.insert(thing)
        else:
            tx.upsert(thing, mode="replace")
        thing.number = 1
        match then:
            case "save":
                tx.save(thing)
            case "merge":
                tx.merge(thing)
            case "only":
                tx.merge(thing, only=[Stamped.number])
            case "replace":
                tx.replace(thing, drop_extra=True)
            case _:
                tx.upsert(thing)

    stored = await things.get(Stamped, name="a")
    assert stored.created is not None
    assert stored == thing
    assert stored.number == 1


async def test_an_upsert_after_a_deletion_fills_as_an_insert(things: Database) -> None:
    """It is one."""
    thing = Stamped(name="a")
    await things.insert(thing)
    thing.created = None
    async with things.transaction() as tx:
        tx.delete(thing)
        tx.upsert(thing)

    stored = await things.get(Stamped, name="a")
    assert stored.created is not None
    assert stored == thing


async def test_dropped_properties_do_not_come_back(things: Database) -> None:
    """Also if they were looked at; what is set after the replace is kept."""
    await things.insert(PropertyBag("Things", "g", "a", {"EntityType": "Thing", "foo": "bar"}))
    thing = await load(things)
    assert thing.extra["foo"] == "bar"
    async with things.transaction() as tx:
        tx.replace(thing, drop_extra=True)
        thing.number, thing.extra["new"] = 3, 1
        tx.save(thing)

    assert dict((await load(things)).extra) == dict(thing.extra) == {"new": 1}
    operations = things.stats.operations
    await things.save(thing)
    assert things.stats.operations == operations


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


async def test_all_objects_of_a_row_become_what_was_written(things: Database) -> None:
    """The one that was inserted, and the one that was read after it and saved; or both are gone."""
    thing = Thing(name="a")
    async with things.transaction() as tx:
        tx.insert(thing)
        other = await tx.get(Thing, name="a")
        other.number = 3
        tx.save(other)
    assert thing == other == await load(things)
    assert thing.etag == other.etag == (await load(things)).etag

    async with things.transaction() as tx:
        other.number = 4
        tx.save(other)
        third = await tx.get(Thing, name="a")
        tx.delete(other)
    assert other.etag is third.etag is None


async def test_replacing_what_was_upserted_says_what_to_do(things: Database) -> None:
    """There may be no row that could be read."""
    thing = Thing(name="a")
    with pytest.raises(NotSupported, match="refresh"):
        async with things.transaction() as tx:
            tx.upsert(thing)
            tx.replace(thing)
    async with things.transaction() as tx:
        tx.upsert(thing)
        thing.number = 1
        tx.replace(thing, drop_extra=True)

    assert await load(things) == thing
