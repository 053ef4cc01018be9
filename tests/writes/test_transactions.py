"""
Transactions that do several things to one row, read what they are about to write, guard what they only read, and run
again after a lost race.
"""

import asyncio
from typing import Any

import pytest

from tableorm import (
    Database,
    EntityExists,
    EntityNotFound,
    ModelError,
    NotSupported,
    PreconditionFailed,
    Transaction,
    TransactionFailed,
)
from tests.database.conftest import also_in_file
from tests.writes.things import Thing, more

THING = Thing.key(name="a")


async def load(db: Database, name: str) -> Thing:
    return await db.get(Thing, name=name)


async def names(db: Database) -> list[str]:
    return [thing.name for thing in await db.select(Thing).all()]


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
                        tx.delete(THING, if_match="*")
                    case "stale":
                        tx.delete(thing, if_match=stale)
                    case _:
                        getattr(tx, step)(thing)
    assert caught.value.index == 1 and isinstance(caught.value.__cause__, cause)
    assert things.stats.requests == requests


async def test_a_guard_fails_the_transaction_if_the_row_has_changed(things: Database) -> None:
    """It counts as an operation, and changes the ETag; the guarded entity knows the new one."""
    await things.insert(Thing(name="rule", number=1))
    operations = things.stats.operations
    async with things.transaction() as tx:
        rule = await tx.get(Thing, guard=True, name="rule")
        tx.insert(Thing(name="a"))
    assert things.stats.operations == operations + 2
    assert rule.etag == (await load(things, "rule")).etag

    with pytest.raises(TransactionFailed) as caught:
        async with things.transaction() as tx:
            rule = await tx.get(Thing, guard=True, name="rule")
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
        thing = await tx.get(THING, guard=True)
        thing.number = 1
        tx.save(thing)
        await tx.get(THING, guard=True)

    assert things.stats.operations == operations + 1
    assert (await load(things, "a")).number == 1


@also_in_file
async def test_run_transaction_runs_again_after_a_lost_race(things: Database) -> None:
    """Twenty tasks move numbers between two rows: what is read and what is written belong together."""
    await things.insert(Thing(name="a", number=100))
    await things.insert(Thing(name="b"))
    runs = 0

    async def move(tx: Transaction) -> int:
        nonlocal runs
        runs += 1
        a, b = await tx.get(THING), await tx.get(Thing, name="b")
        await asyncio.sleep(0)
        a.number, b.number = a.number - 1, b.number + 1
        tx.save(a)
        tx.save(b)
        return b.number

    results = await asyncio.gather(*(things.run_transaction(move) for _ in range(20)))

    assert (await load(things, "a")).number == 80 and (await load(things, "b")).number == 20
    assert sorted(results) == list(range(1, 21)) and runs > 20


@pytest.mark.parametrize("way", ["save", "delete", "if_match"])
async def test_run_transaction_says_that_an_entity_from_outside_is_stale(things: Database, way: str) -> None:
    """Each attempt would send the ETag that was read before the first one: the second that is rejected is the last."""
    await things.insert(Thing(name="a"))
    stale = await load(things, "a")
    await things.modify(THING, more)
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
            tx.delete(THING, if_match=stale.etag)

    with pytest.raises(TransactionFailed, match=r"Thing \('g', 'a'\).* in the function, .*tx.get") as caught:
        await things.run_transaction(write)
    assert runs == 2 and isinstance(caught.value.__cause__, PreconditionFailed)
    assert (caught.value.index, (await load(things, "a")).number) == (1, 1)
    assert (caught.value.code, caught.value.operation) == (
        caught.value.__cause__.code,
        "save" if way == "save" else "delete",
    )
    assert caught.value.entity == (THING if way == "if_match" else stale)


async def test_an_entity_from_outside_that_the_function_reads_anew_is_written(things: Database) -> None:
    """Only an ETag that was rejected before ends the attempts, not the object that has it."""
    await things.insert(Thing(name="a"))
    stale = await load(things, "a")
    runs = 0

    async def write(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        await things.refresh(stale)
        if runs < 4:
            await things.modify(THING, more)
        stale.text = "written"
        tx.save(stale)

    await things.run_transaction(write)
    assert runs == 4 and (await load(things, "a")).text == "written"


async def test_a_closed_transaction_reads_nothing(things: Database) -> None:
    """As it writes nothing."""
    async with things.transaction() as tx:
        pass
    calls: list[Any] = [tx.get(THING), tx.modify(THING, more)]

    for call in calls:
        with pytest.raises(ModelError, match="closed"):
            await call


async def test_a_guard_leaves_what_is_not_written_yet(things: Database) -> None:
    """An unknown property that was changed, and not saved, stays changed when a transaction guards the entity."""
    thing = Thing(name="a")
    thing.extra["x"] = 1
    await things.insert(thing)
    async with things.transaction() as tx:
        read = await tx.get(THING)
        read.extra["x"] = 2
        await tx.get(THING, guard=True)
        tx.insert(Thing(name="b"))

    assert dict(read.extra) == {"x": 2}
    await things.save(read)
    assert (await load(things, "a")).extra["x"] == 2
