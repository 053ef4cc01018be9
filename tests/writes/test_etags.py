"""
Writes under another ETag than the entity was read with, or under none: what the entity may claim to know afterwards.
"""

from typing import Any

import pytest

from tableorm import Database, EntityNotFound, ModelError, NotLoaded, PreconditionFailed, PropertyBag
from tests.rows import put_row
from tests.writes.things import Second, Thing


async def put(db: Database, name: str, group: str = "g", kind: str = "Thing", **properties: Any) -> None:
    row = {"PartitionKey": group, "RowKey": name, "EntityType": kind, **properties}
    await put_row(db, "Things", row)


async def stored(db: Database, name: str, group: str = "g") -> dict[str, Any]:
    return dict(await db.get(PropertyBag.key("Things", group, name)))


async def read_and_overtaken(db: Database) -> tuple[Thing, str]:
    """An entity as it was read, and the ETag that the row has since another has changed it."""
    await put(db, "a", text="t", number=1)
    mine, other = await db.get(Thing, name="a"), await db.get(Thing, name="a")
    other.number, other.extra["new"] = 2, "n"
    await db.save(other)
    assert other.etag is not None
    return mine, other.etag


@pytest.mark.parametrize("forced", [True, False])
async def test_merging_some_fields_over_another_version_gives_no_etag(things: Database, forced: bool) -> None:
    """The next write under that ETag would overwrite what the entity never saw; it is rejected until it is read."""
    mine, etag = await read_and_overtaken(things)
    mine.text = "mine"
    await things.merge(mine, only=[Thing.text], if_match="*" if forced else etag)

    assert mine.etag is None
    mine.text = None
    for write in (things.save, things.replace, things.merge, things.delete):
        with pytest.raises(PreconditionFailed):
            await write(mine)
    assert await stored(things, "a") == {"EntityType": "Thing", "text": "mine", "number": 2, "new": "n"}
    await things.refresh(mine)
    mine.text = None
    await things.save(mine)
    assert await stored(things, "a") == {"EntityType": "Thing", "number": 2, "new": "n"}


async def test_merging_all_fields_over_another_version_does_not_know_the_rest(things: Database) -> None:
    """The entity has the ETag, and a removal reads what else the row has."""
    mine, etag = await read_and_overtaken(things)
    await things.merge(mine, if_match=etag)
    assert mine.etag is not None
    mine.text = None
    await things.save(mine)

    assert await stored(things, "a") == {"EntityType": "Thing", "number": 1, "new": "n"}


@pytest.mark.parametrize("verb", ["forced", "etag", "upsert"])
async def test_an_upgraded_entity_is_written_over_the_row_as_it_is_now(things: Database, verb: str) -> None:
    """A merge must not leave the row half old, and a replace by what was read would destroy what was added since."""
    await put(things, "a", "s", "Second", old="t", number=1)
    entity = await things.get(Second, name="a")
    await put(things, "a", "s", "Second", old="t2", number=2, new="n")
    etag = (await things.get(PropertyBag.key("Things", "s", "a"))).etag
    entity.number = 7
    if verb == "upsert":
        await things.upsert(entity)
    else:
        await things.merge(entity, only=[Second.number], if_match="*" if verb == "forced" else etag)

    text = "t" if verb == "upsert" else "t2"
    assert await stored(things, "a", "s") == {"EntityType": "Second:2", "text": text, "number": 7, "new": "n"}
    if verb == "upsert":
        return
    # It still shows the text that it was read with, so that its next write must not follow.
    assert entity.etag is None
    with pytest.raises(PreconditionFailed):
        await things.save(entity)


@pytest.mark.parametrize("only", [[Second.text], None])
async def test_merging_over_a_row_of_an_older_version(things: Database, only: list[Any] | None) -> None:
    """Whoever has not read the row need not know its version: it is upgraded first, and no row is half old."""
    await put(things, "a", "s", "Second", old="t", number=3, new="n")
    await things.merge(Second(name="a", text="mine"), only=only, if_match="*")

    number = 3 if only else 0
    assert await stored(things, "a", "s") == {"EntityType": "Second:2", "text": "mine", "number": number, "new": "n"}


async def test_a_guard_of_an_upgraded_entity_writes_nothing(things: Database) -> None:
    """The row stays of its version, under a new ETag, and what is saved later is upgraded."""
    await put(things, "a", "s", "Second", old="t", number=1)
    async with things.transaction() as tx:
        entity = await tx.get(Second, name="a", guard=True)
    assert await stored(things, "a", "s") == {"EntityType": "Second", "old": "t", "number": 1}

    await things.save(entity)
    assert await stored(things, "a", "s") == {"EntityType": "Second:2", "text": "t", "number": 1}


async def test_a_deletion_that_finds_no_row_leaves_no_etag(things: Database) -> None:
    """With missing_ok: the row is as gone as after a deletion."""
    thing = Thing(name="a")
    await things.insert(thing)
    await things.delete(thing.key, if_match="*")
    with pytest.raises(EntityNotFound):
        await things.delete(thing)
    assert thing.etag is not None
    await things.delete(thing, missing_ok=True)

    assert thing.etag is None


async def test_key_fields_beside_an_entity_are_refused(things: Database) -> None:
    """They would be ignored, and another row be written than they say."""
    thing = Thing(name="a")
    await things.insert(thing)
    target: Any = thing
    for call in (things.delete(target, name="b"), things.modify(target, lambda _: None, name="b")):
        with pytest.raises(ModelError, match="has its key already"):
            await call
    async with things.transaction() as tx:
        with pytest.raises(ModelError, match="has its key already"):
            await tx.modify(target, lambda _: None, name="b")

    assert thing.etag == (await things.get(Thing, name="a")).etag


async def test_what_was_loaded_in_part_and_deleted_is_not_inserted(things: Database) -> None:
    """The error says which fields are missing, and there is nothing to refresh; once they are set it is."""
    await put(things, "a", text="t", number=1)
    thing = (await things.select(Thing).allow_scan().only(Thing.text).all())[0]
    await things.delete(thing)
    with pytest.raises(NotLoaded, match="without number, and then deleted; set them first"):
        await things.insert(thing)
    thing.number = 3
    await things.insert(thing)

    assert await stored(things, "a") == {"EntityType": "Thing", "text": "t", "number": 3}
