"""
Requests for blobs that verbs and workers send: counted, observed, and repeated after a transient fault.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..protocol.codes import Fault
from ..stores import BlobStore, RetryBudget
from .connection import Connection

__all__ = ["ask_blobs"]

T = TypeVar("T")


async def ask_blobs(
    db: Connection, operation: str, model: str, container: str, request: Callable[[BlobStore], Awaitable[T]]
) -> T:
    """
    Send a request for blobs, and return its reply. After a transient fault it is sent again, where the store does not
    do so itself; so one that failed in the end may have happened.

    Args:
        db: The connection.
        operation: What `ObservedRequest` calls it.
        model: What it is for, for counters: a model or an index.
        container: Name of the container.
        request: Calls the store.

    Raises:
        Fault: The store refused it, or did not answer.
        NotSupported: The database has no blobs.
    """
    store = db.blobs
    budget = None if store.capabilities.retries else RetryBudget(db.retry)
    while True:
        db.sending(operation, model)
        try:
            return await db.watch.send(request(store), operation, container, model)
        except Fault as fault:
            db.count_fault(fault)
            if not fault.transient or budget is None or not await budget.another(fault):
                raise
