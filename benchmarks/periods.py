"""
Benchmarks of tables of periods: what it costs to drop a period, and what others notice of it.
"""

import asyncio
import datetime as dt
import time
from functools import partial
from pathlib import Path

from benchmarks.measure import fill, report, timed
from benchmarks.model import Flight
from benchmarks.upkeep import sizes
from tableorm import Database, Entity, Mapped, connect

_FEW = 1_000
_YEAR = dt.timedelta(days=366)
_SECONDS = 1.0


class Attempt(Entity, table="Attempts{at:%Y}", partition_key="{user}", row_key="{at:ticks}"):
    """An attempt to log in, in a table for each year."""

    user: Mapped[str]
    at: Mapped[dt.datetime]
    address: Mapped[str]


def _year(number: int) -> dt.datetime:
    return dt.datetime(2000 + number, 1, 1, tzinfo=dt.UTC)


async def _fill(db: Database, year: int, count: int) -> None:
    async with db.bulk(errors="report") as bulk:
        for number in range(count):
            at = _year(year) + dt.timedelta(seconds=number)
            await bulk.insert(Attempt(user=f"user{number // 1000:04d}", at=at, address=f"10.0.{number % 256}.1"))
    assert not bulk.report.failures


async def _drop(db: Database, year: int) -> None:
    dropped = await db.drop_periods(Attempt, before=_year(year + 1))
    assert dropped.tables == (f"Attempts{2000 + year}",)


async def _read_for(db: Database, seconds: float) -> int:
    """Return how many points another client reads in some seconds."""
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        await db.get(Flight, origin="JFK", number=count % _FEW)
        count += 1
    return count


async def bench_periods(folder: Path) -> None:
    """A period of many rows is dropped as fast as one of few, and reads of others go on meanwhile."""
    many = sizes["periods"]
    url = f"local:{folder}/periods.tables"
    async with connect(url) as db, connect(url) as other:
        await db.create_tables(Flight)
        await fill(db, "JFK", _FEW)
        ratios: list[tuple[float, float]] = []
        for turn in range(3):
            await _fill(db, 2 * turn, _FEW)
            few = await timed(partial(_drop, db, 2 * turn))
            await _fill(db, 2 * turn + 1, many)
            large = await timed(partial(_drop, db, 2 * turn + 1))
            ratios.append((large / few, large))
        await _fill(db, 10, many)
        before = await _read_for(other, _SECONDS)
        reading = asyncio.create_task(_read_for(other, _SECONDS))
        await _drop(db, 10)
        slower = before / await reading
    ratio, seconds = sorted(ratios)[1]
    report(f"drop a period of {many:,} rows / of {_FEW:,}", ratio, "at most 3", f"{seconds * 1e3:.1f} ms")
    report("  reads of another client before / meanwhile", slower, "at most 2", "")
