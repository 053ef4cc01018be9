"""
Group commit: requests that share a transaction, in order, and what each is told when it fails.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import apsw
import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm_local.engine import Engine
from tableorm_local.engine.catalog import SCHEMA
from tableorm_local.engine.group_commit import GroupCommit
from tableorm_local.engine.sqlite import connect
from tableorm_local.engine.worker import Worker
from tableorm_local.engine.write_session import Work, WriteSession
from tableorm_local.engine.writer_lock import WriterLock
from tests.local.engine.conftest import callbacks_succeed, opened

T = TypeVar("T")

_SECONDS = 30  # so that what hangs fails


class Slow(Worker):
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


@pytest.fixture
async def session() -> AsyncIterator[WriteSession]:
    """A connection that writes, in memory."""
    connection = connect(":memory:", apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    connection.execute(SCHEMA)
    with callbacks_succeed():
        yield WriteSession(connection, "memory")
    connection.close()


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
    A request that reads damage is rejected, and those with it are written, once and in order.

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
        async with opened(path, "kept", patience=5) as engine:
            return await engine.list_tables()

    with pytest.raises(error):
        asyncio.run(interrupted())
    assert asyncio.run(again()) == ["kept"]
