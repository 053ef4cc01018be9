"""
Entities to plain dictionaries and back.
"""

import datetime as dt
import enum
import math
import re
from collections.abc import Callable, Collection
from decimal import Decimal
from typing import Any, Literal, cast
from uuid import UUID

import attrs
import pytest

from tableorm import (
    EncodeError,
    Entity,
    Field,
    Int32,
    InvalidInput,
    Mapped,
    ModelError,
    NotLoaded,
    field,
    from_dict,
    to_dict,
)
from tests.databases import memory_database
from tests.models.test_codecs import Color, Everything, Ratio


class Day(enum.Enum):
    FIRST = UUID(int=1)


@attrs.frozen
class Address:
    street: str
    since: dt.date | None = None


class Thing(Everything, table="Things", partition_key="{owner}", row_key="{n:03d}"):
    owner: Mapped[str]
    n: Mapped[int]
    at: Mapped[dt.datetime | None] = field(default=None, name="At")
    odd: Mapped[Day | None] = field(default=None)
    homes: Mapped[list[Address] | None] = field(default=None)


FULL: dict[str, Any] = {
    "owner": "jun",
    "n": 5,
    "small": 3,
    "real": 3.0,
    "flag": True,
    "at": dt.datetime(2024, 2, 29, 12, 0, 0, 123_456, tzinfo=dt.UTC),
    "day": dt.date(2024, 2, 29),
    "price": Decimal("1.10"),
    "guid": UUID(int=1),
    "data": b"\x00\xff",
    "color": Color.RED,
    "ratio": Ratio.HALF,
    "odd": Day.FIRST,
    "free": {"a": [1, {"b": None}]},
    "counts": {1: [2]},
    "homes": [Address("x", dt.date(2024, 1, 1)), Address("y")],
}

NONE: dict[str, Any] = dict.fromkeys(Thing.__schema__.fields)


def make(data: dict[str, Any]) -> Thing:
    return from_dict(Thing, data)


def test_python_values() -> None:
    """In mode "python" the values are what the fields hold, and give the entity back."""
    thing = Thing(**FULL)

    assert to_dict(thing) == NONE | FULL
    assert make(to_dict(thing)) == thing


def test_json_values() -> None:
    """In mode "json" they are what JSON has, by field name."""
    assert to_dict(Thing(**FULL), mode="json") == NONE | {
        "owner": "jun",
        "n": 5,
        "small": 3,
        "real": 3.0,
        "flag": True,
        "at": "2024-02-29T12:00:00.123456+00:00",
        "day": "2024-02-29",
        "price": "1.10",
        "guid": "00000000-0000-0000-0000-000000000001",
        "data": "AP8=",
        "color": "red",
        "ratio": 0.5,
        "odd": "00000000-0000-0000-0000-000000000001",
        "free": {"a": [1, {"b": None}]},
        "counts": {1: [2]},
        "homes": [{"street": "x", "since": "2024-01-01"}, {"street": "y", "since": None}],
    }


def test_numbers_without_a_point() -> None:
    """A client without a float type writes 3.0 as 3; it becomes a float again."""
    back = make({"owner": "x", "n": 1, "real": 3}).real

    assert (back, type(back)) == (3.0, float)


def test_missing_fields() -> None:
    """Fields with a default may be missing; others, and None where it may not be, are rejected as in a call."""
    assert make({"owner": "x", "n": 1}) == Thing(owner="x", n=1)
    with pytest.raises(InvalidInput, match=r"^Thing.owner: is missing; the field is str$"):
        make({"n": 1})
    with pytest.raises(InvalidInput, match=r"^Thing.n: None is rejected: the field is int, and never null$"):
        make({"owner": "x", "n": None})


def test_what_was_not_loaded() -> None:
    """Fields that were not loaded are left out, and unknown properties too."""
    thing = Thing(owner="x", n=1, real=1.5)
    thing.extra["More"] = 1
    del thing.__dict__["real"]

    assert set(to_dict(thing)) == set(NONE) - {"real"}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("nn", 1, ["Thing.nn", "does not exist", "owner, n"]),
        ("n", "5", ["Thing.n", "'5'", "int"]),
        ("owner", "\ud800", ["Thing.owner"]),
        ("real", 10**400, ["Thing.real"]),
        ("small", 2**31, ["Thing.small", "2147483648"]),
        ("at", "yesterday", ["Thing.at", "'yesterday'"]),
        ("at", dt.datetime(2024, 1, 1), ["Thing.at"]),  # noqa: DTZ001
        ("color", "green", ["Thing.color", "'green'"]),
        ("odd", [], ["Thing.odd", "[]"]),
        ("free", {"a": math.nan}, ["Thing.free", "nan"]),
        ("homes", [{"stret": "x"}], ["Thing.homes[0].stret", "'x'", "street, since"]),
        ("homes", [{"street": "x", "since": 5}], ["Thing.homes[0].since", "5"]),
        ("homes", {"street": "x"}, ["Thing.homes", "{'street': 'x'}", "array"]),
    ],
)
def test_values_that_do_not_fit(name: str, value: Any, words: list[str]) -> None:
    """An unknown name or a value that is not the field's in either mode is rejected, naming model, field and value."""
    with pytest.raises(EncodeError) as caught:
        make({"owner": "x", "n": 1, name: value})
    for word in words:
        assert word in str(caught.value)
    assert caught.value.field == name


class Part(Entity, table="Parts", partition_key="p", row_key="{id}"):
    id: Mapped[str]
    count: Mapped[Int32] = field(default=0, validator=attrs.validators.ge(0))
    code: Mapped[str] = field(default="", converter=str.upper, validator=attrs.validators.max_len(3))
    homes: Mapped[list[Address]] = field(factory=list)
    rooms: Mapped[dict[str, Address]] = field(factory=dict)


def test_all_faults_at_once() -> None:
    """One error lists every fault with its path: unknown and missing names, types in nested values, and validators."""
    data: dict[str, Any] = {
        "count": -1,
        "code": "long",
        "homes": [{"street": "a"}, {"street": 1, "since": "soon"}, {}],
        "rooms": {"a b": {"street": "x", "floor": 2}},
        "colour": "red",
    }

    with pytest.raises(InvalidInput) as caught:
        from_dict(Part, data)

    faults = {fault.path: (fault.kind, fault.value) for fault in caught.value.faults}
    assert faults == {
        ("count",): ("invalid", -1),
        ("code",): ("invalid", "long"),
        ("homes", 1, "street"): ("invalid", 1),
        ("homes", 1, "since"): ("invalid", "soon"),
        ("homes", 2, "street"): ("missing", None),
        ("rooms", "a b", "floor"): ("unknown", 2),
        ("colour",): ("unknown", "red"),
        ("id",): ("missing", None),
    }
    message = str(caught.value).splitlines()
    assert message[0] == "Part: the data has 8 faults"
    assert "  Part.homes[1].street: 1 does not fit: Expected `str`, got `int`" in message
    assert (
        "  Part.rooms['a b'].floor: 2 is given for a member that does not exist; Address has street, since" in message
    )
    assert any(line.startswith("  Part.count: -1 is rejected: ") and "must be >= 0" in line for line in message)


def _ends_after(line: "Line", attribute: object, end: int) -> None:
    if end < line.start:
        raise ValueError(f"it ends at {end}, before {line.start}")


@attrs.define
class Line:
    start: int
    end: int = attrs.field(validator=_ends_after)
    quantity: int = attrs.field(default=1, validator=attrs.validators.ge(1))


class Drawing(Entity, table="Drawings", partition_key="p", row_key="{id}"):
    id: Mapped[str]
    lines: Mapped[list[Line]] = field(factory=list)


@attrs.define
class Weight:
    grams: Decimal = Decimal(1)
    ratio: float = 1.0


class Parcel(Entity, table="Parcels", partition_key="p", row_key="{id}"):
    id: Mapped[str]
    price: Mapped[Decimal] = field(default=Decimal(0), validator=attrs.validators.ge(0))
    weights: Mapped[list[Weight]] = field(factory=list)


@pytest.mark.parametrize("value", ["NaN", "sNaN", Decimal("NaN"), Decimal("sNaN")])
def test_numbers_that_json_text_does_not_keep(value: object) -> None:
    """In a nested class NaN is rejected with its path and in plain words, also the one that Python cannot compare."""
    with pytest.raises(InvalidInput) as caught:
        from_dict(Parcel, {"id": "a", "weights": [{"grams": value}]})

    (fault,) = caught.value.faults
    assert fault.path == ("weights", 0, "grams")
    assert fault.problem == "is rejected: JSON text keeps neither NaN nor infinite floats; give a finite number"
    with pytest.raises(ValueError, match="contains something that JSON does not preserve, such as NaN"):
        Parcel.__schema__.fields["weights"].type.encode([Weight(Decimal(str(value)))])


@pytest.mark.parametrize("value", ["NaN", "sNaN"])
def test_numbers_that_a_validator_cannot_compare(value: str) -> None:
    """Python raises an ArithmeticError where the decimal NaN is compared; a client gets a fault of its field."""
    with pytest.raises(InvalidInput) as caught:
        from_dict(Parcel, {"id": "a", "price": value})

    (fault,) = caught.value.faults
    assert (fault.path, fault.problem) == (("price",), "is rejected: it cannot be compared or computed with")


def test_validators_of_nested_classes() -> None:
    """What they refuse has the path of the member, and is listed beside other faults."""
    lines: list[dict[str, Any]] = [
        {"start": 1, "end": 2, "quantity": 0},
        {"start": "x", "end": 2, "quantity": -1},
        {"start": 1, "end": 2},
    ]
    with pytest.raises(InvalidInput) as caught:
        from_dict(Drawing, {"id": "a", "lines": lines})

    assert [(fault.path, fault.value) for fault in caught.value.faults] == [
        (("lines", 0, "quantity"), 0),
        (("lines", 1, "start"), "x"),
        (("lines", 1, "quantity"), -1),
    ]
    assert "Drawing.lines[0].quantity: 0 is rejected: 'quantity' must be >= 1" in str(caught.value)


def test_validators_of_nested_classes_that_look_at_other_members() -> None:
    """They are asked once all members fit; the fault has the path of the object."""
    with pytest.raises(InvalidInput, match="it ends at 2, before 3") as caught:
        from_dict(Drawing, {"id": "a", "lines": [{"start": 1, "end": 2}, {"start": 3, "end": 2}]})

    assert [fault.path for fault in caught.value.faults] == [("lines", 1)]
    assert from_dict(Drawing, {"id": "a", "lines": [{"start": 1, "end": 2}]}).lines == [Line(start=1, end=2)]


UNITS = {"g": 1, "kg": 1000}


def known_unit(load: object, attribute: object, unit: str) -> None:
    assert UNITS[unit]


@attrs.define
class Load:
    unit: str = attrs.field(validator=known_unit)
    limit: str = "kg"

    def __attrs_post_init__(self) -> None:
        assert UNITS[self.limit]


class Truck(Entity, table="Trucks", partition_key="p", row_key="{id}"):
    id: Mapped[str]
    unit: Mapped[str] = field(default="kg", validator=known_unit)
    loads: Mapped[list[Load]] = field(factory=list)


def test_validators_that_look_something_up() -> None:
    """A KeyError of a validator is a fault of its field, also in a nested class and in what completes one."""
    data = {"id": "a", "unit": "t", "loads": [{"unit": "g"}, {"unit": "lb"}]}
    with pytest.raises(InvalidInput) as caught:
        from_dict(Truck, data)
    with pytest.raises(InvalidInput) as nested:
        from_dict(Truck, {"id": "a", "loads": [{"unit": "g", "limit": "lb"}]})

    assert [(fault.path, fault.problem) for fault in caught.value.faults] == [
        (("loads", 1, "unit"), "is rejected: 'lb' is not known"),
        (("unit",), "is rejected: 't' is not known"),
    ]
    assert [(fault.path, fault.problem) for fault in nested.value.faults] == [
        (("loads",), "is rejected: 'lb' is not known; the field is list[Load]"),
    ]


def test_stored_text_that_a_validator_refuses() -> None:
    """What a validator of a nested class cannot look up makes a row unreadable, and the error names the field."""
    encoded = '[{"unit": "lb", "limit": "kg"}]'
    with pytest.raises(ValueError, match="holds JSON text that is not a list: 'lb'"):
        Truck.__schema__.fields["loads"].member.type.decode(encoded, None)


MANY: list[dict[str, Any]] = [{"homes": [{}] * 1000}, {f"x{n}": 1 for n in range(1000)}]


@pytest.mark.parametrize("data", MANY, ids=["missing", "unknown"])
def test_many_faults(data: dict[str, Any]) -> None:
    """An error lists a hundred faults, and its message twenty, so that it is not far larger than the data."""
    with pytest.raises(InvalidInput) as caught:
        from_dict(Part, {"id": "a", **data})
    message = str(caught.value).splitlines()

    assert len(caught.value.faults) == 100
    assert (len(message), message[0], message[-1]) == (22, "Part: the data has 100 faults or more", "  ... and 80 more")


def test_what_is_no_object() -> None:
    """Data that is no mapping is rejected by what it is."""
    with pytest.raises(InvalidInput, match=r"^Part: \[\] is a list; give an object whose members are fields"):
        from_dict(Part, cast(Any, []))


def test_the_body_of_a_request_that_was_not_read() -> None:
    """Bytes are what a web framework hands over if the request does not say that its body is JSON."""
    with pytest.raises(
        InvalidInput, match=r"^Part: b'\{x' is a bytes; .*; a request says .* Content-Type: application/json"
    ):
        from_dict(Part, cast(Any, b"{x"))


@attrs.define
class Tree:
    name: str
    children: "list[Tree]" = attrs.field(factory=lambda: [])  # noqa: PIE807


class Forest(Entity, table="Forests", partition_key="p", row_key="r"):
    tree: Mapped[Tree]


def test_data_that_nests_deeply() -> None:
    """Data nested deeper than Python's stack is rejected, and what is wrong far inside is found."""
    tree: dict[str, Any] = {"name": 1}
    for _ in range(10):
        tree = {"name": "x", "children": [tree]}
    deep: dict[str, Any] = {"name": 1}
    for _ in range(10_000):
        deep = {"name": "x", "children": [deep]}

    with pytest.raises(InvalidInput) as caught:
        from_dict(Forest, {"tree": tree})
    with pytest.raises(InvalidInput, match="is nested too deeply"):
        from_dict(Forest, {"tree": deep})

    assert [len(fault.path) for fault in caught.value.faults] == [22]


class Range(Entity, table="Ranges", partition_key="p", row_key="r"):
    low: Mapped[int] = field(default=0)
    high: Mapped[int] = field(default=0)

    def __attrs_post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


def test_what_the_class_itself_refuses() -> None:
    """An error of the class's own, which no field is to blame for, is raised as it is."""
    with pytest.raises(ValueError, match=r"^low is above high$"):
        from_dict(Range, {"low": 2, "high": 1})


def test_some_fields() -> None:
    """Fields to include or exclude are given as expressions or by name; the order is always the model's."""
    part = Part(id="a", count=3)

    assert to_dict(part, include=["code", Part.id]) == {"id": "a", "code": ""}
    assert list(to_dict(part, include={"code", "id"})) == ["id", "code"]
    assert to_dict(part, "json", exclude=[Part.homes, "rooms", Part.count]) == {"id": "a", "code": ""}
    assert to_dict(part, include=[Part.id, Part.count], exclude=["count"]) == {"id": "a"}


def test_fields_that_cannot_be_chosen() -> None:
    """A field that does not exist, a text in place of a list, and a field that was not loaded are rejected by name."""
    part = Part(id="a")
    del part.__dict__["count"]
    wrong: list[Collection[Field[Any] | str]] = ["id", ["idd"], [Thing.owner]]

    for names in wrong:
        with pytest.raises(ModelError, match=r"to_dict\(include=...\) of Part: .* its fields are Part.id, Part.count"):
            to_dict(part, include=names)
        with pytest.raises(ModelError, match=r"to_dict\(exclude=...\) of Part: "):
            to_dict(part, exclude=names)
    with pytest.raises(NotLoaded, match="count was not loaded"):
        to_dict(part, include=[Part.count])


async def test_the_etag() -> None:
    """The ETag is among the members only where it is asked for; None before the entity was stored."""
    part = Part(id="a")
    async with memory_database(Part) as db:
        assert to_dict(part, include=["id"], etag=True) == {"id": "a", "etag": None}

        await db.insert(part)

        assert to_dict(part, "json", include=["id"], etag=True) == {"id": "a", "etag": part.etag}
        assert "etag" not in to_dict(part)


def test_modes_and_models_that_do_not_exist() -> None:
    """An unknown mode, a class that is not a model, and an abstract base are rejected by name."""

    class Base(Entity, abstract=True): ...

    calls: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: to_dict(Thing(owner="x", n=1), mode=cast(Literal["json"], "yaml")), ValueError, "'yaml'"),
        (lambda: from_dict(cast(Any, int), {}), ModelError, "int"),
        (lambda: from_dict(Base, {}), ModelError, "Base is abstract"),
    ]
    for call, error, word in calls:
        with pytest.raises(error, match=word):
            call()


class Crate(Entity, table="Crates", partition_key="{tenant}", row_key="{shelf}-{number:03d}"):
    tenant: Mapped[str | None] = field(default=None)
    shelf: Mapped[str]
    number: Mapped[int]


@pytest.mark.parametrize(
    ("data", "faults"),
    [
        ({"shelf": "a", "number": -1}, {"number": r"does not fit \w+.row_key '\{shelf\}-\{number:03d\}': .*-1"}),
        (
            {"tenant": "x" * 513, "shelf": "a", "number": 1},
            {"tenant": r"is rejected: \w+.partition_key makes a key that has 513"},
        ),
        (
            {"tenant": "t", "shelf": "x" * 600, "number": 1},
            {"shelf": r"is rejected: \w+.row_key makes a key that .*shorten"},
        ),
        ({"tenant": "x" * 600, "shelf": "x" * 600, "number": 1}, {"tenant": "partition_key", "shelf": "row_key"}),
    ],
)
def test_values_that_do_not_fit_the_key(data: dict[str, Any], faults: dict[str, str]) -> None:
    """A value that its key cannot have, or that makes the key too long, is a fault of its field."""
    with pytest.raises(InvalidInput) as caught:
        from_dict(Crate, data)

    found = {fault.path[0]: fault.problem for fault in caught.value.faults}
    assert found.keys() == faults.keys()
    assert all(re.search(text, found[name]) for name, text in faults.items())


def test_a_key_that_is_not_complete() -> None:
    """A field of the key that is None may be set later, as a scope does; the other key is checked."""
    assert from_dict(Crate, {"shelf": "a", "number": 1}).tenant is None
    with pytest.raises(InvalidInput, match=r"Crate.shelf: .* Crate.row_key makes a key"):
        from_dict(Crate, {"shelf": "x" * 600, "number": 1})
