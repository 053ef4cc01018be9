"""
Group commit: how the requests that wait are spread over transactions.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import apsw
import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm_local.engine import Engine, group_commit
from tableorm_local.engine.catalog import SCHEMA
from tableorm_local.engine.group_commit import GroupCommit
from tableorm_local.engine.sqlite import connect
from tableorm_local.engine.worker import InlineWorker, ThreadWorker
from tableorm_local.engine.write_session import Work, WriteSession
from tableorm_local.engine.writer_lock import WriterLock
from tests.local.engine.conftest import callbacks_succeed

T = TypeVar("T")

_SECONDS = 30  # so that what hangs fails
_GONE = "memory: the operating system failed to read or write the file (the disk is gone); check the disk."
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
    with callbacks_succeed():
        yield WriteSession(connection, "memory")
    connection.close()


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


@pytest.mark.parametrize("waits_for_lock", [False, True], ids=["on the event loop", "in the worker"])
async def test_requests_are_done_in_order(
    session: WriteSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits_for_lock: bool
) -> None:
    """Requests are done in the order they came, also those that come while others are done."""
    disk, order, lock = Disk(session, 1.0), list[str](), TakenLock(tmp_path / "lock", session)
    monkeypatch.setattr(group_commit, "time", SimpleNamespace(perf_counter=lambda: disk.now))
    commits = GroupCommit(session, Slow(), lock if waits_for_lock else None, _SECONDS)
    asked = list[asyncio.Future[Any]]()

    def work(name: str) -> Work:
        def apply(session: WriteSession) -> None:
            disk.apply(session)
            order.append(name)
            if name == "long 0":
                for other in ("a", "b", "c"):
                    asked.append(commits.submit(work(other)))
            if name.startswith("long"):
                disk.now += 1.0

        return apply

    for number in range(4):
        asked.append(commits.submit(work(f"long {number}")))
    async with asyncio.timeout(_SECONDS):
        await commits.drain()
    lock.close()

    assert all(each.done() for each in asked)
    assert order == ["long 0", "long 1", "long 2", "long 3", "a", "b", "c"]
    assert disk.batches[:4] == [1, 1, 1, 1]  # a long one is the last of its transaction


async def test_cancelled_requests_are_not_begun(session: WriteSession) -> None:
    """Those that are cancelled while they wait are passed over, and the others are done."""
    commits, order = GroupCommit(session, Slow(), None, _SECONDS), list[int]()
    async with asyncio.timeout(_SECONDS):
        futures = [commits.submit(lambda _, n=n: order.append(n)) for n in range(10)]  # type: ignore[misc]
        for future in futures[2:6]:
            future.cancel()
        await commits.drain()

    assert order == [0, 1, 6, 7, 8, 9]


@pytest.mark.parametrize("place", ["on the event loop", "in the worker", "in the background"])
async def test_a_commit_that_fails_tells_its_callers(session: WriteSession, tmp_path: Path, place: str) -> None:
    """Each gets a fault, and nothing of theirs is written; what is asked for afterwards is."""
    session.connection.execute("CREATE TABLE t (x)")
    lock = TakenLock(tmp_path / "lock", session)
    commits, commit = GroupCommit(session, Slow(), lock if place == "in the worker" else None, _SECONDS), session.commit

    def fail() -> None:
        session.commit = commit  # type: ignore[method-assign]
        raise apsw.FullError("the disk is full")

    def write(session: WriteSession) -> object:
        session.connection.execute("INSERT INTO t VALUES (1)")
        session.dirty = True
        return session.connection.execute("SELECT count(*) FROM t").get

    submit = commits.submit_background_job if place == "in the background" else commits.submit
    async with asyncio.timeout(_SECONDS):
        session.commit = fail  # type: ignore[method-assign]
        asked = [submit(write)] if place == "in the background" else [submit(write), submit(write)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert ["memory: the disk is full" in str(outcome) for outcome in outcomes] == [True] * len(asked)
        assert await submit(write) == 1
        assert await commits.submit(write) == 2
        changes = session.connection.total_changes()
        await commits.submit(lambda _: "nothing is written")
        assert session.connection.total_changes() == changes
        await commits.drain()
    lock.close()


async def test_damage_fails_one_request_alone(session: WriteSession) -> None:
    """
    A request that reads damage is refused, and those with it are written, once and in order.

    If it has written already, or if SQLite has ended the transaction, the others are done again.
    """
    session.connection.execute("CREATE TABLE t (x)")
    commits = GroupCommit(session, Slow(), None, _SECONDS)

    def write(session: WriteSession) -> str:
        session.connection.execute("INSERT INTO t SELECT 1 + count(*) FROM t")
        session.dirty = True
        return f"row {session.connection.last_insert_rowid()}"

    def refuse(session: WriteSession) -> str:
        if session.connection.execute("SELECT count(*) FROM t").get < 3:
            raise Fault(Code.SERVER_BUSY, "too few rows")
        return "enough rows"

    def read_damage(_: WriteSession) -> None:
        raise ValueError("its keys are gone")

    def write_and_read_damage(session: WriteSession) -> None:
        write(session)
        raise ValueError("its keys are gone")

    def end_the_transaction(session: WriteSession) -> None:
        session.connection.execute("ROLLBACK")
        raise apsw.CorruptError("malformed")

    def rows() -> list[int]:
        return [row for (row,) in session.connection.execute("SELECT x FROM t ORDER BY rowid")]

    async def ask(*works: Work) -> list[str]:
        outcomes = await asyncio.gather(*map(commits.submit, works), return_exceptions=True)
        return [outcome.message if isinstance(outcome, Fault) else str(outcome) for outcome in outcomes]

    damaged = "memory is damaged: a stored row cannot be read (its keys are gone); restore a backup."
    async with asyncio.timeout(_SECONDS):
        assert await ask(write, read_damage, refuse, write) == ["row 1", damaged, "too few rows", "row 2"]
        assert await ask(refuse, write, write_and_read_damage, write) == ["too few rows", "row 3", damaged, "row 4"]
        assert await ask(write, write_and_read_damage, refuse, end_the_transaction, write) == [
            "row 5",
            damaged,
            "enough rows",
            "memory: the file is damaged (malformed); restore it from a backup.",
            "row 6",
        ]
        assert rows() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize(
    ("error", "said", "tries"),
    [
        (apsw.CorruptError("malformed"), ["row 1", "memory: the file is damaged (malformed)", "row 2"], 3),
        (apsw.FullError("full"), ["memory: the disk is full", "memory: the disk is full", "row 1"], 2),
    ],
    ids=["damage", "full disk"],
)
async def test_an_error_that_ends_the_transaction(
    session: WriteSession, error: apsw.Error, said: list[str], tries: int, ended: bool
) -> None:
    """
    If a page is damaged, or SQLite has undone the transaction, nothing of it is told as written: requests before the
    one that failed are done again, or told of what befalls all, as a full disk.
    """
    session.connection.execute("CREATE TABLE t (x)")
    commits, tried = GroupCommit(session, Slow(), None, _SECONDS), list[str]()

    def write(session: WriteSession) -> str:
        tried.append("write")
        session.connection.execute("INSERT INTO t VALUES (1)")
        session.dirty = True
        return f"row {session.connection.last_insert_rowid()}"

    def fail(session: WriteSession) -> None:
        if ended:
            session.connection.execute("ROLLBACK")
        raise error

    async with asyncio.timeout(_SECONDS):
        outcomes = await asyncio.gather(*map(commits.submit, (write, fail, write)), return_exceptions=True)
    told = [outcome.message if isinstance(outcome, Fault) else str(outcome) for outcome in outcomes]
    if not ended and isinstance(error, apsw.FullError):  # SQLite has undone one statement alone
        said, tries = ["row 1", said[1], "row 2"], 2

    assert [each.startswith(start) for each, start in zip(told, said, strict=True)] == [True] * 3, told
    assert len(tried) == tries
    assert session.connection.execute("SELECT count(*) FROM t").get == sum(each.startswith("row") for each in told)


async def test_a_transaction_that_cannot_begin_in_the_worker_is_tried_again(
    session: WriteSession, tmp_path: Path
) -> None:
    """After it has waited for another process: no request is taken before a transaction has begun."""
    commits, begin = GroupCommit(session, Slow(), TakenLock(tmp_path / "lock", session), _SECONDS), session.begin

    def fail() -> bool:
        session.begin = begin  # type: ignore[method-assign]
        raise apsw.IOError("the disk is gone")

    session.begin = fail  # type: ignore[method-assign]
    async with asyncio.timeout(_SECONDS):
        assert await commits.submit(lambda _: "done") == "done"
        await commits.drain()


async def test_a_transaction_that_cannot_begin_fails_all_that_wait(session: WriteSession) -> None:
    """Each caller gets the fault, and what is asked for later is done."""
    commits, begin = GroupCommit(session, Slow(), None, _SECONDS), session.begin

    def fail() -> bool:
        session.begin = begin  # type: ignore[method-assign]
        raise apsw.IOError("the disk is gone")

    session.begin = fail  # type: ignore[method-assign]
    async with asyncio.timeout(_SECONDS):
        outcomes = await asyncio.gather(*(commits.submit(lambda _: "done") for _ in range(3)), return_exceptions=True)
        assert [getattr(outcome, "message", outcome) for outcome in outcomes] == [_GONE] * 3
        assert await commits.submit(lambda _: "done") == "done"
        await commits.drain()


@pytest.mark.parametrize("times", [1, 2])
async def test_a_transaction_that_cannot_be_undone_says_why(session: WriteSession, times: int) -> None:
    """If undoing it fails too, callers get that error, and the next transaction undoes it before it begins."""
    session.connection.execute("CREATE TABLE t (x)")
    commits, roll_back, failures = GroupCommit(session, Slow(), None, _SECONDS), session.roll_back, list[str]()

    def fail() -> None:
        failures.append("the disk is gone")
        if len(failures) == times:
            session.roll_back = roll_back  # type: ignore[method-assign]
        raise apsw.IOError("the disk is gone")

    def work(session: WriteSession) -> None:
        session.connection.execute("INSERT INTO t VALUES (1)")
        session.dirty = True
        session.roll_back = fail  # type: ignore[method-assign]
        raise apsw.FullError("the disk is full")

    async with asyncio.timeout(_SECONDS):
        for _ in range(times):
            with pytest.raises(Fault) as caught:
                await commits.submit(work)
            assert caught.value.message == _GONE
        count = await commits.submit(lambda session: session.connection.execute("SELECT count(*) FROM t").get)
    assert count == 0


async def test_a_job_that_finds_another_process_writing_does_not_wait(session: WriteSession, tmp_path: Path) -> None:
    """A background job is refused at once, without the lock that writers wait for."""
    lock = TakenLock(tmp_path / "lock", session)
    commits = GroupCommit(session, Slow(), lock, _SECONDS)
    async with asyncio.timeout(_SECONDS):
        with pytest.raises(Fault, match="another process holds the write lock") as caught:
            await commits.submit_background_job(lambda _: "done")
        await commits.drain()
    lock.close()

    assert caught.value.code == Code.SERVER_BUSY
    assert lock.calls == [("try", False)]


class WaitingLock(WriterLock):
    """The lock of writers, which somebody else has until the test lets it go."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.free = threading.Event()

    def try_acquire(self) -> bool:
        return self.free.is_set()

    def acquire(self) -> None:
        self.free.wait(_SECONDS)

    def release(self) -> None:
        pass


async def test_who_waits_for_another_process_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    """Requests whose time is over while another process writes are refused, those with time left are done then."""
    connection = connect(":memory:", apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    connection.execute(SCHEMA)
    lock, worker, order = WaitingLock(tmp_path / "lock"), ThreadWorker(asyncio.get_running_loop(), "test"), list[str]()
    commits = GroupCommit(WriteSession(connection, "memory"), worker, lock, 0.02)
    async with asyncio.timeout(_SECONDS):
        hurried = [commits.submit(lambda _: order.append("hurried")) for _ in range(2)]
        commits.__dict__["_timeout"] = _SECONDS
        patient = commits.submit(lambda _: order.append("patient"))
        for each in hurried:
            with pytest.raises(Fault, match="did not give it back in time"):
                await each
        assert not patient.done()
        lock.free.set()
        await patient
        lock.free.clear()
        commits.__dict__["_timeout"] = 0.02
        for _ in range(2):  # the second one comes while the worker waits for nobody
            with pytest.raises(Fault, match="did not give it back in time"):
                await commits.submit(lambda _: order.append("alone"))
        lock.free.set()
        await commits.drain()
        assert await commits.submit(lambda _: "done") == "done"
    worker.stop()
    lock.close()
    connection.close()

    assert order == ["patient"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_within_a_request_ends_the_program(error: type[BaseException], tmp_path: Path) -> None:
    """It reaches the program; the transaction it fell into is undone, and the file can be written by others."""
    path = tmp_path / "data.tables"
    told = list[str]()

    async def ask(engine: Engine, work: Work) -> None:
        try:
            await engine.submit(work)
        except Fault as fault:
            told.append(fault.message)

    def fail(session: WriteSession) -> None:
        session.connection.execute("INSERT INTO catalog (folded, name) VALUES ('lost', 'lost')")
        session.dirty = True
        raise error

    async def interrupted() -> None:
        engine = Engine(path)
        await engine.open()
        asking = asyncio.create_task(ask(engine, fail))
        await asyncio.sleep(_SECONDS)
        await asking

    async def again() -> list[str]:
        engine = Engine(path, timeout=5)
        await engine.open()
        await engine.create_table("kept")
        names = await engine.list_tables()
        await engine.close()
        return names

    with pytest.raises(error):
        asyncio.run(interrupted())
    assert asyncio.run(again()) == ["kept"]
