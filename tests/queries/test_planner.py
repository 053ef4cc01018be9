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
    RowKey,
    ScanRefused,
    Timestamp,
    field,
)
from tableorm.expressions import PropertyComparison
from tableorm.models.kinds import KindSet
from tableorm.protocol.filters import Op, Test, constant, to_odata
from tableorm.queries.planning.plan import Access, Point, QueryPlan, Range
from tableorm.queries.planning.planner import MAX_FILTER_CHARACTERS, planner_of
from tableorm.stores import Bounds, RowQuery


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


class Gauge(Entity, table="Gauges", partition_key="{site:02d}", row_key="{level:02d}_{name}"):
    site: Mapped[int]
    level: Mapped[int]
    name: Mapped[str]


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


def only_test(found: QueryPlan) -> Test:
    (local,) = the_range(found).client_filters
    return local.test


def test_equality_on_every_key_field_is_a_point() -> None:
    """Both keys are given, and nothing is filtered: the kind is told from the row itself."""
    found = plan(SALES, Employee.id == 7)

    assert found.access is Access.POINT
    assert found.requests == (Point("Sales", "empid_000007"),)


@pytest.mark.parametrize(
    ("site", "level", "name"),
    [(1, 1, "x" * 600), (-1, 1, "x"), (1, -1, "x"), (-1, -1, "x")],
    ids=["too long", "no PartitionKey", "no RowKey", "neither"],
)
def test_a_point_that_no_row_can_have_sends_nothing(site: int, level: int, name: str) -> None:
    """A key is too long, or its template has no place for a value."""
    for where in (Gauge.site == site, Gauge.site.in_([site, 1_000])):
        found = plan(where, Gauge.level == level, Gauge.name == name, model=Gauge)

        assert (found.access, found.requests) == (Access.NOTHING, ())


def test_a_point_with_a_condition_left_is_filtered() -> None:
    """Access by both keys, and the row comes only if it satisfies the rest."""
    found = plan(SALES, Employee.id == 7, Employee.age > 30)

    assert found.access is Access.POINT
    assert (asked(found).partition, asked(found).row) == (Bounds.only("Sales"), Bounds.only("empid_000007"))
    assert sent(found) == "age gt 30"


def test_bounds_on_the_next_field_are_a_range() -> None:
    """`between` is inclusive; the kind goes into the filter."""
    found = plan(SALES, Employee.id.between(100, 199))

    assert found.access is Access.RANGE
    assert asked(found).row == Bounds("empid_000100", "empid_000199")
    assert sent(found) == KIND[1:-1] and here(found) == []


def test_the_literal_head_bounds_a_partition_scan() -> None:
    """Other rows of the partition are not read: the guide's prefix trick, with the next character as end."""
    found = plan(SALES)

    assert found.access is Access.PARTITION_SCAN
    assert asked(found).row == Bounds("empid_", "empid`", upper_open=True)


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
        (Employee.score > 2, "score gt 2.0"),
        (Employee.active == True, "active eq true"),  # noqa: E712
        ((Employee.age > 30) | (Employee.score < 2.0), "(age gt 30 or score lt 2.0)"),
        (~(Employee.age > 30), "age le 30"),
        (~(Employee.age == 30), "age ne 30"),
        (~(Employee.age.between(1, 2) | (Employee.name == "x")), "(age lt 1 or age gt 2) and FullName ne 'x'"),
        (~~(Employee.age < 30), "age lt 30"),
        (~(Employee.score > 1.5), "not (score gt 1.5) and (score eq 1.5 or score ne 1.5)"),
        (
            ~PropertyComparison("score", Op.GT, constant(1.5)),  # as text of a raw query says it
            "not (score gt 1.5) and (score eq 1.5 or score ne 1.5)",
        ),
        (~(Employee.score == 1.5), "score ne 1.5"),
        (
            ~(Employee.age > 2**40),
            "not (age gt 1099511627776L) and (age eq 1099511627776L or age ne 1099511627776L)",
        ),
        (~Employee.name.startswith("Ab"), "(FullName lt 'Ab' or FullName ge 'Ac')"),
        (Employee.name.startswith(""), "FullName ge ''"),
        (Employee.name.startswith("\uffff"), "FullName ge '\uffff'"),
        (~Employee.age.is_none(), "(age eq '' or age ne '')"),
        (Employee.age.in_([3, 1, 3]), "(age eq 3 or age eq 1)"),
        (Employee.age.in_([3]), "age eq 3"),
        (~Employee.age.in_([3, 1]), "age ne 3 and age ne 1"),
        (Timestamp >= NOON, "Timestamp ge datetime'2024-02-29T12:00:00.0000000Z'"),
        (~(Timestamp >= NOON), "Timestamp lt datetime'2024-02-29T12:00:00.0000000Z'"),
        (~(PartitionKey == "x"), "PartitionKey ne 'x'"),
        (Employee.id != 5, "RowKey ne 'empid_000005'"),
        ((Employee.id > 5) | (Employee.age > 30), "(age gt 30 or RowKey gt 'empid_000005' and RowKey lt 'empid`')"),
        (Employee.age.between(1, 2) & (Employee.score < 2.0), "age ge 1 and age le 2 and score lt 2.0"),
    ],
)
def test_conditions_on_properties_become_the_filter(condition: Expression, text: str) -> None:
    """With the literals of the property's type; an int that fits Int32 is written so, which the service promotes."""
    found = plan(SALES, condition)

    assert sent(found) == f"{KIND} and {text}" and here(found) == []


@pytest.mark.parametrize(
    "condition",
    [
        Employee.pay > Decimal(10),
        ~(Employee.pay > Decimal(10)),
        Employee.pay.in_([Decimal(1)]),
        Employee.age.is_none(),
        (Employee.age.is_none()) | (Employee.score > 1.5),
        Employee.name.in_(["x" * 1000 + str(number) for number in range(10)]),
    ],
)
def test_what_the_service_cannot_express_is_evaluated_here(condition: Expression) -> None:
    """Decimals are text in the table; no filter finds what is absent; a filter can be too long."""
    found = plan(SALES, condition)

    assert sent(found) == KIND[1:-1] and len(here(found)) == 1


def test_of_filters_that_are_too_long_together_the_longest_stays_here() -> None:
    """The others are sent."""
    found = plan(SALES, Employee.name.in_([str(n) * 500 for n in range(1, 10)] + ["x" * 2000]), Employee.age > 30)

    assert sent(found) == f"{KIND} and age gt 30"
    assert len(here(found)) == 1 and here(found)[0].startswith("Employee.name.in_(")


def test_negation_of_a_decimal_is_unknown_where_it_is_absent() -> None:
    """Three-valued, here as there."""
    test = only_test(plan(SALES, ~(Employee.pay > Decimal(10))))

    assert [test({"pay": pay}) for pay in ("5", "11", None)] == [True, False, None]


def test_descending_ticks_swap_the_bounds() -> None:
    """Later moments have smaller keys."""
    found = plan(Expense.employee == "e", Expense.at >= NOON, model=Expense)

    assert found.access is Access.RANGE and asked(found).where is None
    ticks = f"{3155378975999999999 - 638448048000000000}"
    assert asked(found).row == Bounds(None, ticks[:-1] + chr(ord(ticks[-1]) + 1), upper_open=True)


def test_a_moment_fits_a_date_and_ticks() -> None:
    """The day of the moment is the partition, the moment itself the row."""
    found = plan(Visit.at == NOON, Visit.user == "ann", model=Visit)

    assert found.requests == (Point("20240229", "ann_0638448048000000000"),)


@pytest.mark.parametrize(
    "conditions",
    [
        [SALES, Employee.id < -1],
        [SALES, Employee.id > 10**6],
        [SALES, Employee.id > 5, Employee.id < 5],
        [SALES, Employee.department == "HR"],
        [SALES, Employee.id == 1, Employee.id == 2],
        [SALES, Employee.id.in_([])],
        [Employee.age.in_([])],
        [SALES, Employee.id.is_none()],
        [SALES, PartitionKey == "HR"],
        [SALES, RowKey < "a"],
        [SALES, RowKey > "a", Employee.id == 10**6],
        [SALES, RowKey < "f", RowKey > "g", Employee.id == 5],
        [SALES, (Employee.id > 10**6) | Employee.id.is_none()],
        [SALES, Employee.id.in_([-1, 10**6])],
        [SALES, Employee.id == 10**6],
        [SALES, Employee.age == 1, Employee.age == 2],
        [Employee.name == "a", Employee.name == "b"],
        [SALES, Employee.id > 5, Employee.id < 5, (Employee.id == 1) | (Employee.id == 9)],
    ],
)
def test_contradictions_send_nothing(conditions: list[Expression]) -> None:
    """No row can satisfy them, so that no scan is refused either."""
    found = plan(*conditions)

    assert (found.access, found.requests) == (Access.NOTHING, ())


@pytest.mark.parametrize(
    ("condition", "interval"),
    [
        (~(Employee.id > 7), Bounds("empid_", "empid_000007")),
        (~(Employee.id >= 7), Bounds("empid_", "empid_000007", upper_open=True)),
        (~(Employee.id > 2**40), Bounds("empid_", "empid`", upper_open=True)),
        (~(Employee.id < -(2**40)), Bounds("empid_", "empid`", upper_open=True)),
    ],
    ids=str,
)
def test_the_negation_of_an_order_bounds_a_key(condition: Expression, interval: Bounds) -> None:
    """Keys are text, so that each is on one side of a number of any size."""
    found = plan(SALES, condition)

    assert asked(found).row == interval
    assert sent(found) == KIND[1:-1] and here(found) == []


def test_constants_of_two_types_are_no_contradiction() -> None:
    """The service promotes numbers; an Int32 and an Int64 are both sent."""
    assert sent(plan(SALES, Employee.age == 1, Employee.age == 2**40)).endswith("age eq 1 and age eq 1099511627776L")


@pytest.mark.parametrize(
    "condition",
    [~Employee.age.in_([]), ~Employee.id.is_none(), ~(Employee.id.in_([]) & (Employee.age > 1))],
)
def test_what_holds_of_every_row_is_left_out(condition: Expression) -> None:
    """It is neither sent nor evaluated."""
    found = plan(SALES, condition)

    assert sent(found) == KIND[1:-1] and here(found) == []


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
    wanted = r"^PropertyBag: the query visits every partition of table Directory; add conditions that give one"
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
        ([Block.service == "a", Block.hash > 5], Access.PARTITION_RANGE),
        ([Block.service == "a"], Access.PARTITION_RANGE),
        ([Block.service.startswith("a")], Access.PARTITION_RANGE),
        ([PartitionKey >= "a", Block.name == "x"], Access.PARTITION_RANGE),
        ([Block.service == "a", (Block.hash < 3) | Block.hash.between(5, 7)], Access.PARTITION_RANGE),
        ([Block.service == "a", (Block.hash < 3) | (Block.name == "x")], Access.PARTITION_RANGE),
        ([Block.service == "a", Block.hash == 5], Access.PARTITION_SCAN),
        ([(Block.service == "a") | (Block.name == "x")], Access.TABLE_SCAN),
        ([Block.service != "a"], Access.TABLE_SCAN),
        ([Block.hash > 5], Access.TABLE_SCAN),
        ([Block.name == "x"], Access.TABLE_SCAN),
        ([], Access.TABLE_SCAN),
    ],
    ids=str,
)
def test_a_range_of_partitions_is_no_table_scan(where: list[Expression], access: Access) -> None:
    """Bounds of the PartitionKey are a permission of their own, which allows no scan of the table."""
    planner = planner_of(KindSet.of([Block]))

    assert planner.plan(where, allow_scan=True).access is access
    if access is Access.TABLE_SCAN:
        with pytest.raises(ScanRefused, match=r"visits every partition of table Blocks.* \.allow_scan\(\) if a scan"):
            planner.plan(where, allow_scan="range")
    else:
        assert planner.plan(where, allow_scan="range").access is access
    if access is not Access.PARTITION_SCAN:
        with pytest.raises(ScanRefused):
            planner.plan(where)


def test_a_scan_that_is_allowed_is_as_narrow_as_it_can_be() -> None:
    """Bounds of partitions, and the literal head of the rows in each."""
    found = plan(Employee.department > "S", allow_scan=True)

    assert found.access is Access.PARTITION_RANGE
    assert asked(found).partition == Bounds("S", None, lower_open=True)
    assert asked(found).row == Bounds("empid_", "empid`", upper_open=True)


def test_system_fields_are_keys_too() -> None:
    """Equality, ranges and prefixes of stored keys become bounds, together with those of fields."""
    point = plan(PartitionKey == "Sales", RowKey == "empid_000007")
    both = plan(PartitionKey == "Sales", RowKey > "empid_000007", Employee.id <= 9)
    prefix = plan(PartitionKey == "Sales", RowKey.startswith("empid_0000"))

    assert (point.access, both.access, prefix.access) == (Access.POINT, Access.RANGE, Access.RANGE)
    assert asked(both).row == Bounds("empid_000007", "empid_000009", lower_open=True)
    assert asked(prefix).row == Bounds("empid_0000", "empid_0001", upper_open=True)


def test_kinds_of_one_partition_share_a_request() -> None:
    """Its range spans the keys of both kinds; conditions on one kind's key leave the other kind out."""
    both = KindSet.of([Department, Employee])
    found = planner_of(both).plan([SALES])

    assert found.access is Access.PARTITION_SCAN
    assert asked(found).partition == Bounds.only("Sales")
    assert asked(found).row == Bounds("department", "empid`", upper_open=True)
    assert "EntityType eq 'Department'" in sent(found)
    narrow = planner_of(both).plan([SALES, Employee.id > 5])
    assert asked(narrow).row == Bounds("empid_000005", "empid`", lower_open=True, upper_open=True)


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
            r"Employee\.notes: {} in the condition Employee\.notes == {} is refused: a field stored as JSON text",
        ),
        (lambda: plan(SALES, AGE == None), ModelError, "with None"),  # noqa: E711
        (lambda: plan(SALES, AGE > ID), ModelError, "constant only"),
        (
            lambda: plan(SALES, AGE.startswith("x")),
            EncodeError,
            r"'x' in the condition Employee\.age\.startswith\('x'\) is refused: startswith\(\) is for text",
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
