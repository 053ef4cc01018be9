"""
Re-keys of which several programs write the rows at the same time, each request in its turn.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import pytest

from tableorm import Database, Entity, connect
from tableorm.connection import races
from tableorm.connection.connection import Connection, connection_of
from tableorm.models.reserved import ENTITY_TYPE
from tableorm.protocol.codes import Code, Fault
from tableorm.rekey.chunks import WindowReport
from tableorm.rekey.finalize import finalize_window
from tableorm.rekey.phases import RekeyPhase
from tableorm.rekey.rekeying import Rekeying
from tableorm.rekey.rollback import roll_back_window
from tableorm.rekey.steps import resolve_window
from tableorm.rekey.window import move_window
from tableorm.stores import Capabilities, RetryPolicy, Row, RowQuery, StoreRequest, TableStore
from tableorm.testing import MemoryStore
from tests.faults import QUICK, Fate, FaultyStore


def rekeying_of(model: type[Entity]) -> Rekeying:
    """Return how a model takes over the entities of another one."""
    rekeying = model.__schema__.home
    assert isinstance(rekeying, Rekeying)
    return rekeying


def set_phase(db: Database, model: type[Entity], phase: RekeyPhase) -> None:
    """Let a database take a phase for the present one, as if it had just asked the store."""
    known = connection_of(db).known_phase(rekeying_of(model).digest)
    known.phase, known.asked = phase, asyncio.get_running_loop().time()


async def rows_of(db: Connection, table: str, *kinds: str) -> list[Row]:
    """Return the rows of a table; only those of some kinds if these are given."""
    rows: list[Row] = []
    continuation: str | None = None
    while True:
        store, _ = db.sending("query", "")
        page = await store.query(table, RowQuery(), 1000, continuation)
        rows += [row for row in page.rows if not kinds or str(row.get(ENTITY_TYPE)).partition(":")[0] in kinds]
        continuation = page.continuation
        if continuation is None:
            return rows


async def kinds_of(db: Database, model: type[Entity]) -> list[str]:
    """Return partition and kind of each row of the tables of a re-key, sorted."""
    rekeying = rekeying_of(model)
    rows = [
        row
        for table in sorted({rekeying.old.table_name(), rekeying.new.table_name()})
        for row in await rows_of(connection_of(db), table)
    ]
    return sorted(f"{row['PartitionKey']} {row.get(ENTITY_TYPE, 'none')}" for row in rows)


async def move(db: Database, model: type[Entity], count: int = 1000) -> WindowReport:
    """Give at most so many entities their newer keys, and settle what other movers have left."""
    db_, rekeying = connection_of(db), rekeying_of(model)
    rows = await rows_of(db_, rekeying.old.table_name())
    forward = f"{rekeying.old.kind}#_forward"
    left = [row for row in rows if str(row.get(ENTITY_TYPE)).partition(":")[0] != forward]
    report = await move_window(db_, rekeying, left[:count])
    left = await rows_of(db_, rekeying.new.table_name(), f"{rekeying.new.kind}#_tentative")
    report.failures += (await resolve_window(db_, rekeying, left)).failures
    return report


async def save_by(db: Database, verb: str, entity: Any) -> None:
    """Write an entity by a verb; or save it in a transaction, or in a bulk, whose failure is raised."""
    if verb == "transaction":
        async with db.transaction() as tx:
            tx.save(entity)
    elif verb == "bulk":
        async with db.bulk(errors="report") as bulk:
            await bulk.save(entity)
        if bulk.report.failed:
            raise bulk.report.failed[0].error
    else:
        await getattr(db, verb)(entity)


def record_pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let pauses between attempts take no time. Return a list that gets the number of the attempt before each pause."""
    pauses: list[int] = []
    sleep = asyncio.sleep

    def pause_after(failures: int, policy: RetryPolicy) -> float:
        return failures / 1000

    async def record(seconds: float) -> None:
        if seconds:
            pauses.append(round(seconds * 5000))
        await sleep(0)

    monkeypatch.setattr(races, "pause_after", pause_after)
    monkeypatch.setattr(asyncio, "sleep", record)
    return pauses


async def finalize(db: Database, model: type[Entity]) -> WindowReport:
    """Delete the forwards."""
    db_, rekeying = connection_of(db), rekeying_of(model)
    return await finalize_window(db_, rekeying, await rows_of(db_, rekeying.old.table_name()))


async def roll_back(db: Database, model: type[Entity]) -> WindowReport:
    """Give all entities their older keys again."""
    db_, rekeying = connection_of(db), rekeying_of(model)
    old, new = str(rekeying.old.kind), str(rekeying.new.kind)
    rows = await rows_of(db_, rekeying.new.table_name(), new, "None", f"{new}#_tentative", f"{new}#_forward")
    report = await roll_back_window(db_, rekeying, rows)
    rows = await rows_of(db_, rekeying.old.table_name(), f"{old}#_tentative", f"{old}#_forward")
    freed = await roll_back_window(db_, rekeying, rows)
    report.failures += freed.failures
    report.collisions += freed.collisions
    return report


class Turns:
    """
    Lets programs send their requests one by one, in an order that is drawn.

    Args:
        random: Draws; it may be replaced between two runs.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._running = False

    async def take(self, program: str) -> None:
        """Wait for the turn of a program."""
        if self._running:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((program, turn))
            await turn

    async def run(self, programs: Mapping[str, Coroutine[Any, Any, None]], killed: Sequence[str] = ()) -> None:
        """
        Run programs to their ends.

        Args:
            programs: By name.
            killed: Names of those that stop for good before one of their requests.
        """
        self._running = True
        tasks = {name: asyncio.create_task(program) for name, program in programs.items()}
        left = {name: self.random.randrange(40) for name in killed}
        while not all(task.done() for task in tasks.values()):
            for _ in range(30):
                await asyncio.sleep(0)
            if not self._waiting:
                await asyncio.sleep(0.001)  # they wait for something else, such as a lease
            else:
                program, turn = self._waiting.pop(self.random.randrange(len(self._waiting)))
                if program in left and (left := {**left, program: left[program] - 1})[program] < 0:
                    tasks[program].cancel()
                elif not turn.done():
                    turn.set_result(None)
        self._running = False
        self._waiting.clear()
        for task in tasks.values():
            if not task.cancelled():
                task.result()


class TurnStore(FaultyStore):
    """
    A faulty network on which each request waits for its turn.

    Args:
        store: The real store.
        turns: Whose turn it is.
        program: Whose network it is.

    Attributes:
        life: How many more requests are answered; one more arrives, and none after it. None for any number.
    """

    def __init__(self, store: TableStore, turns: Turns, program: str) -> None:
        super().__init__(store)
        self._turns, self._program = turns, program
        self.life: int | None = None

    @property
    def capabilities(self) -> Capabilities:
        """It repeats nothing itself, and has the order of its store."""
        return Capabilities(durable=False, ordered=self.store.capabilities.ordered)

    async def send(self, request: StoreRequest) -> Any:
        # Nobody cares when a table is divided into ranges.
        if request.operations or request.method == "get" or (request.method == "query" and request.arguments[1] > 1):
            await self._take_turn()
        reply = await super().send(request)
        if request.operations and self.life is not None and self.life <= 0:
            raise _silence()
        return reply

    async def _take_turn(self) -> None:
        if self.life is not None:
            self.life -= 1
            if self.life < 0:
                raise _silence()
        await self._turns.take(self._program)


def _silence() -> Fault:
    return Fault(Code.NO_ANSWER, "The network is gone.", doubt=True)


@asynccontextmanager
async def opened(
    turns: Turns, programs: Sequence[str], *models: type[Entity], store: TableStore | None = None
) -> AsyncGenerator[dict[str, tuple[Database, TurnStore]]]:
    """
    Open a database for each program, all of one store, each behind a network of its own.

    Args:
        turns: Whose turn it is to send a request.
        programs: Their names.
        models: The models whose tables are created.
        store: The store; one in memory if not given.
    """
    async with AsyncExitStack() as stack:
        shared = store or MemoryStore()
        found: dict[str, tuple[Database, TurnStore]] = {}
        for program in programs:
            db = await stack.enter_async_context(connect("local::memory:", retry=QUICK))
            network = TurnStore(shared, turns, program)
            connection_of(db).wrap_store(partial(_second, network))
            found[program] = db, network
        await found[programs[0]][0].create_tables(*models)
        yield found


def _second(network: FaultyStore, _: TableStore) -> FaultyStore:
    return network


def draw_fates(random: Random, faults: float, *, late: bool) -> list[Fate]:
    """
    Return what happens to the writes to come.

    Args:
        random: Draws.
        faults: How many of them fail, between 0 and 1.
        late: Whether replies are lost and requests arrive late. A plain insert is then repeated, and inserts again if
            the entity was deleted meanwhile.
    """
    bad = [Fate.BUSY, Fate.LOST_REQUEST, *([Fate.LOST_REPLY, Fate.LATE, Fate.TWICE] if late else [])]
    return [random.choice(bad) if random.random() < faults else Fate.FINE for _ in range(200)]
