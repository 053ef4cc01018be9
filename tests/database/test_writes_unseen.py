"""
What a row has and an entity or bag does not know, after the row was read for a write: no later save removes it.
"""

from typing import Literal

import pytest

from tableorm import Database, Entity, Index, Mapped, PropertyBag, field


class Thing(Entity, table="Things", partition_key="g", row_key="{name}"):
    name: Mapped[str]
    number: Mapped[int] = field(default=0)
    text: Mapped[str | None] = field(default=None)
    note: Mapped[str | None] = field(default=None)


class Indexed(Thing, row_key="thing_{name}"):
    by_number = Index(row_key="number_{number:04d}_{name}")


@pytest.fixture
async def things(db: Database) -> Database:
    await db.create_tables(Thing)
    return db


async def stored(db: Database, row_key: str) -> dict[str, object]:
    bag = await db.get(PropertyBag.key("Things", "g", row_key))
    return {name: value for name, value in bag.items() if not name.startswith("_")}


@pytest.mark.parametrize("verb", ["upsert", "merge"])
async def test_what_was_merged_over_an_indexed_row_is_saved_without_loss(things: Database, verb: str) -> None:
    """Of fields that the entity has not, and of properties that the model does not know."""
    other = Indexed(name="a", text="t")
    other.extra["more"] = 1
    await things.insert(other)
    entity = Indexed(name="a", number=2)
    assert not entity.extra
    await (things.upsert(entity) if verb == "upsert" else things.merge(entity, if_match="*"))
    requests = things.stats.requests
    await things.save(entity)
    assert things.stats.requests == requests
    entity.number = 3
    await things.save(entity)

    assert await stored(things, "thing_a") == {"EntityType": "Indexed", "number": 3, "text": "t", "more": 1}
    assert (await things.get(Indexed.by_number, number=3, name="a")).text == "t"


async def test_a_bag_that_was_merged_removes_only_what_it_had(things: Database) -> None:
    """By a save, for which the row is read; what the row has beside that stays by the next one too."""
    await things.insert(PropertyBag("Things", "g", "a", {"other": 1}))
    bag = PropertyBag("Things", "g", "a", {"n": 1, "text": "t"})
    await things.upsert(bag)
    del bag["text"]
    await things.save(bag)
    bag["n"] = 2
    await things.save(bag)
    assert await stored(things, "a") == {"n": 2, "other": 1}

    await things.refresh(bag)
    del bag["other"]
    await things.save(bag)
    assert await stored(things, "a") == {"n": 2}


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


@pytest.mark.parametrize("if_match", [None, "*"])
async def test_unknown_properties_that_a_replace_has_read_stay(things: Database, if_match: Literal["*"] | None) -> None:
    """By the next save too, although the entity's `extra` was looked at before."""
    await things.insert(PropertyBag("Things", "g", "a", {"EntityType": "Thing", "more": 1}))
    entity = Thing(name="a", text="t")
    assert not entity.extra
    await things.upsert(entity)
    entity.extra["mine"] = True
    await things.replace(entity, if_match=if_match)
    entity.number = 5
    await things.save(entity)

    expected = {"EntityType": "Thing", "more": 1, "mine": True, "number": 5, "text": "t"}
    assert await stored(things, "a") == expected
