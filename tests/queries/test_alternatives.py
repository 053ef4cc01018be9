"""
Planning several requests: `|` and `in_` over key fields as points and ranges, each key in one of them.
"""

import tracemalloc

import pytest

from tableorm import Entity, Expression, Mapped, ScanRefused
from tableorm.expressions import AllOf, AnyOf
from tableorm.models.kinds import KindSet
from tableorm.protocol.filters import to_odata
from tableorm.queries.planning.partition import region_of
from tableorm.queries.planning.plan import Access, Point, QueryPlan
from tableorm.queries.planning.planner import planner_of
from tableorm.stores import Bounds
from tests.queries.test_planner import KIND, SALES, Employee, plan


class Sample(Entity, table="Samples", partition_key="{id:spread(4)}_{day:03d}", row_key="{id}"):
    id: Mapped[str]
    day: Mapped[int]


class Batch(Entity, table="Samples", partition_key="{bucket:01d}_{day:03d}", row_key="batch"):
    bucket: Mapped[int]
    day: Mapped[int]


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


def test_points_sort_as_utf16() -> None:
    """U+E000 stands behind the astral characters."""
    found = plan(Employee.department.in_(["\ue000", "\U0001f600", "z"]), Employee.id == 1)

    assert [key.partition("/")[0] for key in sent(found)] == ["z", "\U0001f600", "\ue000"]


@pytest.mark.parametrize("day", [5, 6])
def test_a_condition_on_another_kind_leaves_one_bucket(day: int) -> None:
    """Where it gives the whole key; of another day it contradicts the condition on the kind itself."""
    planner = planner_of(KindSet.of([Sample, Batch]))
    found = planner.plan([Sample.day == 5, Batch.bucket == 1, Batch.day == day])

    assert [region_of(request).partition for request in found.requests] == [Bounds.only(f"1_00{day}")]
    assert found.access is (Access.PARTITION_SCAN if day == 5 else Access.POINT)


def test_the_kind_that_would_scan_is_named() -> None:
    """A kind of which conditions leave hash buckets alone would not."""
    with pytest.raises(ScanRefused, match=r"equality on bucket, .*; add \.where\(Batch\.bucket == \.\.\.\), or"):
        planner_of(KindSet.of([Sample, Batch])).plan([Sample.day == 5])


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("conditions", "count"),
    [
        ([Employee.department.in_([f"d{n}" for n in range(40)]), Employee.id.in_(range(40))], "1,600"),
        ([SALES, Employee.id.in_(range(1_001))], "1,001"),
        ([SALES, AnyOf(tuple([Employee.id == n for n in range(1_001)]))], "more than 1,000"),
        ([AnyOf((SALES, *[Employee.id.in_([n, n + 5_000]) for n in range(1_001)]))], "more than 1,000"),
        ([SALES, Employee.id.in_(range(1_000)) | (Employee.age > 5)], "1,001"),
    ],
)
def test_too_many_alternatives_are_refused(conditions: list[Expression], count: str) -> None:
    """The message says how many there are, and what to do instead; a scan reads the table and picks rows here."""
    with pytest.raises(ScanRefused, match=rf"have {count} alternatives.*at most 1,000.*get_many.*allow_scan"):
        plan(*conditions)
    assert len(plan(*conditions, allow_scan=True).requests) == 1


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
