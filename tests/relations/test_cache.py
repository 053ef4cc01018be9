"""The cache of a program: what it reads, how old that may be, and what it forgets."""

import asyncio
import datetime as dt
import random
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from tableorm import (
    Database,
    Entity,
    EntityNotFound,
    Mapped,
    ModelError,
    TableNotFound,
    WrongKind,
    connect,
    field,
    one,
)
from tableorm.connection.connection import connection_of
from tableorm.stores import CLOCK, Row
from tableorm.stores.layers import StoreLayer, StoreRequest
from tests.databases import database_fixture, memory_database
from tests.faults import before_requests
from tests.rows import put_row
from tests.torture import seeds
from tests.writes.verbs import write


class Rate(Entity, table="Rates", partition_key="{tenant}", row_key="{code}"):
    tenant: Mapped[str] = field(default="t")
    code: Mapped[str] = field(default="a")
    value: Mapped[int] = field(default=0)
    notes: Mapped[list[str]] = field(factory=list)


RATE = Rate.key(tenant="t", code="a")


class Sale(Entity, table="Sales", partition_key="{tenant}", row_key="{id}"):
    tenant: Mapped[str]
    id: Mapped[str]
    code: Mapped[str]

    rate = one(lambda: Rate, tenant="{tenant}", code="{code}")


pytestmark = pytest.mark.usefixtures("stopped_clock")

db = database_fixture(Rate, Sale)


def later(seconds: float) -> None:
    CLOCK.advance(dt.timedelta(seconds=seconds))


async def write_elsewhere(db: Database, value: int, tenant: str = "t") -> None:
    """Write a row below what the database hears, as another program does."""
    store: Any = db.store
    while isinstance(store, StoreLayer):
        store = store.below
    row: Row = {"PartitionKey": tenant, "RowKey": "a", "EntityType": "Rate", "value": str(value)}
    row["value@odata.type"] = "Edm.Int64"
    await put_row(store, "Rates", row)


async def test_an_entity_is_read_once(db: Database) -> None:
    """Also one that is not there; each caller gets a copy."""
    rates = db.cached(Rate, ttl=60)
    await db.insert(Rate(value=1, notes=["x"]))
    with db.observe() as seen:
        first = await rates.get(tenant="t", code="a")
        first.value = 9
        first.notes.append("y")
        assert (
            await rates.get_many([first.key, Rate.key(tenant="t", code="no")] * 2)
            == [
                Rate(value=1, notes=["x"]),
                None,
            ]
            * 2
        )
        with pytest.raises(EntityNotFound):
            await rates.get(tenant="t", code="no")
    assert len(seen.requests) == 2


async def test_own_writes_are_seen_at_once(db: Database) -> None:
    """By any verb, also of what was not there; and by a scope of the database."""
    rates = db.cached(Rate, ttl=60)
    assert await rates.get_many([RATE]) == [None]
    await db.insert(Rate())
    assert [each.code for each in await rates.all()] == ["a"]
    writes: list[Callable[[Rate], Awaitable[object]]] = [
        db.save,
        db.scope(tenant="t").replace,
        db.upsert,
        lambda rate: db.modify(RATE, lambda each: each.evolve(value=rate.value)),
        lambda rate: write(db, "save in a bulk", rate),
        lambda rate: write(db, "save in a transaction", rate),
    ]
    for value, change in enumerate(writes, 1):
        rate = await db.get(RATE)
        rate.value = value
        await change(rate)
        assert (await rates.get(RATE)).value == value
        assert [each.value for each in await rates.all()] == [value]
    await db.delete(RATE, if_match="*")
    assert await rates.get_many([RATE]) == [None]
    assert await rates.all() == []
    await db.drop_table("Rates")
    with pytest.raises(TableNotFound):
        await rates.get(RATE)


class Slow(StoreLayer):
    """Holds back answers of reads until a test lets them through."""

    def __init__(self, below: Any) -> None:
        super().__init__(below)
        self.let, self.came = asyncio.Event(), asyncio.Condition()
        self.sent = 0

    async def until(self, count: int) -> None:
        """Wait until so many reads were sent."""
        async with self.came:
            await self.came.wait_for(lambda: self.sent >= count)

    async def send(self, request: StoreRequest) -> Any:
        answer = await super().send(request)
        if request.method in ("get", "query"):
            async with self.came:
                self.sent += 1
                self.came.notify_all()
            await self.let.wait()
        return answer


async def test_a_read_that_others_wait_for_is_of_their_key_and_time(db: Database) -> None:
    """
    Who joins a read for one key takes nothing else of it; none joins a read that began too long ago; and a read goes on
    without the one who began it.
    """
    for code in "ab":
        await db.insert(Rate(code=code, value=1))
    rates, slow = db.cached(Rate, ttl=60), Slow(db.store)
    connection_of(db).wrap_store(lambda _: slow)
    keys = [Rate.key(tenant="t", code=code) for code in "ab"]
    early = [asyncio.create_task(rates.get_many(keys)) for _ in range(2)]
    await slow.until(2)
    early[0].cancel()
    connection_of(db).wrap_store(lambda _: slow.below)
    await db.upsert(Rate(value=2))
    assert (await rates.get(keys[0])).value == 2
    joined = asyncio.create_task(rates.get_many(keys))
    whole = asyncio.create_task(rates.all())
    await asyncio.sleep(0)
    later(60)
    await write_elsewhere(db, 3)
    assert await rates.get_many(keys) == await rates.all()
    slow.let.set()

    assert [each and each.value for each in await joined] == [2, 1]
    assert next(each.value for each in await whole) == 2
    assert [each and each.value for each in await rates.get_many(keys)] == [3, 1]
    assert await early[1]


async def test_a_write_that_began_before_the_first_read_is_heard(db: Database) -> None:
    """The cache of a database that is open hears of each write that ends, also if nothing was read yet."""
    await db.insert(Rate(value=1))
    rates, let = db.cached(Rate, ttl=60), asyncio.Event()

    async def hold(request: StoreRequest) -> None:
        if request.operations:
            await let.wait()

    before_requests(db, hold)
    writing = asyncio.create_task(db.upsert(Rate(value=2)))
    await asyncio.sleep(0)
    before = await rates.get(RATE)
    let.set()
    await writing

    assert (before.value, (await rates.get(RATE)).value) == (1, 2)


async def test_a_database_that_is_opened_later_or_again_is_heard() -> None:
    """A cache may be made before; when it is opened again, the cache begins with nothing."""
    database = connect("local::memory:")
    rates = database.cached(Rate, ttl=60)
    for value in (1, 2):
        async with database as db:
            await db.create_tables(Rate)
            assert await rates.get_many([RATE]) == [None]
            await db.insert(Rate(value=value))
            assert (await rates.get(RATE)).value == value


async def test_a_slow_read_replaces_no_newer_one(db: Database) -> None:
    """What was read later stays, so that nothing that `all` gives is older than its time."""
    await db.insert(Rate(value=1))
    rates, slow = db.cached(Rate, ttl=60), Slow(db.store)
    connection_of(db).wrap_store(lambda _: slow)
    early = asyncio.create_task(rates.get(RATE))
    await slow.until(1)
    connection_of(db).wrap_store(lambda _: slow.below)
    later(30)
    await write_elsewhere(db, 2)
    assert [each.value for each in await rates.all()] == [2]
    slow.let.set()
    await early
    later(59)

    assert [each.value for each in await rates.all()] == [2]


class Tax(Entity, table="Rates", partition_key="{tenant}", row_key="tax_{code}", abstract=True):
    tenant: Mapped[str]
    code: Mapped[str]


class Toll(Tax): ...


class Levy(Tax): ...


async def test_a_key_is_of_its_class(db: Database) -> None:
    """Of a base, a row of another class than the key says is of the wrong kind, as without a cache."""
    await db.insert(Toll(tenant="t", code="a"))
    taxes = db.cached(Tax, ttl=60)

    assert await taxes.get_many([Toll.key(tenant="t", code="a")]) == [Toll(tenant="t", code="a")]
    for read in (db.get, taxes.get):
        with pytest.raises(WrongKind):
            await read(Levy.key(tenant="t", code="a"))


async def test_it_is_bounded_and_checked(db: Database) -> None:
    """Those that were not asked for longest go first; wrong arguments, keys and databases are rejected."""
    for number in range(5):
        await db.insert(Rate(code=f"{number}"))
    rates = db.cached(Rate, ttl=60, max_entities=3)
    assert len(await rates.all()) == 5
    for code in ("0", "1", "2", "0", "3"):
        await rates.get(tenant="t", code=code)
    with db.observe() as seen:
        for code in ("0", "2", "3"):
            await rates.get(tenant="t", code=code)
    assert not seen.requests
    wrong: Any = Sale.key(tenant="t", id="1")
    with pytest.raises(ModelError, match="give keys of Rate"):
        await rates.get_many([wrong])
    cached: Any = db.cached
    for options in ({"ttl": 0}, {"ttl": float("inf")}, {"ttl": "1"}, {"ttl": 1, "max_entities": 0}):
        with pytest.raises(ModelError, match="is rejected"):
            cached(Rate, **options)
    with pytest.raises(ModelError, match=r"load\(cache=5\) is rejected: give what db\.cached"):
        await db.load(Sale(tenant="t", id="1", code="1"), Sale.rate, cache=cast("Any", 5))
    with pytest.raises(ModelError, match="of another database or scope"):
        await db.load(Sale(tenant="t", id="1", code="1"), Sale.rate, cache=db.scope(tenant="t").cached(Rate, ttl=1))


async def test_a_load_reads_by_it(db: Database) -> None:
    """What is found by its key comes from the cache, and is one object for all of a load."""
    await db.insert(Rate(value=1))
    rates = db.cached(Rate, ttl=60)
    sales = [Sale(tenant="t", id=f"{number}", code="a") for number in range(3)]
    with db.observe() as seen:
        for _ in range(3):
            await db.load(sales, Sale.rate, cache=rates)
    assert len(seen.requests) == 1
    assert sales[0].rate is sales[1].rate
    assert sales[0].rate == Rate(value=1)


async def test_scopes_have_their_own(db: Database) -> None:
    """A key of another tenant is rejected, whoever has read it, and `all` has those of the scope."""
    for tenant in "xy":
        await db.insert(Rate(tenant=tenant))
    everyone, mine = db.cached(Rate, ttl=60), db.scope(tenant="x").cached(Rate, ttl=60)
    assert len(await everyone.all()) == 2
    assert (await mine.get(code="a")).tenant == "x"
    assert [each.tenant for each in await mine.all()] == ["x"]
    for read in (mine.get(tenant="y", code="a"), mine.get_many([Rate.key(tenant="y", code="a")])):
        with pytest.raises(Exception, match="tenant"):
            await read


@seeds(20, 2000)
async def test_never_older_than_its_time(seed: int) -> None:
    """
    Of reads and writes in parallel, of this program and of others, that take their time before and after the store has
    them: what comes was there within `ttl`, and no write that this program had finished before is missing.
    """
    rolls = random.Random(seed)
    now, value = 0, 0
    own, ended = dict.fromkeys("xy", 0), {tenant: [(-1000, 0)] for tenant in "xy"}

    async def pause(most: int) -> None:
        for _ in range(rolls.randrange(most)):
            await asyncio.sleep(0)

    class Slow(StoreLayer):
        async def send(self, request: StoreRequest) -> Any:
            await pause(4)
            answer = await super().send(request)
            await pause(300 if rolls.random() < 0.3 else 6)
            return answer

    async with memory_database(Rate) as db:
        for tenant in "xy":
            await db.insert(Rate(tenant=tenant))
        scope = db.scope(tenant="x")
        connection_of(db).wrap_store(Slow)
        caches = {None: db.cached(Rate, ttl=60, max_entities=rolls.choice([1, 100])), "x": scope.cached(Rate, ttl=60)}
        turn = asyncio.Lock()

        async def put(tenant: str) -> None:
            """Write the next value, one at a time, so that those of a row only become greater."""
            nonlocal value
            async with turn:
                value += 1
                mine = rolls.random() < 0.5
                if mine:
                    await write(db, rolls.choice(WAYS), Rate(tenant=tenant, value=value))
                    own[tenant] = value
                else:
                    await write_elsewhere(db, value, tenant)
                ended[tenant].append((now, value))

        async def look(scoped: str | None) -> None:
            cache, sales = caches[scoped], [Sale(tenant=each, id=each, code="a") for each in scoped or "xy"]
            least = {each: max(own[each], *(was for at, was in ended[each] if at <= now - 60)) for each in "xy"}
            how = rolls.choice(["get", "get_many", "all", "load"])
            if how == "get":
                found: list[Rate | None] = [await cache.get(tenant="x", code="a")]
            elif how == "get_many":
                found = await cache.get_many([Rate.key(tenant=each.tenant, code="a") for each in sales])
            elif how == "all":
                found = [*await cache.all()]
            else:
                await (db if scoped is None else scope).load(sales, Sale.rate, cache=cache)
                found = [each.rate for each in sales]
            assert len(found) == (1 if how == "get" else len(sales))
            for each in found:
                assert each is not None
                assert each.value >= least[each.tenant], how

        async def play(steps: int) -> None:
            nonlocal now
            for _ in range(steps):
                step = rolls.randrange(8)
                if step == 0:
                    seconds = rolls.randrange(40)
                    later(seconds)
                    now += seconds
                elif step < 3:
                    await put(rolls.choice("xy"))
                else:
                    await look(rolls.choice([None, "x"]))
                await pause(8)

        await asyncio.gather(*(play(20) for _ in range(6)))


WAYS = ["upsert", "upsert in a bulk", "upsert in a transaction"]
