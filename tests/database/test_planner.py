"""
Planning: which request a query becomes, and what is left to do here.
"""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from tableorm import EncodeError, Entity, Expression, Mapped, ModelError, ScanRefused, TemplateError, field
from tableorm.kinds import Kinds
from tableorm.planner import Access, QueryPlan, plan_query
from tableorm.protocol.filters import to_odata
from tableorm.stores import Bounds


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


class Department(Entity, table="Directory", partition_key="{name}", row_key="department"):
    name: Mapped[str]


class Expense(Entity, table="Expenses", partition_key="{employee}", row_key="{at:ticks_desc}_{n:03d}", kind=None):
    employee: Mapped[str]
    at: Mapped[dt.datetime]
    n: Mapped[int] = field(default=0)


class Visit(Entity, table="Visits", partition_key="{at:%Y%m%d}", row_key="{user}_{at:ticks}"):
    user: Mapped[str]
    at: Mapped[dt.datetime]


KIND = "(EntityType eq 'Employee' or EntityType ge 'Employee:' and EntityType lt 'Employee;')"
SALES = Employee.department == "Sales"
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)


def plan(*where: Expression, model: type[Entity] = Employee, allow_scan: bool = False) -> QueryPlan:
    return plan_query(Kinds.of([model]), where, allow_scan=allow_scan)


def sent(found: QueryPlan) -> str:
    return "" if found.query.where is None else to_odata(found.query.where)


def test_equality_on_every_key_field_is_a_point() -> None:
    """Both keys are given, and nothing is filtered: the kind is told from the row itself."""
    found = plan(SALES, Employee.id == 7)

    assert found.access is Access.POINT
    assert (found.query.partition, found.query.row) == (Bounds.only("Sales"), Bounds.only("empid_000007"))
    assert found.query.where is None and found.residual == ()


def test_bounds_on_the_next_field_are_a_range() -> None:
    """`between` is inclusive; the kind goes into the filter."""
    found = plan(SALES, Employee.id.between(100, 199))

    assert found.access is Access.RANGE
    assert found.query.row == Bounds("empid_000100", "empid_000199")
    assert sent(found) == KIND[1:-1] and found.residual == ()


def test_the_literal_head_bounds_a_partition_scan() -> None:
    """Other rows of the partition are not read: the guide's prefix trick, with the next character as end."""
    found = plan(SALES)

    assert found.query.row == Bounds("empid_", "empid`", upper_open=True)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (Employee.age > 30, "age gt 30"),
        (Employee.age == 2**40, "age eq 1099511627776L"),
        (Employee.name == "O'Neil", "FullName eq 'O''Neil'"),
        (Employee.name.startswith("Ab"), "FullName ge 'Ab' and FullName lt 'Ac'"),
        (Employee.color == Color.RED, "color eq 'red'"),
        (Employee.born >= dt.date(2000, 1, 2), "born ge '2000-01-02'"),
        (Employee.hired < NOON, "hired lt datetime'2024-02-29T12:00:00.0000000Z'"),
        (Employee.badge == UUID(int=1), "badge eq guid'00000000-0000-0000-0000-000000000001'"),
        (Employee.score != 1.5, "score ne 1.5"),
        (Employee.active == True, "active eq true"),  # noqa: E712
        ((Employee.age > 30) | (Employee.score < 2.0), "(age gt 30 or score lt 2.0)"),
        (~(Employee.age > 30), "not (age gt 30)"),
        (Employee.age.between(1, 2) & (Employee.score < 2.0), "age ge 1 and age le 2 and score lt 2.0"),
    ],
)
def test_conditions_on_properties_become_the_filter(condition: Expression, text: str) -> None:
    """With the literals of the property's type; an int that fits Int32 is written so, which the service promotes."""
    found = plan(SALES, condition)

    assert sent(found) == f"{KIND} and {text}" and found.residual == ()


@pytest.mark.parametrize(
    "condition",
    [
        Employee.pay > Decimal(10),
        (Employee.id > 5) | (Employee.age > 30),
        ~(Employee.id == 5),
    ],
)
def test_what_the_service_cannot_express_is_evaluated_here(condition: Expression) -> None:
    """Decimals are text in the table; `or` over a key field is no interval."""
    found = plan(SALES, condition)

    assert sent(found) == KIND[1:-1] and len(found.residual) == 1


def test_descending_ticks_swap_the_bounds() -> None:
    """Later moments have smaller keys."""
    found = plan(Expense.employee == "e", Expense.at >= NOON, model=Expense)

    assert found.access is Access.RANGE and found.query.where is None
    ticks = f"{3155378975999999999 - 638448048000000000}"
    assert found.query.row == Bounds(None, ticks[:-1] + chr(ord(ticks[-1]) + 1), upper_open=True)


def test_a_date_in_the_partition_key_serves_equality_of_the_moment() -> None:
    """The day is exact for the partition, the moment itself is filtered."""
    found = plan(Visit.at == NOON, Visit.user == "ann", model=Visit)

    assert found.access is Access.POINT
    assert found.query.partition == Bounds.only("20240229")


@pytest.mark.parametrize(
    "conditions",
    [
        [SALES, Employee.id < -1],
        [SALES, Employee.id > 10**6],
        [SALES, Employee.id > 5, Employee.id < 5],
        [SALES, Employee.department == "HR"],
        [SALES, Employee.id == 1, Employee.id == 2],
    ],
)
def test_contradictions_send_nothing(conditions: list[Expression]) -> None:
    """No row can satisfy them."""
    assert plan(*conditions).access is None


def test_a_scan_is_refused_with_what_is_missing() -> None:
    """Unless it is allowed; a range of partitions is a scan too."""
    with pytest.raises(ScanRefused, match=r"no equality on department.*Employee\.department == \.\.\..*allow_scan"):
        plan(Employee.id == 7)
    with pytest.raises(ScanRefused):
        plan(Employee.department > "S")
    found = plan(Employee.department > "S", allow_scan=True)

    assert found.access is Access.TABLE_SCAN
    assert found.query.partition == Bounds("S", None, lower_open=True)
    assert found.query.row == Bounds("empid_", "empid`", upper_open=True)


def test_kinds_of_one_partition_share_a_request() -> None:
    """Its range spans the keys of both kinds; conditions on one kind's key leave the other kind out."""
    both = Kinds.of([Department, Employee])
    found = plan_query(both, [SALES])

    assert found.query.partition == Bounds.only("Sales")
    assert found.query.row == Bounds("department", "empid`", upper_open=True)
    assert "EntityType eq 'Department'" in sent(found)
    narrow = plan_query(both, [SALES, Employee.id > 5])
    assert narrow.query.row == Bounds("empid_000005", "empid`", lower_open=True, upper_open=True)


# Without their types, so that what the checkers refuse can be written.
AGE: Any = Employee.age
ID: Any = Employee.id
DEPARTMENT: Any = Employee.department


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: plan(SALES, AGE > "x"), EncodeError, r"Employee\.age: 'x' in the condition Employee\.age > 'x'"),
        (lambda: plan(SALES, ID > "x"), TemplateError, "needs an int, got 'x'"),
        (lambda: plan(DEPARTMENT == 5), TemplateError, "needs a str, got 5"),
        (lambda: plan(SALES, Employee.notes == {}), EncodeError, "JSON text"),
        (lambda: plan(SALES, AGE == None), ModelError, "with None"),  # noqa: E711
        (lambda: plan(SALES, AGE > ID), ModelError, "constant only"),
        (lambda: plan(SALES, AGE.startswith("x")), EncodeError, "for text"),
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
    """Also where the condition is evaluated here; a row whose key only looks like one of ours is unknown."""
    found = plan(Alarm.site == "a", (LEVEL > Level.LOW) | (Alarm.text == "x"), model=Alarm)
    (test,) = found.residual

    assert test({"PartitionKey": "a", "RowKey": "02_20240101"}) is True
    assert test({"PartitionKey": "a", "RowKey": "01_20240101"}) is None
    assert test({"PartitionKey": "a", "RowKey": "01_20240101", "text": "y"}) is False
    assert test({"PartitionKey": "a", "RowKey": "99_20240101", "text": "x"}) is True
    day = plan(Alarm.site == "a", Alarm.day != dt.date(2024, 1, 1), model=Alarm).residual[0]
    assert day({"PartitionKey": "a", "RowKey": "01_20249999"}) is None


def test_a_value_of_another_type_is_refused_for_every_operator() -> None:
    """`!=` included, which no bound looks at."""
    with pytest.raises(EncodeError, match=r"Employee\.id.*needs an int, got '5'"):
        plan(SALES, ID != "5")
    with pytest.raises(EncodeError, match=r"Alarm\.level.*needs a Level"):
        plan(Alarm.site == "a", LEVEL != 2, model=Alarm)
    assert len(plan(SALES, Employee.id != 10**9).residual) == 1
