"""
Looking at an entity changes nothing: random programs write the same, whether somebody looks at the entity or not.
"""

import asyncio
import copy
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from tableorm import (
    Database,
    EntityNotFound,
    Index,
    Mapped,
    PropertyBag,
    TableOrmError,
    Transaction,
    TransactionFailed,
    field,
)
from tableorm import Entity as Base
from tableorm.stores import Row
from tableorm.testing import MemoryStore
from tests.faults import QUICK, FaultyBackend
from tests.rows import replace_row


class Thing(Base, abstract=True, table="Things", partition_key="p"):
    id: Mapped[str] = field(default="a")
    email: Mapped[str] = field(default="x")
    note: Mapped[str | None] = field(default=None)


class Plain(Thing, row_key="plain_{id}"): ...


class Indexed(Thing, row_key="indexed_{id}"):
    by_email = Index(row_key="email_{email}_{id}")


Subject = Plain | Indexed | PropertyBag
Step = tuple[Any, ...]

# `id` is what an index entry stores of the key, and an unknown property of the row itself.
_UNKNOWN = st.sampled_from(["Foo", "Bar", "id"])
_VALUE = st.sampled_from([None, "x", "y", 7])
_WRITES = ["save", "merge", "merge_note", "replace", "upsert", "upsert_replace", "delete", "insert", "modify"]
_FORCED = ["merge_any", "merge_note_any", "replace_any", "replace_drop", "delete_any"]
_EDIT = st.one_of(
    st.tuples(st.just("note"), st.sampled_from([None, "x", "y"])),
    st.tuples(st.just("email"), st.sampled_from(["x", "y"])),
    st.tuples(st.just("extra"), _UNKNOWN, _VALUE),
)
_WRITE = st.sampled_from([(verb,) for verb in (*_WRITES, *_FORCED)])
_STEPS = st.lists(
    st.one_of(
        _EDIT,
        _WRITE,
        st.tuples(st.just("other sets"), _UNKNOWN, _VALUE),
        st.sampled_from([("other deletes",), ("other writes",), ("read",), ("refresh",), ("find",), ("evolve",)]),
        st.tuples(st.just("transaction"), st.lists(st.one_of(_EDIT, _WRITE), min_size=1, max_size=4)),
    ),
    min_size=1,
    max_size=8,
)


def look(subject: Subject) -> None:
    """Look at everything that is public."""
    for name in ("etag", "timestamp", "key", "kind", "extra"):
        with suppress(AttributeError, TableOrmError):
            found = getattr(subject, name)
            if name == "extra":
                _ = dict(found), len(found), repr(found), "Foo" in found, found.get("Foo")
    _ = repr(subject), subject == subject.__copy__(), copy.deepcopy(subject)
    if not isinstance(subject, PropertyBag):
        _ = pickle.dumps(subject), subject.evolve(note="other").extra


class Run:
    """
    One run of a program.

    Args:
        model: The model of the entity; PropertyBag for a bag.
        looks: Before which of the steps somebody looks.
    """

    def __init__(self, model: type[Any], looks: Sequence[bool]) -> None:
        self.model, self.looks, self.taken = model, looks, 0
        self.store = MemoryStore()
        self.seen: list[Any] = []

    async def run(self, steps: Sequence[Step]) -> list[Any]:
        """Run a program. Return what was stored after each step, and how the step ended."""
        declared = Plain if self.model is PropertyBag else self.model
        self.key = declared.key(id="a")
        backend = FaultyBackend(self.store)
        async with Database(backend, retry=QUICK) as self.db:
            await self.db.create_tables(Plain)
            await self.db.insert(declared())
            await self.other_sets("Foo", "x")
            await self.other_sets("id", "foreign")
            self.subject: Any = await self.read()
            for step in steps:
                self.look()
                try:
                    await self.take(step)
                except (TableOrmError, ValueError) as error:
                    cause = error.__cause__ if isinstance(error, TransactionFailed) else None
                    self.seen.append((type(error), type(cause)))
                self.seen.append(await self.stored())
            self.seen.append((repr(self.subject), dict(getattr(self.subject, "extra", {}))))
        return self.seen

    def look(self) -> None:
        """Look at the entity, if it is time."""
        if self.looks[self.taken % len(self.looks)]:
            look(self.subject)
        self.taken += 1

    async def read(self) -> Any:
        if self.model is PropertyBag:
            return await self.db.get(PropertyBag.key("Things", self.key.partition_key, self.key.row_key))
        return await self.db.get(self.key)

    async def stored(self) -> dict[str, Row]:
        """Return all rows without what differs from write to write."""
        found: dict[str, Row] = {}
        for row_key in (self.key.row_key, "email_x_a", "email_y_a"):
            with suppress(EntityNotFound):
                bag = await self.db.get(PropertyBag.key("Things", "p", row_key))
                found[row_key] = {
                    name: value for name, value in bag.row.items() if name not in ("odata.etag", "Timestamp", "_w")
                }
        return found

    async def other_sets(self, name: str, value: Any) -> None:
        """Another program sets, or removes, a property that the model does not know."""
        bag = await self.db.get(PropertyBag.key("Things", self.key.partition_key, self.key.row_key))
        bag[name] = value
        await replace_row(self.store, "Things", {**bag.row})

    async def take(self, step: Step) -> None:
        match step:
            case ["note" | "email", value] if self.model is PropertyBag:
                self.subject[step[0]] = value
            case ["note" | "email", value]:
                setattr(self.subject, step[0], value)
            case ["extra", name, value]:
                bag = self.subject if self.model is PropertyBag else self.subject.extra
                bag[name] = value
            case ["other sets", name, value]:
                await self.other_sets(name, value)
            case ["other deletes"]:
                await self.db.delete(self.key, if_match="*")
            case ["other writes"]:
                declared = Plain if self.model is PropertyBag else self.model
                await self.db.modify(declared, lambda thing: setattr(thing, "note", "other"), id="a")
            case ["read"]:
                self.subject = await self.read()
            case ["find"] if self.model is Indexed:
                found = await self.db.select(Indexed.by_email).where(Indexed.email == "x").all()
                self.subject = found[0] if found else self.subject
            case ["find"]:
                pass
            case ["refresh"]:
                await self.db.refresh(self.subject)
            case ["evolve"]:
                self.subject = self.subject.__copy__()
            case ["transaction", steps]:
                async with self.db.transaction() as tx:
                    for each in steps:
                        self.look()
                        if each[0] in ("note", "email", "extra"):
                            await self.take(each)
                        else:
                            await self.write(tx, each[0])
            case [verb]:
                await self.write(self.db, verb)
            case _:
                raise AssertionError(step)

    async def write(self, to: Database | Transaction, verb: str) -> None:
        name, _, how = verb.partition("_")
        arguments: dict[str, Any] = {}
        if how.endswith("any"):
            arguments["if_match"] = "*"
        if how.startswith("note"):
            arguments["only"] = ["note"]
        if how == "drop":
            arguments["drop_extra"] = True
        if name == "upsert" and how:
            arguments["mode"] = how
        call: Callable[..., Any] = getattr(to, name)
        positional: list[Any] = [set_note] if name == "modify" else []
        result = call(self.subject, *positional, **arguments)
        if asyncio.iscoroutine(result):
            await result


def set_note(thing: Any) -> None:
    if isinstance(thing, PropertyBag):
        thing["note"] = "modified"
    else:
        thing.note = "modified"


@pytest.mark.parametrize("model", [Plain, Indexed, PropertyBag])
@given(steps=_STEPS, looks=st.lists(st.booleans(), min_size=1, max_size=8))
@example(steps=[("other deletes",), ("upsert_replace",)], looks=[True])
@example(steps=[("other sets", "Foo", None), ("upsert",)], looks=[True])
@example(steps=[("other sets", "Foo", None), ("merge_any",)], looks=[True])
@example(steps=[("other sets", "Foo", None), ("replace_any",), ("note", "x"), ("save",)], looks=[True])
@example(steps=[("find",), ("replace_any",), ("email", "y"), ("save",)], looks=[True])
async def test_who_only_looks_changes_nothing(model: type[Any], steps: list[Step], looks: list[bool]) -> None:
    """A program that looks at the entity between its steps writes, raises and knows what it does without looking."""
    seen = await Run(model, looks).run(steps)
    unseen = await Run(model, [False]).run(steps)

    assert seen == unseen


@pytest.mark.parametrize("model", [Plain, Indexed])
@pytest.mark.parametrize("others", [("other deletes",), ("other sets", "Foo", None)])
@pytest.mark.parametrize("looks", [False, True])
async def test_an_upsert_writes_each_unknown_property(model: type[Any], others: Step, *, looks: bool) -> None:
    """Also those of a row that was deleted since it was read, and one that another client has removed from it."""
    run = Run(model, [looks])
    await run.run([others, ("upsert_replace" if others == ("other deletes",) else "upsert",)])

    assert dict(run.subject.extra) == {"Foo": "x", "id": "foreign"}
    assert run.seen[-2][run.key.row_key]["Foo"] == "x"
