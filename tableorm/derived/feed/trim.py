"""
Trimming: the oldest rows of a change feed are deleted, in the transaction that notes it in the counter.

So a reader that asks for what was trimmed is told; and whoever trims at the same time, or has died, leaves nothing to
do but what is still there.
"""

import datetime as dt
from collections.abc import AsyncGenerator, Sequence

import attrs

from ...connection.connection import Connection
from ...connection.races import ATTEMPTS, Attempts
from ...connection.rows import time_of, write_as_read
from ...errors import LostRace
from ...models.marker_rows import CHANGE_KIND, FEED_KIND
from ...models.write_tokens import new_token
from ...protocol.limits import MAX_TRANSACTION_OPERATIONS
from ...stores import Operation, Verb, utc_now
from ...writes.bulk.pacing import Pace
from .lookup import read_changes, read_counter
from .rows import Counter, change_key

_MOST = MAX_TRANSACTION_OPERATIONS - 1  # changes that a transaction deletes beside the write of the counter


def trimming(partition_key: str, counter: Counter, row_keys: Sequence[str]) -> list[Operation]:
    """
    Return the transaction that stores a counter, which was read under its ETag, and deletes rows that are trimmed.

    Args:
        partition_key: The partition.
        counter: The counter as it will be.
        row_keys: RowKeys of the rows.
    """
    row = counter.to_row(partition_key, new_token())
    verb = Verb.INSERT if counter.etag is None else Verb.REPLACE
    return [Operation(verb, row, counter.etag), *(deletion(partition_key, each) for each in row_keys)]


def deletion(partition_key: str, row_key: str) -> Operation:
    """Return the delete of the row of a change."""
    return Operation(Verb.DELETE, {"PartitionKey": partition_key, "RowKey": row_key}, "*")


async def trim_feed(
    db: Connection, table: str, partition_key: str, keep: dt.timedelta, pace: Pace | None = None
) -> AsyncGenerator[int, None]:
    """
    Delete what is older than `keep` of the change feed of a partition, from the oldest change on. Yield for each
    transaction how many changes it has deleted.

    Args:
        db: Where it is.
        table: The table.
        partition_key: The partition.
        keep: How long changes are kept.
        pace: Limits how many changes are deleted in a second; None for any number.

    Raises:
        DecodeError: The counter is damaged.
        LostRace: Writers of the partition were faster again and again.
    """
    while trimmed := await _trim_oldest(db, table, partition_key, keep, pace):
        yield trimmed


async def _trim_oldest(db: Connection, table: str, partition_key: str, keep: dt.timedelta, pace: Pace | None) -> int:
    """Delete some of the oldest changes, and return how many. Takes and raises what `trim_feed` does."""
    async for _ in Attempts(db):
        counter = await read_counter(db, table, partition_key)
        if counter is None:
            return 0
        most = _MOST if pace is None else min(_MOST, pace.chunk)
        old = await _count_old(db, table, partition_key, counter, utc_now() - keep, most)
        if not old:
            return 0
        if pace is not None:
            await pace.wait(old)
        numbers = range(counter.trimmed + 1, counter.trimmed + old + 1)
        shorter = attrs.evolve(counter, trimmed=numbers[-1])
        operations = trimming(partition_key, shorter, list(map(change_key, numbers)))
        if await write_as_read(db, table, operations, name=FEED_KIND, what=f"the change feed of {partition_key!r}"):
            return old
    raise LostRace(
        f"sweep of the change feed of partition {partition_key!r} of table {table}: others wrote the partition first, "
        f"{ATTEMPTS} times in a row; try it again when fewer write there"
    )


async def _count_old(
    db: Connection, table: str, partition_key: str, counter: Counter, before: dt.datetime, most: int
) -> int:
    """Return how many of the oldest changes were noted before a time, but no more than `most`."""
    last = min(counter.last, counter.trimmed + most)
    times = await read_changes(
        db, table, partition_key, counter.trimmed + 1, last, lambda row: time_of(row, CHANGE_KIND)
    )
    for number in range(counter.trimmed + 1, last + 1):
        if number not in times or times[number] >= before:
            return number - counter.trimmed - 1
    return last - counter.trimmed
