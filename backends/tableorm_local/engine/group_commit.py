"""
Group commit: requests that wait while the disk works are written together, in one transaction with one sync.

Statements of a few microseconds run on the event loop, because handing each to a thread costs more than it does; what
may wait (the sync, another process's lock) runs in the worker. The pump is made of callbacks, not of a task, so that
nothing of it can be cancelled half-way: whatever happens to the loop, a transaction that was begun is handed on to the
worker and ends there.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from types import GeneratorType
from typing import Any, TypeVar, cast

import apsw

from tableorm.protocol.codes import Fault

from .faults import busy, fault_from
from .worker import Worker
from .write_session import Session, Steps, Work
from .writer_lock import Turnstile

__all__ = ["Pump"]

T = TypeVar("T")

# How long a transaction may keep the event loop to itself; what is left goes on in the worker.
_LOOP_SECONDS = 0.002
# After so much work another wait, for the worker to begin, does not count; it can take as long as this thread works.
_LONG_SECONDS = 0.0002
# Requests per transaction in the worker: bounds the wait of other processes.
_WORKER_REQUESTS = 500
# The pause between two tries for SQLite's lock. Only the holder of the turnstile tries, so that this is cheap.
_RETRY_SECONDS = 0.0003
# What callers do between two requests (their own code, checks, encoding, waking), in units of applying one: measured.
_CALLER_SHARE = 4.0
_COMMITS_KEPT = 16  # few: disks change their minds


class _Request:
    """One request and what became of it."""

    __slots__ = ("deadline", "fault", "future", "steps", "value", "work")

    def __init__(self, work: Work, future: "asyncio.Future[Any]", deadline: float) -> None:
        self.work, self.future, self.deadline = work, future, deadline
        self.steps: Steps | None = None
        self.value: object = None
        self.fault: Fault | None = None

    def run(self, session: Session, until: float | None) -> bool:
        """Go on until done (True) or out of time (False)."""
        try:
            steps = self.steps
            if steps is None:
                result = self.work(session)
                if type(result) is not GeneratorType:
                    self.value = result
                    return True
                steps = self.steps = cast("Steps", result)
            while True:
                next(steps)
                if until is not None and time.perf_counter() > until:
                    return False
        except StopIteration as stop:
            self.value = stop.value
        except Fault as fault:
            self.fault = fault
        self.steps = None
        return True

    def settle(self, error: Fault | None) -> None:
        """Tell the caller, unless it has gone."""
        error = error or self.fault
        if self.future.done():
            return
        if error is None:
            self.future.set_result(self.value)
        else:
            self.future.set_exception(error)


_Outcome = tuple[list[_Request], Fault | None]
"""Requests that were taken, and why none of them happened."""


class Pump:
    """
    The queue of writes of one open file.

    Args:
        session: The connection that writes.
        worker: Does what may wait.
        turnstile: The order among processes; None for a database in memory.
        name: The database, for messages.
        timeout: Seconds after which a request no longer waits for another process.
    """

    def __init__(
        self, session: Session, worker: Worker, turnstile: Turnstile | None, name: str, timeout: float
    ) -> None:
        self._session, self._worker, self._turnstile = session, worker, turnstile
        self._name, self._timeout = name, timeout
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Request] = deque()
        self._taking = threading.Lock()  # between the worker that takes requests and the timer that expires them
        self._chore: tuple[Callable[[Session], None], Callable[[Fault | None], None]] | None = None
        self._chore_next = False
        self._running = False
        self._waiting = False
        self._expiry: asyncio.TimerHandle | None = None
        self._idle: list[asyncio.Future[None]] = []
        # What the last transactions cost, to choose how many requests to put into the next.
        self._last_count = 0
        self._apply_seconds = 0.0
        self._commits: deque[float] = deque(maxlen=_COMMITS_KEPT)

    def submit(self, work: Work) -> "asyncio.Future[Any]":
        """
        Queue a request.

        Returns:
            Its result, when it is durable. Cancelling it takes it back if it has not begun.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.append(_Request(work, future, self._loop.time() + self._timeout))
        if self._waiting:
            self._arm()
        self._wake()
        return future

    def set_chore(self, chore: Callable[[Session], None], done: Callable[[Fault | None], None]) -> None:
        """
        Do something of low priority in a transaction of its own, when the queue allows; one at a time.
        """
        self._chore = chore, done
        self._wake()

    async def drain(self) -> None:
        """Wait until nothing is queued or under way."""
        if self._running:
            idle: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(idle)
            await idle

    def _wake(self) -> None:
        if not self._running:
            self._running = True
            # Not at once: the tasks that are ready now shall get their requests into this transaction.
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        """Start one transaction, or come to rest."""
        if self._chore is not None and (self._chore_next or not self._queue):
            chore, done = self._chore
            self._chore, self._chore_next = None, False
            self._worker.run(lambda: self._do_chore(chore), lambda fault: self._chore_done(done, fault))
        elif self._queue:
            self._chore_next = True
            self._start_batch()
        else:
            self._running = False
            idle, self._idle = self._idle, []
            for future in idle:
                if not future.done():
                    future.set_result(None)

    def _start_batch(self) -> None:
        try:
            begun = self._begin_now()
        except (apsw.Error, OSError) as error:
            self._settled((self._take(len(self._queue)), fault_from(error, self._name)))
            return
        if begun:
            start = time.perf_counter()
            batch, failure = self._apply_here()
            self._worker.run(lambda: self._finish(batch, failure), self._settled)
            if time.perf_counter() - start > _LONG_SECONDS:
                self._worker.let_in()
            if failure is not None and not isinstance(failure, Exception):
                raise failure  # KeyboardInterrupt and the like are not ours to keep
        else:
            self._wait_in_worker(self._do_batch, self._settled)

    def _begin_now(self) -> bool:
        if self._turnstile is None:
            return self._session.begin()
        if not self._turnstile.try_enter():
            return False
        try:
            return self._session.begin()
        finally:
            self._turnstile.leave()

    def _apply_here(self) -> tuple[list[_Request], BaseException | None]:
        """Apply requests on the event loop while time allows. The last one may need to go on in the worker."""
        session, queue, batch = self._session, self._queue, list[_Request]()
        count = self._share()
        start = time.perf_counter()
        until = start + _LOOP_SECONDS
        try:
            while queue and len(batch) < count:
                request = queue.popleft()
                if request.future.done():
                    continue  # cancelled while it waited
                batch.append(request)
                if not request.run(session, until) or time.perf_counter() > until:
                    break
        except BaseException as error:  # noqa: BLE001 - the transaction ends in the worker, whatever it was
            return batch, error
        self._last_count = len(batch)
        if batch:
            self._apply_seconds += ((time.perf_counter() - start) / len(batch) - self._apply_seconds) / 8
        return batch, None

    def _share(self) -> int:
        """
        How many of the waiting requests to take: all, or half of those under way.

        With half, the event loop works for one half of the callers while the disk works for the other. It costs one
        more sync per round, so it pays only if a sync takes less time than that work, as on a fast disk.
        """
        waiting = len(self._queue)
        under_way = waiting + self._last_count
        if not self._overlaps(under_way):
            return waiting
        return max(1, (under_way + 1) // 2)

    def _overlaps(self, under_way: int) -> bool:
        if not self._worker.parallel or not self._commits:
            return False
        # The shortest commit of late is nearest to what a sync costs without the rows, and without waiting for Python.
        return under_way * self._apply_seconds * _CALLER_SHARE > min(self._commits)

    def _finish(self, batch: list[_Request], error: BaseException | None) -> _Outcome:
        """In the worker: complete a transaction that was begun on the event loop."""
        try:
            if error is not None:
                return batch, self._undo(error)
            if batch and batch[-1].steps is not None:
                batch[-1].run(self._session, None)
            wrote = self._session.dirty
            start = time.perf_counter()
            self._session.commit()
            if wrote:
                self._commits.append(time.perf_counter() - start)
        except BaseException as failure:  # noqa: BLE001 - translated, and told to each caller
            return batch, self._undo(failure)
        return batch, None

    def _do_batch(self) -> _Outcome:
        """In the worker: a whole transaction, once other processes let us."""
        batch: list[_Request] = []
        try:
            if not self._begin_waiting():
                return batch, None
            with self._taking:
                batch = self._take(_WORKER_REQUESTS)
            for request in batch:
                request.run(self._session, None)
            self._session.commit()
        except BaseException as error:  # noqa: BLE001 - translated, and told to each caller
            return batch, self._undo(error)
        return batch, None

    def _do_chore(self, chore: Callable[[Session], None]) -> Fault | None:
        try:
            # Without waiting: other processes have something better to do, and closing shall not wait for a chore.
            if not self._begin_now():
                return busy(self._name)
            chore(self._session)
            self._session.commit()
        except BaseException as error:  # noqa: BLE001 - translated, and told to the caller
            return self._undo(error)
        return None

    def _undo(self, error: BaseException) -> Fault:
        try:
            self._session.roll_back()
        except apsw.Error as second:
            error = second
        return fault_from(error, self._name)

    def _begin_waiting(self) -> bool:
        """In the worker: begin when other processes let us; False if no request waits for it any more."""
        if self._turnstile is not None:
            self._turnstile.enter()
        try:
            while self._queue:
                if self._session.begin():
                    return True
                time.sleep(_RETRY_SECONDS)
            return False
        finally:
            if self._turnstile is not None:
                self._turnstile.leave()

    def _take(self, count: int) -> list[_Request]:
        batch: list[_Request] = []
        while self._queue and len(batch) < count:
            request = self._queue.popleft()
            if not request.future.done():
                batch.append(request)
        return batch

    def _wait_in_worker(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        def end(outcome: T) -> None:
            self._waiting = False
            if self._expiry is not None:
                self._expiry.cancel()
                self._expiry = None
            done(outcome)

        self._waiting = True
        self._arm()
        self._worker.run(job, end)

    def _arm(self) -> None:
        if self._expiry is None and self._queue:
            self._expiry = self._loop.call_at(self._queue[0].deadline, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        now = self._loop.time()
        with self._taking:
            while self._queue and self._queue[0].deadline <= now:
                self._queue.popleft().settle(busy(self._name))
        self._arm()

    def _settled(self, outcome: _Outcome) -> None:
        batch, error = outcome
        overlap = bool(self._queue) and self._overlaps(len(self._queue) + len(batch))
        if overlap:
            self._step()
            self._worker.let_in()
        for request in batch:
            request.settle(error)
        if not overlap:
            # After the tasks just woken, so that their next requests go together.
            self._loop.call_soon(self._step)

    def _chore_done(self, done: Callable[[Fault | None], None], fault: Fault | None) -> None:
        self._loop.call_soon(self._step)
        done(fault)
