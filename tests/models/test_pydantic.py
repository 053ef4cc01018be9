"""
Entities as types of pydantic and FastAPI: what they accept and give is what from_dict and to_dict do.
"""

import dataclasses
import datetime as dt
import enum
import json
import pprint
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

import attrs
import httpx
import pydantic
import pytest
from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tableorm import (
    Entity,
    Int32,
    InvalidInput,
    Mapped,
    ModelError,
    NotLoaded,
    Page,
    Partial,
    WithoutKey,
    field,
    from_dict,
    to_dict,
    utc_now,
)


class Color(enum.Enum):
    """How it is painted."""

    RED = "red"
    BLUE = "blue"


class Ratio(enum.Enum):
    HALF = 0.5


@attrs.define
class Place:
    """Where somebody lives."""

    street: str
    since: dt.datetime | None = None


@dataclasses.dataclass
class Item:
    name: str
    place: Place
    parts: list["Item"] = dataclasses.field(default_factory=lambda: [])  # noqa: PIE807


class Thing(Entity, table="Things", partition_key="{owner}", row_key="{n:03d}"):
    """
    A thing.

    It has an owner.
    """

    owner: Mapped[str] = field(doc="Who owns it.")
    n: Mapped[int]
    small: Mapped[Int32] = field(default=3)
    real: Mapped[float] = field(default=0.5)
    at: Mapped[dt.datetime | None] = field(default=None, doc="When it was made.")
    day: Mapped[dt.date | None] = field(default=None)
    price: Mapped[Decimal] = field(default=Decimal("1.10"))
    guid: Mapped[UUID] = field(factory=lambda: UUID(int=7))
    data: Mapped[bytes] = field(default=b"\x00\xff")
    color: Mapped[Color] = field(default=Color.RED)
    ratio: Mapped[Ratio | None] = field(default=None)
    free: Mapped[dict[str, Any]] = field(factory=dict)
    counts: Mapped[dict[int, int]] = field(factory=dict)
    item: Mapped[Item | None] = field(default=None)
    places: Mapped[list[Place]] = field(factory=list)
    seen: Mapped[int] = field(default=0, maintained=True)


class Dated(Entity, table="Dated", partition_key="p", row_key="{id}"):
    id: Mapped[str]
    made: Mapped[dt.datetime | None] = field(default=None, on_insert=utc_now)


class Person(Entity, table="People", partition_key="{country}", row_key="{kind}_{id}", abstract=True):
    country: Mapped[str]
    id: Mapped[str]


class Customer(Person):
    since: Mapped[int]


class Vip(Customer):
    gift: Mapped[str] = field(default="")


class Staff(Person):
    room: Mapped[int]


VIP = Vip(country="SE", id="2", since=2024, gift="book")
STAFF = Staff(country="SE", id="1", room=3)


THINGS = TypeAdapter(Thing)

_text = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=5)
_moments = st.datetimes(
    dt.datetime(1601, 1, 2),  # noqa: DTZ001
    dt.datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=st.just(dt.UTC),
).map(lambda moment: moment.replace(fold=0))  # which no text holds
_places = st.builds(Place, _text, st.none() | _moments)
_items = st.recursive(
    st.builds(Item, _text, _places),
    lambda items: st.builds(Item, _text, _places, st.lists(items, max_size=2)),
    max_leaves=3,
)
_things = st.builds(
    Thing,
    owner=_text,
    n=st.integers(0, 999),
    small=st.integers(-(2**31), 2**31 - 1),
    real=st.floats(),
    at=st.none() | _moments,
    day=st.none() | st.dates(),
    price=st.decimals(allow_nan=False, allow_infinity=False),
    guid=st.uuids(),
    data=st.binary(max_size=5),
    color=st.sampled_from(Color),
    ratio=st.none() | st.sampled_from(Ratio),
    free=st.dictionaries(_text, st.none() | st.booleans() | st.integers(-99, 99) | _text, max_size=2),
    counts=st.dictionaries(st.integers(-99, 99), st.integers(-99, 99), max_size=2),
    item=st.none() | _items,
    places=st.lists(_places, max_size=2),
)


@given(thing=_things)
def test_the_same_json(thing: Thing) -> None:
    """Pydantic gives the JSON that to_dict gives, and reads it back as from_dict does, from text and from values."""
    data = to_dict(thing, mode="json")
    text = json.dumps(data)

    assert json.loads(THINGS.dump_json(thing)) == json.loads(text)
    assert json.dumps(THINGS.dump_python(thing, mode="json")) == text
    for back in (THINGS.validate_json(text), THINGS.validate_python(json.loads(text)), from_dict(Thing, data)):
        assert repr(back) == repr(thing)  # NaN is not equal to itself


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["red", "x", "2024-02-29", "NaN"]),
    lambda values: (
        st.lists(values, max_size=2)
        | st.dictionaries(st.sampled_from(["street", "name", "place", "1", "x"]), values, max_size=3)
    ),
    max_leaves=6,
)


@given(data=st.dictionaries(st.sampled_from([*Thing.__schema__.fields, "x"]), _JUNK, max_size=6) | _JUNK)
def test_the_same_faults(data: Any) -> None:
    """Pydantic refuses what from_dict refuses, with the same paths, values and messages."""
    try:
        expected: object = repr(from_dict(Thing, data))
    except InvalidInput as error:
        expected = [(fault.path, str(fault), repr(fault.value)) for fault in error.faults]
    try:
        found: object = repr(THINGS.validate_python(data))
    except pydantic.ValidationError as error:
        found = [(each["loc"], each["msg"], repr(each["input"])) for each in error.errors()]

    assert found == expected


def test_kinds_of_faults() -> None:
    """The type of each error says what is wrong, in pydantic's own words where it has them."""
    with pytest.raises(pydantic.ValidationError) as caught:
        TypeAdapter(list[Thing]).validate_python([{"owner": "jun", "nn": 1, "places": [{"street": 1}]}])

    assert [(each["type"], each["loc"]) for each in caught.value.errors()] == [
        ("extra_forbidden", (0, "nn")),
        ("invalid_value", (0, "places", 0, "street")),
        ("missing", (0, "n")),
    ]


def test_entities_stay_as_they_are() -> None:
    """An entity that is validated is handed on, and one that was not loaded in full shows what was loaded."""
    thing = Thing(owner="jun", n=1)
    for name in list(thing.__dict__):
        if name not in ("owner", "n"):
            del thing.__dict__[name]

    assert THINGS.validate_python(thing) is thing
    assert THINGS.dump_json(thing) == b'{"owner":"jun","n":1}'


def test_fields_of_an_answer() -> None:
    """Fields are included and excluded as a whole, and left out if they are None or have their default."""
    thing = Thing(owner="jun", n=1, small=4)

    assert THINGS.dump_python(thing) == to_dict(thing)
    assert THINGS.dump_python(thing, include={"n", "day"}) == {"n": 1, "day": None}
    assert THINGS.dump_python(thing, include={"n", "day"}, exclude_none=True) == {"n": 1}
    assert set(THINGS.dump_python(thing, exclude={"n": True, "day": True})) == set(Thing.__schema__.fields) - {
        "n",
        "day",
    }
    assert THINGS.dump_python(thing, exclude_defaults=True) == {"owner": "jun", "n": 1, "small": 4}
    with pytest.raises(
        ValueError, match=r"Thing: .'places': .0.. is rejected: a field is included or excluded as a whole"
    ):
        THINGS.dump_python(thing, exclude={"places": {0}})


def test_a_member_of_pydantic_models() -> None:
    """A model is a type of a field in pydantic's own models."""

    class Box(pydantic.BaseModel):
        things: list[Thing]
        changes: Partial[Thing] | None = None

    thing = Thing(owner="jun", n=1)
    box = Box.model_validate({"things": [to_dict(thing, mode="json")], "changes": {"real": 2}})

    assert box.things == [thing]
    assert box.changes == Partial(Thing, {"real": 2.0})
    assert json.loads(box.model_dump_json())["changes"] == {"real": 2.0}
    assert Box.model_validate_json(box.model_dump_json()) == box


def test_schema_of_a_model() -> None:
    """A JSON schema says type, format, whether a field may be None or left out, its default, and what it means."""
    schema = THINGS.json_schema()

    assert schema == THINGS.json_schema(mode="serialization")
    assert schema["title"] == "Thing"
    assert schema["description"] == "A thing.\n\nIt has an owner."
    assert schema["required"] == ["owner", "n"]
    assert schema["additionalProperties"] is False
    assert schema["properties"] == {
        "owner": {"type": "string", "description": "Who owns it."},
        "n": {"type": "integer", "format": "int64"},
        "small": {"type": "integer", "format": "int32", "default": 3},
        "real": {"type": "number", "format": "double", "default": 0.5},
        "at": {
            "anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}],
            "description": "When it was made.",
            "default": None,
        },
        "day": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
        "price": {"type": "string", "format": "decimal", "default": "1.10"},
        "guid": {"type": "string", "format": "uuid"},
        "data": {"type": "string", "format": "byte", "contentEncoding": "base64", "default": "AP8="},
        "color": {"$ref": "#/$defs/Color", "default": "red"},
        "ratio": {"anyOf": [{"$ref": "#/$defs/Ratio"}, {"type": "null"}], "default": None},
        "free": {"type": "object"},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "item": {"anyOf": [{"$ref": "#/$defs/Item"}, {"type": "null"}], "default": None},
        "places": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
        "seen": {"type": "integer", "format": "int64", "default": 0, "readOnly": True},
    }
    assert schema["$defs"] == {
        "Color": {"title": "Color", "description": "How it is painted.", "type": "string", "enum": ["red", "blue"]},
        "Ratio": {"title": "Ratio", "type": "number", "enum": [0.5]},
        "Item": {
            "title": "Item",
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "place": {"$ref": "#/$defs/Place"},
                "parts": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
            },
            "required": ["name", "place"],
            "additionalProperties": False,
        },
        "Place": {
            "title": "Place",
            "description": "Where somebody lives.",
            "type": "object",
            "properties": {
                "street": {"type": "string"},
                "since": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}], "default": None},
            },
            "required": ["street"],
            "additionalProperties": False,
        },
    }


def test_schema_of_a_partial() -> None:
    """The schema of a partial has the fields that can be changed, of which none is required or has a default."""
    schema = TypeAdapter(Partial[Thing]).json_schema()
    properties = schema["properties"]

    assert schema["title"] == "PartialThing"
    assert "required" not in schema
    assert set(properties) == set(Thing.__schema__.fields) - {"owner", "n", "seen"}
    assert properties["small"] == {"type": "integer", "format": "int32"}
    assert properties["day"] == {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}


class places:  # noqa: N801
    @attrs.define
    class Place:
        room: int


def test_classes_of_one_name() -> None:
    """Two classes of one name have two definitions; a class that several models have, one."""

    class One(Entity, table="Ones", partition_key="p", row_key="{id}"):
        id: Mapped[str]
        place: Mapped[places.Place]
        old_place: Mapped[Place]

    class Two(Entity, table="Twos", partition_key="p", row_key="{id}"):
        id: Mapped[str]
        place: Mapped[Place]

    schema = TypeAdapter(tuple[One, Two]).json_schema()
    definitions = schema["$defs"]

    def members(model: str, name: str) -> set[str]:
        link: str = definitions[model]["properties"][name]["$ref"]
        return set(definitions[link.removeprefix("#/$defs/")]["properties"])

    assert members("One", "place") == {"room"}
    assert members("One", "old_place") == members("Two", "place") == {"street", "since"}
    assert len(definitions) == 4


def test_kinds() -> None:
    """An abstract base stands for all of its classes, also one below another; a union tells them by their fields."""
    people: list[Person] = [
        STAFF,
        VIP,
        Customer(country="SE", id="3", since=2023),
    ]
    for annotation in (list[Person], list[Vip | Customer | Staff]):
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        data = [to_dict(person, mode="json") for person in people]

        assert json.loads(adapter.dump_json(people)) == data
        assert adapter.validate_python(people) == people
        assert adapter.validate_python(data[:2]) == people[:2]
        assert {"Customer", "Staff", "Vip"} <= set(adapter.json_schema()["$defs"])


def test_a_class_below_the_declared_one() -> None:
    """Where one class is declared, an entity of a class below it shows the fields of the declared class alone."""
    assert TypeAdapter(Customer).dump_python(VIP) == {"country": "SE", "id": "2", "since": 2024}


E = TypeVar("E", bound=Entity)


class Listing(pydantic.BaseModel, Generic[E]):
    items: list[E]
    changes: Partial[E] | None = None
    content: WithoutKey[E] | None = None


def test_a_generic_class() -> None:
    """A type variable that Entity bounds takes entities of any model; with a model, it takes what that accepts."""
    listing: Listing[Any] = Listing(
        items=[STAFF], changes=Partial(Staff, {"room": 4}), content=WithoutKey(Staff, {"room": 5})
    )

    assert listing.model_dump() == {
        "items": [to_dict(STAFF)],
        "changes": {"room": 4},
        "content": {"room": 5},
    }
    assert Listing.model_json_schema()["properties"]["items"]["items"] == {"type": "object", "title": "Entity"}
    with pytest.raises(pydantic.ValidationError, match="instance of Entity"):
        Listing.model_validate({"items": [to_dict(STAFF)]})
    assert Listing[Staff].model_validate({"items": [to_dict(STAFF)], "content": {"room": 5}}).items == [STAFF]


def test_a_page() -> None:
    """A page is an object with its items and its cursor, read and written as they are."""
    page: Page[Staff] = Page([STAFF], "next")
    adapter = TypeAdapter(Page[Staff])

    data = json.loads(adapter.dump_json(page))

    assert data == {"items": [{"country": "SE", "id": "1", "room": 3}], "cursor": "next"}
    assert adapter.validate_python(data) == adapter.validate_python(page) == page
    schema = adapter.json_schema()
    assert (schema["title"], schema["required"]) == ("Page", ["items", "cursor"])
    assert schema["properties"]["items"]["items"] == {"$ref": "#/$defs/Staff"}


def test_a_maintained_field_of_a_body() -> None:
    """Other entities maintain it, so a body has not got it, or with the value that it begins with."""
    body = {"owner": "jun", "n": 1, "seen": 7}
    with pytest.raises(ValueError, match="7 is rejected: writes of other entities maintain the field; leave it out"):
        THINGS.validate_python(body)
    assert (
        THINGS.validate_python({**body, "seen": 0}) == from_dict(Thing, {**body, "seen": 0}) == Thing(owner="jun", n=1)
    )
    with pytest.raises(InvalidInput) as caught:
        from_dict(Thing, {"owner": "jun", "n": "x", "seen": 7})
    assert [fault.path for fault in caught.value.faults] == [("n",), ("seen",)]


def test_a_field_that_a_write_fills() -> None:
    """In OpenAPI it is read-only in an entity, and absent from what changes one."""
    assert TypeAdapter(Dated).json_schema()["properties"]["made"]["readOnly"] is True
    assert "made" not in TypeAdapter(Partial[Dated]).json_schema()["properties"]
    assert "made" not in TypeAdapter(WithoutKey[Dated]).json_schema()["properties"]


def test_schema_of_a_body_without_key() -> None:
    """It has the fields but for those of the key and the maintained ones, and requires those without a default."""
    schema = TypeAdapter(WithoutKey[Thing]).json_schema()

    assert schema["title"] == "WithoutKeyThing"
    assert "required" not in schema
    assert set(schema["properties"]) == set(Thing.__schema__.fields) - {"owner", "n", "seen"}
    assert schema["properties"]["small"] == {"type": "integer", "format": "int32", "default": 3}
    assert TypeAdapter(WithoutKey[Staff]).json_schema()["required"] == ["room"]


def test_what_stands_for_no_model() -> None:
    """A base without classes, and a partial of nothing or of what is no model, are rejected by name."""

    class Lonely(Entity, abstract=True): ...

    for annotation, message in (
        (Lonely, "Lonely is abstract and has no concrete classes yet"),
        (Partial[Any], "is not a model"),
        (WithoutKey[Person], r"WithoutKey\[Person\] is rejected: Person is abstract; name a class of it"),
        (Partial, r"Partial of None is rejected: .* Partial\[Order\]"),
    ):
        with pytest.raises(ModelError, match=message):
            TypeAdapter(annotation)


# FastAPI

app = FastAPI()
stored: dict[str, Thing] = {}


@app.post("/things")
async def create(thing: Thing) -> Thing:
    stored[thing.owner] = thing
    return thing


@app.post("/lists")
async def create_all(things: list[Thing]) -> int:
    return len(things)


@app.patch("/things/{owner}")
async def change(owner: str, changes: Partial[Thing]) -> Thing:
    stored[owner].update(changes)
    return stored[owner]


@app.post("/people")
async def receive(person: Customer | Staff) -> Customer | Staff:
    return person


@app.get("/short", response_model_exclude={"country"})
async def show() -> Staff:
    return STAFF


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        yield client


async def test_bodies_and_answers(client: httpx.AsyncClient) -> None:
    """A parameter that is a model is the body of the request, without more words; an answer has all of its fields."""
    thing = Thing(owner="jun", n=1, item=Item("a", Place("Main")))
    data = to_dict(thing, mode="json")

    answer = await client.post("/things", json={"owner": "jun", "n": 1, "item": data["item"]})

    assert (answer.status_code, answer.json()) == (200, data)
    assert stored["jun"] == thing
    assert (await client.post("/lists", json=[data, data])).json() == 2


async def test_patch(client: httpx.AsyncClient) -> None:
    """A partial sets what the request has; a field of the key in it is rejected."""
    await client.post("/things", json={"owner": "jun", "n": 1, "day": "2024-02-29"})

    answer = await client.patch("/things/jun", json={"day": None, "color": "blue"})
    refused = await client.patch("/things/jun", json={"owner": "ken"})

    assert (answer.json()["day"], answer.json()["color"], answer.json()["n"]) == (None, "blue", 1)
    assert refused.status_code == 422
    assert [each["loc"] for each in refused.json()["detail"]] == [["body", "owner"]]


async def test_kinds_in_the_answer(client: httpx.AsyncClient) -> None:
    """A union takes a body of any of its models, and answers with all fields of the entity's own."""
    data = {"country": "SE", "id": "1", "room": 3}

    answer = await client.post("/people", json=data)
    refused = await client.post("/people", json={"country": "SE", "id": "1", "roon": 3})

    assert (answer.status_code, answer.json()) == (200, data)
    assert {each["loc"][1] for each in refused.json()["detail"]} == {
        "function-plain[Customer()]",
        "function-plain[Staff()]",
    }
    assert (await client.get("/short")).json() == {"id": "1", "room": 3}


async def test_openapi(client: httpx.AsyncClient) -> None:
    """OpenAPI has one schema for each model, as body and as answer, and one for each partial and nested class."""
    described: dict[str, Any] = (await client.get("/openapi.json")).json()
    schemas = described["components"]["schemas"]
    body = described["paths"]["/things"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    changes = described["paths"]["/things/{owner}"]["patch"]["requestBody"]["content"]["application/json"]["schema"]

    assert body == {"$ref": "#/components/schemas/Thing"}
    assert changes == {"$ref": "#/components/schemas/PartialThing"}
    assert {"Thing", "PartialThing", "Item", "Place", "Color", "Customer", "Staff"} <= set(schemas)
    assert schemas["Thing"]["properties"]["places"]["items"] == {"$ref": "#/components/schemas/Place"}
    assert described["paths"]["/things"]["post"].get("parameters") is None


# The standard library's dataclasses, by which FastAPI tells bodies


def test_fields_as_those_of_a_dataclass() -> None:
    """The functions of `dataclasses` see the fields of a model, of each class its own, and defaults as factories."""
    vip: Any = Vip(country="SE", id="2", since=2024)

    assert [each.name for each in dataclasses.fields(vip)] == ["country", "id", "since", "gift"]
    assert [each.name for each in dataclasses.fields(cast(Any, Customer))] == ["country", "id", "since"]
    assert cast(Any, dataclasses.fields(vip)[3]).default_factory() == ""
    assert dataclasses.asdict(vip) == to_dict(vip)
    assert dataclasses.replace(vip, gift="book") == VIP
    assert jsonable_encoder(vip) == to_dict(vip)
    assert pprint.pformat(vip, width=10) == repr(vip)
    del vip.__dict__["gift"]
    with pytest.raises(NotLoaded, match="gift"):
        dataclasses.asdict(vip)
