"""
The interface of a store of queues: messages that come back unless they are deleted.
"""

import datetime as dt
from typing import Protocol

import attrs

from .capabilities import Capabilities

__all__ = ["Message", "MessageId", "QueueStore"]


MessageId = str
"""What a queue calls a message: opaque, never used again in that queue."""


@attrs.frozen
class Message:
    """
    A message as one take saw it.

    Args:
        id: Its name.
        body: What was put.
        receipt: The right to renew or delete it, until someone else takes it; None if it was only peeked at.
        dequeue_count: How often it was taken, this time included.
        inserted_at: When it was put, in UTC, by the store's clock.
    """

    id: MessageId
    body: bytes
    receipt: str | None
    dequeue_count: int
    inserted_at: dt.datetime


class QueueStore(Protocol):
    """
    Queues of messages: delivered at least once, in no order.

    A message is visible, or hidden for a time: since it was put with a delay, or because someone works on it. What was
    taken and not deleted when that time is over may be taken by someone else; until then, also later, its receipt is
    good. Times are by the store's clock, which may jump: receipts save work, they are no locks.

    Every method raises `tableorm.protocol.codes.Fault` and nothing else (besides `asyncio.CancelledError`);
    QueueNotFound if there is no such queue. A call that is cancelled happened in full or not at all.

    Source: Queue service REST.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do: `durable`, `exact_limits`."""
        ...

    async def create_queue(self, queue: str) -> None:
        """
        Create a queue; nothing happens if it exists. Fault QueueBeingDeleted, where a name is not free at once.
        """
        ...

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue and its messages."""
        ...

    async def list_queues(self, prefix: str = "") -> list[str]:
        """Names of the queues that start with `prefix`, in order."""
        ...

    async def put(
        self, queue: str, body: bytes, *, delay_seconds: int = 0, ttl_seconds: int | None = None
    ) -> MessageId:
        """
        Add a message. Durable when it returns.

        Args:
            queue: Name of the queue.
            body: Any bytes, `MAX_MESSAGE_BYTES` at most.
            delay_seconds: How long it is hidden at first, up to 7 days.
            ttl_seconds: After how long it vanishes if nobody deleted it, more than the delay; None for never.

        Raises:
            Fault: MessageTooLarge, OutOfRangeQueryParameterValue, QueueNotFound.
        """
        ...

    async def take(self, queue: str, count: int = 1, visibility_seconds: int = 30) -> list[Message]:
        """
        Take visible messages: at most `count` (1 to 32), perhaps none; each is hidden from all others for
        `visibility_seconds` (1 second to 7 days), and has a receipt that makes older ones of it stale.

        Raises:
            Fault: OutOfRangeQueryParameterValue, QueueNotFound.
        """
        ...

    async def renew(self, queue: str, message: Message, visibility_seconds: int) -> Message:
        """
        Hide a taken message for `visibility_seconds` (0 to 7 days) from now; 0 gives it back at once.

        Returns:
            The message with a new receipt; the old one is stale.

        Raises:
            Fault: PopReceiptMismatch or MessageNotFound: the receipt is stale, or the message is deleted or expired.
        """
        ...

    async def delete(self, queue: str, message: Message) -> None:
        """Delete a taken message. Faults as in `renew`."""
        ...

    async def peek(self, queue: str, count: int = 1) -> list[Message]:
        """At most `count` (1 to 32) visible messages, without receipts; nothing changes."""
        ...

    async def length(self, queue: str) -> int:
        """About how many messages there are, hidden ones included; never less than there are."""
        ...

    async def clear(self, queue: str) -> None:
        """Delete all messages that are in the queue."""
        ...
