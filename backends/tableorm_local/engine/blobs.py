"""
Blobs: a `BlobStore` in the engine's file, shared by tasks, engines and processes.

A blob is a row that gives a name to a content: to replace it is to give the name to another content.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Mapping
from functools import partial

import attrs
import msgspec

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.edm import check_text
from tableorm.protocol.limits import (
    MAX_APPENDS,
    MAX_BLOB_PAGE,
    check_append,
    check_blob_name,
    check_container_name,
    check_metadata,
)
from tableorm.stores import BlobInfo, BlobPage, BlobStream, Capabilities

from . import contents
from .host import Host
from .session import Session, Steps, moment
from .sqlite import Connection

__all__ = ["SCHEMA", "Blobs", "gone", "reclaim"]

SCHEMA = """
CREATE TABLE containers (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE) STRICT;
CREATE TABLE blobs (container INTEGER NOT NULL, name TEXT NOT NULL, content INTEGER NOT NULL, length INTEGER NOT NULL,
    tick INTEGER NOT NULL, appends INTEGER, metadata BLOB NOT NULL, PRIMARY KEY (container, name)
) WITHOUT ROWID, STRICT;
"""
# A container without a name is deleted. `appends` is null in a blob that was put.

_LIST_SLICE = 250

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, str]).decode


@attrs.frozen
class _Blob:
    """A row of `blobs`: what the store tells, and what it keeps to itself."""

    container: int
    content: int
    appends: int | None
    info: BlobInfo


class Blobs:
    """The blobs of an engine."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do."""
        return self._host.capabilities

    async def create_container(self, container: str) -> None:
        """Create a container. Fault ContainerAlreadyExists."""
        check_container_name(container)

        def work(session: Session) -> None:
            if _look_up_container(session.connection, container) is not None:
                raise Fault(Code.CONTAINER_EXISTS, f"The specified container already exists: {container!r}.")
            session.connection.execute("INSERT INTO containers (name) VALUES (?)", (container,))
            session.dirty = True

        await self._host.submit(work)

    async def delete_container(self, container: str) -> None:
        """Delete a container and its blobs, in constant time."""

        def work(session: Session) -> None:
            number = _find_container(session.connection, container)
            session.connection.execute("UPDATE containers SET name = NULL WHERE id = ?", (number,))
            session.dirty = True

        await self._host.submit(work)
        self._host.reclaim()

    async def list_containers(self, prefix: str = "") -> list[str]:
        """Names of the containers that start with `prefix`, in order."""
        sql = "SELECT name FROM containers WHERE name IS NOT NULL ORDER BY name"
        names = await self._host.read(lambda connection: [name for (name,) in connection.execute(sql)])
        return [name for name in names if name.startswith(prefix)]

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
        """Write a blob in full, in place of what had the name. Durable when it returns, and not seen before."""
        check_blob_name(name)
        kept = dict(metadata or {})
        check_metadata(kept)

        def check(connection: Connection) -> tuple[int, _Blob | None]:
            number = _find_container(connection, container)
            old = _look_up(connection, number, name)
            if if_none_match and old is not None:
                raise Fault(Code.BLOB_EXISTS, f"The specified blob already exists: {name!r}.")
            if if_match is not None:
                _check_tag(name, old, if_match)
            return number, old

        def stage(session: Session) -> Steps:
            if start:
                contents.check_staged(session.connection, content)
            contents.stage(session, content)
            return contents.add(session, content, start, chunks)

        def publish(session: Session) -> Steps:
            # What may be refused comes first: a request that is refused has written nothing.
            number, old = check(session.connection)
            if start:
                contents.check_staged(session.connection, content)
            contents.use_for_name(session, content)
            end = yield from contents.add(session, content, start, chunks)
            if old is not None:
                contents.take_name(session, old.content)
            info = BlobInfo(name=name, etag="", length=end, metadata=kept, modified=moment(0))
            return _store(session, number, content, None, info), old is not None

        content, start, chunks = contents.new_content(), 0, list[bytes]()
        await self._host.read(check)  # before anything is sent; once more when it counts
        try:
            # The last slice goes together with the name: most blobs have only that.
            async with contextlib.aclosing(contents.slices(data)) as slices:
                async for following in slices:
                    if chunks:
                        await self._host.submit(stage)
                    start, chunks = start + sum(map(len, chunks)), following
            stored: BlobInfo
            stored, replaced = await self._host.submit(publish)
        except (Exception, asyncio.CancelledError):
            await self._abandon(content)
            raise
        if replaced:
            self._host.reclaim()
        return stored

    async def _abandon(self, content: int) -> None:
        """Give back what was staged, unless it got its name."""
        # If this fails as well, it is given back when its time is over.
        with contextlib.suppress(Fault):
            await self._host.submit(lambda session: contents.unstage(session, content))
            self._host.reclaim()

    async def append(
        self, container: str, name: str, data: bytes, *, create: bool = True, if_position: int | None = None
    ) -> BlobInfo:
        """Write at the end of a blob that was made by appending. Durable when it returns."""
        check_blob_name(name)
        check_append(data)

        def work(session: Session) -> Steps:
            number = _find_container(session.connection, container)
            old = _look_up(session.connection, number, name)
            if old is None and not create:
                raise _not_found(name)
            start = 0 if old is None else old.info.length
            if if_position not in (None, start):
                raise Fault(
                    Code.APPEND_POSITION_NOT_MET,
                    f"The blob {name!r} ends at {start}, not at the position {if_position}.",
                )
            appends = 0 if old is None else old.appends
            if appends is None:
                raise Fault(Code.INVALID_BLOB_TYPE, f"The blob {name!r} was put in full; it cannot be appended to.")
            if appends >= MAX_APPENDS:
                raise Fault(
                    Code.BLOCK_COUNT_EXCEEDED, f"The blob {name!r} has {MAX_APPENDS} appends already; begin another."
                )
            content = contents.new_content() if old is None else old.content
            contents.use_for_name(session, content)
            end = yield from contents.add(session, content, start, contents.chunks_of(data))
            kept: Mapping[str, str] = old.info.metadata if old is not None else {}
            info = BlobInfo(name=name, etag="", length=end, metadata=kept, modified=moment(0))
            return _store(session, number, content, appends + 1, info)

        info: BlobInfo = await self._host.submit(work)
        return info

    async def info(self, container: str, name: str) -> BlobInfo:
        """What is known of a blob. Fault BlobNotFound."""
        return (await self._host.read(lambda connection: _find(connection, container, name))).info

    @contextlib.asynccontextmanager
    async def get(
        self, container: str, name: str, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[BlobStream, None]:
        """Read a blob in chunks of at least 256 KiB, the last one excepted."""
        if offset < 0 or (length is not None and length < 1):
            raise Fault(
                Code.INVALID_INPUT, f"A range has an offset from 0 and a length from 1, not {offset} and {length}."
            )

        def begin(connection: Connection) -> tuple[_Blob, int, bytes]:
            # At one moment: otherwise a blob that is replaced just now might be gone before its first byte.
            with _snapshot(connection):
                blob = _find(connection, container, name)
                if offset and offset >= blob.info.length:
                    raise Fault(
                        Code.INVALID_RANGE,
                        f"The blob {name!r} has {blob.info.length} bytes, none from offset {offset}.",
                    )
                end = blob.info.length if length is None else min(blob.info.length, offset + length)
                return blob, end, _more(connection, container, blob, offset, end)

        blob, end, first = await self._host.read(begin)

        async def chunks() -> AsyncGenerator[bytes, None]:
            position, data = offset, first
            while data:
                yield data
                position += len(data)
                # Reading does not wait, and perhaps the caller does not either: others shall have their turn.
                await asyncio.sleep(0)
                rest = partial(_more, container=container, blob=blob, position=position, end=end)
                data = await self._host.read(rest)

        async with contextlib.aclosing(chunks()) as stream:
            yield BlobStream(blob.info, stream)

    async def read(self, container: str, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """All of what `get` streams, at once in memory."""
        async with self.get(container, name, offset, length) as stream:
            return b"".join([chunk async for chunk in stream.chunks])

    async def delete(self, container: str, name: str, *, if_match: str | None = None) -> None:
        """Delete a blob, if it has this ETag. Fault BlobNotFound; ConditionNotMet."""

        def work(session: Session) -> None:
            blob = _find(session.connection, container, name)
            if if_match is not None:
                _check_tag(name, blob, if_match)
            contents.take_name(session, blob.content)
            session.connection.execute("DELETE FROM blobs WHERE container = ? AND name = ?", (blob.container, name))

        await self._host.submit(work)
        self._host.reclaim()

    async def list_blobs(
        self, container: str, prefix: str = "", continuation: str | None = None, limit: int = MAX_BLOB_PAGE
    ) -> BlobPage:
        """One page of at most `limit` blobs in the order of their names, by code point."""
        if not 1 <= limit <= MAX_BLOB_PAGE:
            raise Fault(Code.PARAMETER_OUT_OF_RANGE, f"A page has 1 to {MAX_BLOB_PAGE} blobs, not {limit}.")
        after, found = continuation or "", list[BlobInfo]()
        for name, text in (("prefix", prefix), ("continuation", after)):
            problem = check_text(text)
            if problem:
                raise Fault(Code.INVALID_INPUT, f"The {name} {text[:80]!r} {problem}.")
        while True:
            wanted = min(limit + 1 - len(found), _LIST_SLICE)
            wanted_next = partial(_listed, container=container, prefix=prefix, after=after, count=wanted)
            more = await self._host.read(wanted_next)
            found += more
            if len(found) > limit:
                return BlobPage(found[:limit], found[limit - 1].name)
            if len(more) < wanted:
                return BlobPage(found, None)
            after = found[-1].name
            await asyncio.sleep(0)


def gone(connection: Connection) -> int | None:
    """A deleted container whose blobs are not all taken away yet."""
    number: int | None = connection.execute("SELECT id FROM containers WHERE name IS NULL LIMIT 1").get
    return number


def reclaim(connection: Connection, rows: int) -> bool:
    """Take away up to `rows` blobs of a deleted container; False if there is no deleted container."""
    number = gone(connection)
    if number is None:
        return False
    blobs = list(connection.execute("SELECT content, name FROM blobs WHERE container = ? LIMIT ?", (number, rows)))
    for content, name in blobs:
        connection.execute("UPDATE contents SET until = 0 WHERE id = ?", (content,))
        connection.execute("DELETE FROM blobs WHERE container = ? AND name = ?", (number, name))
    if len(blobs) < rows:
        connection.execute("DELETE FROM containers WHERE id = ?", (number,))
    return True


@contextlib.contextmanager
def _snapshot(connection: Connection) -> Generator[None, None, None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


def _look_up_container(connection: Connection, container: str) -> int | None:
    number: int | None = connection.execute("SELECT id FROM containers WHERE name = ?", (container,)).get
    return number


def _find_container(connection: Connection, container: str) -> int:
    check_container_name(container)
    number = _look_up_container(connection, container)
    if number is None:
        raise Fault(Code.CONTAINER_NOT_FOUND, f"The specified container does not exist: {container!r}.")
    return number


_COLUMNS = "name, content, length, tick, appends, metadata"


def _blob(number: int, row: tuple[str, int, int, int, int | None, bytes]) -> _Blob:
    name, content, length, tick, appends, metadata = row
    info = BlobInfo(name=name, etag=_tag(tick), length=length, metadata=_decode(metadata), modified=moment(tick))
    return _Blob(number, content, appends, info)


def _look_up(connection: Connection, number: int, name: str) -> _Blob | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM blobs WHERE container = ? AND name = ?", (number, name)).get  # noqa: S608
    return None if row is None else _blob(number, row)


def _find(connection: Connection, container: str, name: str) -> _Blob:
    number = _find_container(connection, container)
    check_blob_name(name)
    blob = _look_up(connection, number, name)
    if blob is None:
        raise _not_found(name)
    return blob


def _listed(connection: Connection, container: str, prefix: str, after: str, count: int) -> list[BlobInfo]:
    number, found = _find_container(connection, container), list[BlobInfo]()
    sql = f"SELECT {_COLUMNS} FROM blobs WHERE container = ? AND name > ? AND name >= ? ORDER BY name LIMIT ?"  # noqa: S608
    rows = connection.execute(sql, (number, after, prefix, count))
    for row in rows:
        if not row[0].startswith(prefix):
            rows.close()
            break
        found.append(_blob(number, (row[0], row[1], row[2], row[3], row[4], row[5])).info)
    return found


def _not_found(name: str) -> Fault:
    return Fault(Code.BLOB_NOT_FOUND, f"The specified blob does not exist: {name!r}.")


def _tag(tick: int) -> str:
    return f'"0x{tick:X}"'


def _check_tag(name: str, blob: _Blob | None, tag: str) -> None:
    if blob is None or tag not in ("*", blob.info.etag):
        raise Fault(
            Code.CONDITION_NOT_MET, f"The blob {name!r} does not have the ETag {tag[:80]!r}, or does not exist."
        )


def _store(session: Session, number: int, content: int, appends: int | None, info: BlobInfo) -> BlobInfo:
    """Write a blob's row; its info with ETag and time."""
    tick = session.tick()
    session.connection.execute(
        f"REPLACE INTO blobs (container, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (number, info.name, content, info.length, tick, appends, _encode(info.metadata)),
    )
    session.dirty = True
    return attrs.evolve(info, etag=_tag(tick), modified=moment(tick))


def _more(connection: Connection, container: str, blob: _Blob, position: int, end: int) -> bytes:
    """The next bytes of a blob, none at the end; refused if the name has meanwhile lost them."""
    data = contents.bytes_at(connection, blob.content, position, end)
    if data is not None:
        return data
    name = blob.info.name
    if _find(connection, container, name).content == blob.content:
        raise Fault(
            Code.INTERNAL_ERROR, f"The blob {name!r} is damaged at byte {position}; restore the file from a backup."
        )
    raise Fault(Code.CONDITION_NOT_MET, f"The blob {name!r} was replaced while it was read; read it anew.")
