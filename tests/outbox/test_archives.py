"""
Archives to blobs and other databases: what is copied, what is deleted, and what faults and other writers leave of it.
"""

import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress

import attrs
import pytest

from tableorm import NotRead, PreconditionFailed, TableOrmError
from tableorm.connection.connection import connection_of
from tableorm.outbox import worker as worker_module
from tableorm.outbox.decision import Decision, delete_decision, settle_decision
from tableorm.outbox.overview import find_pending, ring_again
from tableorm.protocol.codes import Fault
from tableorm.stores import CLOCK, Row
from tests.faults import Fate, FaultyStore
from tests.outbox.archives import HOUR, Order, World
from tests.torture import every, seeds

ORDER = Order.key(customer="ann", id=1)


PLACES = ("blob", "database")
FATES = [fate for fate in Fate if fate is not Fate.FINE]
MOST_REQUESTS = 34
"""More writes than archiving an order sends, with its messages and decision rows."""


@pytest.fixture(autouse=True)
def quick(quick_workers: None, stopped_clock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "_PUT_BACK_SECONDS", 0)


@pytest.fixture(params=PLACES)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with World(request.param) as world:
        yield world


# Without faults


async def change(world: World) -> Row:
    """Change the order, and read its row."""
    await world.db.modify(ORDER, lambda order: order.evolve(code="d"))
    return (await world.rows())["order_001"]


async def test_unsaved_changes_are_archived(world: World) -> None:
    """Changes that were not saved are saved by the call; later ones of others are archived too."""
    world.order.total = 3.5
    await world.archive()
    now = await change(world)
    await world.recover()

    assert (now["total"], now["code"]) == (3.5, "d")
    await world.check_archived(now)


async def test_an_entity_that_has_changed(world: World) -> None:
    """The row must be as it was read; one that was never read has no ETag."""
    now = await change(world)
    with pytest.raises(PreconditionFailed, match="archive of Order"):
        await world.archive()
    with pytest.raises(NotRead, match="archive of Order"):
        await world.db.archive(Order(customer="ann", id=2), to=world.to)
    await world.recover()

    await world.check_kept(now)


async def test_an_entity_that_is_gone(world: World) -> None:
    """An entity that was deleted before a worker came is not archived; nor one that was moved to another key."""
    await world.archive()
    await world.db.delete(world.order, if_match="*")
    await world.recover()

    await world.check_kept(None)


async def test_an_entity_of_others_is_archived(world: World) -> None:
    """What is archived is what has the key when a worker comes, also if it was deleted and inserted anew."""
    await world.archive()
    await world.db.delete(world.order, if_match="*")
    await insert_another(world)
    now = (await world.rows())["order_001"]
    await world.recover()

    await world.check_archived(now)


async def test_archived_twice(world: World) -> None:
    """Two calls for one entity archive it once."""
    before = (await world.rows())["order_001"]
    again = await world.db.get(ORDER)
    await world.archive()
    with suppress(PreconditionFailed):
        await world.db.archive(again, to=world.to)
    await world.archive()
    await world.recover()

    await world.check_archived(before)


async def test_a_message_that_comes_twice(world: World) -> None:
    """A second message for what is done already leaves another entity alone that has the key since."""
    await world.archive()
    (left,) = [each async for each in find_pending(connection_of(world.db), "ArchiveShop")]
    await world.recover()
    await insert_another(world)
    await ring_again(connection_of(world.db), left)
    await world.recover()

    assert (await world.rows())["order_001"]["code"] == "new"
    await world.check()


# Workers that are slow


async def insert_another(world: World) -> None:
    await world.db.insert(Order(customer="ann", id=1, code="new"))


async def end_decision(world: World, decision: Decision) -> None:
    """End what a worker has done: delete the decision row; then a void one comes from somebody who was late."""
    connection = connection_of(world.db)
    await delete_decision(connection, "ArchiveShop", attrs.evolve(decision, etag="*"))
    await settle_decision(connection, "ArchiveShop", decision.partition_key, decision.token)


@pytest.mark.parametrize("then", [None, insert_another])
@pytest.mark.parametrize("void", [False, True])
async def test_a_worker_that_is_late(then: Callable[[World], Awaitable[None]] | None, void: bool) -> None:
    """A worker that copies when another one has done it all leaves the copy as it is, and another entity alone."""
    async with World("blob") as world:
        await world.archive()
        decision = await world.begun()

        async def overtake() -> None:
            await world.carry_out(decision)
            if void:
                await end_decision(world, decision)
            if then is not None:
                await then(world)

        world.there.before = overtake
        await world.carry_out(decision)
        await world.recover()

        await world.check()
        assert ("order_001" in await world.rows()) == (then is not None)


async def test_a_row_of_others_in_the_other_database() -> None:
    """It stays, the order too, and the error says what to do; then the archive goes on."""
    async with World("database") as world:
        await world.other.insert(Order(customer="ann", id=1, code="other"))
        before = (await world.rows())["order_001"]
        await world.archive()
        async with world.db.worker(Order, world.to, tries=1) as worker:
            await worker.drain()
        (left,) = [each async for each in find_pending(connection_of(world.db), "ArchiveShop")]
        assert "Conflict: archive of Order ('ann', 'order_001') in table ArchiveShop: the other database has a" in str(
            left.decision.error
        )
        assert "order_001" in await world.rows() and len(await world.copies()) == 1
        await world.other.delete(ORDER, if_match="*")
        await ring_again(connection_of(world.db), left)
        await world.recover()

        await world.check_archived(before)


# Faults


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("place", "at", "number", "fate"),
    [
        *every(23, itertools.product(PLACES, ["tables"], range(MOST_REQUESTS), [*FATES, None])),
        *every(13, itertools.product(PLACES, ["archive"], range(8), FATES)),
    ],
)
async def test_a_fault_at_each_request(place: str, at: str, number: int, fate: Fate | None) -> None:
    """
    One request meets a fault, to the tables or to the archive, or the workers crash after it: the order is archived
    once, or not at all.
    """
    async with World(place) as world:
        before = (await world.rows())["order_001"]
        store = world.tables if at == "tables" else world.there
        store.plan(*[Fate.FINE] * number, Fate.FINE if fate is None else fate)
        await world.begin()
        CLOCK.advance(HOUR)
        with suppress(TableOrmError):
            await world.work(400, number if fate is None else 1_000_000)
        await world.recover()
        if "order_001" in await world.rows():
            assert at == "tables" and number < 3
            await world.check_kept(before)
        else:
            await world.check_archived(before)


OTHERS = ("change", "delete", "insert anew")


async def write_meanwhile(world: World, what: str) -> None:
    """Write as others do, who get an error where they come too late."""
    with suppress(TableOrmError):
        if what == "change":
            await world.db.modify(ORDER, lambda order: order.evolve(code=order.code + "x"))
        else:
            await world.db.delete(ORDER, if_match="*", missing_ok=True)
        if what == "insert anew":
            await insert_another(world)


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("place", "what", "number", "at"), every(11, itertools.product(PLACES, OTHERS, range(8), ("tables", "archive")))
)
async def test_others_write_meanwhile(place: str, what: str, number: int, at: str) -> None:
    """Others write the entity after any write of a worker, before that knows of its end: none of it is lost."""
    async with World(place) as world:
        await world.archive()
        store = world.tables if at == "tables" else world.there
        store.fates = notice(store, number, lambda: write_meanwhile(world, what))
        await world.work(600)
        await world.recover()

        await world.check()
        assert what != "change" or "order_001" not in await world.rows()


def notice(store: FaultyStore, number: int, write: Callable[[], Awaitable[object]]) -> Iterator[Fate]:
    """Yield fates that are fine, and let others write after the write of this number."""
    for _ in range(number):
        yield Fate.FINE
    store.meanwhile = write
    while True:
        yield Fate.FINE


@seeds(1, 400)
async def test_a_network_that_fails(seed: int) -> None:
    """Requests are lost, late or doubled, workers crash, and others write: each order is somewhere, as it was last."""
    chance = random.Random(seed)
    async with World(chance.choice(PLACES)) as world:
        noise = [*[Fate.FINE] * 8, *Fate]
        world.tables.fates = iter(lambda: chance.choice(noise), None)
        world.there.fates = iter(lambda: chance.choice(noise), None)
        await world.begin()
        for _ in range(chance.randint(0, 3)):
            CLOCK.advance(HOUR)
            with suppress(TableOrmError, Fault):
                await world.work(chance.randint(0, 200))
            with suppress(TableOrmError, Fault):
                await write_meanwhile(world, "change")
            if chance.random() < 0.5:
                await world.tables.deliver()
        await world.recover()

        await world.check(extra=True)
        assert ("order_001" in await world.rows()) + len(await world.copies()) == 1
