"""
One object stands for a row in a transaction: which one it is, that others are rejected, and what a failure leaves of
it.
"""

import asyncio
from typing import Any

import pytest

from tableorm import (
    Database,
    EncodeError,
    Mapped,
    NotLoaded,
    NotRead,
    NotSupported,
    PropertyBag,
    TransactionFailed,
    field,
)
from tableorm.models.property_bag import bag_of_row
from tests.writes.things import Named, more


class Thing(Named, table="Things", partition_key="g", row_key="{name}"):
    name: Mapped[str] = field(default="a")
    note: Mapped[str | None] = field(default=None)


THING = Thing.key(name="a")


KEY = PropertyBag.key("Things", "g", "a")


async def test_a_second_object_of_a_row_is_refused(things: Database) -> None:
    """Whatever it is given to, once the transaction was given another, or has read one; nothing is written."""
    await things.insert(Thing(text="t"))
    one, two = await things.get(THING), await things.get(THING)
    two.number = 7
    for held in ("saved", "read", "modified"):
        for verb in ("save", "merge", "replace", "upsert", "delete", "modify"):
            with pytest.raises(NotSupported, match=r"another object stands for the row.* `await tx.get\(...\)`"):
                async with things.transaction() as tx:
                    if held == "saved":
                        one.number += 1
                        tx.save(one)
                    elif held == "read":
                        await tx.get(THING)
                    else:
                        await tx.modify(THING, more)
                    if verb == "modify":
                        await tx.modify(two, more)
                    else:
                        getattr(tx, verb)(two)
    assert await things.get(THING) == Thing(text="t")


async def test_a_row_that_was_deleted_can_be_given_anew(things: Database) -> None:
    """By another object, which stands for it then."""
    await things.insert(Thing(text="t"))
    thing = await things.get(THING)
    new = Thing(number=7)
    async with things.transaction() as tx:
        tx.delete(thing)
        tx.upsert(new, mode="replace")
        assert await tx.modify(THING, more) is new
    assert await things.get(THING) == new == Thing(number=8)


async def test_a_changed_key_is_not_that_of_the_row_that_is_held(things: Database) -> None:
    """An entity that was given to the transaction and has another key now was never read there."""
    thing = Thing()
    with pytest.raises(NotRead, match=r"save of Thing.*it was neither read nor written"):
        async with things.transaction() as tx:
            tx.insert(thing)
            thing.name = "b"
            tx.save(thing)
    assert await things.get_or_none(THING) is None


async def test_get_and_modify_give_the_one_object_back(things: Database) -> None:
    """The one that was given, or that was read first, also where two tasks read at the same time."""
    thing = Thing()
    await things.insert(thing)
    async with things.transaction() as tx:
        thing.text = "t"
        tx.save(thing)
        assert await tx.modify(thing, more) is thing
        assert await tx.modify(THING, lambda each: each.evolve(note="n")) is thing
        assert await tx.get(THING) is thing
        with pytest.raises(NotSupported, match="another object stands for the row"):
            await tx.get(KEY)
    assert thing == await things.get(THING) == Thing(number=1, text="t", note="n")
    assert thing.etag == (await things.get(KEY)).etag

    async with things.transaction() as tx:
        one, two = await asyncio.gather(tx.get(THING), tx.get(THING))
        assert one is two


@pytest.mark.parametrize("kind", ["entity", "bag"])
@pytest.mark.parametrize("how", ["the block", "the store", "the function"])
async def test_a_failed_transaction_leaves_objects_as_they_were(things: Database, kind: str, how: str) -> None:
    """What `modify` has made of them is taken back, so that the transaction can be repeated."""
    await things.insert(Thing())
    subject: Any = await things.get(THING if kind == "entity" else KEY)
    etag = subject.etag
    await things.modify(THING, more)

    def change(each: Any) -> Any:
        if kind == "entity":
            each.number, each.extra["list"] = each.number + 1, "x"
            return each.evolve(text="t")
        each["number"], each["list"] = each["number"] + 1, "x"
        return None

    def broken(each: Any) -> Any:
        change(each)
        raise ZeroDivisionError

    with pytest.raises((ZeroDivisionError, TransactionFailed)):
        async with things.transaction() as tx:
            await tx.modify(subject, change)
            await tx.modify(subject, broken if how == "the function" else change)
            if how == "the store":
                await things.modify(THING, more)
            else:
                raise ZeroDivisionError

    old = Thing() if kind == "entity" else PropertyBag("Things", "g", "a", {"EntityType": "Thing", "number": 0})
    assert subject == old
    assert subject.etag == etag
    await things.modify(subject, change)
    number = 3 if how == "the store" else 2
    assert (await things.get(KEY))["number"] == number


async def test_a_failed_transaction_leaves_a_projected_bag_as_it_was(things: Database) -> None:
    """It has only what was selected, and still may not replace its row."""
    await things.insert(Thing(note="n"))
    row = (await things.get(KEY)).row
    kept = ("PartitionKey", "RowKey", "odata.etag", "number", "number@odata.type")
    bag = bag_of_row("Things", {name: row[name] for name in kept}, partial=True)

    def change(each: PropertyBag) -> None:
        each["number"] = 5

    with pytest.raises(ZeroDivisionError):
        async with things.transaction() as tx:
            await tx.modify(bag, change)
            raise ZeroDivisionError

    assert dict(bag) == {"number": 0}
    with pytest.raises(NotLoaded):
        await things.replace(bag)


async def test_unsaved_changes_of_an_instance_are_not_read_over(things: Database) -> None:
    """What was changed since the transaction was given it, as outside of one."""
    thing = Thing()
    with pytest.raises(EncodeError, match=r"Thing\.number: 5 was changed and not saved"):
        async with things.transaction() as tx:
            tx.insert(thing)
            thing.number = 5
            await tx.modify(thing, more)
    assert await things.get_or_none(THING) is None


async def test_what_is_read_when_the_block_ends_is_given_once(things: Database) -> None:
    """The error says so of every verb."""
    await things.insert(Thing(text="t"))
    new = Thing(number=1)
    for verb in ("save", "replace", "merge", "delete", "modify"):
        with pytest.raises(NotSupported, match="were not read"):
            async with things.transaction() as tx:
                tx.replace(new, if_match="*")
                if verb == "modify":
                    await tx.modify(new, more)
                else:
                    getattr(tx, verb)(new)


@pytest.mark.parametrize("verb", ["save", "replace"])
@pytest.mark.parametrize("kind", ["transaction", "bulk"])
async def test_a_bag_is_written_as_it_was_given(things: Database, verb: str, kind: str) -> None:
    """Also if its row has to be read for it: what is changed later belongs to another write."""
    await things.insert(PropertyBag("Things", "g", "a", {"other": 1}))
    bag = PropertyBag("Things", "g", "a", {"n": 1, "text": "t"})
    await things.upsert(bag)
    del bag["text"]
    if kind == "transaction":
        async with things.transaction() as tx:
            tx.save(bag) if verb == "save" else tx.replace(bag)
            bag["n"], bag["late"] = 2, True
    else:
        async with things.bulk() as bulk:
            await (bulk.save(bag) if verb == "save" else bulk.replace(bag))
            bag["n"], bag["late"] = 2, True

    assert dict(await things.get(KEY)) == {"n": 1, "other": 1}
    await things.save(bag)
    assert dict(await things.get(KEY)) == {"n": 2, "other": 1, "late": True}
