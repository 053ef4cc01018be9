"""
The blobs of index lists, one for each list, and how they are made right.

The first line of a blob says what it is. Each further line is an entity: its PartitionKey, its RowKey, and the write
token of the version that was put into the list. A list that nobody is in stays as a blob without entities, so that no
late request can make it anew.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TypeVar
from urllib.parse import unquote

import attrs

from ...connection.blobs import NO_BLOB, ask_blobs, list_blobs, put_blob, require_blobs
from ...connection.connection import Connection
from ...connection.races import Attempts
from ...connection.translate import translate
from ...errors import DecodeError, LimitExceeded, NotSupported
from ...models.manifest import BlobListEntry
from ...models.reserved import BLOB_LISTS
from ...protocol.codes import Code, Fault
from ...protocol.limits import MAX_BLOB_NAME
from ...stores import BlobStore, Row, RowAddress
from .following import FollowingList

T = TypeVar("T")

MOST_BYTES = 10 * 1024 * 1024
"""Bytes of a list in a blob to which no entity is added: each write of an entity reads and writes all of them."""

_SHORTEST = 16
"""Bytes of the shortest line: two keys, of which one has a character, a write token, and what ends each of them."""

_SLICE = 16 * 1024
"""Bytes that are read before other tasks get a turn: thousands of short lines. No line is longer."""

_SEARCHED = 256 * 1024
"""Bytes that are searched for an entity before other tasks get a turn."""

_HEAD = b"tableorm index list 1\n"

_find_members = re.compile(r"^([^\t\n]*)\t([^\t\n]*)\t[^\t\n]*\n", re.MULTILINE).findall

_LOST_RACE = (Code.BLOB_EXISTS, Code.BLOB_NOT_FOUND, Code.CONDITION_NOT_MET)


@attrs.frozen(eq=False)
class _Blob:
    """A blob as it was read; without an ETag if there is none."""

    etag: str | None
    data: bytes


# Requests


async def _ask(db: Connection, label: str, request: Callable[[BlobStore], Awaitable[T]]) -> T:
    """Send a request about lists, again after a transient fault. Raises Fault, and what `require_blobs` raises."""
    await require_blobs(db, f"{label} keeps its lists in blobs")
    return await ask_blobs(db, label, request)


async def _read(db: Connection, place: BlobListEntry) -> _Blob:
    """
    Read a list. No list has a name that is too long, whatever a manifest says; and a blob that is far too large is
    none, and is read as if it were empty.
    """
    if len(place.blob_name) > MAX_BLOB_NAME:
        return _Blob(None, _HEAD)

    async def read(store: BlobStore) -> _Blob:
        async with store.get(BLOB_LISTS, place.blob_name) as stream:
            fits = stream.info.length <= 2 * MOST_BYTES  # many that come at once fill it up beyond its limit
            return _Blob(stream.info.etag, b"".join([chunk async for chunk in stream.chunks]) if fits else b"")

    async for _ in Attempts(db, races=f"{_title(place)} was replaced while it was read"):
        try:
            return await _ask(db, place.kind, read)
        except Fault as fault:
            if fault.code in NO_BLOB:
                return _Blob(None, _HEAD)
            if fault.code != Code.CONDITION_NOT_MET:  # it was replaced while it was being read
                raise translate(fault, f"read of {_title(place)}", "") from None
    raise AssertionError


async def _write(db: Connection, place: BlobListEntry, blob: _Blob, data: bytes) -> bool:
    """Replace a list as it was read. Return False if another writer has written it, or nobody knows what happened."""
    conditions = {"if_none_match": blob.etag is None, "if_match": blob.etag}
    try:
        await put_blob(db, place.kind, BLOB_LISTS, place.blob_name, data, **conditions)
    except Fault as fault:
        if fault.code in _LOST_RACE or fault.transient:
            return False
        raise translate(fault, f"write of {_title(place)}", "") from None
    return True


async def check_room(db: Connection, place: BlobListEntry, label: str) -> None:
    """
    Refuse to let an entity come into a list that is full.

    Raises:
        LimitExceeded: It is full.
        TableOrmError: What `require_blobs` raises, or the store did not answer.
    """
    try:
        info = await _ask(db, label, lambda store: store.info(BLOB_LISTS, place.blob_name))
    except Fault as fault:
        if fault.code in NO_BLOB:
            return
        raise translate(fault, f"look at {_title(place)}", "") from None
    if info.length >= MOST_BYTES:
        raise LimitExceeded(
            f"{label}: {_title(place)} is full: it has {info.length} bytes, of {MOST_BYTES}; declare an Index in its "
            "place, which has a row for each entity, or add fields to the row_key, which make more and shorter lists"
        )


async def lists_of(db: Connection, table: str, kind: str) -> AsyncGenerator[BlobListEntry]:
    """Yield all lists of a kind of the entities of a table."""
    folder = BlobListEntry("", "", table, kind).blob_name[:-3]  # without "=/="
    await require_blobs(db, f"{kind} keeps its lists in blobs")
    async with aclosing(list_blobs(db, kind, BLOB_LISTS, folder, f"the lists of {kind}")) as found:
        async for each in found:
            first, _, rest = each.name.removeprefix(folder).partition("/")
            place = BlobListEntry(_unescape(first), _unescape(rest), table, kind)
            await db.yield_to_loop(1)
            if place.blob_name == each.name:  # otherwise no list has this name
                yield place


def _unescape(part: str) -> str:
    return unquote(part.replace("=", "%")) if part != "=" else ""


# Contents


def _title(place: BlobListEntry) -> str:
    return f"the list {place.list_key!r} of {place.kind}, the blob {place.blob_name!r} of {BLOB_LISTS}"


def _check_head(place: BlobListEntry, data: bytes) -> None:
    """Refuse a blob that is no list as this program writes them. Raises DecodeError or NotSupported."""
    if data.startswith(_HEAD) and data.endswith(b"\n"):
        return
    if data.startswith(_HEAD[:-2]) and not data.startswith(_HEAD):
        raise NotSupported(f"{_title(place)} is of a newer program; update this one")
    raise _damaged(place)


def _damaged(place: BlobListEntry) -> DecodeError:
    return DecodeError(
        f"is no index list: {_title(place)}; delete the blob, then run db.build_index of the list",
        place.kind,
        (place.partition_key, place.list_key),
    )


async def members_of(db: Connection, place: BlobListEntry) -> AsyncGenerator[list[tuple[str, str]]]:
    """
    Yield the PartitionKey and RowKey of each entity that a list names, some at a time; other tasks run in between.

    Raises:
        DecodeError: The list is damaged, or of a newer program.
        TableOrmError: What `require_blobs` raises, or the store did not answer.
    """
    data = (await _read(db, place)).data
    begin, left = len(_HEAD), MOST_BYTES // _SHORTEST
    try:
        _check_head(place, data)
        while begin < len(data):
            end = data.rfind(b"\n", begin, begin + _SLICE) + 1
            text = data[begin:end].decode()
            found: list[tuple[str, str]] = _find_members(text)
            left -= len(found)
            if not found or len(found) != text.count("\n") or left < 0:
                raise _damaged(place)
            yield found
            begin = end
            if begin < len(data):
                await asyncio.sleep(0)
    except NotSupported as error:
        raise DecodeError(str(error), place.kind, (place.partition_key, place.list_key)) from error
    except UnicodeDecodeError as error:
        raise _damaged(place) from error


async def _find(data: bytearray, text: bytes) -> int:
    """Return where a text begins in the contents of a list; -1 if it is not there. Other tasks run in between."""
    for begin in range(0, len(data), _SEARCHED):
        found = data.find(text, begin, begin + _SEARCHED + len(text) - 1)
        if found >= 0:
            return found
        await asyncio.sleep(0)
    return -1


async def _set_member(data: bytearray, source: RowAddress, version: str | None) -> bool:
    """
    Let the contents of a list name an entity, with the write token of a version; or not, if it is None. Return whether
    they have changed.
    """
    member = f"{source.partition_key}\t{source.row_key}\t".encode()
    line = b"" if version is None else member + version.encode() + b"\n"
    begin = await _find(data, b"\n" + member) + 1
    end = data.index(b"\n", begin) + 1 if begin else len(data)
    begin = begin or end
    if bytes(data[begin:end]) == line:
        return False
    data[begin:end] = line
    return True


@attrs.frozen
class BlobList(FollowingList[_Blob]):
    """
    A list in a blob.

    Args:
        db: The database.
        place: The list.
    """

    place: BlobListEntry

    async def find_parts(self, sources: Sequence[RowAddress]) -> dict[RowAddress, _Blob]:
        """Return the blob for each entity. Raises TableOrmError."""
        blob = await _read(self.db, self.place)
        _check_head(self.place, blob.data)
        return dict.fromkeys(sources, blob)

    async def correct_part(self, part: _Blob, wanted: Mapping[RowAddress, str | None]) -> bool:
        """Write the blob, unless it is right. Takes, returns and raises as `FollowingList.correct_part`."""
        data, changed = bytearray(part.data), False
        for source, version in wanted.items():
            changed = await _set_member(data, source, version) or changed
        return not changed or await _write(self.db, self.place, part, bytes(data))

    async def correct(self, source: RowAddress, name: str, is_due: Callable[[Row], bool]) -> None:
        """Make the list say of an entity of its table what the entity says, as `FollowingList.correct` does."""
        if source.table.lower() == self.place.table.lower():  # the blob does not tell the table of each entity
            await super().correct(source, name, is_due)
