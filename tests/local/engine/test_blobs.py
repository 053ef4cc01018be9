"""
Blobs in the engine: uploads that end half-way, readers whose blob goes, giving back, and the event loop meanwhile.
"""

import asyncio
import datetime as dt
import random
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.limits import MAX_APPENDS
from tableorm.stores import Clock, Operation, Verb
from tableorm_local.engine import Engine, blob_contents
from tableorm_local.engine.blobs import Blobs
from tableorm_local.engine.sqlite import Connection, connect
from tableorm_local.engine.write_session import WriteSession
from tests.local.engine.conftest import opened
from tests.local.engine.rows import count_rows
from tests.local.engine.turns import Turns

LARGE = random.Random(0).randbytes(3_000_000)


@pytest.fixture
async def blobs(engine: Engine) -> Blobs:
    """The blobs of the engine, with a new container."""
    await engine.blobs.create_container("shared")
    return engine.blobs


async def given_back(engine: Engine, contents: int) -> None:
    """Wait until so many contents are left."""
    async with asyncio.timeout(60):
        while await count_rows(engine, "contents") > contents:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert await count_rows(engine, "contents") == contents


async def change(engine: Engine, sql: str) -> None:
    """Do to the file what nobody should."""

    def work(session: WriteSession) -> None:
        session.connection.execute(sql)
        session.dirty = True

    await engine.submit(work)


async def test_failed_upload_is_given_back(engine: Engine, blobs: Blobs) -> None:
    """What an upload had sent before its condition failed does not stay."""

    async def too_late() -> AsyncIterator[bytes]:
        yield LARGE
        await blobs.put("shared", "y", b"first")

    with pytest.raises(Fault) as caught:
        await blobs.put("shared", "y", too_late(), if_none_match=True)

    assert caught.value.code == Code.BLOB_EXISTS
    await given_back(engine, 1)
    assert await blobs.read("shared", "y") == b"first"


async def test_refused_before_anything_is_sent(blobs: Blobs) -> None:
    """A condition that does not hold is found before the data is asked for."""
    await blobs.put("shared", "x", b"there")

    asked = 0

    async def never() -> AsyncIterator[bytes]:
        nonlocal asked
        asked += 1
        yield b""

    for absent_only, tag in ((True, None), (False, '"other"')):
        with pytest.raises(Fault):
            await blobs.put("shared", "x", never(), if_none_match=absent_only, if_match=tag)
    with pytest.raises(Fault, match="does not exist"):
        await blobs.put("absent", "x", never())
    assert asked == 0


async def test_an_upload_that_had_sent_nothing_leaves_the_writes_of_others(engine: Engine) -> None:
    """Requests share a transaction: nothing is written to give back nothing, and what another has written stays."""
    await engine.create_table("Beside")
    dirty = list[bool]()

    def release(session: WriteSession) -> None:
        blob_contents.release_staged(session, blob_contents.new_content())
        dirty.append(session.dirty)

    await engine.submit(release)
    row = {"PartitionKey": "p", "RowKey": "r"}
    writes = [Operation(Verb.INSERT, row | {"RowKey": str(number)}) for number in range(5)]
    await asyncio.gather(*(each for op in writes for each in (engine.write("Beside", op), engine.submit(release))))

    assert dirty[0] is False
    assert all([await engine.get("Beside", "p", str(number)) for number in range(5)])


async def test_cancelled_upload_is_given_back(engine: Engine, blobs: Blobs) -> None:
    """A put that is cancelled while it waits for data leaves nothing."""
    waiting = asyncio.Event()

    async def wait() -> AsyncIterator[bytes]:
        yield LARGE
        waiting.set()
        await asyncio.Event().wait()

    put = asyncio.create_task(blobs.put("shared", "x", wait()))
    await waiting.wait()
    assert await count_rows(engine, "contents") == 1
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put

    await given_back(engine, 0)
    assert (await blobs.list_blobs("shared")).blobs == []


@pytest.mark.parametrize(("seconds", "reclaimed"), [(172_800, 0), (86_400, 1), (86_400, 1000), (86_399.9, 1000)])
async def test_upload_that_pauses_for_long(
    engine: Engine, blobs: Blobs, tableorm_clock: Clock, seconds: float, reclaimed: int
) -> None:
    """
    An upload may pause for a day, and for longer, unless chunks of it were given back meanwhile: then it is rejected.
    """
    tableorm_clock.freeze()
    await blobs.put("shared", "x", b"old")
    refused = bool(reclaimed) and seconds == 86_400

    def give_back(session: WriteSession) -> None:
        blob_contents.reclaim(session.connection, reclaimed)
        session.dirty = True

    async def pause() -> AsyncIterator[bytes]:
        yield LARGE
        tableorm_clock.advance(dt.timedelta(seconds=seconds))
        await engine.submit(give_back)
        yield LARGE

    if refused:
        with pytest.raises(Fault) as caught:
            await blobs.put("shared", "x", pause())
        assert caught.value.code == Code.SERVER_BUSY
        assert caught.value.message == (
            "The upload paused for more than 86400 seconds; what had arrived was discarded. Begin anew."
        )
    else:
        await blobs.put("shared", "x", pause())

    assert await blobs.read("shared", "x") == (b"old" if refused else LARGE + LARGE)
    await given_back(engine, 1)


async def test_upload_that_pauses_before_its_end(engine: Engine, blobs: Blobs, tableorm_clock: Clock) -> None:
    """What was given back meanwhile is missed also where no more data comes."""

    def give_back(session: WriteSession) -> None:
        blob_contents.reclaim(session.connection, 1000)
        session.dirty = True

    async def pause() -> AsyncIterator[bytes]:
        yield bytes(2 * 1024 * 1024)
        tableorm_clock.advance(dt.timedelta(days=2))
        await engine.submit(give_back)

    with pytest.raises(Fault, match="paused for more than") as caught:
        await blobs.put("shared", "x", pause())
    assert caught.value.code == Code.SERVER_BUSY
    assert (await blobs.list_blobs("shared")).blobs == []


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("replace", Code.CONDITION_NOT_MET),
        ("delete", Code.BLOB_NOT_FOUND),
        ("drop", Code.CONTAINER_NOT_FOUND),
    ],
)
async def test_reader_whose_blob_is_given_back(engine: Engine, blobs: Blobs, end: str, code: Code) -> None:
    """A reader that finds the rest gone is told why."""
    await blobs.put("shared", "x", LARGE)
    with pytest.raises(Fault) as caught:
        async with blobs.get("shared", "x") as stream:
            async for _ in stream.chunks:
                if end == "replace":
                    await blobs.put("shared", "x", b"new")
                elif end == "delete":
                    await blobs.delete("shared", "x")
                else:
                    await blobs.delete_container("shared")
                await given_back(engine, 1 if end == "replace" else 0)

    assert caught.value.code == code


async def test_small_blob_that_is_replaced_between_two_looks(
    blobs: Blobs, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading begins at one moment: that another process replaces the blob, and gives it back, is not seen."""
    await blobs.put("shared", "x", b"old")
    original = blob_contents.read_bytes

    def replaced_meanwhile(connection: Connection, content: int, position: int, end: int) -> bytes | None:
        other = connect(str(path), apsw.SQLITE_OPEN_READWRITE)
        other.execute("UPDATE blobs SET content = 0; DELETE FROM chunks")
        other.close()
        return original(connection, content, position, end)

    monkeypatch.setattr(blob_contents, "read_bytes", replaced_meanwhile)
    assert await blobs.read("shared", "x") == b"old"


@pytest.mark.parametrize("place", [0, 524288])
async def test_damage_is_told(engine: Engine, blobs: Blobs, place: int) -> None:
    """A blob whose bytes are missing says so, naming the blob and the place."""
    await blobs.put("shared", "x", LARGE)
    await change(engine, f"DELETE FROM chunks WHERE start = {place}")

    with pytest.raises(Fault, match=f"'x' is damaged at byte {place}") as caught:
        await blobs.read("shared", "x")
    assert caught.value.code == Code.INTERNAL_ERROR


async def test_too_many_appends(engine: Engine, blobs: Blobs) -> None:
    """As many appends as the service allows, and not one more."""
    await blobs.append("shared", "log", b"x")
    await change(engine, f"UPDATE blobs SET appends = {MAX_APPENDS - 2}")
    for data in (b"y", b"z"):
        await blobs.append("shared", "log", data)
    with pytest.raises(Fault) as caught:
        await blobs.append("shared", "log", b"z")

    assert caught.value.code == Code.BLOCK_COUNT_EXCEEDED
    assert await blobs.read("shared", "log") == b"xyz"


@pytest.mark.parametrize("arguments", [("\ud800", None), ("", "\ud800")])
async def test_text_that_cannot_be(blobs: Blobs, arguments: tuple[str, str | None]) -> None:
    """A prefix or continuation that no name can have is rejected by name."""
    with pytest.raises(Fault, match="lone surrogate") as caught:
        await blobs.list_blobs("shared", *arguments)

    assert caught.value.code == Code.INVALID_INPUT


async def test_loop_turns_while_blobs_are_written_and_read(blobs: Blobs) -> None:
    """A large blob is written and read in slices, between which others run."""
    data = LARGE * 5
    counts: list[int] = []
    for call in (blobs.put("shared", "x", data), blobs.read("shared", "x")):
        turns = Turns()
        await call
        counts.append(await turns.stop())

    # 15 transactions, 58 chunks.
    assert counts[0] >= 15
    assert counts[1] >= 50


async def test_loop_turns_while_crumbs_are_gathered(blobs: Blobs) -> None:
    """Data that comes at once, but in very many pieces, is gathered with pauses."""
    turns, seen = Turns(), 0

    async def crumbs() -> AsyncIterator[bytes]:
        nonlocal seen
        for _ in range(300_000):
            yield b"x"
        seen = turns.count

    await blobs.put("shared", "x", crumbs())
    await turns.stop()

    assert seen >= 3


async def test_loop_turns_while_blobs_are_listed(blobs: Blobs) -> None:
    """A page of many blobs is read in slices."""
    await asyncio.gather(*(blobs.put("shared", f"{number:04d}", b"") for number in range(2000)))
    turns = Turns()
    page = await blobs.list_blobs("shared")

    assert await turns.stop() >= 5
    assert len(page.blobs) == 2000


async def test_others_write_while_a_blob_is_written(engine: Engine, blobs: Blobs, path: Path) -> None:
    """Between the slices of a large blob rows are written, by this engine and by another."""
    async with opened(path) as other:
        put = asyncio.create_task(blobs.put("shared", "x", LARGE * 10))
        counts = {engine: 0, other: 0}

        async def write(by: Engine) -> None:
            while not put.done():
                row = {"PartitionKey": str(id(by)), "RowKey": str(counts[by])}
                await by.write("Shared", Operation(Verb.INSERT, row))
                counts[by] += 1

        await asyncio.gather(write(engine), write(other))
        await put
    # 30 slices.
    assert min(counts.values()) >= 5
