"""
Benchmarks of the outbox: an insert with an eventual index, and workers that catch up with what writers have left.
"""

import asyncio
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import compare, report
from tableorm import Database, Entity, Index, Mapped, connect
from tableorm.outbox import shared_bell
from tableorm.writes import deferred

__all__ = ["PlacedFlight", "bench_outbox"]

_MANY, _FEW = 20_000, 5_000  # changes that workers catch up with
_SHARED = 4_000  # those that one and two processes share
_AT_ONCE = 100


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


async def _compare_inserts(folder: Path) -> None:
    numbers = iter(range(10**9))

    async def insert(db: Database, *, placed: bool) -> None:
        for _ in range(200):
            each = _placed(next(numbers))
            await db.insert(each if placed else PlainFlight(origin=each.origin, number=each.number, tail=each.tail))

    async with connect(f"local:{folder}/inserts.tables") as db:
        await db.create_tables(PlainFlight, PlacedFlight)
        ours, theirs, ratio = await compare(lambda: insert(db, placed=True), lambda: insert(db, placed=False))
        await db.insert(_placed(next(numbers)))
        with db.observe() as seen:
            await db.insert(_placed(next(numbers)))
            returned = len(seen.requests)
            await asyncio.sleep(0.1)
    detail = f"{ours / 200 * 1e3:.2f} ms / {theirs / 200 * 1e3:.2f} ms; {returned} of {len(seen.requests)} requests / 1"
    report("insert with an eventual index / without", ratio, "", detail)


async def _leave(path: Path, count: int) -> None:
    """Insert flights as programs that die after each commit: nothing but workers makes their index entries."""

    async def die(self: deferred.Deferral) -> None: ...

    finish, hidden = deferred.Deferral.finish, shared_bell.HIDDEN_SECONDS
    deferred.Deferral.finish, shared_bell.HIDDEN_SECONDS = die, 0  # type: ignore[method-assign]
    try:
        async with connect(f"local:{path}") as db:
            await db.create_tables(PlacedFlight)
            for start in range(0, count, _AT_ONCE):
                await asyncio.gather(*(db.insert(_placed(number)) for number in range(start, start + _AT_ONCE)))
    finally:
        deferred.Deferral.finish, shared_bell.HIDDEN_SECONDS = finish, hidden  # type: ignore[method-assign]


def _work(path: Path, processes: int) -> tuple[float, float]:
    """Let processes catch up; return the seconds, and the peak memory of the largest in MiB."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.outbox", str(path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    peaks = [float(each.communicate()[0]) for each in running]
    return time.perf_counter() - begun, max(peaks)


async def bench_outbox(folder: Path) -> None:
    """An insert with an eventual index; one worker process and two; catching up after many missed messages."""
    await _compare_inserts(folder)
    seconds = list[float]()
    for processes in (1, 2):
        path = folder / f"shared{processes}.tables"
        await _leave(path, _SHARED)
        seconds.append((await asyncio.to_thread(_work, path, processes))[0])
    one, two = seconds
    report(f"two worker processes / one, {_SHARED:,} changes", two / one, "below 1", f"{two:.1f} s / {one:.1f} s")
    peaks = list[float]()
    for count in (_FEW, _MANY):
        path = folder / f"missed{count}.tables"
        await _leave(path, count)
        taken, peak = await asyncio.to_thread(_work, path, 1)
        report(f"catching up with {count:,} changes, each", 1.0, "", f"{taken / count * 1e3:.2f} ms, {peak:.0f} MiB")
        peaks.append(peak)
    few, many = peaks
    report(f"peak memory after {_MANY:,} / {_FEW:,}", many / few, "at most 1.20", f"{many:.0f} MiB / {few:.0f} MiB")


async def _catch_up(path: str) -> None:
    async with connect(f"local:{path}") as db, db.worker(PlacedFlight) as worker:
        await worker.drain()


if __name__ == "__main__":
    asyncio.run(_catch_up(sys.argv[1]))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
