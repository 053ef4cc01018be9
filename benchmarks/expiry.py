"""
Benchmarks of expiry: reads of a model whose entities expire against one whose entities do not, and a sweep against a
query that deletes as much.
"""

import datetime as dt
import statistics
from functools import partial
from pathlib import Path

from benchmarks.measure import compare, report, timed
from benchmarks.model import FlightFields, flight
from benchmarks.upkeep import sizes
from tableorm import Database, Mapped, connect, field, to_dict, utc_now


class Passing(FlightFields, table="Passing", partition_key="{origin}", row_key="{number:07d}"):
    """A flight that expires."""

    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)


class Staying(FlightFields, table="Staying", partition_key="{origin}", row_key="{number:07d}"):
    """The same flight, whose time says nothing."""

    expires: Mapped[dt.datetime | None] = field(default=None)


Model = type[Passing] | type[Staying]


async def fill(db: Database, model: Model, count: int, expires: dt.datetime) -> None:
    """Insert flights of 20 origins, of which every second one has this time, and the others none."""
    async with db.bulk(errors="report") as bulk:
        for number in range(count):
            values = to_dict(flight(f"A{number % 20:02d}", number))
            await bulk.insert(model(**values, expires=expires if number % 2 else None))
    assert not bulk.report.failures


async def compare_reads(folder: Path, count: int, rounds: int = 5) -> None:
    """Points, streams and counts of entities that live."""
    async with connect(f"local:{folder}/reads.tables") as db:
        await db.create_tables(Passing, Staying)
        for model in (Passing, Staying):
            await fill(db, model, count, utc_now() + dt.timedelta(days=365))

        async def get(model: Model) -> None:
            for number in range(0, count, max(1, count // 5_000)):
                await db.get(model, origin=f"A{number % 20:02d}", number=number)

        async def stream(model: Model) -> None:
            assert sum([1 async for _ in db.select(model).allow_scan()]) == count

        async def number_of(model: Model) -> None:
            assert await db.select(model).allow_scan().count() == count

        for name, read in (("db.get", get), (f"stream of {count:,}", stream), (f"count of {count:,}", number_of)):
            a, b, ratio = await compare(partial(read, Passing), partial(read, Staying), rounds)
            report(f"{name}, entities that expire / that do not", ratio, "", f"{a * 1e3:.1f} ms / {b * 1e3:.1f} ms")


async def compare_sweeps(folder: Path, count: int, rounds: int = 3) -> None:
    """A sweep of a table of which half has expired, against a query that deletes the same half."""
    async with connect(f"local:{folder}/sweeps.tables") as db:
        await db.create_tables(Passing, Staying)
        swept: list[float] = []
        deleted: list[float] = []

        async def sweep() -> None:
            assert (await db.sweep(Passing)).deleted == count // 2

        async def delete() -> None:
            query = db.select(Staying).where(Staying.expires <= utc_now()).allow_scan(parallel=8)
            assert (await query.delete()).written == count // 2

        for _ in range(rounds):
            for model, run, seconds in ((Passing, sweep, swept), (Staying, delete, deleted)):
                await fill(db, model, count, utc_now())
                seconds.append(await timed(run))
                await db.select_raw(str(model.__schema__.table)).allow_scan(parallel=8).delete()
        ratio = statistics.median(a / b for a, b in zip(swept, deleted, strict=True))
        rate = count / 2 / statistics.median(swept)
        report(f"sweep of {count // 2:,} in {count:,} / query.delete()", ratio, "", f"{rate:,.0f} entities/s")


async def bench_expiry(folder: Path) -> None:
    """Both."""
    await compare_reads(folder, sizes["expiry"])
    await compare_sweeps(folder, sizes["expiry"])
