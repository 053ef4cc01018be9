"""
Reading a log: the hours of a span of time are listed, and only segments that overlap it are opened.
"""

import datetime as dt
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from heapq import heappop, heappush
from itertools import count
from typing import cast

from ..connection.blobs import ask_blobs, list_blobs
from ..connection.connection import Connected, Connection, connection_of
from ..connection.translate import translate
from ..errors import LimitExceeded, ModelError, shown
from ..protocol.codes import Fault
from ..stores import BlobStore
from .segments import (
    HOUR,
    MAX_SEGMENT_BYTES,
    LogRecord,
    StoredSegment,
    check_log_name,
    hour_of,
    hour_prefix,
    read_records,
    refuse_scopes,
    stored_segment,
)


async def read_log(
    db: Connected, name: str, start: dt.datetime, end: dt.datetime, *, container: str = "logs"
) -> AsyncGenerator[LogRecord, None]:
    """
    Yield the records of a log between two times, ordered by time. Records of the same time are in the order in which
    they were stored.

        end = noon + timedelta(hours=1)
        async for record in read_log(db, "queue", start=noon, end=end): ...

    The blobs are listed with one request for each day or hour, and those that overlap the span are read. Only blobs
    whose times overlap each other are in memory together. Records that are stored during the call may be missed.

    Args:
        db: The open database, which has blobs.
        name: The name of the log.
        start: The first time, with a time zone.
        end: The time before which records are yielded, with a time zone.
        container: The container of the blobs.

    Raises:
        ModelError: A name is rejected, or a time has no time zone.
        DecodeError: A blob doesn't contain log records.
        TableOrmError: The store rejected a request, or didn't respond.
    """
    check_log_name(name, container)
    for argument, at in (("start", start), ("end", end)):
        if not isinstance(cast("object", at), dt.datetime) or at.tzinfo is None:
            raise ModelError(
                f"read_log({name!r}, {argument}={shown(at)}) is rejected: give a datetime with a time zone"
            )
    connection = connection_of(db)
    connection.require_open()
    refuse_scopes(connection, f"read_log({name!r})")
    start, end = start.astimezone(dt.UTC), end.astimezone(dt.UTC)
    log = _Log(connection, name, container)
    async for hour in log.segments(start, end):
        async for record in log.merge(hour):
            if start <= record.at < end:
                yield record


class _Log:
    """The blobs of a log."""

    def __init__(self, db: Connection, name: str, container: str) -> None:
        self._db, self._name, self._container = db, name, container

    async def segments(self, start: dt.datetime, end: dt.datetime) -> AsyncIterator[list[StoredSegment]]:
        """Yield the segments that overlap a span of time, hour by hour, in the order of their first times."""
        hour = hour_of(start)
        while hour < end:
            midnight = hour.replace(hour=0) + dt.timedelta(days=1)
            single = min(midnight, end) <= hour + HOUR
            prefix = hour_prefix(self._name, hour)
            by_hour: dict[dt.datetime, list[StoredSegment]] = {}
            prefix = prefix if single else prefix[: -len("HH00/")]
            found = list_blobs(self._db, self._name, self._container, prefix, f"the log {self._name!r}")
            async with aclosing(found):
                async for info in found:
                    segment = stored_segment(self._name, info)
                    if segment is not None and segment.last >= start and segment.first < end:
                        by_hour.setdefault(hour_of(segment.first), []).append(segment)
            for _, some in sorted(by_hour.items()):
                yield sorted(some, key=lambda segment: (segment.first, segment.number))
            hour = hour + HOUR if single else midnight

    async def merge(self, segments: list[StoredSegment]) -> AsyncIterator[LogRecord]:
        """Yield the records of some segments in the order of time. The segments are sorted by their first times."""
        waiting, number = deque(segments), count()
        heap: list[tuple[dt.datetime, int, LogRecord, Iterator[LogRecord]]] = []
        while waiting or heap:
            # Of records of the same time, those of the segment that was opened first come first.
            while waiting and (not heap or waiting[0].first < heap[0][0]):
                segment = waiting.popleft()
                _push(heap, next(number), read_records(segment.name, await self._read(segment)))
            _, order, record, rest = heappop(heap)
            yield record
            _push(heap, order, rest)

    async def _read(self, segment: StoredSegment) -> bytes:
        async def read(store: BlobStore) -> bytes:
            async with store.get(self._container, segment.name) as stream:
                length = stream.info.length  # it may have grown since it was listed
                if length > MAX_SEGMENT_BYTES:
                    raise LimitExceeded(f"{segment.name} has {length} bytes; a segment has {MAX_SEGMENT_BYTES} at most")
                return b"".join([chunk async for chunk in stream.chunks])

        try:
            return await ask_blobs(self._db, self._name, read)
        except Fault as fault:
            raise translate(fault, f"read of {segment.name}", "") from None


def _push(
    heap: list[tuple[dt.datetime, int, LogRecord, Iterator[LogRecord]]], order: int, records: Iterator[LogRecord]
) -> None:
    record = next(records, None)
    if record is not None:
        heappush(heap, (record.at, order, record, records))
