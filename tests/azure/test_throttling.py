"""
A service that refuses requests for their rate: what a program sees of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tableorm import (
    Database,
    Entity,
    Mapped,
    OutcomeUnknown,
    RetryPolicy,
    Stats,
    TableOrmError,
    Throttled,
    TransactionFailed,
    connect,
    field,
)
from tests.azure.stub import ETAG, KEY, NO_CONTENT, Answer, Stub, batch_answer, error_answer, page_answer, row_answer
from tests.faults import QUICK, Fate, FaultyBackend


class Thing(Entity, table="Things", partition_key="p", row_key="{id}", kind=None):
    id: Mapped[str] = field(default="r")


async def _transact(db: Database) -> None:
    async with db.transaction() as tx:
        tx.insert(Thing())


BUSY = error_answer(503, "ServerBusy", x_ms_retry_after_ms="1")
TOO_MANY = error_answer(429, "TooManyRequests", Retry_After="0")
CALLS: dict[str, Callable[[Database], Awaitable[object]]] = {
    "get": lambda db: db.get(Thing, id="r"),
    "query": lambda db: db.select(Thing).all(),
    "insert": lambda db: db.insert(Thing()),
    "upsert": lambda db: db.upsert(Thing()),
    "delete": lambda db: db.delete(Thing, id="r", if_match="*"),
    "tables": lambda db: db.tables(),
    "transaction": _transact,
}
NOTHING = page_answer()
GOOD = {
    "get": row_answer(),
    "query": NOTHING,
    "tables": NOTHING,
    "transaction": batch_answer(NO_CONTENT),
}


def counts(stats: Stats) -> tuple[int, int, int]:
    """Return how many requests there were, and how many of them were repeated and refused for their rate."""
    return stats.requests, stats.retries, stats.throttled


def client(stub: Stub, attempts: int = 6) -> Database:
    return connect(stub.url, key=KEY, retry=RetryPolicy(attempts=attempts, base=0.0))


@pytest.mark.parametrize("answer", [BUSY, TOO_MANY, Answer(429)], ids=["503", "429", "without a code"])
@pytest.mark.parametrize("name", list(CALLS))
async def test_what_passes_is_counted(stub: Stub, name: str, answer: Answer) -> None:
    """Two refusals, then success: the program goes on, and `db.stats` tells; a snapshot stays as it is."""
    stub.answers = [answer, answer, GOOD.get(name, NO_CONTENT)]
    async with client(stub) as db:
        before = db.stats.snapshot()
        await CALLS[name](db)

        assert counts(db.stats) == (1, 2, 2)
        assert counts(before) == (0, 0, 0)


@pytest.mark.parametrize("name", list(CALLS))
async def test_what_does_not_pass_is_throttled(stub: Stub, name: str) -> None:
    """An error of its own tells it from a service that cannot be reached, and repeats in one place only."""
    stub.answers = [TOO_MANY]
    async with client(stub, attempts=3) as db:
        with pytest.raises(TableOrmError) as caught:
            await CALLS[name](db)

        error = caught.value if name != "transaction" else caught.value.__cause__
        assert isinstance(error, Throttled) and error.code == "TooManyRequests"
        assert len(stub.requests) == 3
        assert (db.stats.retries, db.stats.throttled) == (2, 3)


@pytest.mark.parametrize("part", [BUSY, TOO_MANY, error_answer(503, "ServerBusy", "1:Busy.")], ids=["503", "429", "1"])
async def test_a_transaction_that_is_refused_within_its_answer(stub: Stub, part: Answer) -> None:
    """The answer's own status is 202; it is sent again all the same, and counted, until there are no attempts left."""
    stub.answers = [batch_answer(part), batch_answer(part), batch_answer(NO_CONTENT)]
    async with client(stub) as db:
        await _transact(db)

        assert counts(db.stats) == (1, 2, 2)

    stub.answers = [batch_answer(part)]
    async with client(stub, attempts=3) as db:
        with pytest.raises(TransactionFailed) as caught:
            await _transact(db)

        assert isinstance(caught.value.__cause__, Throttled)
        assert counts(db.stats) == (1, 2, 3)


@pytest.mark.parametrize("name", list(CALLS))
async def test_one_policy_for_refused_connections(name: str) -> None:
    """`retry=` of `connect` says how often reads and writes are tried where nobody listens any more."""
    async with Stub() as stub:
        stub.answers = [NOTHING]
        db = await client(stub, attempts=3).open()
        await db.tables()
    await asyncio.sleep(0.05)  # until the client, too, has closed its connection
    with pytest.raises(TableOrmError):
        await CALLS[name](db)

    assert db.stats.traffic.attempts == 1 + 3
    await db.close()


async def test_one_count_after_a_lost_reply(stub: Stub) -> None:
    """A write in doubt is repeated by the mapper alone: refusals of its repetitions are of the same count."""
    stub.answers = [Answer(0), TOO_MANY]
    async with client(stub, attempts=4) as db:
        with pytest.raises(OutcomeUnknown):
            await db.delete(Thing, id="r", if_match=ETAG)

    assert [request.method for request in stub.requests] == ["DELETE"] * 4 + ["GET"]


async def test_one_policy_for_queues(stub: Stub) -> None:
    """Queues on an http URL are asked as often as `retry=` says, whatever the tables are on."""
    stub.answers = [BUSY]
    queues = f"QueueEndpoint={stub.url};AccountName=stub;AccountKey={KEY}"
    async with connect("local::memory:", queues=queues, retry=RetryPolicy(attempts=3, base=0.0)) as db:
        with pytest.raises(Throttled):
            await db.queues.list_queues()

    assert len(stub.requests) == 3


_LONG: dict[str, tuple[Answer, dict[str, Any]]] = {
    "asked": (error_answer(503, "ServerBusy", Retry_After="60"), {}),
    "backoff": (error_answer(503, "ServerBusy"), {"retry": RetryPolicy(base=1e6, cap=1e6)}),
    "part": (batch_answer(error_answer(429, "TooManyRequests", x_ms_retry_after_ms="60000")), {}),
}


@pytest.mark.parametrize(
    ("name", "why"),
    [(name, why) for name in ("get", "insert", "tables", "transaction") for why in ("asked", "backoff")]
    + [("transaction", "part")],
)
async def test_a_wait_that_is_longer_than_the_time_left(stub: Stub, name: str, why: str) -> None:
    """It ends as the refusal that it is, not as a time-out, after which a write would be in doubt."""
    answer, options = _LONG[why]
    stub.answers = [answer]
    async with connect(stub.url, key=KEY, timeout=3.0, **options) as db:
        with pytest.raises(TableOrmError) as caught:
            await CALLS[name](db)

    error = caught.value if name != "transaction" else caught.value.__cause__
    assert isinstance(error, Throttled)
    assert len(stub.requests) == 1


async def test_bulk_reports_throttling(stub: Stub) -> None:
    """What could not be written for the rate stands in the report, by name."""
    stub.answers = [TOO_MANY]
    async with client(stub, attempts=2) as db, db.bulk(errors="report") as bulk:
        await bulk.insert(Thing())

    (failure,) = bulk.report.failed
    assert isinstance(failure.error, Throttled)


async def test_a_store_that_does_not_repeat_itself() -> None:
    """The mapper repeats, and counts the same."""
    backend = FaultyBackend()
    async with Database(backend, retry=QUICK) as db:
        await db.create_tables(Thing)
        backend.tables.plan(Fate.BUSY, Fate.BUSY)
        before = db.stats.snapshot()
        await db.insert(Thing())

        assert isinstance(before, Stats)
        requests, retries, throttled = counts(before)
        assert counts(db.stats) == (requests + 3, retries + 2, throttled + 2)
