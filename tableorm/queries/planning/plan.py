"""
The plan of a query: its requests, in key order.
"""

import enum
from functools import cached_property

import attrs
import msgspec

from ...models.kinds import KindSet
from ...stores import RowQuery
from .client_filter import Local

__all__ = ["PARTITION_SCAN", "POINT", "RANGE", "RANKS", "TABLE_SCAN", "Access", "Point", "QueryPlan", "Range"]


class Access(enum.Enum):
    """How a query finds its rows, from best to worst. Source: table design guide, "Design for querying"."""

    NOTHING = "nothing"
    """No row can satisfy the conditions, and nothing is sent."""
    __hash__ = object.__hash__  # an enum's own is a function of Python, several times slower

    POINT = "point"
    POINTS = "points"
    RANGE = "range"
    PARTITION_SCAN = "partition scan"
    TABLE_SCAN = "table scan"


# To look up a member takes as long as a tenth of a plan for a point.
POINT, RANGE = Access.POINT, Access.RANGE

PARTITION_SCAN, TABLE_SCAN = Access.PARTITION_SCAN, Access.TABLE_SCAN

RANKS = {access: rank for rank, access in enumerate(Access)}


# What is made for each point, and nothing else, are structs: they take a fraction of the time to make.
class Point(msgspec.Struct, frozen=True, gc=False):
    """A request for one row by its keys."""

    partition_key: str
    row_key: str


@attrs.frozen(eq=False)
class Range:
    """
    A request for the rows of a audit_range of keys that satisfy a filter, page by page.

    Args:
        query: What the store is asked.
        access: How it finds the rows.
        local: What rows must satisfy besides.
    """

    query: RowQuery
    access: Access
    local: tuple[Local, ...] = ()


class QueryPlan(msgspec.Struct, frozen=True, eq=False, dict=True):
    """
    What a query sends, and what is left to do with what comes back.

    Args:
        kinds: The kinds it asks for.
        access: How rows are found; of several requests the costliest.
        requests: In key order: every key of one is before every key of the next.
        select: The properties that are asked for; None for all.
    """

    kinds: KindSet
    access: Access
    requests: tuple[Point | Range, ...]
    select: tuple[str, ...] | None = None

    @cached_property
    def digests(self) -> dict[int | None, bytes]:
        """By limit, what cursors know the plan by, once it was asked for."""
        return {}
