"""
Blobs beside the segments of a log, made by somebody who may write into its container.
"""

import datetime as dt
from typing import Any

import pytest

from tableorm import Conflict, Database, DecodeError, LimitExceeded
from tableorm.logs import LogStream, read_log
from tableorm.logs.segments import read_records, segment_name
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import BlobInfo, BlobPage
from tableorm_local.engine.blobs import Blobs
from tests.security.world import memory_below

NOON = dt.datetime(2014, 7, 31, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
TIMES = {"first": "2014-07-31T12:00:00Z", "last": "2014-07-31T12:59:59Z"}


@pytest.fixture
async def db(db: Database) -> Database:
    await db.blobs.create_container("logs")
    return db


async def test_numbers_that_are_taken_far_ahead_hide_no_records(db: Database) -> None:
    """Who takes each number that a writer tries makes it use a large one, and its segment is found all the same."""
    for power in range(32):
        await db.blobs.put("logs", segment_name("queue", NOON, 2**power), b"", metadata=TIMES)
    async with LogStream(db, "queue") as log:
        await log.write({"n": 1}, at=NOON)
    assert [record.data async for record in read_log(db, "queue", NOON, NOON + HOUR)] == [{"n": 1}]


@pytest.mark.parametrize("every_number", [True, False])
async def test_a_server_that_has_each_segment_already(
    db: Database, monkeypatch: pytest.MonkeyPatch, every_number: bool
) -> None:
    """A writer gives up if a server says that it has each segment already, and keeps the records."""
    refused = set[str]()

    async def refuse(_: Blobs, __: str, name: str, *___: Any, **____: Any) -> None:
        refused.add(name)
        raise Fault(Code.BLOB_EXISTS, "there is one")

    async def describe(_: Blobs, __: str, name: str) -> BlobInfo:
        if not (every_number or name in refused):
            raise Fault(Code.BLOB_NOT_FOUND, "there is none")
        return BlobInfo(name=name, length=1, etag="x", modified=NOON, metadata={"id": "another"})

    log = LogStream(db, "queue")
    async with log:
        with monkeypatch.context() as patched:
            patched.setattr(Blobs, "put", refuse)
            patched.setattr(Blobs, "info", describe)
            await log.write({"n": 1}, at=NOON)
            with pytest.raises(Conflict, match="the server says of each number"):
                await log.flush()
    assert [record.data async for record in read_log(db, "queue", NOON, NOON + HOUR)] == [{"n": 1}]


async def test_a_segment_that_grew_since_it_was_listed_is_not_read(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a list says of the size of a blob may be old, and what has come since is more than fits into memory."""
    monkeypatch.setattr("tableorm.logs.reading.MAX_SEGMENT_BYTES", 1_000)
    name = segment_name("queue", NOON, 1)
    await db.blobs.put("logs", name, b"\n", metadata=TIMES)
    list_once = Blobs.list_blobs

    async def list_then_grow(blobs: Blobs, *arguments: Any) -> BlobPage:
        page = await list_once(blobs, *arguments)
        await db.blobs.put("logs", name, b"\n" * 1_001, metadata=TIMES)
        return page

    monkeypatch.setattr(Blobs, "list_blobs", list_then_grow)
    with pytest.raises(LimitExceeded, match=r"000001\.log has 1001 bytes; a segment has 1000 at most"):
        _ = [record async for record in read_log(db, "queue", NOON, NOON + HOUR)]


def test_lines_of_a_segment_are_divided_one_by_one() -> None:
    """A segment of line ends alone takes no memory for each of them."""
    data = b"\n" * 1_000_000
    with memory_below(2_000_000), pytest.raises(DecodeError, match="has no record in line 1"):
        next(read_records("queue", data))


def test_the_error_of_a_record_does_not_show_all_of_it() -> None:
    """What stands in place of a time may be as large as a segment."""
    with pytest.raises(DecodeError) as caught:
        next(read_records("queue", b'{"at":"' + b"x" * 100_000 + b'"}\n'))
    assert len(str(caught.value)) < 500
