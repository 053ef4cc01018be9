"""
A row stage that the program knows nothing of, written here alone: rows with values that are stored reversed.

What else verbs and readers do with stages is tested with encrypted fields, and here what these do not have: no keys,
conditions, and maintained fields beside them.

`turned = Reversed("note", "secret")` in a class body stores the values of these fields as texts that are read
backwards, with their types, behind a `~`. Whoever reads the rows otherwise sees them so; every verb and query of the
model sees what its fields say.
"""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import attrs
import pytest

from tableorm import (
    Count,
    Database,
    DecodeError,
    Embedded,
    EncodeError,
    Entity,
    EntityExists,
    Index,
    LimitExceeded,
    Mapped,
    ModelError,
    NotSupported,
    TransactionFailed,
    field,
)
from tableorm.models.property_types import FieldInfo
from tableorm.models.row_stage import RowStage
from tableorm.protocol.edm import ANNOTATION
from tableorm.stores import Operation, Row, Verb
from tableorm.testing.faults import Faults
from tableorm_migrations import describe_models
from tests.databases import database_fixture
from tests.rows import insert_row


class Reversed(RowStage):
    def __init__(self, *fields: str, times: int = 1) -> None:
        self.fields, self.times = fields, times

    def bind(self, fields: Mapping[str, FieldInfo]) -> "Reversed":
        bound = Reversed(*self.fields, times=self.times)
        bound.opaque = frozenset(member.property for name in self.fields for member in fields[name].members)
        return bound

    def seal(self, operation: Operation) -> Operation:
        assert operation.verb is not Verb.DELETE
        row = dict(operation.row)
        for name in self._present(row):
            text = f"{row.pop(name + ANNOTATION, '')}|{row[name]}"
            row[name] = "~" + text[::-1] * self.times
        return Operation(operation.verb, row, operation.if_match)

    def unseal(self, row: Row) -> Row:
        row = dict(row)
        for name in self._present(row):
            sealed = row[name]
            if not sealed.startswith("~"):
                raise ValueError(f"{sealed!r} is not reversed")
            kind, _, row[name] = sealed[1 : 1 + (len(sealed) - 1) // self.times][::-1].partition("|")
            if kind:
                row[name + ANNOTATION] = kind
        return row

    def _present(self, row: Row) -> list[str]:
        return [name for name in self.opaque if row.get(name) is not None]


# Models


class Boxed(Entity, table="Stages", partition_key="b", abstract=True):
    pass


class Letter(Boxed, row_key="letter_{id:03d}", write_token=True):
    id: Mapped[int]
    note: Mapped[str | None] = field(default=None)
    secret: Mapped[list[str]] = field(factory=list)
    weight: Mapped[int] = field(default=0)
    sent: Mapped[int] = field(default=0)

    turned = Reversed("note", "secret", "weight")


class Note(Boxed, row_key="note_{id:03d}"):
    id: Mapped[int]
    note: Mapped[str | None]

    turned = Reversed("note")


class Box(Entity, table="Stages", partition_key="{box}", row_key="box"):
    box: Mapped[str] = field(default="b")
    note: Mapped[str] = field(default="n", name="text")
    secret: Mapped[list[str]] = field(factory=lambda: ["s"])
    parcels: Mapped[int] = field(default=0, maintained=True, validator=attrs.validators.le(3), name="note")

    turned = Reversed("note", "secret")


class Parcel(Entity, table="Stages", partition_key="{box}", row_key="parcel_{id:03d}"):
    box: Mapped[str] = field(default="b")
    id: Mapped[int]
    note: Mapped[str] = field(default="n")
    secret: Mapped[list[str]] = field(factory=lambda: ["s"])

    turned = Reversed("note", "secret")
    count = Count(lambda: Box.parcels, box="{box}")


db = database_fixture(Letter, Note, Parcel, Box)


async def stored(db: Database, row_key: str) -> dict[str, Any]:
    """Return the row as it is stored."""
    return dict(await db.store.get("Stages", "b", row_key))


async def get(db: Database, number: int = 1) -> Letter:
    return await db.get(Letter, id=number)


async def test_calls_of_modify_that_wait_for_each_other_unseal_what_is_stored(db: Database) -> None:
    """Each function gets the row as it was read, and is called once: two requests for each call, at most."""
    await db.insert(Note(id=1, note="n"))
    called: list[None] = []

    def add(note: Note) -> None:
        called.append(None)
        note.note = f"{note.note}!"

    with db.observe() as seen:
        await asyncio.gather(*(db.modify(Note, add, id=1) for _ in range(20)))
    assert (await db.get(Note, id=1)).note == "n" + 20 * "!"
    assert len(called) == 20
    assert seen.cost <= 40


async def test_every_verb_seals_what_it_writes(db: Database) -> None:
    """And readers and the audit see what the model says, a projection of some fields too; a snapshot has the fields."""

    async def note(number: int = 1) -> tuple[str | None, str]:
        return (await get(db, number)).note, (await stored(db, f"letter_{number:03d}"))["note"]

    letter = Letter(id=1, note="a1", weight=5)
    await db.insert(letter)
    assert await note() == ("a1", "~1a|")
    letter.note = "a2"
    await db.save(letter)
    assert await note() == ("a2", "~2a|")
    await db.merge(Letter(id=1, note="a3"), only=[Letter.note], if_match="*")
    assert (await note(), (await get(db)).weight) == (("a3", "~3a|"), 5)
    await db.upsert(Letter(id=1, note="a4"))
    assert await note() == ("a4", "~4a|")
    async with db.transaction() as tx:
        tx.save((await get(db)).evolve(note="a5"))
        tx.insert(Letter(id=2, note="b1"))
    async with db.bulk() as bulk:
        for number in range(3, 120):
            await bulk.insert(Letter(id=number, note=f"c{number % 10}"))
    assert [await note(number) for number in (1, 2, 117)] == [("a5", "~5a|"), ("b1", "~1b|"), ("c7", "~7c|")]
    assert {each.note for each in await db.select(Letter).where(Letter.id >= 110).only(Letter.note).all()} == {
        f"c{number}" for number in range(10)
    }
    report = await db.audit(Letter)
    assert (report.clean, report.entities) == (True, 119)
    assert {"note", "weight"} <= describe_models([Letter]).models[0].fields.keys()


async def test_what_is_sent_is_explained(db: Database) -> None:
    """With the properties as they are stored."""
    (step,) = db.explain_write("insert", Letter(id=1, note="abc")).steps
    assert b'"note":"~cba|"' in (step.body or b"")


async def test_a_condition_on_an_opaque_property_is_evaluated_here(db: Database) -> None:
    """Comparisons, `in_`, `startswith`, absence and their negations; the service is asked about the others alone."""
    for number, note in enumerate(["abc", "abd", "b", None, "~"]):
        await db.insert(Letter(id=number, note=note, sent=number, weight=10 + number))
    everything = db.select(Letter)

    async def found(*where: Any) -> list[int]:
        return [each.id for each in await everything.where(*where).all()]

    assert await found(Letter.note == "abc") == [0]
    assert await found(Letter.weight > 9, Letter.weight < 12) == [0, 1]
    assert await found(Letter.note != "abc") == [1, 2, 4]
    assert await found(~(Letter.note > "abc")) == [0]
    assert await found(~(Letter.note > "abc") | (Letter.sent == 4)) == [0, 4]
    assert await found(Letter.note.startswith("ab"), Letter.sent > 0) == [1]
    assert await found(Letter.note.in_(["b", "~"])) == [2, 4]
    assert await found(Letter.note.is_none()) == [3]
    assert await found(~Letter.note.is_none(), Letter.sent < 2) == [0, 1]
    assert await everything.where(Letter.note == "b").only(Letter.sent).all() == [
        each for each in await everything.only(Letter.sent).all() if each.id == 2
    ]
    assert await everything.where(Letter.note >= "abd").count() == 3
    plan = str(everything.where(Letter.note == "abc", Letter.sent > 0).explain())
    assert "note" not in plan.partition("then here")[0].partition("\n")[2]
    assert "sent gt 0" in plan


OPERATIONS = {"insert": "insert", "save": "merge", "upsert": "insert-or-replace", "transaction": "transaction"}


async def test_a_bound_is_judged_with_the_entity_as_the_model_says(db: Database) -> None:
    """A validator of a count sees an entity, although its row is sealed."""
    await db.insert(Box())
    for number in range(3):
        await db.insert(Parcel(id=number))
    with pytest.raises(EncodeError, match=r"Box\.parcels"):
        await db.insert(Parcel(id=3))


@pytest.mark.parametrize(("model", "verb"), [*((Letter, verb) for verb in OPERATIONS), (Note, "upsert")])
@pytest.mark.parametrize("arrives", [True, False])
async def test_a_lost_reply_is_resolved(db: Database, verb: str, arrives: bool, model: type[Letter | Note]) -> None:
    """
    With and without write tokens: what is read then is compared as the model says, so that the entity gets its ETag
    and can be saved again.
    """
    letter = model(id=1, note="abc")
    if verb in ("save", "transaction"):
        await db.insert(letter)
    letter.note = "lost"
    faults = Faults(db)
    with (faults.lose_reply if arrives else faults.lose_request)(OPERATIONS[verb]):
        if verb == "transaction":
            async with db.transaction() as tx:
                tx.save(letter)
        elif verb == "upsert":
            await db.upsert(letter, mode="replace")
        else:
            await getattr(db, verb)(letter)
    letter.note = "again"
    await db.save(letter)
    row = await stored(db, letter.key.row_key)
    assert ((await db.get(model, id=1)).note, row["note"]) == ("again", "~niaga|")


async def test_a_row_that_was_not_sealed_is_refused(db: Database) -> None:
    """By the reader, with its keys, and not by what passes over it."""
    row = {"PartitionKey": "b", "RowKey": "letter_001", "EntityType": "Letter", "note": "plain"}
    await insert_row(db, "Stages", row)
    with pytest.raises(DecodeError, match=r"Letter.*cannot be unsealed: 'plain' is not reversed"):
        await get(db)
    with pytest.raises(DecodeError, match="cannot be unsealed"):
        await db.select(Letter).all()
    with pytest.raises(EntityExists):
        await db.insert(Letter(id=1))
    await db.upsert(Letter(id=1, note="new"))
    assert (await get(db)).note == "new"


class Thick(Boxed, row_key="thick_{id:03d}"):
    id: Mapped[int]
    note: Mapped[str]

    turned = Reversed("note", times=3)


async def test_limits_are_those_of_what_is_stored(db: Database) -> None:
    """What fits by itself and does not fit sealed is rejected before it is sent, with its field; a bulk divides it."""
    with pytest.raises(LimitExceeded, match=r"Thick\.note") as refused:
        db.explain_write("insert", Thick(id=1, note="x" * 12000))
    assert refused.value.field == "note"
    with pytest.raises(TransactionFailed, match="bytes with the headers"):
        async with db.transaction() as tx:
            for number in range(60):
                tx.insert(Thick(id=number, note="€" * 10900))
    async with db.bulk() as bulk:
        for number in range(60):
            await bulk.insert(Thick(id=number, note="€" * 10900))
    thick = await db.get(Thick, id=59)
    assert thick.note == "€" * 10900


async def test_each_class_has_the_stages_of_its_bases(db: Database) -> None:
    """Bound to its own fields: classes may store a field under other names, and declare a stage anew."""

    class Base(Boxed, abstract=True):
        note: Mapped[str] = field(default="abc")
        turned = Reversed("note")

    class One(Base, row_key="one"):
        pass

    class Two(Base, row_key="two"):
        note: Mapped[str] = field(default="abc", name="text")

    class Three(Base, row_key="three"):
        turned = Reversed("note", times=2)

    for entity in (One(), Two(), Three()):
        await db.insert(entity)
        assert await db.get(entity.key) == entity
    rows = [await stored(db, name) for name in ("one", "two", "three")]
    assert [row.get("note") or row["text"] for row in rows] == ["~cba|", "~cba|", "~cba|cba|"]
    assert len(await db.select(Base).where(Base.note == "abc").all()) == 3


def test_what_must_see_an_opaque_property_is_refused() -> None:
    """Expiry, maintained fields, an index that holds it and copies of it, when the class is made."""

    class Whole(Entity, table="Stages2", partition_key="b", row_key="{id}", tracked=True):
        id: Mapped[int]
        note: Mapped[str]
        turned = Reversed("note")

    cases: list[tuple[str, Any, Any]] = [
        (r"Refused\.note can't be used by expiry=True", field(default=None, expiry=True), None),
        (r"Refused\.note can't be used by maintained=True", field(default=None, maintained=True), None),
        (r"Refused\.note can't be used by Refused\.derived", field(default=None), Index(row_key="i_{size}")),
        (
            r"Whole\.note can't be used by Refused\.derived",
            field(default=None),
            Embedded(Whole, {"copied": "note"}, id="{size}"),
        ),
    ]
    for problem, field_of_note, declared in cases:
        with pytest.raises(ModelError, match=problem):

            class Refused(Entity, table="Stages2", partition_key="b", row_key="copy_{size}"):  # pyright: ignore[reportUnusedClass]
                size: Mapped[int]
                note: Mapped[datetime | None] = field_of_note
                copied: Mapped[str | None] = field(default=None, maintained=True)
                turned = Reversed("note")
                derived = declared


async def test_a_move_to_another_partition_is_refused(db: Database) -> None:
    """Its rows would not be sealed."""
    await db.insert(Box())
    parcel = Parcel(id=1)
    await db.insert(parcel)
    with pytest.raises(NotSupported, match=r"Parcel cannot be moved .* row stages"):
        await db.move(parcel, box="c")
