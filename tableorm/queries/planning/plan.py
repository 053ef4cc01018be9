"""
The plan of a query: its requests, in key order.
"""

import enum
from functools import cached_property

import attrs
import msgspec

from ...stores import RowQuery
from .client_filter import ClientFilter
from .target import QueryTarget

__all__ = ["RANKS", "Access", "Point", "QueryPlan", "Range"]


class Access(enum.Enum):
    """
    How a query finds its rows, from the cheapest way to the costliest.

    `POINT` is one row by both keys, `POINTS` several. `RANGE` is part of a partition, `PARTITION_SCAN` a whole one, and
    `TABLE_SCAN` all partitions. Source: table design guide, "Design for querying".
    """

    NOTHING = "nothing"
    """No row can satisfy the conditions, and nothing is sent."""
    __hash__ = object.__hash__  # an enum's own is a function of Python, several times slower

    POINT = "point"
    POINTS = "points"
    RANGE = "range"
    PARTITION_SCAN = "partition scan"
    TABLE_SCAN = "table scan"


RANKS = {access: rank for rank, access in enumerate(Access)}
"""How costly each access is, from 0 for the best."""


# What is made for each point, and nothing else, are structs: they take a fraction of the time to make.
class Point(msgspec.Struct, frozen=True, gc=False):
    """A request for one row by its keys."""

    partition_key: str
    row_key: str


@attrs.frozen(eq=False)
class Range:
    """
    A request for the rows of a region of keys that satisfy a filter, page by page.

    Args:
        query: What the store is asked.
        access: How it finds the rows.
        client_filters: What rows must satisfy besides.
        drops_few: Whether few rows, and as a rule none, fail these filters, so that a limit says how many rows to ask
            for. Otherwise a full page is asked for, which costs no more than a short one.
    """

    query: RowQuery
    access: Access
    client_filters: tuple[ClientFilter, ...] = ()
    drops_few: bool = True


class QueryPlan(msgspec.Struct, frozen=True, eq=False, dict=True):
    """
    What a query sends, and what is left to do with what comes back.

    Args:
        target: The kinds that it asks for.
        access: How rows are found; the costliest of several requests.
        requests: The requests in key order: every key of one is before every key of the next.
        select: The properties that are asked for; None for all.
    """

    target: QueryTarget
    access: Access
    requests: tuple[Point | Range, ...]
    select: tuple[str, ...] | None = None

    @cached_property
    def digests(self) -> dict[int | None, bytes]:
        """The digests by which cursors know the plan, for each limit that was asked for."""
        return {}
