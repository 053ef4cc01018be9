"""
Random programs of two clients of one table, each behind a network of its own that may fail.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine

from tableorm import (
    Conflict,
    Database,
    EncodeError,
    Entity,
    EntityNotFound,
    NotLoaded,
    NotRead,
    NotSupported,
    OutcomeUnknown,
    TransactionFailed,
)
from tableorm.testing import MemoryStore
from tests.faults import FaultyStore
from tests.outbox.network import connected

ALLOWED = (Conflict, EntityNotFound, NotLoaded, NotRead, EncodeError, NotSupported, OutcomeUnknown)
"""What a program may be told that works with what it has read long ago."""


class TwoClients(RuleBasedStateMachine):
    """A machine whose first rule calls `connect`, and whose program may be told what is `allowed`."""

    allowed: tuple[type[Exception], ...] = ALLOWED

    def connect(self, model: type[Entity]) -> None:
        """Open both clients, and make the table of a model."""
        self.runner = asyncio.Runner()
        self.networks = [FaultyStore(MemoryStore())]
        self.networks.append(FaultyStore(self.networks[0].store))
        self.clients: list[Database] = []
        for network in self.networks:
            self.clients.append(connected(network))
            self.run(self.clients[-1].open())
        self.run(self.clients[0].create_tables(model))

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            for db in self.clients:
                self.run(db.close())
            self.runner.close()

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(call)

    def attempt(self, call: Awaitable[object]) -> bool:
        """Whether it succeeded; what the program may be told is no fault."""

        async def wait() -> bool:
            try:
                await call
            except TransactionFailed as error:
                if not isinstance(error.__cause__, self.allowed):
                    raise
                return False
            except self.allowed:
                return False
            return True

        return self.runner.run(wait())
