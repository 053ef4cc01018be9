"""
Benchmarks of queries: several partitions at once, alternatives as points, planning, and memory.

Each measures its sides in turns, in one run, as `benchmarks.run` does; memory is that of a process of its own, so that
nothing before counts: what it holds itself, without the pages of the file that the embedded engine maps.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import compare, fill, report
from benchmarks.model import Flight
from tableorm import Database, Expression, Select, connect
from tableorm.expressions import AnyOf
from tableorm.models.kinds import KindSet
from tableorm.protocol.filters import Compare, Or, constant
from tableorm.protocol.filters import Op as FilterOp
from tableorm.queries.planning.planner import planner_of
from tableorm.stores import Bounds, RowPage, RowQuery

PARTITIONS = 16
ORIGINS = [f"P{number:02d}" for number in range(PARTITIONS)]
DELAY_SECONDS = 0.005

Query = Callable[[str, RowQuery, int, str | None], Awaitable[RowPage]]


def delay_pages(db: Database, rows: int) -> None:
    """Let each page of a database take 5 ms more, as over a network, and have at most so many rows."""
    real: Query = db.store.query

    async def query(table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        await asyncio.sleep(DELAY_SECONDS)
        return await real(table, query, min(limit, rows), continuation)

    setattr(db.store, "query", query)  # noqa: B010 - a store is a protocol, whose methods are not assigned


async def consume(query: Select[Any]) -> int:
    """Read all of a query; how many there were."""
    seen = 0
    async for _ in query:
        seen += 1
    return seen


async def bench_partitions(folder: Path) -> None:
    """16 partitions at the same time against one after the other, where each request takes 5 ms more."""
    for name, rows, page, ordered in (
        ("16 partitions of 1 page, in key order", 20, 20, True),
        ("16 partitions of 20 pages, unordered", 400, 20, False),
        ("16 partitions of 20 pages, in key order", 400, 20, True),
    ):
        async with connect(f"local:{folder}/partitions{rows}{ordered}.tables") as db:
            await db.create_tables(Flight)
            for origin in ORIGINS:
                await fill(db, origin, rows)
            delay_pages(db, page)
            together = db.select(Flight).where(Flight.origin.in_(ORIGINS))
            together = together if ordered else together.unordered()

            async def ours(query: Select[Flight] = together, rows: int = rows) -> None:
                assert await consume(query) == rows * PARTITIONS

            async def theirs(db: Database = db, rows: int = rows) -> None:
                for origin in ORIGINS:
                    assert await consume(db.select(Flight).where(Flight.origin == origin)) == rows

            a, b, ratio = await compare(ours, theirs, 3)
            target = "at least 12" if page == rows or not ordered else ""
            report(f"{name}: one by one / at once", 1 / ratio, target, f"{b * 1e3:.0f} ms / {a * 1e3:.0f} ms")


async def bench_alternatives(folder: Path) -> None:
    """50 keys of a partition of 20,000 rows as points, against the `or` filter that scans the partition."""
    async with connect(f"local:{folder}/alternatives.tables") as db:
        await db.create_tables(Flight)
        await fill(db, "JFK", 20_000)
        numbers = list(range(0, 20_000, 400))
        keys = [f"{number:07d}" for number in numbers]
        either = Or(tuple(Compare("RowKey", FilterOp.EQ, constant(key)) for key in keys))
        scan = RowQuery(Bounds.only("JFK"), Bounds(), either)

        async def ours() -> None:
            assert len(await db.select(Flight).where(Flight.origin == "JFK", Flight.number.in_(numbers)).all()) == 50

        async def theirs() -> None:
            assert len((await db.store.query("Flights", scan, 1000)).rows) == 50

        a, b, ratio = await compare(ours, theirs, 5)
        report("50 keys of 20,000: or filter / in_", 1 / ratio, "", f"{b * 1e3:.2f} ms / {a * 1e3:.2f} ms")


def planning_seconds(where: Callable[[], list[Expression]], rounds: int = 7, count: int = 300) -> float:
    """The best of some rounds, per plan; making the conditions is left out."""
    kinds = KindSet.of([Flight])
    terms = where()
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            planner_of(kinds).plan(terms, allow_scan=True)
        best = min(best, (time.perf_counter() - start) / count)
    return best


async def bench_planning(folder: Path) -> None:
    """Planning queries of several shapes, in microseconds; the ratio is to a point."""
    del folder
    jfk = Flight.origin == "JFK"
    shapes: list[tuple[str, str, Callable[[], list[Expression]]]] = [
        ("a point", "at most 3 us", lambda: [jfk, Flight.number == 7]),
        ("a partition", "at most 30 us", lambda: [jfk]),
        ("a range", "at most 30 us", lambda: [jfk, Flight.number.between(100, 199)]),
        ("a range and a property", "at most 30 us", lambda: [jfk, Flight.number > 100, Flight.distance > 500.0]),
        ("a point and a property", "at most 30 us", lambda: [jfk, Flight.number == 7, Flight.seats > 100]),
        ("a property of a partition", "at most 30 us", lambda: [jfk, Flight.carrier == "UA"]),
        ("a negated property", "at most 30 us", lambda: [jfk, ~(Flight.carrier == "UA")]),
        ("is_none", "at most 30 us", lambda: [jfk, Flight.tail.is_none()]),
        ("a scan", "at most 30 us", lambda: [Flight.seats > 100]),
        ("or of two points", "at most 30 us", lambda: [jfk, (Flight.number == 7) | (Flight.number == 9)]),
        ("or of two ranges", "at most 30 us", lambda: [jfk, (Flight.number < 7) | (Flight.number > 900)]),
        ("or with a property", "at most 30 us", lambda: [jfk, (Flight.number < 7) | (Flight.seats > 300)]),
        ("two partitions", "at most 30 us", lambda: [Flight.origin.in_(["JFK", "LGA"])]),
        ("in_ of 50 keys", "", lambda: [jfk, Flight.number.in_(range(50))]),
        ("in_ of 16 partitions", "", lambda: [Flight.origin.in_(ORIGINS)]),
        ("or of 50 comparisons", "", lambda: [jfk, AnyOf(tuple(Flight.number == n for n in range(50)))]),
    ]
    point = planning_seconds(shapes[0][2])
    for name, target, where in shapes:
        seconds = planning_seconds(where)
        report(f"plan {name} / plan a point", seconds / point, target, f"{seconds * 1e6:.1f} us")


async def bench_memory(folder: Path) -> None:
    """Peak memory of a process that reads 16 partitions of 100,000 rows, and of one that streams a million."""
    path = folder / "memory.tables"
    async with connect(f"local:{path}") as db:
        await db.create_tables(Flight)
        for origin in ORIGINS:
            await fill(db, origin, 100_000)
    base = peak_mib(path, "nothing")
    for name, what in (
        ("in key order", "ordered"),
        ("unordered", "unordered"),
        ("in 16 parallel ranges", "parallel"),
    ):
        peak = peak_mib(path, what)
        report(
            f"peak of 16 partitions of 100k rows, {name} / nothing read",
            peak / base,
            "at most 64 MiB more",
            f"{peak:.0f} MiB / {base:.0f} MiB: {peak - base:.0f} MiB more",
        )
    tenth, million = peak_mib(path, "100000"), peak_mib(path, "1000000")
    report("peak of streaming 1M entities / 100k", million / tenth, "flat", f"{million:.0f} MiB / {tenth:.0f} MiB")


def peak_mib(path: Path, what: str) -> float:
    """Peak memory of a process that reads as it is told."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.queries", str(path), what], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def held_mib() -> float:
    """Memory of this process that is no file's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) / 1024


async def read_in_this_process(path: str, what: str) -> float:
    """The most memory that is held while a query is read, looked at every 2,000 entities."""
    async with connect(f"local:{path}") as db:
        together = db.select(Flight).where(Flight.origin.in_(ORIGINS))
        queries = {
            # What any query needs once is code, and caches of the embedded engine.
            "nothing": together.limit(1000),
            "ordered": together,
            "unordered": together.unordered(),
            "parallel": db.select(Flight).allow_scan(parallel=16),
        }
        query = queries[what] if what in queries else db.select(Flight).allow_scan().limit(int(what))
        seen, peak = 0, 0.0
        async for _ in query:
            seen += 1
            if seen % 2_000 == 0:
                peak = max(peak, held_mib())
        return max(peak, held_mib())


if __name__ == "__main__":
    print(asyncio.run(read_in_this_process(*sys.argv[1:])))
