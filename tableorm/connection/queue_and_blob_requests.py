"""
Requests for queues and blobs, the stores beside the tables: what they are called, who counts them, and what they raise
in programs.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from ..errors import OutcomeUnknown, shown
from ..protocol.codes import Fault
from ..stores import LISTS_OF_PLACES, BlobStream, LayerBeside
from .connection import Connection
from .translate import translate, with_fault

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


class CountedBeside(LayerBeside):
    """
    A `QueueStore` or a `BlobStore` whose requests are counted and observed. Of a blob that is read as a stream, that is
    the request that opens it.

    Args:
        db: Counts them.
        below: The store itself, which raises faults.
        operations: What its requests are called, by method.
        model: What they are counted for; "" if for nothing.
    """

    def __init__(self, db: Connection, below: Any, operations: Mapping[str, str], model: str = "") -> None:
        super().__init__(below)
        self._db, self._operations, self._model = db, operations, model

    async def send(self, method: str, given: tuple[Any, ...], call: Callable[..., Awaitable[Any]]) -> Any:
        """See `LayerBeside`."""
        operation = self._operations.get(method, method.replace("_", "-"))
        place = "" if method in LISTS_OF_PLACES else str(*given[:1])
        self._db.sending(operation, self._model)
        return await self._db.watch.send(call(*given), operation, place, self._model)


class TranslatedBeside(LayerBeside):
    """
    A `QueueStore` or a `BlobStore` that raises what a database raises.

    Args:
        below: The store itself.
        name: What it is called: "queues" or "blobs".
    """

    def __init__(self, below: Any, name: str) -> None:
        super().__init__(below)
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name} of a database>"

    async def send(self, method: str, given: tuple[Any, ...], call: Callable[..., Awaitable[Any]]) -> Any:
        """See `LayerBeside`."""
        what = f"{self._name}.{method}({', '.join(shown(each) for each in given if isinstance(each, str))})"
        with _translating(what):
            reply = await call(*given)
        return attrs.evolve(reply, chunks=_translated(reply.chunks, what)) if isinstance(reply, BlobStream) else reply


async def _translated(chunks: AsyncIterable[bytes], what: str) -> AsyncGenerator[bytes]:
    with _translating(what):
        async for chunk in chunks:
            yield chunk


@contextmanager
def _translating(what: str) -> Generator[None]:
    try:
        yield
    except Fault as fault:
        if fault.doubt:
            problem = f"{what}: {fault.message} It may have happened all the same."
            raise with_fault(OutcomeUnknown(problem, fault.code, what.partition("(")[0]), fault) from None
        raise translate(fault, what, "") from None
