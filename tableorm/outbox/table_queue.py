"""
Queues in a table, for stores that have no queues: a `QueueStore` on a `TableStore`.

All queues are in one table. The messages of a queue are in a partition of their own, in the order in which they become
visible: to hide a message is to move its row, by one transaction.

    PartitionKey    RowKey                       the row
    queues          mail                         names the partition of the queue `mail`
    mail~TOKEN      !                            the head, which is there as long as the partition is in use
    mail~TOKEN      mTICKS_ID                    a message, visible from these ticks on

To delete or clear a queue is to delete its head; a cleared queue gets another partition first. Every put touches the
head in its own transaction, and every look reads the head with the messages. So a program that knows the partition from
before notices that it is out of use, and needs no request to make sure. Rows that are left by a crash while a queue is
deleted are never read again.

Times are by the clock of the program that calls: where clocks differ, a message is visible a little sooner or later.
"""

import random
import re
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeGuard, TypeVar

import attrs

from ..connection.tasks import Batcher
from ..models.write_tokens import new_token
from ..protocol.codes import LOST_RACE, Code, Fault
from ..protocol.edm import ANNOTATION, TICKS_PER_SECOND, Edm, datetime_from_text, text_from_ticks, ticks_from_datetime
from ..protocol.limits import (
    MAX_MESSAGES,
    MAX_PAGE,
    MAX_TRANSACTION_OPERATIONS,
    check_message,
    check_message_count,
    check_message_times,
    check_queue_name,
    check_visibility,
)
from ..stores import CLOCK, Bounds, Capabilities, Message, MessageId, Operation, Row, RowQuery, TableStore, Verb

R = TypeVar("R")

QUEUES_TABLE = "tableormqueues"
"""The table that the queues are in, unless another one is given."""

_NAMES = "queues"  # the partition of the rows that name the partitions of queues
_HEAD = "!"  # sorts before all messages
_ROW_KEY = re.compile(r"m[0-9]{19}_[^ ]+")
_EXPIRES = re.compile("[0-9]{1,19}")
_PROPERTIES = ("Body", "Inserted", "Count", "Expires")

_ABSENT = frozenset({Code.RESOURCE_NOT_FOUND, Code.ENTITY_NOT_FOUND, Code.TABLE_NOT_FOUND})

_LOOKS = 5  # how often `take` looks again when others took what it saw: each time one of them got on
_MAX_TICKS = (1 << 63) - 1  # the largest Int64: a time to live may be any number
_MAX_COUNT = (1 << 31) - 1  # the largest Int32


class _OutOfUseError(Exception):
    """A partition has no head: its queue was deleted or cleared."""


class _Taken(NamedTuple):
    """A message that was taken, and where its row was then."""

    message: Message
    row_key: str
    etag: str


class TableQueueStore:
    """
    Queues in a table. What `QueueStore` promises holds between all programs that use the table.

    Args:
        store: The store of the table.
        table: Name of the table; `create_queue` creates it.
    """

    def __init__(self, store: TableStore, table: str = QUEUES_TABLE) -> None:
        self._store, self._table = store, table
        self._partitions: dict[str, str] = {}
        self._deletions = Batcher(self._delete_messages, MAX_TRANSACTION_OPERATIONS)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the store of the table."""
        return self._store.capabilities

    # Queues

    async def create_queue(self, queue: str) -> None:
        """Create a queue, and the table if it is missing; nothing happens if the queue exists."""
        check_queue_name(queue)
        named = await self._find(_NAMES, queue)
        if named is None:
            await _succeeds(self._store.create_table(self._table), {Code.TABLE_EXISTS})
        if not _names_partition(named) or await self._find(named["Partition"], _HEAD) is None:
            await self._name_partition(queue, named)

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue and its messages."""
        while True:
            named = await self._require_name(queue)
            await self._delete(named["Partition"], _HEAD, "*")
            if await self._delete(_NAMES, queue, named["odata.etag"]):
                break
        await self._remove_messages(named["Partition"])

    async def clear(self, queue: str) -> None:
        """Delete all messages that are in the queue."""
        await self._on_partition(queue, self._check_head)
        while True:
            named = await self._require_name(queue)
            if await self._name_partition(queue, named):
                break
        await self._delete(named["Partition"], _HEAD, "*")
        await self._remove_messages(named["Partition"])

    async def list_queues(self, prefix: str = "") -> list[str]:
        """List the names of the queues that start with `prefix`, in order."""
        try:
            names = [row["RowKey"] for row in await self._read_keys(_NAMES)]
        except Fault as fault:
            if fault.code != Code.TABLE_NOT_FOUND:
                raise
            return []
        return sorted(name for name in names if name.startswith(prefix))

    # Messages

    async def put(self, queue: str, body: bytes, *, delay_seconds: int = 0, ttl_seconds: int | None = None) -> Message:
        """Add a message. It is durable when the call returns."""
        check_message(body)
        check_message_times(delay_seconds, ttl_seconds)
        number, present = new_token(), _now()
        row: Row = {
            "RowKey": _row_key(_add_seconds(present, delay_seconds), number),
            "Body": b64encode(body).decode(),
            "Body" + ANNOTATION: Edm.BINARY.value,
            "Inserted": text_from_ticks(present),
            "Inserted" + ANNOTATION: Edm.DATETIME.value,
            "Count": 0,
        }
        if ttl_seconds is not None:
            row |= {"Expires": str(_add_seconds(present, ttl_seconds)), "Expires" + ANNOTATION: Edm.INT64.value}

        async def insert(partition: str) -> Message:
            touch = Operation(Verb.MERGE, {"PartitionKey": partition, "RowKey": _HEAD}, "*")
            message = Operation(Verb.INSERT, {"PartitionKey": partition, **row})
            try:
                _, etag = await self._store.transact(self._table, [touch, message])
            except Fault as fault:
                raise _OutOfUseError if fault.code in _ABSENT else fault from None
            return _make_message(row, f"{row['RowKey']} {etag}")

        return await self._on_partition(queue, insert)

    async def take(self, queue: str, count: int = 1, visibility_seconds: int = 30) -> list[Message]:
        """Take at most `count` visible messages, beginning with those that have been visible for longest."""
        check_message_count(count)
        check_visibility(visibility_seconds, 1)
        for look in range(_LOOKS):
            # Who has lost a race looks at more messages than it takes, so as not to meet the same takers again.
            rows = await self._read_visible(queue, MAX_MESSAGES if look else count, clean=True)
            if look:
                random.shuffle(rows)
            taken = await self._hide(rows[:count], visibility_seconds, taken=1)
            if taken or not rows:
                return taken
        return []

    async def renew(self, queue: str, message: Message, visibility_seconds: int) -> Message:
        """Hide a taken message for `visibility_seconds` from now; 0 gives it back at once."""
        check_visibility(visibility_seconds)

        async def hide(partition: str) -> Message:
            row_key, etag = _parse_receipt(message)
            row = await self._find(partition, row_key)
            if row is not None and row["odata.etag"] == etag and not _is_expired(row, _now()):
                for hidden in await self._hide([row], visibility_seconds, taken=0):
                    return attrs.evolve(message, receipt=hidden.receipt)
            raise await self._stale(partition, message)

        return await self._on_partition(queue, hide)

    async def delete(self, queue: str, message: Message) -> None:
        """Delete a taken message."""
        taken = _Taken(message, *_parse_receipt(message))
        await self._on_partition(queue, lambda partition: self._deletions.call(partition, taken))

    async def _delete_messages(self, partition: str, messages: Sequence[_Taken]) -> list[Exception | None]:
        """Delete messages by one transaction, unless a receipt is stale; return what went wrong with each."""
        if len(messages) > 1:
            keys = [{"PartitionKey": partition, "RowKey": each.row_key} for each in messages]
            writes = [Operation(Verb.DELETE, key, each.etag) for key, each in zip(keys, messages, strict=True)]
            try:
                await self._store.transact(self._table, writes)
            except Fault as fault:
                if fault.transient:
                    raise
            else:
                return [None] * len(messages)
        faults = list[Exception | None]()
        for each in messages:
            try:
                deleted = await self._delete(partition, each.row_key, each.etag)
                faults.append(None if deleted else await self._stale(partition, each.message))
            except (Fault, _OutOfUseError) as fault:
                faults.append(fault)
        return faults

    async def peek(self, queue: str, count: int = 1) -> list[Message]:
        """Read at most `count` visible messages, without receipts."""
        check_message_count(count)
        return [_make_message(row, None) for row in await self._read_visible(queue, count)]

    async def length(self, queue: str) -> int:
        """Count the messages, also hidden ones, and expired ones that no `take` has removed yet."""

        async def count(partition: str) -> int:
            await self._check_head(partition)
            return sum(row["RowKey"] != _HEAD for row in await self._read_keys(partition))

        return await self._on_partition(queue, count)

    # Partitions

    async def _on_partition(self, queue: str, call: Callable[[str], Awaitable[R]]) -> R:
        """
        Return what a function returns for the partition of a queue; it is called again if that has become another one.

        Raises:
            Fault: QueueNotFound: there is no such queue.
        """
        left: str | None = None
        while True:
            partition = self._partitions.get(queue)
            if partition is None:
                partition = self._partitions[queue] = (await self._require_name(queue))["Partition"]
            if partition == left:
                raise _queue_not_found(queue)
            try:
                return await call(partition)
            except _OutOfUseError:
                left = partition
                self._partitions.pop(queue, None)

    async def _require_name(self, queue: str) -> Row:
        """Read the row that names the partition of a queue."""
        check_queue_name(queue)
        named = await self._find(_NAMES, queue)
        if not _names_partition(named):
            raise _queue_not_found(queue)
        return named

    async def _name_partition(self, queue: str, named: Row | None) -> bool:
        """
        Give a queue a new partition. Return False if another writer has given it one, or has deleted it.

        Args:
            queue: Name of the queue.
            named: The row that names its partition till now; None if there is none.
        """
        partition = f"{queue}~{new_token()}"
        await self._store.write(self._table, Operation(Verb.INSERT, {"PartitionKey": partition, "RowKey": _HEAD}))
        row = {"PartitionKey": _NAMES, "RowKey": queue, "Partition": partition}
        name = Operation(Verb.INSERT, row) if named is None else Operation(Verb.REPLACE, row, named["odata.etag"])
        if await _succeeds(self._store.write(self._table, name), LOST_RACE):
            self._partitions[queue] = partition
            return True
        await self._delete(partition, _HEAD, "*")
        return False

    async def _check_head(self, partition: str) -> None:
        if await self._find(partition, _HEAD) is None:
            raise _OutOfUseError

    async def _stale(self, partition: str, message: Message) -> Fault:
        """Return the fault of a receipt that is not valid. Raises _OutOfUseError if the whole partition is not."""
        await self._check_head(partition)
        return Fault(Code.MESSAGE_NOT_FOUND, f"Message {message.id!r} is gone, or another client has taken it.")

    # Rows

    async def _find(self, partition: str, row_key: str) -> Row | None:
        try:
            return await self._store.get(self._table, partition, row_key)
        except Fault as fault:
            if fault.code in _ABSENT:
                return None
            raise

    async def _delete(self, partition: str, row_key: str, if_match: str) -> bool:
        """Delete a row. Return False if it is gone, or has changed."""
        keys = {"PartitionKey": partition, "RowKey": row_key}
        write = self._store.write(self._table, Operation(Verb.DELETE, keys, if_match))
        return await _succeeds(write, LOST_RACE | {Code.TABLE_NOT_FOUND})

    async def _read_keys(self, partition: str) -> list[Row]:
        """Read the keys of all rows of a partition."""
        query = RowQuery(Bounds.only(partition), select=("PartitionKey", "RowKey"))
        rows: list[Row] = []
        continuation: str | None = None
        while True:
            page = await self._store.query(self._table, query, MAX_PAGE, continuation)
            rows += page.rows
            continuation = page.continuation
            if continuation is None:
                return rows

    async def _remove_messages(self, partition: str) -> None:
        rows = await self._read_keys(partition)
        for start in range(0, len(rows), MAX_TRANSACTION_OPERATIONS):
            await self._remove(rows[start : start + MAX_TRANSACTION_OPERATIONS])

    async def _remove(self, rows: Sequence[Row]) -> None:
        """Delete rows by one transaction; none if another writer has removed or moved one."""
        writes = [Operation(Verb.DELETE, _keys_of(row), row["odata.etag"]) for row in rows]
        if writes:
            await _succeeds(self._store.transact(self._table, writes), LOST_RACE | {Code.TABLE_NOT_FOUND})

    async def _read_visible(self, queue: str, most: int, *, clean: bool = False) -> list[Row]:
        """
        Read visible messages.

        Args:
            queue: Name of the queue.
            most: How many at most.
            clean: Whether to remove expired messages that come up.
        """

        async def read(partition: str) -> list[Row]:
            present = _now()
            query = RowQuery(Bounds.only(partition), Bounds(None, _row_key(present + 1, ""), upper_open=True))
            visible: list[Row] = []
            expired: list[Row] = []
            has_head, continuation = False, None
            while True:
                try:
                    page = await self._store.query(self._table, query, most + 1, continuation)
                except Fault as fault:
                    raise _OutOfUseError if fault.code in _ABSENT else fault from None
                for row in page.rows:
                    if row["RowKey"] == _HEAD:
                        has_head = True
                    elif _is_message(row):
                        (expired if _is_expired(row, present) else visible).append(row)
                continuation = page.continuation
                comes_first = self._store.capabilities.ordered and bool(page.rows)
                if not has_head and (comes_first or continuation is None):
                    raise _OutOfUseError
                if len(visible) >= most or continuation is None:
                    break
            if clean:
                await self._remove(expired[:MAX_TRANSACTION_OPERATIONS])
            return visible[:most]

        return await self._on_partition(queue, read)

    async def _hide(self, rows: Sequence[Row], seconds: int, *, taken: int) -> list[Message]:
        """
        Hide messages by one transaction, and return them with new receipts; none if another writer has written one.

        Args:
            rows: Their rows.
            seconds: For how long from now.
            taken: What is added to the number of times that they were taken.
        """
        until = _add_seconds(_now(), seconds)
        writes = [Operation(Verb.DELETE, _keys_of(row), row["odata.etag"]) for row in rows]
        hidden: dict[MessageId, Row] = {}  # a put that arrived twice, and the message moved in between, made two rows
        for row in rows:
            ticks, number = _parse_key(row["RowKey"])
            content = {name: value for name, value in row.items() if name.partition("@")[0] in _PROPERTIES}
            row_key = _row_key(until + (until == ticks), number)  # another key, since no row may come twice
            hidden[number] = {**_keys_of(row), **content, "RowKey": row_key}
            hidden[number]["Count"] = min(row["Count"] + taken, _MAX_COUNT)
        writes += [Operation(Verb.INSERT, row) for row in hidden.values()]
        try:
            etags = await self._store.transact(self._table, writes) if writes else []
        except Fault as fault:
            if fault.code in LOST_RACE:
                return []
            raise
        inserted = zip(hidden.values(), etags[len(rows) :], strict=True)
        return [_make_message(row, f"{row['RowKey']} {etag}") for row, etag in inserted]


async def _succeeds(call: Awaitable[object], refusals: frozenset[Code] | set[Code]) -> bool:
    """Return whether a call succeeds; False if it is rejected with one of some codes. Raises other faults."""
    try:
        await call
    except Fault as fault:
        if fault.code in refusals:
            return False
        raise
    return True


def _queue_not_found(queue: str) -> Fault:
    return Fault(Code.QUEUE_NOT_FOUND, f"The specified queue does not exist: {queue!r}.")


def _now() -> int:
    return ticks_from_datetime(CLOCK.now())


def _add_seconds(ticks: int, seconds: int) -> int:
    return min(ticks + int(seconds * TICKS_PER_SECOND), _MAX_TICKS - 1)


def _keys_of(row: Row) -> Row:
    return {"PartitionKey": row["PartitionKey"], "RowKey": row["RowKey"]}


def _row_key(visible: int, number: MessageId) -> str:
    """Return the RowKey of a message that is visible from these ticks on."""
    return f"m{visible:019d}_{number}"


def _parse_key(row_key: str) -> tuple[int, MessageId]:
    ticks, _, number = row_key[1:].partition("_")
    return int(ticks), number


def _parse_receipt(message: Message) -> tuple[str, str]:
    """
    Return the RowKey and the ETag of a taken message.

    Raises:
        Fault: PopReceiptMismatch: it has no receipt, or that of another message.
    """
    row_key, _, etag = (message.receipt or "").partition(" ")
    if not etag or row_key.partition("_")[2] != message.id:
        raise Fault(
            Code.POP_RECEIPT_MISMATCH, f"Message {message.id!r} has no valid receipt: renew and delete what was taken."
        )
    return row_key, etag


def _names_partition(row: Row | None) -> TypeGuard[Row]:
    """Return whether there is a row that names the partition of a queue, and is not damaged."""
    return row is not None and type(row.get("Partition")) is str


def _is_expired(row: Row, present: int) -> bool:
    return int(row.get("Expires") or _MAX_TICKS) <= present


def _is_message(row: Row) -> bool:
    """Return whether a row is a message, and not one that another program has left in the partition."""
    try:
        _make_message(row, None)
        expires = _EXPIRES.fullmatch(row.get("Expires", "0"))
    except (KeyError, TypeError, ValueError, OverflowError):
        return False
    return type(row["Count"]) is int and expires is not None and _ROW_KEY.fullmatch(row["RowKey"]) is not None


def _make_message(row: Row, receipt: str | None) -> Message:
    return Message(
        id=_parse_key(row["RowKey"])[1],
        body=b64decode(row["Body"], validate=True),
        receipt=receipt,
        dequeue_count=row["Count"],
        inserted_at=datetime_from_text(row["Inserted"]),
    )
