"""
Many independent writes of one partition at once, as bulk sends them, where they need their stored rows or concern
others: what fails takes nothing else with it.
"""

import asyncio
from collections.abc import Callable, Sequence

import attrs
from msgspec import structs

from ...connection.connection import Connection
from ...connection.rows import read_row
from ...errors import LimitExceeded, TableOrmError, TransactionFailed
from ...models.schema import Schema
from ...stores import Operation, Row, Verb
from ..commit import commit
from ..plan import Change, Mode, PlannedWrite
from ..races import ATTEMPTS, is_race, pause_of
from ..stages.change import as_given
from ..stages.complete import complete, needs_row
from ..stages.encode import encode

__all__ = ["ChunkOutcome", "commit_chunk", "most_rows", "most_shared_rows", "waiting"]

_READ_AT_ONCE = 16


@attrs.frozen
class ChunkOutcome:
    """
    What became of some writes.

    Args:
        written: How many were applied; those that had nothing to write too.
        failed: The others, with the reasons.
        again: Those that are to be sent again, in parts.
    """

    written: int
    failed: Sequence[tuple[PlannedWrite, TableOrmError]] = ()
    again: Sequence[list[PlannedWrite]] = ()


def waiting(change: Change) -> PlannedWrite:
    """
    A change that needs its stored row, as it is now, until that is read: what changes later belongs to another write.

    Raises:
        EncodeError: A value does not fit its field.
    """
    change = as_given(change)
    row: Row = {"PartitionKey": change.partition_key, "RowKey": change.row_key}
    if change.mode is not Mode.SAVE:
        write = encode(change, 0)  # as if the row were as it is known: for its size, and to refuse what does not fit
        row = row if write is None else write.operation.row
    elif change.before is not None:
        row = change.before
    return PlannedWrite(Operation(Verb.MERGE, row), change, 0, None, None)


def most_rows(change: Change) -> int:
    """
    How many rows a change concerns if its copies stay where they are. Where they move there are more; and lists and
    counts are mostly the same for many. What does not fit into a transaction after all is sent in parts.
    """
    schema, values = change.schema, change.values
    if schema is None or not schema.tracked:
        return 1
    shared = max((each.shared_rows for each in schema.derived.values()), default=0)
    fields = None if change.mode is Mode.DELETE else values
    return sum((each.own_rows(fields) for each in schema.derived.values()), 1 + shared)


def most_shared_rows(schema: Schema) -> int:
    """Return for how many rows more a chunk should have room, which all of its writes of a model concern."""
    return max((each.rows_per_chunk for each in schema.derived.values()), default=0)


async def commit_chunk(
    db: Connection, writes: list[PlannedWrite], *, throttled: Callable[[], None] | None = None
) -> ChunkOutcome:
    """
    Send writes of one partition, each of another row, as one transaction; without those that must fail.

    Args:
        db: Where to.
        writes: Encoded, or made by `waiting`.
        throttled: Called whenever the store refuses because it is asked for too much.
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(pause_of(db, attempt))
        ready, failed = await _completed(db, writes)
        idle = len(writes) - len(ready) - len(failed)
        try:
            if ready:
                await commit(
                    db,
                    [structs.replace(w, index=n) for n, (_, w) in enumerate(ready)],
                    transaction=True,
                    throttled=throttled,
                )
        except TransactionFailed as error:
            given = [write for write, _ in ready]
            cause = error.__cause__ if isinstance(error.__cause__, TableOrmError) else error
            at = error.index
            too_much = isinstance(cause, LimitExceeded) and len(given) > 1
            if (at is None and len(given) > 1) or too_much:
                half = len(given) // 2
                return ChunkOutcome(idle, failed, [given[half:], given[:half]])
            write = given[at or 0]
            if _is_forced(write.change) and is_race(cause) and attempt + 1 < ATTEMPTS:
                continue
            rest = [each for each in given if each is not write]
            return ChunkOutcome(idle, [*failed, (write, cause)], [rest] if rest else ())
        except TableOrmError as error:
            return ChunkOutcome(idle, [*failed, *((write, error) for write, _ in ready)])
        return ChunkOutcome(idle + len(ready), failed)
    raise AssertionError


async def _completed(
    db: Connection, writes: Sequence[PlannedWrite]
) -> tuple[list[tuple[PlannedWrite, PlannedWrite]], list[tuple[PlannedWrite, TableOrmError]]]:
    """Each write with what is sent of it, without those that have nothing to write; and those that fail."""
    turn = asyncio.Semaphore(_READ_AT_ONCE)

    async def completed(write: PlannedWrite) -> PlannedWrite | TableOrmError | None:
        change = write.change
        if not needs_row(change):
            return write
        async with turn:
            try:
                row = await read_row(db, change.table, change.partition_key, change.row_key)
                return encode(complete(change, row), 0)
            except TableOrmError as error:
                return error

    ready: list[tuple[PlannedWrite, PlannedWrite]] = []
    failed: list[tuple[PlannedWrite, TableOrmError]] = []
    for write, found in zip(writes, await asyncio.gather(*map(completed, writes)), strict=True):
        if isinstance(found, TableOrmError):
            failed.append((write, found))
        elif found is not None:
            ready.append((write, found))
    return ready, failed


def _is_forced(change: Change) -> bool:
    return needs_row(change) and change.if_match in (None, "*") and not change.copied
