"""
Transactions that do several things to one row, read what they are about to write, guard what they only read, and run
again after a lost race.
"""

import asyncio
from typing import Any

import pytest

from tableorm import (
    Database,
    EncodeError,
    Entity,
    EntityExists,
    EntityNotFound,
    Mapped,
    ModelError,
    NotSupported,
    PreconditionFailed,
    PropertyBag,
    Transaction,
    TransactionFailed,
    field,
)
from tests.database.conftest import also_in_file


class Thing(Entity, table="Things", partition_key="{group}", row_key="{name}"):
    group: Mapped[str] = field(default="g")
    name: Mapped[str]
    text: Mapped[str | None] = field(default=None)
    number: Mapped[int] = field(default=0)


async def load(db: Database, name: str) -> Thing:
    return await db.get(Thing, group="g", name=name)


def more(thing: Thing) -> None:
    thing.number += 1


async def names(db: Database) -> list[str]:
    return [thing.name for thing in await db.select(Thing).where(Thing.group == "g").all()]


@pytest.mark.parametrize(
    ("steps", "cause"),
    [
        (("insert", "insert"), EntityExists),
        (("save", "insert"), EntityExists),
        (("delete", "save"), EntityNotFound),
        (("delete", "delete"), EntityNotFound),
        (("insert", "delete"), NotSupported),
        (("upsert", "force"), NotSupported),
        (("save", "stale"), PreconditionFailed),
    ],
)
async def test_what_one_operation_cannot_do_is_refused(
    things: Database, steps: tuple[str, ...], cause: type[Exception]
) -> None:
    """At the call, naming the second operation; nothing is sent."""
    thing = Thing(name="a")
    if steps[0] in ("save", "delete"):
        await things.insert(thing)
        thing.number = 1
    stale = thing.etag
    if "stale" in steps:
        thing.number = 2
        await things.save(thing)
        thing.number = 3
    requests = things.stats.requests

    with pytest.raises(TransactionFailed, match=r"operation 1: .*nothing was sent") as caught:
        async with things.transaction() as tx:
            for step in steps:
                match step:
                    case "force":
                        tx.delete(Thing.key(group="g", name="a"), if_match="*")
                    case "stale":
                        tx.delete(thing, if_match=stale)
                    case _:
                        getattr(tx, step)(thing)
    assert caught.value.index == 1 and isinstance(caught.value.__cause__, cause)
    assert things.stats.requests == requests


async def test_a_transaction_reads_what_it_has_written(things: Database) -> None:
    """`get` and `modify` return the one object of the row, which can be written again; what is deleted is gone."""
    await things.insert(Thing(name="a", number=1))
    async with things.transaction() as tx:
        new = Thing(name="new", number=5)
        tx.insert(new)
        assert await tx.get(Thing, group="g", name="new") is new
        new.number += 1
        tx.save(new)
        await tx.modify(Thing, more, group="g", name="new")
        await tx.modify(Thing, more, group="g", name="a")
        assert (await tx.modify(Thing.key(group="g", name="a"), more)).number == 3
        tx.delete(await tx.get(Thing, group="g", name="a"))
        with pytest.raises(EntityNotFound, match="this transaction deletes it"):
            await tx.get(Thing, group="g", name="a")

    assert await names(things) == ["new"]
    assert await load(things, "new") == new == Thing(name="new", number=7)


async def test_modify_in_a_transaction(things: Database) -> None:
    """By key, by instance, which is the object of the row from then on, and of a bag."""
    thing = Thing(name="a")
    await things.insert(thing)
    await things.insert(Thing(name="b"))

    def one_more(bag: PropertyBag) -> None:
        bag["number"] += 1

    async with things.transaction() as tx:
        assert await tx.modify(thing, more) is thing
        assert await tx.modify(thing, more) is thing
        await tx.modify(PropertyBag.key("Things", "g", "b"), one_more)

    assert thing.number == 2 and thing.etag == (await load(things, "a")).etag
    assert (await load(things, "b")).number == 1
    thing.number = 9
    with pytest.raises(EncodeError, match="changed and not saved"):
        async with things.transaction() as tx:
            await tx.modify(thing, more)


async def test_a_guard_fails_the_transaction_if_the_row_has_changed(things: Database) -> None:
    """It counts as an operation, and changes the ETag; the guarded entity knows the new one."""
    await things.insert(Thing(name="rule", number=1))
    operations = things.stats.operations
    async with things.transaction() as tx:
        rule = await tx.get(Thing, guard=True, group="g", name="rule")
        tx.insert(Thing(name="a"))
    assert things.stats.operations == operations + 2
    assert rule.etag == (await load(things, "rule")).etag

    with pytest.raises(TransactionFailed) as caught:
        async with things.transaction() as tx:
            rule = await tx.get(Thing, guard=True, group="g", name="rule")
            await things.modify(rule.key, more)
            tx.insert(Thing(name="b"))
    assert (caught.value.index, caught.value.operation) == (0, "get")
    assert isinstance(caught.value.__cause__, PreconditionFailed)
    assert await names(things) == ["a", "rule"]


async def test_a_guard_that_is_written_after_all(things: Database) -> None:
    """Is one operation, under the ETag that was guarded."""
    await things.insert(Thing(name="a"))
    operations = things.stats.operations
    async with things.transaction() as tx:
        thing = await tx.get(Thing, guard=True, group="g", name="a")
        thing.number = 1
        tx.save(thing)
        await tx.get(Thing, guard=True, group="g", name="a")

    assert things.stats.operations == operations + 1
    assert (await load(things, "a")).number == 1


async def test_entities_change_only_when_a_transaction_succeeds(things: Database) -> None:
    """After a failure each is as it was, and can be saved."""
    await things.insert(Thing(name="taken"))
    thing = Thing(name="a")
    await things.insert(thing)
    etag, thing.number = thing.etag, 1
    new = Thing(name="new")

    with pytest.raises(TransactionFailed):
        async with things.transaction() as tx:
            tx.save(thing)
            tx.insert(new)
            tx.insert(Thing(name="taken"))
    assert (thing.etag, new.etag) == (etag, None)
    await things.save(thing)
    await things.insert(new)


async def test_a_transaction_fails_where_there_is_no_row_to_read(things: Database) -> None:
    """The error names the operation; nothing is written."""
    with pytest.raises(TransactionFailed, match="no such row") as raised:
        async with things.transaction() as tx:
            tx.insert(Thing(name="new"))
            tx.replace(Thing(name="a"), if_match="*")

    assert (raised.value.index, raised.value.operation) == (1, "replace")
    cause = raised.value.__cause__
    assert isinstance(cause, EntityNotFound) and cause.code == "ResourceNotFound"
    await things.insert(Thing(name="a"))
    early = await load(things, "a")
    await things.modify(Thing, more, group="g", name="a")
    late = await things.modify(Thing, more, group="g", name="a")
    with pytest.raises(TransactionFailed, match=r"operation 1: replace of .*has changed since it was read") as raised:
        async with things.transaction() as tx:
            tx.insert(Thing(name="new"))
            tx.replace(late, if_match=early.etag)
    assert (raised.value.index, type(raised.value.__cause__)) == (1, PreconditionFailed)
    assert (raised.value.code, raised.value.entity) == ("UpdateConditionNotSatisfied", late)
    assert await things.get_or_none(Thing, group="g", name="new") is None


@also_in_file
async def test_run_transaction_runs_again_after_a_lost_race(things: Database) -> None:
    """Twenty tasks move numbers between two rows: what is read and what is written belong together."""
    await things.insert(Thing(name="a", number=100))
    await things.insert(Thing(name="b"))
    runs = 0

    async def move(tx: Transaction) -> int:
        nonlocal runs
        runs += 1
        a, b = await tx.get(Thing, group="g", name="a"), await tx.get(Thing, group="g", name="b")
        await asyncio.sleep(0)
        a.number, b.number = a.number - 1, b.number + 1
        tx.save(a)
        tx.save(b)
        return b.number

    results = await asyncio.gather(*(things.run_transaction(move) for _ in range(20)))

    assert (await load(things, "a")).number == 80 and (await load(things, "b")).number == 20
    assert sorted(results) == list(range(1, 21)) and runs > 20


async def test_run_transaction_ends(things: Database) -> None:
    """After so many attempts; at once when the function raises; and at the second blind insert of what exists."""
    await things.insert(Thing(name="a"))
    runs = 0

    async def always_late(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        thing = await tx.get(Thing, group="g", name="a", guard=True)
        await things.modify(thing.key, more)

    async def blind(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        tx.insert(Thing(name="a"))

    async def broken(tx: Transaction) -> None:
        raise ZeroDivisionError

    with pytest.raises(TransactionFailed) as caught:
        await things.run_transaction(always_late, attempts=3)
    assert isinstance(caught.value.__cause__, PreconditionFailed) and runs == 3
    runs = 0
    with pytest.raises(TransactionFailed):
        await things.run_transaction(blind)
    assert runs == 2
    with pytest.raises(ZeroDivisionError):
        await things.run_transaction(broken)
    with pytest.raises(ModelError, match="attempts=0"):
        await things.run_transaction(blind, attempts=0)


@pytest.mark.parametrize("way", ["save", "delete", "if_match"])
async def test_run_transaction_says_that_an_entity_from_outside_is_stale(things: Database, way: str) -> None:
    """Each attempt would send the ETag that was read before the first one: the second that is refused is the last."""
    await things.insert(Thing(name="a"))
    stale = await load(things, "a")
    await things.modify(Thing, more, group="g", name="a")
    runs = 0

    async def write(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        tx.upsert(Thing(name="z"))
        if way == "save":
            stale.number = 7
            tx.save(stale)
        elif way == "delete":
            tx.delete(stale)
        else:
            tx.delete(Thing.key(group="g", name="a"), if_match=stale.etag)

    with pytest.raises(TransactionFailed, match=r"Thing \('g', 'a'\).* in the function, .*tx.get") as caught:
        await things.run_transaction(write)
    assert runs == 2 and isinstance(caught.value.__cause__, PreconditionFailed)
    assert (caught.value.index, (await load(things, "a")).number) == (1, 1)
    assert (caught.value.code, caught.value.operation) == (
        caught.value.__cause__.code,
        "save" if way == "save" else "delete",
    )
    assert caught.value.entity == (Thing.key(group="g", name="a") if way == "if_match" else stale)


async def test_an_entity_from_outside_that_the_function_reads_anew_is_written(things: Database) -> None:
    """Only an ETag that was refused before ends the attempts, not the object that has it."""
    await things.insert(Thing(name="a"))
    stale = await load(things, "a")
    runs = 0

    async def write(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        await things.refresh(stale)
        if runs < 4:
            await things.modify(Thing, more, group="g", name="a")
        stale.text = "written"
        tx.save(stale)

    await things.run_transaction(write)
    assert runs == 4 and (await load(things, "a")).text == "written"


async def test_a_closed_transaction_reads_nothing(things: Database) -> None:
    """As it writes nothing."""
    async with things.transaction() as tx:
        pass
    calls: list[Any] = [tx.get(Thing, group="g", name="a"), tx.modify(Thing, more, group="g", name="a")]

    for call in calls:
        with pytest.raises(ModelError, match="closed"):
            await call


async def test_a_guard_leaves_what_is_not_written_yet(things: Database) -> None:
    """An unknown property that was changed, and not saved, stays changed when a transaction guards the entity."""
    thing = Thing(name="a")
    thing.extra["x"] = 1
    await things.insert(thing)
    async with things.transaction() as tx:
        read = await tx.get(Thing, group="g", name="a")
        read.extra["x"] = 2
        await tx.get(Thing, guard=True, group="g", name="a")
        tx.insert(Thing(name="b"))

    assert dict(read.extra) == {"x": 2}
    await things.save(read)
    assert (await load(things, "a")).extra["x"] == 2


async def test_a_merge_of_some_fields_leaves_what_is_not_written_yet(things: Database) -> None:
    """An unknown property that was removed, and not saved, stays removed when other fields are merged."""
    thing = Thing(name="a")
    thing.extra["x"] = 1
    await things.insert(thing)
    del thing.extra["x"]
    await things.merge(thing, only=[Thing.number])

    assert dict(thing.extra) == {}
    await things.save(thing)
    assert "x" not in (await load(things, "a")).extra
