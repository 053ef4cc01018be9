"""
`modify`: read, change, write, and again after a lost race.
"""

import asyncio
import datetime as dt
from collections.abc import Coroutine
from typing import Any, cast

import pytest
from attrs import validators

from tableorm import Database, EncodeError, Entity, Int32, Mapped, ModelError, PropertyBag, field
from tests.database.conftest import also_in_file


class Counter(Entity, table="Counters", partition_key="c", row_key="{name}"):
    name: Mapped[str]
    count: Mapped[int] = field(default=0)
    note: Mapped[str | None] = field(default=None)
    small: Mapped[Int32] = field(default=0)


COUNTER = Counter.key(name="a")


class Stamped(Entity, table="Counters", partition_key="c", row_key="{name}"):
    name: Mapped[str]
    count: Mapped[int] = field(default=0, validator=validators.lt(5))
    updated: Mapped[dt.datetime | None] = field(default=None, on_write=lambda: dt.datetime.now(dt.UTC))


def one_more(counter: Counter) -> None:
    counter.count += 1


def five(counter: Counter) -> int:
    return 5


@pytest.fixture
async def counters(db: Database) -> Database:
    await db.create_tables(Counter)
    await db.insert(Counter(name="a"))
    return db


async def test_of_a_bag(counters: Database) -> None:
    """Without knowing the type; each property keeps its EDM type."""
    key = PropertyBag.key("Counters", "c", "a")
    before = await counters.get(key)

    def change(bag: PropertyBag) -> PropertyBag:
        bag["small"] += 1
        bag["count"] += 1
        return bag.copy()

    bag = await counters.modify(key, change)
    assert (bag["small"], bag["count"]) == (1, 1)
    assert bag.type_of("small") == before.type_of("small") and bag.type_of("count") == before.type_of("count")
    await counters.modify(before, change)
    assert before["count"] == 2 and before == await counters.get(key)

    def anew(bag: PropertyBag) -> PropertyBag:
        return PropertyBag(bag.table, bag.partition_key, bag.row_key, {"EntityType": "Counter", "count": 7})

    await counters.modify(key, anew)
    assert dict(await counters.get(key)) == {"EntityType": "Counter", "count": 7}


async def test_a_function_may_return_a_copy(counters: Database) -> None:
    """Of the same key: an evolved one, or a new one, which replaces what the model knows and keeps the rest."""
    bag = await counters.get(PropertyBag.key("Counters", "c", "a"))
    bag["unknown"] = "x"
    await counters.save(bag)
    await counters.modify(COUNTER, lambda counter: counter.evolve(count=5, note="n"))
    await counters.modify(COUNTER, lambda counter: Counter(name=counter.name, count=6))

    stored = await counters.get(COUNTER)
    assert (stored.count, stored.note, dict(stored.extra)) == (6, None, {"unknown": "x"})
    with pytest.raises(
        EncodeError, match=r"Counter\.key: .* is the key of what the function .* cannot move a row"
    ) as raised:
        await counters.modify(COUNTER, lambda counter: Counter(name="b"))
    assert raised.value.misuse
    with pytest.raises(ModelError, match="returned 5"):
        await counters.modify(COUNTER, cast(Any, five))


async def test_asynchronous_functions_are_refused(counters: Database) -> None:
    """By name: what is called once for every attempt must do nothing else."""

    async def later(counter: Counter) -> None: ...

    def hidden(counter: Counter) -> Coroutine[Any, Any, None]:
        return later(counter)

    for function in (hidden, later, 5):
        requests = counters.stats.requests
        with pytest.raises(ModelError) as refused:
            await counters.modify(COUNTER, cast(Any, function))
        assert str(refused.value) == (
            f"modify: {getattr(function, '__qualname__', 5)} is no plain function; give one that changes what it gets, "
            "or returns a changed copy, without awaiting: it is called again after every lost race"
        )
        assert (counters.stats.requests > requests) == (function is hidden)


async def test_unsaved_changes_are_not_read_over(counters: Database) -> None:
    """They are named, and the instance keeps them."""
    counter = await counters.get(COUNTER)
    counter.note = "mine"

    remedy = "was changed and not saved, and modify would read over it; save() first, or change it in the function"
    with pytest.raises(EncodeError) as refused:
        await counters.modify(counter, one_more)
    assert (str(refused.value), counter.note) == (f"Counter.note: 'mine' {remedy}", "mine")
    assert refused.value.misuse
    bag = await counters.get(PropertyBag.key("Counters", "c", "a"))
    bag["note"] = "mine"
    with pytest.raises(EncodeError) as refused:
        await counters.modify(bag, lambda each: None)
    assert (str(refused.value), bag["note"]) == (f"PropertyBag.note: 'mine' {remedy}", "mine")


@also_in_file
async def test_cancelling_at_any_moment(counters: Database) -> None:
    """What was told done is done, what was cancelled happened in full or not at all, and writing goes on."""
    done = 0

    async def work(turns: int) -> None:
        nonlocal done
        task = asyncio.create_task(counters.modify(COUNTER, one_more))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return
        done += 1

    for turns in range(60):
        await work(turns)
    await asyncio.gather(*(work(turns) for turns in range(60)))

    # A write that was given up may still come.
    count = (await counters.modify(COUNTER, one_more)).count
    assert done + 1 <= count <= 121


async def test_by_an_instance_whose_fields_are_filled_on_write(counters: Database) -> None:
    """What the write itself makes is no unsaved change; in transactions too."""
    stamped = Stamped(name="s")
    await counters.insert(stamped)

    def count(each: Stamped) -> None:
        each.count += 1

    await counters.modify(stamped, count)
    async with counters.transaction() as tx:
        await tx.modify(stamped, count)

    assert stamped.count == 2
    assert stamped == await counters.get(Stamped, name="s")


async def test_repairing_what_breaks_a_validator(counters: Database) -> None:
    """An instance is judged after the function, not before."""
    await counters.insert(PropertyBag("Counters", "c", "s", {"EntityType": "Stamped", "count": 9}))
    stamped = await counters.get(Stamped, name="s")

    def repair(each: Stamped) -> None:
        each.count = 4

    await counters.modify(stamped, repair)
    assert (await counters.get(Stamped, name="s")).count == stamped.count == 4


async def test_a_function_must_not_return_the_instance(counters: Database) -> None:
    """It is not what was read; nothing is written, and the instance keeps what it has."""
    instance = await counters.get(COUNTER)

    def confused(_: Counter) -> Counter:
        instance.note = "changed"
        return instance

    with pytest.raises(ModelError, match="not what was read"):
        await counters.modify(instance, confused)

    assert instance == Counter(name="a", note="changed")
    assert (await counters.get(COUNTER)).note is None
