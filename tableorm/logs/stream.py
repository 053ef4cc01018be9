"""
`LogStream`: writes records into the segments of a log, which are blobs.
"""

import asyncio
import datetime as dt
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, cast

from ..connection.async_only import async_only
from ..connection.awaited_calls import AwaitedCalls, awaited
from ..connection.blobs import ask_blobs, metadata_of, put_blob
from ..connection.connection import Connected, Connection, connection_of
from ..connection.logger import make_logger
from ..connection.tasks import stop_tasks, take_error
from ..connection.translate import translate
from ..errors import Conflict, EncodeError, LimitExceeded, ModelError, TableOrmError, shown
from ..protocol.codes import Code, Fault
from ..stores import CLOCK, BlobInfo
from .segments import (
    MAX_SEGMENT_BYTES,
    LogSegment,
    check_log_name,
    encode_record,
    make_segments,
    refuse_scopes,
    segment_name,
)

_LOG = make_logger("tableorm.logs")

_SEGMENT_BYTES = 4 * 1024 * 1024
_MOST_WAITING = 4  # segments that could not be stored yet
_MOST_HOURS = 48  # of which the next number is known
_MOST_TRIES = 100  # to find a number that is free; each time another program was first, or the server is wrong
_MOST_SEGMENTS = 2**40  # of an hour


@async_only
class LogStream:
    """
    Writes a log: collects records, and stores them in blobs that are each written once.

        async with LogStream(db, "queue") as log:
            await log.write({"level": "info", "message": "started"})

    Any number of programs can write to the same log. Collected records are stored when there are enough of them, every
    few seconds, and when the stream is closed. A program that crashes loses the records collected since the last time;
    with `durable=True` it loses none. Values are stored as JSON: times and UUIDs become strings, NaN becomes null.

    Args:
        db: The open database, which has blobs.
        name: The name of the log. The names of its blobs begin with it.
        container: The container of the blobs. A missing container is created.
        durable: Whether `write` returns only after the record is stored. Records written in parallel are stored
            together.
        flush_seconds: The longest time before a record is stored.
        segment_bytes: The maximum size of a blob, and of the collected records.

    Raises:
        ModelError: An argument is rejected.
    """

    def __init__(
        self,
        db: Connected,
        name: str,
        *,
        container: str = "logs",
        durable: bool = False,
        flush_seconds: float = 5.0,
        segment_bytes: int = _SEGMENT_BYTES,
    ) -> None:
        self._calls = AwaitedCalls()
        check_log_name(name, container)
        if type(segment_bytes) is not int or not 1 <= segment_bytes <= MAX_SEGMENT_BYTES:
            raise ModelError(
                f"LogStream({name!r}, segment_bytes={shown(segment_bytes)}) is rejected: give 1 to {MAX_SEGMENT_BYTES}"
            )
        if not isinstance(cast("object", flush_seconds), int | float) or not 0 < flush_seconds <= 3600:
            raise ModelError(
                f"LogStream({name!r}, flush_seconds={shown(flush_seconds)}) is rejected: give more than 0, up to 3600"
            )
        self._db: Connection = connection_of(db)
        refuse_scopes(self._db, f"LogStream({name!r})")
        self.name, self.container, self.durable = name, container, durable
        self._seconds, self._most_bytes = flush_seconds, segment_bytes
        # What was given and is not stored: records, then the segments that they make, which stay as they are.
        self._records: list[tuple[dt.datetime, bytes]] = []
        self._bytes = 0
        self._segments: deque[LogSegment] = deque()
        self._given = self._stored = 0
        self._numbers: dict[dt.datetime, int] = {}
        self._storing: asyncio.Task[None] | None = None
        self._timer: asyncio.Task[None] | None = None
        self._open = False

    def __repr__(self) -> str:
        return f"<log {self.name}: {self._stored} of {self._given} records stored>"

    async def __aenter__(self) -> Self:
        """
        Open the stream.

        Raises:
            NotSupported: The database has no blobs, or is not open.
            ModelError: The stream is open already.
        """
        self._db.require_open()
        _ = self._db.blobs
        if self._open:
            raise ModelError(f"the log {self.name!r} is being written by this stream already; make another one")
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        if kind is None:
            self._calls.refuse_forgotten("log")

    @awaited
    async def write(self, data: Mapping[str, Any], *, at: dt.datetime | None = None) -> None:
        """
        Write a record.

            await log.write({"level": "info", "message": "started"})

        Args:
            data: The record: a JSON object without the member "at".
            at: When it happened, with a time zone; None for now.

        Raises:
            EncodeError: The record can't be represented in JSON, or the time has no time zone. It isn't written.
            ModelError: The stream isn't open.
            LimitExceeded: Too many records are waiting to be stored, so this one isn't accepted.
            TableOrmError: The collected records couldn't be stored, with `durable=True` or when there are many of them.
                They are kept, including this one, and stored later: don't write it again.
        """
        if not self._open:
            raise ModelError(f"the log {self.name!r} is not open; use `async with LogStream(...) as log`")
        if at is None:
            at = CLOCK.now()
        elif at.tzinfo is None:
            raise EncodeError("has no time zone; give it one, as in datetime.now(UTC)", f"log {self.name}", "at", at)
        at = at.astimezone(dt.UTC)
        line = encode_record(self.name, at, data)
        if len(self._segments) >= _MOST_WAITING:
            await self._make_room()
        self._records.append((at, line))
        self._bytes += len(line) + 1
        self._given += 1
        if self.durable or self._bytes >= self._most_bytes:
            await self.flush()
        elif self._timer is None:
            self._timer = asyncio.create_task(self._flush_later())

    async def flush(self) -> None:
        """
        Store the records collected so far.

        Raises:
            TableOrmError: They couldn't be stored. They are kept, and stored later.
        """
        wanted = self._given
        while self._stored < wanted:
            if self._storing is None:
                self._storing = asyncio.create_task(self._store())
                self._storing.add_done_callback(take_error)
            try:
                # Whoever is cancelled meanwhile leaves the others' records to the task.
                await asyncio.shield(self._storing)
            except TableOrmError:
                if self._stored < wanted:
                    raise

    async def close(self) -> None:
        """
        Store what was gathered, and end. Idempotent.

        Raises:
            TableOrmError: It could not be stored. It is kept: `close` may be called again.
        """
        await stop_tasks([self._timer])
        self._timer = None
        await self.flush()
        self._open = False

    async def _make_room(self) -> None:
        try:
            await self.flush()
        except TableOrmError as error:
            raise LimitExceeded(
                f"the log {self.name!r} has {self._given - self._stored} records that could not be stored, so this one "
                f"is not taken: {error}"
            ) from error

    async def _flush_later(self) -> None:
        while self._stored < self._given:
            await asyncio.sleep(self._seconds)
            try:
                await self.flush()
            except TableOrmError as error:
                _LOG.warning("%s; it is tried again in %g s", error, self._seconds)
        self._timer = None

    # Storing

    async def _store(self) -> None:
        """Store what was gathered before."""
        try:
            records, self._records, self._bytes = self._records, [], 0
            self._segments += make_segments(records, self._most_bytes)
            while self._segments:
                segment = self._segments[0]
                await self._put(segment)
                self._segments.popleft()
                self._stored += segment.count
        finally:
            self._storing = None

    async def _put(self, segment: LogSegment) -> None:
        """
        Write a segment under the next number that is free in its hour. One that may have been written is looked for
        under its name first.
        """
        what = f"write of {segment.count} records into the log {self.name!r}"
        try:
            for _ in range(_MOST_TRIES):
                if segment.name is None:
                    number = self._numbers.get(segment.hour, 0) + 1
                    self._note_number(segment.hour, number)
                    segment.name = segment_name(self.name, segment.hour, number)
                if await self._try_to_put(segment, segment.name):
                    return
                segment.name = None
                self._note_number(segment.hour, await self._find_last(segment.hour, self._numbers[segment.hour]))
        except Fault as fault:
            raise translate(fault, what, "") from None
        raise Conflict(
            f"{what}: the server says of each number that the hour {segment.hour:%Y-%m-%d %H} has a segment with it, "
            f"{_MOST_TRIES} times in a row; see which blobs the container {self.container!r} has, and try it again"
        )

    async def _try_to_put(self, segment: LogSegment, name: str) -> bool:
        """Write a segment; return False if another one has its name."""
        conditions = {"if_none_match": True, "metadata": segment.metadata}
        try:
            await put_blob(self._db, self.name, self.container, name, segment.data, **conditions)
        except Fault as fault:
            if fault.code != Code.BLOB_EXISTS:
                raise
            # It may be this one, after a reply that was lost.
            info = await self._info(name)
            return metadata_of(info).get("id") == segment.metadata["id"]
        return True

    async def _find_last(self, hour: dt.datetime, taken: int) -> int:
        """
        Return the number of a segment of an hour behind which a number is free, given one that is taken: other programs
        have written there.
        """
        step = 1
        while step < _MOST_SEGMENTS and await self._is_taken(hour, taken + step):
            taken, step = taken + step, 2 * step
        free = taken + step
        while free - taken > 1:
            middle = (taken + free) // 2
            if await self._is_taken(hour, middle):
                taken = middle
            else:
                free = middle
        return taken

    async def _is_taken(self, hour: dt.datetime, number: int) -> bool:
        """Return whether a segment has a number."""
        try:
            await self._info(segment_name(self.name, hour, number))
        except Fault as fault:
            if fault.code != Code.BLOB_NOT_FOUND:
                raise
            return False
        return True

    async def _info(self, name: str) -> BlobInfo:
        return await ask_blobs(self._db, self.name, lambda store: store.info(self.container, name))

    def _note_number(self, hour: dt.datetime, number: int) -> None:
        self._numbers[hour] = number
        while len(self._numbers) > _MOST_HOURS:
            del self._numbers[next(iter(self._numbers))]
