"""
Requests for queues and blobs, the stores beside the tables: what they are called, and what can be put around them.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from ..stores import BlobStore, BlobStream, QueueStore
from .connection import Connection

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

BLOB_OPERATIONS = {
    "create_container": "create-container",
    "delete_container": "delete-container",
    "list_containers": "list-containers",
    "put": "put-blob",
    "append": "append-blob",
    "info": "blob-info",
    "get": "get-blob",
    "read": "get-blob",
    "delete": "delete-blob",
    "list_blobs": "list-blobs",
}
"""What `ObservedRequest` calls the requests of a `BlobStore`, by method."""

Send = Callable[[str, str, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Sends a request of an operation for a queue or container, "" for none, by a call; returns its answer."""


class StoreBeside:
    """
    A `QueueStore` or a `BlobStore` whose requests are sent by a function.

    Args:
        store: The store itself.
        operations: What its requests are called, by method; all other members are those of the store.
        send: Sends a request.
    """

    def __init__(self, store: Any, operations: Mapping[str, str], send: Send) -> None:
        self._store, self._operations, self._send = store, operations, send

    def __getattr__(self, member: str) -> Any:
        found: Any = getattr(self._store, member)
        operation = self._operations.get(member)
        if operation is None:
            return found

        def place(given: tuple[Any, ...], named: Mapping[str, Any]) -> str:
            if member in ("list_queues", "list_containers"):
                return ""
            first: str = given[0] if given else named.get("queue") or named.get("container") or ""
            return first

        async def call(*given: Any, **named: Any) -> Any:
            return await self._send(operation, place(given, named), lambda: found(*given, **named))

        @asynccontextmanager
        async def open_stream(*given: Any, **named: Any) -> AsyncGenerator[BlobStream]:
            async with AsyncExitStack() as opened:

                async def enter() -> BlobStream:
                    stream: BlobStream = await opened.enter_async_context(found(*given, **named))
                    return stream

                yield await self._send(operation, place(given, named), enter)

        return open_stream if member == "get" else call  # of blobs; queues have no such method


def observed_queues(db: Connection, queues: QueueStore, model: str = "") -> Any:
    """
    Return a `QueueStore` whose requests are counted and observed.

    Args:
        db: Counts them.
        queues: The store itself, which raises faults.
        model: What they are counted for; "" if for nothing.
    """
    return StoreBeside(queues, QUEUE_OPERATIONS, _counted(db, model))


def observed_blobs(db: Connection, blobs: BlobStore) -> Any:
    """
    Return a `BlobStore` whose requests are counted and observed. Of a blob that is read as a stream, that is the
    request that opens it.

    Args:
        db: Counts them.
        blobs: The store itself, which raises faults.
    """
    return StoreBeside(blobs, BLOB_OPERATIONS, _counted(db, ""))


def _counted(db: Connection, model: str) -> Send:
    async def send(operation: str, place: str, call: Callable[[], Awaitable[Any]]) -> Any:
        db.sending(operation, model)
        return await db.watch.send(call(), operation, place)

    return send
