"""
Workers: what becomes of a message, of its decision row, and of messages that a worker cannot do anything about.
"""

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tableorm import AccessDenied, Database, Entity, Mapped, NotSupported
from tableorm.connection.connection import connection_of
from tableorm.models.manifest import IndexEntry
from tableorm.outbox import settle as settle_module
from tableorm.outbox import worker as worker_module
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.outbox.decision import Decision, Work, read_decision
from tableorm.outbox.doorbell import Begun, Doorbell
from tableorm.outbox.settle import DOORBELL, handle_doorbells
from tableorm.outbox.table_queue import TableQueueStore
from tableorm.outbox.worker import Outcome, Patience, Worker
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import CLOCK, Message, QueueStore
from tests.databases import memory_database
from tests.rows import delete_row, insert_row

TOKENS = [f"token_000000{number}" for number in range(6)]


class Person(Entity, table="Work", partition_key="{team}", row_key="person_{id:03d}"):
    team: Mapped[str]
    id: Mapped[int]


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with memory_database(Person) as db:
        await queues_of(db).create_queue(OUTBOX)
        yield db


@pytest.fixture(autouse=True)
def no_pauses(quick_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "_PUT_BACK_SECONDS", 0)


def queues_of(db: Database) -> QueueStore:
    """Return the queues of the outbox, which raise faults and no errors of the mapper."""
    return outbox_queues(connection_of(db))


async def ring(db: Database, *tokens: str, kind: str = "Person") -> None:
    """Put one message about changes."""
    changes = tuple(Begun(table="Work", partition_key="red", token=token) for token in tokens)
    await queues_of(db).put(OUTBOX, Doorbell(changes=changes, kinds=(kind,)).to_message())


async def use_queues(db: Database, queues: QueueStore) -> None:
    """Let the queue of the outbox be another one."""
    connection = connection_of(db)
    connection._opened.outbox = None  # pyright: ignore[reportPrivateUsage]
    connection.outbox(lambda _: queues)
    await queues.create_queue(OUTBOX)


async def commit(db: Database, token: str, *, kind: str = "Person") -> None:
    entries = {"by_name": (IndexEntry("name_jones"),)}
    work = Work(kind=kind, row_key="person_001", entries=entries)
    decision = Decision(partition_key="red", token=token, works=(work,))
    await insert_row(db, "Work", decision.to_row())


async def leave(db: Database, *tokens: str) -> None:
    """Leave changes to workers: each is committed, and has a message."""
    for token in tokens:
        await commit(db, token)
        await ring(db, token)


async def find(db: Database, token: str) -> Decision | None:
    return await read_decision(connection_of(db), "Work", "red", token)


Handle = Callable[[Decision], Awaitable[None]]


def new_worker(db: Database, handle: Handle, *kinds: str, tries: int = 3, seconds: int = 60) -> Worker:
    """Return a worker that carries out the changes of these kinds, or of people."""
    known = dict.fromkeys(kinds or ["Person"], ("Work",))
    doorbells = handle_doorbells(connection_of(db), known, lambda _, decision: handle(decision))
    return Worker(connection_of(db), {DOORBELL: doorbells}, visibility_seconds=seconds, patience=Patience(tries))


async def drained(worker: Worker) -> Worker:
    """Let a worker do all that it can, and return it."""
    async with worker:
        await worker.drain()
    return worker


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what a worker counts
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("place", ["queue", "table"])
async def test_a_committed_change_is_carried_out(db: Database, place: str) -> None:
    """The handler of its kind gets the decision; then the decision row is deleted, and the message."""
    if place == "table":
        await use_queues(db, TableQueueStore(db.store))
    seen: list[Decision] = []

    async def handle(decision: Decision) -> None:
        seen.append(decision)

    await leave(db, *TOKENS)
    worker = await drained(new_worker(db, handle))

    assert sorted(each.token for each in seen) == TOKENS
    assert seen[0].works[0].entries == {"by_name": (IndexEntry("name_jones"),)}
    assert [await find(db, token) for token in TOKENS] == [None] * 6
    assert worker.counts == {Outcome.DONE: 6}


async def test_a_change_that_never_commits(db: Database) -> None:
    """A message without a decision row makes its change void, and is dropped; no handler hears of it."""
    await ring(db, TOKENS[0])
    worker = await drained(new_worker(db, never))

    decision = await find(db, TOKENS[0])
    assert decision is not None and not decision.committed
    assert worker.counts == {Outcome.VOID: 1}


async def never(decision: Decision) -> None:
    raise AssertionError(decision)


async def test_unknown_kinds_are_left_to_others(db: Database) -> None:
    """A worker makes no change of an unknown kind or version void, and its takes do not count as tries of others."""
    known, unknown, newer = TOKENS[:3]
    await commit(db, known)
    await commit(db, newer, kind="Person:2")
    for token, kind in ((known, "Person"), (unknown, "Dog"), (newer, "Person:2")):
        await ring(db, token, kind=kind)
    old, done = new_worker(db, nothing, tries=2), set[str]()
    async with old:
        await until(lambda: old.counts[Outcome.LEFT] >= 8)
    assert await find(db, unknown) is None
    assert old.counts[Outcome.DONE] == 1 and old.counts[Outcome.DROPPED] == 0

    async def handle(decision: Decision) -> None:
        if not done:
            done.add(decision.token)
            raise RuntimeError("not yet")  # the first try of the one who knows it

    new = new_worker(db, handle, "Person:2", "Dog", tries=2)
    async with new:
        await until(lambda: new.counts[Outcome.DONE] + new.counts[Outcome.VOID] == 2)
    assert new.counts == {Outcome.DONE: 1, Outcome.VOID: 1, Outcome.FAILED: 1}


async def nothing(decision: Decision) -> None: ...


async def test_too_many_tries(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    """After the last try the error is in the decision row, which stays committed, and the message is gone."""
    await leave(db, TOKENS[0])

    async def fail(decision: Decision) -> None:
        raise RuntimeError(f"no way to {decision.works[0].row_key}")

    worker = await drained(new_worker(db, fail))

    decision = await find(db, TOKENS[0])
    assert decision is not None and decision.committed
    assert decision.error == "RuntimeError: no way to person_001"
    assert worker.counts == {Outcome.FAILED: 2, Outcome.DROPPED: 1}
    assert len([each for each in caplog.records if "try" in each.getMessage()]) == 3


async def test_a_message_that_is_no_doorbell(db: Database) -> None:
    """Whatever lies in the queue is tried as often, and dropped; others are not delayed by it."""
    await queues_of(db).put(OUTBOX, b"junk")
    await leave(db, TOKENS[0])
    worker = await drained(new_worker(db, nothing))

    assert worker.counts == {Outcome.DONE: 1, Outcome.FAILED: 2, Outcome.DROPPED: 1}


async def test_a_long_piece_of_work_is_renewed(db: Database) -> None:
    """While a handler works, the message is renewed again and again, and no other worker gets it."""
    await commit(db, TOKENS[0])
    begun, renewed = asyncio.Event(), asyncio.Semaphore(0)

    class Renewing(TableQueueStore):
        async def renew(self, queue: str, message: Message, visibility_seconds: int) -> Message:
            renewed.release()
            return await super().renew(queue, message, visibility_seconds)

    await use_queues(db, Renewing(db.store))
    await ring(db, TOKENS[0])

    async def wait(decision: Decision) -> None:
        begun.set()
        for _ in range(2):
            await renewed.acquire()

    first = new_worker(db, wait, seconds=1)
    second = new_worker(db, never, seconds=1)
    async with first:
        await begun.wait()
        async with second:
            await second.drain()

    assert (first.counts, second.counts) == ({Outcome.DONE: 1}, {})


async def test_a_message_that_somebody_else_took(db: Database) -> None:
    """A worker that has lost its message finishes, acknowledges nothing, and says so."""
    await leave(db, TOKENS[0])

    async def lose(decision: Decision) -> None:
        await queues_of(db).clear(OUTBOX)

    worker = new_worker(db, lose)
    async with worker:
        await until(lambda: worker.counts[Outcome.LOST] > 0)

    assert worker.counts == {Outcome.LOST: 1}
    assert await find(db, TOKENS[0]) is None


async def test_stopping_finishes_what_is_begun(db: Database) -> None:
    """A worker that is stopped takes nothing more, and ends when what it works on is done."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def wait(decision: Decision) -> None:
        begun.set()
        await go.wait()

    await leave(db, TOKENS[0])
    worker = new_worker(db, wait)

    async def go_on() -> None:
        await asyncio.sleep(0)
        await ring(db, TOKENS[1])
        go.set()

    async with worker:
        await begun.wait()
        going_on = asyncio.create_task(go_on())
    await going_on

    assert worker.counts == {Outcome.DONE: 1}
    assert len(await queues_of(db).peek(OUTBOX, 32)) == 1


async def test_an_error_gives_messages_back(db: Database) -> None:
    """A worker whose block ends by an error gives its messages back at once, and nothing is acknowledged."""
    begun = asyncio.Event()

    async def wait(decision: Decision) -> None:
        begun.set()
        await asyncio.Event().wait()

    await leave(db, TOKENS[0])
    worker = new_worker(db, wait)
    with pytest.raises(RuntimeError):
        async with worker:
            await begun.wait()
            raise RuntimeError("the program ends")

    assert len(await queues_of(db).peek(OUTBOX, 32)) == 1
    decision = await find(db, TOKENS[0])
    assert decision is not None and decision.committed


async def test_draining_ends_when_only_messages_for_others_are_left(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that the worker cannot do anything about are not waited for; others that come meanwhile are."""
    monkeypatch.setattr(worker_module, "_PUT_BACK_SECONDS", 30)
    more = [TOKENS[2]]

    async def handle(decision: Decision) -> None:
        if more:
            await commit(db, more[0])
            await ring(db, more.pop())

    await leave(db, TOKENS[0])
    await ring(db, TOKENS[1], kind="Dog")
    async with new_worker(db, handle) as worker:
        await worker.drain()
        await worker.drain()

    assert worker.counts == {Outcome.DONE: 2, Outcome.LEFT: 1}
    assert await queues_of(db).length(OUTBOX) == 1


async def test_draining_without_a_queue(db: Database) -> None:
    """Before the first message was put, there is no queue, and nothing to do."""
    await queues_of(db).delete_queue(OUTBOX)
    worker = await drained(new_worker(db, never))

    assert not worker.counts
    with pytest.raises(NotSupported, match="does not run"):
        await worker.drain()
    with pytest.raises(NotSupported, match="was started already"):
        async with worker:
            pass


@pytest.mark.parametrize("refused", ["peek", "take"])
async def test_a_worker_that_may_not_take(db: Database, monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    """What refuses the worker is raised when it starts; later it goes on, and those who wait are told."""

    async def refuse(*_: object) -> None:
        raise Fault(Code.AUTHENTICATION_FAILED, "No.")

    queues = TableQueueStore(db.store)
    monkeypatch.setattr(queues, refused, refuse)
    await use_queues(db, queues)
    with pytest.raises(AccessDenied, match="the queue tableorm-outbox"):
        async with new_worker(db, never) as worker:
            await worker.drain()


async def test_a_change_that_the_worker_may_not_carry_out(db: Database) -> None:
    """What the store refuses this worker is left to others."""

    async def refuse(decision: Decision) -> None:
        raise AccessDenied("no", Code.AUTHENTICATION_FAILED)

    await leave(db, TOKENS[0])
    async with new_worker(db, refuse, tries=2) as worker:
        await until(lambda: worker.counts[Outcome.LEFT] >= 5)

    assert worker.counts.keys() == {Outcome.LEFT}


async def test_stopping_tells_those_who_wait(db: Database) -> None:
    """Who waits for an empty queue is told that the worker was stopped before."""
    await queues_of(db).put(OUTBOX, b"{}", delay_seconds=600)
    async with new_worker(db, never) as worker:
        waiting = asyncio.create_task(worker.drain())
        await asyncio.sleep(0)
    with pytest.raises(NotSupported, match="was stopped before"):
        await waiting


async def test_the_lag(db: Database, stopped_clock: None) -> None:
    """While a worker runs, the statistics say how old the oldest message was that it found last."""
    seen: list[float | None] = []

    async def handle(decision: Decision) -> None:
        seen.append(db.stats.snapshot().lag)

    await leave(db, TOKENS[0])
    CLOCK.advance(dt.timedelta(seconds=90))
    async with new_worker(db, handle) as worker:
        await worker.drain()
        assert db.stats.lag == 0

    assert seen == [90]
    assert db.stats.lag is None


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The changes of a message are settled apart at once, and what is put back stays away."""
    monkeypatch.setattr(worker_module, "_PUT_BACK_SECONDS", 30)
    monkeypatch.setattr(settle_module, "_SECONDS_UNTIL_APART", 0)


@pytest.mark.usefixtures("apart")
async def test_one_change_of_a_message_does_not_hold_up_the_others(db: Database) -> None:
    """Of a message about several changes each goes on by itself: some are carried out, one fails, and one is left."""
    for token in TOKENS[:4]:
        await commit(db, token)

    async def handle(decision: Decision) -> None:
        if decision.token == TOKENS[0]:
            raise NotSupported("another program's")
        if decision.token == TOKENS[1]:
            raise RuntimeError("no way")

    await ring(db, *TOKENS[:4])
    worker = await drained(new_worker(db, handle, tries=2))

    other, failed, *done = [await find(db, token) for token in TOKENS[:4]]
    assert other is not None and other.error is None
    assert failed is not None and failed.error == "RuntimeError: no way"
    assert done == [None, None]
    assert worker.counts == {Outcome.DONE: 1, Outcome.FAILED: 1, Outcome.DROPPED: 1, Outcome.LEFT: 1}


@pytest.mark.usefixtures("apart")
async def test_what_a_message_leaves_to_others_stays_together(db: Database) -> None:
    """Of a message about many changes those that the worker leaves have one message, and no more than that."""
    for token in TOKENS:
        await commit(db, token)

    async def handle(decision: Decision) -> None:
        if decision.token != TOKENS[0]:
            raise NotSupported("another program's")

    await ring(db, *TOKENS)
    worker = await drained(new_worker(db, handle))

    assert worker.counts == {Outcome.DONE: 1, Outcome.LEFT: 1}
    assert await queues_of(db).length(OUTBOX) == 1


async def test_the_requests_for_many_messages(db: Database) -> None:
    """One request takes up to 32 messages, and one deletes the decision rows of a partition that are done."""
    tokens = [f"token_{number:06d}" for number in range(32)]
    await leave(db, *tokens)
    worker = new_worker(db, nothing)

    with db.observe() as seen:
        async with worker:
            await worker.drain()

    assert worker.counts == {Outcome.DONE: 32}
    sent = Counter(each.operation for each in seen.requests)
    assert sent.pop("take-messages") + sent.pop("queue-length") < 32  # it looks again and again while it works
    assert sent == {"get": 32, "transaction": 1, "delete-message": 32, "peek-messages": 1}


async def test_decision_rows_that_are_deleted_twice(db: Database) -> None:
    """Where somebody else has deleted one of several decision rows, the others are deleted all the same."""
    await leave(db, *TOKENS)

    async def handle(decision: Decision) -> None:
        if decision.token == TOKENS[2]:
            keys = {"PartitionKey": "red", "RowKey": f"~o_{decision.token}"}
            await delete_row(db, "Work", keys)

    worker = await drained(new_worker(db, handle))

    assert [await find(db, token) for token in TOKENS] == [None] * 6
    assert worker.counts == {Outcome.DONE: 6}
