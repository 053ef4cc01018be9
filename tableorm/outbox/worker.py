"""
A worker: it takes messages from the queue of the outbox, and does what they ask for.

Whatever it does may be done twice, by two workers at the same time, and again later. A message is hidden while it is
worked on, and renewed at a third of that time; a worker that loses it to another one finishes, and acknowledges
nothing. A message that a worker does not know it puts back as a new one, because takes by those who cannot do anything
must not count as tries. After too many tries the error is noted where people look for it, and the message is dropped:
the rows are the truth, and the queue is only the bell.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Self

import attrs
import msgspec

from ..connection.async_only import async_only
from ..connection.connection import Connection
from ..connection.logger import make_logger
from ..connection.tasks import stop_tasks
from ..connection.translate import translate
from ..errors import AccessDenied, NotSupported, TableOrmError
from ..protocol.codes import Code, Fault
from ..protocol.limits import MAX_MESSAGES
from ..stores import CLOCK, Message, MessageId, QueueStore
from .bell import OUTBOX, outbox_queues

_LOG = make_logger("tableorm.worker")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0  # seconds between looks at an empty queue
_PUT_BACK_SECONDS = 30  # until a message is visible again that was left to others
_SECONDS_OF_REPORTS = 60.0  # between two lines of the log


LEFT_TO_OTHERS = (AccessDenied, NotSupported)
"""The errors of a worker that does not know what a message is about, or may not do it."""


class Outcome(StrEnum):
    """What happened to a message that was taken."""

    DONE = "done"
    """The change was committed, and is carried out now."""
    VOID = "void"
    """The change had not committed, and now it never will."""
    FAILED = "failed"
    """A try failed, and there will be another."""
    DROPPED = "dropped"
    """The last try failed."""
    LEFT = "left"
    """This worker does not know what the message is about, or may not do it: it is left to others."""
    LOST = "lost"
    """Another worker took the message before it was acknowledged."""


@attrs.frozen
class Patience:
    """
    How often a message is tried that fails, and after which pauses: each is about twice as long as the one before.

    Args:
        tries: After so many tries it is dropped.
        first_seconds: The pause after the first try, at most; about three quarters of it on average.
        longest_seconds: The longest pause.
    """

    tries: int = 10
    first_seconds: float = 2.0
    longest_seconds: float = 3600.0

    def pause_after(self, tries: int) -> float:
        """Return after how many seconds there is another try, by chance, so that messages do not come back together."""
        longest = self.first_seconds * 2.0 ** min(tries - 1, 30)
        return min(longest, self.longest_seconds) * random.uniform(0.5, 1)


def _usual_patience(body: bytes) -> None:
    del body


@attrs.frozen
class Handler:
    """
    What is done for the messages of one type.

    Args:
        work: Does what a message asks for, and returns what became of it: DONE or VOID. It may be called twice, and for
            two messages at the same time. If it raises NotSupported or AccessDenied, the message is left to others;
            after any other error there is another try.
        give_up: Notes after the last try, where people look for it, why it failed and how many tries there were. If it
            raises a TableOrmError, the message is not dropped yet.
        patience: Returns how often a message is tried, and when; None if it is as any other.
    """

    work: Callable[[bytes], Awaitable[Outcome]]
    give_up: Callable[[bytes, str, int], Awaitable[object]]
    patience: Callable[[bytes], Patience | None] = _usual_patience


@async_only
class Worker:
    """
    A background worker, which finishes what writes have left to do in other partitions. Made by `Database.worker`.

    It works from the beginning of its `async with` block, which raises a `TableOrmError` if the queue can't be reached.
    At the end of the block it takes no more messages and finishes what it has begun. If the block raises, it stops at
    once and returns its messages to the queue.

    Attributes:
        counts: How many messages had which outcome.
    """

    def __init__(
        self,
        db: Connection,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int = 32,
        visibility_seconds: int = 60,
        patience: Patience = Patience(),
    ) -> None:
        self._db, self._handlers = db, handlers
        self._queues = outbox_queues(db)
        self._concurrency, self._visibility, self._patience = concurrency, visibility_seconds, patience
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._draining: list[asyncio.Future[None]] = []
        self._left = set[MessageId]()  # messages that it has put back for others
        self.counts = Counter[Outcome]()

    def __repr__(self) -> str:
        done = ", ".join(f"{count} {outcome.value}" for outcome, count in self.counts.items())
        return f"<worker: {done or 'no messages so far'}>"

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise NotSupported("this worker was started already; call db.worker(...) for each block")
        try:
            await self._queues.peek(OUTBOX)
        except Fault as fault:
            if not (fault.transient or fault.code == Code.QUEUE_NOT_FOUND):
                raise translate(fault, f"worker on the queue {OUTBOX}", "") from None
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._task is not None
        self._stopping.set()
        try:
            if kind is None:
                await self._task
        finally:
            await stop_tasks([self._task])

    async def drain(self) -> None:
        """
        Wait until there is no pending work: the queue is empty, including hidden messages, except for messages that
        this worker leaves to others. This also waits for messages that arrive in the meantime.

            async with db.worker(Employee) as worker:
                await worker.drain()

        Raises:
            TableOrmError: The worker is no longer allowed to take messages, or was stopped in the meantime.
            NotSupported: It isn't running.
        """
        if self._task is None or self._task.done():
            raise NotSupported("this worker does not run; call drain() inside of `async with db.worker(...)`")
        drained = asyncio.get_running_loop().create_future()
        self._draining.append(drained)
        await drained

    async def _run(self) -> None:
        """Work until the block ends. If it is cancelled, its messages are given back at once."""
        running = set[asyncio.Task[None]]()
        pause, reported = _FIRST_PAUSE, time.monotonic()
        try:
            while not self._stopping.is_set():
                room = min(self._concurrency - len(running), MAX_MESSAGES)
                messages = await self._take(room) if room else []
                running.update(asyncio.create_task(self._work_on(message)) for message in messages)
                if self._draining and not (messages or running):
                    await self._look_at_length()
                pause = _FIRST_PAUSE if messages or self._draining else min(pause * 2, _LONGEST_PAUSE)
                if len(running) == self._concurrency:
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                elif not messages:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._stopping.wait(), pause * random.uniform(0.5, 1))
                ended = {task for task in running if task.done()}
                running -= ended
                await asyncio.gather(*ended)  # raises what is a fault of ours
                if time.monotonic() - reported > _SECONDS_OF_REPORTS:
                    reported = time.monotonic()
                    self._report()
            await asyncio.gather(*running)
        finally:
            await stop_tasks(running)
            self._end_draining(NotSupported("the worker was stopped before its queue was empty"))
            self._db.stats.lag = None
            self._report()

    def _report(self) -> None:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.counts.items()))
        lag = f"; the oldest was put {self._db.stats.lag:g} s ago" if self._db.stats.lag else ""
        _LOG.info("%s%s", f"messages: {counts}" if counts else "no messages", lag)

    async def _take(self, count: int) -> list[Message]:
        """Take messages, and note the age of the oldest; none while the store does not answer, or refuses."""
        messages = list[Message]()
        try:
            messages = await self._queues.take(OUTBOX, count, self._visibility)
        except Fault as fault:
            if fault.code != Code.QUEUE_NOT_FOUND:
                _LOG.warning("taking messages of %s: %s", OUTBOX, fault)
                if not fault.transient:
                    self._end_draining(translate(fault, f"taking messages of the queue {OUTBOX}", ""))
        self._left.difference_update(message.id for message in messages)
        present = CLOCK.now()
        self._db.stats.lag = max([0.0, *((present - each.inserted_at).total_seconds() for each in messages)])
        return messages

    async def _look_at_length(self) -> None:
        """Tell those who wait for an empty queue, if it is."""
        try:
            length = await self._queues.length(OUTBOX)
        except Fault as fault:
            if fault.code != Code.QUEUE_NOT_FOUND:
                return  # the next look at the queue says what is wrong
            length = 0
        if length <= len(self._left):
            self._end_draining(None)

    def _end_draining(self, error: Exception | None) -> None:
        for drained in self._draining:
            if error is not None and not drained.done():
                drained.set_exception(error)
            elif not drained.done():
                drained.set_result(None)
        self._draining.clear()

    async def _work_on(self, message: Message) -> None:
        """Work on a message until it is acknowledged or given back. What goes wrong concerns no other message."""
        async with _Lease(self._queues, message, self._visibility) as lease:
            try:
                outcome = await self._carry_out(message.body)
            except Exception as error:  # noqa: BLE001 - whatever a handler raises
                outcome = await self._note_failure(message, error)
        try:
            if outcome is Outcome.FAILED:
                await lease.hide(self._patience_for(message.body).pause_after(message.dequeue_count))
            elif outcome is Outcome.LEFT:
                again = await self._queues.put(OUTBOX, message.body, delay_seconds=_PUT_BACK_SECONDS)
                self._left.add(again.id)
                await lease.acknowledge()
            else:
                await lease.acknowledge()
        except Fault as fault:
            outcome = outcome if fault.transient else Outcome.LOST  # it comes back by itself
        self.counts[outcome] += 1

    async def _carry_out(self, body: bytes) -> Outcome:
        """Do what a message asks for. Raises ValueError if it is not a message of ours, and what a handler raises."""
        handler = self._handlers.get(_type_of(body))
        if handler is None:
            return Outcome.LEFT
        try:
            return await handler.work(body)
        except LEFT_TO_OTHERS as error:
            _LOG.info("a message is left to others: %s", error)
            return Outcome.LEFT

    async def _note_failure(self, message: Message, error: Exception) -> Outcome:
        """Log a try that failed; after too many of them, note the error where people look for it."""
        tries, most = message.dequeue_count, self._patience_for(message.body).tries
        _LOG.warning("message %s of %s, try %d of %d: %s", message.id, OUTBOX, tries, most, error)
        _LOG.debug("message %s of %s, try %d:", message.id, OUTBOX, tries, exc_info=error)
        if tries < most:
            return Outcome.FAILED
        try:
            with suppress(ValueError):
                handler = self._handlers[_type_of(message.body)]
                await handler.give_up(message.body, f"{type(error).__name__}: {error}", tries)
        except TableOrmError as fault:
            _LOG.warning("message %s of %s cannot be dropped yet: %s", message.id, OUTBOX, fault)
            return Outcome.FAILED
        return Outcome.DROPPED

    def _patience_for(self, body: bytes) -> Patience:
        """Return how often a message is tried. One that cannot be read is tried as any other."""
        try:
            handler = self._handlers.get(_type_of(body))
            found = None if handler is None else handler.patience(body)
        except (ValueError, NotSupported):
            return self._patience
        return found or self._patience


class _AnyMessage(msgspec.Struct, frozen=True, gc=False):
    type: str


def _type_of(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_AnyMessage).type
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"the message is not one of this queue: {error}") from None


class _Lease:
    """
    A message while it is worked on: inside of the block it is renewed at a third of its time.

    Args:
        queues: Where the queue is.
        message: The message that was taken.
        seconds: For how long it is hidden each time.
    """

    def __init__(self, queues: QueueStore, message: Message, seconds: int) -> None:
        self._queues, self._message, self._seconds = queues, message, seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._start_timer()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if self._renewal is not None:
                await self._renewal  # afterwards its receipt is the valid one
        finally:
            if self._timer is not None:
                self._timer.cancel()
        if kind is not None:
            with suppress(Fault):
                await self.hide(0)

    def _start_timer(self) -> None:
        self._timer = self._loop.call_later(self._seconds / 3, self._start_renewal)

    def _start_renewal(self) -> None:
        self._renewal = self._loop.create_task(self._renew())

    async def _renew(self) -> None:
        try:
            await self.hide(self._seconds)
        except Fault as fault:
            if not fault.transient:
                return  # another worker has it: what is under way is finished, and not acknowledged
        self._start_timer()

    async def hide(self, seconds: float) -> None:
        """Hide the message for so long from now. Raises Fault if another worker has it."""
        self._message = await self._queues.renew(OUTBOX, self._message, int(seconds))

    async def acknowledge(self) -> None:
        """Delete the message. Raises Fault if another worker has it."""
        await self._queues.delete(OUTBOX, self._message)
