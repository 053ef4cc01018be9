"""
The interface of a store of queues: messages that come back unless they are deleted.
"""

import datetime as dt
from typing import Protocol

import attrs

from .capabilities import Capabilities

MessageId = str
"""The name that a queue gives a message: opaque, and never used again in that queue."""


@attrs.frozen(kw_only=True)
class Message:
    """
    A message as it was when it was put or taken.

    Args:
        id: Its name.
        body: The bytes that were put.
        receipt: Allows its holder to renew or delete the message until someone takes it; None after a peek.
        dequeue_count: How often the message was taken, this time included; 0 for one that was just put.
        inserted_at: When it was put, in UTC, by the store's clock.
    """

    id: MessageId
    body: bytes
    receipt: str | None
    dequeue_count: int
    inserted_at: dt.datetime


class QueueStore(Protocol):
    """
    Queues of messages, which are delivered at least once, in no particular order.

    A message is visible, or hidden for a time: it was put with a delay, or someone works on it. A message that was
    taken, and not deleted when its time is over, may be taken by someone else; its receipt is valid until that happens.
    Times are measured by the store's clock, which may jump: receipts save work, but they are not locks.

    Every method raises `tableorm.protocol.codes.Fault` and nothing else (besides `asyncio.CancelledError`). The Fault
    is QueueNotFound if there is no such queue. A call that is cancelled happened in full or not at all.
    `db.queues` raises an error of `tableorm.errors` in place of each Fault, with the same code.

    Source: Queue service REST.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do: `durable`, `exact_limits`."""
        ...

    async def create_queue(self, queue: str) -> None:
        """
        Create a queue; nothing happens if it exists.

            await db.queues.create_queue("jobs")

        Raises:
            Fault: QueueBeingDeleted where a deleted queue's name is not free at once.
        """
        ...

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue and its messages."""
        ...

    async def list_queues(self, prefix: str = "") -> list[str]:
        """List the names of the queues that start with `prefix`, in order."""
        ...

    async def put(self, queue: str, body: bytes, *, delay_seconds: int = 0, ttl_seconds: int | None = None) -> Message:
        """
        Add a message. It is durable when the call returns.

            await db.queues.put("jobs", b"invoice 7")

        Args:
            queue: Name of the queue.
            body: Any bytes, `MAX_MESSAGE_BYTES` at most.
            delay_seconds: How long the message is hidden at first, up to 7 days.
            ttl_seconds: After how long the message expires, more than the delay; None for never.

        Returns:
            The message with a receipt, which is valid until someone takes it.

        Raises:
            Fault: MessageTooLarge, OutOfRangeQueryParameterValue, QueueNotFound.
        """
        ...

    async def take(self, queue: str, count: int = 1, visibility_seconds: int = 30) -> list[Message]:
        """
        Take at most `count` (1 to 32) visible messages, perhaps none.

            for message in await db.queues.take("jobs", count=10, visibility_seconds=60):
                await work(message.body)
                await db.queues.delete("jobs", message)

        Each one is hidden from other clients for `visibility_seconds` (1 second to 7 days), and has a new receipt,
        which makes its older ones stale.

        Raises:
            Fault: OutOfRangeQueryParameterValue, QueueNotFound.
        """
        ...

    async def renew(self, queue: str, message: Message, visibility_seconds: int) -> Message:
        """
        Hide a message that was put or taken for `visibility_seconds` (0 to 7 days) from now; 0 shows it at once.

            message = await db.queues.renew("jobs", message, 60)

        Returns:
            The message with a new receipt; the old one is stale.

        Raises:
            Fault: PopReceiptMismatch or MessageNotFound: the receipt is stale, or the message is deleted or expired.
        """
        ...

    async def delete(self, queue: str, message: Message) -> None:
        """Delete a message that was put or taken. Fault PopReceiptMismatch or MessageNotFound."""
        ...

    async def peek(self, queue: str, count: int = 1) -> list[Message]:
        """
        Read at most `count` (1 to 32) visible messages without taking them: they get no receipts.

            messages = await db.queues.peek("jobs", count=10)
        """
        ...

    async def length(self, queue: str) -> int:
        """
        Estimate the number of messages, hidden ones included. The estimate is never too low.

            print(await db.queues.length("jobs"))
        """
        ...

    async def clear(self, queue: str) -> None:
        """Delete all messages that are in the queue."""
        ...
