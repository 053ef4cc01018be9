"""
Following a log: what is appended, each entity once, although clocks differ and some are written late.
"""

import asyncio
import datetime as dt
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from tableorm import Database, Entity, Index, Mapped, ModelError, PropertyBag, ScanRefused, Select, field
from tableorm.queries import follow
from tableorm.stores import CLOCK
from tests.database.between import Recorded
from tests.databases import memory_database
from tests.torture import Rounds

pytestmark = pytest.mark.limit(20)  # what hangs shall fail soon

UTC = dt.UTC
START = dt.datetime(2026, 1, 1, tzinfo=UTC)
SECOND = dt.timedelta(seconds=1)
SOON = dt.timedelta(milliseconds=2)


at_one_moment = pytest.mark.usefixtures("stopped_clock")


class Claim(Entity, table="FollowedClaims", partition_key="{employee}", row_key="{at:ticks_desc}_{n:03d}"):
    employee: Mapped[str] = field(default="e1")
    at: Mapped[dt.datetime]
    n: Mapped[int] = field(default=0)
    amount: Mapped[int] = field(default=0)


class Ascending(Entity, table="FollowedAscending", partition_key="{name}", row_key="log_{level}_{at:ticks}_{n:03d}"):
    name: Mapped[str]
    level: Mapped[str]
    at: Mapped[dt.datetime]
    n: Mapped[int] = field(default=0)


class Login(Entity, table="FollowedLogins", partition_key="{user:spread(4)}", row_key="{at:ticks_desc}_{user}"):
    user: Mapped[str]
    at: Mapped[dt.datetime]
    place: Mapped[str] = field(default="")
    by_place = Index(row_key="place_{place}_{at:ticks_desc}_{user}")


class Event(Entity, table="FollowedEvents", partition_key="{system}", row_key="{at:ticks_desc}_{id}", abstract=True):
    system: Mapped[str]
    id: Mapped[str]
    at: Mapped[dt.datetime]


class Started(Event): ...


class Stopped(Event): ...


def claims(db: Database) -> Select[Claim]:
    return db.select(Claim).where(Claim.employee == "e1")


def at(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


async def take(stream: AsyncGenerator[Any, None], count: int) -> list[Any]:
    """The next entities that a stream yields."""
    async with asyncio.timeout(10):
        return [await anext(stream) for _ in range(count)]


@at_one_moment
@pytest.mark.parametrize("db", ["memory", "azurite"], indirect=True)
async def test_what_is_appended_comes_in_the_order_of_time(db: Database) -> None:
    """What was there before is not given; of the same moment, the order is that of RowKeys."""
    await db.create_tables(Claim)
    await db.insert(Claim(at=at(-1)))
    stream = claims(db).follow(lag=2 * SECOND, pause=SOON)
    first = asyncio.create_task(take(stream, 3))
    await asyncio.sleep(0.1)
    async with db.transaction() as tx:
        for seconds, n in ((3, 0), (1, 1), (1, 0)):
            tx.insert(Claim(at=at(seconds), n=n))

    assert [(each.at, each.n) for each in await first] == [(at(1), 0), (at(1), 1), (at(3), 0)]
    await stream.aclose()


@at_one_moment
async def test_what_is_late_comes_once_and_what_is_too_late_never() -> None:
    """A moment within the lag is found; each poll reads so far back, and no farther."""
    store = Recorded()
    async with Database(store) as db:
        await db.create_tables(Claim)
        await db.insert(Claim(at=at(0)))
        stream = claims(db).follow(lag=5 * SECOND, since=at(0), pause=SOON)
        assert [each.at for each in await take(stream, 1)] == [at(0)]
        CLOCK.advance(10 * SECOND)
        await db.insert(Claim(at=at(10), amount=1))
        assert [each.amount for each in await take(stream, 1)] == [1]
        await db.insert(Claim(at=at(5.5), amount=2))
        assert [each.amount for each in await take(stream, 1)] == [2]
        await db.insert(Claim(at=at(4), amount=3))
        await db.insert(Claim(at=at(14), amount=4))  # a clock that is ahead
        assert [each.amount for each in await take(stream, 1)] == [4]
        CLOCK.advance(9 * SECOND)
        polls = len(store.asked)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(stream)
        assert len(store.asked) > polls + 2


@at_one_moment
async def test_no_more_is_remembered_than_the_lag_has() -> None:
    """The keys of older entities are forgotten."""
    async with memory_database(Claim) as db:
        stream: Any = claims(db).follow(lag=2 * SECOND, since=START, pause=SOON)
        for second in range(30):
            await db.insert(Claim(at=at(second)))
            await take(stream, 1)
            CLOCK.advance(SECOND)
        assert len(stream.ag_frame.f_locals["known"]) <= 5
        await stream.aclose()


@at_one_moment
async def test_a_long_absence_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who goes on after an hour reads no more at once than memory allows, unless one moment has more."""
    monkeypatch.setattr(follow, "_MOST", 20)
    async with memory_database(Claim) as db:
        moments = [at(n * n / 20) for n in range(250)] + [at(1000)] * 60
        async with db.bulk() as bulk:
            for n, moment in enumerate(moments):
                await bulk.insert(Claim(at=moment, n=n))
        CLOCK.advance(3600 * SECOND)
        stream = claims(db).follow(lag=SECOND, since=START, pause=SOON)
        before = db.stats.requests
        found = await take(stream, len(moments))

        assert [each.at for each in found] == sorted(moments)
        assert Counter(each.n for each in found) == Counter(range(len(moments)))
        assert db.stats.requests - before < 150
        await stream.aclose()


LOGS: dict[str, tuple[Callable[[int], Any], Callable[[Database], Select[Any]]]] = {
    "ascending": (
        lambda n: Ascending(name="a", level="warn", at=at(n)),
        lambda db: db.select(Ascending).where(Ascending.name == "a", Ascending.level == "warn"),
    ),
    "spread": (lambda n: Login(user=f"u{n}", at=at(n)), lambda db: db.select(Login)),
    "index": (
        lambda n: Login(user=f"u{n}", at=at(n), place="Oslo"),
        lambda db: db.select(Login.by_place).where(Login.place == "Oslo"),
    ),
    "kinds": (
        lambda n: (Started, Stopped)[n % 2](system="s", id="x", at=at(n)),
        lambda db: db.select(Event).where(Event.system == "s"),
    ),
}


@at_one_moment
@pytest.mark.parametrize("which", LOGS)
async def test_logs_of_every_form_are_followed(which: str) -> None:
    """Sorted upwards, behind a field that the query gives; in several buckets; by an index; of several kinds."""
    make, select = LOGS[which]
    async with memory_database(Ascending, Login, Started, Stopped) as db:
        stream = select(db).follow(lag=SECOND, since=START, pause=SOON)
        for n in range(12):
            await db.insert(Ascending(name="a", level="info", at=at(n)))
            await db.insert(make(n))
            CLOCK.advance(SECOND / 2)
        found = await take(stream, 12)

        assert [each.at for each in found] == [at(n) for n in range(12)]
        await stream.aclose()


async def test_several_writers_whose_clocks_differ(rounds: Rounds) -> None:
    """Each of their entities is seen once, although it is written late, and others go on meanwhile."""
    for seed in range(rounds(2, 60)):
        chance = random.Random(seed)
        async with memory_database(Login) as db:
            begun, wanted = CLOCK.now(), 0

            async def write(user: str, chance: random.Random = chance, db: Database = db) -> None:
                for _ in range(12):
                    await asyncio.sleep(chance.random() * 0.01)
                    late = dt.timedelta(seconds=chance.uniform(-0.2, 0.3))
                    await db.insert(Login(user=user, at=CLOCK.now() - late))

            stream = db.select(Login).follow(lag=2 * SECOND, since=begun - SECOND, pause=SOON)
            async with asyncio.TaskGroup() as group:
                for number in range(6):
                    group.create_task(write(f"u{number}"))
                    wanted += 12
                reading = group.create_task(take(stream, wanted))
            stored = await db.select(Login).all()
            assert Counter((e.user, e.at) for e in reading.result()) == Counter((e.user, e.at) for e in stored)
            await stream.aclose()


async def test_a_reader_that_is_cancelled_leaves_nothing() -> None:
    """While it waits for the next poll."""
    async with memory_database(Claim) as db:
        before = asyncio.all_tasks()
        waiting = asyncio.create_task(take(claims(db).follow(lag=SECOND), 1))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert asyncio.all_tasks() <= before


@at_one_moment
async def test_pauses_grow_while_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a twentieth of a second to the longest that is allowed; what comes makes them short again."""
    pauses: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
            if len(pauses) == 6:
                await db.insert(Claim(at=START))
        await real(0)

    async with memory_database(Claim) as db:
        monkeypatch.setattr("tableorm.queries.polling.asyncio.sleep", sleep)
        stream = claims(db).follow(lag=SECOND, pause=dt.timedelta(seconds=0.5))
        await take(stream, 1)
        waiting = asyncio.ensure_future(anext(stream))
        while len(pauses) < 8:
            await real(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert pauses[:8] == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5, 0.05, 0.1]


async def test_what_cannot_be_followed_is_refused() -> None:
    """The message says what RowKeys have to begin with."""

    class Named(Entity, table="FollowedNamed", partition_key="{name}", row_key="{id}_{at:ticks}"):
        name: Mapped[str]
        id: Mapped[str]
        at: Mapped[dt.datetime]

    async with memory_database(Named, Claim) as db:
        unsorted = db.select(Named).where(Named.name == "x")
        for query in (unsorted, db.select(Ascending).where(Ascending.name == "a"), db.select(Claim, PropertyBag)):
            with pytest.raises(ModelError, match=r"begin row_key with a field such as '\{at:ticks_desc\}'"):
                query.follow(lag=SECOND)
        assert unsorted.where(Named.id == "i").follow(lag=SECOND) is not None
        with pytest.raises(ModelError, match=r"takes no limit; remove limit\(\)"):
            claims(db).limit(5).follow(lag=SECOND)
        for lag in (-SECOND, 5):
            with pytest.raises(ModelError, match=r"follow\(lag=.* is rejected: give a timedelta"):
                claims(db).follow(lag=lag)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(ScanRefused, match="no equality on employee"):
            await take(db.select(Claim).follow(lag=SECOND), 1)
