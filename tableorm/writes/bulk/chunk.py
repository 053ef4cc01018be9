"""
Chunks: independent writes of one partition that a bulk sends as one transaction, where some need their stored rows or
change other rows. A write that fails does not stop the others.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import attrs
from msgspec import structs

from ...connection.connection import Connection
from ...connection.races import ATTEMPTS, is_race, passing_fault, pause_of, read_patiently
from ...connection.tasks import map_together
from ...connection.translate import translate
from ...errors import (
    AccessDenied,
    DecodeError,
    LimitExceeded,
    TableNotFound,
    TableOrmError,
    TransactionFailed,
    Unavailable,
    shown,
)
from ...models.schema import Schema
from ...protocol.codes import Fault
from ...protocol.limits import MAX_TRANSACTION_BYTES, MAX_TRANSACTION_OPERATIONS
from ...stores import Operation, RetryBudget, Verb
from ..commit import commit, read_current
from ..plan import Change, Mode, PlannedWrite, Refusal, SendOptions, WritePlan
from ..stages.complete import complete
from ..stages.encode import encode, needs_row
from ..stages.execute import claim, execute, refusal_of
from ..stages.lost_replies import InDoubt


@attrs.frozen
class ChunkOutcome:
    """
    What became of the writes of a chunk.

    Args:
        written: How many were applied, or had nothing to write.
        failed: Those that failed, each with the reason.
        again: Those that are to be sent again, each part as a chunk.
    """

    written: int
    failed: Sequence[Refusal] = ()
    again: Sequence[list[PlannedWrite]] = ()


def defer(change: Change) -> PlannedWrite:
    """
    Make a placeholder of a change that needs its stored row, until that row is read.

    Raises:
        EncodeError: A value does not fit its field.
    """
    row = change.address.keys
    if change.mode is not Mode.SAVE:
        write = encode(change, 0)  # for its size, and to refuse values that do not fit
        row = row if write is None else write.operation.row
    elif change.shown is not None:
        row = change.shown
    return PlannedWrite(operation=Operation(Verb.MERGE, row), change=change, index=0, after=None, weight=None)


def most_rows(change: Change) -> int:
    """
    Return how many rows a change writes if its index entries keep their keys. It may write more; a chunk that does not
    fit into a transaction is sent in parts.
    """
    schema, values = change.schema, change.values
    if schema is None or not schema.tracked:
        return 1
    shared = max((each.shared_rows for each in schema.derived.values()), default=0)
    fields = None if change.mode is Mode.DELETE else values
    own = 1 if schema.split is None else schema.split.most_rows
    return sum((each.own_rows(fields) for each in schema.derived.values()), own + shared)


def most_shared_rows(schema: Schema) -> int:
    """Return for how many rows more a chunk should have room, which all of its writes of a model concern."""
    return max((each.rows_per_chunk for each in schema.derived.values()), default=0)


async def send_chunk(
    db: Connection, partition: "Partition", writes: list[PlannedWrite], options: SendOptions
) -> ChunkOutcome:
    """
    Send writes of one partition, each of another row, that need no stored rows and change no other rows.

    Args:
        db: Where the rows are.
        partition: The partition.
        writes: The writes, encoded, judged and measured.
        options: How.
    """
    try:
        await execute(db, WritePlan(*partition, tuple(writes)), options)
    except InDoubt as doubt:
        unknown = claim(doubt)
        return ChunkOutcome(len(writes) - len(unknown), unknown)
    except Fault as fault:
        at = fault.index
        if len(writes) == 1 or _concerns_all(fault):
            return ChunkOutcome(0, [(write, refusal_of(write, fault)) for write in writes])
        if at is None or at >= len(writes):
            return ChunkOutcome(0, again=_halves(writes))
        return ChunkOutcome(0, [(writes[at], refusal_of(writes[at], fault))], [[*writes[:at], *writes[at + 1 :]]])
    return ChunkOutcome(len(writes))


def _concerns_all(fault: Fault) -> bool:
    """Return whether a fault is not that of one operation, so that all others would meet it."""
    return fault.transient or isinstance(translate(fault, "", ""), (AccessDenied, TableNotFound, Unavailable))


async def commit_chunk(
    db: Connection, writes: list[PlannedWrite], read: dict[str, PlannedWrite], options: SendOptions
) -> ChunkOutcome:
    """
    Send writes of one partition, each of another row, as one transaction; without those that must fail.

    What the store refuses for now, to read a row or to write the chunk, is repeated within the time of one call.

    Args:
        db: Where the rows are.
        writes: The writes, encoded or made by `defer`.
        read: Writes whose stored rows were read already, by RowKey, as they are sent. Those of this chunk are added.
        options: How.
    """
    budget, races, options = RetryBudget(db.retry), 0, structs.replace(options, transaction=True)
    earlier = {*read}  # rows that an earlier part of the chunk may have changed since
    while True:
        ready, failed = await _complete(db, writes, read, options.throttled)
        idle = len(writes) - len(ready) - len(failed)
        given = [write for write, _ in ready]
        try:
            if ready:
                await commit(db, [structs.replace(w, index=n) for n, (_, w) in enumerate(ready)], options)
        except TransactionFailed as error:
            cause = error.__cause__ if isinstance(error.__cause__, TableOrmError) else error
            fault, at = passing_fault(cause), error.index
            if fault is not None and await budget.another(fault):
                continue
            # What concerns the table or the caller every part of the chunk would meet.
            if isinstance(cause, TableNotFound) or (at is None and isinstance(cause, (AccessDenied, Unavailable))):
                return ChunkOutcome(idle, [*failed, *((write, cause) for write in given)])
            too_much = isinstance(cause, LimitExceeded) and len(given) > 1
            if (at is None and len(given) > 1) or too_much:
                return ChunkOutcome(idle, failed, _halves(given))
            write = given[at or 0]
            repeats = write.change.row_key in earlier or (_is_forced(write.change) and races + 1 < ATTEMPTS)
            if repeats and is_race(cause):
                races += 1
                earlier.clear()
                for each in given:
                    read.pop(each.change.row_key, None)
                await asyncio.sleep(pause_of(db, races))
                continue
            failed += [(write, cause), *((given[n], other) for n, other in error.others.items())]
            rest = [each for n, each in enumerate(given) if each is not write and n not in error.others]
            return ChunkOutcome(idle, failed, [rest] if rest else ())
        except TableOrmError as error:
            return ChunkOutcome(idle, [*failed, *((write, error) for write in given)])
        except Exception as error:  # noqa: BLE001  # nothing was sent: a row, or a function of a model, raised it
            if len(given) == 1:
                return ChunkOutcome(idle, [*failed, (given[0], unexpected(given[0].change, error))])
            return ChunkOutcome(idle, failed, _halves(given))
        return ChunkOutcome(idle + len(ready), failed)


def _halves(writes: list[PlannedWrite]) -> list[list[PlannedWrite]]:
    """Return the two halves of a chunk; the last is sent first."""
    half = len(writes) // 2
    return [writes[half:], writes[:half]]


async def _complete(
    db: Connection,
    writes: Sequence[PlannedWrite],
    read: dict[str, PlannedWrite],
    throttled: Callable[[], None] | None,
) -> tuple[list[tuple[PlannedWrite, PlannedWrite]], list[Refusal]]:
    """
    Return each write with the one that is sent for it, and each that fails; those without effect are in neither.

    Args:
        db: Where the rows are.
        writes: The writes.
        read: Those whose stored rows were read already; gets the others.
        throttled: Called whenever the store refuses a request because it is asked for too much.
    """

    async def complete_write(write: PlannedWrite) -> PlannedWrite | TableOrmError | None:
        change = write.change
        if not needs_row(change):
            return write
        if change.row_key in read:
            return read[change.row_key]
        try:
            row = await read_patiently(db, lambda: read_current(db, change), throttled)
            found = encode(complete(change, row), 0)
        except TableOrmError as error:
            return error
        except Exception as error:  # noqa: BLE001  # what one row or a function of its model raises ends no other write
            return unexpected(change, error)
        if found is not None:
            read[change.row_key] = found
        return found

    ready: list[tuple[PlannedWrite, PlannedWrite]] = []
    failed: list[Refusal] = []
    for write, found in zip(writes, await map_together(complete_write, writes), strict=True):
        if isinstance(found, TableOrmError):
            failed.append((write, found))
        elif found is not None:
            ready.append((write, found))
    return ready, failed


def unexpected(change: Change, error: Exception) -> DecodeError:
    """Return what a report says of a write that raised no error of this package."""
    name = change.table if change.schema is None else change.schema.name
    found = DecodeError(
        f"cannot be written by {change.verb}, which raised {shown(error)}", name, (change.partition_key, change.row_key)
    )
    found.__cause__ = error
    return found


def _is_forced(change: Change) -> bool:
    return needs_row(change) and change.if_match in (None, "*") and not change.is_copied


Partition = tuple[str, str]
"""A partition: the name of its table and its PartitionKey."""


class PartitionQueue:
    """
    The operations of one partition that wait, in order, and how many bytes each has at most.

    Args:
        partition: The partition.

    Attributes:
        busy: Whether a transaction of the partition is under way.
        ready: Whether the queue is among those that are sent next.
        derives: Whether some operations need their stored rows, or change other rows.
        alone: The queue by itself. All operations share it: the garbage collector would look at a list for each.
    """

    __slots__ = ("_sizes", "alone", "busy", "derives", "partition", "ready", "writes")

    def __init__(self, partition: Partition) -> None:
        self.partition, self.alone = partition, (self,)  # a cycle, one for each queue
        self.writes: deque[PlannedWrite] = deque()
        self._sizes: deque[int] = deque()
        self.busy = self.ready = self.derives = False

    def append(self, write: PlannedWrite, size: int) -> None:
        """Add an operation of at most `size` bytes."""
        self.writes.append(write)
        self._sizes.append(size)

    def clear(self) -> None:
        """Drop all operations."""
        self.writes.clear()
        self._sizes.clear()

    def take_chunk(self, most: int) -> tuple[list[PlannedWrite], int]:
        """
        Take the operations of the next transaction.

        Args:
            most: How many operations it may have.

        Returns:
            The operations, and how many bytes they have at most.
        """
        chunk: list[PlannedWrite] = []
        row_keys: set[str] = set()
        writes, sizes, size = self.writes, self._sizes, 0
        room = MAX_TRANSACTION_OPERATIONS
        if self.derives:
            schemas = {write.change.schema for write in writes}
            room -= max((most_shared_rows(schema) for schema in schemas if schema is not None), default=0)
        while writes and len(chunk) < most:
            row_key = writes[0].change.address.row_key
            # A transaction writes a row once: the second operation on it waits for the next transaction.
            if row_key in row_keys or (chunk and size + sizes[0] > MAX_TRANSACTION_BYTES):
                break
            if self.derives:
                room -= most_rows(writes[0].change)
                if chunk and room < 0:
                    break
            row_keys.add(row_key)
            chunk.append(writes.popleft())
            size += sizes.popleft()
        return chunk, size
