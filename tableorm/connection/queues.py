"""
Requests for queues, of programs and of the outbox: counted and observed.
"""

from typing import Any

from ..stores import QueueStore
from .connection import Connection

__all__ = ["QUEUE_OPERATIONS", "ObservedQueues"]

QUEUE_OPERATIONS = {
    "create_queue": "create-queue",
    "delete_queue": "delete-queue",
    "list_queues": "list-queues",
    "put": "put-message",
    "take": "take-messages",
    "renew": "renew-message",
    "delete": "delete-message",
    "peek": "peek-messages",
    "length": "queue-length",
    "clear": "clear-messages",
}
"""What `ObservedRequest` calls the requests of a `QueueStore`, by method."""


class ObservedQueues:
    """
    A `QueueStore` whose requests are counted and observed.

    Args:
        db: Counts them.
        queues: The store itself, which raises faults.
        model: What they are counted for; "" if for nothing.
    """

    def __init__(self, db: Connection, queues: QueueStore, model: str = "") -> None:
        self._db, self._queues, self._model = db, queues, model

    def __getattr__(self, member: str) -> Any:
        found: Any = getattr(self._queues, member)
        operation = QUEUE_OPERATIONS.get(member)
        if operation is None:
            return found

        async def call(queue: str = "", *given: Any, **named: Any) -> Any:
            self._db.sending(operation, self._model)
            place = "" if member == "list_queues" else queue
            return await self._db.watch.send(found(queue, *given, **named), operation, place)

        return call
