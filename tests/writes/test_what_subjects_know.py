"""
What an entity or bag knows of its row after it was written: as if it had just been read.
"""

import json

import pytest

from tableorm import Database, PropertyBag
from tests.writes.things import Thing
from tests.writes.verbs import write

KEY = PropertyBag.key("Things", "g", "a")


@pytest.mark.parametrize("verb", ["save", "merge", "replace", "upsert", "merge in a transaction"])
async def test_a_bag_knows_when_it_was_written(things: Database, verb: str) -> None:
    """It has the time and the ETag of its own write, and not those of the row that it was read as."""
    await things.insert(PropertyBag("Things", "g", "a", {"number": 1}))
    bag = await things.get(KEY)
    before, bag["number"] = bag.timestamp, 7

    await write(things, verb, bag)

    fresh = await things.get(KEY)
    assert bag.timestamp is not None
    assert bag.timestamp != before
    assert (bag.timestamp, bag.etag, dict(bag)) == (fresh.timestamp, fresh.etag, dict(fresh))


async def test_what_a_bag_never_saw_stays(things: Database) -> None:
    """A bag that was merged into a row knows a part of it, also after a write that has read the rest."""
    await things.insert(PropertyBag("Things", "g", "a", {"theirs": 1}))
    bag = PropertyBag("Things", "g", "a", {"mine": 2})
    await things.upsert(bag)
    for name in ("mine", "other"):
        bag[name] = 3
        await things.save(bag)
        del bag[name]
        await things.save(bag)

        assert dict(await things.get(KEY)) == {"theirs": 1}
    bag["mine"] = 1
    read = await things.get(KEY)
    (step,) = things.explain_write("upsert", read).steps
    assert json.loads(step.body or b"") == {"theirs": "1", "theirs@odata.type": "Edm.Int64"}
    said = things.explain_write("replace", bag)
    assert ([step.method for step in said.steps], said.transaction, said.before) == (["GET", "PUT"], False, ())
    await things.replace(bag)
    del bag["mine"]
    await things.save(bag)
    assert dict(await things.get(KEY)) == {"theirs": 1}
    await things.replace(bag, drop_extra=True)
    assert dict(await things.get(KEY)) == {}


@pytest.mark.parametrize("more", [{}, {"more": 1}], ids=["known", "unknown"])
async def test_an_entity_knows_when_it_was_written(things: Database, more: dict[str, int]) -> None:
    """The time is that of its last write, also where its row has a property that the model does not know."""
    thing = Thing(name="a")
    for name, value in more.items():
        thing.extra[name] = value
    await things.insert(thing)
    thing = await things.get(Thing, name="a")
    for number in (1, 2):
        thing.number = number
        await things.save(thing)
        fresh = await things.get(Thing, name="a")
        assert (thing.timestamp, thing.etag) == (fresh.timestamp, fresh.etag)
