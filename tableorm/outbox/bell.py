"""
The bell: the queue that tells workers of changes with work in other partitions.

The queue is in the backend's queues, or in a table where it has none. It is made by the first message that finds none.
"""

from typing import Any, cast

from ..connection.connection import Connection
from ..connection.queue_and_blob_requests import QUEUE_OPERATIONS, CountedBeside
from ..connection.translate import translate
from ..errors import AccessDenied
from ..protocol.codes import Code, Fault
from ..stores import Message, QueueStore, RetryBudget, StoreLayer, StoreRequest
from .doorbell import QueueMessage
from .table_queue import TableQueueStore

OUTBOX = "tableorm-outbox"
"""The name of the queue, to which a database adds its prefix. Its requests are counted under this name for a model."""


async def check_reach(db: Connection, what: str) -> None:
    """
    Refuse what workers have to be told of, if the connection has a token for one table alone.

    Args:
        db: Where the change is made.
        what: What is rejected, and why workers must be notified of it.

    Raises:
        AccessDenied: It has such a token.
    """
    table = None if db.guarded is None else await db.guarded.token_table()
    if table is not None:
        raise AccessDenied(
            f"{what}, and the token of this database is for table {table} alone: it does not reach the queue that "
            "tells workers of such writes; use a token of the account, or let a program write that has one"
        )


async def ring(db: Connection, message: QueueMessage, *, delay_seconds: int) -> Message:
    """
    Put a message into the queue of the outbox. It may be there twice, if a reply was lost.

    Args:
        db: Where the change is made.
        message: What workers are told.
        delay_seconds: For how long they do not see it: about as long as the writer itself needs.

    Returns:
        The message, which `silence` takes back.

    Raises:
        TableOrmError: It could not be put, so the change must not be made.
        LimitExceeded: It is too long for a message.
    """
    queues = outbox_queues(db)
    budget = None if queues.capabilities.retries else RetryBudget(db.retry)
    missing = False
    while True:
        try:
            if missing:
                await queues.create_queue(OUTBOX)
            return await queues.put(OUTBOX, message.to_message(), delay_seconds=delay_seconds)
        except Fault as fault:
            if fault.code == Code.QUEUE_NOT_FOUND and not missing:
                missing = True
            elif not fault.transient or budget is None or not await budget.another(fault):
                raise translate(fault, f"message to the queue {OUTBOX}", "") from None


async def silence(db: Connection, message: Message) -> None:
    """Take a message back, if no worker has it yet. Whatever fails: a worker finds that there is nothing to do."""
    try:
        await outbox_queues(db).delete(OUTBOX, message)
    except Fault:
        return


async def show(db: Connection, message: Message) -> None:
    """Let workers see a message now. If that fails, they see it later."""
    try:
        await outbox_queues(db).renew(OUTBOX, message, 0)
    except Fault:
        return


def outbox_queues(db: Connection) -> QueueStore:
    """Return the queues that the queue of the outbox is in. They raise faults, and their requests are counted."""

    def make(queues: QueueStore | None) -> QueueStore:
        if queues is None:
            return TableQueueStore(_CountedTables(db))
        return cast("QueueStore", CountedBeside(db, queues, QUEUE_OPERATIONS, OUTBOX))

    return db.outbox(make)


class _CountedTables(StoreLayer):
    """
    Counts requests, and lets them be observed.

    Args:
        db: Counts them.
    """

    def __init__(self, db: Connection) -> None:
        super().__init__(db.store)
        self._db = db

    async def send(self, request: StoreRequest) -> Any:
        """See `StoreLayer`."""
        store, _ = self._db.sending(request.name, OUTBOX)
        return await request.sent_to(store)
