"""
Queues of an account as a `QueueStore`: azure-storage-queue, with bodies as base64, which any bytes survive.
"""

import datetime as dt
from base64 import b64decode, b64encode
from typing import Any

import attrs
from azure.storage.queue.aio import QueueClient, QueueServiceClient

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.limits import (
    check_message,
    check_message_count,
    check_message_times,
    check_queue_name,
    check_visibility,
)
from tableorm.stores import Capabilities, Message

from .faults import translated
from .lists import LIST_PAGE, list_names

_CLEAR_ATTEMPTS = 100


class AzureQueues:
    """
    The queues of one account.

    Args:
        service: The SDK's client.
        capabilities: The capabilities of the service.
    """

    def __init__(self, service: QueueServiceClient, capabilities: Capabilities) -> None:
        self._service: Any = service  # its own types are incomplete
        self.capabilities = capabilities

    async def create_queue(self, queue: str) -> None:
        """See `QueueStore`."""
        try:
            with translated(write=True):
                await self._queue(queue).create_queue()
        except Fault as fault:
            if fault.code != Code.QUEUE_EXISTS:
                raise

    async def delete_queue(self, queue: str) -> None:
        """See `QueueStore`."""
        with translated(write=True):
            await self._queue(queue).delete_queue()

    async def list_queues(self, prefix: str = "") -> list[str]:
        """See `QueueStore`."""
        with translated(write=False):
            listing = self._service.list_queues(name_starts_with=prefix or None, results_per_page=LIST_PAGE)
            return sorted(await list_names(listing))

    async def put(self, queue: str, body: bytes, *, delay_seconds: int = 0, ttl_seconds: int | None = None) -> Message:
        """See `QueueStore`."""
        check_message(body)
        check_message_times(delay_seconds, ttl_seconds)
        with translated(write=True):
            sent = await self._queue(queue).send_message(
                b64encode(body).decode("ascii"),
                visibility_timeout=delay_seconds,
                time_to_live=-1 if ttl_seconds is None else ttl_seconds,
            )
            inserted: dt.datetime = sent.inserted_on
            return Message(
                id=sent.id,
                body=body,
                receipt=sent.pop_receipt,
                dequeue_count=0,
                inserted_at=inserted.astimezone(dt.UTC),
            )

    async def take(self, queue: str, count: int = 1, visibility_seconds: int = 30) -> list[Message]:
        """See `QueueStore`."""
        check_message_count(count)
        check_visibility(visibility_seconds, 1)
        with translated(write=True):
            pages = self._queue(queue).receive_messages(messages_per_page=count, visibility_timeout=visibility_seconds)
            async for page in pages.by_page():
                return [_read_message(each) async for each in page]
            return []

    async def renew(self, queue: str, message: Message, visibility_seconds: int) -> Message:
        """See `QueueStore`."""
        check_visibility(visibility_seconds)
        receipt = _require_receipt(message)
        with translated(write=True):
            renewed = await self._queue(queue).update_message(
                message.id, receipt, visibility_timeout=visibility_seconds
            )
            return attrs.evolve(message, receipt=renewed.pop_receipt)

    async def delete(self, queue: str, message: Message) -> None:
        """See `QueueStore`."""
        receipt = _require_receipt(message)
        with translated(write=True):
            await self._queue(queue).delete_message(message.id, receipt)

    async def peek(self, queue: str, count: int = 1) -> list[Message]:
        """See `QueueStore`."""
        check_message_count(count)
        with translated(write=False):
            found = await self._queue(queue).peek_messages(max_messages=count)
            return [attrs.evolve(_read_message(each), receipt=None) for each in found]

    async def length(self, queue: str) -> int:
        """See `QueueStore`."""
        with translated(write=False):
            properties = await self._queue(queue).get_queue_properties()
            count: int = properties.approximate_message_count
            return count

    async def clear(self, queue: str) -> None:
        """See `QueueStore`."""
        for attempt in range(_CLEAR_ATTEMPTS):
            try:
                with translated(write=True):
                    await self._queue(queue).clear_messages()
                return
            except Fault as fault:
                # The service deletes a part of a long queue each time. Source: Queue service REST, "Clear Messages".
                if fault.code != Code.OPERATION_TIMED_OUT or attempt + 1 == _CLEAR_ATTEMPTS:
                    raise

    def _queue(self, queue: str) -> Any:
        check_queue_name(queue)
        client: QueueClient = self._service.get_queue_client(queue)
        return client


def _require_receipt(message: Message) -> str:
    if message.receipt is None:
        raise Fault(
            Code.POP_RECEIPT_MISMATCH, f"The message {message.id[:40]!r} was peeked at, not taken: it has no receipt."
        )
    return message.receipt


def _read_message(found: Any) -> Message:
    inserted: dt.datetime = found.inserted_on
    return Message(
        id=found.id,
        body=_read_body(found.content or ""),
        receipt=found.pop_receipt,
        dequeue_count=found.dequeue_count,
        inserted_at=inserted.astimezone(dt.UTC),
    )


def _read_body(text: str) -> bytes:
    """Return the bytes of a message. A message of plain text, from another program, is its UTF-8."""
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return text.encode()
