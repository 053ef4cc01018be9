"""
Plans in parts: ranges divided for parallel requests, and plans limited to an interval of keys.
"""

import datetime as dt

import pytest

from tableorm import Entity, Expression, Mapped, PartitionKey, PropertyBag
from tableorm.keys.ranges import KeyInterval, KeyPosition
from tableorm.models.kinds import KindSet
from tableorm.queries.planning.partition import divide_plan, region_of
from tableorm.queries.planning.plan import QueryPlan, Range
from tableorm.queries.planning.planner import planner_of
from tests.queries.test_planner import SALES, Employee


class Visit(Entity, table="Visits", partition_key="{at:%Y%m%d}", row_key="{at:ticks}"):
    at: Mapped[dt.datetime]


KEYS = [
    (name, f"empid_{number:06d}") for name in ("A", "Sales", "a", "zz") for number in (0, 1, 499, 500, 501, 999_999)
]
OTHER = ("Sales", "other")


def plan(*where: Expression, parallel: int = 1, interval: KeyInterval | None = None) -> QueryPlan:
    return planner_of(KindSet.of([Employee])).plan(where, allow_scan=True, parallel=parallel, interval=interval)


def held(found: QueryPlan, key: KeyPosition) -> int:
    """How many requests ask for a key."""
    return sum(region_of(request).holds(key) for request in found.requests)


@pytest.mark.parametrize("parallel", [2, 3, 4, 7])
@pytest.mark.parametrize("where", [(), (SALES,), (SALES, Employee.id > 3), (Employee.department > "B",)], ids=str)
def test_one_region_becomes_so_many_requests(where: tuple[Expression, ...], parallel: int) -> None:
    """They ask for each key that the region has once, and are as costly to find."""
    whole, found = plan(*where), plan(*where, parallel=parallel)

    assert len(found.requests) == parallel
    assert [held(found, key) for key in (*KEYS, OTHER)] == [held(whole, key) for key in (*KEYS, OTHER)]
    assert {request.access for request in found.requests if isinstance(request, Range)} == {whole.access}
    assert found.access is whole.access


def test_keys_are_divided_as_they_can_be() -> None:
    """Days by their digits, keys of any form as text; and nothing twice."""
    days = planner_of(KindSet.of([Visit])).plan([], allow_scan=True, parallel=3).requests
    assert all(f"{each.query.partition.lower}"[:1].isdigit() for each in days[1:] if isinstance(each, Range))
    bags = planner_of(KindSet.of([PropertyBag], "Directory"))
    assert len(bags.plan([], allow_scan=True, parallel=3).requests) == 3
    assert len(bags.plan([PartitionKey == "a"], parallel=3).requests) == 3


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_no_interval_of_a_plan_is_empty(parts: int) -> None:
    """Behind the first key of a partition are its other keys and other partitions: both begin at the same edge."""
    within = KeyInterval(("Sales", ""), low_open=True)
    found = divide_plan(plan(interval=within), parts, within)

    assert all(each.low != each.high for each in found)


def test_the_intervals_of_a_plan_are_in_key_order() -> None:
    """That is the order of UTF-16 units, in which an emoji is before a wide tilde."""
    found = divide_plan(plan(Employee.department.in_(["a", "\uff5e", "\U0001f600"])), 3, None)

    assert [each.low and each.low[0] for each in found] == [None, "\U0001f600", "\uff5e"]


def test_a_plan_of_many_requests_is_divided_between_them() -> None:
    """As many of them are in each interval as in the others."""
    found = divide_plan(plan(SALES, Employee.id.in_(range(100))), 4, None)

    assert [each.low for each in found[1:]] == [("Sales", f"empid_{number:06d}") for number in (25, 50, 75)]
