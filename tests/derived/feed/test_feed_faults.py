"""
Change feeds over a network that loses requests and replies, and with many writers: each change is noted once.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from tableorm import Database, EntityExists, LostRace, OutcomeUnknown, TransactionFailed, Unavailable
from tableorm.connection.connection import connection_of
from tableorm.derived.feed.trim import trim_feed
from tableorm.stores import CLOCK, Operation
from tableorm.testing import MemoryStore
from tests.derived.feed.staff import KEEP, Employee, changes_of, noted
from tests.faults import QUICK, Fate, FaultyBackend, FaultyStore
from tests.torture import seeds


@pytest.fixture
def network() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
async def db(network: FaultyStore) -> AsyncIterator[Database]:
    backend = FaultyBackend()
    backend.tables = network
    async with Database(backend, retry=QUICK) as database:
        await database.create_tables(Employee)
        yield database


@pytest.fixture
async def other(network: FaultyStore) -> AsyncIterator[Database]:
    """Another client, whose own network is sound."""
    async with Database(FaultyBackend(network.store), retry=QUICK) as database:
        yield database


FATES = [Fate.LOST_REQUEST, Fate.LOST_REPLY, Fate.LATE, Fate.TWICE, Fate.BUSY]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("fate", FATES)
async def test_a_write_beside_that_of_another_is_noted_once(
    db: Database, other: Database, network: FaultyStore, fate: Fate, *, first: bool
) -> None:
    """Whoever has the number in the end, the row under it says whose transaction it was."""
    if not first:
        await other.insert(Employee(id=1))
    network.plan(fate)
    network.meanwhile = lambda: other.insert(Employee(id=2))

    await db.insert(Employee(id=3))
    await network.deliver()

    found = [each for (each,) in await noted(db)]
    assert sorted(found) == [f"insert empid_{number:06d}" for number in ((2, 3) if first else (1, 2, 3))]


@pytest.mark.parametrize("fate", FATES)
async def test_a_delete_is_proven_by_the_feed(db: Database, other: Database, network: FaultyStore, fate: Fate) -> None:
    """A delete leaves no row that could carry a token, but the row of the change does, also when others go on."""
    ken = Employee(id=1)
    await db.insert(ken)
    network.plan(fate)
    network.meanwhile = lambda: other.upsert(Employee(id=2))

    await db.delete(ken)
    await network.deliver()

    assert Counter(each for (each,) in await noted(db)) == Counter(
        ["insert empid_000001", "delete empid_000001", "insert empid_000002"]
    )


@pytest.mark.usefixtures("stopped_clock")
async def test_a_feed_that_is_trimmed_meanwhile_leaves_no_doubt(
    db: Database, other: Database, network: FaultyStore
) -> None:
    """The number is free still, but the counter that was to be replaced is another one by then."""
    await other.insert(Employee(id=1))
    CLOCK.advance(KEEP * 2)
    network.plan(Fate.LOST_REQUEST)
    network.meanwhile = lambda: trim_feed(connection_of(other), "FedStaff", "Sales", KEEP)

    await db.insert(Employee(id=2))
    (change,) = await changes_of(db)
    assert change.number == 2


async def test_who_loses_to_the_same_entity_is_told(db: Database, other: Database, network: FaultyStore) -> None:
    """The number was lost, and the entity too: it is not inserted a second time, and not noted."""
    await other.insert(Employee(id=1))
    network.plan(Fate.LOST_REQUEST)
    network.meanwhile = lambda: other.insert(Employee(id=3))

    with pytest.raises(EntityExists):
        await db.insert(Employee(id=3))
    assert await noted(db) == [["insert empid_000001"], ["insert empid_000003"]]


async def test_who_always_loses_is_told_in_the_end(other: Database, network: FaultyStore) -> None:
    """Nothing is written then."""
    numbers = iter(range(100, 10_000))

    class Busy(FaultyStore):
        async def _arrive(
            self, table: str, operations: tuple[Operation, ...], *, transaction: bool
        ) -> list[str | None]:
            await other.insert(Employee(id=next(numbers)))
            return await super()._arrive(table, operations, transaction=transaction)

    backend = FaultyBackend()
    backend.tables = Busy(network.store)
    async with Database(backend, retry=QUICK) as losing:
        await losing.create_tables(Employee)
        with pytest.raises(
            LostRace, match="others wrote the rows that count, list or note it first, 50 times in a row"
        ):
            await losing.insert(Employee(id=1))
    assert ["insert empid_000001"] not in await noted(other)


async def check(db: Database, made: Counter[int]) -> None:
    """Each entity is inserted once, and updated as often as its count says: the feed says the same."""
    seen = Counter(each for change in await noted(db) for each in change)
    stored = await db.select(Employee).where(Employee.department == "Sales").all()
    expected = Counter[str]()
    for each in stored:
        expected[f"insert empid_{each.id:06d}"] = 1
        expected[f"update empid_{each.id:06d}"] = each.count
        assert each.count >= made[each.id]
    assert seen == +expected


async def write(db: Database, seed: int, steps: int, made: Counter[int]) -> None:
    draw = random.Random(seed)
    for number in range(steps):
        try:
            if draw.random() < 0.4:
                await db.insert(Employee(id=seed * 1_000 + number))
            elif draw.random() < 0.5:
                target = draw.randrange(4)
                await db.modify(Employee, lambda each: each.evolve(count=each.count + 1), department="Sales", id=target)
                made[target] += 1
            else:
                async with db.transaction() as tx:
                    tx.insert(Employee(id=seed * 1_000 + number))
                    tx.insert(Employee(id=seed * 1_000 + number + 500))
        except (OutcomeUnknown, Unavailable, LostRace, TransactionFailed) as error:
            if isinstance(error, TransactionFailed) and not isinstance(
                error.__cause__, (OutcomeUnknown, Unavailable, LostRace)
            ):
                raise


@seeds(2, 200)
async def test_eight_writers_over_a_bad_network(db: Database, network: FaultyStore, seed: int) -> None:
    """Whatever is lost, late or delivered twice: a change is noted if it was made, and once."""
    made = Counter[int]()
    for number in range(4):
        await db.insert(Employee(id=number))
    draw = random.Random(seed)
    fates = [*FATES, *[Fate.FINE] * 12]

    async def deliver_now_and_then() -> None:
        while True:
            await asyncio.sleep(0.002)
            await network.deliver()

    network.fates = iter(lambda: draw.choice(fates), None)
    courier = asyncio.create_task(deliver_now_and_then())
    await asyncio.gather(*(write(db, seed * 100 + each + 1, 8, made) for each in range(8)))
    courier.cancel()
    network.fates = iter(())
    await network.deliver()

    await check(db, made)
    assert (await db.audit(Employee)).found == 0
    assert len(await changes_of(db)) > 30
