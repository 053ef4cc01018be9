"""
Codecs: fields to a stored row and back, for every type a field can have.
"""

import dataclasses
import datetime as dt
import enum
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import DecodeError, EncodeError, Entity, Int32, Mapped, TemplateError, field
from tableorm.protocol.edm import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from tableorm.protocol.limits import check_row
from tableorm.stores import Row


class Color(enum.Enum):
    RED = "red"
    SMILE = "\U0001f600"


class Level(enum.IntEnum):
    LOW = -(2**63)
    HIGH = 2**63 - 1


class Ratio(enum.Enum):
    HALF = 0.5
    ENDLESS = math.inf


class Flag(enum.Flag):
    A = 1
    B = 2


@attrs.frozen
class Address:
    street: str
    numbers: tuple[int, ...] = ()
    since: dt.date | None = None


@dataclasses.dataclass
class Size:
    width: float
    names: dict[str, Address] = dataclasses.field(default_factory=dict[str, Address])


class Everything(Entity, table="Everything", partition_key="p", row_key="r"):
    text: Mapped[str | None] = field(default=None)
    flag: Mapped[bool | None] = field(default=None)
    small: Mapped[Int32 | None] = field(default=None)
    big: Mapped[int | None] = field(default=None)
    real: Mapped[float | None] = field(default=None)
    moment: Mapped[dt.datetime | None] = field(default=None)
    guid: Mapped[UUID | None] = field(default=None)
    data: Mapped[bytes | None] = field(default=None)
    day: Mapped[dt.date | None] = field(default=None)
    price: Mapped[Decimal | None] = field(default=None)
    color: Mapped[Color | None] = field(default=None)
    level: Mapped[Level | None] = field(default=None)
    ratio: Mapped[Ratio | None] = field(default=None)
    mask: Mapped[Flag | None] = field(default=None)
    free: Mapped[dict[str, Any] | None] = field(default=None)
    bare: Mapped[list[Any] | None] = field(default=None)
    counts: Mapped[dict[int, list[int]] | None] = field(default=None)
    days: Mapped[list[dt.date] | None] = field(default=None)
    home: Mapped[Address | None] = field(default=None)
    size: Mapped[Size | None] = field(default=None)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(INT64_MIN, INT64_MAX),
        st.floats(allow_nan=False, allow_infinity=False),
        texts,
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
addresses = st.builds(
    Address, texts, st.lists(st.integers(0, 9), max_size=2).map(tuple), st.one_of(st.none(), st.dates())
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.one_of(texts, st.just("")),
    "flag": st.booleans(),
    "small": st.one_of(st.integers(INT32_MIN, INT32_MAX), st.sampled_from([INT32_MIN, INT32_MAX])),
    "big": st.one_of(st.integers(INT64_MIN, INT64_MAX), st.sampled_from([INT64_MIN, 0, INT64_MAX])),
    "real": st.floats(),
    "moment": st.datetimes(
        dt.datetime(1601, 1, 2),  # noqa: DTZ001
        dt.datetime(9999, 12, 30),  # noqa: DTZ001
        timezones=st.integers(-14, 14).map(lambda hours: dt.timezone(dt.timedelta(hours=hours))),
    ),
    "guid": st.uuids(),
    "data": st.binary(max_size=20),
    "day": st.dates(),
    "price": st.decimals(allow_nan=False),
    "color": st.sampled_from(Color),
    "level": st.sampled_from(Level),
    "ratio": st.sampled_from(Ratio),
    "mask": st.sampled_from(Flag),
    "free": st.dictionaries(texts, json_values, max_size=3),
    "bare": st.lists(json_values, max_size=3),
    "counts": st.dictionaries(st.integers(-9, 9), st.lists(st.integers(-9, 9), max_size=2), max_size=3),
    "days": st.lists(st.dates(), max_size=3),
    "home": addresses,
    "size": st.builds(
        Size, st.floats(allow_nan=False, allow_infinity=False), st.dictionaries(texts, addresses, max_size=2)
    ),
}


def row_of(entity: Entity) -> Row:
    return type(entity).__schema__.encode(entity.__dict__, "p", "r")[0]


def read(row: Row) -> Everything:
    entity: Everything = Everything.__schema__.decode(row)
    return entity


@given(st.fixed_dictionaries({}, optional=VALUES))
def test_values_come_back(values: dict[str, Any]) -> None:
    """What is written reads back equal and of the same type; None and what was not given leave no property."""
    row = row_of(Everything(**values))
    back = read(row)

    check_row(row)  # it is a row that the service takes
    assert {name for name in row if "@" not in name} == {"PartitionKey", "RowKey", "EntityType", *values}
    for name in VALUES:
        value = getattr(back, name)
        if name not in values:
            assert value is None
        elif name == "real":
            assert math.copysign(1, value) == math.copysign(1, values[name]) or math.isnan(value)
            assert str(value) == str(values[name])
        else:
            assert value == values[name]
            assert type(value) is type(values[name])
    assert row_of(back) == row


def test_the_weight_bounds_the_size() -> None:
    """The weight that comes with a row counts every character of what varies in size."""
    values: dict[str, Any] = {
        "text": "x" * 10,
        "data": b"12345",
        "free": {"a": "b"},
        "day": dt.date(2024, 1, 1),
        "price": Decimal("1.5"),
    }

    _, weight = Everything.__schema__.encode(Everything(**values).__dict__, "p", "r")

    assert weight == 10 + 8 + len('{"a":"b"}') + 10 + 3


@pytest.mark.parametrize(
    ("values", "members"),
    [
        ({"text": ""}, {"text": ""}),
        ({"real": 3}, {"real": 3.0}),
        ({"real": -0.0}, {"real": -0.0}),
        ({"real": math.nan}, {"real": "NaN", "real@odata.type": "Edm.Double"}),
        ({"small": 5}, {"small": 5}),
        ({"big": 5}, {"big": "5", "big@odata.type": "Edm.Int64"}),
        ({"level": Level.HIGH}, {"level": "9223372036854775807", "level@odata.type": "Edm.Int64"}),
        ({"ratio": Ratio.HALF}, {"ratio": 0.5}),
        ({"ratio": Ratio.ENDLESS}, {"ratio": "Infinity", "ratio@odata.type": "Edm.Double"}),
        ({"color": Color.RED}, {"color": "red"}),
        ({"day": dt.date(24, 2, 9)}, {"day": "0024-02-09"}),
        ({"price": Decimal("1.10")}, {"price": "1.10"}),
        ({"price": Decimal("NaN")}, {"price": "NaN"}),
        ({"free": {"n": 2**70}}, {"free": '{"n":1180591620717411303424}'}),
        ({"free": {"a": [1, 2.0, None, True]}}, {"free": '{"a":[1,2.0,null,true]}'}),
        ({"counts": {1: [2]}}, {"counts": '{"1":[2]}'}),
        ({"days": [dt.date(2024, 1, 1)]}, {"days": '["2024-01-01"]'}),
        ({"size": Size(1.0)}, {"size": '{"width":1.0,"names":{}}'}),
        (
            {"moment": dt.datetime(2024, 2, 29, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))},
            {"moment": "2024-02-29T10:00:00.0000000Z", "moment@odata.type": "Edm.DateTime"},
        ),
    ],
)
def test_stored_form(values: dict[str, Any], members: Row) -> None:
    """Each type has its stored form: typed by the declaration, never by the value at hand."""
    row = row_of(Everything(**values))

    # As text, which tells 3 from 3.0, and -0.0 from 0.0.
    expected = {"PartitionKey": "p", "RowKey": "r", "EntityType": "Everything", **members}
    assert str(sorted(row.items())) == str(sorted(expected.items()))


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


class _NoOffset(dt.tzinfo):
    def utcoffset(self, moment: dt.datetime | None) -> None:
        return None

    def dst(self, moment: dt.datetime | None) -> None:
        return None

    def tzname(self, moment: dt.datetime | None) -> str:
        return "nowhere"


class Strict(Entity, table="Strict", partition_key="{owner}", row_key="{n:03d}", kind=None):
    owner: Mapped[str]
    n: Mapped[int]
    text: Mapped[str]
    guid: Mapped[UUID]
    color: Mapped[Color] = field(default=Color.RED)
    tags: Mapped[list[str]] = field(factory=list)


STRICT: Row = {
    "PartitionKey": "jun",
    "RowKey": "005",
    "text": "x",
    "guid": "00000000-0000-0000-0000-000000000001",
    "guid@odata.type": "Edm.Guid",
}


class Word(str):
    """A str of another class."""

    __slots__ = ()


class Names(dict[str, Any]):
    """A dict of another class."""


class Shade(enum.StrEnum):
    DARK = "dark"


class Keyed(Entity, table="Keyed", partition_key="{owner}", row_key="{n:03d}_{color}", kind=None):
    owner: Mapped[str]
    n: Mapped[int]
    color: Mapped[Color]
    kept: Mapped[str] = field(default="")
    made: Mapped[dt.datetime] = field(
        default=dt.datetime(2024, 1, 1, tzinfo=dt.UTC), on_insert=lambda: dt.datetime.now(dt.UTC)
    )


UTC_2 = dt.timezone(dt.timedelta(hours=2))
POOL: list[Any] = [
    *(
        None,
        "x",
        "1",
        "red",
        "",
        "\ud800",
        Word("x"),
        Shade.DARK,
        b"x",
        bytearray(b"x"),
        True,
        0,
        1,
        -1,
        7,
        2**31,
        2**63,
    ),
    *(2**53 + 1, 10**400, 0.5, 1.0, math.nan, math.inf, Decimal("1.5"), Decimal("sNaN"), 1j, UUID(int=1), object()),
    *(dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=UTC_2)),
    *(dt.datetime(2024, 1, 1), dt.datetime(1500, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, tzinfo=_NoOffset())),  # noqa: DTZ001
    *(Color.RED, Color.SMILE, Level.LOW, Ratio.HALF, Ratio.ENDLESS, Flag.A, Flag.A | Flag.B, Address("x"), Size(1.0)),
    *(
        {},
        {"a": 1},
        {"a": math.nan},
        {1: [2]},
        Names(a=1),
        [],
        [1],
        ["x"],
        [dt.date(2024, 1, 1)],
        (1,),
        {1},
        Address,
        str,
    ),
]


@pytest.mark.parametrize("model", [Everything, Keyed])
def test_the_constructor_refuses_other_types_and_nothing_that_can_be_written(model: type[Entity]) -> None:
    """
    For all fields and values: what can be written can be given and set; what cannot be given cannot be set either, nor
    written; and of what cannot be written, only values of the field's own type can be given.
    """
    base: dict[str, Any] = {} if model is Everything else {"owner": "jun", "n": 5, "color": Color.RED}
    make: Any = model

    def error_of(call: Callable[[], object]) -> str | None:
        try:
            call()
        except (EncodeError, TemplateError) as error:
            return str(error)
        return None

    def write(name: str, value: Any) -> None:
        entity = make(**base)
        entity.__dict__[name] = value
        if value is not None or name != "made":  # which the insert fills
            model.__schema__.encode(entity.__dict__, *model.__schema__.make_keys(entity.__dict__))

    for name, info in model.__schema__.fields.items():
        for value in POOL:
            made = error_of(lambda: make(**{**base, name: value}))  # noqa: B023
            assigned = error_of(lambda: setattr(make(**base), name, value))  # noqa: B023
            written = error_of(lambda: write(name, value))  # noqa: B023
            assert made == assigned
            if made is not None:
                assert f"{model.__name__}.{name}: " in made
                assert written is not None
                assert written == made or not info.stored
            elif written is not None:
                assert isinstance(value, (info.type.base, int) if info.type.base is float else info.type.base)


def test_a_key_of_an_enum_of_strs() -> None:
    """A field that only a key holds takes a member of any enum of strs, as the write does, for its text."""
    assert Keyed(owner=Shade.DARK, n=1, color=Color.RED).key.partition_key == "dark"


def test_types_of_values_that_are_made() -> None:
    """What a factory, a converter or a hook makes is checked as what is given; a validator sees the right type only."""

    def convert(value: Any) -> Any:
        return int(value) if value != "odd" else value

    class Hooked(Entity, table="Hooked", partition_key="p", row_key="{n}"):
        n: Mapped[int] = field(default=1)
        text: Mapped[str] = field(default="")

        def __attrs_post_init__(self) -> None:
            if self.text == "wrong":
                self.__dict__["n"] = "wrong"

    class Made(Entity, table="Made", partition_key="p", row_key="r"):
        n: Mapped[int] = field(default=1, converter=convert)
        above: Mapped[int] = field(default=1, validator=attrs.validators.gt(0))
        text: Mapped[str] = field(factory=lambda: made)

    made: Any = "x"
    given: dict[str, Any] = {"n": "12"}
    values: list[dict[str, Any]] = [{"n": "odd"}, {"above": "5"}, {"text": 5}]

    for each in values:
        with pytest.raises(EncodeError, match=rf"Made\.{next(iter(each))}: .* is an? (int|str), not an? (int|str)"):
            Made(**each)
    assert Made(**given).n == 12
    made = 5
    with pytest.raises(EncodeError, match=r"Made\.text: 5 is an int"):
        Made()
    with pytest.raises(EncodeError, match=r"Hooked\.n: 'wrong' is a str"):
        Hooked(text="wrong")


def test_required_fields() -> None:
    """None in a field that is not optional is rejected when it is set, naming the field and what to declare."""
    entity = Strict(owner="jun", n=5, text="x", guid=UUID(int=1))

    with pytest.raises(EncodeError, match=r"Strict\.text: None is missing: the field is str; .* `str \| None`"):
        entity.text = None  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]


def test_defaults_of_absent_properties() -> None:
    """A property that the row has not is its field's default, from the factory each time, or None."""
    first, second = (Strict.__schema__.decode(dict(STRICT)) for _ in range(2))

    assert (first.owner, first.n, first.color, first.tags) == ("jun", 5, Color.RED, [])
    assert first.tags is not second.tags
    assert read({"PartitionKey": "p", "RowKey": "r", "text": None}).text is None


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"text": None}, ["Strict.text", "no property 'text'", "default"]),
        ({"text": 5}, ["Strict.text", "5", "Edm.Int32", "Edm.String"]),
        ({"text": "x", "text@odata.type": "Edm.Guid"}, ["Strict.text", "Edm.Guid"]),
        ({"guid": "x"}, ["Strict.guid"]),
        ({"guid": 5}, ["Strict.guid"]),
        ({"guid@odata.type": "Edm.Binary"}, ["Strict.guid", "Edm.Binary", "Edm.Guid"]),
        ({"color": "green"}, ["Strict.color", "'green'", "'red'"]),
        ({"color": 5}, ["Strict.color", "Edm.Int32"]),
        ({"tags": "[1]"}, ["Strict.tags", "list"]),
        ({"tags": "{"}, ["Strict.tags", "JSON"]),
        ({"tags": "[" * 50_000}, ["Strict.tags"]),
        ({"RowKey": "5"}, ["Strict", "row_key '5'", "{n:03d}"]),
    ],
)
def test_rows_that_do_not_fit(members: Row, words: list[str]) -> None:
    """A stored row that does not fit is rejected, naming model, keys, field, and what was found."""
    row = STRICT | members
    row = {name: value for name, value in row.items() if value is not None}

    with pytest.raises(DecodeError) as caught:
        Strict.__schema__.decode(row)
    for word in ["'jun'", *words]:
        assert word in str(caught.value)
    assert caught.value.key == (row["PartitionKey"], row["RowKey"])


@pytest.mark.parametrize(
    ("member", "value", "annotation"),
    [
        ("small", "5", "Edm.Int64"),
        ("big", "5", None),
        ("big", "x", "Edm.Int64"),
        ("real", "inf", "Edm.Double"),
        ("moment", 5, "Edm.DateTime"),
        ("data", "???", "Edm.Binary"),
        ("day", "2024-02-30", None),
        ("price", "x", None),
        ("ratio", 0.25, None),
        ("home", "{}", None),
    ],
)
def test_properties_of_another_type(member: str, value: object, annotation: str | None) -> None:
    """Types come from the declaration: a property of another type is rejected, not converted."""
    row: Row = {"PartitionKey": "p", "RowKey": "r", member: value}
    if annotation is not None:
        row[f"{member}@odata.type"] = annotation

    with pytest.raises(DecodeError, match=rf"Everything\.{member}"):
        read(row)


def test_numbers_of_other_programs() -> None:
    """An Int32 is read where an int or a float is declared, and keeps its value."""
    back = read({"PartitionKey": "p", "RowKey": "r", "big": 5, "real": 3})

    assert (back.big, back.real) == (5, 3.0)
    assert type(back.real) is float


def test_moments_of_other_programs() -> None:
    """A DateTime with 100 ns digits, none, or an offset is read in UTC; what a datetime cannot hold is cut."""

    def moment(text: str) -> dt.datetime | None:
        return read({"PartitionKey": "p", "RowKey": "r", "moment": text, "moment@odata.type": "Edm.DateTime"}).moment

    for text in ("2024-02-29T12:00:00.1234567Z", "2024-02-29T14:00:00.1234569+02:00"):
        assert moment(text) == dt.datetime(2024, 2, 29, 12, 0, 0, 123_456, tzinfo=dt.UTC)
    found = moment("2024-02-29T12:00:00")
    assert found == dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
    assert found is not None
    assert found.tzinfo is dt.UTC


def test_key_fields_are_read_from_the_keys() -> None:
    """A field that a key holds is read from it, whatever a property of that name says."""
    entity = Strict.__schema__.decode({**STRICT, "owner": "ann", "PartitionKey": "a^2Fb"})

    assert entity.owner == "a/b"
    assert dict(entity.extra) == {"owner": "ann"}


@pytest.mark.parametrize(
    ("template", "key", "value"),
    [
        ("{n}", "-5", -5),
        ("x_{n}", "x_12", 12),
        ("{n:03d}", "007", 7),
        ("x_{n:03d}", "x_007", 7),
        ("x_{n:03d}_y", "x_007_y", 7),
    ],
)
def test_integers_in_row_keys(template: str, key: str, value: int) -> None:
    """An integer is read from its key, in the digits of the template and no others."""

    class Odd(Entity, table="Odd", partition_key="p", row_key=template):
        n: Mapped[int]

    schema = Odd.__schema__
    assert schema.decode({"PartitionKey": "p", "RowKey": key}).n == value
    for bad in (key + "x", "y" + key, key.replace(key.strip("-x_y"), "\u0661\u0662\u0663"), "", key[:-1] + "\n"):
        with pytest.raises(DecodeError, match=r"Odd.*row_key"):
            schema.decode({"PartitionKey": "p", "RowKey": bad})


class Composed(
    Entity,
    table="Composed",
    partition_key="{day}",
    row_key="{at:ticks_desc}_{name}_{color}_{number:04d}_{day}_{name:lower}",
):
    day: Mapped[dt.date]
    at: Mapped[dt.datetime]
    name: Mapped[str]
    color: Mapped[Color]
    number: Mapped[int]


@given(
    st.dates(),
    st.datetimes(dt.datetime(1601, 1, 1), timezones=st.just(dt.UTC)),  # noqa: DTZ001 - hypothesis adds the zone
    st.text(st.sampled_from("aZ_^/\u00e9"), max_size=5),
    st.sampled_from(Color),
    st.integers(0, 9999),
)
def test_keys_of_several_fields(day: dt.date, at: dt.datetime, name: str, color: Color, number: int) -> None:
    """Every field is read from the key as it was written, also where the text of another one could be part of it."""
    entity = Composed(day=day, at=at, name=name, color=color, number=number)
    keys = entity.key.partition_key, entity.key.row_key

    assert read_composed(*keys) == entity


@pytest.mark.parametrize(
    "row_key",
    [
        "2519931707999999999_a_red_0001_20140831_a",
        "2519931707999999999_a_green_0001_2014-08-31_a",
        "2519931707999999999_a_red_0001_2014-02-31_a",
        "9999999999999999999_a_red_0001_2014-08-31_a",
        "2519931707999999999_a_red_0001_2014-08-31",
        "",
    ],
)
def test_a_part_of_a_key_that_does_not_fit(row_key: str) -> None:
    """It is rejected, also if the field is taken from the other key."""
    with pytest.raises(DecodeError, match=r"Composed.*row_key"):
        read_composed("2014-08-31", row_key)


class InBoth(Entity, table="Codecs", partition_key="{country}_{tenant}", row_key="{tenant}"):
    country: Mapped[str]
    tenant: Mapped[str]


class OtherInBoth(Entity, table="Codecs", partition_key="{shop:03d}", row_key="order_{shop:03d}_{id}"):
    shop: Mapped[int]
    id: Mapped[int]


class Twice(Entity, table="Codecs", partition_key="p", row_key="{id}_{name}_{id:05d}"):
    id: Mapped[int]
    name: Mapped[str]


@pytest.mark.parametrize(
    ("model", "keys", "words"),
    [
        (InBoth, ("NO_b", "a"), "partition_key 'NO_b' says tenant='b', and row_key 'a' tenant='a'"),
        (OtherInBoth, ("005", "order_006_1"), "partition_key '005' says shop=5, and row_key 'order_006_1' shop=6"),
        (Twice, ("p", "5_n_00006"), "row_key '5_n_00006' has two values of 'id'"),
    ],
)
def test_keys_that_contradict_each_other(model: type[Entity], keys: tuple[str, str], words: str) -> None:
    """Where keys hold a field twice both must have one value: the model makes no others, and would read it wrongly."""
    row = {"PartitionKey": keys[0], "RowKey": keys[1], "EntityType": model.__name__}
    with pytest.raises(DecodeError) as caught:
        model.__schema__.decode(row)

    assert words in str(caught.value)


def read_composed(partition_key: str, row_key: str) -> Any:
    return Composed.__schema__.decode({"PartitionKey": partition_key, "RowKey": row_key, "EntityType": "Composed"})


def test_partial_entities_are_not_written_in_full() -> None:
    """An entity of which not all was loaded cannot be written in full; the message names what is missing."""
    entity = Strict.__schema__.decode(dict(STRICT))
    del entity.__dict__["text"]

    with pytest.raises(EncodeError, match=r"Strict\.text.*not loaded"):
        row_of(entity)


class Nested(Entity, table="NestedValues", partition_key="p", row_key="r"):
    numbers: Mapped[list[int]]
    moments: Mapped[list[dt.datetime]]


def test_values_in_json_text_have_no_limits_of_their_own() -> None:
    """Numbers of any size and datetimes without a time zone, which fields refuse, come back as they are."""
    entity = Nested(numbers=[10**400], moments=[dt.datetime(2024, 2, 29)])  # noqa: DTZ001

    assert Nested.__schema__.decode(row_of(entity)) == entity
