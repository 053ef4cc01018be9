"""
How the benchmarks measure: two sides in turns, and the median of the ratios.
"""

import gc
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.model import flight
from tableorm import Database

__all__ = ["Run", "compare", "fill", "peak_memory", "report", "timed"]

Run = Callable[[], Awaitable[None]]


async def timed(run: Run) -> float:
    """Seconds of one call."""
    gc.collect()
    start = time.perf_counter()
    await run()
    return time.perf_counter() - start


async def compare(ours: Run, theirs: Run, rounds: int = 5) -> tuple[float, float, float]:
    """Median seconds of both, and the median of the ratios of neighbouring rounds."""
    await timed(ours)
    await timed(theirs)
    pairs = [(await timed(ours), await timed(theirs)) for _ in range(rounds)]
    return (
        statistics.median(pair[0] for pair in pairs),
        statistics.median(pair[1] for pair in pairs),
        statistics.median(pair[0] / pair[1] for pair in pairs),
    )


def peak_memory() -> float:
    """Return the peak memory of this process in MiB; `ru_maxrss` may be that of the process that has started it."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        # In bytes on macOS, in KiB elsewhere.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 if sys.platform == "darwin" else 1024) / 1024
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def report(name: str, ratio: float, target: str, detail: str) -> None:
    print(f"{name:<58} {ratio:>6.2f}x  {target:<18} {detail}", flush=True)


async def fill(db: Database, origin: str, count: int) -> None:
    """Insert flights 0 to count - 1, in transactions."""
    for start in range(0, count, 100):
        async with db.transaction() as tx:
            for number in range(start, min(start + 100, count)):
                tx.insert(flight(origin, number))
