"""
Benchmarks of the outbox: an insert with an eventual index, and workers that catch up with what writers have left.
"""

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.measure import compare, report
from benchmarks.processes import Effort, run_member, serving, work
from tableorm import Database, Entity, Index, Mapped, connect
from tableorm.outbox import shared_bell
from tableorm.writes import deferred

_MANY, _FEW = 20_000, 5_000  # changes that workers catch up with
_SHARED = 2_000  # those that one and two processes share
_AT_ONCE = 100
_INSERTS = 200
_MODULE = "benchmarks.outbox"


class PlainFlight(Entity, table="Plain", partition_key="{origin}", row_key="flight_{number:08d}"):
    origin: Mapped[str]
    number: Mapped[int]
    tail: Mapped[str]


class PlacedFlight(Entity, table="Placed", partition_key="{origin}", row_key="flight_{number:08d}"):
    origin: Mapped[str]
    number: Mapped[int]
    tail: Mapped[str]

    by_tail = Index(partition_key="tail_{tail}", row_key="of_{origin}_{number:08d}", consistency="eventual")


def _placed(number: int) -> PlacedFlight:
    return PlacedFlight(origin=f"A{number % 20:02d}", number=number, tail=f"T{number % 500:03d}")


def _plain(flight: PlacedFlight) -> PlainFlight:
    return PlainFlight(origin=flight.origin, number=flight.number, tail=flight.tail)


async def _compare_inserts(folder: Path) -> None:
    numbers = iter(range(10**9))

    async def insert(db: Database, at_once: int, *, placed: bool) -> None:
        for _ in range(0, _INSERTS, at_once):
            flights = [_placed(next(numbers)) for _ in range(at_once)]
            await asyncio.gather(*(db.insert(each if placed else _plain(each)) for each in flights))

    async with connect(f"local:{folder}/inserts.tables") as db:
        await db.create_tables(PlainFlight, PlacedFlight)
        for at_once in (1, _AT_ONCE):
            ours, theirs, ratio = await compare(
                partial(insert, db, at_once, placed=True), partial(insert, db, at_once, placed=False)
            )
            detail = f"{ours / _INSERTS * 1e3:.2f} ms / {theirs / _INSERTS * 1e3:.2f} ms"
            report(f"insert with an eventual index / without, {at_once} at once", ratio, "", detail)
        await db.insert(_placed(next(numbers)))
        with db.observe() as seen:
            await db.insert(_placed(next(numbers)))
            returned = len(seen.requests)
            await asyncio.sleep(0.1)
    detail = f"{returned} before it returns, {len(seen.requests)} in all"
    report("requests of an insert with an eventual index / without", len(seen.requests), "6.00", detail)


async def _leave(url: str, count: int, first: int = 0) -> None:
    """Insert flights, as programs that die after each commit: nothing but workers makes their index entries."""

    async def die(self: deferred.Deferral) -> None: ...

    finish, hidden = deferred.Deferral.finish, shared_bell.HIDDEN_SECONDS
    deferred.Deferral.finish, shared_bell.HIDDEN_SECONDS = die, 0  # type: ignore[method-assign]
    try:
        async with connect(url) as db:
            await db.create_tables(PlacedFlight)
            for start in range(first, first + count, _AT_ONCE):
                await asyncio.gather(*(db.insert(_placed(number)) for number in range(start, start + _AT_ONCE)))
    finally:
        deferred.Deferral.finish, shared_bell.HIDDEN_SECONDS = finish, hidden  # type: ignore[method-assign]


async def _compare_processes(url: Callable[[int], str], where: str) -> None:
    efforts = list[Effort]()
    for processes in (1, 2):
        await _leave(url(processes), _SHARED, processes * _SHARED)
        efforts.append(await asyncio.to_thread(work, _MODULE, url(processes), size=processes))
    one, two = efforts
    detail = f"{two.seconds:.1f} s / {one.seconds:.1f} s; on processors {two.busy:.1f} s / {one.busy:.1f} s"
    name = f"two worker processes / one, {_SHARED:,} changes, {where}"
    report(name, two.seconds / one.seconds, "", f"{detail}; requests each {one.requests / _SHARED:.1f}")


async def bench_outbox(folder: Path) -> None:
    """An insert with an eventual index; one worker process and two; catching up after many missed messages."""
    await _compare_inserts(folder)
    await _compare_processes(lambda processes: f"local:{folder}/shared{processes}.tables", "one file")
    async with serving(folder / "served.tables") as url:
        await _compare_processes(lambda _: url, "a server")
    peaks = list[float]()
    for count in (_FEW, _MANY):
        # The server keeps the file in its memory, so that the memory of the worker is its own.
        async with serving(folder / f"missed{count}.tables") as url:
            await _leave(url, count)
            effort = await asyncio.to_thread(work, _MODULE, url, size=1)
        detail = f"{effort.seconds / count * 1e3:.2f} ms, {effort.busy / count * 1e3:.2f} ms on a processor"
        report(f"catching up with {count:,} changes, each", 1.0, "", f"{detail}, {effort.peak:.0f} MiB")
        peaks.append(effort.peak)
    few, many = peaks
    report(f"peak memory after {_MANY:,} / {_FEW:,}", many / few, "at most 1.20", f"{many:.0f} MiB / {few:.0f} MiB")


async def _catch_up(db: Database) -> None:
    async with db.worker(PlacedFlight) as worker:
        await worker.drain()


if __name__ == "__main__":
    asyncio.run(run_member(sys.argv[1], _catch_up))
