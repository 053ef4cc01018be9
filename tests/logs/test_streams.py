"""
Logs in blobs: what is written is read in the order of time, by whoever and however often it was sent.
"""

import asyncio
import datetime as dt
import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import (
    AccessDenied,
    Database,
    DecodeError,
    EncodeError,
    LimitExceeded,
    ModelError,
    NotSupported,
    TableOrmError,
    Unavailable,
    connect,
)
from tableorm.logs import LogRecord, LogStream, read_log
from tableorm.logs.segments import make_segments, read_records
from tableorm.stores import CLOCK
from tests.database.between import Between
from tests.databases import database_fixture
from tests.faults import QUICK, Fate, FaultyBackend
from tests.torture import seeds

NOON = dt.datetime(2014, 7, 31, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


FAR = 3600  # seconds, which no test lasts


db = database_fixture()


async def read(
    db: Database, name: str = "queue", start: dt.datetime = NOON, end: dt.datetime = NOON + HOUR
) -> list[int]:
    """Return the member "n" of the records of a span."""
    return [record.data["n"] async for record in read_log(db, name, start, end)]


async def names_of(db: Database) -> list[str]:
    return [info.name for info in (await db.blobs.list_blobs("logs")).blobs]


async def test_names_and_content(db: Database) -> None:
    """A segment is named by its hour and number, is lines of JSON, and its metadata has its first and last time."""
    async with LogStream(db, "queue") as log:
        await log.write({"level": "info", "n": 1}, at=dt.datetime(2014, 7, 31, 18, 0, 4, 250_000, dt.UTC))
        await log.write({"level": "warn", "n": 2}, at=dt.datetime(2014, 7, 31, 18, 59, 59, tzinfo=dt.UTC))
        await log.write({"n": 3}, at=dt.datetime(2014, 7, 31, 19, tzinfo=dt.UTC))

    assert await names_of(db) == ["queue/2014/07/31/1800/000001.log", "queue/2014/07/31/1900/000001.log"]
    assert await db.blobs.read("logs", "queue/2014/07/31/1800/000001.log") == (
        b'{"at":"2014-07-31T18:00:04.250000Z","level":"info","n":1}\n{"at":"2014-07-31T18:59:59Z","level":"warn","n":2}\n'
    )
    metadata = (await db.blobs.info("logs", "queue/2014/07/31/1800/000001.log")).metadata
    assert metadata["first"] == "2014-07-31T18:00:04.250000Z"
    assert metadata["last"] == "2014-07-31T18:59:59Z"
    assert metadata["records"] == "2"


async def test_records_come_back(db: Database) -> None:
    """With the time in UTC, whatever its zone was, and the members; now is by the clock that a test can stop."""
    east = dt.timezone(dt.timedelta(hours=9))
    async with LogStream(db, "queue") as log:
        await log.write({"text": "line\nend", "list": [1, None]}, at=dt.datetime(2014, 7, 31, 21, tzinfo=east))
        CLOCK.freeze(NOON + dt.timedelta(microseconds=7))
        await log.write({})
        CLOCK.reset()

    assert [record async for record in read_log(db, "queue", NOON, NOON + HOUR)] == [
        LogRecord(NOON, {"text": "line\nend", "list": [1, None]}),
        LogRecord(NOON + dt.timedelta(microseconds=7), {}),
    ]


async def test_a_record_that_is_not_awaited(db: Database) -> None:
    """It is not written, which the end of the block says after it has stored the others."""
    with pytest.raises(ModelError, match=r"log\.write\(\.\.\.\) was called without await, so it has written nothing"):
        async with LogStream(db, "queue") as log:
            await log.write({"n": 1}, at=NOON)
            log.write({"n": 2}, at=NOON)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]

    assert [record.data async for record in read_log(db, "queue", NOON, NOON + HOUR)] == [{"n": 1}]


async def test_a_late_writer_goes_on_behind_the_last(db: Database) -> None:
    """It looks for the last number in steps that double, and not number by number; no list is read."""
    await db.blobs.create_container("logs")
    for number in range(1, 301):
        await db.blobs.put("logs", f"queue/2014/07/31/1200/{number:06d}.log", b"", metadata=TIMES)
    async with LogStream(db, "queue", durable=True) as late:
        with db.observe() as seen:
            await late.write({"n": 0}, at=NOON)
            first = [request.operation for request in seen.requests]
            await late.write({"n": 1}, at=NOON)
    operations = [request.operation for request in seen.requests]

    assert (first[0], first[-1], {*first[1:-1]}) == ("put-blob", "put-blob", {"blob-info"})
    assert len(first) <= 2 + 2 * 10
    assert operations[len(first) :] == ["put-blob"]
    assert await names_of(db) == [f"queue/2014/07/31/1200/{number:06d}.log" for number in range(1, 303)]


async def test_durable_records_share_a_segment(db: Database) -> None:
    """What is written at the same time waits for one segment, after the one that is being written."""
    async with LogStream(db, "queue", durable=True) as log:
        await asyncio.gather(*(log.write({"n": n}, at=NOON) for n in range(100)))
        assert await read(db) == list(range(100))
    assert len(await names_of(db)) <= 2


async def test_flush_by_size(db: Database) -> None:
    """A segment is stored when it is large enough, and none is larger."""
    async with LogStream(db, "queue", segment_bytes=1000, flush_seconds=FAR) as log:
        for n in range(100):
            await log.write({"n": n}, at=NOON)
        stored = len(await read(db))
        assert 60 < stored < 100
    blobs = (await db.blobs.list_blobs("logs")).blobs
    assert max(blob.length for blob in blobs) <= 1000
    assert await read(db) == list(range(100))


async def test_flush_by_time(db: Database) -> None:
    """A record is stored after a while, without another one."""
    async with LogStream(db, "queue", flush_seconds=0.01) as log:
        for n in range(2):
            await log.write({"n": n}, at=NOON)
            for _ in range(500):
                if len(await read(db)) > n:
                    break
                await asyncio.sleep(0.01)
            assert await read(db) == list(range(n + 1))


async def test_only_what_overlaps_is_opened(db: Database) -> None:
    """A span lists its hour, or its day, once, and reads the segments that overlap it."""
    async with LogStream(db, "queue", durable=True) as log:
        for n in range(48):
            await log.write({"n": n}, at=NOON + n * HOUR / 2)
    with db.observe() as seen:
        assert await read(db, "queue", NOON + HOUR, NOON + 2 * HOUR) == [2, 3]
    assert [request.operation for request in seen.requests] == ["list-blobs", "get-blob", "get-blob"]
    with db.observe() as seen:
        assert await read(db, "queue", NOON + HOUR / 2, NOON + 13 * HOUR) == list(range(1, 26))
    assert [request.operation for request in seen.requests].count("list-blobs") == 2
    assert len(seen.requests) == 27


async def test_a_log_that_is_not_there(db: Database) -> None:
    """It has no records, whether there is the container or not."""
    assert await read(db) == []
    await db.blobs.create_container("logs")
    assert await read(db) == []


MOMENTS = st.integers(0, 4 * 86_400_000_000 - 1).map(
    lambda micros: dt.datetime(2020, 2, 27, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)
)


@given(st.lists(st.tuples(MOMENTS, st.integers(0, 3)), max_size=20), MOMENTS, MOMENTS)
async def test_any_span(records: list[tuple[dt.datetime, int]], start: dt.datetime, end: dt.datetime) -> None:
    """A span finds exactly what was written in it, whoever wrote it, in the order of time."""
    async with connect("local::memory:") as db:
        streams = [LogStream(db, "log", segment_bytes=200) for _ in range(4)]
        for stream in streams:
            await stream.__aenter__()
        for n, (at, writer) in enumerate(records):
            await streams[writer].write({"n": n}, at=at)
        for stream in streams:
            await stream.close()
        found = [(record.at, record.data["n"]) async for record in read_log(db, "log", start, end)]

    wanted = [(at, n) for n, (at, _) in enumerate(records) if start <= at < end]
    assert sorted(found) == sorted(wanted)
    assert [at for at, _ in found] == sorted(at for at, _ in found)


@given(st.lists(st.tuples(MOMENTS, st.integers(1, 300)), max_size=30))
def test_segments(records: list[tuple[dt.datetime, int]]) -> None:
    """They have each record once, of one hour each, and no more bytes than are allowed unless one record has."""
    lines = [(at, b'{"at":"%s"}' % at.isoformat().encode() + b" " * size) for at, size in records]
    segments = list(make_segments(lines, 400))

    found = [record.at for segment in segments for record in read_records("s", segment.data)]
    assert found == sorted(at for at, _ in records)
    for segment in segments:
        times = [record.at for record in read_records("s", segment.data)]
        assert {at.replace(minute=0, second=0, microsecond=0) for at in times} == {segment.hour}
        assert len(times) == segment.count
        assert len(segment.data) <= 400 or segment.count == 1


# What goes wrong


@seeds(4, 2000)
async def test_a_failing_network(seed: int) -> None:
    """Each record is stored once, whatever is lost, late or doubled, and whether `write` has raised or not."""
    chance = random.Random(seed)
    backend = FaultyBackend()
    async with Database(backend, retry=QUICK) as db:
        await db.blobs.create_container("logs")
        given = 0
        streams = [LogStream(db, "log", durable=chance.random() < 0.5, flush_seconds=FAR) for _ in range(2)]
        for stream in streams:
            await stream.__aenter__()
        for _ in range(12):
            backend.tables.plan(*chance.choices([*Fate], k=12))
            stream = chance.choice(streams)
            taken = True
            try:
                await stream.write({"n": given}, at=NOON + chance.randrange(3) * HOUR)
            except LimitExceeded:
                taken = False
            except TableOrmError:
                pass  # it is kept
            given += taken
            if chance.random() < 0.3:
                with suppress(TableOrmError):
                    await stream.flush()
            if chance.random() < 0.5:
                await backend.tables.deliver()
        backend.tables.plan()
        for stream in streams:
            await stream.close()
        await backend.tables.deliver()

        assert sorted(await read(db, "log", NOON, NOON + 3 * HOUR)) == list(range(given))


async def test_a_store_that_is_down(caplog: pytest.LogCaptureFixture) -> None:
    """
    What cannot be stored is kept, and tried again; a warning says so. When there is too much of it no more is taken.
    """
    backend = FaultyBackend()
    async with Database(backend, retry=QUICK) as db:
        await db.blobs.create_container("logs")
        log = LogStream(db, "log", flush_seconds=0.01, segment_bytes=100)
        await log.__aenter__()
        backend.tables.plan(*[Fate.LOST_REQUEST] * 100_000)
        await log.write({"n": 0}, at=NOON)
        for _ in range(500):
            if caplog.records:
                break
            await asyncio.sleep(0.01)
        assert "it is tried again in 0.01 s" in caplog.text
        taken = 1
        with pytest.raises(LimitExceeded, match="is not taken"):
            while True:
                with suppress(Unavailable):
                    await log.write({"n": taken}, at=NOON)
                taken += 1
        backend.tables.plan()
        await log.close()

        assert await read(db, "log") == list(range(taken))


async def test_a_cancelled_write(db: Database) -> None:
    """Whoever is cancelled while a segment is stored takes it from nobody: each record is stored once."""
    async with LogStream(db, "queue", durable=True) as log:
        tasks = [asyncio.create_task(log.write({"n": n}, at=NOON)) for n in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert {*range(1, 20, 2)} <= {*await read(db)}
    found = await read(db)
    assert len(found) == len({*found})


async def test_closed(db: Database) -> None:
    """A stream is used in its block alone, by one block at a time; closing twice is closing once."""
    log = LogStream(db, "queue")
    with pytest.raises(ModelError, match="'queue' is not open"):
        await log.write({})
    async with log:
        with pytest.raises(ModelError, match="by this stream already"):
            await log.__aenter__()
    await log.close()
    with pytest.raises(ModelError, match="'queue' is not open"):
        await log.write({})


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "a/../b", "a b", "x" * 201, "log?", 5, "a/.b"])
async def test_refused_names(db: Database, name: str) -> None:
    """A name makes the names of blobs, which every store and tool takes as they are."""
    with pytest.raises(ModelError, match="a name has up to 200 letters"):
        LogStream(db, name)
    with pytest.raises(ModelError, match="a name has up to 200 letters"):
        await anext(read_log(db, name, NOON, NOON))


async def test_refused_arguments(db: Database) -> None:
    """Each names the log, the argument and its value."""
    for arguments, problem in (
        ({"container": "No"}, "the log 'q' in the container 'No' is rejected"),
        ({"segment_bytes": 0}, r"LogStream\('q', segment_bytes=0\) is rejected: give 1 to 67108864"),
        ({"flush_seconds": 0}, r"LogStream\('q', flush_seconds=0\) is rejected"),
    ):
        with pytest.raises(ModelError, match=problem):
            LogStream(db, "q", **arguments)  # pyright: ignore[reportArgumentType]
    for start, end, problem in ((NOON.replace(tzinfo=None), NOON, "start="), (NOON, NOON.date(), "end=")):
        with pytest.raises(
            ModelError, match=rf"read_log\('q', {problem}.* is rejected: give a datetime with a time zone"
        ):
            await anext(read_log(db, "q", start, end))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(AccessDenied, match="rejected in a scope: blobs are of the whole database"):
        LogStream(db.scope(tenant="a"), "q")


async def test_a_database_without_blobs() -> None:
    """A stream is rejected when it is opened, and not when it first has much to store."""
    async with Database(Between()) as db:
        with pytest.raises(NotSupported, match="has no blobs"):
            async with LogStream(db, "q"):
                pass


async def test_refused_records(db: Database) -> None:
    """A record that is not JSON, has a time of its own, or one without a zone is not written; the others are."""
    async with LogStream(db, "queue") as log:
        for record in ({"at": 1}, {"x": object()}, [1], "text", {"x": "\ud800"}):
            with pytest.raises(EncodeError, match="log queue"):
                await log.write(record, at=NOON)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(EncodeError, match="has no time zone"):
            await log.write({}, at=NOON.replace(tzinfo=None))
        await log.write({"n": 1}, at=NOON)
    assert await read(db) == [1]


TIMES = {"first": "2014-07-31T12:00:00Z", "last": "2014-07-31T12:30:00Z"}


@pytest.mark.parametrize(
    ("data", "metadata", "problem"),
    [
        (b"{}\n", TIMES, "no record in line 1"),
        (b'{"at":"2014-07-31T12:00:00Z","n":1}\nx', TIMES, "no record in line 2"),
        (b'{"at":5}', TIMES, "no record in line 1"),
        (b"[" * 100_000, TIMES, "no record in line 1"),
        (b"", {}, "no times in its metadata"),
        (b"", {"first": "noon", "last": "2014-07-31T12:30:00Z"}, "no times in its metadata"),
        (b"", {"first": "2014-07-31T12:00:00", "last": "2014-07-31T12:30:00Z"}, "no times in its metadata"),
    ],
)
async def test_damaged_segments(db: Database, data: bytes, metadata: dict[str, str], problem: str) -> None:
    """A blob that is named as a segment and is none is an error that names it, and not passed over."""
    await db.blobs.create_container("logs")
    await db.blobs.put("logs", "queue/2014/07/31/1200/000001.log", data, metadata=metadata)
    with pytest.raises(DecodeError, match=f"queue/2014/07/31/1200/000001.log.*{problem}"):
        await read(db)


async def test_other_blobs_are_passed_over(db: Database) -> None:
    """Blobs that are not named as segments are no part of the log."""
    await db.blobs.create_container("logs")
    for name in (
        "queue/2014/07/31/1200/readme.txt",
        "queue/2014/07/31/1200/1.log",
        "queue/2014/07/31/1200/000001.log.gz",
    ):
        await db.blobs.put("logs", name, b"x")
    async with LogStream(db, "queue") as log:
        await log.write({"n": 1}, at=NOON)
    assert await read(db) == [1]


async def test_a_damaged_segment_keeps_no_writer_back(db: Database) -> None:
    """Who writes behind it does not read it."""
    await db.blobs.create_container("logs")
    await db.blobs.put("logs", "queue/2014/07/31/1200/000001.log", b"x")
    await db.blobs.put("logs", f"queue/2014/07/31/1200/{'9' * 900}.log", b"x")
    async with LogStream(db, "queue") as log:
        await log.write({"n": 1}, at=NOON)
    assert "queue/2014/07/31/1200/000002.log" in await names_of(db)
