"""
Reading the rows of a change feed.
"""

from collections.abc import Callable
from contextlib import aclosing
from typing import TypeVar

from ...connection.connection import Connection
from ...connection.rows import read_row
from ...jobs.scan import pages
from ...keys.ranges import KeyRegion
from ...models.marker_rows import FEED_KIND
from ...stores import Bounds, Row, RowAddress
from .rows import COUNTER_KEY, Counter, changes_between, counter_of, number_of

T = TypeVar("T")


async def read_counter(db: Connection, table: str, partition_key: str) -> Counter | None:
    """Read the counter of the change feed of a partition; None if nothing was noted there. Raises DecodeError."""
    row = await read_row(db, RowAddress(table, partition_key, COUNTER_KEY), name=FEED_KIND)
    return None if row is None else counter_of(row)


async def read_changes(
    db: Connection, table: str, partition_key: str, first: int, last: int, take: Callable[[Row], T]
) -> dict[int, T]:
    """
    Read the rows of the changes from one number to another.

    Args:
        db: Where they are.
        table: The table.
        partition_key: The partition.
        first: The first number.
        last: The last number.
        take: Returns what is kept of a row, since rows may be many and large.

    Returns:
        What is kept, by number.
    """
    if last < first:
        return {}
    region, found = KeyRegion(Bounds.only(partition_key), changes_between(first, last)), dict[int, T]()
    async with aclosing(pages(db, table, None, [region], None, "changes")) as all_pages:
        async for rows in all_pages:
            found |= {number: take(row) for row in rows if (number := number_of(row["RowKey"])) is not None}
    return found
