"""
Benchmarks of upkeep: an audit of a million entities, and building what is derived from entities that were there before.

A partition is larger than what an audit sums up at once, and the whole larger than its memory may become.
"""

import asyncio
import time
from pathlib import Path

from benchmarks.measure import report, timed, watched
from benchmarks.model import Airport, DerivingFlight, Flight, deriving_flight, flight
from tableorm import AuditReport, BuildReport, Database, connect
from tableorm.stores import Operation, Row, RowQuery, Verb

sizes = {
    "audit": 1_000_000,
    "build_index": 200_000,
    "migrations": 300_000,
    "expiry": 100_000,
    "copy": 20_000,
    "periods": 300_000,
    "rekey": 336_776,
}
"""How many entities; `--entities N` on the command line changes all of them."""

_PARTITIONS = 20
_MADE_BY_STORE = frozenset({"odata.etag", "Timestamp", "Timestamp@odata.type"})


def _origin(partition: int) -> str:
    return f"A{partition:02d}"


# Audit


async def _written(db: Database, count: int) -> list[Row]:
    """The rows of a partition of flights, with all that is derived from them, as the mapper writes them."""
    await db.create_tables(Airport, DerivingFlight)
    await db.insert(Airport(code=_origin(0)))
    async with db.bulk(errors="report") as bulk:
        for number in range(count):
            await bulk.insert(deriving_flight(_origin(0), number))
    assert not bulk.report.failures
    rows: list[Row] = []
    continuation: str | None = None
    while True:
        page = await db.store.query("Flights", RowQuery(), 1000, continuation)
        rows += [{name: value for name, value in row.items() if name not in _MADE_BY_STORE} for row in page.rows]
        continuation = page.continuation
        if continuation is None:
            return rows


async def _copied(db: Database, rows: list[Row], partitions: range) -> None:
    """The same rows in other partitions: nothing in them says in which they are."""

    async def copy(partition: int) -> None:
        for start in range(0, len(rows), 100):
            some = ({**row, "PartitionKey": _origin(partition)} for row in rows[start : start + 100])
            await db.store.transact("Flights", [Operation(Verb.INSERT, row) for row in some])

    await asyncio.gather(*map(copy, partitions))


async def _read(db: Database) -> int:
    """How many flights a plain query gives."""
    return sum([1 async for _ in db.select(Flight).allow_scan()])


async def _audited(folder: Path, count: int) -> tuple[AuditReport, float]:
    """An audit that finds nothing, and its seconds of CPU time."""
    size = count // _PARTITIONS
    count = size * _PARTITIONS
    async with connect(f"local:{folder}/audit{count}.tables") as db:
        await _copied(db, await _written(db, size), range(1, _PARTITIONS))
        reading = await timed(lambda: _assert_read(db, count))
        begun = time.process_time()
        with watched() as memory:
            found = await db.audit(DerivingFlight)
        busy = time.process_time() - begun
    assert found.clean
    assert found.entities == count + _PARTITIONS
    detail = f"{found.rate:,.0f} entities/s and {found.derived_rows / found.seconds:,.0f} derived rows/s"
    name = f"audit of {count:,} with all that is derived / query of them"
    report(name, found.seconds / reading, "", f"{detail}, {memory.grown:.0f} MiB at most")
    return found, busy


async def bench_audit(folder: Path) -> None:
    """An audit of entities with two copies each, in a list and counted; of a tenth as many, and of all."""
    count = sizes["audit"]
    (few, few_busy), (many, busy) = await _audited(folder, count // 10), await _audited(folder, count)
    each, before = busy / many.entities, few_busy / few.entities
    detail = f"{each * 1e6:.1f} us / {before * 1e6:.1f} us of CPU time"
    report(f"audit of {count:,} / of {count // 10:,}, each entity", each / before, "flat", detail)


async def _assert_read(db: Database, count: int) -> None:
    assert await _read(db) == count


# Building


async def _filled(db: Database, count: int) -> None:
    """Flights of a program that derives nothing from them."""
    await db.create_tables(Airport, Flight)
    for partition in range(_PARTITIONS):
        await db.insert(Airport(code=_origin(partition)))
    async with db.bulk(errors="report") as bulk:
        for number in range(count):
            await bulk.upsert(flight(_origin(number // (count // _PARTITIONS)), number), mode="replace")
    assert not bulk.report.failures


async def bench_build_index(folder: Path) -> None:
    """Entities that get a copy, come into a list, and are counted, each against a bulk upsert of the same entities."""
    count = sizes["build_index"] // _PARTITIONS * _PARTITIONS
    async with connect(f"local:{folder}/build.tables") as db:
        filling = await timed(lambda: _filled(db, count))
        for declared in (DerivingFlight.by_tail, DerivingFlight.by_seats, DerivingFlight.counted):
            with watched() as memory:
                built = await db.build_index(declared)
            _say_built(built, filling, memory.grown)
            assert built.written == count
        assert await db.select(Airport).allow_scan().all() == [
            Airport(code=_origin(partition), flights=count // _PARTITIONS) for partition in range(_PARTITIONS)
        ]


def _say_built(built: BuildReport, filling: float, memory: float) -> None:
    assert built.complete
    report(
        f"build {built.what.partition('.')[2]} of {built.written:,}, with its audit / bulk",
        built.seconds / filling,
        "",
        f"{built.rate:,.0f} entities/s, {memory:.0f} MiB at most",
    )
