"""
Writers and workers on a network that fails: what is committed is carried out, and nothing else.
"""

import asyncio
import random
from contextlib import suppress

import pytest

from tableorm import Database
from tableorm.connection.connection import connection_of
from tableorm.models.manifest import IndexEntry
from tableorm.outbox.bell import OUTBOX
from tableorm.outbox.decision import Decision, Work, settle_decision
from tableorm.outbox.doorbell import Begun, Doorbell
from tableorm.outbox.settle import DOORBELL, handle_doorbells
from tableorm.outbox.table_queue import TableQueueStore
from tableorm.outbox.worker import Patience, Worker
from tableorm.protocol.codes import Fault
from tableorm.stores import CLOCK, Operation, Verb
from tableorm.testing import MemoryStore
from tableorm.testing.contract.base import everything
from tests.faults import QUICK, Fate, FaultyBackend, FaultyStore
from tests.outbox.network import HOUR
from tests.torture import seeds

pytestmark = pytest.mark.usefixtures("quick_workers", "stopped_clock")


async def change(network: FaultyStore, queues: TableQueueStore, token: str) -> None:
    """Ring, then commit, as a writer does; it gives up at the first fault, as if it had crashed."""
    await queues.put(
        OUTBOX, Doorbell(changes=(Begun(table="Things", partition_key="p", token=token),), kinds=("K",)).to_message()
    )
    entity = {"PartitionKey": "p", "RowKey": f"entity_{token}", "EntityType": "K"}
    entries = {"by_name": (IndexEntry(token),)}
    work = Work(kind="K", row_key=entity["RowKey"], entries=entries)
    decision = Decision(partition_key="p", token=token, works=(work,))
    await network.transact("Things", [Operation(Verb.INSERT, entity), Operation(Verb.INSERT, decision.to_row())])


@seeds(5, 300)
async def test_what_is_committed_is_carried_out(seed: int) -> None:
    """Each change that commits is handled, and its decision row goes; a change that is void never commits."""
    chance = random.Random(seed)
    network = FaultyStore(MemoryStore())
    await network.create_table("Things")
    queues = TableQueueStore(network)
    await queues.create_queue(OUTBOX)
    backend = FaultyBackend()
    backend.tables = network
    handled: set[str] = set()
    unknown: set[str] = set()

    async def handle(table: str, decision: Decision) -> None:
        handled.add(decision.token)
        if chance.random() < 0.3:
            raise RuntimeError("not this time")

    async with Database(backend, retry=QUICK) as db:
        connection = connection_of(db)

        async def work(turns: int) -> None:
            """Let two workers work for some turns of the event loop, and crash."""
            handlers = {DOORBELL: handle_doorbells(connection, {"K": ("Things",)}, handle)}
            workers = [Worker(connection, handlers, visibility_seconds=9, patience=Patience(99)) for _ in range(2)]
            with suppress(InterruptedError):
                async with workers[0], workers[1]:
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    raise InterruptedError

        network.fates = iter(lambda: chance.choice([*[Fate.FINE] * 4, *Fate]), None)
        for number in range(6):
            token = f"token_{number:06d}"
            try:
                await change(network, queues, token)
            except Fault:
                unknown.add(token)
            await work(chance.randint(0, 60))
            if chance.random() < 0.5:
                await network.deliver()
            CLOCK.advance(HOUR)
        network.plan()
        for token in unknown:
            await settle_decision(connection, "Things", "p", token)
        await network.deliver()
        for _ in range(200):
            CLOCK.advance(HOUR)
            if await queues.length(OUTBOX) == 0:
                break
            await work(200)

    rows = {row["RowKey"]: row for row in await everything(network, "Things")}
    entities = {key.removeprefix("entity_") for key in rows if key.startswith("entity_")}
    assert entities == handled
    assert {row["State"] for row in rows.values() if "State" in row} <= {"void"}
    assert await queues.length(OUTBOX) == 0
