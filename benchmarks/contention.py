"""
Benchmarks of many writers of one row: what waits for its turn, against a lock that a program has of its own.
"""

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

from benchmarks.measure import compare, report
from benchmarks.processes import serving
from tableorm import Database, Entity, Feed, Mapped, Sum, connect, field


class Till(Entity, table="Contended", partition_key="{shop}", row_key="till"):
    shop: Mapped[str]
    taken: Mapped[int] = field(default=0, maintained=True)
    opened: Mapped[int] = field(default=0)


class Sale(Entity, table="Contended", partition_key="{shop}", row_key="sale_{id:07d}"):
    shop: Mapped[str]
    id: Mapped[int]
    price: Mapped[int] = field(default=1)

    paid = Sum("price", lambda: Till.taken, shop="{shop}")
    changes = Feed(keep=dt.timedelta(days=7))


def _open(till: Till) -> None:
    till.opened += 1


async def bench_contention(folder: Path, inserts: int = 300, calls: int = 2_000, rounds: int = 3) -> None:
    """Inserts that change one sum and one feed, and calls of `modify` for one row; on a file and through a server."""
    async with connect(f"local:{folder}/contention.tables") as db:
        await _measure(db, "file", inserts, calls, rounds)
    async with serving(folder / "contention_server.tables") as url, connect(url) as db:
        await _measure(db, "server", inserts, calls, rounds)


async def _measure(db: Database, where: str, inserts: int, calls: int, rounds: int) -> None:
    await db.create_tables(Till)
    await db.insert(Till(shop="a"))
    numbers, lock = count(), asyncio.Lock()

    async def insert() -> None:
        await db.insert(Sale(shop="a", id=next(numbers)))

    async def modify() -> None:
        await db.modify(Till, _open, shop="a")

    async def locked(act: Callable[[], Awaitable[None]]) -> None:
        async with lock:
            await act()

    for name, act, many in (("inserts", insert, inserts), ("modify", modify, calls)):
        requests: list[int] = []

        async def ours(act: Callable[[], Awaitable[None]] = act, many: int = many, sent: list[int] = requests) -> None:
            before = db.stats.requests
            await asyncio.gather(*(act() for _ in range(many)))
            sent.append(db.stats.requests - before)

        async def theirs(act: Callable[[], Awaitable[None]] = act, many: int = many) -> None:
            await asyncio.gather(*(locked(act) for _ in range(many)))

        a, b, ratio = await compare(ours, theirs, rounds)
        detail = f"{many / a:,.0f}/s / {many / b:,.0f}/s, {max(requests)} requests"
        report(f"{many} {name} at once / under a lock, {where}", ratio, "at most 1", detail)
