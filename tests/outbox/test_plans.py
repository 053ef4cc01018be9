"""
Every plan on a network that fails: what commits is carried out, by the writer or by a worker, and nothing else.

Each write of the writer, and of a worker that comes after it, meets each fault; and its sender dies there.
"""

import asyncio
import gc
import random
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product, repeat
from typing import Any

import pytest

from tableorm import BulkFailed, Database, Entity, OutcomeUnknown, TableOrmError
from tableorm.connection.connection import connection_of
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.protocol.codes import Fault
from tableorm.stores import CLOCK, RetryPolicy, TableStore
from tableorm.testing import MemoryStore
from tests.faults import Fate, FaultyStore
from tests.outbox.clean_run import CleanRun, die_after_commit, prepared, recovered, run_plan, worker_writes
from tests.outbox.members import Member
from tests.outbox.network import FATES, HOUR, Death, Jittery, LateWrite, Unsteady, connected, failing_at
from tests.outbox.plans import PLANS, Plan, archive, move, move_on, reinsert
from tests.outbox.staff import (
    CITIES,
    MODELS,
    Content,
    Former,
    Person,
    content_of,
    find_misread,
    find_problems,
    recover,
)
from tests.torture import Rounds, seeds

pytestmark = pytest.mark.usefixtures("quick_workers", "stopped_clock")

AnyFault = Fate | Death
FAULTS: list[AnyFault] = [*FATES, *Death]
COMES_LATE = (Fate.LATE, Fate.TWICE, Death.LATE)
CASES = [pytest.param(*case, id=f"{case[0].name}-{case[1]}".lower()) for case in product(PLANS, FAULTS)]


def places(plan: Plan, fault: AnyFault, writes: int, rounds: Rounds) -> Iterator[tuple[int, bool]]:
    """
    Return the numbers of the writes that meet a fault, some of them, others for another fault; and whether what comes
    late arrives after the workers that follow, or before them.
    """
    step = rounds(17, 1)
    numbers = range((PLANS.index(plan) + 2 * FAULTS.index(fault)) % step, writes, step)
    return product(numbers, (False, True) if fault in COMES_LATE else (False,))


async def arrive_and_recover(network: FaultyStore, fault: AnyFault, *, last: bool) -> list[str]:
    """Let everything arrive that is under way, before workers or as the last, and return what is wrong in the end."""
    problems = await recovered(network.store, extra=fault in COMES_LATE) if last else []
    await network.deliver()
    return problems + await recovered(network.store, extra=fault in COMES_LATE)


@pytest.mark.one_of(9)
@pytest.mark.parametrize(("plan", "fault"), CASES)
async def test_a_writer_that_meets_a_fault(plan: Plan, fault: AnyFault, rounds: Rounds) -> None:
    """What it has committed is carried out, what it has not is not there, and what it has said is so."""
    run = await run_plan(plan)
    for at, last in places(plan, fault, run.writes, rounds):
        store = await prepared(plan)
        network = failing_at(store, at, fault)
        error: Exception | None = None
        async with connected(network) as db:
            try:
                await plan.act(db)
            except Exception as raised:  # noqa: BLE001 - what a dead writer would have said, nobody hears
                error = raised
        problems = await arrive_and_recover(network, fault, last=last)
        done = error is None and fault not in COMES_LATE
        nothing = fault is Death.BEFORE and at < plan.commit
        begun = fault is Death.AFTER and at >= plan.commit - 1
        problems += run.find_loss(await content_of(store), begun=begun, done=done, nothing=nothing)
        if error is not None and fault in (Fate.BUSY, Fate.TWICE):
            problems.append(f"it has failed: {error}")
        if not isinstance(error, TableOrmError | None) and not isinstance(fault, Death):
            problems.append(f"it has raised {error!r}")

        assert problems == [], f"write {at} of {run.writes}, {last=}: {error!r}"


@pytest.mark.one_of(9)
@pytest.mark.parametrize(("plan", "fault"), CASES)
async def test_a_worker_that_meets_a_fault(plan: Plan, fault: AnyFault, rounds: Rounds) -> None:
    """The next one finishes what it has begun, although the writer has died after its commit."""
    run, writes = await run_plan(plan), await worker_writes(plan)
    for at, last in places(plan, fault, writes, rounds):
        store = await prepared(plan)
        await die_after_commit(store, plan)
        CLOCK.advance(HOUR)
        network = failing_at(store, at, fault)
        async with connected(network) as db:
            with suppress(Exception):  # it is dead
                await recover(db)
        problems = await arrive_and_recover(network, fault, last=last)
        problems += run.find_loss(await content_of(store), begun=True)

        assert problems == [], f"write {at} of {writes}, {last=}"


ONCE = RetryPolicy(attempts=1, base=0.0)
"""Each fault is met on the last attempt."""

OUTAGES = ((0, 1), (0, 3), (0, 999), (2, 999), (4, 999))
"""How many requests are fine after the one that met a fault, and how many are rejected then."""

SINGLE_WRITES = [plan for plan in PLANS if plan.act not in (reinsert, move_on)]
"""The plans whose error is of all that they write, or names each entity that it is of."""


def find_untrue(run: CleanRun, error: TableOrmError | None, content: Content) -> list[str]:
    """
    Return what is stored in the end and contradicts the error: by `OutcomeUnknown` anything of the plan may have
    happened, by another error nothing has; that of a bulk says so of each entity by itself.
    """
    if isinstance(error, BulkFailed):
        return _find_untrue_of_bulk(error, run.contents[-1], content)
    return run.find_loss(content, nothing=error is not None and not isinstance(error, OutcomeUnknown))


def _find_untrue_of_bulk(error: BulkFailed, wanted: Content, content: Content) -> list[str]:
    """Return which inserts happened although they have failed, and which did not although they have not failed."""
    failed, unknown = list[list[str]](), list[list[str]]()
    for each in error.report.failed:
        assert isinstance(each.entity, Entity)
        key = each.entity.key
        keys = [key.model.__name__, key.partition_key, key.row_key]
        (unknown if isinstance(each.error, OutcomeUnknown) else failed).append(keys)
    there = [each[:3] for each in content]
    problems = [f"{each} was inserted" for each in failed if each in there]
    kinds = {kind for kind, *_ in [*failed, *unknown]}
    succeeded = [each for each in wanted if each[0] in kinds and each[:3] not in [*failed, *unknown]]
    return problems + [f"{each} is missing" for each in succeeded if each not in content]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("plan", SINGLE_WRITES, ids=[plan.name for plan in SINGLE_WRITES])
async def test_an_error_says_whether_it_may_happen_yet(plan: Plan, rounds: Rounds) -> None:
    """
    What fails by another error than `OutcomeUnknown` has not happened, and never happens: whichever request meets a
    fault, a read or a write, whatever befalls those after it, and whatever workers do then.
    """
    run, network = await run_plan(plan), Unsteady(await prepared(plan))
    async with connected(network, ONCE) as db:
        await plan.act(db)
    cases = list(product(range(network.requests), (Fate.BUSY, Fate.LOST_REPLY, Fate.LATE), OUTAGES))
    step = rounds(31 if plan.act in (move, archive) else 151, 1)
    for at, fate, (fine, refused) in cases[SINGLE_WRITES.index(plan) % step :: step]:
        store = await prepared(plan)
        fates = [*repeat(Fate.FINE, at), fate, *repeat(Fate.FINE, fine), *repeat(Fate.BUSY, refused)]
        broken = Unsteady(store, fates)
        error: TableOrmError | None = None
        async with connected(broken, ONCE) as db:
            try:
                await plan.act(db)
            except TableOrmError as raised:
                error = raised
        problems = await arrive_and_recover(broken, fate, last=fine > 0)
        problems += find_untrue(run, error, await content_of(store))

        assert problems == [], f"request {at} of {network.requests}, {fate}, {fine} fine: {error!r}"


@pytest.mark.parametrize("plan", PLANS, ids=[plan.name for plan in PLANS])
async def test_nothing_of_a_failed_plan_stays_in_memory(plan: Plan) -> None:
    """When nobody has its error any more, the database that it was done by is collected, and what it has written."""
    store = await prepared(plan)

    async def fail(fine: int) -> "weakref.ref[Database]":
        broken = Unsteady(store, [*repeat(Fate.FINE, fine), *repeat(Fate.BUSY, 999)])
        async with connected(broken, ONCE) as db:
            with suppress(TableOrmError):
                await plan.act(db)
        return weakref.ref(db)

    databases = [await fail(fine) for fine in range(8)]
    for _ in range(3):
        # The event loop holds tasks until their callbacks have run, and closes generators that are collected.
        await asyncio.sleep(0)
        gc.collect()

    assert [each() for each in databases] == [None] * 8


async def set_back(db: Database) -> None:
    """Write what plans begin with, whatever they have made of it."""
    await db.upsert(Person(team="red", id=1, name="Ann", city="Oslo"), "replace")
    await db.upsert(Former(year=2025, team="red", id=1, name="Ann", city="Oslo"), "replace")
    await db.delete(Member.key(town="Bern", id=2), if_match="*", missing_ok=True)  # who may have the address
    await db.upsert(Member(town="Bern", id=1, email="a@x"), "replace")


@pytest.mark.one_of(5)
@pytest.mark.parametrize("role", ["writer", "worker"])
@pytest.mark.parametrize("plan", PLANS, ids=[plan.name for plan in PLANS])
async def test_a_request_that_later_changes_overtake(plan: Plan, role: str, rounds: Rounds) -> None:
    """A request of who has died changes nothing that was made right for a later change, when it arrives after that."""
    writes = (await run_plan(plan)).writes if role == "writer" else await worker_writes(plan)
    for at in range(PLANS.index(plan) % rounds(13, 1), writes, rounds(13, 1)):
        store = await prepared(plan)
        if role == "worker":
            await die_after_commit(store, plan)
            CLOCK.advance(HOUR)
        network = failing_at(store, at, Death.LATE)
        async with connected(network) as db:
            with suppress(Exception):  # it is dead
                await (plan.act(db) if role == "writer" else recover(db))
        problems = await recovered(store)
        async with connected(store) as db:
            await set_back(db)
        await network.deliver()
        problems += await recovered(store, extra=True)

        assert problems == [], f"write {at} of {writes}"


@pytest.mark.one_of(3)
@pytest.mark.parametrize("plan", PLANS, ids=[plan.name for plan in PLANS])
async def test_messages_that_come_again(plan: Plan) -> None:
    """A message is worked on by two workers at the same time, and after all is done; nothing is done twice."""
    run = await run_plan(plan)
    store = await prepared(plan)
    await die_after_commit(store, plan)
    CLOCK.advance(HOUR)
    async with connected(store) as first, connected(store) as second:
        queues = outbox_queues(connection_of(first))
        bodies = [message.body for message in await queues.peek(OUTBOX, 32)]
        await put_all(first, bodies)
        await asyncio.gather(recover(first), recover(second))
        content = await content_of(store)
        await put_all(first, bodies)

        assert bodies
        assert await recovered(store) == run.find_loss(content, begun=True) == []
        assert await content_of(store) == content


async def put_all(db: Database, bodies: Sequence[bytes]) -> None:
    for body in bodies:
        await outbox_queues(connection_of(db)).put(OUTBOX, body)


@pytest.mark.parametrize("name", ["by_city", "by_name", "in_city"])
async def test_an_entry_that_comes_too_late(name: str) -> None:
    """After its entity was deleted nobody looks at it again: no read returns it, and an audit takes it out."""
    store = await prepared(PLANS[0])
    network = LateWrite(store, lambda _, row: row.get("EntityType") == f"Person#{name}")
    async with connected(network) as db:
        await PLANS[0].act(db)
    async with connected(store) as db:
        await db.delete(await db.get(Person, team="red", id=1))
        assert await recovered(store) == []
        await network.deliver()

        (extra,) = await find_problems(db)
        assert extra.startswith("extra")
        assert await find_misread(db) == []
        assert (await db.audit(Person)).found == 1
        assert (await db.audit(Person, repair=True)).clean
        assert await find_problems(db) == []


# Races


KEYS: dict[type[Person | Former], dict[str, Any]] = {
    Person: {"team": "red"},
    Former: {"year": 2025, "team": "red"},
}
"""What is fixed of the keys of three people, of which others are written at the same time."""


async def write_something(db: Database, model: type[Person | Former], chance: random.Random) -> None:
    """Do any verb to one of three people."""
    keys: dict[str, Any] = {**KEYS[model], "id": chance.choice([1, 2, 3])}
    name, city = chance.choice(["", "Ann", "Bo"]), chance.choice([None, *CITIES[1:]])

    def set_values(found: Person | Former) -> None:
        found.name, found.city = name, city

    match chance.randrange(4):
        case 0:
            await db.insert(model(**keys, name=name, city=city))
        case 1:
            await db.delete(model.key(**keys), if_match="*", missing_ok=True)
        case 2:
            await db.upsert(model(**keys, name=name, city=city))
        case _:
            await db.modify(model, set_values, **keys)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("trouble", ["none", "faults", "deaths"])
@pytest.mark.parametrize("model", [Person, Former])
@seeds(2, 400)
async def test_writers_that_race(model: type[Person | Former], seed: int, trouble: str) -> None:
    """
    Whatever they do to the same people at the same time, in the end all indexes and lists are right; only after
    requests that were lost, or deaths, there may be entries and members too much, which no read returns.
    """
    chance = random.Random(seed)
    faults = [Fate.LOST_REQUEST, Fate.LOST_REPLY] if trouble == "faults" else []
    ignored = [Exception] if trouble == "deaths" else [TableOrmError, Fault]
    store: TableStore = MemoryStore()
    async with connected(store) as db:
        await db.create_tables(*MODELS)
        await outbox_queues(connection_of(db)).create_queue(OUTBOX)

    def network() -> Jittery:
        return Jittery(store, chance, faults, deadly=trouble == "deaths")

    async def write(count: int) -> None:
        async with connected(network()) as db:
            for _ in range(count):
                with suppress(*ignored):
                    await write_something(db, model, chance)

    async def work() -> None:
        for _ in range(5):
            async with connected(network()) as db:
                CLOCK.advance(HOUR)  # so that it takes messages of writers that still work
                with suppress(*ignored):
                    await recover(db)

    await asyncio.gather(*(write(4) for _ in range(3)), *(work() for _ in range(2)))
    assert await recovered(store, extra=trouble != "none") == []


@pytest.mark.one_of(3)
@pytest.mark.parametrize("plan", [each for each in SINGLE_WRITES if each.before], ids=lambda plan: plan.name)
@seeds(1, 300)
async def test_a_worker_that_overtakes_a_failing_writer(seed: int, plan: Plan) -> None:
    """An error other than `OutcomeUnknown` is the truth also if a worker does the writer's work at the same time."""
    run, chance = await run_plan(plan), random.Random(f"{plan.name}{seed}")
    store = await prepared(plan)
    trouble = [Fate.LOST_REPLY, Fate.LOST_REQUEST, *[Fate.BUSY] * 3]
    fates = [Fate.FINE] * chance.randrange(12) + [chance.choice([Fate.FINE, *trouble]) for _ in range(30)]
    errors: list[TableOrmError] = []

    async def act() -> None:
        async with connected(Unsteady(store, fates, chance), ONCE) as db:
            try:
                await plan.act(db)
            except TableOrmError as error:
                errors.append(error)

    async def work() -> None:
        for _ in range(5):
            async with connected(Unsteady(store, chance=chance)) as db:
                CLOCK.advance(HOUR)  # so that it takes messages of the writer, which still works
                await recover(db)

    await asyncio.gather(act(), work())
    assert await recovered(store, extra=True) == []
    assert find_untrue(run, errors[0] if errors else None, await content_of(store)) == [], repr(errors)
