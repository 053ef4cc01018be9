"""
Many writers at once on the same entities: at any moment everything that is derived from them is right.

`club` says what is derived; what is wrong is found by an oracle of its own, in one look at all rows, and by audits:
while others write, and at rest.
"""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tableorm import Database, connect
from tableorm.connection.connection import connection_of
from tests.azurite import Azurite
from tests.derived.index.worker import COUNTERS, Auditor, Reader, Writer, audited, prepare, raised, read_partition
from tests.derived.patterns.club import CLUB, Player, check
from tests.faults import QUICK, Fate, FaultyStore
from tests.outbox.network import FATES, connected
from tests.torture import Rounds, seeds

WRITERS = 8


async def race(
    clients: list[Database], steps: int, path: Path | None = None
) -> tuple[list[Writer], list[Reader], Auditor]:
    """Writers and readers, each with one of the clients in turn, and an audit after the other."""
    writers = [Writer(db, seed) for seed, db in zip(range(WRITERS), itertools.cycle(clients), strict=False)]
    readers = [Reader(db, seed, path) for seed, db in enumerate(clients)]
    auditor = Auditor(clients[-1])
    async with asyncio.TaskGroup() as group:
        writing = [group.create_task(writer.run(steps)) for writer in writers]
        for reader in readers:
            group.create_task(reader.run(writing))
        group.create_task(auditor.run(writing))
    return writers, readers, auditor


async def settle(db: Database, writers: list[Writer]) -> None:
    """At rest neither witness finds anything, and no acknowledged change was lost or made twice."""
    assert check(await read_partition(db)) == []
    assert await audited(db) == []
    for number in COUNTERS:
        least, most = raised(writers, number)
        assert least <= ((await db.get(Player, club=CLUB, id=number)).points or 0) <= most


async def test_writers_and_readers(tmp_path: Path, rounds: Rounds) -> None:
    """Eight writers of two clients on one file; neither two readers nor audits find anything wrong at any moment."""
    path = tmp_path / "test.tables"
    async with connect(f"local:{path}", retry=QUICK) as one, connect(f"local:{path}", retry=QUICK) as two:
        await prepare(one)
        writers, readers, auditor = await race([one, two], rounds(25, 1000), path)
        await settle(one, writers)

    assert all(reader.looks > 0 for reader in readers)
    assert auditor.audits > 0
    assert auditor.looked > 10 * auditor.audits
    assert all(writer.done.total() > rounds(4, 300) for writer in writers)
    steps = {step for writer in writers for step in writer.done}
    assert len(steps) >= rounds(10, 25), steps  # each verb has succeeded, if there were rounds enough


def fates(seed: int) -> Iterator[Fate]:
    """A network that fails at every fourth request or so."""
    draw = random.Random(seed)
    while True:
        yield draw.choice(FATES) if draw.random() < 0.25 else Fate.FINE


async def deliver(networks: list[FaultyStore], writing: "list[asyncio.Task[None]]") -> None:
    """What is under way arrives now and then."""
    while not all(task.done() for task in writing):
        await asyncio.sleep(0.002)
        for network in networks:
            await network.deliver()


@pytest.fixture(params=["file", "azurite"])
async def real(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """A database without faults."""
    if request.param == "file":
        async with connect(f"local:{tmp_path}/test.tables") as db:
            yield db
        return
    emulator: Azurite = request.getfixturevalue("azurite")
    async with connect(emulator.connection_string) as db:
        yield db
        await db.drop_table("Club")


@seeds(1, 20)
async def test_a_network_that_fails(real: Database, tmp_path: Path, seed: int) -> None:
    """Requests and replies are lost, late, or arrive twice: nothing that is derived is ever wrong."""
    await prepare(real)
    small = "Azure" in type(connection_of(real).backend).__name__
    networks = [FaultyStore(connection_of(real).backend.tables, fates(10 * seed + number)) for number in range(2)]
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(network)) for network in networks]
        writers = [Writer(db, 100 * seed + number) for number, db in enumerate(clients * (WRITERS // 2))]
        async with asyncio.TaskGroup() as group:
            writing = [group.create_task(writer.run(10 if small else 40)) for writer in writers]
            group.create_task(deliver(networks, writing))
            group.create_task(Auditor(real).run(writing))
            group.create_task(Auditor(clients[0], repair=False).run(writing))
            if not small:
                group.create_task(Reader(real, seed, tmp_path / "test.tables").run(writing))
        for network in networks:
            await network.deliver()
        await settle(real, writers)
    assert sum(writer.done.total() for writer in writers) > (10 if small else 100)
