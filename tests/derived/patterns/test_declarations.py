"""
Counts, sums and embedded copies that are declared wrongly: refused when the class is made, if the other one is there.
"""

from collections.abc import Callable
from typing import Any, cast

import pytest

from tableorm import Count, Database, Embedded, Entity, Mapped, ModelError, Sum, field


class Room(Entity, table="Firm", partition_key="{house}", row_key="room_{number}", tracked=True):
    house: Mapped[str]
    number: Mapped[int]
    name: Mapped[str] = field(default="")
    desks: Mapped[int] = field(default=0, maintained=True)
    doors: Mapped[int] = field(default=0)


class Hall(Entity, table="Firm", partition_key="{house}", row_key="hall_{number}"):
    house: Mapped[str]
    number: Mapped[int]
    size: Mapped[int]
    desks: Mapped[int] = field(default=0, maintained=True)


def desk(space: dict[str, Any], **keywords: Any) -> type[Any]:
    """A model with these declarations."""
    annotations = {"house": Mapped[str], "id": Mapped[int], "room": Mapped[int], "label": Mapped[str | None]}
    fields = {"room": field(default=0), "label": field(default=None, maintained=True)}
    given = {"table": "Firm", "partition_key": "{house}", "row_key": "desk_{id}", **keywords}
    body = {"__annotations__": annotations, "__module__": __name__, **fields, **space}
    return cast("type[Any]", type("Desk", (Entity,), body, **given))


ROOM: dict[str, Any] = {"house": "{house}", "number": "{room}"}


def count(what: Callable[[], Any], **key: Any) -> Callable[[], object]:
    return lambda: desk({"counted": Count(what, **(key or ROOM))})


def embedded(model: Any, fields: Any, **key: Any) -> Callable[[], object]:
    of: Any = key or ROOM
    return lambda: desk({"in_room": Embedded(model, fields, **of)})


REFUSED: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "no such field": (count(lambda: cast("Any", Room).desk), ("Desk.counted", "'Room'", "'desk'")),
    "a model": (count(lambda: Room), ("Desk.counted", "Room", "is not a field")),
    "a model itself": (count(cast("Any", Room)), ("Count(", "Room", "lambda: Department.employee_count")),
    "not kept": (count(lambda: Room.doors), ("Desk.counted", "Room.doors", "field(default=0, maintained=True)")),
    "part of the key": (
        count(lambda: Room.desks, house="{house}"),
        ("Desk.counted", "house, number", "given are house"),
    ),
    "another key": (
        count(lambda: Room.desks, house="{house}", numbr="{room}"),
        ("Desk.counted", "house, number", "given are house, numbr"),
    ),
    "a key of another type": (
        count(lambda: Room.desks, house="{house}", number="{house}"),
        ("Desk.counted", "number='{house}'", "house is str", "number of Room is int"),
    ),
    "text that is no number": (
        count(lambda: Room.desks, house="{house}", number="one"),
        ("Desk.counted", "number='one'", "not an int"),
    ),
    "a template": (
        count(lambda: Room.desks, house="x{house}", number="{room}"),
        ("Desk.counted", "house='x{house}'", "one field"),
    ),
    "a condition": (
        lambda: desk({"counted": Count(lambda: Room.desks, where=cast("Any", 1), **ROOM)}),
        ("Count(where=1)", "lambda e:"),
    ),
    "another table": (
        lambda: desk({"counted": Count(lambda: Room.desks, **ROOM)}, table="Firms"),
        ("Desk.counted", "table Firm", "Firms"),
    ),
    "what no key can make": (
        lambda: desk({"counted": Count(lambda: Hall.desks, create=True, **ROOM)}),
        ("Desk.counted", "create=True", "Hall has no default for size"),
    ),
    "a sum of text": (
        lambda: desk({"summed": Sum("house", lambda: Room.desks, **ROOM)}),
        ("Desk.summed", "'house'", "field of integers"),
    ),
    "no model": (embedded(lambda: 5, {"label": "name"}), ("Desk.in_room", "5 is not a model")),
    "a model that is not guarded": (
        embedded(lambda: Plain, {"label": "name"}, id="{room}", house="{house}"),
        ("Desk.in_room", "tracked=True"),
    ),
    "a field that it has not": (embedded(lambda: Room, {"label": "title"}), ("Desk.in_room", "'label'", "'title'")),
    "a field of another type": (embedded(lambda: Room, {"label": "doors"}), ("Desk.in_room", "'label'", "'doors'")),
    "fields without their origin": (embedded(lambda: Room, ["label"]), ("Embedded(...)", "fields and a key")),
    "one field twice": (
        lambda: desk(
            {
                "one": Embedded(lambda: Room, {"label": "name"}, **ROOM),
                "two": Embedded(lambda: Room, {"label": "name"}, house="{house}", number="1"),
            }
        ),
        ("Desk.label", "two Embedded"),
    ),
    "a kept key": (lambda: desk({"id": field(default=0, maintained=True)}), ("Desk.id", "key")),
    "a kept field that is filled": (
        lambda: desk({"label": field(default=None, maintained=True, on_write=lambda: "x")}),
        ("Desk.label", "filled on write"),
    ),
    "a kept field without default": (
        lambda: desk({"room": cast("Any", field)(maintained=True)}),
        ("Desk.room", "field(default=0, maintained=True)"),
    ),
}


class Plain(Entity, table="Firm", partition_key="{house}", row_key="plain_{id}"):
    house: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]


@pytest.mark.parametrize("case", REFUSED)
def test_is_refused(case: str) -> None:
    """The message names the model, what is declared, what is wrong with it, and what to do."""
    declare, words = REFUSED[case]
    with pytest.raises(ModelError) as caught:
        declare()
    for word in words:
        assert word in str(caught.value)


async def test_a_model_that_comes_later_is_looked_at_when_tables_are_made(db: Database) -> None:
    """What a function names may be declared below."""
    model = desk({"counted": Count(lambda: Late.names, **ROOM)})

    class Late(Entity, table="Firm", partition_key="{house}", row_key="late_{number}"):
        house: Mapped[str]
        number: Mapped[int]
        names: Mapped[int] = field(default=0)

    with pytest.raises(ModelError, match=r"Desk.counted: Late.names is not a maintained field of whole numbers"):
        await db.create_tables(model)


async def test_a_model_that_never_comes_is_named_by_the_first_write(db: Database) -> None:
    """Nothing is written."""
    model = desk({"counted": Count(lambda: Never.names, **ROOM)})  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable, reportUnknownMemberType, reportUnknownLambdaType]
    with pytest.raises(ModelError, match=r"Desk.counted: .*'Never' is not defined; declare or import it"):
        await db.insert(model(house="a", id=1))
