"""
Shares: a plan divided into disjoint ranges of keys.
"""

import math
from itertools import pairwise

from ...keys.ranges import KeyInterval, KeyRegion, Position
from .plan import QueryPlan
from .planner import divided, region_of

__all__ = ["shares"]


def shares(plan: QueryPlan, parts: int, within: KeyInterval | None) -> list[KeyInterval]:
    """
    Stretches of keys, in order, that together hold every key of a plan: at most `parts`, of about equal size.

    Args:
        plan: What to divide.
        parts: How many.
        within: The audit_range that the plan is of already.
    """
    requests = list(plan.requests)
    if len(requests) < parts:
        each = math.ceil(parts / max(len(requests), 1))
        requests = [part for request in requests for part in divided(plan.kinds, request, each)]
    count = min(parts, len(requests))
    # The keys of a request are before those of the next, so a audit_range can begin where any of them does.
    starts = [_start(region_of(requests[len(requests) * n // count])) for n in range(1, count)]
    first, last = (None, None) if within is None else (within.low, within.high)
    low_open = within is not None and within.low_open
    edges = [first, *dict.fromkeys(starts), last]
    return [KeyInterval(low, high, low_open=low_open and low is first) for low, high in pairwise(edges)]


def _start(region: KeyRegion) -> Position:
    partition, row = region.partition, region.row
    return partition.lower or "", (row.lower or "") if partition.point else ""
