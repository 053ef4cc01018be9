"""
Bulk writes: how they are grouped, in which order they arrive, what a failure does, and what waits for what.
"""

import asyncio
import math
import pickle
from collections import Counter as AuditCounts
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    Bulk,
    BulkFailed,
    BulkReport,
    Database,
    EncodeError,
    Entity,
    EntityExists,
    EntityNotFound,
    LimitExceeded,
    Mapped,
    ModelError,
    NotRead,
    OutcomeUnknown,
    PreconditionFailed,
    PropertyBag,
    TableNotFound,
    Throttled,
    field,
    http_message,
    http_status,
)
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Operation, StoreLayer, StoreRequest
from tableorm.testing import Faults, MemoryStore
from tests.faults import QUICK, Fate, FaultyBackend, FaultyStore
from tests.writes.things import Grouped


class Thing(Grouped):
    more: Mapped[list[str]] = field(factory=list)


class Watched(StoreLayer):
    """Knows what is under way, and can be stopped."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.requests: list[list[str]] = []
        self.busy: AuditCounts[str] = AuditCounts()
        self.most = 0
        self.overlaps = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.refuse = 0
        self.turns = 1
        self.silent = self.beyond = False

    async def send(self, request: StoreRequest) -> Any:
        if request.operations:
            await self._pass(request.operations)
        try:
            return await super().send(request)
        except Fault as fault:
            if request.method != "transact":
                raise
            wrong = len(request.operations) if self.beyond else fault.index
            raise Fault(fault.code, fault.message, None if self.silent else wrong) from None

    async def _pass(self, operations: Sequence[Operation]) -> None:
        partition: str = operations[0].row["PartitionKey"]
        self.requests.append([operation.row["RowKey"] for operation in operations])
        self.busy[partition] += 1
        self.overlaps += self.busy[partition] > 1
        self.most = max(self.most, self.busy.total())
        try:
            for _ in range(self.turns):
                await asyncio.sleep(0)
            await self.gate.wait()
            if self.refuse:
                self.refuse -= 1
                raise Fault(Code.SERVER_BUSY, "Asked for too much.")
        finally:
            self.busy[partition] -= 1


@pytest.fixture
def store() -> Watched:
    return Watched()


@pytest.fixture
async def things(store: Watched) -> AsyncIterator[Database]:
    async with Database(FaultyBackend(store), retry=QUICK) as db:
        await db.create_tables(Thing)
        yield db


async def upsert_all(bulk: Bulk, count: int) -> None:
    for number in range(count):
        await bulk.upsert(Thing(name=f"{number}"))


async def count(db: Database) -> int:
    return len(await db.select(Thing).allow_scan().all())


async def test_everything_arrives_grouped_by_partition(things: Database, store: Watched) -> None:
    """Full transactions where there is enough, many partitions at a time, no partition twice; every entity knows it."""
    entities = [Thing(group=f"g{n % 20}", name=f"{n:05d}") for n in range(2_000)]
    async with things.bulk(concurrency=16, errors="report") as bulk:
        for entity in entities:
            await bulk.upsert(entity)

    assert bulk.report == BulkReport(written=2_000, requests=20)
    assert str(bulk.report) == "2000 done, 0 failed, 20 requests"
    assert {len(rows) for rows in store.requests} == {100}
    assert store.most <= 16 and store.overlaps == 0
    assert all(entity.etag is not None for entity in entities)
    assert await count(things) == 2_000


async def test_operations_of_one_row_keep_their_order(things: Database) -> None:
    """The last one wins, however they are grouped; each entity has the value that it was given with."""
    async with things.bulk(concurrency=4, errors="report") as bulk:
        for number in range(500):
            await bulk.upsert(Thing(group=f"g{number % 2}", name=f"{number % 7}", number=number))
        same = Thing(group="same", name="s")
        for number in range(5):
            same.number = number
            await bulk.upsert(same)
        await bulk.delete(Thing.key(group="g0", name="1"), if_match="*")
        await bulk.insert(Thing(group="g0", name="1", number=1000))

    found = {(t.group, t.name): t.number for t in await things.select(Thing).allow_scan().all()}
    last = {(f"g{number % 2}", f"{number % 7}"): number for number in range(500)}
    assert found == last | {("same", "s"): 4, ("g0", "1"): 1000}
    assert bulk.report.failures == 0


async def test_grouped_by_bytes(things: Database, store: Watched) -> None:
    """No transaction passes 4 MiB, and none is rejected for it."""
    async with things.bulk(errors="report") as bulk:
        for number in range(30):
            await bulk.upsert(Thing(name=f"{number}", text="x" * 30_000, more=["é" * 15_000] * 2, number=number))
            large = PropertyBag("Things", "large", f"{number}", {f"p{i}": "x" * 32_000 for i in range(15)})
            await bulk.upsert(large)

    assert bulk.report.failures == 0 and bulk.report.written == 60
    assert sorted(map(len, store.requests)) == [6, 8, 8, 8, 30]


async def test_a_failure_sinks_nothing_else(things: Database) -> None:
    """Each is in the report with its entity and the error that it would have raised alone; the others are written."""
    for number in (3, 50, 99):
        await things.insert(Thing(name=f"{number:03d}"))
    stale = Thing(name="stale")
    await things.insert(stale)
    copy = stale.evolve(number=1)
    await things.save(copy)
    stale.number = 2
    missing = Thing.key(group="g", name="missing")
    entities = [Thing(name=f"{number:03d}") for number in range(150)]
    async with things.bulk(errors="report") as bulk:
        for entity in entities:
            await bulk.insert(entity)
        await bulk.save(stale)
        await bulk.save(copy)
        await bulk.delete(missing, if_match="*")

    report = bulk.report
    assert (report.written, report.failures) == (148, 5)
    errors = {type(failure.error): failure.entity for failure in report.failed}
    assert errors[PreconditionFailed] is stale and errors[EntityNotFound] is missing
    assert all(isinstance(failure.error.fault, Fault) for failure in report.failed)
    exists = [f for f in report.failed if isinstance(f.error, EntityExists)]
    assert [f.entity for f in exists] == [entities[n] for n in (3, 50, 99)]
    assert "the first that failed: insert of Thing ('g', '003')" in str(report)
    assert await count(things) == 151


@pytest.mark.parametrize("silent", [True, False])
async def test_a_failure_that_nobody_names(things: Database, store: Watched, silent: bool) -> None:
    """A store that does not say which operation failed, or names one that was not sent, is asked by halves."""
    store.silent, store.beyond = silent, not silent
    await things.insert(Thing(name="42"))
    async with things.bulk(errors="report") as bulk:
        for number in range(100):
            await bulk.insert(Thing(name=f"{number:02d}"))

    assert (bulk.report.written, bulk.report.failures) == (99, 1)
    assert bulk.report.requests < 20
    error = bulk.report.failed[0].error
    assert isinstance(error, EntityExists) and error.entity == Thing(name="42")


async def test_what_fails_for_all_is_not_tried_one_by_one(things: Database, store: Watched) -> None:
    """A missing table, a store that stays busy, a lost reply: the whole transaction failed, with one error each."""

    class Missing(Entity, table="Missing", partition_key="p", row_key="{n}"):
        n: Mapped[str]

    async with things.bulk(errors="report") as bulk:
        for number in range(100):
            await bulk.upsert(Missing(n=f"{number}"))
    assert (bulk.report.failures, bulk.report.requests) == (100, 1)
    error = bulk.report.failed[0].error
    assert isinstance(error, TableNotFound) and error.table == "Missing"

    store.refuse = 8
    async with things.bulk(errors="report") as bulk:
        await upsert_all(bulk, 50)
    assert (bulk.report.failures, bulk.report.requests) == (50, 1)
    assert isinstance(bulk.report.failed[0].error, Throttled)

    with Faults(things).fail_next("transaction", with_="InsufficientAccountPermissions"):
        async with things.bulk(errors="report") as bulk:
            await upsert_all(bulk, 50)
    assert (bulk.report.failures, bulk.report.requests) == (50, 1)
    assert isinstance(bulk.report.failed[0].error, AccessDenied)


async def test_failures_are_counted_beyond_those_kept(things: Database) -> None:
    """A report stays small, whatever fails."""
    await things.insert(Thing(name="a"))
    async with things.bulk(errors="report") as bulk:
        for _ in range(1_100):
            await bulk.insert(Thing(name="a"))

    assert (bulk.report.failures, len(bulk.report.failed)) == (1_100, 1_000)


async def test_feeding_waits_for_the_store(things: Database, store: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the store stopped, so does the feeder, after what may wait; others go on; then all arrives."""
    monkeypatch.setattr("tableorm.writes.bulk.bulk._MAX_WAITING_OPERATIONS", 200)
    store.gate.clear()
    fed = 0

    async def feed() -> BulkReport:
        nonlocal fed
        async with things.bulk(concurrency=2) as feeding:
            for number in range(400):
                await feeding.upsert(Thing(group=f"g{number}", name="a"))
                fed += 1
        return feeding.report

    task = asyncio.create_task(feed())
    before = -1
    while fed != before or not fed:
        before = fed
        for _ in range(200):
            await asyncio.sleep(0)
    assert 100 <= fed <= 220
    store.gate.set()

    assert (await task).written == 400
    assert store.most <= 2


async def test_others_get_a_turn_while_a_bulk_is_fed(things: Database) -> None:
    """After 32 operations of which none waits."""
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with things.bulk() as bulk:
        counting = asyncio.create_task(count_turns())
        seen = list[int]()
        for number in range(96):
            await bulk.upsert(Thing(group=f"{number % 2}", name=f"{number}"))
            seen.append(turns)
        counting.cancel()

    assert seen == [number // 32 for number in range(1, 97)]


async def test_little_waits_for_a_store_that_is_near(things: Database, store: Watched) -> None:
    """Of one partition no more is taken than a few transactions, while the store writes them as fast as they come."""
    store.turns = 20
    fed, most = 0, 0

    def told(report: BulkReport) -> None:
        nonlocal most
        most = max(most, fed - report.written)

    async with things.bulk(on_progress=told) as bulk:
        for number in range(3_000):
            await bulk.upsert(Thing(name=f"{number:05d}"))
            fed += 1

    assert bulk.report.written == 3_000 and bulk.report.requests == 30
    assert most <= 2_000


async def test_one_partition_is_fed_on_while_the_store_is_stopped(things: Database, store: Watched) -> None:
    """Whoever feeds it gives way to its transactions, and goes on when none ends."""
    store.gate.clear()
    fed = 0

    async def feed() -> BulkReport:
        nonlocal fed
        async with things.bulk() as bulk:
            for number in range(2_000):
                await bulk.upsert(Thing(name=f"{number:05d}"))
                fed += 1
        return bulk.report

    task = asyncio.create_task(feed())
    async with asyncio.timeout(30):
        while fed < 2_000:  # noqa: ASYNC110 - it waits for nothing but time
            await asyncio.sleep(0.001)
    assert len(store.requests) == 1
    store.gate.set()

    assert (await task).written == 2_000
    assert not store.overlaps


async def test_a_partition_that_is_under_way_is_not_sent_again(things: Database, store: Watched) -> None:
    """Whoever waits for another object of the partition waits until its transaction has ended."""
    store.turns = 50
    first, second = Thing(name="a"), Thing(name="b")
    async with things.bulk() as bulk:
        await bulk.upsert(first)
        saving = asyncio.create_task(bulk.save(first))
        while not store.requests:  # noqa: ASYNC110 - it waits for turns of the loop
            await asyncio.sleep(0)
        await bulk.upsert(second)
        second.number = 2
        await bulk.save(second)
        await saving

    assert not store.overlaps and store.requests == [["a"], ["b"], ["b"]]


async def test_bytes_wait_too(things: Database, store: Watched) -> None:
    """Large entities fill what may wait sooner."""
    store.gate.clear()
    fed = 0

    async def feed() -> None:
        nonlocal fed
        async with things.bulk(concurrency=1) as bulk:
            for number in range(220):
                row = {f"p{i}": "x" * 30_000 for i in range(16)}
                await bulk.upsert(PropertyBag("Things", "p", f"{number}", row))
                fed += 1

    task = asyncio.create_task(feed())
    for _ in range(3_000):
        await asyncio.sleep(0)
    assert 100 < fed < 200
    store.gate.set()
    await task


async def test_progress_is_told(things: Database) -> None:
    """After each transaction; an error of the callback ends the bulk."""
    reports: list[BulkReport] = []
    async with things.bulk(on_progress=reports.append) as bulk:
        await upsert_all(bulk, 350)
    assert [report.written for report in reports] == [100, 200, 300, 350] and reports[-1] == bulk.report

    def broken(report: BulkReport) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with things.bulk(on_progress=broken) as bulk:
            await upsert_all(bulk, 1_000)


async def test_a_rate_is_kept(things: Database, store: Watched) -> None:
    """Never more in a transaction than in a second, and the time for each; asked of the loop's clock."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with things.bulk(rate=400) as bulk:
        for number in range(200):
            await bulk.upsert(Thing(group=f"g{number % 2}", name=f"{number}"))
    assert loop.time() - begun >= 100 / 400
    async with things.bulk(rate=90) as bulk:
        await upsert_all(bulk, 100)
    assert bulk.report.requests == 2 and max(map(len, store.requests[-2:])) == 90


async def test_throttling_narrows_and_recovers(things: Database, store: Watched) -> None:
    """Fewer are under way after refusals, and as many as before once the store keeps up."""
    limits: list[int] = []
    store.refuse = 60
    under_way: list[int] = []

    def note(report: BulkReport) -> None:
        limits.append(bulk.concurrency)
        under_way.append(store.busy.total())

    async with things.bulk(concurrency=16, on_progress=note) as bulk:
        for number in range(1_500):
            await bulk.upsert(Thing(group=f"g{number}", name="a"))

    assert bulk.report.written == 1_500
    assert min(limits) <= 4 and limits[-1] == 16
    assert min(under_way[:100]) < 8


async def test_a_block_that_raises_drops_what_waits(things: Database) -> None:
    """What was sent is reported; the rest is not sent, and the bulk is over."""
    bulk = things.bulk()
    with pytest.raises(ZeroDivisionError):
        async with bulk:
            await upsert_all(bulk, 150)
            _ = 1 // 0

    assert bulk.report.written == await count(things) == 100
    with pytest.raises(ModelError, match="closed"):
        await bulk.upsert(Thing(name="x"))
    with pytest.raises(ModelError, match="used already"):
        await bulk.__aenter__()


async def test_what_waits_for_its_turn_is_dropped_too(things: Database, store: Watched) -> None:
    """A block that raises does not wait for the rate, nor send what it had to wait for."""
    bulk = things.bulk(rate=0.01, concurrency=4)
    async with asyncio.timeout(30):
        with pytest.raises(ZeroDivisionError):
            async with bulk:
                for number in range(4):
                    await bulk.insert(Thing(group=f"g{number}", name="a"))
                while bulk.report.written == 0:  # noqa: ASYNC110 - it waits for the first
                    await asyncio.sleep(0)
                _ = 1 // 0

    assert bulk.report == BulkReport(written=1, requests=1) and len(store.requests) == 1


async def test_cancelling_a_bulk(things: Database, store: Watched) -> None:
    """It ends at once, also while it waits for a store that does not answer; the database goes on."""
    store.gate.clear()

    async def feed() -> None:
        async with things.bulk() as bulk:
            await upsert_all(bulk, 500)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await feed()
    assert store.busy.total() == 0
    store.gate.set()
    await things.insert(Thing(name="after"))


async def test_what_cannot_be_encoded_raises_at_the_call(things: Database, store: Watched) -> None:
    """With the same errors as elsewhere; nothing else is touched."""
    async with things.bulk() as bulk:
        await bulk.upsert(Thing(name="a"))
        bad = Thing(name="b")
        bad.__dict__["number"] = "no"
        with pytest.raises(EncodeError):
            await bulk.upsert(bad)
        with pytest.raises(LimitExceeded):
            await bulk.insert(Thing(name="c", text="x" * 40_000))
        with pytest.raises(NotRead):
            await bulk.merge(Thing(name="d"), only=[Thing.number])
        await bulk.replace(Thing(name="a", number=1), if_match="*", drop_extra=True)

    assert bulk.report.written == 2
    odd: list[tuple[Any, Any]] = [(0, None), (2.5, None), ("4", None), (1, 0.0), (1, math.nan), (1, math.inf), (1, "5")]
    for concurrency, rate in odd:
        with pytest.raises(ModelError, match="above 0"):
            things.bulk(concurrency=concurrency, rate=rate)


async def test_each_of_a_chunk_in_doubt_has_its_own_error() -> None:
    """It names that operation, and has the row that was found of it."""
    network = FaultyStore(MemoryStore())
    async with Database(FaultyBackend(network), retry=QUICK) as db:
        await db.create_tables(Thing)
        network.plan(Fate.LOST_REPLY)
        things = [Thing(name=f"{number}") for number in range(3)]
        async with db.bulk(errors="report") as bulk:
            for thing in things:
                await bulk.insert(thing)

    for thing, failure in zip(things, bulk.report.failed, strict=True):
        assert isinstance(failure.error, OutcomeUnknown) and failure.entity is thing
        assert str(failure.error).startswith(f"insert of Thing ('g', '{thing.name}'): ")
        assert failure.error.found == thing


async def test_nothing_is_sent_after_the_block(things: Database, store: Watched) -> None:
    """One of several feeders fails; the others, which wait for room, are told that it is over."""
    store.gate.clear()

    async def feed(number: int) -> None:
        for count in range(5_000):
            await bulk.upsert(Thing(group=f"g{number}", name=f"{count}"))

    bulk = things.bulk(concurrency=2)
    feeders: list[asyncio.Task[None]] = []
    with pytest.raises(ZeroDivisionError):
        async with bulk:
            feeders += [asyncio.create_task(feed(number)) for number in range(8)]
            for _ in range(20_000):
                await asyncio.sleep(0)
            store.gate.set()
            raise ZeroDivisionError
    sent, written = len(store.requests), bulk.report.written
    for feeder in feeders:
        with pytest.raises(ModelError, match="the bulk is"):
            await feeder

    assert (len(store.requests), bulk.report.written) == (sent, written)
    assert await count(things) == written < 5_000


async def test_a_call_that_times_out_has_given_nothing(things: Database, store: Watched) -> None:
    """Whoever repeats it does not write twice."""
    store.gate.clear()
    given = 0
    async with things.bulk(concurrency=1, errors="report") as bulk:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                while True:
                    await bulk.insert(Thing(group=f"g{given // 100}", name=f"{given}"))
                    given += 1
        store.gate.set()
        await bulk.insert(Thing(group=f"g{given // 100}", name=f"{given}"))

    assert (bulk.report.written, bulk.report.failures) == (given + 1, 0)


async def test_one_object_given_twice(things: Database) -> None:
    """The second call waits for the ETag of the first, and sees what that has written."""
    thing = Thing(name="a")
    async with things.bulk(errors="report") as bulk:
        await bulk.insert(thing)
        for number in (1, 2, 0):
            thing.number = number
            await bulk.save(thing)
        thing.text = "x"
        await bulk.upsert(thing)
        await bulk.merge(thing, only=[Thing.number])
        await bulk.replace(thing, drop_extra=True)
        found = await things.get(Thing, group="g", name="a")
        await bulk.delete(thing)

    assert (bulk.report.written, bulk.report.failures) == (8, 0)
    assert (found.number, found.text) == (0, "x")
    assert await count(things) == 0 and thing.etag is None


async def test_one_object_given_under_several_keys(things: Database) -> None:
    """A write that needs its ETag waits for all that was given of it, in whichever partitions, and in any order."""
    thing = Thing(name="a")
    async with things.bulk() as bulk:
        for group in ("g", "h", "i", "h"):
            thing.group = group
            await bulk.upsert(thing, mode="replace")
        for number in range(99):  # fills the partition in the middle, which is sent first
            await bulk.insert(Thing(group="h", name=f"{number}"))
        await bulk.delete(thing)
        written = bulk.report.written

    assert written == 103 and bulk.report == BulkReport(104, (), 0, 5)
    assert await count(things) == 101 and thing.etag is None


async def test_progress_is_told_to_a_plain_function(things: Database) -> None:
    """What would have to be awaited is rejected: at once, or when it has been called."""

    async def told(report: BulkReport) -> None: ...

    with pytest.raises(ModelError, match=r"on_progress=.*plain function"):
        things.bulk(on_progress=told)

    class Teller:
        async def __call__(self, report: BulkReport) -> None: ...

    with pytest.raises(ModelError, match=r"on_progress=.*plain function"):
        async with things.bulk(on_progress=Teller()) as bulk:
            await bulk.insert(Thing(name="a"))


async def test_nothing_is_taken_after_the_block(things: Database) -> None:
    """An operation that waited for its turn when the block was left is rejected, and not written as if nothing were."""
    taken, leaving = list[bool](), False

    async def add() -> None:
        for number in range(100):
            await bulk.insert(Thing(name=f"{number:03d}"))
            taken.append(leaving)

    async with things.bulk() as bulk:
        adding = asyncio.create_task(add())
        await asyncio.sleep(0)
        leaving = True
    with pytest.raises(ModelError, match="the bulk is "):
        await adding

    assert taken and not any(taken)
    assert bulk.report.written == len(taken)


async def test_the_end_of_the_block_raises_what_failed(things: Database) -> None:
    """Everything else is written before, and the error has the report, also in another process."""
    await things.insert(Thing(name="0"))
    bulk = things.bulk()
    with pytest.raises(
        BulkFailed, match=r"1 of 3 operations of the bulk failed; .*insert of Thing \('g', '0'\)"
    ) as raised:
        async with bulk:
            for number in range(3):
                await bulk.insert(Thing(name=f"{number}"))

    assert await things.select(Thing).where(Thing.group == "g").count() == 3
    error = pickle.loads(pickle.dumps(raised.value))
    for each in (raised.value, error):
        assert (each.report.written, each.report.failures) == (2, 1)
        assert isinstance(each.__cause__, EntityExists) and isinstance(each.report.failed[0].error, EntityExists)
    assert raised.value.report == bulk.report
    assert (http_status(error), http_message(error)) == (409, "the entity already exists")


async def test_an_error_of_the_block_is_raised_before_what_failed(things: Database) -> None:
    """The block raises its own error; what becomes of failures is said by one of two words."""
    await things.insert(Thing(name="0"))
    with pytest.raises(ZeroDivisionError):
        async with things.bulk() as bulk:
            await bulk.insert(Thing(name="0"))
            raise ZeroDivisionError
    wrong: Any = "ignore"
    with pytest.raises(ModelError, match=r"bulk\(errors='ignore'\) is rejected: give 'raise' or 'report'"):
        things.bulk(errors=wrong)


async def test_a_call_that_is_not_awaited(things: Database) -> None:
    """It has written nothing, which the end of the block says; what was awaited is written."""
    with pytest.raises(ModelError, match=r"bulk\.upsert\(\.\.\.\) was called without await.*write `await bulk\.upsert"):
        async with things.bulk() as bulk:
            await bulk.insert(Thing(name="a"))
            bulk.upsert(Thing(name="b"))  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
            await bulk.insert(Thing(name="c"))

    found = await things.select(Thing).where(Thing.group == "g").all()
    assert [each.name for each in found] == ["a", "c"]


async def test_calls_that_others_await(things: Database) -> None:
    """Any number of calls may be made first and awaited together, by tasks or `gather`; one may be cancelled."""
    async with things.bulk() as bulk:
        for start in range(0, 3_000, 1_500):
            await asyncio.gather(*(bulk.upsert(Thing(name=f"{start + number}")) for number in range(1_500)))
        task = asyncio.create_task(bulk.upsert(Thing(name="late")))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert bulk.report.written == 3_000
