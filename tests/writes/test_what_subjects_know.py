"""
What an entity or bag knows of its row after it was written: as if it had just been read.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm import Database, Entity, Mapped, PropertyBag, connect, field
from tests.writes.verbs import write


class Thing(Entity, table="Things", partition_key="{group}", row_key="{name}"):
    group: Mapped[str] = field(default="g")
    name: Mapped[str] = field(default="a")
    number: Mapped[int] = field(default=0)
    text: Mapped[str | None] = field(default=None)


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with connect("local::memory:") as database:
        await database.create_tables(Thing)
        yield database


@pytest.mark.parametrize("verb", ["save", "merge", "replace", "upsert", "merge in a transaction"])
async def test_a_bag_knows_when_it_was_written(db: Database, verb: str) -> None:
    """It has the time and the ETag of its own write, and not those of the row that it was read as."""
    await db.insert(PropertyBag("Things", "g", "a", {"number": 1}))
    bag = await db.get(PropertyBag.key("Things", "g", "a"))
    before, bag["number"] = bag.timestamp, 7

    await write(db, verb, bag)

    fresh = await db.get(PropertyBag.key("Things", "g", "a"))
    assert bag.timestamp is not None
    assert bag.timestamp != before
    assert (bag.timestamp, bag.etag, dict(bag)) == (fresh.timestamp, fresh.etag, dict(fresh))


async def test_what_a_bag_never_saw_stays(db: Database) -> None:
    """A bag that was merged into a row knows a part of it, also after a write that has read the rest."""
    await db.insert(PropertyBag("Things", "g", "a", {"theirs": 1}))
    bag = PropertyBag("Things", "g", "a", {"mine": 2})
    await db.upsert(bag)
    for name in ("mine", "other"):
        bag[name] = 3
        await db.save(bag)
        del bag[name]
        await db.save(bag)

        assert dict(await db.get(PropertyBag.key("Things", "g", "a"))) == {"theirs": 1}
    bag["mine"] = 1
    read = await db.get(PropertyBag.key("Things", "g", "a"))
    (step,) = db.explain_write("upsert", read).steps
    assert step.body == b'{"theirs":"1","theirs@odata.type":"Edm.Int64"}'
    said = db.explain_write("replace", bag)
    assert ([step.method for step in said.steps], said.transaction, said.before) == (["GET", "PUT"], False, ())
    await db.replace(bag)
    del bag["mine"]
    await db.save(bag)
    assert dict(await db.get(PropertyBag.key("Things", "g", "a"))) == {"theirs": 1}
    await db.replace(bag, drop_extra=True)
    assert dict(await db.get(PropertyBag.key("Things", "g", "a"))) == {}


@pytest.mark.parametrize("more", [{}, {"more": 1}], ids=["known", "unknown"])
async def test_an_entity_knows_when_it_was_written(db: Database, more: dict[str, int]) -> None:
    """The time is that of its last write, also where its row has a property that the model does not know."""
    thing = Thing()
    for name, value in more.items():
        thing.extra[name] = value
    await db.insert(thing)
    thing = await db.get(Thing, group="g", name="a")
    for number in (1, 2):
        thing.number = number
        await db.save(thing)
        fresh = await db.get(Thing, group="g", name="a")
        assert (thing.timestamp, thing.etag) == (fresh.timestamp, fresh.etag)
