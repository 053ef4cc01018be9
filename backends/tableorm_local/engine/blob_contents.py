"""
The contents of blobs: a content is a number, with chunks of bytes that never change.

Large data is staged under a new content in several transactions, between which others write; one small transaction then
gives the content the name of a blob. A content without a name, because the blob was replaced or deleted or its writer
died, is deleted later, in slices. Its number is never used again, so that a reader finds its bytes or an error, but
never other bytes.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Sequence

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import TICKS_PER_SECOND

from .sqlite import Connection
from .write_session import WriteSession, now

SCHEMA = """
CREATE TABLE contents (id INTEGER PRIMARY KEY, until INTEGER) STRICT;
CREATE INDEX contents_by_end ON contents (until) WHERE until IS NOT NULL;
CREATE TABLE chunks (id INTEGER PRIMARY KEY, content INTEGER NOT NULL, start INTEGER NOT NULL, data BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX chunks_by_place ON chunks (content, start);
"""
# `until` is the tick from which on a content may be deleted: null while it has a name, 0 when it has lost its name, in
# the future while it is being staged.

CHUNK_BYTES = 256 * 1024
# The chunks that one transaction stages: more would delay other writers, fewer would wait for the disk more often.
_SLICE_CHUNKS = 4
# An upload that has paused for so long is taken for dead; if it goes on later, it is rejected.
_STAGED_SECONDS = 86_400
# How long an iterable that does not wait may keep the event loop busy.
_TURN_SECONDS = 0.002


def new_content() -> int:
    """Draw a number that no content has or had. A counter that is rolled back would give the same number twice."""
    return secrets.randbits(62)


def stage(session: WriteSession, content: int) -> None:
    """Keep a content for some time although it has no name yet. A new content is added."""
    _set_end(session, content, now() + _STAGED_SECONDS * TICKS_PER_SECOND)


def keep(session: WriteSession, content: int) -> None:
    """Keep a content that has a name. A new content is added."""
    _set_end(session, content, None)


def release(session: WriteSession, content: int) -> None:
    """Let a content be deleted: it has lost its name."""
    _set_end(session, content, 0)


def _set_end(session: WriteSession, content: int, until: int | None) -> None:
    sql = "INSERT INTO contents VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET until = ?2"
    session.write(sql, (content, until))


def release_staged(session: WriteSession, content: int) -> None:
    """Let a content be deleted if it is staged, but not if it got a name or was never added."""
    session.connection.execute("UPDATE contents SET until = 0 WHERE id = ? AND until > 0", (content,))
    session.dirty = session.dirty or session.connection.changes() > 0


def check_staged(connection: Connection, content: int) -> None:
    """Refuse to go on with an upload whose beginning may have been deleted."""
    if connection.execute("SELECT 1 FROM contents WHERE id = ? AND until > 0", (content,)).get is None:
        raise Fault(
            Code.SERVER_BUSY,
            f"The upload paused for more than {_STAGED_SECONDS} seconds; what had arrived was discarded. Begin anew.",
        )


def split_chunks(data: bytes) -> list[bytes]:
    """Split all of the data into chunks."""
    return [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]


def add_chunks(session: WriteSession, content: int, start: int, chunks: Sequence[bytes]) -> Generator[None, None, int]:
    """Write chunks of a content that is kept or staged, from the position `start` on. Return where they end."""
    for data in chunks:
        sql = "INSERT INTO chunks (content, start, data) VALUES (?, ?, ?)"
        session.write(sql, (content, start, data))
        start += len(data)
        yield
    return start


def read_bytes(connection: Connection, content: int, position: int, end: int) -> bytes | None:
    """Read the next bytes of a content, a chunk or a little more; b"" at the end, None if they are deleted."""
    if position >= end:
        return b""
    sql = "SELECT max(start) FROM chunks WHERE content = ? AND start <= ?"
    first = connection.execute(sql, (content, position)).get
    sql = "SELECT start, data FROM chunks WHERE content = ? AND start >= ? ORDER BY start"
    rows = connection.execute(sql, (content, first))
    parts, at = list[bytes](), position
    for start, data in rows:
        part = data[at - start : end - start] if start <= at else b""
        if not part:
            break
        parts.append(part)
        at += len(part)
        if at >= end or at - position >= CHUNK_BYTES:
            break
    rows.close()
    return b"".join(parts) or None


def reclaim(connection: Connection, rows: int) -> bool:
    """Delete up to `rows` chunks of contents without a name. Return False if there are none."""
    deleted_any, find = False, "SELECT id FROM contents WHERE until <= ? LIMIT 1"
    while rows > 0 and (content := connection.execute(find, (now(),)).get) is not None:
        # It is dead from now on, also if its upload should go on.
        connection.execute("UPDATE contents SET until = 0 WHERE id = ?", (content,))
        if not connection.changes():
            break  # The file is damaged: only an index has this content, and would have it for ever.
        deleted_any = True
        sql = "DELETE FROM chunks WHERE id IN (SELECT id FROM chunks WHERE content = ? ORDER BY start LIMIT ?)"
        connection.execute(sql, (content, rows))
        deleted = connection.changes()
        if deleted < rows:
            connection.execute("DELETE FROM contents WHERE id = ?", (content,))
        rows -= max(1, deleted)
    return deleted_any


async def slice_data(data: bytes | AsyncIterable[bytes]) -> AsyncGenerator[list[bytes], None]:
    """Split the data into chunks, and yield as many at a time as one transaction stages."""
    chunks, rest = list[bytes](), bytearray()
    until = time.perf_counter() + _TURN_SECONDS
    async for piece in _pieces(data):
        rest += piece
        if len(rest) >= CHUNK_BYTES:
            chunks.append(bytes(rest[:CHUNK_BYTES]))
            del rest[:CHUNK_BYTES]
        if len(chunks) == _SLICE_CHUNKS:
            yield chunks
            chunks = []
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + _TURN_SECONDS
    if rest:
        chunks.append(bytes(rest))
    if chunks:
        yield chunks


async def _pieces(data: bytes | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Split the data into pieces of at most a chunk: copying a larger one would take too long."""
    if isinstance(data, bytes):
        for at in range(0, len(data), CHUNK_BYTES):
            yield data[at : at + CHUNK_BYTES]
    else:
        async for piece in data:
            for at in range(0, len(piece), CHUNK_BYTES):
                yield piece[at : at + CHUNK_BYTES]
