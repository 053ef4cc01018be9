"""
Writers, readers and sweeps of one change feed whose requests meet in any order.
"""

import asyncio
import random

import pytest

from tableorm import CursorError, Database
from tableorm.queries import changes
from tableorm.stores import CLOCK, RowPage, RowQuery
from tableorm.testing import MemoryStore
from tests.derived.feed.staff import KEEP, Desk, Employee
from tests.outbox.network import Jittery, connected
from tests.torture import seeds


class SlowStore(Jittery):
    """A store whose requests and replies take a while, each another one, and whose pages are short."""

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        for _ in range(self._chance.randrange(6)):
            await asyncio.sleep(0)
        return await super().query(table, query, min(limit, self._chance.randint(1, 5)), continuation)


async def write(db: Database, draw: random.Random, first: int, noted: list[str]) -> None:
    """Insert some desks, while time goes on; note their keys."""
    for number in range(first, first + 12):
        desk = Desk(name=str(number))
        await db.upsert(desk)
        noted.append(desk.key.row_key)
        CLOCK.advance(KEEP * draw.random() / 5)


async def read(db: Database, draw: random.Random, writers: asyncio.Future[list[None]]) -> list[list[tuple[int, str]]]:
    """
    Read the feed again and again, each time from where the last reader was, until the writers are done. Begin anew
    after an error that says that changes were trimmed; return what was read from each beginning.
    """
    found: list[list[tuple[int, str]]] = [[]]
    cursor: str | None = None
    done = False
    while not done:
        done = writers.done()
        try:
            async for change in db.changes(Employee, department="Sales", after=cursor):
                (entity,) = change.entities
                found[-1].append((change.number, entity.key.row_key))
                cursor = change.cursor
                for _ in range(draw.randrange(50)):
                    await asyncio.sleep(0)
        except CursorError:
            cursor = None
            found.append([])
        await asyncio.sleep(0)
    return found


@pytest.mark.usefixtures("stopped_clock")
@seeds(1, 150)
async def test_nobody_misses_a_change_without_being_told(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers go on without a gap, and each change is read once, however requests of writers and sweeps meet it."""
    monkeypatch.setattr(changes, "MAX_PAGE", 4)
    draw = random.Random(seed)
    store = SlowStore(MemoryStore(), draw)
    noted: list[str] = []
    # Two databases, whose writers do not wait for each other.
    async with connected(store) as db, connected(store) as other:
        await db.create_tables(Employee)
        starts = zip((db, other, db, other), (100, 200, 300, 400), strict=True)
        writers = asyncio.gather(*(write(each, draw, first, noted) for each, first in starts))

        async def sweep() -> int:
            trimmed = 0
            while not writers.done():
                trimmed += (await db.sweep(Desk, parallel=1)).trimmed
                assert (await db.audit(Desk, repair=True)).found == 0
            return trimmed

        sweeps = asyncio.gather(sweep(), sweep())
        readers = await asyncio.gather(read(db, draw, writers), read(db, draw, writers))
        await writers
        assert sum(await sweeps) > 0
        end = await db.changes(Employee, department="Sales").end()

    assert end is not None and end.endswith(f".{len(noted)}")
    for each in readers:
        pieces = [piece for piece in each if piece]
        seen = [number for piece in pieces for number, _ in piece]
        assert seen == sorted({*seen})
        assert all(piece[-1][0] - piece[0][0] == len(piece) - 1 for piece in pieces)
        assert each[-1] == [] or seen[-1] == len(noted)
        assert len({key for piece in pieces for _, key in piece}) == len(seen)
