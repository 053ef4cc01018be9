"""
Several changes of one row in a transaction, made at random: they leave what the same changes leave one after the other.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from tableorm import Database, Entity, Index, Mapped, PropertyBag, TableOrmError, field
from tests.databases import memory_database


class Part(Entity, table="RandomParts", partition_key="p", row_key="part_{name}"):
    name: Mapped[str]
    text: Mapped[str | None] = field(default=None)
    number: Mapped[int] = field(default=0)
    size: Mapped[int | None] = field(default=None)


class Listed(Part, row_key="listed_{name}"):
    by_number = Index(row_key="number_{number:03d}_{name}")


VERBS: dict[str, Callable[[Any, Any], Any]] = {
    "insert": lambda writer, each: writer.insert(each),
    "save": lambda writer, each: writer.save(each),
    "merge": lambda writer, each: writer.merge(each),
    "merge text": lambda writer, each: writer.merge(each, only=["text"]),
    "merge number": lambda writer, each: writer.merge(each, only=["number"], if_match="*"),
    "replace": lambda writer, each: writer.replace(each),
    "replace without extras": lambda writer, each: writer.replace(each, drop_extra=True),
    "upsert": lambda writer, each: writer.upsert(each),
    "upsert as a whole": lambda writer, each: writer.upsert(each, mode="replace"),
    "delete": lambda writer, each: writer.delete(each),
}

SETS = st.dictionaries(
    st.sampled_from(["text", "number", "size", "odd", "even"]), st.sampled_from([None, 0, 1, 2]), max_size=3
)
STEPS = st.lists(st.tuples(SETS, st.sampled_from(sorted(VERBS))), min_size=1, max_size=5)


def change(subject: Any, values: dict[str, Any], step: int) -> None:
    """
    Set fields or properties; None removes what can be removed.

    No unknown property gets one value twice: a transaction cannot tell what is set again from what it has left out.
    """
    for name, number in values.items():
        value = f"t{number}" if name == "text" and number is not None else number
        if name in ("odd", "even") and number is not None:
            value = number + 10 * step
        if isinstance(subject, PropertyBag):
            subject[name] = value
        elif name in ("odd", "even"):
            subject.extra[name] = value
        elif name != "number" or value is not None:
            setattr(subject, name, value)


async def subject_of(db: Database, kind: Any, row: str, *, stored: bool) -> Any:
    """An entity or bag that was read, if there is a row, or is new."""
    model: Any = Part if kind is PropertyBag else kind
    entity = model(name=row, text="old", number=5)
    entity.extra["odd"] = 9
    if stored:
        await db.insert(entity)
        entity = await db.get(entity.key)
    if kind is not PropertyBag:
        return entity
    key = PropertyBag.key("RandomParts", "p", f"part_{row}")
    return await db.get(key) if stored else PropertyBag("RandomParts", "p", f"part_{row}", {"EntityType": "Part"})


async def rows_of(db: Database, row: str) -> dict[str, dict[str, Any]]:
    """The rows of the entity that was written, with its index entries, without what differs between any two writes."""
    found: dict[str, dict[str, Any]] = {}
    async for bag in db.select_raw("RandomParts").allow_scan():
        content = {name: bag[name] for name in bag if name not in ("_w", "_of", "_ix", "name")}
        found[bag.row_key.removesuffix(row)] = content
    return found


async def one_after_the_other(kind: Any, steps: list[tuple[dict[str, Any], str]], *, stored: bool) -> Any:
    """What the changes leave; None if one of them is rejected."""
    async with memory_database(Part, Listed) as db:
        subject = await subject_of(db, kind, "a", stored=stored)
        try:
            for step, (values, verb) in enumerate(steps, 1):
                change(subject, values, step)
                await VERBS[verb](db, subject)
        except TableOrmError:
            return None
        return await rows_of(db, "a")


@given(
    kind=st.sampled_from([Part, Listed, PropertyBag]),
    stored=st.sampled_from([True, True, True, False]),
    steps=STEPS,
    later=SETS,
)
async def test_a_transaction_does_what_its_changes_do(
    kind: Any, stored: bool, steps: list[tuple[dict[str, Any], str]], later: dict[str, Any]
) -> None:
    """
    Of whatever a transaction takes; and its object knows the row then as it is, so that a later save is right too.
    """
    if not stored:
        steps = [({}, "insert"), *steps]
    expected = await one_after_the_other(kind, steps, stored=stored)
    async with memory_database(Part, Listed) as db:
        subject = await subject_of(db, kind, "b", stored=stored)
        before = await rows_of(db, "b")
        try:
            async with db.transaction() as tx:
                for step, (values, verb) in enumerate(steps, 1):
                    change(subject, values, step)
                    VERBS[verb](tx, subject)
        except TableOrmError as error:
            event(f"refused: {type(error).__name__}")
            assert await rows_of(db, "b") == before
            return
        event("alike" if expected is not None else "one of them is rejected by itself")
        if expected is not None:
            assert await rows_of(db, "b") == expected
        if subject.etag is None:
            return
        change(subject, later, 7)
        await db.save(subject)
        shown: Any = await db.get(subject.key if isinstance(subject, Entity) else _key_of(subject))
        await db.save(shown)
        if isinstance(subject, PropertyBag):
            assert dict(shown) == dict(subject)
        else:
            assert (shown, dict(shown.extra)) == (subject, dict(subject.extra))


def _key_of(bag: PropertyBag) -> Any:
    return PropertyBag.key(bag.table, bag.partition_key, bag.row_key)
