"""
Merge, replace, upsert, refresh, and saves of bags and of entities that were loaded in part: what is sent for each, and
what survives.
"""

import datetime as dt
from collections.abc import Iterator
from typing import Any, cast

import pytest
from attrs import validators
from msgspec import structs

from tableorm import (
    Database,
    Edm,
    EncodeError,
    Entity,
    EntityNotFound,
    Field,
    Int32,
    Mapped,
    ModelError,
    NotLoaded,
    Observation,
    PreconditionFailed,
    PropertyBag,
    WriteStep,
    field,
)
from tableorm.models.property_bag import bag_of_row
from tableorm.models.state import set_state, state_of
from tableorm.stores import Row
from tests.writes.things import Grouped, put


class Thing(Grouped):
    tags: Mapped[list[str]] = field(factory=list)


class Sent:
    """The operations that a database has sent since it was asked last."""

    def __init__(self, seen: Observation) -> None:
        self.seen, self.taken = seen, 0

    def take(self) -> list[tuple[str, str | None, Row]]:
        """Verb, condition and properties of each."""
        requests, self.taken = self.seen.requests[self.taken :], len(self.seen.requests)
        return [
            (each.verb.value, each.if_match, {name: value for name, value in each.row.items() if is_property(name)})
            for request in requests
            for each in request.operations
        ]


def is_property(name: str) -> bool:
    return "@" not in name and name not in ("PartitionKey", "RowKey", "Timestamp", "odata.etag")


@pytest.fixture
def sent(things: Database) -> Iterator[Sent]:
    with things.observe(show_values=True) as seen:
        yield Sent(seen)


async def stored(db: Database, name: str) -> dict[str, Any]:
    return dict(await db.get(PropertyBag.key("Things", "g", name)))


async def load(db: Database, name: str) -> Thing:
    return await db.get(Thing, group="g", name=name)


async def load_part(db: Database, name: str, *fields: Field[Any]) -> Thing:
    return await db.select(Thing).where(Thing.group == "g", Thing.name == name).only(*fields).one()


async def test_merge_sends_the_named_fields(things: Database, sent: Sent) -> None:
    """Whether they changed or not, and no others; the others' changes are still to be saved."""
    await things.insert(Thing(name="a", text="t", number=1))
    thing = await load(things, "a")
    sent.take()
    etag = thing.etag
    thing.text = "u"
    await things.merge(thing, only=[Thing.number])

    assert sent.take() == [("merge", etag, {"number": "1"})]
    assert thing.etag != etag
    await things.save(thing)
    assert [row for _, _, row in sent.take()] == [{"text": "u"}]
    await things.merge(thing)
    assert [sorted(row) for _, _, row in sent.take()] == [["number", "tags", "text"]]
    await things.merge(thing, only=[])
    assert sent.take() == []


async def test_merge_does_not_pretend_to_remove(things: Database) -> None:
    """A field that is None is rejected by name if it is asked for or was there; so is what was taken from `extra`."""
    await put(things, "a", text="t", number=1, tags="[]", x=1)
    thing = await load(things, "a")
    thing.text = None

    with pytest.raises(EncodeError, match=r"Thing\.text: .*cannot remove"):
        await things.merge(thing, only=[Thing.text])
    thing.text = "t"
    del thing.extra["x"]
    with pytest.raises(EncodeError, match=r"Thing\.extra\.x: .*cannot remove"):
        await things.merge(thing)
    with pytest.raises(EncodeError, match=r"Thing\.text: .*cannot remove"):
        await things.merge(Thing(name="a"), only=[Thing.text], if_match="*")


async def test_merge_names_what_it_does_not_know(things: Database) -> None:
    """A key field, a field of nothing, and a field that was not loaded."""
    await things.insert(Thing(name="a"))
    thing = await load_part(things, "a", Thing.number)

    for only, kind, message in (
        (["nothing"], ModelError, "nothing is not a field"),
        ([Thing.name], ModelError, r"Thing\.name is held by the key; the stored fields are text"),
        ([Thing.text], NotLoaded, "text was not loaded"),
    ):
        with pytest.raises(kind, match=message):
            await things.merge(thing, only=only)
    await things.merge(thing, only=[Thing.number])


async def test_replace_keeps_what_the_model_does_not_know(things: Database, sent: Sent) -> None:
    """Unknown properties go back as they were read, with their types; unless they are to be dropped."""
    await put(things, "a", text="t", number=1, tags="[]", x=1, **{"y@odata.type": "Edm.Int64", "y": "2"})
    thing = await load(things, "a")
    sent.take()
    etag = thing.etag
    thing.text = "u"
    await things.replace(thing)

    assert sent.take() == [
        ("replace", etag, {"EntityType": "Thing", "text": "u", "number": 1, "tags": "[]", "x": 1, "y": "2"})
    ]
    bag = await things.get(PropertyBag.key("Things", "g", "a"))
    assert (bag.type_of("x"), bag.type_of("y")) == (Edm.INT32, Edm.INT64)
    with pytest.raises(PreconditionFailed):
        await things.replace(thing.evolve(), if_match=etag)
    await things.replace(thing, drop_extra=True)
    assert "x" not in await stored(things, "a") and dict(thing.extra) == {}


async def test_a_forced_replace_of_what_was_never_read_reads_first(things: Database, sent: Sent) -> None:
    """Otherwise it would destroy what a newer program wrote; the write is then under the ETag that was read."""
    await put(things, "a", text="t", novel=1)
    requests = things.stats.requests
    thing = Thing(name="a", number=3)
    await things.replace(thing, if_match="*")

    assert things.stats.requests == requests + 2
    assert await stored(things, "a") == {"EntityType": "Thing", "number": 3, "tags": "[]", "novel": 1}
    assert dict(thing.extra) == {"novel": 1}
    sent.take()
    await things.replace(Thing(name="a"), if_match="*", drop_extra=True)
    assert sent.take() == [("replace", "*", {"EntityType": "Thing", "number": "0", "tags": "[]"})]
    with pytest.raises(EntityNotFound, match=r"replace of Thing \('g', 'b'\)"):
        await things.replace(Thing(name="b"), if_match="*")


@pytest.mark.parametrize("mode", ["merge", "replace"])
async def test_upsert_inserts_or_writes_over(things: Database, sent: Sent, mode: Any) -> None:
    """A merge leaves what the entity does not have, a replace leaves nothing; both give the entity its ETag."""
    thing = Thing(name="a", number=1)
    await things.upsert(thing, mode=mode)
    assert thing.etag == (await load(things, "a")).etag and thing.timestamp is not None
    await put(things, "a", text="t", number=2, x=1)
    sent.take()
    again = Thing(name="a", number=3)
    await things.upsert(again, mode=mode)

    kept = {"text": "t", "x": 1} if mode == "merge" else {}
    assert sent.take()[0][:2] == (f"insert-or-{mode}", None)
    assert await stored(things, "a") == {"EntityType": "Thing", "number": 3, "tags": "[]", **kept}
    assert again.etag == (await load(things, "a")).etag


async def test_a_partly_loaded_entity_removes_under_its_etag(things: Database, sent: Sent) -> None:
    """Removing takes a replace, so the whole row is read first, and must still be the same."""
    await put(things, "a", text="t", number=1, tags='["x"]', x=1)
    thing = await load_part(things, "a", Thing.text, Thing.number)
    stale = await load_part(things, "a", Thing.text)
    sent.take()
    etag = thing.etag
    thing.text, thing.number = None, 5
    await things.save(thing)

    assert sent.take() == [("replace", etag, {"EntityType": "Thing", "number": 5, "tags": '["x"]', "x": 1})]
    stale.text = None
    with pytest.raises(PreconditionFailed):
        await things.save(stale)
    thing.number = 6
    await things.save(thing)
    assert (await stored(things, "a"))["number"] == 6


async def test_a_partly_loaded_entity_is_never_written_in_full(things: Database) -> None:
    """Replace, upsert and insert name what is missing; refresh loads it."""
    await things.insert(Thing(name="a", text="t"))
    thing = await load_part(things, "a", Thing.number)
    bag = bag_of_row("Things", {"PartitionKey": "g", "RowKey": "a", "odata.etag": thing.etag}, partial=True)

    for call in (things.replace, things.insert, things.upsert):
        with pytest.raises(NotLoaded, match=r"without text, tags, which would be lost; refresh\(\)"):
            await call(thing)
        with pytest.raises(NotLoaded, match="were not selected"):
            await call(bag)
    with pytest.raises(NotLoaded):
        await things.upsert(thing, mode="replace")
    await things.refresh(thing)
    assert thing == await load(things, "a")
    await things.replace(thing)


@pytest.mark.parametrize("verb", ["save", "merge", "replace", "upsert"])
async def test_no_verb_moves_a_row(things: Database, verb: str) -> None:
    """A changed key field is rejected by name, and says how to move."""
    thing = Thing(name="a")
    await things.insert(thing)
    thing.name = "b"
    part = await load_part(things, "a", Thing.number)
    part.name, part.number = "b", 1

    with pytest.raises(EncodeError, match=rf"Thing\.name: 'b'.*read as 'a'.* {verb} cannot move a row; to move it"):
        await getattr(things, verb)(thing)
    if verb in ("save", "merge"):
        with pytest.raises(EncodeError, match=r"Thing\.name: 'b'"):
            await getattr(things, verb)(part)
    assert await things.get_or_none(Thing, group="g", name="b") is None


class Tracked(Entity, table="Things", partition_key="tracked_{group}", row_key="{name}", tracked=True):
    group: Mapped[str]
    name: Mapped[str]


async def test_a_move_to_another_partition_says_to_set_a_key_field_back(things: Database) -> None:
    """It takes the new value as an argument; what was assigned before is rejected, and the advice works."""
    thing = Tracked(group="g", name="a")
    await things.insert(thing)
    thing.group = "h"

    with pytest.raises(EncodeError, match=r"a move takes new values from its arguments alone; .* back to 'g' and"):
        await things.move(thing, group="h")
    thing.group = "g"
    await things.move(thing, group="h")
    assert await things.get(Tracked, group="h", name="a") == thing


async def test_modify_moves_no_row(things: Database) -> None:
    """What an entity has got besides is kept by `modify`, so that a changed key field is rejected there as well."""
    thing = Thing(name="a")
    await things.insert(thing)
    thing.name = "b"

    with pytest.raises(EncodeError, match=r"Thing\.name: 'b'.*read as 'a'.* a modify cannot move a row; to move it"):
        await things.modify(thing, lambda _: None)


class Visit(Entity, table="Things", partition_key="visits", row_key="{at:%Y%m}"):
    at: Mapped[dt.datetime]
    note: Mapped[str] = field(default="")


async def test_a_part_of_a_row_tells_its_key_fields(things: Database) -> None:
    """Of an entity that was read in part, the error says what key field it was read with, where a property tells."""
    visit = Visit(at=dt.datetime(2024, 5, 6, tzinfo=dt.UTC))
    await things.insert(visit)
    (part,) = await things.select(Visit).only(Visit.at).all()
    part.at += dt.timedelta(days=40)

    with pytest.raises(EncodeError, match=r"Visit\.at: .*read as datetime\.datetime\(2024, 5, 6"):
        await things.save(part)


MOMENTS = [dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=hours) for hours in range(1_000)]


class Stamped(Entity, abstract=True):
    created: Mapped[dt.datetime | None] = field(default=None, on_insert=lambda: MOMENTS[0])
    updated: Mapped[dt.datetime | None] = field(default=None, on_write=MOMENTS.copy().pop)


class Note(Stamped, table="Things", partition_key="n", row_key="{id}"):
    id: Mapped[str]
    text: Mapped[str] = field(default="", validator=validators.max_len(5))
    size: Mapped[Int32] = field(default=0)


NOTE = Note.key(id="a")


async def test_fields_that_writes_fill(things: Database, sent: Sent) -> None:
    """`on_insert` fills what is None, `on_write` each time; the entity gets the values when the write succeeds."""
    note = Note(id="a")
    await things.insert(note)
    first = note.updated
    assert note.created == MOMENTS[0] and first in MOMENTS
    sent.take()
    await things.save(note)
    assert sent.take() == [] and note.updated == first
    note.text = "t"
    await things.save(note)
    assert [sorted(row) for _, _, row in sent.take()] == [["text", "updated"]]
    second = note.updated
    assert second != first
    await things.merge(note, only=[Note.size])
    assert [sorted(row) for _, _, row in sent.take()] == [["size", "updated"]]

    assert await things.get(NOTE) == note
    third = note.updated
    await things.modify(note, lambda fresh: fresh.evolve(text="u"))
    assert (note.text, note.created) == ("u", MOMENTS[0]) and note.updated != third
    failing = Note(id="a")
    with pytest.raises(Exception, match="has a row"):
        await things.insert(failing)
    assert (failing.created, failing.updated) == (None, None)
    kept = Note(id="b", created=MOMENTS[3])
    await things.upsert(kept)
    assert (await things.get(Note, id="b")).created == MOMENTS[3]


def check_revision(item: Any, attribute: Any, value: int) -> None:
    if value != item.revision:
        raise ValueError(f"{value} is not the revision {item.revision}")


class Revised(Entity, table="Things", partition_key="revised", row_key="{id}"):
    id: Mapped[str]
    shown: Mapped[int] = field(default=0, validator=check_revision)
    revision: Mapped[int] = field(default=0, on_write=lambda: 7)


async def test_validators_see_what_writes_fill(things: Database) -> None:
    """A validator that looks at another field finds the value that is written, and the entity stays as it was."""
    entity = Revised(id="a", shown=0)
    with pytest.raises(ValueError, match="0 is not the revision 7"):
        await things.insert(entity)
    assert entity.revision == 0


@pytest.mark.parametrize("mode", ["merge", "replace"])
async def test_what_an_insert_fills_is_not_filled_over_a_row(things: Database, mode: Any) -> None:
    """An entity that was read is not new, nor is one that replaces a row; whoever inserts it again makes a new one."""
    await things.insert(PropertyBag("Things", "n", "a", {"EntityType": "Note"}))
    read = await things.get(NOTE)
    await things.upsert(read, mode=mode)
    assert (read.created, (await things.get(NOTE)).created) == (None, None)
    unread = Note(id="a", text="u")
    await things.replace(unread, if_match="*")
    assert (unread.created, (await things.get(NOTE)).created) == (None, None)

    await things.delete(NOTE, if_match="*")
    await things.insert(read)
    assert read.created == (await things.get(NOTE)).created == MOMENTS[0]


async def test_validators_see_what_was_loaded(things: Database) -> None:
    """Also when the rest was not."""
    await things.insert(Note(id="a"))
    note = await things.get(NOTE)
    del note.__dict__["size"]
    set_state(note, structs.replace(state_of(note), partial=True))
    note.__dict__["text"] = "too long"

    with pytest.raises(ValueError, match="'text'"):
        await things.save(note)
    del note.__dict__["text"]
    note.size = 3
    await things.save(note)  # nothing is said of a field that was not loaded
    assert (await things.get(NOTE)).size == 3


def test_a_key_field_is_not_filled() -> None:
    """A key must be known before anything is written."""
    with pytest.raises(ModelError, match=r"Bad\.at is part of the key"):

        class Bad(Entity, table="Things", partition_key="p", row_key="{at:%Y%m%d}"):  # pyright: ignore[reportUnusedClass]
            at: Mapped[dt.datetime] = field(on_write=lambda: MOMENTS[0])


async def test_a_write_is_explained(things: Database) -> None:
    """Each request as it would be sent, with its cost; nothing is sent, and nothing changes."""
    requests = things.stats.requests
    new = Thing(name="it's", number=3)
    body = b'{"PartitionKey":"g","RowKey":"it\'s","EntityType":"Thing","number@odata.type":"Edm.Int64","number":"3",'
    assert things.explain_write("insert", new).steps == (WriteStep("POST", "/Things", None, body + b'"tags":"[]"}'),)
    path = "/Things(PartitionKey='g',RowKey='it''s')"
    forced = things.explain_write("replace", new, if_match="*")
    assert [(s.method, s.if_match, s.body) for s in forced.steps] == [
        ("GET", None, b""),
        ("PUT", "the ETag that was read", None),
    ]
    assert forced.cost == 2 and things.stats.requests == requests and new.etag is None

    await things.insert(new)
    assert things.explain_write("save", new).steps == ()
    new.number = 4
    assert str(things.explain_write("save", new)) == (
        f'PATCH {path}\nIf-Match: {new.etag}\n{{"number":"4","number@odata.type":"Edm.Int64"}}\n(1 request, 46 bytes)'
    )
    delete = WriteStep("DELETE", path, "*")
    assert things.explain_write("delete", new.key, if_match="*").steps == (delete,)
    assert str(delete) == f"DELETE {path}\nIf-Match: *"
    with pytest.raises(ModelError, match="is a key"):
        things.explain_write("save", new.key)
    with pytest.raises(ModelError, match="is unknown"):
        things.explain_write(cast(Any, "sing"), new)
