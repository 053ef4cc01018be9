"""
Queues: a `QueueStore` in the engine's file, shared by tasks, engines and processes.

A message is a row that says until when it is hidden, and which receipt is valid. A queue is a number. To delete or
clear it is to take the name from the number, in constant time; the messages are deleted later, in slices.
"""

import asyncio
import contextlib
from functools import partial

import apsw
import attrs

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import TICKS_PER_SECOND
from tableorm.protocol.limits import (
    MAX_MESSAGE_BYTES,
    check_message,
    check_message_count,
    check_message_times,
    check_queue_name,
    check_visibility,
)
from tableorm.stores import Message

from .sqlite import Connection
from .write_session import Host, Steps, WriteSession, find_number, list_names, moment, now

SCHEMA = """
CREATE TABLE queues (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, length INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, queue INTEGER NOT NULL, visible INTEGER NOT NULL,
    expires INTEGER, inserted INTEGER NOT NULL, count INTEGER NOT NULL, receipt INTEGER NOT NULL, body BLOB NOT NULL
) STRICT;
CREATE INDEX messages_by_time ON messages (queue, visible, expires);
CREATE INDEX messages_by_end ON messages (queue, expires) WHERE expires IS NOT NULL;
"""
# AUTOINCREMENT: ids must never be used again. A queue without a name is deleted. Times are ticks.

# A queue never has so many messages, nor is one taken as often. A file of another program may say more; to add
# to the largest number of SQLite would be an error, by which a write undoes those of others.
_MOST = 1 << 62
_LARGEST = (1 << 63) - 1
# How many expired messages one statement removes, and one transaction of `take`; if there are more, it begins another.
_EXPIRED = 50
_EXPIRED_TOGETHER = 2000
# How many messages, expired ones as well, `peek` looks at before other tasks get their turn: some 500 us.
_LOOKED_AT = 250


class Queues:
    """The queues of an engine."""

    def __init__(self, host: Host) -> None:
        self._host, self.capabilities = host, host.capabilities

    async def create_queue(self, queue: str) -> None:
        """Create a queue; nothing happens if it exists."""
        check_queue_name(queue)

        def work(session: WriteSession) -> None:
            if find_number(session.connection, "queues", queue) is None:
                session.write("INSERT INTO queues (name) VALUES (?)", (queue,))

        await self._host.submit(work)

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue and its messages, in constant time."""
        await self._drop(queue, anew=False)

    async def clear(self, queue: str) -> None:
        """Delete all messages of the queue, in constant time."""
        await self._drop(queue, anew=True)

    async def _drop(self, queue: str, *, anew: bool) -> None:
        def work(session: WriteSession) -> None:
            number = _require_number(session.connection, queue)
            session.write("UPDATE queues SET name = NULL WHERE id = ?", (number,))
            if anew:
                session.write("INSERT INTO queues (name) VALUES (?)", (queue,))

        await self._host.submit(work)
        self._host.reclaim()

    async def list_queues(self, prefix: str = "") -> list[str]:
        """List the names of the queues that start with `prefix`, in order."""
        return await list_names(self._host, "queues", prefix)

    async def put(self, queue: str, body: bytes, *, delay_seconds: int = 0, ttl_seconds: int | None = None) -> Message:
        """Add a message. It is durable on return."""
        check_message(body)
        check_message_times(delay_seconds, ttl_seconds)

        def work(session: WriteSession) -> Message:
            connection = session.connection
            number = _require_number(connection, queue)
            present, receipt = now(), session.tick()
            expires = None if ttl_seconds is None else _add_seconds(present, ttl_seconds)
            connection.execute(
                "INSERT INTO messages (queue, visible, expires, inserted, count, receipt, body) VALUES (?,?,?,?,0,?,?)",
                (number, _add_seconds(present, delay_seconds), expires, present, receipt, body),
            )
            message_id = str(connection.last_insert_rowid())
            _change_length(session, number, 1)
            return Message(id=message_id, body=body, receipt=str(receipt), dequeue_count=0, inserted_at=moment(present))

        message: Message = await self._host.submit(work)
        return message

    async def take(self, queue: str, count: int = 1, visibility_seconds: int = 30) -> list[Message]:
        """Take at most `count` visible messages, beginning with the one that has been visible for longest."""
        check_message_count(count)
        check_visibility(visibility_seconds, 1)

        def work(session: WriteSession) -> Steps:
            connection = session.connection
            number = _require_number(connection, queue)
            present = now()
            for _ in range(_EXPIRED_TOGETHER // _EXPIRED):
                if _remove_expired(session, number, present) < _EXPIRED:
                    break
                yield
            else:
                return None
            receipt, until = session.tick(), _add_seconds(present, visibility_seconds)
            taken, _ = _read_visible(connection, number, present, count)
            for message in taken:
                session.write(
                    "UPDATE messages SET visible = ?, count = min(count + 1, ?), receipt = ? WHERE id = ?",
                    (until, _MOST, receipt, int(message.id)),
                )
            return [attrs.evolve(each, receipt=str(receipt), dequeue_count=each.dequeue_count + 1) for each in taken]

        # Looking first: a program that asks a queue again and again must not delay those that write.
        while await self._host.read(lambda connection: _has_visible(connection, queue)):
            messages: list[Message] | None = await self._host.submit(work)
            if messages is not None:
                return messages
        # Looking does not wait, and a caller that finds nothing may look again: other tasks get their turn here.
        await asyncio.sleep(0)
        return []

    async def renew(self, queue: str, message: Message, visibility_seconds: int) -> Message:
        """Hide a taken message for `visibility_seconds` from now."""
        check_visibility(visibility_seconds)

        def work(session: WriteSession) -> Message:
            taken_id = _find_taken(session.connection, _require_number(session.connection, queue), message)
            receipt = session.tick()
            session.write(
                "UPDATE messages SET visible = ?, receipt = ? WHERE id = ?",
                (_add_seconds(now(), visibility_seconds), receipt, taken_id),
            )
            return attrs.evolve(message, receipt=str(receipt))

        renewed: Message = await self._host.submit(work)
        return renewed

    async def delete(self, queue: str, message: Message) -> None:
        """Delete a taken message."""

        def work(session: WriteSession) -> None:
            number = _require_number(session.connection, queue)
            taken_id = _find_taken(session.connection, number, message)
            session.write("DELETE FROM messages WHERE id = ?", (taken_id,))
            _change_length(session, number, -1)

        await self._host.submit(work)

    async def peek(self, queue: str, count: int = 1) -> list[Message]:
        """Read at most `count` visible messages, without receipts."""
        check_message_count(count)
        present, found, place = now(), dict[str, Message](), _START
        while True:
            more, following = await self._host.read(partial(_peek, queue, present, count, place))
            found.update((message.id, message) for message in more)
            if following is None or len(found) >= count:
                return list(found.values())[:count]
            place = following
            await asyncio.sleep(0)

    async def length(self, queue: str) -> int:
        """Count the messages, also hidden ones, and expired ones that no `take` has removed yet."""

        def read(connection: Connection) -> int:
            length: int = connection.execute(
                "SELECT length FROM queues WHERE id = ?", (_require_number(connection, queue),)
            ).get
            return length

        return await self._host.read(read)


def reclaim(connection: Connection, rows: int) -> bool:
    """Delete up to `rows` messages of a deleted queue. Return False if there is no deleted queue."""
    number = find_number(connection, "queues", None)
    if number is None:
        return False
    connection.execute(
        "DELETE FROM messages WHERE id IN (SELECT id FROM messages WHERE queue = ? LIMIT ?)", (number, rows)
    )
    if connection.changes() < rows:
        connection.execute("DELETE FROM queues WHERE id = ?", (number,))
    return True


def _add_seconds(ticks: int, seconds: int) -> int:
    # At most SQLite's largest integer: a time to live may be any number.
    return min(ticks + int(seconds * TICKS_PER_SECOND), _LARGEST)


def _require_number(connection: Connection, queue: str) -> int:
    check_queue_name(queue)
    number = find_number(connection, "queues", queue)
    if number is None:
        raise Fault(Code.QUEUE_NOT_FOUND, f"The specified queue does not exist: {queue!r}.")
    return number


def _change_length(session: WriteSession, number: int, change: int) -> None:
    session.write("UPDATE queues SET length = min(length + ?, ?) WHERE id = ?", (change, _MOST, number))


def _remove_expired(session: WriteSession, number: int, present: int) -> int:
    """Remove expired messages, at most `_EXPIRED`. Return how many."""
    session.connection.execute(
        "DELETE FROM messages WHERE id IN (SELECT id FROM messages WHERE queue = ? AND expires <= ? LIMIT ?)",
        (number, present, _EXPIRED),
    )
    removed = session.connection.changes()
    if removed:
        _change_length(session, number, -removed)
    return removed


def _has_visible(connection: Connection, queue: str) -> bool:
    sql = "SELECT 1 FROM messages WHERE queue = ? AND visible <= ? LIMIT 1"
    return connection.execute(sql, (_require_number(connection, queue), now())).get is not None


_Place = tuple[int, int, int]
"""Where a slice of messages ends: `visible`, `expires` and `id` of an expired message."""
_START: _Place = (-1, 0, 0)


def _peek(
    queue: str, present: int, count: int, place: _Place, connection: Connection
) -> tuple[list[Message], _Place | None]:
    return _read_visible(connection, _require_number(connection, queue), present, count, place)


def _read_visible(
    connection: Connection, number: int, present: int, count: int, place: _Place = _START
) -> tuple[list[Message], _Place | None]:
    """
    Read visible messages after a place, which is an expired one: at most `count`, and a slice with the expired ones.

    Returns:
        The messages, and the place of the last expired one if the slice is full: some of those after it were read.
    """
    rows = connection.execute(
        "SELECT id, visible, expires, inserted, count, CASE WHEN expires <= ?2 THEN NULL "
        "WHEN length(body) <= ?7 THEN body ELSE length(body) END FROM messages "
        "WHERE queue = ?1 AND visible <= ?2 AND (visible, expires, id) > (?3, ?4, ?5) "
        "ORDER BY visible, expires, id LIMIT ?6",
        (number, present, *place, _LOOKED_AT, MAX_MESSAGE_BYTES),
    )
    found, looked_at, last = list[Message](), 0, (place[0], True, *place[1:])
    with contextlib.closing(rows):
        for message, visible, expires, inserted, taken, body in rows:
            # Null sorts first. Damaged pages may lead in a circle.
            before, last = last, (visible, expires is not None, expires or 0, message)
            if last <= before:
                raise apsw.CorruptError("its messages are out of order")
            looked_at += 1
            if body is None:
                place = visible, expires, message
                continue
            if not isinstance(body, bytes):
                raise apsw.CorruptError(f"a message has {body} bytes")
            found.append(
                Message(id=str(message), body=body, receipt=None, dequeue_count=taken, inserted_at=moment(inserted))
            )
            if len(found) == count:
                break
    return found, place if looked_at == _LOOKED_AT else None


def _find_taken(connection: Connection, number: int, message: Message) -> int:
    """Find the row of a message whose receipt is valid."""
    taken_id = int(message.id) if message.id.isdecimal() and len(message.id) <= len(str(_LARGEST)) else 0
    if taken_id > _LARGEST:
        taken_id = 0
    row = connection.execute("SELECT receipt, expires FROM messages WHERE id = ? AND queue = ?", (taken_id, number)).get
    if row is None or (row[1] is not None and row[1] <= now()):
        raise Fault(Code.MESSAGE_NOT_FOUND, f"The specified message does not exist: {message.id[:40]!r}.")
    if str(row[0]) != message.receipt:
        raise Fault(
            Code.POP_RECEIPT_MISMATCH,
            f"The receipt of message {message.id!r} is not, or no longer, that of the one who took it last.",
        )
    return taken_id
