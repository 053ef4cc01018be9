"""
Types of JSON fields: what they may be made of is judged when the class is made, all the way down; Pydantic models are
among them.
"""

import dataclasses
import datetime as dt
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter, computed_field

from tableorm import (
    DecodeError,
    EncodeError,
    Entity,
    InvalidInput,
    Mapped,
    ModelError,
    Partial,
    field,
    from_dict,
    to_dict,
)
from tests.databases import memory_database

T = TypeVar("T")


class Line(BaseModel):
    """What is ordered."""

    sku: str
    count: int = Field(default=1, ge=1)
    day: dt.date | None = None

    @computed_field
    def double(self) -> int:
        return 2 * self.count


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)

    at: dt.datetime = Field(alias="At")
    data: bytes = b""
    lines: list[Line] = []
    spans: dict[int, dt.timedelta] = {}


class Tags(RootModel[list[str]]): ...


class Pair(BaseModel, Generic[T]):
    first: T
    second: T


@dataclasses.dataclass
class Parcel:
    line: Line
    note: str = "none"


@attrs.define
class Crate:
    parcels: dict[str, Parcel] = attrs.Factory(dict[str, Parcel])


class Shelf(TypedDict):
    line: Line | None


class Box(Entity, table="Boxes", partition_key="p", row_key="{id}"):
    id: Mapped[str]
    line: Mapped[Line]
    lines: Mapped[list[Line]] = field(factory=list)
    strict: Mapped[Strict | None] = field(default=None)
    named: Mapped[dict[str, Strict]] = field(factory=dict)
    parcel: Mapped[Parcel | None] = field(default=None)
    crate: Mapped[Crate] = field(factory=Crate)
    shelves: Mapped[list[Shelf]] = field(factory=list)
    tags: Mapped[Tags] = field(factory=lambda: Tags(["new"]))
    pair: Mapped[Pair[int] | None] = field(default=None)


@dataclasses.dataclass
class Filed:
    path: Path


@attrs.define
class Deep:
    filed: dict[str, list[Filed]]


class Loose(TypedDict):
    value: complex


@dataclasses.dataclass
class Owner:
    box: Box


REFUSED: list[tuple[Any, str]] = [
    (list[complex], "a value in it is of type complex; declare a type that JSON has"),
    (list[Path], "a value in it is of type Path"),
    (dict[str, Path], "a value in it is of type Path"),
    (dict[Fraction, str], "a value in it is of type Fraction"),
    (list[tuple[int, complex]], "a value in it is of type complex"),
    (list[tuple[complex, ...]], "a value in it is of type complex"),
    (list[set[complex]], "a value in it is of type complex"),
    (list[frozenset[Path]], "a value in it is of type Path"),
    (list[complex | None], "a value in it is of type complex"),
    (dict[str, list[Path] | None], "a value in it is of type Path"),
    (list[Callable[[], int]], "a value in it is of type Callable"),
    (list[type], "a value in it is of type type"),
    (Filed, r"Filed\.path is of type Path"),
    (Deep, r"Filed\.path is of type Path"),
    (list[Deep], r"Filed\.path is of type Path"),
    (list[Loose], r"Loose\.value is of type complex"),
    (dict[Line, int], "a key in it is of type Line"),
    (list[Line | int], "Type unions"),
    (Owner, r"Owner\.box is of type Box, which is a model"),
]


@pytest.mark.parametrize(("kind", "words"), REFUSED, ids=str)
def test_what_json_cannot_hold_is_refused_when_the_class_is_made(kind: Any, words: str) -> None:
    """The error names the model, the field, and the place in the type."""
    wanted: Any = Mapped
    for declared in (kind, kind | None):
        with pytest.raises(ModelError, match=rf"(?is)Odd\.value is declared as .* has no JSON form: .*{words}"):
            type("Odd", (Entity,), {"__annotations__": {"value": wanted[declared]}}, abstract=True)


@pytest.mark.parametrize(
    "kind", [list[Any], list[object], dict[str, object], list[Literal["a"]], list[Line], dict[str, Line], list[Shelf]]
)
def test_what_json_can_hold(kind: Any) -> None:
    """Also types that say nothing of a value, which is looked at when it is written."""
    made: Any = type("Even", (Entity,), {"__annotations__": {"value": Mapped[kind]}}, abstract=True)
    assert made.__schema__.fields["value"].type.json_text


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
lines = st.builds(Line, sku=texts, count=st.integers(1, 9), day=st.none() | st.dates())
stricts = st.builds(
    Strict,
    At=st.datetimes(timezones=st.just(dt.UTC)),
    data=texts.map(str.encode),
    lines=st.lists(lines, max_size=2),
    spans=st.dictionaries(st.integers(0, 9), st.timedeltas(dt.timedelta(0), dt.timedelta(9)), max_size=2),
)
parcels = st.builds(Parcel, lines, texts)
boxes = st.builds(
    Box,
    id=st.just("1"),
    line=lines,
    lines=st.lists(lines, max_size=2),
    strict=st.none() | stricts,
    named=st.dictionaries(texts, stricts, max_size=2),
    parcel=st.none() | parcels,
    crate=st.builds(Crate, st.dictionaries(texts, parcels, max_size=2)),
    shelves=st.lists(st.fixed_dictionaries({"line": st.none() | lines}), max_size=2),
    tags=st.builds(Tags, st.lists(texts, max_size=2)),
    pair=st.none() | st.builds(Pair[int], first=st.integers(), second=st.integers()),
)


@given(boxes)
def test_pydantic_models_come_back(box: Box) -> None:
    """From the row, from plain values, and from JSON, wherever in a field they are."""
    schema = Box.__schema__
    row, _ = schema.encode(box.__dict__, "p", "1")
    assert schema.decode(row) == box
    assert from_dict(Box, to_dict(box)) == box
    data = json.loads(json.dumps(to_dict(box, "json")))
    assert from_dict(Box, data) == box == TypeAdapter(Box).validate_python(data)
    assert json.loads(TypeAdapter(Box).dump_json(box)) == data


async def test_changes_within_pydantic_models_are_saved() -> None:
    """A save writes what has changed in place, and nothing if nothing has."""
    box = Box(id="1", line=Line(sku="a"), lines=[Line(sku="b")], crate=Crate({"x": Parcel(Line(sku="c"))}))
    async with memory_database(Box) as db:
        await db.insert(box)
        read = await db.get(Box, id="1")
        requests = db.stats.requests
        await db.save(read)
        assert db.stats.requests == requests

        read.lines[0].count = 7
        read.crate.parcels["x"].line.sku = "d"
        await db.save(read)
        assert db.stats.requests == requests + 1
        assert await db.get(Box, id="1") == read
        assert (await db.store.get("Boxes", "p", "1"))["lines"] == '[{"sku":"b","count":7,"day":null}]'


async def test_members_that_the_text_lacks_have_their_defaults() -> None:
    """As the model says; a text that does not fit it names the field."""
    schema = Box.__schema__
    row, _ = schema.encode(Box(id="1", line=Line(sku="a")).__dict__, "p", "1")
    assert schema.decode({**row, "line": '{"sku":"e","more":1}'}).line == Line(sku="e")
    with pytest.raises(DecodeError, match=r"(?s)Box\.line: .*JSON text that is not a Line.*sku"):
        schema.decode({**row, "line": '{"count":1}'})


class Lossy(BaseModel):
    kept: int
    left_out: int = Field(default=0, exclude=True)


class Special(BaseModel):
    value: float


class Odd(Entity, table="Odd", partition_key="p", row_key="{id}"):
    id: Mapped[str]
    lossy: Mapped[list[Lossy]] = field(factory=list)
    special: Mapped[Special | None] = field(default=None)
    line: Mapped[Line | None] = field(default=None)


class LongLine(Line):
    more: int = 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lossy", [Lossy(kept=1, left_out=2)]),
        ("special", Special(value=float("nan"))),
        ("line", LongLine(sku="a")),
        ("line", Line.model_construct(sku=5)),
        ("line", {"sku": "a"}),
        ("lossy", [{"kept": 1}]),
    ],
)
async def test_a_value_that_its_json_would_lose_is_refused(name: str, value: Any) -> None:
    """Nothing is written, and the error names the field."""
    async with memory_database(Odd) as db:
        with pytest.raises(EncodeError, match=rf"Odd\.{name}: "):
            await db.insert(Odd(id="1").evolve(**{name: value}))
        assert await db.get_or_none(Odd, id="1") is None


def test_faults_in_pydantic_models_are_listed_with_their_places() -> None:
    """All of them at once, beside those of other fields."""
    data: dict[str, Any] = {
        "id": "1",
        "line": {"count": 0},
        "lines": [{"sku": "a"}, {"sku": 5}],
        "crate": {"parcels": {"x": {"line": {"sku": "a", "day": "x"}}}},
        "strict": {"At": "2024-02-29T12:00:00Z", "lines": [{}]},
    }
    with pytest.raises(InvalidInput) as caught:
        from_dict(Box, data)

    assert [(fault.path, fault.kind) for fault in caught.value.faults] == [
        (("line", "sku"), "missing"),
        (("line", "count"), "invalid"),
        (("lines", 1, "sku"), "invalid"),
        (("crate", "parcels", "x", "line", "day"), "invalid"),
        (("strict", "lines", 0, "sku"), "missing"),
    ]
    assert Partial(Box, {"line": {"sku": "a"}}).given == {"line": Line(sku="a")}


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_the_schema_of_a_pydantic_model_is_its_own(mode: Any) -> None:
    """Its definition stands beside the others, once, with all that it says of its members."""
    schema = TypeAdapter(Box).json_schema(mode=mode)

    assert schema["properties"]["line"] == {"$ref": "#/$defs/Line"}
    assert schema["properties"]["lines"]["items"] == {"$ref": "#/$defs/Line"}
    assert schema["$defs"]["Parcel"]["properties"]["line"] == {"$ref": "#/$defs/Line"}
    assert schema["$defs"]["Line"] == Line.model_json_schema(mode=mode)
    assert TypeAdapter(list[Partial[Box]]).json_schema(mode=mode)["$defs"]["Line"] == schema["$defs"]["Line"]
