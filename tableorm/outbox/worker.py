"""
A worker: it takes doorbells from a queue and has done what committed changes have left to do.

Whatever it does may be done twice, by two workers at the same time, and again later. A message is hidden while it is
worked on, and renewed at a third of that time; a worker that loses it to another one finishes, and acknowledges
nothing. A message that a worker does not know it puts back as a new one, because takes by those who cannot do anything
must not count as tries. After too many tries the error is written into the decision row, which stays committed, and the
message is dropped: the rows are the truth, and the queue is only the bell.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from enum import StrEnum
from logging import getLogger
from typing import Self

from ..connection.connection import Connection
from ..errors import NotSupported, TableOrmError
from ..protocol.codes import Fault
from ..protocol.limits import MAX_MESSAGES
from ..stores import Message, QueueStore
from .decision import Decision, delete_decision, note_failure, settle_decision
from .doorbell import Begun, doorbell_of

__all__ = ["Handler", "Outcome", "Worker"]

Handler = Callable[[str, Decision], Awaitable[object]]
"""
Makes right what a committed change of a table has left to do; it may be called twice, and for two changes at the same
time.
"""

_LOG = getLogger("tableorm.worker")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0  # seconds between looks at an empty queue
_LONGEST_RETRY = 3600  # seconds until a message that failed is tried again, at most
_PUT_BACK_SECONDS = 30  # until a message is visible again that was left to others


class Outcome(StrEnum):
    """What becomes of a message that was taken."""

    DONE = "done"
    """The change was committed, and is carried out now."""
    VOID = "void"
    """The change had not committed, and now it never will."""
    FAILED = "failed"
    """A try failed, and there will be another."""
    DROPPED = "dropped"
    """The last try failed."""
    LEFT = "left"
    """This worker does not know the kind of the entity, or the format: the message is left to others."""
    LOST = "lost"
    """Somebody else has taken the message before it was acknowledged."""


class Worker:
    """
    A worker of one queue.

    Args:
        db: Where the decision rows are.
        queues: Where the queue is: a store, which raises faults, and not what `db.queues` gives.
        queue: Its name.
        kinds: The kinds of the entities whose changes it works on, with their versions, as stored.
        handle: What it does for each change.
        concurrency: How many messages are worked on at the same time.
        visibility_seconds: For how long a message is hidden from others, unless it is renewed.
        most_tries: After how many tries that failed a message is dropped.

    Attributes:
        counts: How many messages had which outcome.
    """

    def __init__(
        self,
        db: Connection,
        queues: QueueStore,
        queue: str,
        kinds: Collection[str],
        handle: Handler,
        *,
        concurrency: int = 8,
        visibility_seconds: int = 60,
        most_tries: int = 10,
    ) -> None:
        self._db, self._queues, self._queue, self._kinds, self._handle = db, queues, queue, frozenset(kinds), handle
        self._concurrency, self._visibility, self._most_tries = concurrency, visibility_seconds, most_tries
        self._stopping = asyncio.Event()
        self.counts = Counter[Outcome]()

    def stop(self) -> None:
        """Let `run` take no more messages, and return when those that are worked on are done."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until `stop` is called. Whoever cancels it stops it at once: its messages are given back."""
        running: set[asyncio.Task[None]] = set()
        pause = _FIRST_PAUSE
        try:
            while not self._stopping.is_set():
                room = min(self._concurrency - len(running), MAX_MESSAGES)
                messages = await self._take(room) if room else []
                running.update(asyncio.create_task(self._work_on(message)) for message in messages)
                pause = _FIRST_PAUSE if messages else min(pause * 2, _LONGEST_PAUSE)
                if len(running) == self._concurrency:
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                elif not messages:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._stopping.wait(), pause * random.uniform(0.5, 1))
                running = {task for task in running if not task.done()}
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _take(self, count: int) -> list[Message]:
        try:
            return await self._queues.take(self._queue, count, self._visibility)
        except Fault as fault:
            if not fault.transient:
                raise
            _LOG.warning("taking messages of %s: %s", self._queue, fault)
            return []

    async def _work_on(self, message: Message) -> None:
        """Work on a message until it is acknowledged or given back. What goes wrong concerns no other message."""
        async with _Lease(self._queues, self._queue, message, self._visibility) as lease:
            try:
                outcome = await self._carry_out(message.body)
            except Exception as error:  # noqa: BLE001 - whatever a handler raises
                outcome = await self._note_failure(message, error)
        try:
            if outcome is Outcome.FAILED:
                await lease.hide(min(2**message.dequeue_count, _LONGEST_RETRY) * random.uniform(0.5, 1))
            elif outcome is Outcome.LEFT:
                await self._queues.put(self._queue, message.body, delay_seconds=_PUT_BACK_SECONDS)
                await lease.acknowledge()
            else:
                await lease.acknowledge()
        except Fault as fault:
            outcome = outcome if fault.transient else Outcome.LOST  # it comes back by itself
        self.counts[outcome] += 1

    async def _carry_out(self, body: bytes) -> Outcome:
        """Do what a message asks for. Raises ValueError if it is not a doorbell, and what a handler raises."""
        try:
            doorbell = doorbell_of(body)
            if not self._kinds.issuperset(doorbell.kinds):
                return Outcome.LEFT
            outcomes = [await self._settle(change) for change in doorbell.changes]
        except NotSupported:
            return Outcome.LEFT
        return Outcome.DONE if Outcome.DONE in outcomes else Outcome.VOID

    async def _settle(self, change: Begun) -> Outcome:
        """Find out what became of a change, and do what it has left to do. Raises what the handler raises."""
        decision = await settle_decision(self._db, change.table, change.partition_key, change.token)
        if not decision.committed:
            return Outcome.VOID
        await self._handle(change.table, decision)
        await delete_decision(self._db, change.table, decision)
        return Outcome.DONE

    async def _note_failure(self, message: Message, error: Exception) -> Outcome:
        """Log a try that failed; after too many of them, write the error into the decision row."""
        tries = message.dequeue_count
        _LOG.warning("message %s of %s, try %d: %s", message.id, self._queue, tries, error, exc_info=error)
        if tries < self._most_tries:
            return Outcome.FAILED
        with suppress(ValueError):
            doorbell = doorbell_of(message.body)
            try:
                for change in doorbell.changes:
                    await note_failure(self._db, change, f"{type(error).__name__}: {error}", tries)
            except TableOrmError as fault:
                _LOG.warning("message %s of %s cannot be dropped yet: %s", message.id, self._queue, fault)
                return Outcome.FAILED
        return Outcome.DROPPED


class _Lease:
    """
    A message while it is worked on: inside of the block it is renewed at a third of its time.

    Args:
        queues: Where the queue is.
        queue: Its name.
        message: The message that was taken.
        seconds: For how long it is hidden each time.
    """

    def __init__(self, queues: QueueStore, queue: str, message: Message, seconds: int) -> None:
        self._queues, self._queue, self._message, self._seconds = queues, queue, message, seconds
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._renew())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended.set()  # a renewal under way ends first: afterwards its receipt is the valid one
        if self._task is not None:
            await self._task
        if kind is not None:
            with suppress(Fault):
                await self.hide(0)

    async def _renew(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), self._seconds / 3)
                return
            try:
                await self.hide(self._seconds)
            except Fault as fault:
                if not fault.transient:
                    return  # somebody else has it: what is under way is finished, and not acknowledged

    async def hide(self, seconds: float) -> None:
        """Hide the message for so long from now. Raises Fault if somebody else has it."""
        self._message = await self._queues.renew(self._queue, self._message, int(seconds))

    async def acknowledge(self) -> None:
        """Delete the message. Raises Fault if somebody else has it."""
        await self._queues.delete(self._queue, self._message)
