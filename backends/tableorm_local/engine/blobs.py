"""
Blobs: a `BlobStore` in the engine's file, shared by tasks, engines and processes.

A blob is a row that gives a name to a content. To replace the blob, the name is given to another content.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import msgspec

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.limits import (
    MAX_APPENDS,
    MAX_BLOB_PAGE,
    check_append,
    check_blob_list,
    check_blob_name,
    check_blob_range,
    check_container_name,
    check_metadata,
)
from tableorm.stores import BlobInfo, BlobPage, BlobStream

from . import blob_contents
from .sqlite import Connection
from .write_session import Host, Steps, WriteSession, find_number, list_names, moment

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
    """A row of `blobs`: its info, and where it is stored."""

    container: int
    content: int
    appends: int | None
    info: BlobInfo


class Blobs:
    """The blobs of an engine."""

    def __init__(self, host: Host) -> None:
        self._host, self.capabilities = host, host.capabilities

    async def create_container(self, container: str) -> None:
        """Create a container. Fault ContainerAlreadyExists."""
        check_container_name(container)

        def work(session: WriteSession) -> None:
            if find_number(session.connection, "containers", container) is not None:
                raise Fault(Code.CONTAINER_EXISTS, f"The specified container already exists: {container!r}.")
            session.write("INSERT INTO containers (name) VALUES (?)", (container,))

        await self._host.submit(work)

    async def delete_container(self, container: str) -> None:
        """Delete a container and its blobs, in constant time."""

        def work(session: WriteSession) -> None:
            number = _require_container(session.connection, container)
            session.write("UPDATE containers SET name = NULL WHERE id = ?", (number,))

        await self._host.submit(work)
        self._host.reclaim()

    async def list_containers(self, prefix: str = "") -> list[str]:
        """List the names of the containers that start with `prefix`, in order."""
        return await list_names(self._host, "containers", prefix)

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
        """Write a blob in full, in place of the one that had the name. It is durable on return, and not seen before."""
        check_blob_name(name)
        kept = dict(metadata or {})
        check_metadata(kept)

        def check(connection: Connection) -> tuple[int, _Blob | None]:
            number = _require_container(connection, container)
            old = _find_blob(connection, number, name)
            if if_none_match and old is not None:
                raise Fault(Code.BLOB_EXISTS, f"The specified blob already exists: {name!r}.")
            _check_etag(name, old, if_match)
            return number, old

        def stage(session: WriteSession) -> Steps:
            if start:
                blob_contents.check_staged(session.connection, content)
            blob_contents.stage(session, content)
            return blob_contents.add_chunks(session, content, start, chunks)

        def publish(session: WriteSession) -> Steps:
            # The checks come first, so that a request that is rejected has written nothing.
            number, old = check(session.connection)
            if start:
                blob_contents.check_staged(session.connection, content)
            blob_contents.keep(session, content)
            end = yield from blob_contents.add_chunks(session, content, start, chunks)
            if old is not None:
                blob_contents.release(session, old.content)
            return _write_row(session, number, content, None, name, end, kept), old is not None

        content, start, chunks = blob_contents.new_content(), 0, list[bytes]()
        await self._host.read(check)  # before any data is sent; `publish` checks again
        try:
            # The last slice is written together with the name: most blobs have only one slice.
            async with contextlib.aclosing(blob_contents.slice_data(data)) as slices:
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
        """Delete what was staged, unless it got its name."""
        # If this fails too, the content is deleted when its time is over.
        with contextlib.suppress(Fault):
            await self._host.submit(lambda session: blob_contents.release_staged(session, content))
            self._host.reclaim()

    async def append(
        self, container: str, name: str, data: bytes, *, create: bool = True, if_position: int | None = None
    ) -> BlobInfo:
        """Write at the end of a blob that was made by appending. It is durable on return."""
        check_blob_name(name)
        check_append(data)

        def work(session: WriteSession) -> Steps:
            number = _require_container(session.connection, container)
            old = _find_blob(session.connection, number, name)
            if old is None and not create:
                raise _missing_blob_fault(name)
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
            content = blob_contents.new_content() if old is None else old.content
            blob_contents.keep(session, content)
            end = yield from blob_contents.add_chunks(session, content, start, blob_contents.split_chunks(data))
            kept: Mapping[str, str] = old.info.metadata if old is not None else {}
            return _write_row(session, number, content, appends + 1, name, end, kept)

        info: BlobInfo = await self._host.submit(work)
        return info

    async def info(self, container: str, name: str) -> BlobInfo:
        """Read the info of a blob. Fault BlobNotFound."""
        return (await self._host.read(lambda connection: _require_blob(connection, container, name))).info

    @contextlib.asynccontextmanager
    async def get(
        self, container: str, name: str, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[BlobStream, None]:
        """Read a blob in chunks of at least 256 KiB, except for the last."""
        check_blob_range(offset, length)

        def begin(connection: Connection) -> tuple[_Blob, int, bytes]:
            # Both at one moment: otherwise a blob might be replaced, and deleted, before its first byte is read.
            with _snapshot(connection):
                blob = _require_blob(connection, container, name)
                if offset and offset >= blob.info.length:
                    raise Fault(
                        Code.INVALID_RANGE,
                        f"The blob {name!r} has {blob.info.length} bytes, none from offset {offset}.",
                    )
                end = blob.info.length if length is None else min(blob.info.length, offset + length)
                return blob, end, _read_more(connection, container, blob, offset, end)

        blob, end, first = await self._host.read(begin)

        async def chunks() -> AsyncGenerator[bytes, None]:
            position, data = offset, first
            while data:
                yield data
                position += len(data)
                # Reading does not wait, and perhaps the caller does not either, so other tasks get their turn here.
                await asyncio.sleep(0)
                rest = partial(_read_more, container=container, blob=blob, position=position, end=end)
                data = await self._host.read(rest)

        async with contextlib.aclosing(chunks()) as stream:
            yield BlobStream(blob.info, stream)

    async def read(self, container: str, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Read a blob, or a part of it, into memory."""
        async with self.get(container, name, offset, length) as stream:
            return b"".join([chunk async for chunk in stream.chunks])

    async def delete(self, container: str, name: str, *, if_match: str | None = None) -> None:
        """Delete a blob, if it has this ETag. Fault BlobNotFound; ConditionNotMet."""

        def work(session: WriteSession) -> None:
            blob = _require_blob(session.connection, container, name)
            _check_etag(name, blob, if_match)
            blob_contents.release(session, blob.content)
            session.write("DELETE FROM blobs WHERE container = ? AND name = ?", (blob.container, name))

        await self._host.submit(work)
        self._host.reclaim()

    async def list_blobs(
        self, container: str, prefix: str = "", continuation: str | None = None, limit: int = MAX_BLOB_PAGE
    ) -> BlobPage:
        """List one page of at most `limit` blobs in the order of their names, by code point."""
        check_blob_list(limit, prefix, continuation)
        after, found = continuation or "", list[BlobInfo]()
        while True:
            wanted = min(limit + 1 - len(found), _LIST_SLICE)
            wanted_next = partial(_list_page, container=container, prefix=prefix, after=after, count=wanted)
            more = await self._host.read(wanted_next)
            found += more
            if len(found) > limit:
                return BlobPage(found[:limit], found[limit - 1].name)
            if len(more) < wanted:
                return BlobPage(found, None)
            after = found[-1].name
            await asyncio.sleep(0)


def reclaim(connection: Connection, rows: int) -> bool:
    """Delete up to `rows` blobs of a deleted container. Return False if there is no deleted container."""
    number = find_number(connection, "containers", None)
    if number is None:
        return False
    blobs = list(connection.execute("SELECT content, name FROM blobs WHERE container = ? LIMIT ?", (number, rows)))
    deleted = 0
    for content, name in blobs:
        connection.execute("UPDATE contents SET until = 0 WHERE id = ?", (content,))
        connection.execute("DELETE FROM blobs WHERE container = ? AND name = ?", (number, name))
        deleted += connection.changes()
    if blobs and not deleted:
        return False  # The file is damaged: the names are out of order, and it would go on for ever.
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


def _require_container(connection: Connection, container: str) -> int:
    check_container_name(container)
    number = find_number(connection, "containers", container)
    if number is None:
        raise Fault(Code.CONTAINER_NOT_FOUND, f"The specified container does not exist: {container!r}.")
    return number


_COLUMNS = "name, content, length, tick, appends, metadata"


def _make_blob(number: int, row: Sequence[Any]) -> _Blob:
    name, content, length, tick, appends, metadata = row
    return _Blob(number, content, appends, _make_info(name, length, tick, _decode(metadata)))


def _make_info(name: str, length: int, tick: int, metadata: Mapping[str, str]) -> BlobInfo:
    return BlobInfo(name=name, etag=f'"0x{tick:X}"', length=length, metadata=metadata, modified=moment(tick))


def _find_blob(connection: Connection, number: int, name: str) -> _Blob | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM blobs WHERE container = ? AND name = ?", (number, name)).get  # noqa: S608
    return None if row is None else _make_blob(number, row)


def _require_blob(connection: Connection, container: str, name: str) -> _Blob:
    number = _require_container(connection, container)
    check_blob_name(name)
    blob = _find_blob(connection, number, name)
    if blob is None:
        raise _missing_blob_fault(name)
    return blob


def _list_page(connection: Connection, container: str, prefix: str, after: str, count: int) -> list[BlobInfo]:
    number, found = _require_container(connection, container), list[BlobInfo]()
    sql = f"SELECT {_COLUMNS} FROM blobs WHERE container = ? AND name >= ? ORDER BY name LIMIT ?"  # noqa: S608
    low = max(after + "\0", prefix)
    with contextlib.closing(connection.execute(sql, (number, low, count))) as rows:
        for row in rows:
            if not row[0].startswith(prefix):
                break
            found.append(_make_blob(number, row).info)
    return found


def _missing_blob_fault(name: str) -> Fault:
    return Fault(Code.BLOB_NOT_FOUND, f"The specified blob does not exist: {name!r}.")


def _check_etag(name: str, blob: _Blob | None, tag: str | None) -> None:
    if tag is not None and (blob is None or tag not in ("*", blob.info.etag)):
        raise Fault(
            Code.CONDITION_NOT_MET, f"The blob {name!r} does not have the ETag {tag[:80]!r}, or does not exist."
        )


def _write_row(
    session: WriteSession,
    number: int,
    content: int,
    appends: int | None,
    name: str,
    length: int,
    metadata: Mapping[str, str],
) -> BlobInfo:
    """Write the row of a blob, of whose content the caller has called `keep`. Return its info."""
    tick = session.tick()
    session.write(
        f"REPLACE INTO blobs (container, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (number, name, content, length, tick, appends, _encode(metadata)),
    )
    return _make_info(name, length, tick, metadata)


def _read_more(connection: Connection, container: str, blob: _Blob, position: int, end: int) -> bytes:
    """Read the next bytes of a blob, none at the end. Refuse if the blob was replaced meanwhile."""
    data = blob_contents.read_bytes(connection, blob.content, position, end)
    if data is not None:
        return data
    name = blob.info.name
    if _require_blob(connection, container, name).content == blob.content:
        raise Fault(
            Code.INTERNAL_ERROR, f"The blob {name!r} is damaged at byte {position}; restore the file from a backup."
        )
    raise Fault(Code.CONDITION_NOT_MET, f"The blob {name!r} was replaced while it was read; read it anew.")
