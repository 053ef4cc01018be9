"""
What a row has and an entity or bag does not know, after the row was read for a write: no later save removes it.
"""

import pytest

from tableorm import Database, Index, PropertyBag
from tests.writes.test_transactions_objects import Thing


class Indexed(Thing, row_key="thing_{name}"):
    by_number = Index(row_key="number_{number:04d}_{name}")


@pytest.fixture
async def things(db: Database) -> Database:
    await db.create_tables(Thing, Indexed)
    return db


async def stored(db: Database, row_key: str) -> dict[str, object]:
    bag = await db.get(PropertyBag.key("Things", "g", row_key))
    return {name: value for name, value in bag.items() if not name.startswith("_")}


@pytest.mark.parametrize("verb", ["upsert", "merge"])
async def test_what_was_merged_over_an_indexed_row_is_saved_without_loss(things: Database, verb: str) -> None:
    """Of fields that the entity has not, and of properties that the model does not know."""
    other = Indexed(text="t")
    other.extra["more"] = 1
    await things.insert(other)
    entity = Indexed(number=2)
    assert not entity.extra
    await (things.upsert(entity) if verb == "upsert" else things.merge(entity, if_match="*"))
    requests = things.stats.requests
    await things.save(entity)
    assert things.stats.requests == requests
    entity.number = 3
    await things.save(entity)

    assert await stored(things, "thing_a") == {"EntityType": "Indexed", "number": 3, "text": "t", "more": 1}
    assert (await things.get(Indexed.by_number, number=3, name="a")).text == "t"


@pytest.mark.parametrize("model", [Thing, Indexed])
async def test_removing_from_what_was_merged_removes_nothing_else(things: Database, model: type[Thing]) -> None:
    """An entity that has not seen a text has not removed it."""
    other = model(name="a", text="t", note="n")
    await things.insert(other)
    entity = model(name="a", note="m")
    await things.upsert(entity)
    entity.note = None
    await things.save(entity)
    entity.number = 1
    await things.save(entity)

    expected = model(name="a", number=1, text="t")
    assert await things.get(model, name="a") == expected
    await things.refresh(entity)
    entity.text = None
    await things.save(entity)
    assert await things.get(model, name="a") == model(name="a", number=1)


async def test_defaults_of_what_a_row_does_not_have_are_no_change(things: Database) -> None:
    """Neither for a save, which sends nothing, nor for modify, which has nothing to read over."""
    await things.insert(PropertyBag("Things", "g", "a", {"EntityType": "Thing"}))
    thing = await things.get(Thing, name="a")
    operations = things.stats.operations
    await things.save(thing)
    assert things.stats.operations == operations

    def more(each: Thing) -> None:
        each.text = f"{each.number}"

    await things.modify(thing, more)
    assert (await things.get(Thing, name="a")).text == "0"
    thing.number = 1
    await things.save(thing)
    assert (await stored(things, "a"))["number"] == 1


async def test_defaults_are_not_written_over_what_was_never_seen(things: Database) -> None:
    """After a field of a new entity was merged into whatever is there; what differs from its default is."""
    await things.insert(Thing(number=7, note="n"))
    thing = Thing(text="t")
    await things.merge(thing, only=[Thing.text], if_match="*")
    thing.text = "u"
    await things.save(thing)
    assert await things.get(Thing, name="a") == Thing(number=7, text="u", note="n")

    (part,) = await things.select(Thing).where(Thing.name == "a").only(Thing.text).all()
    part.number = 0
    await things.save(part)
    assert await things.get(Thing, name="a") == Thing(number=0, text="u", note="n")
