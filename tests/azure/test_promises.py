"""
The promises of docs/writing/lost-replies.md, through the mapper and the SDK's transport, on Azurite behind a proxy that
loses.

What is lost here are bytes on sockets; what happens under every order of loss is tested in `tests/database`.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from tableorm import (
    BulkReport,
    Conflict,
    Database,
    Entity,
    EntityExists,
    EntityNotFound,
    Mapped,
    OutcomeUnknown,
    PreconditionFailed,
    RetryPolicy,
    TableOrmError,
    TransactionFailed,
    Unavailable,
    connect,
    field,
)
from tests.azure.proxy import FaultProxy, Loss
from tests.azurite import KEY, Azurite

PATIENT = RetryPolicy(deadline=60.0, attempts=50, base=0.0)


class Plain(Entity, table="Promises", partition_key="{group}", row_key="plain_{id}"):
    group: Mapped[str] = field(default="p")
    id: Mapped[str] = field(default="a")
    count: Mapped[int] = field(default=0)
    owner: Mapped[str | None] = field(default=None)


class Known(Entity, table="Promises", partition_key="{group}", row_key="known_{id}", write_token=True):
    group: Mapped[str] = field(default="p")
    id: Mapped[str] = field(default="a")
    count: Mapped[int] = field(default=0)
    owner: Mapped[str | None] = field(default=None)


@pytest.fixture
async def proxy(azurite: Azurite) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(azurite.table) as proxy:
        yield proxy


def behind(proxy: FaultProxy) -> Database:
    """A client by way of the proxy."""
    return connect(proxy.url, key=KEY, retry=PATIENT)


@pytest.fixture
async def db(proxy: FaultProxy) -> AsyncIterator[Database]:
    async with behind(proxy) as database:
        yield database


@pytest.fixture
async def truth(azurite: Azurite) -> AsyncIterator[Database]:
    """Another client, whose own network is sound."""
    async with connect(azurite.connection_string) as database:
        await database.create_tables(Plain)
        yield database
        await database.drop_table("Promises")


def add(entity: Plain | Known) -> None:
    entity.count += 1


VERBS = ["insert", "save", "merge", "replace", "remove", "modify", "transaction", "guarded"]


@pytest.mark.one_of(7)
@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER, Loss.HALF_AN_ANSWER, Loss.SLOW, Loss.LATE])
@pytest.mark.parametrize("verb", VERBS)
async def test_a_model_with_tokens_decides(
    db: Database, truth: Database, proxy: FaultProxy, verb: str, loss: Loss
) -> None:
    """Whatever is lost, the write happens once, the caller hears so, and goes on with the ETag of what was written."""
    known = Known(owner="x")
    if verb != "insert":
        await db.insert(known)
        known.count = 0 if verb in ("modify", "guarded") else 1
    # A read before the write arrives; the write meets the loss.
    proxy.losses += [Loss.NOTHING] * (verb in ("modify", "guarded")) + [loss]
    match verb:
        case "remove":
            known.owner = None
            await db.save(known)
        case "modify":
            assert (await db.modify(Known, add, id="a", group="p")).count == 1
        case "transaction":
            async with db.transaction() as tx:
                tx.save(known)
                tx.insert(Plain())
        case "guarded":
            async with db.transaction() as tx:
                await tx.get(known.key, guard=True)
                tx.upsert(Plain())
        case _:
            await getattr(db, verb)(known)
    assert proxy.losses == []
    assert await proxy.deliver() == (loss is Loss.LATE)

    stored = await truth.get(Known, id="a", group="p")
    assert (stored.count, stored.owner) == (int(verb not in ("insert", "guarded")), None if verb == "remove" else "x")
    assert (await truth.get_or_none(Plain, id="a", group="p") is not None) == (verb in ("transaction", "guarded"))
    if verb not in ("modify", "guarded"):
        assert known.etag == stored.etag
        known.count += 5
        await db.save(known)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("loss", [Loss.ANSWER, Loss.HALF_AN_ANSWER])
@pytest.mark.parametrize("verb", ["insert", "save", "merge", "replace", "modify", "delete", "transaction"])
async def test_a_plain_model_says_that_it_does_not_know(
    db: Database, truth: Database, proxy: FaultProxy, verb: str, loss: Loss
) -> None:
    """
    The write was done and its answer lost: nothing on the row proves whose it is, and that is said, with the row.
    """
    plain = Plain(owner="x")
    if verb != "insert":
        await db.insert(plain)
    plain.count = 1
    proxy.losses += [Loss.NOTHING] * (verb == "modify") + [loss]

    async def act() -> None:
        match verb:
            case "modify":
                await db.modify(Plain, add, id="a", group="p")
            case "transaction":
                async with db.transaction() as tx:
                    tx.save(plain)
            case _:
                await getattr(db, verb)(plain)

    with pytest.raises(OutcomeUnknown, match="a reply was lost") as caught:
        await act()
    now = await truth.get_or_none(Plain, id="a", group="p")
    assert caught.value.found == now
    assert (None if now is None else now.count) == (None if verb == "delete" else 1)


@pytest.mark.parametrize("verb", ["insert", "save", "merge", "replace", "modify", "delete", "transaction"])
async def test_what_never_arrived_is_sent_again(db: Database, truth: Database, proxy: FaultProxy, verb: str) -> None:
    """Also of a plain model: the second request succeeds, so that the first cannot have."""
    plain = Plain(owner="x")
    if verb != "insert":
        await db.insert(plain)
    plain.count = 1
    proxy.losses += [Loss.NOTHING] * (verb == "modify") + [Loss.REQUEST]
    match verb:
        case "modify":
            await db.modify(Plain, add, id="a", group="p")
        case "transaction":
            async with db.transaction() as tx:
                tx.save(plain)
        case _:
            await getattr(db, verb)(plain)

    now = await truth.get_or_none(Plain, id="a", group="p")
    assert (None if now is None else now.count) == (None if verb == "delete" else 1)


def bad_network(seed: int, count: int = 400) -> list[Loss]:
    """Of three requests about one meets a loss."""
    kinds = [Loss.NOTHING] * 8 + [Loss.REQUEST, Loss.ANSWER, Loss.HALF_AN_ANSWER, Loss.SLOW, Loss.LATE]
    chance = random.Random(seed)
    return [chance.choice(kinds) for _ in range(count)]


async def outcome(call: Awaitable[object]) -> str:
    """How a write ended for its caller."""
    try:
        await call
    except OutcomeUnknown:
        return "unknown"
    except (EntityExists, EntityNotFound, PreconditionFailed, TransactionFailed, Conflict, Unavailable):
        return "not"
    return "done"


async def late_requests(proxy: FaultProxy, running: "asyncio.Future[Any]") -> None:
    """Let what is late arrive among the others."""
    while not running.done():
        await asyncio.sleep(0.01)
        await proxy.deliver()
    await proxy.deliver()


@pytest.mark.one_of(3)
@pytest.mark.parametrize("model", [Plain, Known])
@pytest.mark.parametrize("seed", range(3))
async def test_modify_loses_no_update(
    db: Database, truth: Database, proxy: FaultProxy, seed: int, model: type[Plain] | type[Known]
) -> None:
    """Four tasks of two clients count: the sum is what they were told, and what they were told to be unknown."""
    await truth.insert(model())
    proxy.losses += bad_network(seed)
    async with behind(proxy) as other:

        async def count(client: Database) -> Counter[str]:
            return Counter([await outcome(client.modify(model, add, id="a", group="p")) for _ in range(8)])

        running = asyncio.gather(*(count(client) for client in (db, db, other, other)))
        await late_requests(proxy, running)
        told = sum(await running, Counter[str]())
    proxy.losses.clear()

    total = (await truth.get(model, id="a", group="p")).count
    assert told["done"] <= total <= told["done"] + told["unknown"]
    assert told.total() == 32 and told["done"] > 0


@pytest.mark.one_of(3)
@pytest.mark.parametrize("seed", range(3))
async def test_transactions_are_neither_lost_nor_doubled(
    db: Database, truth: Database, proxy: FaultProxy, seed: int
) -> None:
    """
    Each inserts a row and counts it, under the ETag of the counter: at the end there are as many rows as are counted,
    all of those that were told to be done, and none of those that were told not to be.
    """
    await truth.insert(Known(id="counter"))
    proxy.losses += bad_network(seed)
    told: dict[str, str] = {}

    async def transact(name: str) -> None:
        async with db.transaction() as tx:
            tx.insert(Plain(id=name))
            await tx.modify(Known, add, id="counter", group="p")

    async def work(task: int) -> None:
        for number in range(8):
            name = f"{task}_{number}"
            told[name] = await outcome(transact(name))

    running = asyncio.gather(*(work(task) for task in range(4)))
    await late_requests(proxy, running)
    await running
    proxy.losses.clear()

    there = {each.id for each in await truth.select(Plain).where(Plain.group == "p").all()}
    assert (await truth.get(Known, id="counter", group="p")).count == len(there)
    assert {name for name, end in told.items() if end == "done"} <= there
    assert there.isdisjoint(name for name, end in told.items() if end == "not")
    assert "done" in told.values()


@pytest.mark.one_of(3)
@pytest.mark.parametrize("model", [Plain, Known])
@pytest.mark.parametrize("seed", range(3))
async def test_bulk_reports_the_truth(
    db: Database, truth: Database, proxy: FaultProxy, seed: int, model: type[Plain] | type[Known]
) -> None:
    """What is not reported to have failed is there; what was refused is not; the rest is told to be unknown."""
    groups = [f"g{number}" for number in range(6)]
    for group in groups:  # in the way of an insert
        await truth.insert(model(group=group, id="7", owner="other"))
    proxy.losses += bad_network(seed, 60)

    async def work() -> BulkReport:
        async with db.bulk(concurrency=4, errors="report") as bulk:
            for number in range(40):
                for group in groups:
                    await bulk.insert(model(group=group, id=str(number), owner="mine"))
        return bulk.report

    running = asyncio.ensure_future(work())
    await late_requests(proxy, running)
    found = await running
    proxy.losses.clear()
    assert found.written + found.failures == 240 and found.failures == len(found.failed)
    mine = {
        (each.group, each.id)
        for group in groups
        for each in await truth.select(model).where(model.group == group).all()
        if each.owner == "mine"
    }
    ends: dict[tuple[str, str], TableOrmError] = {}
    for failure in found.failed:
        entity = failure.entity
        assert isinstance(entity, Plain | Known)
        ends[entity.group, entity.id] = failure.error
    given = {(group, str(number)) for group in groups for number in range(40)}
    assert given - ends.keys() <= mine
    assert mine.isdisjoint(key for key, error in ends.items() if not isinstance(error, OutcomeUnknown))
    assert {(group, "7") for group in groups} <= ends.keys()
    unknown = {key for key, error in ends.items() if isinstance(error, OutcomeUnknown)}
    assert model is Plain or unknown <= {key for key in given if key not in mine}
