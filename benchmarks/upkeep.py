"""
Benchmarks of upkeep: an audit, and building an index, in one partition.
"""

import datetime as dt
from pathlib import Path

from benchmarks.measure import report, timed
from benchmarks.model import Flight, flight
from tableorm import Database, Entity, Index, Int32, Mapped, connect, field

__all__ = ["bench_audit", "bench_build_index", "entities"]

entities = [100_000]
"""How many; `--entities 1000000` on the command line changes that."""


class IndexedFlight(Entity, table="Flights", kind="Flight", partition_key="{origin}", row_key="{number:07d}"):
    """The flight, with an index of which the order is another one than that of the flights."""

    origin: Mapped[str]
    number: Mapped[int]
    carrier: Mapped[str]
    destination: Mapped[str]
    tail: Mapped[str | None] = field(default=None)
    scheduled: Mapped[dt.datetime]
    departed: Mapped[dt.datetime | None] = field(default=None)
    delay: Mapped[Int32 | None] = field(default=None)
    distance: Mapped[float]
    seats: Mapped[int]
    cancelled: Mapped[bool] = field(default=False)

    by_tail = Index(row_key="tail_{tail}_{number:07d}")


async def _filled(db: Database) -> None:
    """Flights of a program that does not know the index."""
    await db.create_tables(Flight)
    async with db.bulk() as bulk:
        for number in range(entities[0]):
            await bulk.upsert(flight("JFK", number), mode="replace")
    assert not bulk.report.failures


async def _read(db: Database) -> int:
    """How many entities a plain query gives."""
    return sum([1 async for _ in db.select(IndexedFlight).where(IndexedFlight.origin == "JFK")])


def _own_memory() -> float:
    """MiB of the process without what is mapped of files, where Linux says so."""
    status = Path("/proc/self/status")
    text = status.read_text(encoding="ascii") if status.exists() else ""
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("RssAnon:")) / 1024


async def bench_build_index(folder: Path) -> None:
    """Entities that get a copy, against a bulk upsert of the same entities."""
    async with connect(f"local:{folder}/build.tables") as db:
        filling = await timed(lambda: _filled(db))
        built = await db.build_index(IndexedFlight.by_tail)
        assert built.complete
        assert built.audit is not None
        seconds = built.seconds - built.audit.seconds
        report(
            f"build_index of {built.entities:,}, less its audit / bulk of them",
            seconds / filling,
            "",
            f"{built.built / seconds:,.0f} entities/s, {built.requests:,} requests",
        )


async def bench_audit(folder: Path) -> None:
    """An audit of entities with a copy each, against a query that reads the entities alone."""
    async with connect(f"local:{folder}/audit.tables") as db:
        await _filled(db)
        await db.build_index(IndexedFlight.by_tail)
        before = _own_memory()
        rounds: list[tuple[float, float]] = []
        for _ in range(3):

            async def read() -> None:
                assert await _read(db) == entities[0]

            async def audit() -> None:
                assert (await db.audit(IndexedFlight)).clean

            rounds.append((await timed(audit), await timed(read)))
        audited, plain = min(rounds)
        grown = _own_memory() - before
        report(
            f"audit of {entities[0]:,} with a copy each / query of them",
            audited / plain,
            "",
            f"{entities[0] / audited:,.0f} entities/s, {grown:.0f} MiB more memory",
        )
