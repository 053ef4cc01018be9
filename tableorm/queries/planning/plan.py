"""
The plan of a query: its requests, in key order.
"""

import enum
from collections.abc import Callable
from functools import cached_property
from typing import Literal

import attrs
import msgspec

from ...stores import Bounds, Row, RowQuery
from ...stores.intervals import overlaps
from .client_filter import ClientFilter
from .target import QueryTarget

Scans = bool | Literal["range"]
"""Which scans a query may make: none, those of a range of partitions, or, with True, any."""


class Access(enum.Enum):
    """
    How a query finds its rows, from the cheapest way to the most expensive.

    `POINT` is one row by both keys, `POINTS` several. `RANGE` is part of a partition, `PARTITION_SCAN` an entire one.
    `PARTITION_RANGE` is every partition within a range of PartitionKeys, and `TABLE_SCAN` every partition that the
    model can have. Source: table design guide, "Design for querying".
    """

    NOTHING = "nothing"
    """No row can satisfy the conditions, and nothing is sent."""
    __hash__ = object.__hash__  # an enum's own is a function of Python, several times slower

    POINT = "point"
    POINTS = "points"
    RANGE = "range"
    PARTITION_SCAN = "partition scan"
    PARTITION_RANGE = "partition range"
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


@attrs.frozen(eq=False, slots=False)
class MergedRequests:
    """
    Requests whose rows come in the order of their RowKeys, then PartitionKeys: what is fetched in place of each alone.

    Args:
        requests: The requests in key order, each within one partition.
    """

    requests: tuple[Point | Range, ...]

    @cached_property
    def by_partition(self) -> dict[str, list[Point | Range]]:
        """The requests of each partition, in key order."""
        found: dict[str, list[Point | Range]] = {}
        for each in self.requests:
            partition = each.partition_key if isinstance(each, Point) else each.query.partition.lower
            found.setdefault(partition or "", []).append(each)
        return found

    @cached_property
    def filters(self) -> bool:
        """Whether any rows must satisfy more than the store was asked."""
        return any(isinstance(each, Range) and each.client_filters for each in self.requests)

    def keeps(self, row: Row) -> bool:
        """Return whether a row satisfies what the store could not be asked by the request that has found it."""
        key = Bounds.only(row["RowKey"])
        for each in self.by_partition[row["PartitionKey"]]:
            if isinstance(each, Range) and overlaps(each.query.row, key):
                return all(client_filter.test(row) for client_filter in each.client_filters)
        return True


AnyRequest = Point | Range | MergedRequests
"""What is fetched page by page."""


class QueryPlan(msgspec.Struct, frozen=True, eq=False, dict=True):
    """
    What a query sends, and what is left to do with what comes back.

    Args:
        target: The kinds that it asks for.
        access: How rows are found; the costliest of several requests.
        requests: The requests in key order: every key of one is before every key of the next.
        select: The properties that are asked for; None for all.
        merged: Whether each request is within one partition, and the rows of all are merged by their RowKeys.
        once: Tells of an entry and its primary whether it is the entry of the entity that counts; None if all do.
    """

    target: QueryTarget
    access: Access
    requests: tuple[Point | Range, ...]
    select: tuple[str, ...] | None = None
    merged: bool = False
    once: Callable[[Row, Row], bool] | None = None

    @cached_property
    def digests(self) -> dict[int | None, bytes]:
        """The digests by which cursors know the plan, for each limit that was asked for."""
        return {}
