"""
Random programs on a queue, with a clock set by hand, compared with a model of a few lines.
"""

import datetime as dt
from typing import Any

import attrs
import hypothesis.strategies as st
from hypothesis.stateful import Bundle, initialize, multiple, rule

from tableorm.protocol.codes import Code
from tableorm.protocol.edm import TICKS_PER_SECOND
from tableorm.stores import CLOCK, Message
from tableorm_local.engine import write_session
from tests.local.engine.machine import EngineMachine

QUEUE = "queue"
SECONDS = st.sampled_from([0, 1, 2, 5, 30])


@attrs.define
class Known:
    """What the model knows of a message."""

    body: bytes
    visible: int
    expires: float
    receipt: str | None = None
    count: int = 0


class Programs(EngineMachine):
    taken: Bundle[Message] = Bundle("taken")

    def __init__(self) -> None:
        super().__init__(1)
        (self.engine,) = self.engines
        CLOCK.freeze()
        self.model: dict[str, Known] = {}
        self.ids: set[str] = set()

    def teardown(self) -> None:
        super().teardown()
        CLOCK.reset()

    def after(self, seconds: int) -> int:
        return write_session.now() + seconds * TICKS_PER_SECOND

    def living(self) -> dict[str, Known]:
        return {number: known for number, known in self.model.items() if known.expires > write_session.now()}

    def visible(self) -> dict[str, Known]:
        return {number: known for number, known in self.living().items() if known.visible <= write_session.now()}

    @initialize(target=taken)
    def start(self) -> Any:
        """Begin with a message that is taken, so that short programs have receipts too."""
        self.run(self.engine.open())
        self.run(self.engine.queues.create_queue(QUEUE))
        self.put(b"first", 0, None)
        return self.take(1, 30)

    @rule(body=st.binary(max_size=5), delay=SECONDS, more=st.none() | SECONDS)
    def put(self, body: bytes, delay: int, more: int | None) -> None:
        """Add a message that lives longer than it is hidden, or not."""
        ttl = None if more is None else delay + more
        put = self.run(self.engine.queues.put(QUEUE, body, delay_seconds=delay, ttl_seconds=ttl))
        if more == 0:
            assert put == Code.PARAMETER_OUT_OF_RANGE
            return
        assert put.id not in self.ids
        self.ids.add(put.id)
        self.model[put.id] = Known(body, self.after(delay), float("inf") if ttl is None else self.after(ttl))

    @rule(target=taken, count=st.sampled_from([1, 2, 32]), seconds=st.sampled_from([1, 5, 30]))
    def take(self, count: int, seconds: int) -> Any:
        """Take visible messages: as many as there are, the longest visible first."""
        visible = self.visible()
        messages = self.run(self.engine.queues.take(QUEUE, count, seconds))
        assert len(messages) == min(count, len(visible))
        times = [visible[message.id].visible for message in messages]
        assert times == sorted(times)
        assert not messages or max(times) <= min(
            (known.visible for number, known in visible.items() if number not in {each.id for each in messages}),
            default=max(times),
        )
        for message in messages:
            known = self.model[message.id]
            known.visible, known.receipt, known.count = self.after(seconds), message.receipt, known.count + 1
            assert (message.body, message.dequeue_count) == (known.body, known.count)
        return multiple(*messages)

    def expected(self, message: Message) -> str | None:
        """The code with which the receipt is rejected."""
        known = self.living().get(message.id)
        if known is None:
            return Code.MESSAGE_NOT_FOUND
        return None if known.receipt == message.receipt else Code.POP_RECEIPT_MISMATCH

    @rule(target=taken, message=taken, seconds=SECONDS)
    def renew(self, message: Message, seconds: int) -> Message:
        """Renew a message under a receipt that may be stale."""
        expected = self.expected(message)
        renewed = self.run(self.engine.queues.renew(QUEUE, message, seconds))
        if expected is not None:
            assert renewed == expected
            return message
        assert isinstance(renewed, Message)
        # Under the receipt from before nobody deletes it.
        assert self.run(self.engine.queues.delete(QUEUE, message)) == Code.POP_RECEIPT_MISMATCH
        known = self.model[message.id]
        known.visible, known.receipt = self.after(seconds), renewed.receipt
        return renewed

    @rule(message=taken)
    def delete(self, message: Message) -> None:
        """Delete a message under a receipt that may be stale."""
        expected = self.expected(message)
        assert self.run(self.engine.queues.delete(QUEUE, message)) == expected
        if expected is None:
            del self.model[message.id]

    @rule(count=st.sampled_from([1, 32]))
    def peek(self, count: int) -> None:
        """Look at visible messages, and at the length."""
        visible = self.visible()
        messages = self.run(self.engine.queues.peek(QUEUE, count))
        assert len(messages) == min(count, len(visible))
        for message in messages:
            known = visible[message.id]
            assert (message.body, message.dequeue_count, message.receipt) == (known.body, known.count, None)
        assert len(self.living()) <= self.run(self.engine.queues.length(QUEUE)) <= len(self.model)

    @rule(seconds=st.sampled_from([1, 2, 10]))
    def wait(self, seconds: int) -> None:
        """Time passes."""
        CLOCK.advance(dt.timedelta(seconds=seconds))

    @rule(anew=st.booleans())
    def clear(self, *, anew: bool) -> None:
        """Remove all messages; or the queue, and make it again."""
        if anew:
            self.run(self.engine.queues.delete_queue(QUEUE))
            self.run(self.engine.queues.create_queue(QUEUE))
        else:
            self.run(self.engine.queues.clear(QUEUE))
        self.model.clear()

    @rule()
    def reopen(self) -> None:
        """A restart changes nothing."""
        self.run(self.engine.close())
        self.run(self.engine.open())


TestPrograms = Programs.TestCase
