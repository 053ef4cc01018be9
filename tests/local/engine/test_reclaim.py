"""
Giving back: what is deleted while one looks for the deleted is found too.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from tableorm_local.engine import Engine, reclaim
from tableorm_local.engine.sqlite import Connection
from tests.local.engine.rows import insert_rows, make_rows


async def test_deletion_during_the_last_look(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion that ends after a look began, and before its end is known, is looked for again."""
    loop, engine, again = asyncio.get_running_loop(), Engine(path), asyncio.Event()
    looks = 0

    def look(connection: Connection, rows: int) -> bool:
        nonlocal looks
        looks += 1
        loop.call_soon_threadsafe(engine.reclaim if looks == 1 else again.set)
        return False

    monkeypatch.setattr("tableorm_local.engine.reclaim._RECLAIMERS", (look,))
    await engine.open()
    engine.reclaim()
    async with asyncio.timeout(60):
        await again.wait()
    await engine.close()

    assert looks == 2


async def test_all_that_was_deleted_is_freed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Several tables, queues and containers, deleted by a program that ends before it frees anything, leave nothing,
    though they have more than is freed at once.
    """
    engine = Engine(path)
    with monkeypatch.context() as patch:
        patch.setattr("tableorm_local.engine.reclaim._RECLAIMERS", ())
        await engine.open()
        for name in ("first", "second", "third"):
            await engine.create_table(name)
            await insert_rows(engine, make_rows("p", 100), name)
            await engine.delete_table(name)
            await engine.queues.create_queue(name)
            await asyncio.gather(*(engine.queues.put(name, b"message") for _ in range(100)))
            await engine.queues.delete_queue(name)
            await engine.blobs.create_container(name)
            await asyncio.gather(*(engine.blobs.put(name, str(number), b"data") for number in range(100)))
            await engine.blobs.delete_container(name)
        await engine.close()
    left = """SELECT (SELECT count(*) FROM sqlite_schema WHERE name GLOB 'gone_*') + (SELECT count(*) FROM messages)
        + (SELECT count(*) FROM queues) + (SELECT count(*) FROM containers) + (SELECT count(*) FROM blobs)
        + (SELECT count(*) FROM contents) + (SELECT count(*) FROM chunks)"""
    await engine.open()
    before = await engine.read(lambda connection: connection.execute(left).get)
    async with asyncio.timeout(60):
        while await engine.read(lambda connection: connection.execute(left).get):  # noqa: ASYNC110 - it happens in the background
            await asyncio.sleep(0.01)
    await engine.close()

    assert before > 0


class Work:
    """A kind of deleted thing whose rows take a time each, on a clock of their own, and the slices it was freed in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float, slices: int) -> None:
        self.now, self.seconds, self.left = 0.0, seconds, slices
        self.slices, self.rests, self.done = list[int](), list[float](), asyncio.Event()
        self.error: Exception | None = None
        monkeypatch.setattr(reclaim, "_RECLAIMERS", (self.free,))
        monkeypatch.setattr(reclaim, "time", SimpleNamespace(perf_counter=lambda: self.now))
        monkeypatch.setattr(reclaim, "asyncio", SimpleNamespace(sleep=self.rest, create_task=self.start))

    def start(self, run: Coroutine[None, None, None]) -> asyncio.Task[None]:
        self.task = asyncio.create_task(run)
        return self.task

    def free(self, _: Connection, rows: int) -> bool:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        if not self.left:
            asyncio.get_running_loop().call_soon(self.done.set)
            return False
        self.left -= 1
        self.slices.append(rows)
        self.now += rows * self.seconds
        return True

    async def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("seconds", "slices"),
    [
        (0.0, [64, 128, 256, 512, 1024, 2048, 4096, 5000, 5000]),
        (0.0000297, [64, 101, 101]),
        (0.0009, [64, 3, 3]),
        (1.0, [64, 1, 1]),
    ],
)
async def test_slices_take_a_bounded_time(monkeypatch: pytest.MonkeyPatch, seconds: float, slices: list[int]) -> None:
    """A slice has as many rows as take 3 ms, 64 to 5000; it rests four times its time; all ends with the last one."""
    work, engine = Work(monkeypatch, seconds, len(slices)), Engine(None)
    async with asyncio.timeout(60):
        await engine.open()
        await work.task
    await engine.close()

    assert work.slices == slices
    assert work.rests == pytest.approx([*(4 * rows * seconds for rows in slices), 0])


@pytest.mark.parametrize(
    ("error", "goes_on"), [(apsw.BusyError("busy"), True), (apsw.FullError("full"), True), (ValueError("odd"), False)]
)
async def test_freeing_goes_on_after_what_passes(
    monkeypatch: pytest.MonkeyPatch, error: Exception, goes_on: bool
) -> None:
    """A file that is busy or full is tried again after a pause; a damaged one is not, until more is deleted."""
    work, engine = Work(monkeypatch, 0.0, 2), Engine(None)
    work.error = error
    async with asyncio.timeout(60):
        await engine.open()
        for _ in range(20):
            await asyncio.sleep(0)
        assert work.slices == ([64, 128] if goes_on else [])
        assert work.rests[0] == 0.1
        engine.reclaim()
        await work.done.wait()
    await engine.close()

    assert work.slices == [64, 128]


LEFT = """SELECT (SELECT count(*) FROM sqlite_schema WHERE name GLOB 'gone_*'), (SELECT count(*) FROM messages),
    (SELECT count(*) FROM queues), (SELECT count(*) FROM containers), (SELECT count(*) FROM blobs),
    (SELECT count(*) FROM contents), (SELECT count(*) FROM chunks)"""


async def upload(engine: Engine) -> None:
    """Begin to put a blob, of which some is staged, and fail."""

    async def data() -> AsyncIterator[bytes]:
        yield bytes(3_000_000)
        raise LookupError

    with pytest.raises(LookupError):
        await engine.blobs.put("container", "other", data())


DELETIONS: dict[str, Callable[[Engine], Awaitable[object]]] = {
    "table": lambda engine: engine.delete_table("Tab"),
    "queue": lambda engine: engine.queues.delete_queue("queue"),
    "messages": lambda engine: engine.queues.clear("queue"),
    "container": lambda engine: engine.blobs.delete_container("container"),
    "blob": lambda engine: engine.blobs.delete("container", "blob"),
    "replaced blob": lambda engine: engine.blobs.put("container", "blob", b""),
    "failed upload": upload,
}


@pytest.mark.parametrize("what", DELETIONS)
async def test_what_is_deleted_is_freed_soon(memory: Engine, what: str) -> None:
    """Its pages are freed while the engine is open, and nothing else is."""
    await memory.create_table("Tab")
    await memory.queues.create_queue("queue")
    await memory.queues.put("queue", b"message")
    await memory.blobs.create_container("container")
    await memory.blobs.put("container", "blob", b"data")
    await asyncio.sleep(0.01)  # what was asked for at open is done
    await DELETIONS[what](memory)
    expected = {
        "queue": (0, 0, 0, 1, 1, 1, 1),
        "messages": (0, 0, 1, 1, 1, 1, 1),
        "container": (0, 1, 1, 0, 0, 0, 0),
        "blob": (0, 1, 1, 1, 0, 0, 0),
        "replaced blob": (0, 1, 1, 1, 1, 1, 0),
    }.get(what, (0, 1, 1, 1, 1, 1, 1))
    async with asyncio.timeout(20):
        while await memory.read(lambda connection: connection.execute(LEFT).get) != expected:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    assert await memory.read(lambda connection: connection.execute(LEFT).get) == expected
