"""
Planning one request: which keys a query reads, what is filtered there, and what is left to do here.
"""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from tableorm import (
    EncodeError,
    Entity,
    Expression,
    Mapped,
    ModelError,
    PartitionKey,
    PropertyBag,
    ScanRefused,
    Timestamp,
    field,
)
from tableorm.expressions import PropertyComparison
from tableorm.models.kinds import KindSet
from tableorm.protocol.filters import Op, constant, to_odata
from tableorm.queries.planning.plan import Access, QueryPlan, Range
from tableorm.queries.planning.planner import MAX_FILTER_CHARACTERS, planner_of
from tableorm.stores import RowQuery


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]
    age: Mapped[int | None] = field(default=None)
    name: Mapped[str] = field(default="", name="FullName")
    color: Mapped[Color | None] = field(default=None)
    born: Mapped[dt.date | None] = field(default=None)
    hired: Mapped[dt.datetime | None] = field(default=None)
    pay: Mapped[Decimal | None] = field(default=None)
    badge: Mapped[UUID | None] = field(default=None)
    score: Mapped[float] = field(default=0.0)
    active: Mapped[bool] = field(default=True)
    notes: Mapped[dict[str, str]] = field(factory=dict)


KIND = "(EntityType eq 'Employee' or EntityType ge 'Employee:' and EntityType lt 'Employee;')"
SALES = Employee.department == "Sales"
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)


def plan(*where: Expression, model: type[Entity] = Employee, allow_scan: bool = False) -> QueryPlan:
    return planner_of(KindSet.of([model])).plan(where, allow_scan=allow_scan)


def the_range(found: QueryPlan) -> Range:
    """The one request, which is no point."""
    (request,) = found.requests
    assert isinstance(request, Range)
    return request


def asked(found: QueryPlan) -> RowQuery:
    return the_range(found).query


def sent(found: QueryPlan) -> str:
    """What is filtered besides the keys."""
    where = asked(found).where
    return "" if where is None else to_odata(where)


def here(found: QueryPlan) -> list[str]:
    """What is evaluated here."""
    return [str(each.condition) for each in the_range(found).client_filters]


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (Employee.age > 30, "age gt 30"),
        (Employee.name == "O'Neil", "FullName eq 'O''Neil'"),
        (Employee.name.startswith("Ab"), "FullName ge 'Ab' and FullName lt 'Ac'"),
        (Employee.color == Color.RED, "color eq 'red'"),
        (Employee.born >= dt.date(2000, 1, 2), "born ge '2000-01-02'"),
        (Employee.hired < NOON, "hired lt datetime'2024-02-29T12:00:00.0000000Z'"),
        (
            Employee.hired != NOON,
            "(hired lt datetime'2024-02-29T12:00:00.0000000Z' or hired gt datetime'2024-02-29T12:00:00.0000009Z')",
        ),
        (Employee.badge == UUID(int=1), "badge eq guid'00000000-0000-0000-0000-000000000001'"),
        (Employee.active == True, "active eq true"),  # noqa: E712
        (~(Employee.score > 1.5), "not (score gt 1.5 or score ge 2) and (score eq 2 or score ne 2)"),
        (
            ~PropertyComparison("score", Op.GT, constant(1.5)),  # as text of a raw query says it
            "not (score gt 1.5) and (score eq 1.5 or score ne 1.5)",
        ),
        (~Employee.name.startswith("Ab"), "(FullName lt 'Ab' or FullName ge 'Ac')"),
        (~Employee.age.is_none(), "(age eq '' or age ne '')"),
        (~Employee.age.in_([3, 1]), "age ne 3 and age ne 1"),
        (~(Timestamp >= NOON), "Timestamp lt datetime'2024-02-29T12:00:00.0000000Z'"),
        (~(PartitionKey == "x"), "PartitionKey ne 'x'"),
    ],
)
def test_conditions_on_properties_become_the_filter(condition: Expression, text: str) -> None:
    """With the literals of the property's type; an int that fits Int32 is written so, which the service promotes."""
    found = plan(SALES, condition)

    assert sent(found) == f"{KIND} and {text}" and here(found) == []


@pytest.mark.parametrize(
    "conditions",
    [
        [SALES, Employee.id < -1],
        [SALES, Employee.id > 10**6],
        [SALES, Employee.id.in_([])],
        [Employee.age.in_([])],
        [SALES, Employee.id.is_none()],
        [SALES, Employee.id > 5, Employee.id < 5, (Employee.id == 1) | (Employee.id == 9)],
    ],
)
def test_contradictions_send_nothing(conditions: list[Expression]) -> None:
    """No row can satisfy them, so that no scan is rejected either."""
    found = plan(*conditions)

    assert (found.access, found.requests) == (Access.NOTHING, ())


def test_a_scan_is_refused_with_what_is_missing() -> None:
    """Unless it is allowed; a range of partitions is a scan too, with a permission of its own."""
    with pytest.raises(ScanRefused, match=r"no equality on department.*Employee\.department == \.\.\..*allow_scan"):
        plan(Employee.id == 7)
    with pytest.raises(ScanRefused, match=r"visits a range .*no equality on department.*partitions=\"range\"\)"):
        plan(Employee.department > "S")
    with pytest.raises(ScanRefused, match="no equality on department"):
        plan(SALES | (Employee.age > 30))
    with pytest.raises(ScanRefused, match="no equality on department"):
        plan(Employee.department != "Sales")
    wanted = r"^PropertyBag: the query visits every partition of table Directory; add conditions that determine one"
    with pytest.raises(ScanRefused, match=wanted):
        planner_of(KindSet.of([PropertyBag], "Directory")).plan([PartitionKey != "S"])
    wanted = r"^PropertyBag: the query visits a range of the partitions of table Directory; add conditions"
    with pytest.raises(ScanRefused, match=wanted):
        planner_of(KindSet.of([PropertyBag], "Directory")).plan([PartitionKey > "S"])


class Block(Entity, table="Blocks", partition_key="{service}_{hash:010d}", row_key="{name}"):
    service: Mapped[str]
    hash: Mapped[int]
    name: Mapped[str]


@pytest.mark.parametrize(
    ("where", "access"),
    [
        ([Block.service == "a", Block.hash > 5, Block.hash <= 9], Access.PARTITION_RANGE),
        ([Block.service.startswith("a")], Access.PARTITION_RANGE),
        ([PartitionKey >= "a", Block.name == "x"], Access.PARTITION_RANGE),
        ([Block.service == "a", (Block.hash < 3) | Block.hash.between(5, 7)], Access.PARTITION_RANGE),
        ([Block.service == "a", (Block.hash < 3) | (Block.name == "x")], Access.PARTITION_RANGE),
        ([Block.service == "a", Block.hash == 5], Access.PARTITION_SCAN),
        ([(Block.service == "a") | (Block.name == "x")], Access.TABLE_SCAN),
        ([Block.service != "a"], Access.TABLE_SCAN),
        ([Block.hash > 5], Access.TABLE_SCAN),
        ([], Access.TABLE_SCAN),
    ],
    ids=str,
)
def test_a_range_of_partitions_is_no_table_scan(where: list[Expression], access: Access) -> None:
    """Bounds of the PartitionKey are a permission of their own, which allows no scan of the table."""
    planner = planner_of(KindSet.of([Block]))

    assert planner.plan(where, allow_scan=True).access is access
    if access is Access.TABLE_SCAN:
        with pytest.raises(
            ScanRefused, match=r"visits every partition of table Blocks.* \.allow_scan\(\) to scan anyway"
        ):
            planner.plan(where, allow_scan="range")
    else:
        assert planner.plan(where, allow_scan="range").access is access
    if access is not Access.PARTITION_SCAN:
        with pytest.raises(ScanRefused):
            planner.plan(where)


def test_a_projection_selects_what_conditions_need() -> None:
    """What is evaluated here has to be read; what the store evaluates need not be."""
    kinds = KindSet.of([Employee])
    there = planner_of(kinds).plan([SALES, Employee.age > 30], select=["PartitionKey", "RowKey", "FullName"])
    here = planner_of(kinds).plan([SALES, Employee.pay > Decimal(1)], select=["PartitionKey", "RowKey", "FullName"])

    assert there.select == asked(there).select == ("PartitionKey", "RowKey", "FullName")
    assert here.select == asked(here).select == ("PartitionKey", "RowKey", "FullName", "pay")


# Without their types, so that what the checkers refuse can be written.
AGE: Any = Employee.age
ID: Any = Employee.id
NAME: Any = Employee.name
DEPARTMENT: Any = Employee.department


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: plan(SALES, AGE > "x"), EncodeError, r"Employee\.age: 'x' in the condition Employee\.age > 'x'"),
        (lambda: plan(SALES, ID > "x"), EncodeError, r"Employee\.id: 'x' .* is a str, not an int"),
        (lambda: plan(SALES, NAME == 5), EncodeError, r"Employee\.name: 5 .* is an int, not a str"),
        (lambda: plan(DEPARTMENT == 5), EncodeError, r"Employee\.department: 5 .* is an int, not a str"),
        (
            lambda: plan(SALES, Employee.notes == {}),
            EncodeError,
            r"Employee\.notes: {} in the condition Employee\.notes == {} is rejected: a field stored as JSON cannot",
        ),
        (lambda: plan(SALES, AGE == None), ModelError, "with None"),  # noqa: E711
        (lambda: plan(SALES, AGE > ID), ModelError, "constant only"),
        (
            lambda: plan(SALES, AGE.startswith("x")),
            EncodeError,
            r"'x' in the condition Employee\.age\.startswith\('x'\) is rejected: startswith\(\) works only on strings",
        ),
        (lambda: bool(AGE > 1), TypeError, "no truth value"),
        (lambda: (AGE > 1) & True, TypeError, "parentheses"),
        (lambda: plan(1 < AGE < 5), TypeError, "between"),
    ],
)
def test_a_wrong_condition_is_refused(make: Callable[[], object], error: type[Exception], message: str) -> None:
    """Naming the field, the condition and the value."""
    with pytest.raises(error, match=message):
        make()


class Level(Enum):
    LOW = 1
    HIGH = 2


class Alarm(Entity, table="Alarms", partition_key="{site}", row_key="{level:02d}_{day:%Y%m%d}"):
    site: Mapped[str]
    level: Mapped[Level]
    day: Mapped[dt.date]
    text: Mapped[str] = field(default="")


LEVEL: Any = Alarm.level


def test_an_enum_in_a_key_compares_by_its_value() -> None:
    """Also among alternatives, where the condition on the key is one of the filter."""
    found = plan(Alarm.site == "a", (LEVEL > Level.LOW) | (Alarm.text == "x"), model=Alarm)
    assert sent(found).endswith("(text eq 'x' or RowKey ge '02')")


def test_a_value_of_another_type_is_refused_for_every_operator() -> None:
    """`!=` included, which no bound looks at."""
    with pytest.raises(EncodeError, match=r"Employee\.id: '5' in the condition Employee\.id != '5' .* not an int"):
        plan(SALES, ID != "5")
    with pytest.raises(EncodeError, match=r"Alarm\.level: 2 in the condition Alarm\.level != 2 .* not a Level"):
        plan(Alarm.site == "a", LEVEL != 2, model=Alarm)
    assert here(plan(SALES, Employee.id != 10**9)) == ["Employee.id != 1000000000"]


@pytest.mark.parametrize(("char", "size"), [("x", 1), (" ", 3), ("é", 9)])
def test_a_filter_that_just_fits_is_sent(char: str, size: int) -> None:
    """Characters of the value count as they stand in a URL; with one more the condition is evaluated here."""
    name, rest = "FullName", 12
    fits = (MAX_FILTER_CHARACTERS - len(name) - rest) // size
    for count, sent in ((fits, True), (fits + 1, False)):
        found = the_range(plan(SALES, Employee.name == char * count))

        assert (found.client_filters == ()) is sent


def test_conditions_share_the_room_of_a_filter() -> None:
    """What does not fit beside those before it is evaluated here."""
    half = "x" * (MAX_FILTER_CHARACTERS // 2 - len("FullName") - 12)
    for other, here in ((half[1:] + "y", 0), (half + "y", 1)):
        found = the_range(plan(SALES, Employee.name != half, Employee.name != other))

        assert len(found.client_filters) == here
