"""
The bell: the queue that tells workers of changes with work in other partitions.

The queue is in the backend's queues, or in a table where it has none. It is made by the first message that finds none.
"""

from collections.abc import Sequence
from typing import Protocol, cast

from ..connection.connection import Connection
from ..connection.queue_and_blob_requests import observed_queues
from ..connection.translate import translate
from ..errors import AccessDenied
from ..protocol.codes import Code, Fault
from ..stores import Capabilities, Message, Operation, QueueStore, RetryBudget, Row, RowPage, RowQuery, TableStore
from .table_queue import TableQueueStore

__all__ = ["OUTBOX", "Ringing", "check_reach", "outbox_queues", "ring", "show", "silence"]

OUTBOX = "tableorm-outbox"
"""The name of the queue, to which a database adds its prefix. Its requests are counted under this name for a model."""


class Ringing(Protocol):
    """What can be told to workers: a doorbell, or a command."""

    def to_message(self) -> bytes:
        """Return the body of the message."""
        ...


async def check_reach(db: Connection, what: str) -> None:
    """
    Refuse what workers have to be told of, if the connection has a token for one table alone.

    Args:
        db: Where the change is made.
        what: What is refused, and why workers have to be told of it.

    Raises:
        AccessDenied: It has such a token.
    """
    table = None if db.guarded is None else await db.guarded.token_table()
    if table is not None:
        raise AccessDenied(
            f"{what}, and the token of this database is for table {table} alone: it does not reach the queue that "
            "tells workers of such writes; use a token of the account, or let a program write that has one"
        )


async def ring(db: Connection, message: Ringing, *, delay_seconds: int) -> Message:
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
                raise translate(fault, f"message to the queue {OUTBOX}", "") from fault


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
        return cast("QueueStore", observed_queues(db, queues, OUTBOX))

    return db.outbox(make)


class _CountedTables:
    """
    A `TableStore` whose requests are counted and observed.

    Args:
        db: Counts them.
    """

    def __init__(self, db: Connection) -> None:
        self._db = db

    @property
    def capabilities(self) -> Capabilities:
        """See `TableStore`."""
        return self._db.store.capabilities

    async def create_table(self, table: str) -> None:
        """See `TableStore`."""
        await self._count("create-table").create_table(table)

    async def delete_table(self, table: str) -> None:
        """See `TableStore`."""
        await self._count("delete-table").delete_table(table)

    async def list_tables(self) -> list[str]:
        """See `TableStore`."""
        return await self._count("list-tables").list_tables()

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        """See `TableStore`."""
        return await self._count("get").get(table, partition_key, row_key, select)

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        """See `TableStore`."""
        return await self._count("query").query(table, query, limit, continuation)

    async def write(self, table: str, operation: Operation) -> str | None:
        """See `TableStore`."""
        return await self._count(operation.verb).write(table, operation)

    async def transact(self, table: str, operations: Sequence[Operation]) -> list[str | None]:
        """See `TableStore`."""
        return await self._count("transaction").transact(table, operations)

    def _count(self, operation: str) -> TableStore:
        store, _ = self._db.sending(operation, OUTBOX)
        return store
