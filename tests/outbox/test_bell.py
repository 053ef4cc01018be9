"""
The bell: messages to workers, in the queues of a database or in a table.
"""

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tableorm import Database, RetryPolicy, Unavailable, connect
from tableorm.connection.connection import connection_of
from tableorm.outbox import shared_bell
from tableorm.outbox.bell import ring
from tableorm.outbox.doorbell import Begun, Doorbell
from tests.faults import QUICK, Fate, FaultyBackend

DOORBELL = Doorbell(changes=(Begun(table="Things", partition_key="p", token="token_000000"),), kinds=("Thing",))


@pytest.fixture(params=["queue", "table"])
async def db(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    db = connect("local::memory:", prefix="t1") if request.param == "queue" else Database(FaultyBackend(), retry=QUICK)
    async with db:
        yield db


async def test_a_prefix_is_respected(tmp_path: Path) -> None:
    """The queue has the prefix of the database."""
    url = f"local:{tmp_path / 'db.tables'}"
    async with connect(url, prefix="one") as db:
        await ring(connection_of(db), DOORBELL, delay_seconds=0)
    async with connect(url) as db:
        assert await db.queues.list_queues() == ["onetableorm-outbox"]


async def test_a_message_that_cannot_be_put() -> None:
    """Who cannot ring is told so, and that nothing was written."""
    backend = FaultyBackend()
    async with Database(backend, retry=RetryPolicy(attempts=2, base=0.0)) as db:
        backend.tables.plan(*[Fate.BUSY] * 9)

        with pytest.raises(Unavailable, match="message to the queue tableorm-outbox"):
            await ring(connection_of(db), DOORBELL, delay_seconds=0)


async def test_a_failed_message_that_nobody_waits_for(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of a bulk that cannot be put after the bulk was cancelled leaves nothing in the log."""
    heard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    failed = asyncio.Event()

    async def fail(*_: object, **__: object) -> None:
        failed.set()
        await asyncio.sleep(0.01)
        raise Unavailable("the queue cannot be reached")

    monkeypatch.setattr(shared_bell, "ring", fail)
    bulk = asyncio.create_task(shared_bell.SharedBell(connection_of(db)).ring(DOORBELL.changes[0], DOORBELL.kinds))
    await failed.wait()
    bulk.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bulk
    await asyncio.sleep(0.02)
    del bulk  # the event loop tells of an error when the task is collected
    gc.collect()
    assert heard == []
