"""
Models of many shapes, with strategies for their entities, and for conditions that are evaluated here as well: what the
random tests of queries are made of.
"""

import datetime as dt
import enum
from collections.abc import Callable
from typing import Any
from uuid import UUID

import attrs
from hypothesis import strategies as st

from tableorm import Entity, Expression, Int32, Mapped, PartitionKey, PropertyBag, RowKey, Timestamp, field
from tableorm.models.marker_rows import MARKER_HEADS
from tableorm.protocol.edm import utf16_key

UTC = dt.UTC


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.Enum):
    LOW = 1
    HIGH = 20


class Named(Entity, table="Named", partition_key="{group}", row_key="{name}"):
    group: Mapped[str]
    name: Mapped[str]
    text: Mapped[str | None] = field(default=None, name="TheText")
    count: Mapped[Int32 | None] = field(default=None)
    ratio: Mapped[float] = field(default=0.0)
    color: Mapped[Color | None] = field(default=None)


class Paper(Entity, table="Papers", partition_key="{project}", abstract=True):
    project: Mapped[str]
    id: Mapped[str]
    note: Mapped[int | None] = field(default=None, name="Note")


class Invoice(Paper, row_key="invoice_{id}"): ...


class Line(Paper, row_key="line_{number:03d}"):
    number: Mapped[int]


class Draft(Paper, partition_key="draft-{project}", row_key="{id}"):
    note: Mapped[int | None] = field(default=None, name="Remark")


class Person(
    Entity, table="People", partition_key="{country}", row_key="{kind}_{id}", abstract=True, discriminator="row_key"
):
    country: Mapped[str]
    id: Mapped[str]
    age: Mapped[int | None] = field(default=None)


class Customer(Person, kind="CUSTOMER"): ...


class Staff(Person, kind="STAFF"): ...


class Department(Entity, table="Directory", partition_key="{name}", row_key="department"):
    name: Mapped[str]
    count: Mapped[int] = field(default=0, name="Count")


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:03d}"):
    department: Mapped[str]
    id: Mapped[int]
    age: Mapped[int | None] = field(default=None)


Pair = tuple[Any, Any] | None
"""What an entity has and what it is compared with, in a form that compares; None if it has nothing."""


@attrs.frozen(eq=False, repr=False)
class Column:
    """
    What can be compared.

    Args:
        expression: The field, or a system field.
        values: Constants to compare it with.
        pair: An entity and a constant in comparable form.
        text: What an entity has, as text, for `startswith`; None if it is no text.
        optional: Whether `is_none` is of interest.
    """

    expression: Any
    values: st.SearchStrategy[Any]
    pair: Callable[[Any, Any], Pair]
    text: Callable[[Any], str | None] | None = None
    optional: bool = True


class World:
    """
    Models that are asked for together, their entities, what can be compared, and terms that a query can begin with.

    No entity has a RowKey that begins as those of marker rows do, which is rejected.
    """

    def __init__(
        self,
        models: tuple[Any, ...],
        entities: st.SearchStrategy[Any],
        columns: tuple[Column, ...],
        first: "st.SearchStrategy[list[Term]] | None" = None,
    ) -> None:
        self.models, self.columns = models, columns
        self.entities = entities.filter(lambda entity: not key_of(entity)[1].startswith(tuple(MARKER_HEADS)))
        self.first: st.SearchStrategy[list[Term]] = st.just([]) if first is None else first

    @property
    def entity_models(self) -> list[type[Entity]]:
        """The models but bags."""
        return [model for model in self.models if model is not PropertyBag]

    def __repr__(self) -> str:
        return f"<world of {', '.join(model.__name__ for model in self.models)}>"


def escaped(text: str, separator: str) -> str:
    """The form in which keys hold a text."""
    found = ""
    for char in text:
        if char in "^/\\#?" or char in separator or ord(char) < 0x20 or 0x7F <= ord(char) <= 0x9F:
            found += f"^{ord(char):02X}"
        else:
            found += char
    return found


def comparable(value: Any) -> Any:
    """Text by UTF-16 unit, enums by value, dates as they are stored."""
    if isinstance(value, enum.Enum):
        value = value.value
    return utf16_key(value) if isinstance(value, str) else str(value) if isinstance(value, UUID) else value


def stored(model: Any, name: str, values: st.SearchStrategy[Any]) -> Column:
    """A field that is a property."""

    def pair(entity: Any, value: Any) -> Pair:
        own = getattr(entity, name, None)
        return None if own is None else (comparable(own), comparable(value))

    return Column(getattr(model, name), values, pair, lambda entity: getattr(entity, name, None))


def in_key(model: Any, name: str, values: st.SearchStrategy[Any], separator: str = "") -> Column:
    """A field that a key holds: text compares by its stored form."""

    def pair(entity: Any, value: Any) -> Pair:
        own = getattr(entity, name, None)
        if own is None:
            return None
        if isinstance(own, str):
            return utf16_key(escaped(own, separator)), utf16_key(escaped(value, separator))
        return comparable(own), comparable(value)

    return Column(getattr(model, name), values, pair, lambda entity: getattr(entity, name, None))


def system(field: Any, values: st.SearchStrategy[str]) -> Column:
    def own(entity: Any) -> str:
        key = entity.key
        found: str = key.partition_key if field.name == "PartitionKey" else key.row_key
        return found

    return Column(field, values, lambda e, v: (utf16_key(own(e)), utf16_key(v)), own, optional=False)


def when() -> Column:
    """Every row of a test is written between 2020 and 2200."""
    moments = st.sampled_from([dt.datetime(2020, 1, 1, tzinfo=UTC), dt.datetime(2200, 1, 1, tzinfo=UTC)])
    return Column(Timestamp, moments, lambda _, value: (dt.datetime(2100, 1, 1, tzinfo=UTC), value), optional=False)


TEXTS = st.text(st.sampled_from("ab_-^/~ éz\U0001f600\ue000\uffff"), max_size=3)
GROUPS = st.sampled_from(["a", "b", "A", "a_", "", "a/b"])
COUNTS = st.integers(-2, 3)
NUMBERS = st.sampled_from([0, 1, 2, 5, 10, 99, 998, 999])
BEYOND = NUMBERS | st.sampled_from([-1, 1000, 2**40])
DAYS = st.sampled_from([dt.date(2023, 12, 31), dt.date(2024, 1, 1), dt.date(2024, 1, 31), dt.date(2024, 2, 1)])
MOMENTS = st.sampled_from(
    [
        dt.datetime(2024, 2, 28, 23, 59, 59, 999_999, tzinfo=UTC),
        dt.datetime(2024, 2, 29, tzinfo=UTC),
        dt.datetime(2024, 2, 29, 12, tzinfo=UTC),
        dt.datetime(2024, 3, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    ]
)
RATIOS = st.sampled_from([-0.0, 1.5, -2.5, float("inf"), float("nan")])
BIG = st.sampled_from([-1, 0, 7, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**62])
UUIDS = st.sampled_from([UUID(int=1), UUID(int=2**127), UUID("c9da6455-213d-42c9-9a79-3e9149a57833")])


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def keys(*samples: str) -> st.SearchStrategy[str]:
    return st.sampled_from(samples) | TEXTS


def paper_id() -> Column:
    """In the key of invoices and drafts, a property of lines."""

    def pair(entity: Any, value: Any) -> Pair:
        if isinstance(entity, Line):
            return utf16_key(entity.id), utf16_key(value)
        return utf16_key(escaped(entity.id, "")), utf16_key(escaped(value, ""))

    return Column(Paper.id, TEXTS, pair, lambda entity: entity.id)


def directory_name(expression: Any) -> Column:
    """The PartitionKey of both kinds, under either name."""

    def own(entity: Any) -> str:
        found: str = entity.name if isinstance(entity, Department) else entity.department
        return found

    def pair(entity: Any, value: Any) -> Pair:
        return utf16_key(escaped(own(entity), "")), utf16_key(escaped(value, ""))

    return Column(expression, GROUPS, pair, own)


WORLDS = [
    World(
        (Named,),
        st.builds(
            Named,
            group=GROUPS,
            name=TEXTS,
            text=maybe(TEXTS),
            count=maybe(COUNTS),
            ratio=RATIOS,
            color=maybe(st.sampled_from(Color)),
        ),
        (
            in_key(Named, "group", GROUPS),
            in_key(Named, "name", TEXTS),
            stored(Named, "text", TEXTS),
            stored(Named, "count", COUNTS),
            stored(Named, "ratio", st.sampled_from([0.0, 1.5, float("inf")])),
            stored(Named, "color", st.sampled_from(Color)),
            system(PartitionKey, GROUPS),
            system(RowKey, TEXTS),
            when(),
        ),
    ),
    World(
        (Paper,),
        st.builds(Invoice, project=GROUPS, id=TEXTS, note=maybe(COUNTS))
        | st.builds(Line, project=GROUPS, id=TEXTS, note=maybe(COUNTS), number=NUMBERS)
        | st.builds(Draft, project=GROUPS, id=TEXTS, note=maybe(COUNTS)),
        (
            in_key(Paper, "project", GROUPS),
            paper_id(),
            stored(Paper, "note", COUNTS),
            in_key(Line, "number", BEYOND),
            system(PartitionKey, keys("a", "draft-a")),
            system(RowKey, keys("line_005", "invoice_")),
        ),
    ),
    World(
        (Person,),
        st.builds(Customer, country=GROUPS, id=TEXTS, age=maybe(COUNTS))
        | st.builds(Staff, country=GROUPS, id=TEXTS, age=maybe(COUNTS)),
        (
            in_key(Person, "country", GROUPS),
            in_key(Person, "id", TEXTS),
            stored(Person, "age", COUNTS),
            system(RowKey, keys("STAFF_", "STAFF_a", "CUSTOMER_b")),
        ),
    ),
    World(
        (Department, Employee),
        st.builds(Department, name=GROUPS, count=COUNTS)
        | st.builds(Employee, department=GROUPS, id=NUMBERS, age=maybe(COUNTS)),
        (
            directory_name(Department.name),
            directory_name(Employee.department),
            in_key(Employee, "id", BEYOND),
            stored(Employee, "age", COUNTS),
            stored(Department, "count", COUNTS),
            system(RowKey, keys("department", "empid_005")),
        ),
    ),
]


# Conditions

Truth = Callable[[Any], bool | None]
Term = tuple[Expression, Truth]

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def every(truths: list[Truth]) -> Truth:
    def truth(entity: Any) -> bool | None:
        known = [each(entity) for each in truths]
        return False if False in known else None if None in known else True

    return truth


def some(truths: list[Truth]) -> Truth:
    def truth(entity: Any) -> bool | None:
        known = [each(entity) for each in truths]
        return True if True in known else None if None in known else False

    return truth


def opposite(truth: Truth) -> Truth:
    return lambda entity: None if (known := truth(entity)) is None else not known


def comparison(column: Column, sign: str, value: Any) -> Term:
    def truth(entity: Any) -> bool | None:
        pair = column.pair(entity, value)
        known = None if pair is None else _COMPARE[sign](*pair)
        return None if known is None else bool(known)

    return _COMPARE[sign](column.expression, value), truth


@st.composite
def leaves(draw: st.DrawFn, world: World) -> Term:
    column = draw(st.sampled_from(world.columns))
    form = draw(st.sampled_from(["compare", "compare", "in", "between", "startswith", "none"]))
    value = draw(column.values)
    if form == "none" and column.optional:
        return column.expression.is_none(), lambda entity: column.pair(entity, value) is None
    if form == "in":
        values = [value, *draw(st.lists(column.values, max_size=4))] if draw(st.integers(0, 9)) else []
        truth = some([comparison(column, "==", each)[1] for each in values])
        return column.expression.in_(values), truth
    if form == "between":
        other = draw(column.values)
        return column.expression.between(value, other), every(
            [comparison(column, ">=", value)[1], comparison(column, "<=", other)[1]]
        )
    if form == "startswith" and isinstance(value, str) and column.text is not None:
        text_of = column.text

        def starts(entity: Any) -> bool | None:
            text = text_of(entity)
            return None if text is None else text.startswith(value)

        return column.expression.startswith(value), starts
    return comparison(column, draw(st.sampled_from(list(_COMPARE))), value)


def _combined(children: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    def both(terms: tuple[Term, Term]) -> Term:
        (a, f), (b, g) = terms
        return a & b, every([f, g])

    def either(terms: tuple[Term, Term]) -> Term:
        (a, f), (b, g) = terms
        return a | b, some([f, g])

    def negated(term: Term) -> Term:
        return ~term[0], opposite(term[1])

    pairs = st.tuples(children, children)
    return pairs.map(both) | pairs.map(either) | children.map(negated)


def conditions(world: World) -> st.SearchStrategy[list[Term]]:
    """A few conditions that all must hold."""
    more = st.lists(st.recursive(leaves(world), _combined, max_leaves=5), max_size=3)
    return st.tuples(world.first, more).map(lambda terms: terms[0] + terms[1])


def key_of(entity: Any) -> tuple[str, str]:
    """The keys of an entity or a bag."""
    key = entity if isinstance(entity, PropertyBag) else entity.key
    return key.partition_key, key.row_key


def key_order(entity: Any) -> tuple[bytes, ...]:
    return tuple(map(utf16_key, key_of(entity)))


def results(entities: list[Any], terms: list[Term]) -> list[Any]:
    """What a query must give: the entities for which every condition is true, in key order."""
    return sorted((e for e in entities if all(truth(e) is True for _, truth in terms)), key=key_order)
