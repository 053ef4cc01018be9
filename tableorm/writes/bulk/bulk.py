"""
Bulk writes: any number of operations over any partitions, as entity group transactions, many at a time.

Operations wait in a queue for each partition. A queue is sent when it fills a transaction, or when too much waits. Two
transactions of one partition are never under way at the same time, so operations on one row keep their order. What
waits is bounded: `await bulk.upsert(...)` returns when there is room, so it slows the caller down. Encoding goes on
while a transaction is written, but gets little ahead of a store that answers at once.
"""

import asyncio
import heapq
import inspect
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, cast

from msgspec import structs

from ...connection.async_only import async_only
from ...connection.awaited_calls import AwaitedCalls, awaited
from ...connection.connection import Connection
from ...errors import EntityExists, ModelError, TableOrmError, shown
from ...expressions import Field
from ...models.entity import Entity
from ...models.key import Key
from ...models.property_bag import PropertyBag
from ...outbox.shared_bell import SharedBell
from ...stores import Row
from ..home import find_existing, has_remedy
from ..patch import Known
from ..plan import Change, PlannedWrite, Refusal, SendOptions
from ..stages.change import (
    as_given,
    delete_change,
    insert_change,
    merge_change,
    plain_insert,
    replace_change,
    save_change,
    upsert_change,
)
from ..stages.derive import derives
from ..stages.encode import encode, needs_row
from ..stages.execute import is_light, most_bytes, plan_writes
from ..stages.seal import is_keyed
from ..subject import check_change
from .chunk import Partition, PartitionQueue, commit_chunk, defer, send_chunk, unexpected
from .pacing import AdaptiveConcurrency, Pace
from .report import FAILURES_KEPT, BulkFailed, BulkFailure, BulkReport

_MAX_WAITING_OPERATIONS = 10_000

_MAX_WAITING_BYTES = 64 * 1024 * 1024

# How many transactions may wait while one of their partition is written. Beyond that the caller pauses a little for
# each: a local store has written one by then, so no more wait; for a remote store so short a pause does not matter.
_CHUNKS_AHEAD = 2

_YIELD_SECONDS = 0.002

_TURN = 32  # operations that are taken before other tasks get a turn, which the transactions under way need to end


@async_only
class Bulk:
    """
    Many writes, across any number of partitions. Made by `db.bulk()`; `report` has the results.

    Each method takes its entity as it is at the time of the call, and the entity gets its new ETag when it has been
    written. A value that can't be encoded raises at the call. A rejected write doesn't stop the others:
    it's listed in the report, and the end of the block raises `BulkFailed`. A call that is cancelled or times out has
    not queued its write.

    Passing an object again to `save`, `merge`, `replace` or `delete` waits until its earlier write is done, and uses
    the ETag that the object then has.

    Args:
        db: Where the rows are.
        concurrency: The maximum number of transactions at a time.
        rate: The maximum number of operations per second; None for no limit.
        on_progress: Called with the report so far after each transaction.
        errors: Whether the end of the block raises `BulkFailed` if a write failed, or only lists it in the report.
    """

    def __init__(
        self,
        db: Connection,
        *,
        concurrency: int = 16,
        rate: float | None = None,
        on_progress: Callable[[BulkReport], object] | None = None,
        errors: Literal["raise", "report"] = "raise",
    ) -> None:
        if not (_is_positive(concurrency, int) and (rate is None or _is_positive(rate, int, float))):
            raise ModelError(
                f"bulk(concurrency={concurrency!r}, rate={rate!r}) is rejected: give a whole number of transactions "
                "and a number of operations a second, both above 0"
            )
        if on_progress is not None and (
            not callable(cast("object", on_progress)) or inspect.iscoroutinefunction(on_progress)
        ):
            raise _progress_error(on_progress)
        if errors not in ("raise", "report"):
            raise ModelError(f"bulk(errors={shown(errors)}) is rejected: give 'raise' or 'report'")
        self._calls = AwaitedCalls()
        self._db, self._on_progress = db, on_progress
        self._raises = errors == "raise"
        self._pace = Pace(rate)
        self._concurrency = AdaptiveConcurrency(concurrency)
        self._bell = SharedBell(db)
        self._queues: dict[Partition, PartitionQueue] = {}
        # By the id of an object that is not written yet: the queues that it waits in, one for each time it was given.
        self._given: dict[int, tuple[PartitionQueue] | list[PartitionQueue]] = {}
        self._ready: deque[PartitionQueue] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = self._bytes = self._taken = 0
        self._ahead = False  # whether a queue holds more than `_CHUNKS_AHEAD`
        self._room: asyncio.Future[None] | None = None
        self._written = self._existing = self._failures = self._requests = 0
        self._failed: list[BulkFailure] = []
        self._kept: list[Entity | PropertyBag] = []
        self._looks = False  # whether the last look for rows of inserts found some: then the next ones look first
        self._error: BaseException | None = None
        self._state = "new"

    def __repr__(self) -> str:
        return f"<bulk: {self._written} written, {self._failures} failed>"

    @property
    def report(self) -> BulkReport:
        """What happened to the operations so far; to all of them, once the block has ended."""
        return BulkReport(
            written=self._written,
            existing=self._existing,
            kept=tuple(self._kept),
            failed=tuple(self._failed),
            failures=self._failures,
            requests=self._requests,
        )

    @property
    def concurrency(self) -> int:
        """How many transactions may currently run at a time: fewer than requested while the store is overloaded."""
        return self._concurrency.now

    @awaited
    async def insert(self, entity: Entity | PropertyBag, *, repeat: bool = True, exist_ok: bool = False) -> None:
        """
        Insert a new entity. Invalid values raise the same errors as in `db.insert`.

            await bulk.insert(Employee(department="Sales", id=10, name="Ken"))

        Args:
            entity: An entity or bag.
            repeat: As in `db.insert`; False applies to the whole transaction that the entity is sent in.
            exist_ok: Whether to leave an existing row with its key unchanged without counting that as a failure:
                `report.existing` counts these.
        """
        self._db.boundary.fill(entity)
        await self._add(insert_change(entity, repeat=repeat, exist_ok=exist_ok))

    @awaited
    async def save(self, entity: Entity | PropertyBag) -> None:
        """
        Write what changed since the entity was read. Raises the same errors as `db.save`.

            ken.age = 24
            await bulk.save(ken)
        """
        await self._wait_until_written(entity)
        await self._add(save_change(entity))

    @awaited
    async def merge(
        self,
        entity: Entity | PropertyBag,
        only: Sequence[Field[Any] | str] | None = None,
        *,
        if_match: str | None = None,
    ) -> None:
        """
        Merge some fields into the row. Invalid values raise the same errors as in `db.merge`.

            ken.age = 24
            await bulk.merge(ken, only=[Employee.age])
        """
        if if_match is None:
            await self._wait_until_written(entity)
        await self._add(merge_change(entity, only, if_match))

    @awaited
    async def replace(
        self, entity: Entity | PropertyBag, *, if_match: str | None = None, drop_extra: bool = False
    ) -> None:
        """
        Replace the row. Invalid values raise the same errors as in `db.replace`.

            await bulk.replace(ken.evolve(age=24))
        """
        if if_match is None:
            await self._wait_until_written(entity)
        await self._add(replace_change(entity, if_match, drop_extra=drop_extra))

    @awaited
    async def upsert(self, entity: Entity | PropertyBag, mode: Literal["merge", "replace"] = "merge") -> None:
        """
        Insert the entity, or merge it into or replace an existing row. Invalid values raise the same errors as in
        `db.upsert`.

            await bulk.upsert(Employee(department="Sales", id=10, name="Ken"))
        """
        self._db.boundary.fill(entity)
        await self._add(upsert_change(entity, mode))

    @awaited
    async def delete(self, target: Entity | PropertyBag | Key[Any], *, if_match: str | None = None) -> None:
        """
        Delete a row. Raises as `db.delete` without an ETag.

            await bulk.delete(Employee.key(department="Sales", id=10), if_match="*")
        """
        if if_match is None:
            await self._wait_until_written(target)
        await self._add(delete_change(target, if_match))

    def _require_open(self) -> None:
        if self._state != "open":
            raise ModelError(f"the bulk is {self._state}; use it inside `async with db.bulk() as bulk:`")
        if self._error is not None:
            raise self._error

    async def _wait_until_written(self, subject: object) -> None:
        """Wait until the operations that were given of this object are written: then it has its new ETag."""
        while (queues := self._given.get(id(subject))) is not None:
            self._require_open()
            self._make_ready(queues[0])
            self._start()
            await self._wait_for_room()

    async def _add(self, change: Change) -> None:
        """Put an operation into the queue of its partition, when there is room."""
        schema = change.schema
        if schema not in self._db.used_models.known:
            self._db.used_models.add(schema)
        if self._db.boundary.narrows:
            check_change(self._db.boundary, change)
        self._require_open()
        if schema is not None and schema.tracked:
            change = as_given(change)
        late = needs_row(change)
        write = defer(change) if late else encode(change, 0)
        if write is None:
            self._written += 1
            return
        if not (late or is_light(write.weight)):
            (write,) = plan_writes((write,)).writes
        size = most_bytes(write)
        self._taken += 1
        if self._taken >= _TURN:
            self._taken = 0
            await asyncio.sleep(0)
            self._require_open()
        if self._ahead:
            await self._yield_to_sending()
            self._require_open()
        while self._is_full():
            self._start(force=True)
            await self._wait_for_room()
            self._require_open()
        # From here on nothing is awaited: a call that was cancelled before has added nothing.
        partition = change.address.table, change.address.partition_key
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition)
        queue.append(write, size)
        queue.derives = queue.derives or late or derives(write) or has_remedy(write)
        if schema is not None and schema.keyed is not None:
            queue.derives = queue.derives or is_keyed(write)
        self._waiting += 1
        self._bytes += size
        subject = id(change.subject)
        given = self._given.get(subject)
        if isinstance(given, list):
            given.append(queue)
        else:
            self._given[subject] = queue.alone if given is None else [*given, queue]
        count, chunk = len(queue.writes), self._pace.chunk
        if count >= chunk:
            if not (queue.busy or queue.ready):
                self._make_ready(queue)
                self._start()
            elif count % chunk == 0 and count > _CHUNKS_AHEAD * chunk:
                self._ahead = True

    def _make_ready(self, queue: PartitionQueue) -> None:
        """Put a queue among those that are sent next."""
        if not (queue.busy or queue.ready):
            queue.ready = True
            self._ready.append(queue)

    def _is_full(self) -> bool:
        return (
            self._waiting >= _MAX_WAITING_OPERATIONS
            or self._bytes >= _MAX_WAITING_BYTES
            or len(self._ready) > self._concurrency.most  # enough to go on with
        )

    async def _wait_for_room(self) -> None:
        """Wait until a transaction has ended."""
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._room)

    async def _yield_to_sending(self) -> None:
        """Wait until a transaction has ended, or a little time has passed."""
        self._ahead = False
        if self._tasks:
            with suppress(TimeoutError):
                async with asyncio.timeout(_YIELD_SECONDS):
                    await self._wait_for_room()

    def _start(self, *, force: bool = False) -> None:
        """Send as many queues as may be under way: those that are ready, and with `force` the longest others too."""
        while len(self._tasks) < self._concurrency.now:
            if self._ready:
                queue = self._ready.popleft()
            elif force:
                idle = [each for each in self._queues.values() if not each.busy]
                if not idle:
                    return
                # More than are sent now, so that they need not be sorted for each.
                count = max(4 * self._concurrency.most, len(idle) // 8)
                for each in heapq.nlargest(count, idle, key=lambda each: len(each.writes)):
                    self._make_ready(each)
                continue
            else:
                return
            queue.busy, queue.ready = True, False
            task = asyncio.create_task(self._send_queue(queue))
            self._tasks.add(task)
            task.add_done_callback(self._end_task)

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        """Take note of a task that has ended, and start others."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and self._error is None:
            self._error = task.exception()
        if self._state != "dropped":
            self._start(force=self._state == "closing" or self._is_full())
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    async def _send_queue(self, queue: PartitionQueue) -> None:
        chunk, size = queue.take_chunk(self._pace.chunk)
        try:
            if chunk:  # otherwise its operations were dropped meanwhile
                some = await self._drop_existing(chunk) if self._looks and len(chunk) > 1 else chunk
                await self._send_chunk(queue, some)
        finally:
            self._waiting -= len(chunk)
            self._bytes -= size
            for write in chunk:
                subject = id(write.change.subject)
                queues = self._given[subject]
                if isinstance(queues, list) and len(queues) > 1:
                    queues.remove(queue)
                else:
                    del self._given[subject]
            queue.busy = False
            if not queue.writes:
                self._queues.pop(queue.partition, None)
            elif len(queue.writes) >= self._pace.chunk:
                self._make_ready(queue)
        if self._on_progress is not None:
            result = self._on_progress(self.report)
            if inspect.iscoroutine(result):
                result.close()
                raise _progress_error(self._on_progress)

    async def _send_chunk(self, queue: PartitionQueue, chunk: list[PlannedWrite]) -> None:
        """Send operations of a partition as one transaction, and those that did not fail again after a failure."""
        todo, read = [chunk] if chunk else [], dict[str, PlannedWrite]()
        throttled = self._concurrency.narrow
        options = SendOptions(sending=self._count_request, throttled=throttled, patient=True, bell=self._bell)
        while todo:
            writes = todo.pop()
            if not await self._pace.wait(len(writes)):
                return
            if queue.derives:
                outcome = await commit_chunk(self._db, writes, read, options)
            else:
                outcome = await send_chunk(self._db, queue.partition, writes, options)
            self._written += outcome.written
            todo += await self._end_refused(outcome.failed, outcome.again)
            if outcome.written and not outcome.failed:
                self._concurrency.widen()

    async def _end_refused(
        self, failed: Sequence[Refusal], again: Sequence[list[PlannedWrite]] = ()
    ) -> Sequence[list[PlannedWrite]]:
        """
        Report writes that were rejected, and return what is sent again, a part at a time. Of inserts that leave a row
        as it is, those that would find one are not.
        """
        lenient = False
        for write, error in failed:
            is_there = write.change.exist_ok and isinstance(error, EntityExists)
            lenient = lenient or is_there
            # What an index or a list needs is another row, or the row's own.
            if isinstance(error, EntityExists) and is_there and error.index:
                is_there = not await self._drop_existing([write])
            elif is_there:
                self._keep(write)
            if not is_there:
                self._fail(write.change.verb, write.change.subject, error)
        if not lenient:
            return again
        self._looks = True
        return [left for some in again if (left := await self._drop_existing(some))]

    async def _drop_existing(self, writes: list[PlannedWrite]) -> list[PlannedWrite]:
        """Return writes without inserts that would find a row which they leave as it is."""
        there = await find_existing(self._db, (write.change for write in writes))
        self._looks = bool(there)
        left: list[PlannedWrite] = []
        for write in writes:
            if write.change.exist_ok and write.change.row_key in there:
                self._keep(write)
            else:
                left.append(write)
        return left

    def _keep(self, write: PlannedWrite) -> None:
        """Report an insert that leaves a row as it is."""
        self._existing += 1
        if len(self._kept) < FAILURES_KEPT:
            self._kept.append(write.change.subject)

    def _count_request(self) -> None:
        self._requests += 1

    def _fail(self, verb: str, subject: Any, error: TableOrmError) -> None:
        self._failures += 1
        if len(self._failed) < FAILURES_KEPT:
            self._failed.append(BulkFailure(verb, subject, error))

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise ModelError("the bulk was used already; begin another with db.bulk()")
        self._db.require_open()
        self._state = "open"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state = "closing" if kind is None else "dropped"
        cancelled = isinstance(error, asyncio.CancelledError)
        try:
            while self._state == "closing" and self._error is None and (self._queues or self._tasks):
                self._start(force=True)
                await self._wait_for_room()
        except asyncio.CancelledError:
            cancelled = True
            raise
        finally:
            self._state = "dropped"
            self._pace.stop()
            for queue in self._queues.values():
                queue.clear()
            self._queues.clear()
            self._ready.clear()
            self._wake_waiters()  # calls that still wait are told that the bulk has ended
            if cancelled:
                for task in self._tasks:
                    task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)  # a request that was sent cannot be called back
            self._state = "closed"
        if kind is not None:
            return
        if self._error is not None:
            raise self._error
        self._calls.refuse_forgotten("bulk")
        if self._failures and self._raises:
            raise BulkFailed(self.report)


async def delete_found(bulk: Bulk, key: Key[Any], row: Row) -> None:
    """Delete a row that a query has found, and what is derived from it, if the row is still as it was found."""
    etag: str = row["odata.etag"]
    change = structs.replace(delete_change(key, etag), stored=Known(row, proof=etag))
    await bulk._add(change)  # pyright: ignore[reportPrivateUsage]


async def insert_plainly(bulk: Bulk, entity: Entity) -> None:
    """Insert an entity with the values that it has: nothing is filled in. Raises as `Bulk.insert`."""
    await bulk._add(plain_insert(entity, "insert"))  # pyright: ignore[reportPrivateUsage]


def report_kept(bulk: Bulk, key: Key[Any], error: Exception) -> None:
    """Report that a row which a query has found is not deleted: what it holds raised an error."""
    if not isinstance(error, TableOrmError):
        error = unexpected(delete_change(key, "*"), error)
    bulk._fail("delete", key, error)  # pyright: ignore[reportPrivateUsage]


def _progress_error(function: object) -> ModelError:
    return ModelError(f"bulk(on_progress={shown(function)}) is rejected: give a plain function, which is not awaited")


def _is_positive(value: object, *types: type) -> bool:
    return isinstance(value, types) and 0 < cast("float", value) < math.inf
