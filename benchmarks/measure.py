"""
How the benchmarks measure: two sides in turns, and the median of the ratios.
"""

import gc
import resource
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import apsw
import attrs

from benchmarks.model import flight
from tableorm import Database

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


def own_memory() -> float:
    """Return the memory of this process in MiB, without what is mapped of files; 0 where only Linux would say so."""
    status = Path("/proc/self/status")
    text = status.read_text(encoding="ascii") if status.exists() else ""
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("RssAnon:")) / 1024


@attrs.define
class Memory:
    """
    MiB of the process without what is mapped of files, where Linux says so, and without what SQLite has.

    Args:
        before: At first.
        peak: The most that was seen.
        sqlite: The most that SQLite had.
        whole: The most that was seen, with what SQLite has.
    """

    before: float = attrs.field(factory=own_memory)
    peak: float = 0.0
    sqlite: float = 0.0
    whole: float = 0.0

    @property
    def grown(self) -> float:
        """What came to it meanwhile, at most."""
        return max(0.0, self.peak - self.before)

    def look(self) -> None:
        """Look once."""
        own, sqlite = own_memory(), apsw.memory_used() / 1024 / 1024
        self.peak = max(self.peak, own - sqlite)
        self.sqlite = max(self.sqlite, sqlite)
        self.whole = max(self.whole, own)


@contextmanager
def watched() -> Generator[Memory]:
    """Look at the memory of the process again and again."""
    memory, ended = Memory(), threading.Event()

    def look() -> None:
        while not ended.wait(0.05):
            memory.look()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield memory
    finally:
        ended.set()
        thread.join()
        memory.look()  # what is short is over before the first look


def report(name: str, ratio: float, target: str, detail: str) -> None:
    print(f"{name:<58} {ratio:>6.2f}x  {target:<18} {detail}", flush=True)


async def fill(db: Database, origin: str, count: int) -> None:
    """Insert flights 0 to count - 1, in transactions."""
    for start in range(0, count, 100):
        async with db.transaction() as tx:
            for number in range(start, min(start + 100, count)):
                tx.insert(flight(origin, number))
