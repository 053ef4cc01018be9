"""
Doorbells by who may put messages and nothing else, as by a token of the account for queues.
"""

import asyncio
import io
import json
import logging
from typing import Any

import pytest

from tableorm import Database, Entity, Index, Mapped, connect
from tableorm.outbox import worker
from tableorm.outbox.bell import OUTBOX
from tableorm.outbox.table_queue import QUEUES_TABLE, TableQueueStore
from tests.rows import merge_row


class Rung(Entity, table="Rung", partition_key="{department}", row_key="rung_{id}"):
    department: Mapped[str]
    id: Mapped[int]
    city: Mapped[str | None]

    by_city = Index(partition_key="city_{city}", row_key="in_{department}_{id}", consistency="eventual")


class Unkind(Entity, table="Unkind", partition_key="{owner}", row_key="{name}", kind=None):
    owner: Mapped[str]
    name: Mapped[str]
    amount: Mapped[int]


@pytest.fixture
async def db(db: Database) -> Database:
    await db.create_tables(Rung, Unkind)
    await db.insert(Rung(department="a", id=1, city="Rome"))
    await db.insert(Unkind(owner="ann", name="purse", amount=5))
    return db


async def answer_doorbell(db: Database, changes: list[dict[str, str]], kinds: list[str]) -> None:
    """Put a message, and let a worker do what it can."""
    message = {"type": "doorbell", "changes": changes, "kinds": kinds, "format": 1}
    await db.queues.create_queue(OUTBOX)
    await db.queues.put(OUTBOX, json.dumps(message).encode())
    async with db.worker(Rung, tries=1) as running:
        await asyncio.wait_for(running.drain(), 20)


@pytest.mark.parametrize("kinds", [[], ["Rung"]], ids=["no_kinds", "kinds_of_the_worker"])
@pytest.mark.parametrize("count", [1, 2])
async def test_a_doorbell_leads_to_tables_of_its_kinds_alone(db: Database, kinds: list[str], count: int) -> None:
    """A worker makes no decision rows in a table of which it knows no model; there they are taken for entities."""
    changes = [{"table": "Unkind", "partition_key": "ann", "token": f"token_{number:07d}"} for number in range(count)]
    await answer_doorbell(db, changes, kinds)
    assert [row.row_key async for row in db.select_raw("Unkind").allow_scan()] == ["purse"]
    assert [each.amount for each in await db.select(Unkind).where(Unkind.owner == "ann").all()] == [5]


@pytest.mark.parametrize("token", ["short", "token_00000/0", "token_0000000\n"])
async def test_a_doorbell_without_a_token_is_dropped(db: Database, token: str) -> None:
    """After its last try a message about a token that no program gives is dropped, and not tried for ever."""
    change = {"table": "Rung", "partition_key": "a", "token": token}
    await answer_doorbell(db, [change], ["Rung"])
    assert await db.queues.length(OUTBOX) == 0


@pytest.mark.parametrize("format", [1, 9])
async def test_a_message_writes_no_lines_into_the_log(db: Database, format: int) -> None:  # noqa: A002 - its name
    """What a message or a row says stands in the log of workers without control characters, also in tracebacks."""
    kind = "Rung\n2026-01-01 all is done\x1b[2J\u202e"
    keys = ["a\nb\x1b[2J", "x"]
    place = ["Rung", *keys]
    move: dict[str, Any] = {"source": place, "target": place, "etag": "e", "to_kind": kind, "fields": {}}
    change = {"table": "Rung\n", "partition_key": keys[0], "token": "token_0000000"}
    await db.queues.create_queue(OUTBOX)
    messages: list[dict[str, Any]] = [
        {"type": "doorbell", "changes": [change], "kinds": ["Rung"], "format": format},
        {"type": "doorbell", "changes": [change], "kinds": [kind], "format": format},
        {"type": "move", "move": "token_0000000", "kind": kind, **move, "format": format},
        {"type": "move", "move": "token_0000000", "kind": "Rung", **move, "to_kind": "Rung", "format": format},
        {"type": kind},
    ]
    for message in messages:
        await db.queues.put(OUTBOX, json.dumps(message).encode())
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    handler.setFormatter(logging.Formatter("LINE %(message)s"))
    loggers = [logging.getLogger(name) for name in ("tableorm.worker", "tableorm.outbox")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        async with db.worker(Rung, tries=1) as running:
            await asyncio.wait_for(running.drain(), 20)
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
    lines = log.getvalue().split("\n")[:-1]

    assert len(lines) > 3 and all(line.isprintable() for line in lines)
    assert all(line.startswith(("LINE ", "  ")) for line in lines)


async def test_a_message_that_says_how_often_it_was_taken_stops_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A message in a table, which any who may write there give any number of takes, is tried again later, if what it asks
    for fails and cannot be noted either: the pause that grows with that number has an end.
    """
    async with connect("local::memory:") as db:
        queues = TableQueueStore(db.store)

        def queues_of(_: object) -> TableQueueStore:
            return queues

        monkeypatch.setattr(worker, "outbox_queues", queues_of)
        await queues.create_queue(OUTBOX)
        change = {"table": "Rung", "partition_key": "a", "token": "token_0000000"}  # there is no such table
        message = {"type": "doorbell", "changes": [change], "kinds": ["Rung"], "format": 1}
        await queues.put(OUTBOX, json.dumps(message).encode())
        (row,) = [each.row async for each in db.select_raw(QUEUES_TABLE).allow_scan() if each.row_key.startswith("m")]
        keys = {name: row[name] for name in ("PartitionKey", "RowKey")}
        await merge_row(db, QUEUES_TABLE, {**keys, "Count": 2**31 - 1})
        async with db.worker(Rung) as running:
            for _ in range(1000):
                if not running.counts:
                    await asyncio.sleep(0.01)
        assert running.counts == {worker.Outcome.FAILED: 1}
