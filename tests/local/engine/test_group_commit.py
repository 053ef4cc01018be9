"""
Group commit: how the requests that wait are spread over transactions.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import apsw
import pytest

from tableorm_local.engine import group_commit
from tableorm_local.engine.catalog import SCHEMA
from tableorm_local.engine.group_commit import GroupCommit
from tableorm_local.engine.sqlite import connect
from tableorm_local.engine.worker import InlineWorker
from tableorm_local.engine.write_session import Steps, WriteSession
from tableorm_local.engine.writer_lock import WriterLock

T = TypeVar("T")

_SECONDS = 30  # so that what hangs fails
_APPLY = 1 / 16384  # the time that a request takes by the clock of these tests


class Slow(InlineWorker):
    """A worker that counts as a thread: the event loop goes on before its job is done."""

    parallel = True
    working = False

    def run(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        def work() -> None:
            self.working = True
            result = job()
            self.working = False
            done(result)

        asyncio.get_running_loop().call_soon(work)


class Disk:
    """Commits that take a time of their own on a clock of their own, and the requests in each of them."""

    def __init__(self, session: WriteSession, sync: float) -> None:
        self.session, self.sync, self.now = session, sync, 0.0
        self.batches: list[int] = []
        self._commit, self._applied = session.commit, 0
        session.commit = self._sync  # type: ignore[method-assign]

    def _sync(self) -> None:
        self.now += self.sync
        self.batches.append(self._applied)
        self._applied = 0
        self._commit()

    def apply(self, session: WriteSession) -> None:
        """Do a request."""
        self.now += _APPLY
        self._applied += 1
        session.dirty = True


@pytest.fixture
async def session() -> AsyncIterator[WriteSession]:
    """A connection that writes, in memory."""
    connection = connect(":memory:", apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    connection.execute(SCHEMA)
    yield WriteSession(connection, "memory")
    connection.close()


@pytest.mark.parametrize(
    ("sync", "batches"),
    [(_APPLY / 2, [1, 11, 9]), (1.0, [1, 20])],
    ids=["fast disk", "slow disk"],
)
async def test_half_of_the_requests_are_written_while_the_others_come(
    session: WriteSession, monkeypatch: pytest.MonkeyPatch, sync: float, batches: list[int]
) -> None:
    """On a fast disk a transaction takes half of the requests under way; on a slow one all, to wait for it once."""
    disk = Disk(session, sync)
    monkeypatch.setattr(group_commit, "time", SimpleNamespace(perf_counter=lambda: disk.now))
    commits = GroupCommit(session, Slow(), None, _SECONDS)
    async with asyncio.timeout(_SECONDS):
        await commits.submit(disk.apply)
        await asyncio.gather(*(commits.submit(disk.apply) for _ in range(20)))
        await commits.drain()

    assert disk.batches == batches


async def test_work_that_takes_long_goes_on_in_the_worker(
    session: WriteSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction keeps the event loop for two milliseconds at most; the requests after that go into another one."""
    disk = Disk(session, 1.0)
    monkeypatch.setattr(group_commit, "time", SimpleNamespace(perf_counter=lambda: disk.now))
    commits = GroupCommit(session, Slow(), None, _SECONDS)
    async with asyncio.timeout(_SECONDS):
        await asyncio.gather(*(commits.submit(disk.apply) for _ in range(50)))
        await commits.drain()

    assert disk.batches == [33, 17]


async def test_a_request_of_many_steps_goes_on_in_the_worker(
    session: WriteSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its steps are done on the event loop for two milliseconds, and the rest in the worker."""
    disk, worker, places = Disk(session, 1.0), Slow(), list[bool]()
    monkeypatch.setattr(group_commit, "time", SimpleNamespace(perf_counter=lambda: disk.now))
    commits = GroupCommit(session, worker, None, _SECONDS)

    def work(session: WriteSession) -> Steps:
        for _ in range(100):
            disk.apply(session)
            places.append(worker.working)
            yield
        return "done"

    async with asyncio.timeout(_SECONDS):
        assert await commits.submit(work) == "done"

    assert places == [False] * 33 + [True] * 67


async def test_background_jobs_and_requests_take_turns(session: WriteSession) -> None:
    """While requests wait, no two background jobs follow each other."""
    commits, order = GroupCommit(session, Slow(), None, _SECONDS), list[str]()

    async def ask() -> None:
        for _ in range(4):
            await commits.submit(lambda _: order.append("request"))

    async def work() -> None:
        for _ in range(4):
            await commits.submit_background_job(lambda _: order.append("job"))

    async with asyncio.timeout(_SECONDS):
        await asyncio.gather(work(), ask())

    assert order == ["request", "job"] * 4


class TakenLock(WriterLock):
    """The lock of writers, which somebody else has just now; notes what is done with it."""

    def __init__(self, path: Path, session: WriteSession) -> None:
        super().__init__(str(path))
        self.session, self.calls = session, list[tuple[str, bool]]()

    def try_acquire(self) -> bool:
        self.calls.append(("try", self.session.connection.in_transaction))
        return False

    def acquire(self) -> None:
        self.calls.append(("acquire", self.session.connection.in_transaction))

    def release(self) -> None:
        self.calls.append(("release", self.session.connection.in_transaction))


async def test_who_waits_queues_for_the_lock_of_writers(session: WriteSession, tmp_path: Path) -> None:
    """A request that finds the lock taken waits for it, begins with it in hand, and gives it back at once."""
    lock = TakenLock(tmp_path / "lock", session)
    commits = GroupCommit(session, Slow(), lock, _SECONDS)
    async with asyncio.timeout(_SECONDS):
        assert await commits.submit(lambda _: "done") == "done"
    lock.close()

    assert lock.calls == [("try", False), ("acquire", False), ("release", True)]
