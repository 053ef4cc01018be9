"""No value of an encrypted field is in a text for people: a repr, an error with its causes, a log or an explanation."""

import datetime as dt
import enum
import logging
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, cast
from uuid import UUID

import pytest

from tableorm import (
    Blob,
    Database,
    Encryption,
    EncryptionError,
    Entity,
    KeyRing,
    Mapped,
    Series,
    TableOrmError,
    encrypted,
    from_dict,
    series,
)
from tableorm.stores import RowQuery
from tests.databases import database_fixture, memory_database
from tests.rows import insert_row

Uses = dict[str, Callable[[], Any]]

KEYS = Encryption(KeyRing({"k": bytes(32)}, wrap_with="k"))


class Level(enum.Enum):
    LOW = "canary-low"


@dataclass
class Spot:
    x: int
    name: str = ""


class Everything(Entity, table="SecretShapes", partition_key="{place}", row_key="{id:04d}"):
    place: Mapped[str]
    id: Mapped[int]
    number: Mapped[int | None] = encrypted(default=None)
    real: Mapped[float | None] = encrypted(default=None)
    text: Mapped[str | None] = encrypted(default=None)
    data: Mapped[bytes | None] = encrypted(default=None)
    when: Mapped[dt.datetime | None] = encrypted(default=None)
    price: Mapped[Decimal | None] = encrypted(default=None)
    code: Mapped[UUID | None] = encrypted(default=None)
    level: Mapped[Level | None] = encrypted(default=None)
    words: Mapped[list[str] | None] = encrypted(default=None)
    spot: Mapped[Spot | None] = encrypted(default=None)
    long: Mapped[str | None] = encrypted(default=None, chunked=True)
    packed: Mapped[list[int] | None] = encrypted(default=None, chunked=True, compress=True)
    counts: Series[int] = series(3, default=0, encrypted=True)
    notes: Series[str | None] = series(3, encrypted=True)
    scan: Mapped[Blob | None] = encrypted(default=None)


FIELDS = [name for name, info in Everything.__schema__.fields.items() if info.encrypted]
SLOTS = Everything.counts[0], Everything.notes[1]
PARTS: list[Any] = [*(getattr(Everything, name) for name in FIELDS), *SLOTS, cast("Any", Everything).scan.length]

MARKS = "canary", "7766"
"""One of them is in the text of each canary."""

CANARIES: list[Any] = [
    "canary",
    "canary\ud800",
    "canary" * 30_000,
    b"canary",
    776655,
    7766 * 10**30,
    7766.5,
    Decimal("7766.123456789012345678901234567890"),
    dt.datetime(7766, 1, 1),  # noqa: DTZ001  # the zone is missing
    dt.datetime(7766, 1, 1, tzinfo=dt.UTC),
    Level.LOW,
    UUID("77667766-7766-7766-7766-776677667766"),
    ["canary", 7766],
    ["canary", object()],
    {"canary": 7766},
    Spot("canary", 7766),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ["canary"] * 3,
    [7766] * 3,
    {"x": "canary"},
    Blob(b"canary"),
]


db = database_fixture(Everything, encryption=KEYS, echo=True, show_values=True)


def told(thing: object) -> str:
    """Return all that is said of something: of an error with its causes."""
    found = [str(thing), repr(thing)]
    if isinstance(thing, TableOrmError):
        cause = thing.__cause__ or (None if thing.__suppress_context__ else thing.__context__)
        found += [repr(vars(thing)), "" if cause is None else told(cause)]
    return "\n".join(found)


def check(text: str, *use: Any) -> None:
    """Nothing of a canary is in a text, but for digits of a time that was measured."""
    text = re.sub(r"seconds=[\d.e-]+|:\d\d\.\d+Z", "", text)
    assert not [mark for mark in MARKS if mark in text], f"{use}: {text[:500]}"


async def tried(use: Callable[[], Any]) -> str:
    """Return what is told of the result of a call, or of the error that it raises."""
    try:
        result = use()
        if hasattr(result, "__await__"):
            result = await result
    except (TableOrmError, TypeError, ValueError) as error:
        return told(error)
    return told(result)


def set_field(name: str, value: Any) -> Everything:
    entity = Everything(place="p", id=1)
    setattr(entity, name, value)
    return entity


def set_slot(name: str, value: Any) -> Everything:
    entity = Everything(place="p", id=1)
    getattr(entity, name)[1] = value
    return entity


def writes(db: Database, name: str, value: Any) -> Uses:
    """Return what may be done with a value of a field."""
    keys: dict[str, Any] = {"place": "p", "id": 1}
    uses: Uses = {
        "constructor": lambda: Everything(**keys, **{name: value}),
        "attribute": lambda: set_field(name, value),
        "evolve": lambda: Everything(**keys).evolve(**{name: value}),
        "JSON": lambda: from_dict(Everything, {**keys, name: value}),
        "upsert": lambda: db.upsert(set_field(name, value)),
        "explanation": lambda: db.explain_write("upsert", set_field(name, value)),
        "modify": lambda: db.modify(Everything, lambda each: setattr(each, name, value), **keys),
        "get": lambda: db.get(Everything, **keys),
    }
    if name in ("counts", "notes"):
        uses |= {"slot": lambda: set_slot(name, value), "slots": lambda: getattr(set_slot(name, value), name)}
    return uses


def conditions(db: Database, part: Any, value: Any) -> Uses:
    """Return what may be compared with a field or a part of one."""
    query = db.select(Everything).where(Everything.place == "p")
    return {
        "==": lambda: part == value,
        "<": lambda: part < value,
        "between": lambda: part.between(value, value),
        "in_": lambda: part.in_([value, value]),
        "in_ without a list": lambda: part.in_(value),
        "startswith": lambda: part.startswith(value),
        "contains": lambda: part.contains(value),
        "in": lambda: value in part,
        "query": lambda: query.where(part == value).all(),
        "plan": lambda: query.where(part == value).explain(),
    }


@pytest.mark.parametrize("name", FIELDS)
async def test_no_write_shows_a_value(db: Database, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Not one that fits, nor one that does not: when it is set, made of JSON, written, explained or read."""
    caplog.set_level(logging.DEBUG)
    for value in CANARIES:
        for use, call in writes(db, name, value).items():
            check(await tried(call), name, use, type(value))
    check(caplog.text, name, "log")


@pytest.mark.parametrize("number", range(len(PARTS)), ids=lambda number: str(PARTS[number]))
async def test_no_condition_shows_a_value(db: Database, number: int) -> None:
    """Nor does one that cannot be; a query with a value of the wrong type raises what every condition raises."""
    part, query = PARTS[number], db.select(Everything).where(Everything.place == "p")
    for value in CANARIES:
        for use, call in conditions(db, part, value).items():
            check(await tried(call), str(part), use, type(value))
        with pytest.raises(EncryptionError):
            await query.where(part == value).all()


def written_as(kind: Any, property_: str) -> Any:
    """Return a model that stores a value of another type in a property of `Everything`."""
    annotations = {"place": Mapped[str], "id": Mapped[int], "value": Mapped[kind]}
    body = {"__annotations__": annotations, "value": encrypted(name=property_), "__module__": __name__}
    keys: Any = {"table": "SecretShapes", "partition_key": "{place}", "row_key": "{id:04d}", "kind": "Everything"}
    return types.new_class("Written", (Entity,), keys, lambda space: space.update(body))


@pytest.mark.parametrize("value", ["canary", b"canary", 776655, 7766.5, True], ids=repr)
async def test_no_row_that_does_not_fit_shows_a_value(db: Database, value: Any) -> None:
    """Written as one type, and read as another."""
    failed = 0
    for number, member in enumerate(Everything.__schema__.fields[name].members[0] for name in FIELDS):
        async with memory_database("SecretShapes", encryption=KEYS) as other:
            await other.insert(written_as(type(value), member.property)(place="p", id=number, value=value))
            (row,) = (await other.store.query("SecretShapes", RowQuery())).rows
        await insert_row(db, "SecretShapes", row)
        text = await tried(partial(db.get, Everything, place="p", id=number))
        failed += "DecodeError" in text
        check(text, member.field, "get")
        check(await tried(lambda: db.select(Everything).where(Everything.place == "p").all()), member.field, "query")
        check(await tried(lambda: db.audit(Everything)), member.field, "audit")

    assert failed > 5
