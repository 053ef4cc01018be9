"""
The bytes of blobs: a *content* is a number, and chunks under it that never change.

What is large is staged under a new content in several transactions, between which others write; a small one then gives
it the name of a blob. A content without a name, because the blob was replaced or deleted or its writer died, is given
back later, in slices. Its number never returns, so that whoever still reads it finds its bytes, or finds them gone.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Sequence

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import TICKS_PER_SECOND

from .sqlite import Connection
from .write_session import Session, now

__all__ = [
    "CHUNK_BYTES",
    "SCHEMA",
    "add",
    "bytes_at",
    "check_staged",
    "chunks_of",
    "gone",
    "new_content",
    "reclaim",
    "slices",
    "stage",
    "take_name",
    "unstage",
    "use_for_name",
]

SCHEMA = """
CREATE TABLE contents (id INTEGER PRIMARY KEY, until INTEGER) STRICT;
CREATE INDEX contents_by_end ON contents (until) WHERE until IS NOT NULL;
CREATE TABLE chunks (id INTEGER PRIMARY KEY, content INTEGER NOT NULL, start INTEGER NOT NULL, data BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX chunks_by_place ON chunks (content, start);
"""
# `until` is the tick from which on a content is given back: null while it has a name, 0 when it has lost it, ahead
# while it is being staged.

CHUNK_BYTES = 256 * 1024
# What one transaction stages: more would hold up other writers, less would wait for the disk more often.
_SLICE_CHUNKS = 4
# An upload that has not gone on for so long is taken for dead; if it does go on later, it is refused.
_STAGED_SECONDS = 86_400
# How long an iterable that does not wait may keep the event loop to itself.
_TURN_SECONDS = 0.002


def new_content() -> int:
    """A number that no content has or had. Drawn: a count that is rolled back would be given to someone else."""
    return secrets.randbits(62)


def stage(session: Session, content: int) -> None:
    """Keep a content for some time, though it has no name yet; it is made if it is new."""
    _set_end(session, content, now() + _STAGED_SECONDS * TICKS_PER_SECOND)


def use_for_name(session: Session, content: int) -> None:
    """Keep a content for as long as it has a name; it is made if it is new."""
    _set_end(session, content, None)


def take_name(session: Session, content: int) -> None:
    """Let a content be given back."""
    _set_end(session, content, 0)


def _set_end(session: Session, content: int, until: int | None) -> None:
    sql = "INSERT INTO contents VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET until = ?2"
    session.connection.execute(sql, (content, until))
    session.dirty = True


def unstage(session: Session, content: int) -> None:
    """Let a content be given back if it is staged, not if it got a name or never arrived."""
    session.connection.execute("UPDATE contents SET until = 0 WHERE id = ? AND until > 0", (content,))
    session.dirty = session.dirty or session.connection.changes() > 0


def check_staged(connection: Connection, content: int) -> None:
    """Refuse to go on with an upload whose beginning was given back."""
    if connection.execute("SELECT 1 FROM contents WHERE id = ? AND until > 0", (content,)).get is None:
        raise Fault(
            Code.SERVER_BUSY,
            f"The upload paused for more than {_STAGED_SECONDS} seconds; what had arrived was discarded. Begin anew.",
        )


def chunks_of(data: bytes) -> list[bytes]:
    """All of the data in chunks."""
    return [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]


def add(session: Session, content: int, start: int, chunks: Sequence[bytes]) -> Generator[None, None, int]:
    """Write chunks of a content from `start` on; where they end."""
    for data in chunks:
        sql = "INSERT INTO chunks (content, start, data) VALUES (?, ?, ?)"
        session.connection.execute(sql, (content, start, data))
        session.dirty = True
        start += len(data)
        yield
    return start


def bytes_at(connection: Connection, content: int, position: int, end: int) -> bytes | None:
    """The next bytes of a content, a chunk's worth or a little more; b"" at the end, None if they are gone."""
    if position >= end:
        return b""
    sql = "SELECT max(start) FROM chunks WHERE content = ? AND start <= ?"
    first = connection.execute(sql, (content, position)).get or 0
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


def gone(connection: Connection) -> int | None:
    """A content without a name whose chunks are not all given back yet."""
    content: int | None = connection.execute("SELECT id FROM contents WHERE until <= ? LIMIT 1", (now(),)).get
    return content


def reclaim(connection: Connection, rows: int) -> bool:
    """Give back up to `rows` chunks without a name; False if there are none."""
    any_gone = False
    while rows > 0 and (content := gone(connection)) is not None:
        any_gone = True
        # Dead from now on, also if the upload should go on after all.
        connection.execute("UPDATE contents SET until = 0 WHERE id = ?", (content,))
        sql = "DELETE FROM chunks WHERE id IN (SELECT id FROM chunks WHERE content = ? ORDER BY start LIMIT ?)"
        connection.execute(sql, (content, rows))
        deleted = connection.changes()
        if deleted < rows:
            connection.execute("DELETE FROM contents WHERE id = ?", (content,))
        rows -= max(1, deleted)
    return any_gone


async def slices(data: bytes | AsyncIterable[bytes]) -> AsyncGenerator[list[bytes], None]:
    """The data as chunks, so many at a time as one transaction stages."""
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
    """The data in pieces of at most a chunk: copying a larger one would take too long."""
    if isinstance(data, bytes):
        for at in range(0, len(data), CHUNK_BYTES):
            yield data[at : at + CHUNK_BYTES]
    else:
        async for piece in data:
            for at in range(0, len(piece), CHUNK_BYTES):
                yield piece[at : at + CHUNK_BYTES]
