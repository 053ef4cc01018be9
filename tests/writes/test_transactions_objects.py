"""
Several objects of one row in a transaction: which of them knows what the row will be, and what becomes of the others.
"""

import pytest

from tableorm import (
    Database,
    EncodeError,
    Entity,
    EntityNotFound,
    Mapped,
    NotSupported,
    PropertyBag,
    TransactionFailed,
    field,
    upgrade,
)


class Thing(Entity, table="Things", partition_key="g", row_key="{name}"):
    name: Mapped[str] = field(default="a")
    number: Mapped[int] = field(default=0)
    text: Mapped[str | None] = field(default=None)
    note: Mapped[str | None] = field(default=None)


class Versioned(Entity, table="Things", partition_key="g", row_key="{name}", version=2):
    name: Mapped[str] = field(default="v")
    number: Mapped[int] = field(default=0)


@upgrade(Versioned, from_version=1)
def years_to_number(bag: PropertyBag) -> PropertyBag:
    bag["number"] = bag.pop("years", 0)
    return bag


KEY = PropertyBag.key("Things", "g", "a")


@pytest.fixture
async def things(db: Database) -> Database:
    await db.create_tables(Thing)
    return db


def more(thing: Thing) -> None:
    thing.number += 1


async def in_part(db: Database) -> Thing:
    """The one row, without its note."""
    (thing,) = await db.select(Thing).where(Thing.name == "a").only(Thing.number, Thing.text).all()
    return thing


async def test_an_object_does_not_undo_what_another_has_changed_since(things: Database) -> None:
    """Not even if the transaction was given that object before."""
    await things.insert(Thing())
    thing = await things.get(Thing, name="a")
    with pytest.raises(NotSupported, match="through another object"):
        async with things.transaction() as tx:
            thing.text = "t"
            tx.save(thing)
            await tx.modify(Thing, more, name="a")
            thing.text = "u"
            tx.save(thing)
    assert await things.get(Thing, name="a") == Thing()


async def test_a_new_object_is_not_upserted_over_what_the_transaction_writes(things: Database) -> None:
    """It knows nothing of that, nor does the first object of what it would write."""
    await things.insert(Thing(text="t"))
    thing = await things.get(Thing, name="a")
    for mode in ("merge", "replace"):
        with pytest.raises(NotSupported, match="through another object"):
            async with things.transaction() as tx:
                thing.number += 1
                tx.save(thing)
                tx.upsert(Thing(number=7), mode="merge" if mode == "merge" else "replace")
    async with things.transaction() as tx:
        tx.delete(thing)
        tx.upsert(Thing(number=7), mode="replace")
    assert await things.get(Thing, name="a") == Thing(number=7)


async def test_what_was_modified_goes_on_by_the_result(things: Database) -> None:
    """The instance becomes that when the block has succeeded; until then it would undo the change."""
    thing = Thing()
    await things.insert(thing)
    async with things.transaction() as tx:
        thing.text = "t"
        tx.save(thing)
        result = await tx.modify(thing, more)
        with pytest.raises(NotSupported, match="through another object"):
            tx.save(thing)
        result.note = "n"
        tx.save(result)
        await tx.modify(thing, more)

    assert thing == result == await things.get(Thing, name="a") == Thing(number=2, text="t", note="n")
    assert thing.etag == result.etag == (await things.get(KEY)).etag


async def test_unsaved_changes_of_an_instance_are_not_read_over(things: Database) -> None:
    """What was changed since the transaction was given it, as outside of one."""
    thing = Thing()
    with pytest.raises(EncodeError, match=r"Thing\.number: 5 was changed and not saved"):
        async with things.transaction() as tx:
            tx.insert(thing)
            thing.number = 5
            await tx.modify(thing, more)
    assert await things.get_or_none(Thing, name="a") is None


async def test_a_removal_after_a_row_was_read_is_a_removal(things: Database) -> None:
    """Also of a property that the object which was given first does not know."""
    await things.insert(Thing(note="n"))
    part = await in_part(things)

    def without_note(bag: PropertyBag) -> None:
        del bag["note"]

    async with things.transaction() as tx:
        part.number = 1
        tx.save(part)
        await tx.modify(KEY, without_note)

    assert await things.get(Thing, name="a") == Thing(number=1)


async def test_a_row_of_an_older_version_is_upgraded_in_full(things: Database) -> None:
    """If it is read after something was merged into it."""
    await things.insert(PropertyBag("Things", "g", "v", {"EntityType": "Versioned", "years": 3}))

    def double(entity: Versioned) -> None:
        entity.number *= 2

    async with things.transaction() as tx:
        tx.upsert(PropertyBag("Things", "g", "v", {"other": 1}))
        await tx.modify(Versioned, double, name="v")

    stored = await things.get(PropertyBag.key("Things", "g", "v"))
    assert dict(stored) == {"EntityType": "Versioned:2", "number": 6, "other": 1}


async def test_what_was_loaded_in_part_says_why_it_cannot_remove(things: Database) -> None:
    """Another object has written the row, or the transaction deletes it."""
    await things.insert(Thing(text="t"))
    whole, part = await things.get(Thing, name="a"), await in_part(things)
    with pytest.raises(NotSupported, match="through another object"):
        async with things.transaction() as tx:
            whole.number = 1
            tx.save(whole)
            part.text = None
            tx.save(part)
    with pytest.raises(TransactionFailed, match=r"operation 1: .* has deleted the row") as caught:
        async with things.transaction() as tx:
            tx.delete(KEY, if_match="*")
            tx.save(part)
    assert isinstance(caught.value.__cause__, EntityNotFound)
    assert await things.get(Thing, name="a") == Thing(text="t")


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


async def test_an_object_does_not_take_over_what_another_has_not_saved(things: Database) -> None:
    """It becomes what was written, not what the other one has become since."""
    await things.insert(Thing())
    async with things.transaction() as tx:
        one = await tx.modify(Thing, more, name="a")
        two = await tx.get(Thing, name="a")
        one.text = "not given"

    assert two == Thing(number=1)
    requests = things.stats.requests
    await things.save(two)
    assert things.stats.requests == requests
    await things.save(one)
    assert await things.get(Thing, name="a") == Thing(number=1, text="not given")


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
