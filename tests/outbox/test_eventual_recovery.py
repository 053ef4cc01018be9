"""
Writes with eventual indexes on a network that fails: what commits is carried out, by the writer or by a worker.

Each request of each verb meets each fate; and its sender dies at it, before or after it arrives.
"""

import asyncio
import datetime as dt
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product

import pytest

from tableorm import Database, EntityExists, OutcomeUnknown, TableOrmError
from tableorm.protocol.codes import Fault
from tableorm.stores import CLOCK, Operation, Row, RowPage, RowQuery, TableStore
from tableorm.testing import MemoryStore
from tests.faults import QUICK, Fate, FaultyBackend, FaultyStore
from tests.outbox.staff import Person, committed_decisions, extra_entries, people_of, recover, wrong_entries
from tests.torture import every, seeds

HOUR = dt.timedelta(hours=1)


@pytest.fixture(autouse=True)
def stopped_clock() -> Iterator[None]:
    CLOCK.freeze(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    yield
    CLOCK.reset()


async def insert(db: Database) -> None:
    await db.insert(Person(team="red", id=1, name="Ann", city="Oslo"))


async def change(db: Database) -> None:
    person = await db.get(Person, team="red", id=1)
    person.name, person.city = "Anna", "Rome"
    await db.save(person)


async def touch(db: Database) -> None:
    """Change what an entry holds, and leave it where it is."""
    person = await db.get(Person, team="red", id=1)
    person.name = ""
    await db.save(person)


async def upsert(db: Database) -> None:
    await db.upsert(Person(team="red", id=1, name="Ann", city="Bonn"), "replace")


async def delete(db: Database) -> None:
    await db.delete(Person.key(team="red", id=1), if_match="*", missing_ok=True)


async def reinsert(db: Database) -> None:
    await delete(db)
    await insert(db)


async def replace_in_transaction(db: Database) -> None:
    """Give one entity up and let another one come, in one transaction with a third."""
    async with db.transaction() as tx:
        tx.delete(await tx.get(Person, team="red", id=1))
        tx.insert(Person(team="red", id=2, name="Ann", city="Oslo"))
        tx.insert(Person(team="red", id=3))


async def move(db: Database) -> None:
    await db.move(await db.get(Person, team="red", id=1), id=2)


Verb = Callable[[Database], Awaitable[None]]

VERBS: dict[Verb, Sequence[Verb]] = {
    insert: (),
    change: (insert,),
    touch: (insert,),
    upsert: (insert,),
    delete: (insert,),
    reinsert: (insert,),
    replace_in_transaction: (insert,),
    move: (insert,),
}
"""The verbs, and what comes before each."""

MOST_REQUESTS = 26
"""More writes than any of them sends, in all of its attempts."""


def connected(store: TableStore) -> Database:
    backend = FaultyBackend()
    backend.tables = store if isinstance(store, FaultyStore) else FaultyStore(store)
    return Database(backend, retry=QUICK)


async def prepared(verb: Verb) -> MemoryStore:
    store = MemoryStore()
    async with connected(store) as db:
        await db.create_tables(Person)
        for before in VERBS[verb]:
            await before(db)
    return store


async def check_recovered(store: TableStore) -> None:
    """Nothing is missing or wrong once workers have done what was left, nor is a committed decision row left."""
    async with connected(store) as db:
        for _ in range(3):
            CLOCK.advance(HOUR)
            await recover(db)
    assert await committed_decisions(store) == []
    assert await wrong_entries(store) == []


FATES = [fate for fate in Fate if fate is not Fate.FINE]


@pytest.mark.parametrize(("verb", "at", "fate"), every(7, product(VERBS, range(MOST_REQUESTS), FATES)))
async def test_a_request_that_meets_a_fault(verb: Verb, at: int, fate: Fate) -> None:
    """The write succeeds or says that its outcome is unknown, and its entries follow."""
    store = await prepared(verb)
    network = FaultyStore(store, [*[Fate.FINE] * at, fate])
    async with connected(network) as db:
        try:
            await verb(db)
        except (OutcomeUnknown, EntityExists):
            assert fate in (Fate.LOST_REQUEST, Fate.LOST_REPLY, Fate.LATE)
    await network.deliver()
    await check_recovered(store)
    assert await extra_entries(store) == set()


class Mortal(FaultyStore):
    """A store whose user dies at a write: from then on nothing of it arrives."""

    def __init__(self, store: TableStore, at: int, *, arrives: bool) -> None:
        super().__init__(store)
        self._left, self._arrives = at, arrives

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        self._check()
        return await super().get(table, partition_key, row_key, select)

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        self._check()
        return await super().query(table, query, limit, continuation)

    async def _arrive(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        self._check()
        self._left -= 1
        if self._left < 0 and not self._arrives:
            self._check()
        etags = await super()._arrive(table, operations, transaction=transaction)
        self._check()
        return etags

    def _check(self) -> None:
        if self._left < 0:
            raise Fault("Dead", "The writer is dead.")


@pytest.mark.parametrize(("verb", "at", "arrives"), every(3, product(VERBS, range(MOST_REQUESTS), [True, False])))
async def test_a_writer_that_dies(verb: Verb, at: int, arrives: bool) -> None:
    """Workers finish what it had committed; of what it had not committed nothing is left."""
    store = await prepared(verb)
    before = await people_of(store)
    async with connected(Mortal(store, at, arrives=arrives)) as db:
        try:
            await verb(db)
        except Exception:  # noqa: BLE001 - what it would have said, nobody hears
            if not arrives and at < 2:  # the message, and the transaction
                assert await people_of(store) == before
    await check_recovered(store)
    assert await extra_entries(store) == set()


@pytest.mark.parametrize(("verb", "at", "arrives"), every(5, product(VERBS, range(MOST_REQUESTS), [True, False])))
async def test_a_worker_that_dies(verb: Verb, at: int, arrives: bool) -> None:
    """The next worker finishes what it has begun, although the writer has died after its commit."""
    store = await prepared(verb)
    async with connected(Mortal(store, 1, arrives=True)) as db:
        with pytest.raises(Exception):  # noqa: B017, PT011 - what it would have said, nobody hears
            await verb(db)
    CLOCK.advance(HOUR)
    async with connected(Mortal(store, at, arrives=arrives)) as db:
        with suppress(Exception):  # it is dead
            await recover(db)
    await check_recovered(store)
    assert await extra_entries(store) == set()


class Jittery(FaultyStore):
    """A network on which requests overtake each other, and some meet a fault."""

    def __init__(self, store: TableStore, chance: random.Random, faults: Sequence[Fate]) -> None:
        super().__init__(store, iter(lambda: chance.choice([*[Fate.FINE] * 12, *faults]), None))
        self._chance = chance

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        await self._wait()
        row = await super().get(table, partition_key, row_key, select)
        await self._wait()
        return row

    async def _arrive(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        await self._wait()
        etags = await super()._arrive(table, operations, transaction=transaction)
        await self._wait()
        return etags

    async def _wait(self) -> None:
        for _ in range(self._chance.choice([0, 0, 1, 2, 5, 20])):
            await asyncio.sleep(0)


VALUES = ["", "Ann", "Bo"]


async def write_something(db: Database, chance: random.Random) -> None:
    """Do any verb to one of two entities."""
    key = Person.key(team="red", id=chance.choice([1, 2]))
    name, city = chance.choice(VALUES), chance.choice([None, "Oslo", "Rome"])

    def set_values(person: Person) -> None:
        person.name, person.city = name, city

    verb = chance.randrange(4)
    if verb == 0:
        await db.insert(Person(team="red", id=chance.choice([1, 2]), name=name, city=city))
    elif verb == 1:
        await db.delete(key, if_match="*", missing_ok=True)
    elif verb == 2:
        await db.upsert(Person(team="red", id=chance.choice([1, 2]), name=name, city=city))
    else:
        await db.modify(key, set_values)


@pytest.mark.parametrize("faults", [[], [Fate.LOST_REQUEST, Fate.LOST_REPLY]], ids=["races", "faults"])
@seeds(6, 400)
async def test_writers_that_race(seed: int, faults: Sequence[Fate]) -> None:
    """Whatever they do to one entity at the same time, in the end its entries are right, and there are no others."""
    chance = random.Random(seed)
    store = MemoryStore()
    async with connected(store) as db:
        await db.create_tables(Person)

    async def write(count: int) -> None:
        async with connected(Jittery(store, chance, faults)) as db:
            for _ in range(count):
                with suppress(TableOrmError):
                    await write_something(db, chance)

    async def work() -> None:
        async with connected(Jittery(store, chance, faults)) as db:
            for _ in range(5):
                CLOCK.advance(HOUR)  # so that it takes messages of writers that still work
                with suppress(TableOrmError, Fault):
                    await recover(db)

    await asyncio.gather(*(write(4) for _ in range(3)), *(work() for _ in range(2)))
    await check_recovered(store)
    assert await extra_entries(store) == set() or faults
