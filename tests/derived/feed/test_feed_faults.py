"""
Change feeds over a network that loses requests and replies, and with many writers: each change is noted once.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from tableorm import (
    Database,
    Entity,
    EntityExists,
    EntityNotFound,
    Feed,
    Index,
    LostRace,
    Mapped,
    OutcomeUnknown,
    PreconditionFailed,
    TransactionFailed,
    Unavailable,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.derived.feed.rows import trim_feed
from tableorm.stores import CLOCK, Operation
from tests.derived.feed.staff import KEEP, Employee, changes_of, insert, noted
from tests.faults import Fate, FaultyStore
from tests.outbox.network import FATES, connected
from tests.torture import seeds
from tests.writes.conftest import network
from tests.writes.lossy import other

__all__ = ["network", "other"]  # fixtures


@pytest.fixture
async def db(network: FaultyStore) -> AsyncIterator[Database]:
    async with connected(network) as database:
        await database.create_tables(Employee)
        yield database


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("fate", FATES)
async def test_a_write_beside_that_of_another_is_noted_once(
    db: Database, other: Database, network: FaultyStore, fate: Fate, *, first: bool
) -> None:
    """Whoever has the number in the end, the row under it says whose transaction it was."""
    if not first:
        await insert(other, 1)
    network.plan(fate)
    network.meanwhile = lambda: insert(other, 2)

    await insert(db, 3)
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


async def test_a_delete_is_proven_when_many_others_went_on(db: Database, other: Database, network: FaultyStore) -> None:
    """The counter knows the newest writers alone, and the row of the change the one that made it."""
    ken = Employee(id=1)
    await db.insert(ken)

    async def go_on() -> None:
        await insert(other, *range(2, 12))

    network.plan(Fate.LOST_REPLY)
    network.meanwhile = go_on
    await db.delete(ken)

    assert (await noted(db))[:3] == [["insert empid_000001"], ["delete empid_000001"], ["insert empid_000002"]]


@pytest.mark.usefixtures("stopped_clock")
async def test_a_feed_that_is_trimmed_meanwhile_leaves_no_doubt(
    db: Database, other: Database, network: FaultyStore
) -> None:
    """The number is free still, but the counter that was to be replaced is another one by then."""
    await insert(other, 1)
    CLOCK.advance(KEEP * 2)
    network.plan(Fate.LOST_REQUEST)
    network.meanwhile = lambda: trim_feed(connection_of(other), "FedStaff", "Sales", KEEP)

    await insert(db, 2)
    (change,) = await changes_of(db)
    assert change.number == 2


async def test_who_loses_to_the_same_entity_is_told(db: Database, other: Database, network: FaultyStore) -> None:
    """The number was lost, and the entity too: it is not inserted a second time, and not noted."""
    await insert(other, 1)
    network.plan(Fate.LOST_REQUEST)
    network.meanwhile = lambda: insert(other, 3)

    with pytest.raises(EntityExists):
        await insert(db, 3)
    assert await noted(db) == [["insert empid_000001"], ["insert empid_000003"]]


async def test_who_always_loses_is_told_in_the_end(other: Database, network: FaultyStore) -> None:
    """Nothing is written then."""
    numbers = iter(range(100, 10_000))

    class Busy(FaultyStore):
        async def _arrive(
            self, table: str, operations: tuple[Operation, ...], *, transaction: bool
        ) -> list[str | None]:
            await insert(other, next(numbers))
            return await super()._arrive(table, operations, transaction=transaction)

    async with connected(Busy(network.store)) as losing:
        await losing.create_tables(Employee)
        with pytest.raises(
            LostRace, match="others changed its row, or a count, list or feed that it belongs to, 50 times in a row"
        ):
            await insert(losing, 1)
    assert ["insert empid_000001"] not in await noted(other)


class Placed(Entity, table="FedPlaces", partition_key="{part}", row_key="place_{id:03d}"):
    part: Mapped[str] = field(default="p")
    id: Mapped[int]
    city: Mapped[str] = field(default="a")

    by_city = Index(partition_key="city_{city}", row_key="at_{part}_{id:03d}", unique=True, consistency="eventual")
    changes = Feed(keep=KEEP)


@pytest.mark.parametrize("fate", FATES)
async def test_a_write_that_reserves_a_value_is_noted_once(
    db: Database, other: Database, network: FaultyStore, fate: Fate
) -> None:
    """Its decision row is in the same transaction, and tells too whether that was applied."""
    await db.create_tables(Placed)
    place = Placed(id=1)
    await db.insert(place)
    place.city = "b"
    network.plan(Fate.FINE, fate)  # the first request reserves the value
    network.meanwhile = lambda: other.insert(Placed(id=2, city="c"))

    await db.save(place)
    await network.deliver()

    found = [change async for change in db.changes(Placed, part="p")]
    assert [change.number for change in found] == [1, 2, 3]
    assert Counter((each.verb, each.key.row_key) for change in found for each in change.entities) == Counter(
        [("insert", "place_001"), ("insert", "place_002"), ("update", "place_001")]
    )


# Exploration


async def check(db: Database, made: Counter[int]) -> None:
    """
    What the feed says, step by step, leads to what is stored: it inserts only what is not there, and each entity was
    updated as often as its count says.
    """
    replayed = dict[str, int]()
    for verb, row_key in (each.split() for change in await noted(db) for each in change):
        assert (row_key in replayed) is (verb != "insert")
        if verb == "delete":
            del replayed[row_key]
        else:
            replayed[row_key] = replayed.get(row_key, -1) + 1
    stored = await db.select(Employee).where(Employee.department == "Sales").all()
    assert replayed == {each.key.row_key: each.count for each in stored}
    assert all(each.count >= made[each.id] for each in stored)


async def write_once(db: Database, draw: random.Random, number: int, made: Counter[int]) -> None:
    """Write some entities under keys that begin at a number, or update one that all writers share, or delete some."""
    match draw.randrange(8):
        case 0 | 1:
            await insert(db, number)
        case 2:
            shared = draw.randrange(4)
            one = await db.get(Employee, department="Sales", id=shared)
            one.count += 1
            await db.save(one)  # calls of `modify` at the same time are one change
            made[shared] += 1
        case 3:
            async with db.transaction() as tx:
                tx.insert(Employee(id=number, mail=str(number)))
                tx.insert(Employee(id=number + 1))
        case 4:
            async with db.bulk(errors="report") as bulk:
                for each in range(number, number + 5):
                    await bulk.insert(Employee(id=each, mail=f"bulk{each}"))
        case 5:
            await db.delete(Employee, department="Sales", id=number - draw.randrange(20), if_match="*", missing_ok=True)
        case 6:
            earlier = await db.get_or_none(Employee, department="Sales", id=number - 10)
            if earlier is not None:
                await db.move(earlier, id=number + 7)
        case _:
            several = db.select(Employee).where(Employee.department == "Sales", Employee.id > number - 30)
            await several.where(Employee.id < number).limit(3).delete()


async def write(db: Database, draw: random.Random, first: int, steps: int, made: Counter[int]) -> None:
    """Write again and again; what fails for the network may or may not be written, and may arrive later."""
    failures = OutcomeUnknown, Unavailable, LostRace, EntityNotFound, PreconditionFailed
    for step in range(steps):
        try:
            await write_once(db, draw, first + step * 10, made)
        except failures:
            pass
        except TransactionFailed as error:
            if not isinstance(error.__cause__, failures):
                raise


@seeds(1, 200)
async def test_eight_writers_over_a_bad_network(db: Database, network: FaultyStore, seed: int) -> None:
    """Whatever is lost, late or delivered twice: a change is noted if it was made, once, and in order."""
    made = Counter[int]()
    await insert(db, *range(4))
    draw = random.Random(seed)
    fates = [*FATES, *[Fate.FINE] * 12]

    async def deliver_now_and_then() -> None:
        while True:
            await asyncio.sleep(0.002)
            await network.deliver()

    network.fates = iter(lambda: draw.choice(fates), None)
    courier = asyncio.create_task(deliver_now_and_then())
    # Two databases, whose writers do not wait for each other.
    async with connected(network) as second:
        writers = [(each, (db, second)[each % 2]) for each in range(1, 9)]
        await asyncio.gather(
            *(write(one, random.Random(f"{seed} {each}"), each * 1000, 10, made) for each, one in writers)
        )
    courier.cancel()
    network.fates = iter(())
    await network.deliver()

    await check(db, made)
    assert (await db.audit(Employee)).found == 0
    assert len(await changes_of(db)) > 30
