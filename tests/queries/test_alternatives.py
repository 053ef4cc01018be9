"""
Planning several requests: `|` and `in_` over key fields as points and ranges, each key in one of them.
"""

import datetime as dt
import itertools
import re
import tracemalloc

import pytest

from tableorm import Entity, Expression, Mapped, PartitionKey, PropertyBag, RowKey, ScanRefused, Timestamp, field
from tableorm.expressions import AllOf, AnyOf
from tableorm.keys.ranges import KeyRegion
from tableorm.models.kinds import KindSet
from tableorm.protocol.filters import to_odata
from tableorm.queries.planning.alternatives import Alternatives
from tableorm.queries.planning.client_filter import ClientFilter, make_test
from tableorm.queries.planning.parameters import parameterise, shape_of
from tableorm.queries.planning.partition import region_of
from tableorm.queries.planning.plan import Access, MergedRequests, Point, QueryPlan, Range
from tableorm.queries.planning.planner import planner_of
from tableorm.queries.planning.scan_refusal import too_many_error
from tableorm.queries.planning.target import QueryTarget
from tableorm.stores import Bounds, RowQuery


class Employee(Entity, table="Directory", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]
    age: Mapped[int | None] = field(default=None)


class Department(Entity, table="Directory", partition_key="{name}", row_key="department"):
    name: Mapped[str]


class Paper(Entity, table="Papers", partition_key="{project}", abstract=True):
    project: Mapped[str]
    id: Mapped[str]
    note: Mapped[int | None] = field(default=None)


class Invoice(Paper, row_key="invoice_{id}"): ...


class Line(Paper, row_key="line_{number:03d}"):
    number: Mapped[int]


class Draft(Paper, partition_key="draft-{project}", row_key="{id}"): ...


class Event(Entity, table="Events", partition_key="{at:%Y%m%d}", row_key="{at:ticks_desc}", kind=None):
    at: Mapped[dt.datetime]
    text: Mapped[str] = field(default="")


class Spread(Entity, table="Spreads", partition_key="{id:spread(16)}", row_key="{id}", kind=None):
    id: Mapped[str]


class Sample(Entity, table="Samples", partition_key="{id:spread(4)}_{day:03d}", row_key="{id}"):
    id: Mapped[str]
    day: Mapped[int]


class Probe(Entity, table="Probes", partition_key="{id:spread(4)}_{day:03d}", abstract=True):
    id: Mapped[str]
    day: Mapped[int]


class Dry(Probe, row_key="dry_{id}"): ...


class Wet(Probe, row_key="wet_{id}"): ...


class Batch(Entity, table="Samples", partition_key="{bucket:01d}_{day:03d}", row_key="batch"):
    bucket: Mapped[int]
    day: Mapped[int]


SALES = Employee.department == "Sales"
KIND = "(EntityType eq 'Employee' or EntityType ge 'Employee:' and EntityType lt 'Employee;')"


def plan(*where: Expression, model: type[Entity] = Employee, allow_scan: bool = False) -> QueryPlan:
    return planner_of(KindSet.of([model])).plan(where, allow_scan=allow_scan)


def sent(found: QueryPlan) -> list[str]:
    """The keys of points, and the filters of ranges without the line that tells the kind."""
    texts: list[str] = []
    for request in found.requests:
        if isinstance(request, Point):
            texts.append(f"{request.partition_key}/{request.row_key}")
        else:
            where = request.query.filter
            texts.append("" if where is None else to_odata(where).replace(f" and {KIND}", "").replace(KIND, ""))
    return texts


def test_in_on_a_key_field_is_points() -> None:
    """In key order, each key once."""
    found = plan(SALES, Employee.id.in_([7, 3, 7, 5]))

    assert found.access is Access.POINTS
    assert sent(found) == ["Sales/empid_000003", "Sales/empid_000005", "Sales/empid_000007"]


def test_several_in_make_every_combination() -> None:
    """Partitions and rows."""
    found = plan(Employee.department.in_(["b", "a"]), Employee.id.in_([2, 1]))

    assert sent(found) == ["a/empid_000001", "a/empid_000002", "b/empid_000001", "b/empid_000002"]


def test_one_value_is_a_point() -> None:
    """Not several."""
    assert plan(SALES, Employee.id.in_([7, 7])).access is Access.POINT


def test_values_that_no_key_holds_are_left_out() -> None:
    """They cannot be found."""
    assert sent(plan(SALES, Employee.id.in_([-1, 7, 10**6]))) == ["Sales/empid_000007"]


def test_points_sort_as_utf16() -> None:
    """U+E000 stands behind the astral characters."""
    found = plan(Employee.department.in_(["\ue000", "\U0001f600", "z"]), Employee.id == 1)

    assert [key.partition("/")[0] for key in sent(found)] == ["z", "\U0001f600", "\ue000"]


def test_or_on_a_key_field_is_points_and_ranges() -> None:
    """Never a filter with `or`, which would read the whole partition."""
    found = plan(SALES, (Employee.id == 7) | Employee.id.between(100, 199))

    assert found.access is Access.RANGE
    assert sent(found) == [
        "Sales/empid_000007",
        "PartitionKey eq 'Sales' and RowKey ge 'empid_000100' and RowKey le 'empid_000199'",
    ]


def test_partitions_of_in_are_requests_of_their_own() -> None:
    """A scan of each, which needs no permission."""
    found = plan(Employee.department.in_(["Sales", "HR"]))

    assert found.access is Access.PARTITION_SCAN
    assert sent(found) == [
        f"PartitionKey eq '{name}' and RowKey ge 'empid_' and RowKey lt 'empid`'" for name in ("HR", "Sales")
    ]


def test_a_condition_for_all_goes_with_each() -> None:
    """It is filtered in every one of them; one for an alternative only there."""
    found = plan(Employee.department.in_(["HR", "Sales"]), Employee.id == 7, Employee.age > 30)
    own = plan((SALES & (Employee.age > 30)) | ((Employee.department == "HR") & (Employee.id == 1)))

    assert sent(found) == [
        "PartitionKey eq 'HR' and RowKey eq 'empid_000007' and age gt 30",
        "PartitionKey eq 'Sales' and RowKey eq 'empid_000007' and age gt 30",
    ]
    assert sent(own) == [
        "HR/empid_000001",
        "PartitionKey eq 'Sales' and RowKey ge 'empid_' and RowKey lt 'empid`' and age gt 30",
    ]


def test_ranges_that_overlap_are_one() -> None:
    """With the alternatives as a filter on the RowKey, exactly; each row comes once."""
    found = plan(SALES, Employee.id.between(100, 199) | Employee.id.between(150, 250))

    (text,) = sent(found)
    assert text == (
        "PartitionKey eq 'Sales' and RowKey ge 'empid_000100' and RowKey le 'empid_000250' and "
        "(RowKey ge 'empid_000100' and RowKey le 'empid_000199' or "
        "RowKey ge 'empid_000150' and RowKey le 'empid_000250')"
    )


def test_a_range_swallows_what_is_in_it() -> None:
    """A point or a range within another adds nothing, not even a filter."""
    found = plan(SALES, (Employee.id == 150) | Employee.id.between(100, 199) | Employee.id.between(120, 130))

    assert sent(found) == ["PartitionKey eq 'Sales' and RowKey ge 'empid_000100' and RowKey le 'empid_000199'"]


def test_an_alternative_that_says_nothing_of_rows_reads_the_partition() -> None:
    """The other one is part of its filter."""
    found = plan(SALES, (Employee.id == 7) | (Employee.age > 30))

    assert found.access is Access.PARTITION_SCAN
    (text,) = sent(found)
    assert text == (
        "PartitionKey eq 'Sales' and RowKey ge 'empid_' and RowKey lt 'empid`' and "
        "(age gt 30 or RowKey eq 'empid_000007')"
    )


def test_a_value_left_out_of_a_range_stays_with_it() -> None:
    """Of the conditions on one key field in an alternative, each is in its filter."""
    found = plan(SALES, ((Employee.id != 5) & (Employee.id > 3) & (Employee.id < 9)) | (Employee.age > 30))

    (text,) = sent(found)
    assert text.endswith(
        " and (age gt 30 or RowKey ne 'empid_000005' and RowKey gt 'empid_000003' and RowKey lt 'empid_000009')"
    )


def test_alternatives_with_a_contradiction_leave_it_out() -> None:
    """What cannot be is not asked for."""
    assert sent(plan(SALES, (Employee.id == 7) | (Employee.department == "HR"))) == ["Sales/empid_000007"]


def test_alternatives_that_overlap_obey_what_holds_for_all() -> None:
    """An alternative that contradicts it makes the request no wider than it allows."""
    after = Employee.id > 5
    found = plan(after, (Employee.id == 5) | SALES, allow_scan=True)

    (text,) = sent(found)
    assert text.startswith("RowKey gt 'empid_000005' and RowKey lt 'empid`' and ")


def test_negations_become_alternatives() -> None:
    """`~(a & b)` is either opposite."""
    found = plan(SALES, ~((Employee.id > 5) & (Employee.id < 999_990)))

    assert sent(found) == [
        "PartitionKey eq 'Sales' and RowKey ge 'empid_' and RowKey le 'empid_000005'",
        "PartitionKey eq 'Sales' and RowKey ge 'empid_999990' and RowKey lt 'empid`'",
    ]


def test_keys_as_stored_are_alternatives_too() -> None:
    """PartitionKey and RowKey of any row."""
    found = plan(PartitionKey == "Sales", RowKey.in_(["empid_000001", "empid_000009"]) | RowKey.startswith("empid_5"))

    assert [text.replace("PartitionKey eq 'Sales' and ", "") for text in sent(found)] == [
        "Sales/empid_000001",
        "Sales/empid_000009",
        "RowKey ge 'empid_5' and RowKey lt 'empid_6'",
    ]


def test_kinds_in_several_partitions_are_ranges_side_by_side() -> None:
    """Each partition is asked for the kinds that it can have."""
    found = plan(Paper.project == "p", model=Paper)

    assert found.access is Access.PARTITION_SCAN
    assert [text.partition(" and (EntityType")[0] for text in sent(found)] == [
        "PartitionKey eq 'draft-p'",
        "PartitionKey eq 'p' and RowKey ge 'invoice_' and RowKey lt 'line`'",
    ]
    assert "'Draft'" in sent(found)[0] and "'Invoice'" not in sent(found)[0]
    assert "'Draft'" not in sent(found)[1] and "'Invoice'" in sent(found)[1] and "'Line'" in sent(found)[1]


def test_days_are_partitions() -> None:
    """Alternatives of moments in the partition and in the row at once; of descending ticks the bounds swap."""
    first, second = dt.datetime(2024, 2, 28, 12, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
    found = plan(Event.at.in_([second, first]), model=Event)

    assert [text.partition("/")[0] for text in sent(found)] == ["20240228", "20240229"]
    assert found.access is Access.POINTS


def test_buckets_of_a_hash_are_found() -> None:
    """Each value knows its partition; a range is in every bucket."""
    found = plan(Spread.id.in_(["a", "b", "c"]), model=Spread)

    assert found.access is Access.POINTS and len(found.requests) == 3
    every = plan(Spread.id > "a", model=Spread)
    assert every.access is Access.RANGE and len(every.requests) == 16 and every.merged


@pytest.mark.parametrize(
    ("where", "partitions"),
    [
        ([Sample.day == 5], ["0_005", "1_005", "2_005", "3_005"]),
        ([Sample.day == 5, PartitionKey >= "2"], ["2_005", "3_005"]),
        ([PartitionKey >= "1", Sample.day == 5, PartitionKey < "3"], ["1_005", "2_005"]),
        ([Sample.day == 5, PartitionKey >= "x"], []),
        ([Sample.day == 5_000], []),
    ],
    ids=str,
)
def test_buckets_are_those_that_other_conditions_leave(where: list[Expression], partitions: list[str]) -> None:
    """Each bucket is a partition in full, which a condition on the stored key holds for or not."""
    found = plan(*where, model=Sample)

    assert [request.query.partition for request in found.requests if isinstance(request, Range)] == [
        Bounds.only(each) for each in partitions
    ]
    assert found.access is (Access.PARTITION_SCAN if partitions else Access.NOTHING)


def test_kinds_share_the_partition_of_a_bucket() -> None:
    """Each bucket is asked once for all of them."""
    found = plan(Probe.day == 5, model=Probe)

    assert [region_of(request) for request in found.requests] == [
        KeyRegion(Bounds.only(f"{bucket}_005"), Bounds("dry_", "wet`", upper_open=True)) for bucket in range(4)
    ]
    assert found.merged


@pytest.mark.parametrize("day", [5, 6])
def test_a_condition_on_another_kind_leaves_one_bucket(day: int) -> None:
    """Where it gives the whole key; of another day it contradicts the condition on the kind itself."""
    planner = planner_of(KindSet.of([Sample, Batch]))
    found = planner.plan([Sample.day == 5, Batch.bucket == 1, Batch.day == day])

    assert [region_of(request).partition for request in found.requests] == [Bounds.only(f"1_00{day}")]
    assert found.access is (Access.PARTITION_SCAN if day == 5 else Access.POINT)


def test_a_merged_row_satisfies_what_its_own_request_asks_for() -> None:
    """It is found by the one whose keys it has; what the store was asked needs no second look."""
    target = QueryTarget(KindSet.of([Employee]))

    def range_of(row: Bounds, *conditions: Expression) -> Range:
        filters = tuple(ClientFilter(each, make_test(target, each)) for each in conditions)
        return Range(RowQuery(Bounds.only("p"), row), Access.RANGE, filters)

    young, old = range_of(Bounds(None, "c"), Employee.age < 30), range_of(Bounds("m"), Employee.age > 60)
    merged = MergedRequests((young, Point("p", "k"), old))
    rows = [{"PartitionKey": "p", "RowKey": key, "age": age} for key in "akz" for age in (20, 70)]
    assert [merged.keeps(row) for row in rows] == [True, False, True, True, False, True]
    assert merged.filters
    assert not MergedRequests((range_of(Bounds("m")), Point("q", "k"))).filters


def test_the_kind_that_would_scan_is_named() -> None:
    """A kind of which conditions leave hash buckets alone would not."""
    with pytest.raises(ScanRefused, match=r"equality on bucket, .*; add \.where\(Batch\.bucket == \.\.\.\), or"):
        planner_of(KindSet.of([Sample, Batch])).plan([Sample.day == 5])


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ((Employee.id > 3) | (Employee.age == 1), 2),
        ((RowKey > "x") | (Employee.age == 1), 2),
        (Employee.id.in_([3, 4]) | (Employee.age == 1), 3),
        (Employee.age.in_([3, 4]) | (Employee.age == 1), 1),
        (~Employee.id.in_([3, 4]) | (Employee.age == 1), 1),
        ((Employee.id != 3) | (Employee.age == 1), 1),
        ((RowKey != "x") | (Employee.age == 1), 1),
        ((Timestamp > dt.datetime(2024, 1, 1, tzinfo=dt.UTC)) | (Employee.age == 1), 1),
    ],
    ids=str,
)
def test_what_says_nothing_of_keys_is_no_alternative(condition: Expression, count: int) -> None:
    """It is part of the filter, however many there are."""
    target, where = QueryTarget(KindSet.of([Employee])), [SALES, condition]

    assert Alternatives(target, parameterise(where)).count(shape_of(where)[1]) == count


def test_a_long_key_is_a_point() -> None:
    """As long as a row can have it."""
    found = [plan(Employee.department == text * 300, Employee.id == 1).access for text in ("x", "\U0001f600")]
    assert found == [Access.POINT, Access.NOTHING]


def test_a_scan_takes_everything_with_it() -> None:
    """What else is wanted of the partitions that it visits is no request of its own."""
    found = plan((Employee.department > "S") | ((Employee.department == "Sales") & (Employee.id == 7)), allow_scan=True)

    assert found.access is Access.PARTITION_RANGE and len(found.requests) == 1


@pytest.mark.parametrize(
    ("conditions", "count"),
    [
        ([Employee.department.in_([f"d{n}" for n in range(40)]), Employee.id.in_(range(40))], "1,600"),
        ([SALES, Employee.id.in_(range(1_001))], "1,001"),
        ([SALES, AnyOf(tuple([Employee.id == n for n in range(1_001)]))], "more than 1,000"),
        ([SALES, AnyOf(tuple([Employee.id == n for n in range(5_000)]))], "more than 1,000"),
        ([AnyOf((SALES, *[Employee.id.in_([n, n + 5_000]) for n in range(1_001)]))], "more than 1,000"),
        ([SALES, Employee.id.in_(range(1_000)) | (Employee.age > 5)], "1,001"),
    ],
)
def test_too_many_alternatives_are_refused(conditions: list[Expression], count: str) -> None:
    """The message says how many there are, and what to do instead; a scan reads the table and picks rows here."""
    with pytest.raises(ScanRefused, match=rf"have {count} alternatives.*at most 1,000.*get_many.*allow_scan"):
        plan(*conditions)
    assert len(plan(*conditions, allow_scan=True).requests) == 1


def test_many_more_alternatives_are_not_told_exactly() -> None:
    """A number of five digits says enough."""
    target = planner_of(KindSet.of([Employee])).target
    told = [re.findall("have (.*) alternatives", str(too_many_error(target, count))) for count in (10_000, 10_001)]

    assert told == [["10,000"], ["more than 10,000"]]


def test_as_many_alternatives_as_allowed_are_requests() -> None:
    """Points, ranges, and those of an `or`."""
    numbers = range(1_000)
    assert len(plan(SALES, Employee.id.in_(numbers)).requests) == 1_000
    either = AnyOf(tuple([Employee.id == n for n in numbers]))
    assert plan(either, Employee.department.in_(["Sales"])).access is Access.POINTS
    assert len(plan(Employee.department.in_(list(map(str, numbers))), Employee.id > 5).requests) == 1_000


def test_alternatives_beyond_the_limit_are_not_made() -> None:
    """However many a condition multiplies, no memory holds them."""
    numbers = AnyOf(tuple([Employee.id == n for n in range(11)]))
    large = AllOf((numbers,) * 3)  # 1,331 alternatives
    tracemalloc.start()
    try:
        with pytest.raises(ScanRefused, match="more than 1,000"):
            plan(SALES, AnyOf((large,) * 10))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 500_000


def test_a_key_is_in_one_request_alone() -> None:
    """Every key of one request is before every key of the next."""
    terms = [Employee.id.between(n, n + n % 7) for n in range(0, 300, 5)]
    either: Expression = terms[0]
    for term in terms[1:]:
        either |= term
    found = plan(Employee.department.in_(["b", "a"]), either)
    edges = [
        (r.partition_key, r.row_key, r.row_key)
        if isinstance(r, Point)
        else (r.query.partition.lower, r.query.row.lower, r.query.row.upper)
        for r in found.requests
    ]

    for (partition, _, end), (after, start, _) in itertools.pairwise(edges):
        assert partition is not None and after is not None and end is not None and start is not None
        assert partition < after or (partition == after and end < start)


def test_a_field_of_another_kind_is_absent() -> None:
    """It is none for the rows of those that do not have it, whether a key holds it or not."""
    found = plan(Paper.project == "p", Line.number.is_none(), model=Paper)

    assert [str(each.condition) for request in found.requests for each in getattr(request, "client_filters", ())] == [
        "Line.number.is_none()",
        "Line.number.is_none()",
    ]


def test_bags_are_bounded_by_what_is_said_alone() -> None:
    """The literal head of a model says nothing of rows of other kinds."""
    found = planner_of(KindSet.of([Employee, PropertyBag])).plan([SALES])

    assert sent(found) == ["PartitionKey eq 'Sales'"]


def test_a_bag_is_asked_for_the_text_of_its_key_here() -> None:
    """A row of another kind may have a key between two of the model, which says nothing of the field."""
    found = planner_of(KindSet.of([Employee, PropertyBag])).plan([SALES, (Employee.id > 3) | (Employee.age > 30)])

    (request,) = found.requests
    assert isinstance(request, Range)
    (left,) = request.client_filters
    assert str(left.condition) == "(Employee.age > 30) | (Employee.id > 3)"
    keys = {"empid_000004": True, "empid_000003": False, "empid_000004_": False, "empid_00000x": False}
    assert {key: left.test({"PartitionKey": "Sales", "RowKey": key}) is True for key in keys} == keys
