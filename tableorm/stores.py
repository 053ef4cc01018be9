"""
What a backend is: the stores that the mapper asks, in the neutral form that every backend shares.

A row is the service's own OData object, parsed: `PartitionKey`, `RowKey`, `Timestamp`, `odata.etag`, then the
user's properties, each with a sibling `NAME@odata.type` where JSON does not tell the type. The wire has it, the
embedded engine stores it as it is, and one generated encoder and decoder per model serves every backend. Only backends
make or read bytes.
"""

import datetime as dt
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Any, Protocol

import attrs
import msgspec

from .protocol.edm import Edm
from .protocol.filters import And, Compare, Constant, Filter, Op

__all__ = [
    "Backend",
    "BlobInfo",
    "BlobPage",
    "BlobStore",
    "BlobStream",
    "Bounds",
    "Capabilities",
    "Message",
    "MessageId",
    "Operation",
    "QueueStore",
    "Row",
    "RowPage",
    "RowQuery",
    "TableStore",
    "Verb",
]

Row = dict[str, Any]
"""A stored entity as JSON: see the module."""


class Verb(StrEnum):
    """What an operation does to its row. Source: Table service REST, "Operations on entities"."""

    INSERT = "insert"
    MERGE = "merge"
    REPLACE = "replace"
    INSERT_OR_MERGE = "insert-or-merge"
    INSERT_OR_REPLACE = "insert-or-replace"
    DELETE = "delete"


class Operation(msgspec.Struct, frozen=True, gc=False):
    """
    One write of one row.

    Args:
        verb: What to do.
        row: PartitionKey, RowKey and the properties to write, in canonical form; for a delete the keys alone.
            The store does not change it.
        if_match: For merge, replace and delete: the ETag the row must have, or "*" for any. None otherwise.
        canonical: Whether names and values are right and not null for sure: only keys and size are left to check.
    """

    verb: Verb
    row: Row
    if_match: str | None = None
    canonical: bool = False


@attrs.frozen
class Bounds:
    """
    An interval of one key in UTF-16 order; a bound of None is open. Equal bounds mean that very key.
    """

    lower: str | None = None
    upper: str | None = None
    lower_open: bool = False
    upper_open: bool = False

    @classmethod
    def only(cls, key: str) -> "Bounds":
        """The interval that holds `key` alone."""
        return cls(key, key)

    @property
    def point(self) -> bool:
        """Whether the interval holds one key."""
        return self.lower is not None and self.lower == self.upper and not (self.lower_open or self.upper_open)

    def conditions(self, key: str) -> list[Filter]:
        """The interval as conditions on `PartitionKey` or `RowKey`; none if it holds every key."""
        if self.point and self.lower is not None:
            return [Compare(key, Op.EQ, Constant(Edm.STRING, self.lower))]
        found: list[Filter] = []
        if self.lower is not None:
            found.append(Compare(key, Op.GT if self.lower_open else Op.GE, Constant(Edm.STRING, self.lower)))
        if self.upper is not None:
            found.append(Compare(key, Op.LT if self.upper_open else Op.LE, Constant(Edm.STRING, self.upper)))
        return found


@attrs.frozen
class RowQuery:
    """
    A query of one table: keys within both bounds, and `where` holds.

    Args:
        partition: Which PartitionKeys.
        row: Which RowKeys, in each of those partitions.
        where: What else must hold.
        select: Properties to return, None for all. An absent one comes back as None; `odata.etag` always comes.
    """

    partition: Bounds = Bounds()
    row: Bounds = Bounds()
    where: Filter | None = None
    select: tuple[str, ...] | None = None

    @property
    def filter(self) -> Filter | None:
        """All of it as one condition, which is how a service gets it; None if every row satisfies it."""
        terms = [*self.partition.conditions("PartitionKey"), *self.row.conditions("RowKey")]
        if self.where is not None:
            terms += self.where.terms if isinstance(self.where, And) else [self.where]
        return None if not terms else terms[0] if len(terms) == 1 else And(tuple(terms))


@attrs.frozen
class RowPage:
    """
    Rows in key order, perhaps none, and where to go on: None after the last page.
    """

    rows: list[Row]
    continuation: str | None


@attrs.frozen
class Capabilities:
    """
    What a backend can do beyond the contract's core; `tableorm.testing` skips, and reports, what it cannot.

    Args:
        durable: Data outlives the process, and an acknowledged write survives its death.
        ordered: Rows come back sorted by PartitionKey, then RowKey.
        exact_limits: Every limit of the service on what is sent is enforced with the service's code.
        retries: The store itself repeats reads, and writes that surely had no effect, after transient faults, as SDKs
            do. Then the mapper repeats only writes whose outcome is in doubt.
        faithful: It keeps every other rule of the service too: an emulator compares values of two types in its own way,
            takes table names by letter case, has no negative zero, lets a merge bring a row beyond its limits, takes
            a backslash for a slash in the names of blobs, and puts what is not there under `if_match="*"`.
    """

    durable: bool = True
    ordered: bool = True
    exact_limits: bool = True
    retries: bool = False
    faithful: bool = True


class TableStore(Protocol):
    """
    Tables of rows. Every method raises `tableorm.protocol.codes.Fault` with the service's code and nothing else
    (besides `asyncio.CancelledError`); cancelling a call leaves no half-state: it happened in full or not at all.

    A write that may have happened although it failed (a time-out, a reset connection, a 5xx) is a Fault with `doubt`.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do."""
        ...

    async def create_table(self, table: str) -> None:
        """Create a table. Fault TableAlreadyExists if one has that name in any letter case."""
        ...

    async def delete_table(self, table: str) -> None:
        """Delete a table and its rows. Fault ResourceNotFound if there is none."""
        ...

    async def list_tables(self) -> list[str]:
        """Names of all tables as created, ordered without regard to case."""
        ...

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        """One row. Fault ResourceNotFound or TableNotFound. `select` as in `RowQuery`."""
        ...

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        """
        One page of at most `limit` (1 to 1000) rows, in key order if the store is ordered.

        Args:
            table: Name, in any letter case.
            query: What to find.
            limit: Rows at most; fewer, even none, may come and more still follow.
            continuation: Of the page before; opaque, valid after a restart and while rows come and go.
        """
        ...

    async def write(self, table: str, operation: Operation) -> str | None:
        """Do one operation; the row's new ETag, None after a delete. Durable when it returns."""
        ...

    async def transact(self, table: str, operations: Sequence[Operation]) -> list[str | None]:
        """
        Do 1 to 100 operations of one partition, each row once, in order and all or nothing.

        Returns:
            What `write` returns, for each.

        Raises:
            Fault: `index` names the operation that failed; nothing was applied.
        """
        ...


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


@attrs.frozen
class BlobInfo:
    """
    What is known of a blob without reading it.

    Args:
        name: Its name in the container.
        etag: Another after every write, and never one that was.
        length: Bytes.
        metadata: As it was put. Names ignore case, and some stores return them in lower case.
        modified: When it was last written, in UTC, by the store's clock.
    """

    name: str
    etag: str
    length: int
    metadata: Mapping[str, str]
    modified: dt.datetime


@attrs.frozen
class BlobPage:
    """
    Blobs in the order of their names, and where to go on: None after the last page.
    """

    blobs: list[BlobInfo]
    continuation: str | None


@attrs.frozen
class BlobStream:
    """
    A blob, or a range of it, being read.

    Args:
        info: The blob of which the bytes are, in full; `length` is the blob's, not the range's.
        chunks: The bytes in order, in chunks of the store's choice.
    """

    info: BlobInfo
    chunks: AsyncIterator[bytes]


class BlobStore(Protocol):
    """
    Containers of blobs: bytes under names, written in full or appended to.

    Every method raises `tableorm.protocol.codes.Fault` and nothing else (besides `asyncio.CancelledError`, and what the
    caller's own iterable raises); ContainerNotFound if there is no such container. A call that is cancelled happened in
    full or not at all.

    Source: Blob service REST.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do: `durable`, `exact_limits`."""
        ...

    async def create_container(self, container: str) -> None:
        """
        Create a container. Fault ContainerAlreadyExists; ContainerBeingDeleted, where a name is not free at once.
        """
        ...

    async def delete_container(self, container: str) -> None:
        """Delete a container and its blobs."""
        ...

    async def list_containers(self, prefix: str = "") -> list[str]:
        """Names of the containers that start with `prefix`, in order."""
        ...

    async def put(
        self,
        container: str,
        name: str,
        data: bytes | AsyncIterable[bytes],
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> BlobInfo:
        """
        Write a blob in full, in place of what had the name. Durable when it returns, and not seen before.

        Args:
            container: Name of the container.
            name: Name of the blob, 1 to 1024 characters; `/` makes no folders.
            data: Its bytes; of an iterable, little is in memory at a time.
            if_none_match: Only if there is no blob of that name.
            if_match: Only if the blob has this ETag, or "*" for any.
            metadata: Names (C# identifiers) and values (printable ASCII), 8 KiB at most.

        Raises:
            Fault: BlobAlreadyExists under `if_none_match`; ConditionNotMet under `if_match`, also if there is no blob.
        """
        ...

    async def append(
        self, container: str, name: str, data: bytes, *, create: bool = True, if_position: int | None = None
    ) -> BlobInfo:
        """
        Write at the end of a blob that was made by appending. Durable when it returns.

        Args:
            container: Name of the container.
            name: Name of the blob.
            data: 1 byte to 4 MiB; 50,000 appends at most.
            create: Make the blob if there is none.
            if_position: Only if the blob has this length; 0 if there is none.

        Returns:
            The blob after it; the data starts at `length - len(data)`.

        Raises:
            Fault: AppendPositionConditionNotMet; BlobNotFound without `create`; InvalidBlobType if the blob was `put`;
                BlockCountExceedsLimit.
        """
        ...

    async def info(self, container: str, name: str) -> BlobInfo:
        """What is known of a blob. Fault BlobNotFound."""
        ...

    def get(
        self, container: str, name: str, offset: int = 0, length: int | None = None
    ) -> AbstractAsyncContextManager[BlobStream]:
        """
        Read a blob in chunks: `async with store.get(...) as stream: async for chunk in stream.chunks: ...`.

        All chunks are of the blob that `stream.info` describes. If it is replaced or deleted meanwhile, they go on with
        what it was, or end with a Fault: ConditionNotMet or BlobNotFound.

        Args:
            container: Name of the container.
            name: Name of the blob.
            offset: The first byte wanted.
            length: Bytes wanted, at least 1; fewer come if the blob ends before. None for all.

        Raises:
            Fault: BlobNotFound; InvalidRange if `offset` is at the end or beyond (0 is good for an empty blob).
        """
        ...

    async def read(self, container: str, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """All of what `get` streams, at once in memory."""
        ...

    async def delete(self, container: str, name: str, *, if_match: str | None = None) -> None:
        """Delete a blob, if it has this ETag. Fault BlobNotFound; ConditionNotMet."""
        ...

    async def list_blobs(
        self, container: str, prefix: str = "", continuation: str | None = None, limit: int = 5000
    ) -> BlobPage:
        """
        One page of at most `limit` (1 to 5000) blobs whose names start with `prefix`.

        Args:
            container: Name of the container.
            prefix: What names start with.
            continuation: Of the page before; opaque, valid after a restart and while blobs come and go.
            limit: Blobs at most; fewer, even none, may come and more still follow.
        """
        ...


class Backend(Protocol):
    """
    What `connect` opens: an entry point of the group `tableorm.backends` names a class with these members.

    A class may also have `joint = True`: then its `from_url` gets `queues` and `blobs` of `connect` among the options,
    where it handles their URLs, and serves them over the same connections. It may have `traffic`, if it repeats itself.
    """

    @classmethod
    def handles(cls, url: str) -> bool:
        """Whether this backend opens `url`."""
        ...

    @classmethod
    def from_url(cls, url: str, *, timeout: float, options: dict[str, Any]) -> "Backend":
        """
        A backend that is not open yet. `options` are the remaining arguments of `connect`.

        Raises:
            TypeError: An option that this backend does not know, named.
        """
        ...

    @property
    def tables(self) -> TableStore:
        """The tables."""
        ...

    @property
    def queues(self) -> QueueStore | None:
        """The queues, None if this backend has none."""
        ...

    @property
    def blobs(self) -> BlobStore | None:
        """The blobs, None if this backend has none."""
        ...

    async def open(self) -> None:
        """Open; raises an error of `tableorm.errors`."""
        ...

    async def close(self) -> None:
        """Finish what was acknowledged and release everything. Idempotent."""
        ...
