"""
Random assignments: whatever a program assigns to an entity that was read is what a reader finds after any write of it.

The oracle is a dictionary. Rows are put there as other programs would: without some properties, and with whole numbers
stored as Int32 or Int64.
"""

import datetime as dt
import enum
import json
from copy import copy
from typing import Annotated, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tableorm import Database, Edm, Entity, Index, Int32, Mapped, PropertyBag, field
from tests.databases import memory_database
from tests.torture import examples
from tests.writes.verbs import write

MADE = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Wide(enum.Enum):
    ONE = 1
    MANY = 2**40


class Fields(Entity, abstract=True):
    id: Mapped[str]
    text: Mapped[str | None] = field(default="text")
    tags: Mapped[list[str] | None] = field(factory=list)
    name: Mapped[str] = field(default="name")
    marks: Mapped[list[str]] = field(factory=list)
    count: Mapped[int] = field(default=0)
    total: Mapped[int | None] = field(default=7)
    level: Mapped[Annotated[Level, Int32]] = field(default=Level.LOW)
    wide: Mapped[Wide | None] = field(default=Wide.ONE)
    share: Mapped[float] = field(default=0.0)
    due: Mapped[dt.datetime | None] = field(default=None, on_write=lambda: MADE)
    owner: Mapped[str] = field(default="nobody", on_write=lambda: "writer")


class Plain(Fields, table="Random", partition_key="p", row_key="plain_{id}"):
    pass


class Indexed(Fields, table="Random", partition_key="p", row_key="indexed_{id}"):
    by_text = Index(row_key="text_{text}_{id}", include=["count", "wide"])


NUMBERS = st.sampled_from([0, 1, 7, -5, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.sampled_from([None, "text", "other"]),
    "tags": st.sampled_from([None, [], ["a"]]),
    "name": st.sampled_from(["name", "", "x"]),
    "marks": st.sampled_from([[], ["a"]]),
    "count": NUMBERS,
    "total": st.none() | NUMBERS,
    "level": st.sampled_from(Level),
    "wide": st.none() | st.sampled_from(Wide),
    "share": st.sampled_from([0.0, -0.0, 1.0, 2.5]),
    "due": st.sampled_from([None, MADE, MADE + dt.timedelta(hours=9)]),
    "owner": st.sampled_from(["nobody", "writer", "ann"]),
}
ABSENT: dict[str, Any] = {"name": "name", "marks": [], "count": 0, "level": Level.LOW, "share": 0.0, "owner": "nobody"}
"""What fields are read as whose properties a row lacks; all others are None."""

FILLED = {"due": MADE, "owner": "writer"}
INTEGERS = ("count", "total", "wide")

VERBS = (
    "save",
    "merge",
    "replace",
    "upsert",
    "upsert over",
    "modify",
    "save in a transaction",
    "save in a bulk",
    "pair",
)


def some_values() -> st.SearchStrategy[dict[str, Any]]:
    """Values of any of the fields."""
    return st.fixed_dictionaries({}, optional=VALUES)


async def put(db: Database, model: type[Any], values: dict[str, Any], *, small: bool) -> None:
    """Store an entity as another program does: nothing but these values, and perhaps whole numbers as Int32."""
    bag = PropertyBag("Random", *row_of(model), {"EntityType": model.__name__})
    for name, value in values.items():
        plain = value.value if isinstance(value, enum.Enum) else value
        if isinstance(value, list):
            bag[name] = json.dumps(value, separators=(",", ":"))
        elif isinstance(plain, int):
            fits = -(2**31) <= plain < 2**31
            bag.set(name, plain, Edm.INT32 if name == "level" or (small and fits) else Edm.INT64)
        else:
            bag[name] = plain
    await db.insert(bag)
    await db.audit(model, repair=True)  # which writes the index entries


def row_of(model: type[Any]) -> tuple[str, str]:
    key = model.key(id="a")
    return key.partition_key, key.row_key


def read_of(values: dict[str, Any]) -> dict[str, Any]:
    """The oracle: what an entity is read as that was stored with these values alone."""
    return {name: ABSENT.get(name) if values.get(name) is None else values[name] for name in VALUES}


def assign(entity: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(entity, name, copy(value))


async def assign_and_write(db: Database, verb: str, model: type[Any], entity: Any, values: dict[str, Any]) -> None:
    """Assign values to an entity, and write it by a verb."""
    if verb == "modify":
        await db.modify(model, lambda fresh: assign(fresh, values), id="a")
        return
    assign(entity, values)
    if verb == "pair":  # one after the other in one transaction
        async with db.transaction() as tx:
            tx.save(entity)
            tx.save(entity)
    else:
        await write(db, verb, entity)


def same(one: Any, two: Any) -> bool:
    """Whether two values are the same, also where Python finds others equal: minus zero is not zero."""
    return type(one) is type(two) and repr(one) == repr(two)


@pytest.mark.parametrize("model", [Plain, Indexed])
@examples(8, 1_000)
@given(verb=st.sampled_from(VERBS), stored=some_values(), given=some_values(), small=st.booleans())
@example(verb="save", stored={}, given={"text": "text"}, small=False)
@example(verb="save in a transaction", stored={}, given={"tags": []}, small=False)
@example(verb="save in a bulk", stored={}, given={"total": 7}, small=False)
@example(verb="modify", stored={}, given={"wide": Wide.ONE}, small=False)
@example(verb="modify", stored={}, given={"due": MADE + dt.timedelta(hours=9)}, small=False)
@example(verb="pair", stored={"due": MADE + dt.timedelta(1)}, given={"due": None, "owner": "ann"}, small=False)
@example(verb="save", stored={"count": 5, "wide": Wide.ONE}, given={"count": 6}, small=True)
@example(verb="merge", stored={"count": 5, "wide": Wide.ONE}, given={"count": 2**31, "wide": Wide.MANY}, small=True)
async def test_what_was_assigned_is_read(
    model: type[Any], verb: str, stored: dict[str, Any], given: dict[str, Any], small: bool
) -> None:
    """
    Each value that differs from what was read is written by every verb; nothing else is, but what a write fills. A
    number keeps its stored type as long as it fits, and index entries are right.
    """
    async with memory_database(model) as db:
        await put(db, model, stored, small=small)
        read = await db.get(model, id="a")
        was = read_of(stored)
        assert all(same(getattr(read, name), was[name]) for name in VALUES)
        before = await db.get(PropertyBag.key("Random", *row_of(model)))
        changed = {name for name, value in given.items() if not same(value, was[name])}
        removes = any(given[name] is None and was[name] is not None for name in changed)
        wanted = {**was, **given}
        if verb in ("merge", "upsert") and removes:
            with pytest.raises(ValueError, match=r"a merge cannot remove a property"):
                await assign_and_write(db, verb, model, read, given)
            return
        await assign_and_write(db, verb, model, read, given)

        after = await db.get(PropertyBag.key("Random", *row_of(model)))
        if changed or verb in ("merge", "replace", "upsert", "upsert over"):
            wanted |= {name: value for name, value in FILLED.items() if name not in changed}
        else:
            assert after.etag == before.etag
        found = await db.get(model, id="a")
        assert {name: getattr(found, name) for name in VALUES if not same(getattr(found, name), wanted[name])} == {}
        if verb != "modify":
            assert read == found and read.etag == found.etag
        for name in INTEGERS:
            if name in before and name in after and before.type_of(name) is Edm.INT32:
                fits = -(2**31) <= after[name] < 2**31
                assert after.type_of(name) is (Edm.INT32 if fits else Edm.INT64), name
        if "level" in after:
            assert after.type_of("level") is Edm.INT32
        if model is Indexed:
            report = await db.audit(model)
            assert [str(each) for each in report.findings] == []


LATER = MADE + dt.timedelta(hours=9)


async def stored_due(db: Database) -> dt.datetime | None:
    return (await db.get(Plain, id="a")).due


async def test_what_a_write_fills_in_a_transaction() -> None:
    """A value that is assigned after a write of the transaction stands, in the next write and in the object."""
    async with memory_database(Plain) as db:
        entity = Plain(id="a")
        async with db.transaction() as tx:
            tx.insert(entity)
            entity.due = LATER
            tx.save(entity)
            entity.count = 1
            tx.save(entity)
            await tx.modify(entity, lambda each: each.evolve(name="b"))
        assert entity.due == await stored_due(db) == LATER
        async with db.transaction() as tx:
            entity.count = 2
            tx.save(entity)
            entity.due = None
        assert (entity.due, await stored_due(db)) == (None, MADE)
        await db.save(entity)
        assert await stored_due(db) is None


@pytest.mark.parametrize("verb", ["save", "merge", "replace"])
async def test_a_forced_write_keeps_the_stored_type(verb: str) -> None:
    """Also of a row that is read for the write alone; an entity that was read in part keeps it too."""
    async with memory_database(Indexed) as db:
        await put(db, Indexed, {"count": 5, "wide": Wide.ONE, "text": "t"}, small=True)
        if verb == "save":
            entity = await db.select(Indexed).where(Indexed.id == "a").only(Indexed.count).one()
            entity.count = 6
            await db.save(entity)
        elif verb == "merge":
            await db.merge(Indexed(id="a", count=6), only=[Indexed.count], if_match="*")
        else:
            await db.replace(Indexed(id="a", count=6), if_match="*")

        row = await db.get(PropertyBag.key("Random", *row_of(Indexed)))
        assert (row["count"], row.type_of("count")) == (6, Edm.INT32)
        assert (await db.audit(Indexed)).findings == ()


@pytest.mark.parametrize("model", [Plain, Indexed])
async def test_an_unknown_property_gets_the_type_that_it_is_given(model: type[Any]) -> None:
    """Another one than it had, too: the user has said which."""
    async with memory_database(model) as db:
        await put(db, model, {}, small=True)
        entity = await db.get(model, id="a")
        entity.extra.set("Seats", 5, Edm.INT32)
        await db.save(entity)
        entity.extra.set("Seats", 6, Edm.INT64)
        await db.save(entity)

        row = await db.get(PropertyBag.key("Random", *row_of(model)))
        assert (row["Seats"], row.type_of("Seats")) == (6, Edm.INT64)
