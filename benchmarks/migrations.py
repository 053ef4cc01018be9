"""
Benchmarks of shared runs: building and rewriting by several processes, beside others who read, and the memory of that.
"""

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path

from benchmarks.measure import report
from benchmarks.processes import Crew, Effort, run_member, serving, work
from benchmarks.upkeep import sizes
from tableorm import Database, Entity, Index, Mapped, PropertyBag, connect, upgrade
from tableorm_migrations import rewrite

_MODULE = "benchmarks.migrations"
_AIRPORTS = 50
_CREW = 4
_PARALLEL = 4
_READS = 400
_RATE = 500  # rows a second, of each process


class PlainTrip(Entity, table="Trips", kind="Trip", partition_key="airport_{airport:02d}", row_key="trip_{number:07d}"):
    airport: Mapped[int]
    number: Mapped[int]
    carrier: Mapped[str]
    tail: Mapped[str]
    distance: Mapped[float]


class Trip(Entity, table="Trips", partition_key="airport_{airport:02d}", row_key="trip_{number:07d}"):
    airport: Mapped[int]
    number: Mapped[int]
    carrier: Mapped[str]
    tail: Mapped[str]
    distance: Mapped[float]

    by_tail = Index(row_key="tail_{tail}_{number:07d}")


class LongTrip(
    Entity, table="Trips", kind="Trip", version=2, partition_key="airport_{airport:02d}", row_key="trip_{number:07d}"
):
    airport: Mapped[int]
    number: Mapped[int]
    carrier: Mapped[str]
    tail: Mapped[str]
    kilometres: Mapped[float]


@upgrade(LongTrip, from_version=1)
def count_kilometres(bag: PropertyBag) -> PropertyBag:
    bag["kilometres"] = float(str(bag.pop("distance"))) * 1.609
    return bag


def _trip(number: int) -> PlainTrip:
    return PlainTrip(
        airport=number % _AIRPORTS * 2,
        number=number,
        carrier=("UA", "AA", "B6", "DL")[number % 4],
        tail=f"N{10_000 + number % 4000}",
        distance=float(200 + number % 2400),
    )


async def _fill(path: Path, count: int) -> None:
    async with connect(f"local:{path}") as db:
        await db.create_tables(PlainTrip)
        async with db.bulk(errors="report") as bulk:
            for first in range(_AIRPORTS):
                for number in range(first, count, _AIRPORTS):
                    await bulk.insert(_trip(number))
        assert not bulk.report.failures


# Each process


async def _build(db: Database, parallel: int, rate: float | None) -> bool:
    found = await db.build_index(Trip.by_tail, name="by_tail", no_older_writers=True, parallel=parallel, rate=rate)
    return found.complete


async def _rewrite(db: Database, parallel: int, rate: float | None) -> bool:
    found = await rewrite(db, LongTrip, name="kilometres", parallel=parallel, rate=rate)
    return found.complete


_RUNS: dict[str, Callable[[Database, int, float | None], Awaitable[bool]]] = {"build": _build, "rewrite": _rewrite}


async def _take_part(url: str, what: str, parallel: int, rate: float) -> None:
    async def act(db: Database) -> None:
        assert await _RUNS[what](db, parallel, rate or None)

    await run_member(url, act)


# What is compared


async def compare_crews(
    folder: Path, what: str, crew: int, count: int, target: str, *, server: int, parallel: int = _PARALLEL
) -> None:
    """
    Let one process do it, and a crew of several; each has a table of its own, in a file that they open, or one that a
    server of so many processes serves.
    """
    efforts = list[Effort]()
    for size in (1, crew):
        path = folder / f"{what}{size}{server}{parallel}.tables"
        await _fill(path, count)
        async with serving(path, server) if server else nullcontext(f"local:{path}") as url:
            efforts.append(await asyncio.to_thread(work, _MODULE, url, what, parallel, 0, size=size))
    one, many = efforts
    detail = f"{one.seconds:.1f} s / {many.seconds:.1f} s; on processors {one.busy:.1f} s / {many.busy:.1f} s"
    where = f"{f'a server of {server}' if server else 'one file'}, {parallel} at once"
    name = f"{what} of {count:,} by one process / {crew}, {where}"
    report(name, one.seconds / many.seconds, target, f"{detail}; requests a row {many.requests / count:.3f}")


async def _read(db: Database, count: int, reads: int) -> list[float]:
    """Return the seconds of each of some point reads."""
    found = list[float]()
    for _ in range(reads):
        trip = _trip(random.randrange(count))
        begun = time.perf_counter()
        await db.get(PlainTrip, airport=trip.airport, number=trip.number)
        found.append(time.perf_counter() - begun)
    return found


async def _compare_reads(folder: Path, count: int) -> None:
    """Read beside a crew that builds at a rate, and alone before it."""
    path = folder / "beside.tables"
    await _fill(path, count)
    async with serving(path) as url, connect(url) as db:
        crew = await asyncio.to_thread(Crew, _MODULE, url, "build", _PARALLEL, _RATE, size=_CREW)
        await _read(db, count, _READS)
        alone = await _read(db, count, _READS)
        crew.begin()
        beside = list[float]()
        while crew.working:
            beside += await _read(db, count, _READS // 10)
        effort = crew.finish()
    for name, one, other in (
        ("median", statistics.median(alone), statistics.median(beside)),
        ("95 %", statistics.quantiles(alone, n=20)[-1], statistics.quantiles(beside, n=20)[-1]),
    ):
        detail = f"{other * 1e3:.2f} ms / {one * 1e3:.2f} ms; {count:,} rows in {effort.seconds:.1f} s"
        target = "at most 2.00" if name == "median" else ""
        report(f"point reads beside {_CREW} builders, rate={_RATE} / alone, {name}", other / one, target, detail)


async def _compare_memory(folder: Path, count: int) -> None:
    """Rewrite by two processes; the server keeps the file in its own memory."""
    peaks = list[float]()
    for size in (count // 6, count):
        path = folder / f"memory{size}.tables"
        await _fill(path, size)
        async with serving(path) as url:
            effort = await asyncio.to_thread(work, _MODULE, url, "rewrite", _PARALLEL, 0, size=2)
        peaks.append(effort.peak)
    few, many = peaks
    name = f"peak memory of rewrite, {count:,} / {count // 6:,}"
    report(name, many / few, "at most 1.20", f"{many:.0f} MiB / {few:.0f} MiB")


async def bench_migrations(folder: Path) -> None:
    """Runs by one process and by several; others who read beside them; memory of many rows and of few."""
    count = sizes["migrations"]
    # Workers that do one thing at a time: one process that does several uses both processors, together with the server.
    await compare_crews(folder, "build", _CREW, count // 5, "at least 1.50", server=2, parallel=1)
    await compare_crews(folder, "build", _CREW, count // 5, "", server=1)
    for server in (0, 1):
        await compare_crews(folder, "rewrite", 2, count // 5, "", server=server)
    await _compare_reads(folder, count // 30)
    await _compare_memory(folder, count)


if __name__ == "__main__":
    asyncio.run(_take_part(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
