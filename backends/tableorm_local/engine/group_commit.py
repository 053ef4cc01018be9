"""
Group commit: requests that wait while the disk works are written together, in one transaction with one sync.

Requests are done in the order they came.

Statements of a few microseconds run on the event loop, because handing each to a thread takes longer than running it.
Calls that may wait (the sync, another process's lock) run in the worker. All of this is callbacks, not a task, so that
nothing can be cancelled half-way: whatever happens to the loop, a transaction that was begun is handed to the worker
and ends there.

A request that fails after it has written, or at damage, undoes the transaction. The others are done again without it.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from types import GeneratorType
from typing import Any, NamedTuple, cast

import apsw

from tableorm.protocol.codes import Fault

from .faults import DAMAGE, busy_fault, fault_from
from .worker import Worker
from .write_session import Work, WriteSession
from .writer_lock import WriterLock

# How long a transaction may keep the event loop busy; the rest of it goes on in the worker.
_LOOP_SECONDS = 0.002
# After so much work the wait for the worker to begin no longer matters; it can last as long as this thread works.
_LONG_SECONDS = 0.0002
# Requests per transaction in the worker, and how long it begins more of them: bounds the wait of other processes, and
# that of callers whose request is done, but not yet durable.
_WORKER_REQUESTS = 500
_WORKER_SECONDS = 0.05
# The pause between two tries for SQLite's lock. Only the holder of the writer lock tries, so this is cheap.
_RETRY_SECONDS = 0.0003
# The work of callers between two requests (their own code, checks, encoding, waking), in units of applying one
# request: measured.
_CALLER_SHARE = 4.0
_COMMITS_KEPT = 16  # few, because the speed of a disk changes


class _Request:
    """One request and its outcome."""

    __slots__ = ("changes", "deadline", "fault", "future", "has_broken", "steps", "value", "work")

    changes: int  # of the connection, when it began

    def __init__(self, work: Work, future: "asyncio.Future[Any]", deadline: float) -> None:
        self.work, self.future, self.deadline = work, future, deadline
        self.steps: Generator[object, None, object] | None = None
        self.value: object = None
        self.fault: Fault | None = None
        self.has_broken = False

    def run(self, session: WriteSession, until: float | None) -> bool:
        """Work until the request is done (True) or the time is over (False)."""
        try:
            steps = self.steps
            if steps is None:
                self.changes = session.connection.total_changes()
                result = self.work(session)
                if type(result) is not GeneratorType:
                    self.value = result
                    return True
                steps = self.steps = cast("Generator[object, None, object]", result)
            while True:
                is_next_long = next(steps)
                if until is not None and (is_next_long is True or time.perf_counter() > until):
                    return False
        except StopIteration as stop:
            self.value = stop.value
        except Fault as fault:
            self.fault = fault
        except (apsw.Error, *DAMAGE) as error:
            connection = session.connection
            # After a write that met a damaged page SQLite may refuse all that follow in this transaction.
            ended = isinstance(error, apsw.CorruptError) or not connection.in_transaction
            if ended or connection.total_changes() != self.changes:
                # What it has written must be undone, and that undoes the others' requests too.
                self.has_broken = isinstance(error, _OWN_ERRORS)
                raise
            self.fault = fault_from(error, session.name)
        self.steps = None
        return True

    def forget(self) -> None:
        """Forget the outcome, because it was undone, so that the request can be done again."""
        self.steps = self.value = self.fault = None

    def notify(self, error: Fault | None) -> None:
        """Give the caller its result or fault, unless it has been cancelled."""
        error = error or self.fault
        if self.future.done():
            return
        if error is None:
            self.future.set_result(self.value)
        else:
            self.future.set_exception(error)


# Errors of what one request reads or writes; all others say that the disk or the program fails everybody.
_OWN_ERRORS = (apsw.CorruptError, apsw.ConstraintError, apsw.MismatchError, apsw.SQLError, apsw.TooBigError, *DAMAGE)


class _Outcome(NamedTuple):
    """
    What became of a transaction.

    Args:
        over: The requests that have an outcome.
        fault: The fault that undid all of these, if any.
        undone: The requests that were undone because another failed, and are done again.
    """

    over: list[_Request]
    fault: Fault | None
    undone: Sequence[_Request] = ()


class GroupCommit:
    """
    The queue of writes of one open file.

    Args:
        session: The connection that writes.
        worker: Runs the calls that may wait.
        writer_lock: Orders the processes that write; None for a database in memory.
        timeout: Seconds after which a request no longer waits for another process.
    """

    def __init__(self, session: WriteSession, worker: Worker, writer_lock: WriterLock | None, timeout: float) -> None:
        self._session, self._worker, self._writer_lock = session, worker, writer_lock
        self._name, self._timeout = session.name, timeout
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Request] = deque()
        self._queue_lock = threading.Lock()  # while the worker takes requests, between it and the event loop
        self._background_job: _Request | None = None
        self._job_next = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._waiting = False
        self._expiry: asyncio.TimerHandle | None = None
        # The cost of the last transactions, from which the number of requests in the next one is chosen.
        self._last_count = 0
        self._apply_seconds = 0.0
        self._commit_seconds: deque[float] = deque(maxlen=_COMMITS_KEPT)

    def submit(self, work: Work) -> "asyncio.Future[Any]":
        """
        Queue a request.

        Returns:
            A future of its result, set when that is durable. Cancelling it withdraws a request that has not begun.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        request = _Request(work, future, self._loop.time() + self._timeout)
        if self._waiting:
            with self._queue_lock:
                self._queue.append(request)
            self._start_timer()
        else:
            self._queue.append(request)
        self._start()
        return future

    def submit_background_job(self, work: Work) -> "asyncio.Future[Any]":
        """
        Do work of low priority in a transaction of its own, when the queue allows it. There is one job at a time.

        Returns:
            A future of its result. Fault if another process is writing, for which a job does not wait.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        self._background_job = _Request(work, future, self._loop.time())
        self._start()
        return future

    async def drain(self) -> None:
        """Wait until nothing is queued or under way."""
        await self._idle.wait()

    def _start(self) -> None:
        if self._idle.is_set():
            self._idle.clear()
            # Not at once, so that the tasks that are ready now get their requests into this transaction.
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        """Start one transaction, or none if nothing is left to do."""
        if self._background_job is not None and (self._job_next or not self._queue):
            job, self._background_job, self._job_next = self._background_job, None, False
            self._worker.run(lambda: self._run_background_job(job), self._end_batch)
        elif self._queue:
            self._job_next = True
            self._start_batch()
        else:
            self._idle.set()

    def _start_batch(self) -> None:
        try:
            begun = self._begin_now()
        except Exception as error:  # noqa: BLE001 - translated, and raised in each caller
            self._end_batch(_Outcome(self._take_requests(len(self._queue)), fault_from(error, self._name)))
            return
        if begun:
            start = time.perf_counter()
            batch, failure = self._apply_here()
            self._worker.run(lambda: self._finish_batch(batch, failure), self._end_batch)
            if time.perf_counter() - start > _LONG_SECONDS:
                self._worker.wait_until_started()
            if failure is not None and not isinstance(failure, Exception):
                raise failure  # KeyboardInterrupt and SystemExit must reach the program
        else:
            self._wait_in_worker()

    def _begin_now(self) -> bool:
        if self._writer_lock is None:
            return self._session.begin()
        if not self._writer_lock.try_acquire():
            return False
        try:
            return self._session.begin()
        finally:
            self._writer_lock.release()

    def _apply_here(self) -> tuple[list[_Request], BaseException | None]:
        """Apply requests on the event loop while time allows. The last one may have to go on in the worker."""
        session, queue, batch = self._session, self._queue, list[_Request]()
        count = self._choose_count()
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
        except BaseException as error:  # noqa: BLE001 - the transaction ends in the worker, whatever the error is
            return batch, error
        self._last_count = len(batch)
        if batch:
            self._apply_seconds += ((time.perf_counter() - start) / len(batch) - self._apply_seconds) / 8
        return batch, None

    def _choose_count(self) -> int:
        """
        Choose how many of the waiting requests to take: all, or half of those under way.

        With half, the event loop works for one half of the callers while the disk works for the other half. That is one
        more sync per round, so it pays only if a sync takes less time than that work, as on a fast disk.
        """
        waiting = len(self._queue)
        under_way = waiting + self._last_count
        if not self._overlap_pays(under_way):
            return waiting
        return (under_way + 1) // 2

    def _overlap_pays(self, under_way: int) -> bool:
        if not self._worker.parallel or not self._commit_seconds:
            return False
        # The shortest recent commit is the nearest to a sync alone, without the rows and without waiting for Python.
        return under_way * self._apply_seconds * _CALLER_SHARE > min(self._commit_seconds)

    def _finish_batch(self, batch: list[_Request], error: BaseException | None) -> _Outcome:
        """In the worker: complete a transaction that was begun on the event loop."""
        try:
            if error is not None:
                return self._roll_back(batch, error)
            if batch and batch[-1].steps is not None:
                batch[-1].run(self._session, None)
            wrote = self._session.dirty
            start = time.perf_counter()
            self._session.commit()
            if wrote:
                self._commit_seconds.append(time.perf_counter() - start)
        except BaseException as failure:  # noqa: BLE001 - translated, and raised in each caller
            return self._roll_back(batch, failure)
        return _Outcome(batch, None)

    def _run_batch(self) -> _Outcome:
        """In the worker: do a whole transaction, once no other process writes."""
        batch: list[_Request] = []
        try:
            if not self._begin_waiting():
                return _Outcome(batch, None)
            until = time.perf_counter() + _WORKER_SECONDS
            for _ in range(min(len(self._queue), _WORKER_REQUESTS)):
                with self._queue_lock:
                    taken = self._take_requests(1)
                batch += taken
                for request in taken:
                    request.run(self._session, None)
                if time.perf_counter() > until:
                    break
            self._session.commit()
        except BaseException as error:  # noqa: BLE001 - translated, and raised in each caller
            return self._roll_back(batch, error)
        return _Outcome(batch, None)

    def _run_background_job(self, job: _Request) -> _Outcome:
        try:
            # Without waiting: requests of other processes matter more, and closing must not wait for a job.
            if not self._begin_now():
                return _Outcome([job], busy_fault(self._name))
            job.run(self._session, None)
            self._session.commit()
        except BaseException as error:  # noqa: BLE001 - translated, and given to the caller
            return self._roll_back([job], error)
        return _Outcome([job], None)

    def _roll_back(self, batch: list[_Request], error: BaseException) -> _Outcome:
        try:
            self._session.roll_back()
        except apsw.Error as second:
            return _Outcome(batch, fault_from(second, self._name))
        fault = fault_from(error, self._name)
        if batch and batch[-1].has_broken:
            return _Outcome(batch[-1:], fault, batch[:-1])
        return _Outcome(batch, fault)

    def _begin_waiting(self) -> bool:
        """In the worker: begin once no other process writes. Return False if no request waits for that any more."""
        if self._writer_lock is not None:
            self._writer_lock.acquire()
        try:
            while self._queue:
                if self._session.begin():
                    return True
                time.sleep(_RETRY_SECONDS)
            return False
        finally:
            if self._writer_lock is not None:
                self._writer_lock.release()

    def _take_requests(self, count: int) -> list[_Request]:
        batch: list[_Request] = []
        while self._queue and len(batch) < count:
            request = self._queue.popleft()
            if not request.future.done():
                batch.append(request)
        return batch

    def _wait_in_worker(self) -> None:
        def end(outcome: _Outcome) -> None:
            self._waiting = False
            if self._expiry is not None:
                self._expiry.cancel()
                self._expiry = None
            self._end_batch(outcome)

        self._waiting = True
        self._start_timer()
        self._worker.run(self._run_batch, end)

    def _start_timer(self) -> None:
        if self._expiry is None:
            with self._queue_lock:
                deadline = min((request.deadline for request in self._queue), default=None)
            if deadline is not None:
                self._expiry = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        now = self._loop.time()
        with self._queue_lock:
            late = [request for request in self._queue if request.deadline <= now]
            self._queue = deque(request for request in self._queue if request.deadline > now)
        for request in late:
            request.notify(busy_fault(self._name))
        self._start_timer()

    def _end_batch(self, outcome: _Outcome) -> None:
        batch, error, undone = outcome
        for request in undone:
            request.forget()
        self._queue.extendleft(reversed(undone))
        overlap = bool(self._queue) and self._overlap_pays(len(self._queue) + len(batch))
        if overlap:
            self._step()
            self._worker.wait_until_started()
        for request in batch:
            request.notify(error)
        if not overlap:
            # After the tasks that were just woken, so that their next requests go into one transaction.
            self._loop.call_soon(self._step)
