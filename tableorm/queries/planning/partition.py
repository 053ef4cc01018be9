"""
Partitioning of plans: a plan, or one of its requests, divided into disjoint regions of keys.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import attrs

from ...keys.ranges import KeyInterval, KeyPosition, KeyRegion, divide, key_order
from ...stores import Bounds
from ...stores.intervals import nameable
from .plan import Access, Point, QueryPlan, Range
from .target import QueryTarget


def region_of(request: Point | Range) -> KeyRegion:
    """Return the keys that a request asks for."""
    if isinstance(request, Point):
        return KeyRegion(Bounds.only(request.partition_key), Bounds.only(request.row_key))
    return KeyRegion(request.query.partition, request.query.row)


def clip_request(request: Point | Range, interval: KeyInterval) -> list[Point | Range]:
    """Return what of a request is inside an interval of keys, as requests in key order."""
    regions = interval.clip(region_of(request))
    if isinstance(request, Point):
        return [request] if regions else []
    return [_narrow(request, region) for region in regions]


def clip_merged(request: Point | Range, after: KeyPosition) -> list[Point | Range]:
    """Return what of a request, which is merged with others by RowKey, is behind a key."""
    region = region_of(request)
    passed = key_order((region.partition.lower or "", "")) <= key_order((after[0], ""))
    row = nameable(after[1])
    left = region.meet(KeyRegion(row=Bounds(row, lower_open=passed and row == after[1])))
    if left is None:
        return []
    return [request if isinstance(request, Point) else _narrow(request, left)]


def _narrow(request: Range, region: KeyRegion) -> Range:
    return attrs.evolve(
        request,
        query=attrs.evolve(request.query, partition=region.partition, row=region.row),
        access=Access.POINT if region.partition.point and region.row.point else request.access,
    )


def divide_requests(target: QueryTarget, requests: Sequence[Point | Range], parts: int) -> list[Point | Range]:
    """Return requests that together ask for the same rows, in their order: at least `parts`, where that goes."""
    each = math.ceil(parts / max(len(requests), 1))
    return [part for request in requests for part in _divide_request(target, request, each)]


def _divide_request(target: QueryTarget, request: Point | Range, parts: int) -> list[Point | Range]:
    """Divide a request into several of disjoint ranges, in key order: at most about `parts`."""
    if isinstance(request, Point) or parts < 2:
        return [request]
    whole = region_of(request)
    if whole.partition.point:
        rows = divide(whole.row, [schema.row for schema in target.schemas], parts)
        return [_narrow(request, KeyRegion(whole.partition, each)) for each in rows]
    partitions = divide(whole.partition, [schema.partition for schema in target.schemas], parts)
    return [_narrow(request, KeyRegion(each, whole.row)) for each in partitions]


def divide_plan(plan: QueryPlan, parts: int, within: KeyInterval | None) -> list[KeyInterval]:
    """
    Return intervals of keys, in order, that together hold every key of a plan: at most `parts`, of about equal size.

    Args:
        plan: The plan to divide.
        parts: How many intervals there are at most.
        within: The interval that the plan is limited to already.
    """
    requests = divide_requests(plan.target, plan.requests, parts)
    count = min(parts, len(requests))
    # The keys of a request are before those of the next, so an interval can begin where any of them does. One that
    # begins behind a partition has no first key: its edge is in front of that partition, and others may follow there.
    starts = {_start_of(region_of(requests[len(requests) * n // count])) for n in range(1, count)}
    first, last = (None, None) if within is None else (within.low, within.high)
    low_open = within is not None and within.low_open
    inside = [start for start in starts if first is None or key_order(start) > key_order(first)]
    edges = [first, *sorted(inside, key=key_order), last]
    return [KeyInterval(low, high, low_open=low_open and low is first) for low, high in pairwise(edges)]


def _start_of(region: KeyRegion) -> KeyPosition:
    partition, row = region.partition, region.row
    return partition.lower or "", (row.lower or "") if partition.point else ""
