"""
Workers: they do the jobs that may wait, in one thread per open file, or at once for a database in memory.
"""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")
_Job = Callable[[], None]
# A sleeping thread takes some 50 us to wake; the event loop waits for it no longer than this.
_START_SECONDS = 0.001


class Worker:
    """
    Does jobs one after the other: this one at once, in the caller's thread, for a database in memory.

    Attributes:
        parallel: Whether the event loop runs meanwhile.
    """

    parallel = False

    def run(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Call `job`, which does not raise, then `done` with its result on the event loop."""
        done(job())

    def wait_until_started(self) -> None:
        """Return when the job that was just given has started, or very soon."""

    def stop(self) -> None:
        """End after the jobs that were given so far."""


class ThreadWorker(Worker):
    """
    Does jobs in a thread of its own.

    The thread is a daemon: a program that forgets to close still ends, and SQLite rolls back what was not committed.
    A loop that has ended takes no more results; the job is finished nevertheless.
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

    def wait_until_started(self) -> None:
        """
        Let the thread run until the job has started.

        Otherwise the thread would wait for the interpreter while this one goes on with its own work, up to the
        interpreter's switch interval of 5 ms, and the disk would wait as well.
        """
        if self._entered.acquire(timeout=_START_SECONDS):
            self._entered.release()

    def stop(self) -> None:
        """End the thread after the jobs that were given so far."""
        self._stop()


def _serve(jobs: "SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        job()
        # The job refers to the engine, which must not stay alive while the thread waits for the next job.
        del job
