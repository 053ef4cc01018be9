"""
Worlds of rows that other programs wrote: properties of any type, moments of 100 ns digits, and keys of other forms.

What a comparison says of them is written down here once more, from the service's rules: each stored value and each
constant is a `Typed`, whose operators are these rules.
"""

import datetime as dt
import math
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from tableorm import Entity, Index, Int32, Mapped, PropertyBag, RowKey, field
from tableorm.protocol.edm import Edm, text_from_ticks, ticks_from_datetime, utf16_key
from tableorm.stores import Row
from tests.queries.worlds import Color, Column, Level, Pair, Term, World, comparison, in_key, maybe, stored, system

UTC = dt.UTC


# What a comparison says

INT32 = range(-(2**31), 2**31)
NUMBERS = {Edm.INT32: 1, Edm.INT64: 2, Edm.DOUBLE: 3}
"""A constant is promoted to types of a higher number."""

ORDER = [Edm.BOOLEAN, Edm.INT32, Edm.DATETIME, Edm.GUID, Edm.BINARY, Edm.STRING]
"""Values of different types have this order, where all numbers stand for one type."""


class Side:
    """
    The left side of a comparison: what is stored. Subclasses say when it is equal to a constant, below, and above.

    None means that this is unknown.
    """

    def equal(self, other: Any) -> bool:
        raise NotImplementedError

    def below(self, other: Any) -> bool | None:
        raise NotImplementedError

    def above(self, other: Any) -> bool | None:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return self.equal(other)

    def __ne__(self, other: object) -> bool:
        return not self.equal(other)

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Any) -> bool | None:
        return self.below(other)

    def __gt__(self, other: Any) -> bool | None:
        return self.above(other)

    def level(self, other: Any) -> bool:
        """Whether it is neither below nor above, of what has an order."""
        return self.equal(other)

    def __le__(self, other: Any) -> bool | None:
        return None if (below := self.below(other)) is None else below or self.level(other)

    def __ge__(self, other: Any) -> bool | None:
        return None if (above := self.above(other)) is None else above or self.level(other)


class Typed(Side):
    """
    A value and its type.

    A number that a condition on a field compares with is sent as Int32 too, where it is not one: whole numbers of other
    types are compared with the nearest one that is.
    """

    def __init__(self, kind: Edm, value: Any, *, of_field: bool = False) -> None:
        self.kind, self.value, self.of_field = kind, value, of_field

    def __repr__(self) -> str:
        return f"{self.kind.name} {self.value!r}"

    def _takes(self, constant: "Typed") -> bool:
        """Whether a constant is of this type, or promoted to it."""
        if self.kind in NUMBERS and constant.kind in NUMBERS:
            return NUMBERS[constant.kind] <= NUMBERS[self.kind]
        return self.kind is constant.kind

    def _rank(self) -> int:
        return ORDER.index(Edm.INT32 if self.kind in NUMBERS else self.kind)

    def _ordinal(self) -> Any:
        if self.kind is Edm.STRING:
            return utf16_key(self.value)
        return str(self.value) if self.kind is Edm.GUID else self.value

    def equal(self, other: Any) -> bool:
        if self._takes(other):
            return bool(self.value == other.value)
        return self._is_other_number(other) and bool(self.value == other.value and self.value in INT32)

    def below(self, other: Any) -> bool:
        if self._takes(other):
            return bool(self._ordinal() < other._ordinal())
        if self._is_other_number(other):
            return bool(self.value < other.value and self.value < INT32.stop)
        return bool(self._rank() < other._rank())

    def above(self, other: Any) -> bool:
        if self._takes(other):
            return bool(self._ordinal() > other._ordinal())
        if self._is_other_number(other):
            return bool(self.value > other.value and self.value >= INT32.start)
        return bool(self._rank() > other._rank())

    def _is_other_number(self, constant: "Typed") -> bool:
        return constant.of_field and self.kind in NUMBERS and constant.kind in NUMBERS


class Number(Side):
    """What is stored where a decimal number is declared: no number, and NaN, are unequal to all and have no order."""

    def __init__(self, stored_value: Typed) -> None:
        try:
            self.value = Decimal(stored_value.value) if stored_value.kind is Edm.STRING else Decimal("NaN")
        except InvalidOperation:
            self.value = Decimal("NaN")

    def equal(self, other: Any) -> bool:
        return not self.value.is_nan() and self.value == other

    def below(self, other: Any) -> bool | None:
        return None if self.value.is_nan() else self.value < other

    def above(self, other: Any) -> bool | None:
        return None if self.value.is_nan() else self.value > other


class KeyText(Side):
    """
    A part of a key: equal as text; in order as text too, or as a number if its texts sort otherwise, or as the
    microsecond that ticks are in.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.order: Any = int(text) if len(text) < 10 else int(text) // 10 if text.isdigit() else text

    def equal(self, other: Any) -> bool:
        return bool(self.text == other.text)

    def level(self, other: Any) -> bool:
        return bool(self.order == other.order)

    def below(self, other: Any) -> bool:
        return bool(self.order < other.order)

    def above(self, other: Any) -> bool:
        return bool(self.order > other.order)


# What is stored

NOON = dt.datetime(2024, 2, 29, 12, tzinfo=UTC)
TICKS = ticks_from_datetime(NOON)
NAN = float("nan")
BADGE = UUID("c9da6455-213d-42c9-9a79-3e9149a57833")

VALUES: dict[Edm, list[Any]] = {
    Edm.BOOLEAN: [True, False],
    Edm.INT32: [-5, 0, 1, 5, 20],
    Edm.INT64: [-5, 0, 1, 5, 20, 2**31, 2**40, 2**53, 2**53 + 1, -(2**63)],
    Edm.DOUBLE: [-5.0, -0.0, 1.0, 5.0, 5.5, 2.0**40, 2.0**53, math.inf, -math.inf, NAN],
    Edm.DATETIME: [TICKS - 1, TICKS, TICKS + 1, TICKS + 10, TICKS + 10_000_000],
    Edm.GUID: [BADGE, UUID(int=1)],
    Edm.BINARY: [b"", b"\x00", b"5"],
    Edm.STRING: ["", "5", "5.0", "-1E+1", "NaN", "sNaN", "cheap", "red", "a", "a~", "2024-02-29", "20240229", "true"],
}
"""Values of each type; moments as ticks, two of which a datetime cannot hold."""

TYPED = st.one_of([st.builds(Typed, st.just(kind), st.sampled_from(values)) for kind, values in VALUES.items()])


def member(name: str, value: Typed) -> Row:
    """The JSON of a property."""
    kind, found = value.kind, value.value
    match kind:
        case Edm.DATETIME:
            text = text_from_ticks(found)
        case Edm.INT64 | Edm.GUID:
            text = str(found)
        case Edm.BINARY:
            text = b64encode(found).decode()
        case Edm.DOUBLE if not math.isfinite(found):
            text = "NaN" if math.isnan(found) else "Infinity" if found > 0 else "-Infinity"
        case _:
            return {name: found}
    return {name: text, f"{name}@odata.type": str(kind)}


class Found(PropertyBag):
    """A row with the values that it was made of, which a property bag would read as Python values."""

    typed: dict[str, Typed]


NAMES = ("number", "small", "ratio", "text", "moment", "day", "price", "flag", "badge", "data", "color", "level")


@st.composite
def bags(
    draw: st.DrawFn,
    table: str,
    partition_keys: st.SearchStrategy[str],
    row_keys: st.SearchStrategy[str],
    names: tuple[str, ...] = NAMES,
) -> Any:
    """A row of no kind, whose properties are of any types."""
    row: Row = {"PartitionKey": draw(partition_keys), "RowKey": draw(row_keys)}
    typed = {name: value for name in names if (value := draw(st.none() | TYPED)) is not None}
    for name, value in typed.items():
        row |= member(name, value)
    bag = Found(table, row["PartitionKey"], row["RowKey"])
    bag.row.update(row)
    bag.typed = typed
    return bag


class Sample(Entity, table="Samples", partition_key="{group}", row_key="{name}"):
    group: Mapped[str]
    name: Mapped[str]
    number: Mapped[int | None] = field(default=None)
    small: Mapped[Int32 | None] = field(default=None)
    ratio: Mapped[float | None] = field(default=None)
    text: Mapped[str | None] = field(default=None)
    moment: Mapped[dt.datetime | None] = field(default=None)
    day: Mapped[dt.date | None] = field(default=None)
    price: Mapped[Decimal | None] = field(default=None)
    flag: Mapped[bool | None] = field(default=None)
    badge: Mapped[UUID | None] = field(default=None)
    data: Mapped[bytes | None] = field(default=None)
    color: Mapped[Color | None] = field(default=None)
    level: Mapped[Level | None] = field(default=None)


def constant_of(name: str, value: Any) -> Typed:
    """The constant that a value of a field is sent as."""
    if isinstance(value, (Color, Level)):
        value = value.value
    if isinstance(value, dt.datetime):
        return Typed(Edm.DATETIME, ticks_from_datetime(value))
    if isinstance(value, dt.date):
        return Typed(Edm.STRING, value.isoformat())
    if type(value) is int and name != "ratio":
        return Typed(Edm.INT32 if value in INT32 else Edm.INT64, value, of_field=True)
    kinds = {int: Edm.DOUBLE, float: Edm.DOUBLE, str: Edm.STRING, bool: Edm.BOOLEAN, UUID: Edm.GUID, bytes: Edm.BINARY}
    return Typed(kinds[type(value)], value, of_field=True)


def mixed(name: str, values: st.SearchStrategy[Any], model: Any = Sample) -> Column:
    """A field, whatever is in the property."""

    def pair(bag: Any, value: Any) -> Pair:
        own = bag.typed.get(name)
        if own is None:
            return None
        return (Number(own), value) if name == "price" else (own, constant_of(name, value))

    return Column(getattr(model, name), values, pair)


INTS = st.sampled_from([-5, 0, 1, 5, 20])
WIDE = INTS | st.sampled_from([2**31, 2**40, 2**53, 2**53 + 1])
DOUBLES = st.sampled_from([-5.0, 0.0, 1.0, 5.0, 2.0**40, 2.0**53, math.inf, NAN]) | INTS
MOMENTS = st.sampled_from(
    [NOON, NOON + dt.timedelta(microseconds=1), NOON.astimezone(dt.timezone(dt.timedelta(hours=2)))]
)
DAYS = st.sampled_from([dt.date(2024, 2, 29), dt.date(2024, 3, 1)])
IDS = st.integers(0, 12)
SPEEDS = st.sampled_from([-5.0, 0.0, 5.0, 2.0**40, math.inf, NAN])
PRICES = st.sampled_from([Decimal(5), Decimal("5.00"), Decimal(-10), Decimal(0)])
STRINGS = st.sampled_from(["", "5", "a", "a~", "red"])
DATA = st.sampled_from([b"", b"5", b"6"])

MIXED = [
    mixed("number", WIDE),
    mixed("small", INTS),
    mixed("ratio", DOUBLES),
    mixed("text", STRINGS),
    mixed("moment", MOMENTS),
    mixed("day", DAYS),
    mixed("price", PRICES),
    mixed("flag", st.booleans()),
    mixed("badge", st.sampled_from([BADGE, UUID(int=1)])),
    mixed("data", DATA),
    mixed("color", st.sampled_from(Color)),
    mixed("level", st.sampled_from(Level)),
]


def held(model: Any, name: str, values: st.SearchStrategy[str], of_bag: Callable[[Any], str]) -> Column:
    """Text that a key holds alone, of a row of no kind."""
    return Column(getattr(model, name), values, lambda bag, value: (utf16_key(of_bag(bag)), utf16_key(value)), of_bag)


PARTITIONS = st.sampled_from(["a", "b", "a~", ""])


# Keys of other forms


class Odd(Entity, table="Odds", partition_key="{group}", row_key="{number}_{at:ticks}_{badge}"):
    group: Mapped[str]
    number: Mapped[int]
    at: Mapped[dt.datetime]
    badge: Mapped[UUID]
    price: Mapped[Decimal | None] = field(default=None)


ODD_KEYS = st.builds(
    "{}_{:019d}_{}".format,
    st.sampled_from(["5", "05", "-0", "0", "12"]),
    st.sampled_from([0, TICKS - 1, TICKS, TICKS + 1, TICKS + 10, 10**19 - 1]),
    st.sampled_from([str(BADGE), str(BADGE).upper(), str(UUID(int=1))]),
) | st.sampled_from(["5", "5_", "5_x", "~", "0"])
"""Keys that the template does not write, although it reads some of them, and others that it cannot read."""


def ticks_text(moment: dt.datetime) -> str:
    return f"{ticks_from_datetime(moment):019d}"


def odd(name: str, values: st.SearchStrategy[Any], position: int, write: Any) -> Column:
    """A field that the key holds: its text, or what a text that sorts otherwise stands for."""

    def pair(bag: Any, value: Any) -> Pair:
        parts = bag.row_key.split("_")
        return (KeyText(parts[position]), KeyText(write(value))) if len(parts) == 3 and parts[2] != "" else None

    return Column(getattr(Odd, name), values, pair)


# Kinds that store different types under one name


class Engine(Entity, table="Engines", partition_key="{group}", row_key="engine_{name}"):
    group: Mapped[str]
    name: Mapped[str]
    speed: Mapped[int | None] = field(default=None)


class Gauge(Entity, table="Engines", partition_key="{group}", row_key="gauge_{name}"):
    group: Mapped[str]
    name: Mapped[str]
    speed: Mapped[float | None] = field(default=None)


def speed(model: Any, values: st.SearchStrategy[Any], name: str) -> Column:
    """A property of both kinds, by the field of one."""

    def pair(entity: Any, value: Any) -> Pair:
        if entity.speed is None:
            return None
        own = Typed(Edm.INT64 if isinstance(entity, Engine) else Edm.DOUBLE, entity.speed)
        return own, constant_of(name, value)

    return Column(model.speed, values, pair)


# Indexes that the planner chooses


class Member(Entity, table="Members", partition_key="{club}", row_key="id_{id:03d}"):
    club: Mapped[str]
    id: Mapped[int]
    name: Mapped[str] = field(default="")
    mail: Mapped[str | None] = field(default=None)
    age: Mapped[int | None] = field(default=None)
    price: Mapped[Decimal | None] = field(default=None)

    by_name = Index(row_key="name_{name}_{id:03d}", include="keys")
    by_mail = Index(row_key="mail_{mail}_{id:03d}")


MEMBER_COLUMNS = (
    in_key(Member, "club", PARTITIONS),
    in_key(Member, "id", IDS),
    stored(Member, "name", STRINGS),
    stored(Member, "mail", STRINGS),
    stored(Member, "age", INTS),
    stored(Member, "price", PRICES),
    system(RowKey, st.sampled_from(["id_005", "id_00", "name_a_005"])),
)


@st.composite
def equalities(draw: st.DrawFn) -> list[Term]:
    """A partition, and a value of an index, so that there is an index to choose."""
    club, _, *texts = MEMBER_COLUMNS
    column = draw(st.sampled_from(texts[:2]))
    return [comparison(each, "==", draw(each.values)) for each in (club, column)]


FOREIGN_WORLDS = [
    World(
        (Sample, PropertyBag),
        bags("Samples", PARTITIONS, STRINGS),
        (
            *MIXED,
            held(Sample, "group", PARTITIONS, lambda bag: bag.partition_key),
            held(Sample, "name", STRINGS, lambda bag: bag.row_key),
        ),
    ),
    World(
        (Odd, PropertyBag),
        bags("Odds", PARTITIONS, ODD_KEYS, ("price",)),
        (
            held(Odd, "group", PARTITIONS, lambda bag: bag.partition_key),
            odd("number", st.sampled_from([5, 0, 12, -1]), 0, str),
            odd("at", MOMENTS, 1, ticks_text),
            odd("badge", st.sampled_from([BADGE, UUID(int=1)]), 2, str),
            mixed("price", PRICES, Odd),
        ),
    ),
    World(
        (Engine, Gauge),
        st.builds(Engine, group=PARTITIONS, name=STRINGS, speed=maybe(WIDE))
        | st.builds(Gauge, group=PARTITIONS, name=STRINGS, speed=maybe(SPEEDS)),
        (
            in_key(Engine, "group", PARTITIONS),
            speed(Engine, WIDE, "number"),
            speed(Gauge, DOUBLES, "ratio"),
        ),
    ),
    World(
        (Member,),
        st.builds(
            Member, club=PARTITIONS, id=IDS, name=STRINGS, mail=maybe(STRINGS), age=maybe(INTS), price=maybe(PRICES)
        ),
        MEMBER_COLUMNS,
        st.just([]) | equalities(),
    ),
]
"""Worlds of rows that a program with other declarations wrote, and one in which the planner chooses indexes."""
