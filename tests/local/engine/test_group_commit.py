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

from tableorm.protocol.codes import Fault
from tableorm_local.engine import group_commit
from tableorm_local.engine.catalog import SCHEMA
from tableorm_local.engine.fairness import CALLER
from tableorm_local.engine.group_commit import GroupCommit
from tableorm_local.engine.sqlite import connect
from tableorm_local.engine.worker import InlineWorker
from tableorm_local.engine.write_session import Steps, Work, WriteSession
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


def submit_for(commits: GroupCommit, caller: str, work: Work) -> "asyncio.Future[str]":
    """Queue a request of a caller."""
    before = CALLER.set(caller)
    try:
        return commits.submit(work)
    finally:
        CALLER.reset(before)


@pytest.mark.parametrize("waits_for_lock", [False, True], ids=["on the event loop", "in the worker"])
async def test_callers_take_turns(
    session: WriteSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits_for_lock: bool
) -> None:
    """A caller with many long requests lets those of each other one pass, and the requests of each stay in order."""
    disk, order, lock = Disk(session, 1.0), list[str](), TakenLock(tmp_path / "lock", session)
    monkeypatch.setattr(group_commit, "time", SimpleNamespace(perf_counter=lambda: disk.now))
    commits = GroupCommit(session, Slow(), lock if waits_for_lock else None, _SECONDS)
    futures = list[asyncio.Future[str]]()

    def work(name: str) -> Work:
        def apply(session: WriteSession) -> None:
            disk.apply(session)
            order.append(name)
            if name == "greedy 0":
                for other in ("a1", "b1", "a2", "c1"):
                    futures.append(submit_for(commits, other[0], work(other)))
            if name.startswith("greedy"):
                disk.now += 1.0

        return apply

    for number in range(4):
        futures.append(submit_for(commits, "greedy", work(f"greedy {number}")))
    async with asyncio.timeout(_SECONDS):
        await commits.drain()
    lock.close()

    assert order == ["greedy 0", "a1", "b1", "c1", "greedy 1", "a2", "greedy 2", "greedy 3"]
    assert disk.batches == [1, 4, 2, 1]  # a long one is the last of its transaction


async def test_cancelled_requests_are_not_begun(session: WriteSession) -> None:
    """Those of one caller that are cancelled while they wait are passed over, and the others of it are done."""
    commits, order = GroupCommit(session, Slow(), None, _SECONDS), list[int]()
    async with asyncio.timeout(_SECONDS):
        futures = [submit_for(commits, str(n % 2), lambda _, n=n: order.append(n)) for n in range(10)]  # type: ignore[misc]
        for future in futures[2:6]:
            future.cancel()
        await commits.drain()

    assert order == [0, 1, 6, 7, 8, 9]


async def test_a_background_job_that_fails_tells_its_caller(session: WriteSession) -> None:
    """It gets a fault, whatever was raised, and what is written afterwards is written."""
    commits, commit = GroupCommit(session, Slow(), None, _SECONDS), session.commit

    def fail() -> None:
        session.commit = commit  # type: ignore[method-assign]
        raise apsw.FullError("the disk is full")

    def change(session: WriteSession) -> None:
        session.dirty = True

    async with asyncio.timeout(_SECONDS):
        session.commit = fail  # type: ignore[method-assign]
        with pytest.raises(Fault, match="full"):
            await commits.submit_background_job(change)
        assert await commits.submit(lambda _session: "written") == "written"
        await commits.drain()
