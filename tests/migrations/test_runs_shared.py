"""
Shared runs when processes die, are slow, are cancelled, or miss replies; each process here is a database of its own.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import attrs
import pytest

from tableorm import Database, Entity, Mapped, PropertyBag, RunReport, upgrade
from tableorm.jobs.lease import Lease
from tableorm.stores import Capabilities, Operation, Row, RowPage, RowQuery
from tableorm_local import LocalBackend
from tableorm_migrations import rewrite
from tests.database.between import Between, Shuffled
from tests.torture import seeds

pytestmark = pytest.mark.usefixtures("many_ranges")

UPKEEP = "TableormUpkeep"


class AnyBoat(Entity, table="RunBoats", abstract=True, partition_key="{harbour}", row_key="boat_{id:04d}"):
    harbour: Mapped[str]
    id: Mapped[int]


class BoatV1(AnyBoat, kind="Boat"):
    name: Mapped[str]


class Boat(AnyBoat, version=2):
    title: Mapped[str]


@upgrade(Boat, from_version=1)
def rename(bag: PropertyBag) -> PropertyBag:
    bag["title"] = bag.pop("name")
    return bag


class Process(Between):
    """
    The store as one process sees it: small pages, and faults that the test decides.

    Attributes:
        cancels_after: How many requests are begun before `task` is cancelled; None for all.
        gate: Writes of rows of runs wait until it is open.
        stored: How many writes of rows of ranges were done.
        looks: How often the rows of runs were read.
        reading: Pages of rows that are rewritten wait until it is open.
    """

    def __init__(self, inner: LocalBackend) -> None:
        super().__init__()
        self.inner, self.below = inner, inner.tables
        self.requests = self.stored = self.looks = 0
        self.cancels_after: int | None = None
        self.task: asyncio.Task[RunReport] | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.reading = asyncio.Event()
        self.reading.set()
        self.waiting = asyncio.Event()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    @property
    def capabilities(self) -> Capabilities:
        return attrs.evolve(self.inner.tables.capabilities, retries=True)

    def _count(self) -> None:
        self.requests += 1
        if self.requests == self.cancels_after and self.task is not None:
            self.task.cancel()

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        self._count()
        return await super().get(table, partition_key, row_key, select)

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        self._count()
        if table != UPKEEP and query.where is not None and not self.reading.is_set():
            self.waiting.set()
            await self.reading.wait()
        await asyncio.sleep(0)
        page = await super().query(table, query, limit if table == UPKEEP else min(limit, 2), continuation)
        self.looks += table == UPKEEP
        return page

    async def write(self, table: str, operation: Operation) -> str | None:
        await self._send(table)
        etag = await super().write(table, operation)
        self.stored += table == UPKEEP
        return etag

    async def transact(self, table: str, operations: Sequence[Operation]) -> list[str | None]:
        await self._send(table)
        return await super().transact(table, operations)

    async def _send(self, table: str) -> None:
        self._count()
        if table == UPKEEP and not self.gate.is_set():
            self.waiting.set()
            await self.gate.wait()


@pytest.fixture
async def engine() -> LocalBackend:
    """An engine with 40 old rows in 8 partitions."""
    engine = LocalBackend(None)
    await engine.open()
    async with Database(Process(engine)) as db:
        await db.create_tables(BoatV1)
        async with db.bulk() as bulk:
            for number in range(40):
                await bulk.insert(BoatV1(harbour=f"harbour-{number % 8:03d}", id=number, name="Ann"))
    return engine


async def check(engine: LocalBackend, report: RunReport) -> None:
    """Check that all rows are current, and were counted once."""
    async with Database(Process(engine)) as db:
        rows = await db.select_raw("RunBoats").allow_scan().all()
        runs = await db.select_raw(UPKEEP).allow_scan().all()
    assert {row["EntityType"] for row in rows} == {"Boat:2"}
    assert (report.state, report.entities, report.failed) == ("done", 40, 0)
    assert report.written <= 40
    assert [row.row_key for row in runs] == ["run"]


@seeds(4, 200)
async def test_what_a_cancelled_process_had_is_free_at_once(engine: LocalBackend, seed: int) -> None:
    """The others need not wait until its leases are over, whatever it was doing."""
    process = Process(engine)
    async with Database(process) as first, Database(Process(engine)) as second:
        process.cancels_after = 45 + seed * (9 if seed < 12 else 1)
        process.task = task = asyncio.create_task(rewrite(first, Boat, lease=3600, parallel=3))
        with suppress(asyncio.CancelledError):
            await task
        left = await second.runs()

        report = await rewrite(second, Boat, lease=3600)

    assert [each.owners for each in left] == [()] * len(left)
    await check(engine, report)


async def test_a_slow_process_is_taken_over_and_notices(engine: LocalBackend) -> None:
    """Its rows stand still, so the other does its work; then it returns what was done."""
    slow = Process(engine)
    async with Database(slow) as first, Database(Process(engine)) as second:

        def stop(report: RunReport) -> None:
            if report.entities > 5:
                slow.gate.clear()

        task = asyncio.create_task(rewrite(first, Boat, lease=0.1, parallel=3, on_progress=stop))
        await slow.waiting.wait()
        report = await rewrite(second, Boat, lease=0.1)
        slow.gate.set()

        assert await task == report
    await check(engine, report)


async def test_a_process_that_is_at_work_writes_its_rows_again(engine: LocalBackend) -> None:
    """However long it reads a page: others see it."""
    slow = Process(engine)
    slow.reading.clear()
    async with Database(slow) as db, asyncio.timeout(20):
        task = asyncio.create_task(rewrite(db, Boat, lease=0.1, parallel=1))
        await slow.waiting.wait()
        await until(lambda: slow.stored >= 5)
        slow.reading.set()

        await check(engine, await task)


async def until(holds: Callable[[], bool]) -> None:
    """Let others run until something holds."""
    while not holds():  # noqa: ASYNC110 - it is about what stores count
        await asyncio.sleep(0.005)


class Distant(Process):
    """A store whose replies take longer than the lease."""

    async def write(self, table: str, operation: Operation) -> str | None:
        etag = await super().write(table, operation)
        await asyncio.sleep(0.02)
        return etag

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        page = await super().query(table, query, limit, continuation)
        await asyncio.sleep(0 if table == UPKEEP else 0.01)
        return page


async def test_a_lease_that_is_too_short(engine: LocalBackend) -> None:
    """Processes take ranges from each other, give themselves more time for the next, and end the run."""
    async with Database(Distant(engine)) as first, Database(Distant(engine)) as second, asyncio.timeout(10):
        one, two = await asyncio.gather(*(rewrite(db, Boat, lease=0.005) for db in (first, second)))

    assert one == two
    await check(engine, one)


async def test_what_a_failed_process_had_is_free_at_once(engine: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where two of its tasks fail, and one is cancelled by that while it gives its range back."""
    release, both, calls = vars(Lease)["release"], asyncio.Event(), count(1)

    async def release_late(self: Lease[Any]) -> None:
        if next(calls) == 1:
            await both.wait()
        else:
            both.set()
            await asyncio.sleep(0.05)  # the other one has failed by then
        await release(self)

    def stop(report: RunReport) -> None:
        raise InterruptedError

    async with Database(Process(engine)) as first, Database(Process(engine)) as second, asyncio.timeout(20):
        with monkeypatch.context() as patched:
            patched.setattr(Lease, "release", release_late)
            with pytest.raises(InterruptedError):
                await rewrite(first, Boat, lease=3600, parallel=2, on_progress=stop)
        (left,) = await second.runs()

        report = await rewrite(second, Boat, lease=3600)

    assert left.owners == ()
    await check(engine, report)


async def test_a_store_without_order_counts_once() -> None:
    """A range that was begun is read again from its beginning, and counted from there."""
    async with Database(Shuffled()) as db:
        await db.create_tables(BoatV1)
        for number in range(20):
            await db.insert(BoatV1(harbour="one", id=number, name="Ann"))

        def stop(report: RunReport) -> None:
            if report.entities > 5:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            await rewrite(db, Boat, on_progress=stop)
        report = await rewrite(db, Boat)

    assert (report.state, report.entities) == ("done", 20)


async def test_a_run_that_another_process_ended_and_began_anew(engine: LocalBackend) -> None:
    """A slow process goes on with the run as it is now."""
    slow = Process(engine)
    async with Database(slow) as first, Database(Process(engine)) as second:
        task = asyncio.create_task(rewrite(first, Boat, lease=0.1, on_progress=lambda _: slow.gate.clear()))
        await slow.waiting.wait()
        await rewrite(second, Boat, lease=0.1)
        again = await rewrite(second, Boat, lease=0.1)
        slow.gate.set()

        assert await task == again
    assert again.written == 0
    await check(engine, again)
