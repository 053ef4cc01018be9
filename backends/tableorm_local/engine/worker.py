"""
Where work that may wait is done: one thread per open file, or at once for a database in memory.
"""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol, TypeVar

__all__ = ["InlineWorker", "ThreadWorker", "Worker"]

T = TypeVar("T")
_Job = Callable[[], None]
# A thread that sleeps takes some 50 us to wake; more than this the event loop does not wait for it.
_LET_IN_SECONDS = 0.001


class Worker(Protocol):
    """
    Does jobs one after the other.

    Attributes:
        parallel: Whether the event loop turns meanwhile.
    """

    parallel: bool

    def run(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Call `job`, which does not raise, then `done` with its result on the event loop."""
        ...

    def let_in(self) -> None:
        """Return when the job just given is at work, or very soon."""
        ...

    def stop(self) -> None:
        """End after the jobs given so far."""
        ...


class InlineWorker:
    """Does a job at once, where it is asked to."""

    parallel = False

    def run(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Call `job`, then `done` with its result."""
        done(job())

    def let_in(self) -> None:
        """It is done already."""

    def stop(self) -> None:
        """Nothing to end."""


class ThreadWorker:
    """
    Does jobs in a thread of its own.

    The thread is a daemon: a program that forgets to close still ends, and SQLite rolls back what was not committed.
    A loop that has ended takes no more results; the job is done in full nevertheless.
    """

    parallel = True

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._entered = threading.Lock()
        self._stop = weakref.finalize(self, self._jobs.put, None)
        threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True).start()

    def run(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Call `job` in the thread, then `done` with its result on the event loop."""
        loop, entered = self._loop, threading.Lock()
        entered.acquire()
        self._entered = entered

        def both() -> None:
            entered.release()
            result = job()
            with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits for the result any more.
                loop.call_soon_threadsafe(done, result)

        self._jobs.put(both)

    def let_in(self) -> None:
        """
        Give up the interpreter until the job has it.

        Otherwise the thread would wait for it while this one goes on with its own work, up to the interpreter's switch
        interval of 5 ms, and the disk would wait as well.
        """
        if self._entered.acquire(timeout=_LET_IN_SECONDS):
            self._entered.release()

    def stop(self) -> None:
        """End the thread after the jobs given so far."""
        self._stop()


def _serve(jobs: "SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        job()
        # The job holds the engine; while the thread waits for the next one nothing may keep that alive.
        del job
