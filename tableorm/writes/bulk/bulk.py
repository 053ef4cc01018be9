"""
Bulk writes: any number of operations over any partitions, as entity group transactions, many at a time.

Operations wait in a queue for each partition. A queue is sent when it fills a transaction, or when too much waits.
Never are two transactions of one partition under way, so operations of one row keep their order. What waits is bounded:
`await bulk.upsert(...)` waits with it, and so does whoever feeds it. Encoding goes on while a transaction is written,
and little ahead of a store that is near.
"""

import asyncio
import heapq
import inspect
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from msgspec import structs

from ...connection.translate import translate
from ...errors import ModelError, NotSupported, TableOrmError, shown
from ...expressions import Field
from ...models.entity import Entity
from ...models.key import Key
from ...models.property_bag import PropertyBag
from ...protocol.codes import Code, Fault
from ...protocol.limits import MAX_TRANSACTION_BYTES, MAX_TRANSACTION_OPERATIONS
from ...stores import Row
from ..plan import Change, PlannedWrite, WritePlan
from ..stages.change import delete_change, insert_change, merge_change, replace_change, save_change, upsert_change
from ..stages.check import is_light, most_bytes, plan_writes
from ..stages.complete import needs_row
from ..stages.derive import derives
from ..stages.encode import encode
from ..stages.execute import apply, claim
from ..stages.lost_replies import InDoubt
from .chunk import commit_chunk, most_rows, most_shared_rows, waiting
from .pacing import AdaptiveConcurrency, Pace
from .report import FAILURES_KEPT, BulkFailure, BulkReport

if TYPE_CHECKING:
    from ...connection.connection import Connection

__all__ = ["Bulk"]

_Address = tuple[str, str]

_WAITING_OPERATIONS = 10_000

_WAITING_BYTES = 64 * 1024 * 1024

# Transactions that wait for one of their partition. Beyond that whoever feeds gives way a little for each: a store that
# is near has done one by then, so that no more waits; for others so short a time does not count.
_CHUNKS_AHEAD = 2

_GIVES_WAY_SECONDS = 0.002

_TURN = 32  # operations taken before other tasks get a turn: what is under way needs several to end


class _PartitionQueue:
    """The operations of one partition, in order, and beside them how many bytes each has at most."""

    __slots__ = ("address", "busy", "derives", "ready", "sizes", "writes")

    def __init__(self, address: _Address) -> None:
        self.address = address
        self.writes: deque[PlannedWrite] = deque()
        self.sizes: deque[int] = deque()
        self.busy = self.ready = False
        self.derives = False  # whether some need their stored rows, or concern others


class Bulk:
    """
    Many writes. Made by `db.bulk()`; `report` says how they went.

    Each operation takes its entity as it is when it is called, and the entity has its new ETag once it was written. An
    operation that cannot be encoded raises at the call; what the store refuses is in the report, and sinks nothing
    else. A call that was cancelled, or ran into a time-out, has not given its operation.

    A `save`, `merge`, `replace` or `delete` of an object that was given before waits until that was written, and is
    sent under the ETag that it got.
    """

    def __init__(
        self,
        db: "Connection",
        *,
        concurrency: int = 16,
        rate: float | None = None,
        on_progress: Callable[[BulkReport], object] | None = None,
    ) -> None:
        if not (_is_number(concurrency, int) and (rate is None or _is_number(rate, int, float))):
            raise ModelError(
                f"bulk(concurrency={concurrency!r}, rate={rate!r}) is refused: give a whole number of transactions and "
                "a number of operations a second, both above 0"
            )
        if inspect.iscoroutinefunction(on_progress):
            raise _not_plain(on_progress)
        self._db, self._on_progress = db, on_progress
        self._pace = Pace(rate)
        self._width = AdaptiveConcurrency(concurrency)
        self._lanes: dict[_Address, _PartitionQueue] = {}
        # By identity of an object that is not written yet: where it waits; and where else, if it was given repeatedly.
        self._given: dict[int, _PartitionQueue] = {}
        self._given_too: dict[int, list[_PartitionQueue]] = {}
        self._ready: deque[_PartitionQueue] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = self._bytes = self._taken = 0
        self._ahead = False  # whether a partition has got more than it needs to go on
        self._room: asyncio.Future[None] | None = None
        self._written = self._failures = self._requests = 0
        self._failed: list[BulkFailure] = []
        self._error: BaseException | None = None
        self._state = "new"

    @property
    def report(self) -> BulkReport:
        """What became of the operations so far; of all of them once the block has ended."""
        return BulkReport(self._written, tuple(self._failed), self._failures, self._requests)

    @property
    def width(self) -> int:
        """How many transactions may be under way now: less than `concurrency` while the store is overburdened."""
        return self._width.now

    async def insert(self, entity: Entity | PropertyBag, *, repeat: bool = True) -> None:
        """
        Insert a new entity. Raises what `db.insert` raises of its values.

        Args:
            entity: An entity or bag.
            repeat: As of `db.insert`; False holds for all of the transaction that it is sent in.
        """
        change = insert_change(entity)
        await self._add(change if repeat else structs.replace(change, repeat=False))

    async def save(self, entity: Entity | PropertyBag) -> None:
        """Write what has changed since the entity was read. Raises as `db.save`."""
        await self._written_before(entity)
        await self._add(save_change(entity))

    async def merge(
        self,
        entity: Entity | PropertyBag,
        only: Sequence[Field[Any] | str] | None = None,
        *,
        if_match: str | None = None,
    ) -> None:
        """Merge some fields. Raises what `db.merge` raises of its values."""
        if if_match is None:
            await self._written_before(entity)
        await self._add(merge_change(entity, only, if_match))

    async def replace(
        self, entity: Entity | PropertyBag, *, if_match: str | None = None, drop_extra: bool = False
    ) -> None:
        """Replace the row. Raises what `db.replace` raises of its values."""
        if if_match is None:
            await self._written_before(entity)
        await self._add(replace_change(entity, if_match, drop_extra=drop_extra))

    async def upsert(self, entity: Entity | PropertyBag, mode: Literal["merge", "replace"] = "merge") -> None:
        """Insert, or merge or replace the row that is there. Raises what `db.upsert` raises of its values."""
        await self._add(upsert_change(entity, mode))

    async def delete(self, target: Entity | PropertyBag | Key[Any], *, if_match: str | None = None) -> None:
        """Delete a row. Raises as `db.delete` without an ETag."""
        if if_match is None:
            await self._written_before(target)
        await self._add(delete_change(target, if_match))

    async def delete_found(self, key: Key[Any], row: Row) -> None:
        """Delete a row that was found, with what tells what is derived from it, if it is still as it was then."""
        await self._add(structs.replace(delete_change(key, row["odata.etag"]), prior=row))

    def _require_open(self) -> None:
        if self._state != "open":
            raise NotSupported(f"the bulk is {self._state}; use it inside `async with db.bulk() as bulk:`")
        if self._error is not None:
            raise self._error

    async def _written_before(self, subject: object) -> None:
        """Until what was given of this object is written: only then it has its new ETag."""
        while (lane := self._given.get(id(subject))) is not None:
            self._require_open()
            self._make_ready(lane)
            self._start()
            await self._wait()

    async def _add(self, change: Change) -> None:
        self._require_open()
        late = needs_row(change)
        write = waiting(change) if late else encode(change, 0)
        if write is None:
            self._written += 1
            return
        if not (late or is_light(write)):
            plan_writes((write,))
        size = most_bytes(write)
        self._taken += 1
        if self._taken >= _TURN:
            self._taken = 0
            await asyncio.sleep(0)
            self._require_open()
        if self._ahead:
            await self._give_way()
            self._require_open()
        while self._is_full():
            self._start(force=True)
            await self._wait()
            self._require_open()
        # From here on nothing is awaited: whoever was cancelled before has given nothing.
        address = change.table, change.partition_key
        lane = self._lanes.get(address)
        if lane is None:
            lane = self._lanes[address] = _PartitionQueue(address)
        lane.writes.append(write)
        lane.sizes.append(size)
        lane.derives = lane.derives or late or derives(write)
        self._waiting += 1
        self._bytes += size
        subject = id(change.subject)
        if subject in self._given:
            self._given_too.setdefault(subject, []).append(lane)
        else:
            self._given[subject] = lane
        count, chunk = len(lane.writes), self._pace.chunk
        if count >= chunk:
            if not (lane.busy or lane.ready):
                self._make_ready(lane)
                self._start()
            elif count % chunk == 0 and count > _CHUNKS_AHEAD * chunk:
                self._ahead = True

    def _make_ready(self, lane: _PartitionQueue) -> None:
        """Put a lane among those that are sent next."""
        if not (lane.busy or lane.ready):
            lane.ready = True
            self._ready.append(lane)

    def _is_full(self) -> bool:
        return (
            self._waiting >= _WAITING_OPERATIONS
            or self._bytes >= _WAITING_BYTES
            or len(self._ready) > self._width.most  # enough to go on with
        )

    async def _wait(self) -> None:
        """Until something was sent."""
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._room)

    async def _give_way(self) -> None:
        """Until something was sent, or a little time has passed."""
        self._ahead = False
        if self._tasks:
            with suppress(TimeoutError):
                async with asyncio.timeout(_GIVES_WAY_SECONDS):
                    await self._wait()

    def _start(self, *, force: bool = False) -> None:
        """Send full lanes, as many as may be under way; with `force` the longest others too."""
        while len(self._tasks) < self._width.now:
            if self._ready:
                lane = self._ready.popleft()
            elif force:
                idle = [each for each in self._lanes.values() if not each.busy]
                if not idle:
                    return
                # The longest first; some more than are sent now, so that this is not done for each.
                count = max(4 * self._width.most, len(idle) // 8)
                for each in heapq.nlargest(count, idle, key=lambda each: len(each.writes)):
                    self._make_ready(each)
                continue
            else:
                return
            lane.busy, lane.ready = True, False
            task = asyncio.create_task(self._send_lane(lane))
            self._tasks.add(task)
            task.add_done_callback(self._sent)

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and self._error is None:
            self._error = task.exception()
        if self._state != "dropped":
            self._start(force=self._state == "closing" or self._is_full())
        self._wake()

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    def _next_chunk(self, lane: _PartitionQueue) -> tuple[list[PlannedWrite], int]:
        """Take from a lane what goes into one transaction, and how many bytes it has at most."""
        chunk: list[PlannedWrite] = []
        rows: set[str] = set()
        writes, sizes, size, most = lane.writes, lane.sizes, 0, self._pace.chunk
        room = MAX_TRANSACTION_OPERATIONS
        if lane.derives:
            schemas = {write.change.schema for write in writes}
            room -= max((most_shared_rows(schema) for schema in schemas if schema is not None), default=0)
        while writes and len(chunk) < most:
            row_key = writes[0].change.row_key
            # A row is written once in a transaction: the second operation waits for the next.
            if row_key in rows or (chunk and size + sizes[0] > MAX_TRANSACTION_BYTES):
                break
            if lane.derives:
                room -= most_rows(writes[0].change)
                if chunk and room < 0:
                    break
            rows.add(row_key)
            chunk.append(writes.popleft())
            size += sizes.popleft()
        return chunk, size

    async def _send_lane(self, lane: _PartitionQueue) -> None:
        chunk, size = self._next_chunk(lane)
        try:
            if chunk:  # otherwise it was dropped in the meantime
                if lane.derives:
                    await self._send_derived(chunk)
                else:
                    await self._send(WritePlan(*lane.address, tuple(chunk)))
        finally:
            self._waiting -= len(chunk)
            self._bytes -= size
            for write in chunk:
                subject = id(write.change.subject)
                if subject in self._given_too:
                    self._written_one(subject, lane)
                else:
                    del self._given[subject]
            lane.busy = False
            if not lane.writes:
                self._lanes.pop(lane.address, None)
            elif len(lane.writes) >= self._pace.chunk:
                self._make_ready(lane)
        if self._on_progress is not None:
            told = self._on_progress(self.report)
            if inspect.iscoroutine(told):
                told.close()
                raise _not_plain(self._on_progress)

    def _written_one(self, subject: int, lane: _PartitionQueue) -> None:
        """What was given repeatedly is written once more."""
        too = self._given_too[subject]
        if self._given[subject] is lane:
            self._given[subject] = too.pop()
        else:
            too.remove(lane)
        if not too:
            del self._given_too[subject]

    async def _send(self, plan: WritePlan) -> None:
        """Send a chunk; without what failed, as often as it takes."""
        todo = [plan]
        while todo:
            plan = todo.pop()
            writes = plan.writes
            if not await self._pace.wait(len(writes)):
                return
            self._requests += 1
            try:
                await apply(self._db, plan, throttled=self._width.narrow)
            except InDoubt as doubt:
                unknown = claim(doubt)
                self._written += len(writes) - len(unknown)
                for number in unknown:
                    error = doubt.error_of(number)
                    error.__cause__ = doubt.fault
                    self._fail(writes[number], error)
            except Fault as fault:
                at = fault.index
                if len(writes) == 1 or _is_of_all(fault):
                    for write in writes:
                        self._fail(write, _error(fault, write))
                elif at is not None and at < len(writes):
                    self._fail(writes[at], _error(fault, writes[at]))
                    todo.append(structs.replace(plan, writes=writes[:at] + writes[at + 1 :]))
                else:
                    half = len(writes) // 2
                    todo += [structs.replace(plan, writes=writes[half:]), structs.replace(plan, writes=writes[:half])]
            else:
                self._written += len(writes)
                self._width.widen()

    async def _send_derived(self, chunk: list[PlannedWrite]) -> None:
        """The like, of writes that need their stored rows, or concern other rows."""
        todo = [chunk]
        while todo:
            writes = todo.pop()
            if not await self._pace.wait(len(writes)):
                return
            self._requests += 1
            outcome = await commit_chunk(self._db, writes, throttled=self._width.narrow)
            self._written += outcome.written
            for write, error in outcome.failed:
                self._fail(write, error)
            todo += outcome.again
            if outcome.written:
                self._width.widen()

    def _fail(self, write: PlannedWrite, error: TableOrmError) -> None:
        self._failures += 1
        if len(self._failed) < FAILURES_KEPT:
            self._failed.append(BulkFailure(write.change.verb, write.change.subject, error))

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise NotSupported("the bulk was used already; begin another with db.bulk()")
        self._db.require_open()
        self._state = "open"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state = "closing" if kind is None else "dropped"
        cancelled = isinstance(error, asyncio.CancelledError)
        try:
            while self._state == "closing" and self._error is None and (self._lanes or self._tasks):
                self._start(force=True)
                await self._wait()
        except asyncio.CancelledError:
            cancelled = True
            raise
        finally:
            self._state = "dropped"
            self._pace.stop()
            for lane in self._lanes.values():
                lane.writes.clear()
                lane.sizes.clear()
            self._lanes.clear()
            self._ready.clear()
            self._wake()  # whoever feeds it still is told that it is over
            if cancelled:
                for task in self._tasks:
                    task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)  # what was sent cannot be called back
            self._state = "closed"
        if kind is None and self._error is not None:
            raise self._error


def _not_plain(function: object) -> ModelError:
    return ModelError(f"bulk(on_progress={shown(function)}) is asynchronous, and is not awaited; give a plain function")


def _is_number(value: object, *types: type) -> bool:
    return isinstance(value, types) and 0 < cast("float", value) < math.inf


def _is_of_all(fault: Fault) -> bool:
    """Whether it is not the fault of one operation, so that all others would meet it."""
    return fault.transient or fault.code == Code.TABLE_NOT_FOUND or fault.code.startswith("Auth")


def _error(fault: Fault, write: PlannedWrite) -> TableOrmError:
    change = write.change
    key = change.partition_key, change.row_key
    error = translate(fault, str(change), change.table, change.subject, key)
    error.__cause__ = fault
    return error
