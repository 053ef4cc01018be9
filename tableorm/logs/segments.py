"""
Segments of a log: what their blobs are named, what they hold, and what their metadata says.

    queue/2014/07/31/1800/000001.log     {"at":"2014-07-31T18:00:04.25Z","level":"info","message":"started"}

A segment holds records of one hour in UTC, in the order of their times. Its metadata has the first and the last time,
so that who looks for a time opens no others, and an id by which its writer knows it again.
"""

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, cast
from uuid import uuid4

import attrs
import msgspec

from ..connection.blobs import metadata_of
from ..connection.connection import Connection
from ..errors import AccessDenied, DecodeError, EncodeError, ModelError, shown
from ..protocol.codes import Fault
from ..protocol.limits import check_blob_name, check_container_name
from ..stores import BlobInfo

MAX_SEGMENT_BYTES = 64 * 1024 * 1024
"""The most bytes of a segment."""

HOUR = dt.timedelta(hours=1)
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_MOST_NAME = 200
_MOST_TIME = 40  # characters of a time
_SEGMENT = re.compile(r"\d{4}/\d\d/\d\d/\d\d00/(\d{6,})\.log", re.ASCII)


@attrs.frozen
class LogRecord:
    """
    A record of a log.

    Args:
        at: When it happened, in UTC.
        data: What was written.
    """

    at: dt.datetime
    data: dict[str, Any]


@attrs.define
class LogSegment:
    """
    A segment that is to be written.

    Args:
        hour: The hour of its records.
        data: Its lines.
        metadata: What its blob is put with.
        count: How many records it has.
        name: The name of its blob, once it has been tried; it is tried again under the same one.
    """

    hour: dt.datetime
    data: bytes
    metadata: Mapping[str, str]
    count: int
    name: str | None = None


@attrs.frozen
class StoredSegment:
    """
    A segment that was written.

    Args:
        name: The name of its blob.
        number: Its number in its hour.
        first: The time of its first record.
        last: The time of its last record.
    """

    name: str
    number: int
    first: dt.datetime
    last: dt.datetime


# Names


def check_log_name(name: object, container: object) -> None:
    """
    Refuse names of a log and its container that blobs cannot have.

    Raises:
        ModelError: One of them is rejected.
    """
    what = f"the log {shown(name)} in the container {shown(container)} is rejected"
    if not (isinstance(name, str) and len(name) <= _MOST_NAME and _NAME.fullmatch(name)):
        raise ModelError(
            f"{what}: a name has up to {_MOST_NAME} letters, digits, '_', '-' and '.', in parts divided by '/'"
        )
    try:
        check_blob_name(name)
        check_container_name(container if isinstance(container, str) else "")
    except Fault as fault:
        raise ModelError(f"{what}: {fault.message}") from None


def refuse_scopes(db: Connection, action: str) -> None:
    """
    Refuse to read or write a log in a scope.

    Raises:
        AccessDenied: The connection is that of a scope.
    """
    try:
        db.boundary.check_whole_table(action)
    except AccessDenied:
        raise AccessDenied(f"{action} is rejected in a scope: blobs are of the whole database; use that") from None


def hour_of(at: dt.datetime) -> dt.datetime:
    """Return the beginning of the hour of a time in UTC."""
    return at.replace(minute=0, second=0, microsecond=0)


def hour_prefix(name: str, hour: dt.datetime) -> str:
    """Return what the names of the segments of an hour begin with."""
    return f"{name}/{hour.year:04d}/{hour:%m/%d/%H}00/"


def segment_name(name: str, hour: dt.datetime, number: int) -> str:
    """Return the name of a segment, by its number in the hour, from 1."""
    return f"{hour_prefix(name, hour)}{number:06d}.log"


def stored_segment(name: str, info: BlobInfo) -> StoredSegment | None:
    """
    Return what a blob below the name of a log is as a segment; None if it is none.

    Raises:
        DecodeError: It is named as a segment, and its metadata does not say its times.
    """
    found = _SEGMENT.fullmatch(info.name.removeprefix(f"{name}/"))
    if found is None:
        return None
    metadata = metadata_of(info)
    try:
        first, last = (_read_time(metadata[each]) for each in ("first", "last"))
    except (KeyError, ValueError):
        raise _damage(info.name, "has no times in its metadata") from None
    return StoredSegment(info.name, int(found[1]), first, last)


# Content


def encode_record(name: str, at: dt.datetime, data: Mapping[str, Any]) -> bytes:
    """
    Return the line of a record.

    Args:
        name: The name of the log, for messages.
        at: When it happened, in UTC.
        data: What is written: an object of JSON without the member "at".

    Raises:
        EncodeError: It is something else.
    """
    if not isinstance(cast("object", data), Mapping):
        raise EncodeError("is not a mapping; give the members of the record", f"log {name}", "record", data)
    if "at" in data:
        raise EncodeError("is the time of the record; give it as write(..., at=)", f"log {name}", "at", data["at"])
    try:
        line = msgspec.json.encode({"at": _write_time(at), **data})
    except (TypeError, ValueError, RecursionError) as error:
        raise EncodeError(f"is not JSON: {error}", f"log {name}", "record", data) from None
    if len(line) >= MAX_SEGMENT_BYTES:
        raise EncodeError(f"has {len(line)} bytes; a segment has {MAX_SEGMENT_BYTES}", f"log {name}", "record", data)
    return line


def make_segments(records: Sequence[tuple[dt.datetime, bytes]], most_bytes: int) -> Iterator[LogSegment]:
    """Yield the segments that some records make, each with its time and line, in the order of their times."""
    lines: list[bytes] = []
    size, first, last = 0, None, None
    for at, line in sorted(records, key=lambda record: record[0]):
        if first is not None and last is not None and (hour_of(at) != hour_of(first) or size + len(line) >= most_bytes):
            yield _segment(first, last, lines)
            lines, size, first = [], 0, None
        first, last = first or at, at
        lines.append(line)
        size += len(line) + 1
    if first is not None and last is not None:
        yield _segment(first, last, lines)


def _segment(first: dt.datetime, last: dt.datetime, lines: list[bytes]) -> LogSegment:
    metadata = {"first": _write_time(first), "last": _write_time(last), "records": str(len(lines)), "id": uuid4().hex}
    return LogSegment(hour_of(first), b"\n".join([*lines, b""]), metadata, len(lines))


def read_records(name: str, data: bytes) -> Iterator[LogRecord]:
    """
    Yield the records of a segment.

    Args:
        name: The name of its blob, for messages.
        data: What the blob holds.

    Raises:
        DecodeError: A line is no record.
    """
    for number, line in enumerate(BytesIO(data), 1):
        try:
            members: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
            at = _read_time(members.pop("at"))
        except (msgspec.DecodeError, KeyError, ValueError, TypeError, RecursionError) as error:
            raise _damage(name, f"has no record in line {number}: {type(error).__name__}: {error}") from None
        yield LogRecord(at, members)


def _write_time(at: dt.datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def _read_time(text: str) -> dt.datetime:
    at = dt.datetime.fromisoformat(text) if len(text) <= _MOST_TIME else None
    if at is None or at.tzinfo is not dt.UTC:
        raise ValueError(f"{shown(text)} is no time in UTC")
    return at


def _damage(name: str, problem: str) -> DecodeError:
    return DecodeError(
        f"{problem}; another program has written it: delete it, or give it another name", "log", (name, "")
    )
