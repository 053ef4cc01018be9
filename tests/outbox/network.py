"""
Databases on networks that fail, and processes that die there.
"""

import asyncio
import datetime as dt
import enum
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Any

from tableorm import Database, Worker
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Operation, RetryPolicy, Row, StoreRequest, TableStore
from tests.faults import QUICK, Fate, FaultyBackend, FaultyStore

HOUR = dt.timedelta(hours=1)
READS = ("get", "query")
FATES = tuple(fate for fate in Fate if fate is not Fate.FINE)


def connected(store: TableStore, retry: RetryPolicy = QUICK) -> Database:
    """Return a database of a store, or of a network."""
    backend = FaultyBackend()
    backend.tables = store if isinstance(store, FaultyStore) else FaultyStore(store)
    return Database(backend, retry=retry)


async def drain(db: Database, *targets: Any, **options: Any) -> Worker:
    """Let a worker that knows these models, workflows or archives do all that is left, and return it."""
    async with db.worker(*targets, **options) as worker:
        await worker.drain()
    return worker


class Death(enum.Enum):
    """When a process dies."""

    BEFORE = "before a write arrives"
    AFTER = "after a write has arrived"
    LATE = "after a write was sent, which arrives later"


def failing_at(store: TableStore, at: int, fault: Fate | Death) -> FaultyStore:
    """Return a network on which the write of this number, from 0, meets a fault, or its sender dies there."""
    if isinstance(fault, Fate):
        return FaultyStore(store, [*[Fate.FINE] * at, fault])
    return Mortal(store, at, arrives=fault is Death.AFTER, late=fault is Death.LATE)


class Mortal(FaultyStore):
    """
    A network of which nothing arrives any more after its user has died.

    Args:
        store: The real store.
        at: The number of the write, from 0, at which the user dies.
        arrives: Whether that write arrives.
        late: Whether it arrives later.
    """

    def __init__(self, store: TableStore, at: int, *, arrives: bool, late: bool = False) -> None:
        super().__init__(store)
        self._left, self._arrives, self._is_late = at, arrives, late

    async def deliver(self) -> None:
        """Let everything arrive that is under way, though its sender is dead."""
        alive, alive.late, self.late = FaultyStore(self.store), self.late, []
        await alive.deliver()

    async def send(self, request: StoreRequest) -> Any:
        if request.method in READS:
            self._check()
        return await super().send(request)

    async def _arrive(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        self._check()
        self._left -= 1
        if self._left == -1 and self._is_late:
            self.late.append((table, operations, transaction))
        if self._left < 0 and not self._arrives:
            self._check()
        etags = await super()._arrive(table, operations, transaction=transaction)
        self._check()
        return etags

    def _check(self) -> None:
        if self._left < 0:
            raise Fault("Dead", "The program is dead.")


class LateWrite(FaultyStore):
    """
    A network on which a write comes late, and its sender dies.

    Args:
        store: The real store.
        is_late: Says by the table and the first row whether it is this write.
    """

    def __init__(self, store: TableStore, is_late: Callable[[str, Row], bool]) -> None:
        super().__init__(store)
        self._is_late = is_late

    async def _send(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        if self._is_late(table, operations[0].row) and not self.late:
            self.fates = chain([Fate.LATE], repeat(Fate.LOST_REQUEST))
        return await super()._send(table, operations, transaction=transaction)


class Unsteady(FaultyStore):
    """
    A network on which reads meet faults too.

    Args:
        store: The real store.
        fates: Of the requests in order; after the last one all is fine.
        chance: Decides how long each request is under way; None for no time.

    Attributes:
        requests: How many requests were sent.
    """

    def __init__(self, store: TableStore, fates: Iterable[Fate] = (), chance: random.Random | None = None) -> None:
        super().__init__(store, fates)
        self.requests, self._chance = 0, chance

    async def send(self, request: StoreRequest) -> Any:
        if request.method in READS:
            await self._read()
        return await super().send(request)

    async def _send(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        self.requests += 1
        await _wait(self._chance)
        return await super()._send(table, operations, transaction=transaction)

    async def _read(self) -> None:
        self.requests += 1
        await _wait(self._chance)
        fate = next(self.fates, Fate.FINE)
        if fate not in (Fate.FINE, Fate.TWICE):
            code = Code.SERVER_BUSY if fate is Fate.BUSY else Code.NO_ANSWER
            raise Fault(code, "Nobody answered.", retry_after=0.0)


class Jittery(Mortal):
    """
    A network on which requests overtake each other, some meet a fault, and the user may die.

    Args:
        store: The real store.
        chance: Decides.
        faults: What some writes meet.
        deadly: Whether the user dies at one of its writes.
    """

    def __init__(
        self, store: TableStore, chance: random.Random, faults: Sequence[Fate] = (), *, deadly: bool = False
    ) -> None:
        super().__init__(store, chance.randrange(40) if deadly else 1_000_000, arrives=chance.random() < 0.5)
        self.fates = iter(lambda: chance.choice([*[Fate.FINE] * 12, *faults]), None)
        self._chance = chance

    async def send(self, request: StoreRequest) -> Any:
        if request.method != "get":
            return await super().send(request)
        await _wait(self._chance)
        row = await super().send(request)
        await _wait(self._chance)
        return row

    async def _arrive(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        await _wait(self._chance)
        etags = await super()._arrive(table, operations, transaction=transaction)
        await _wait(self._chance)
        return etags


async def _wait(chance: random.Random | None) -> None:
    for _ in range(0 if chance is None else chance.choice([0, 0, 0, 0, 0, 1, 2, 5, 20, 200])):
        await asyncio.sleep(0)
