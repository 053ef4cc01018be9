"""
Moves of which only the first writes arrive, and what meets their rows.
"""

import datetime as dt
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tableorm import Database, Entity, OutcomeUnknown, connect
from tableorm.connection.connection import connection_of
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.outbox.worker import Handler, Outcome
from tableorm.stores import CLOCK, TableStore
from tableorm.writes.move_entity import handle_moves
from tests.faults import QUICK, Fate, FaultyStore

HOUR = dt.timedelta(hours=1)
MARK, TENTATIVE, FORWARD, CONFIRMED = 1, 2, 3, 4
"""How many writes to tables have arrived when a move has made these rows."""


@asynccontextmanager
async def database_on(network: FaultyStore, *models: type[Entity]) -> AsyncGenerator[Database]:
    """Open a database in memory behind a network, with tables and the queue. The queue is not behind it."""

    def beneath(store: TableStore) -> FaultyStore:
        network.store = store
        return network

    async with connect("local::memory:", retry=QUICK) as db:
        connection_of(db).wrap_store(beneath)
        await db.create_tables(*models)
        await outbox_queues(connection_of(db)).create_queue(OUTBOX)
        yield db


async def move_half(db: Database, network: FaultyStore, entity: Entity, writes: int, **fields: Any) -> None:
    """Move an entity; only so many writes arrive."""
    network.plan(*[Fate.FINE] * writes, *[Fate.LOST_REQUEST] * 999)
    with pytest.raises(OutcomeUnknown):
        await db.move(entity, **fields)
    network.plan()


def handler_of(db: Database, model: type[Entity]) -> Handler:
    """Return what a worker does that knows one model."""
    return handle_moves(connection_of(db), {str(model.__schema__.kind): model.__schema__})


async def work(db: Database, model: type[Entity]) -> list[Outcome]:
    """Carry out the messages, without a worker's pauses."""
    return [await handler_of(db, model).work(body) for body in await take_bodies(db)]


async def take_bodies(db: Database) -> list[bytes]:
    """Take the messages, an hour later, and return their bodies."""
    CLOCK.advance(HOUR)
    return [message.body for message in await outbox_queues(connection_of(db)).take(OUTBOX, 32, 60)]
