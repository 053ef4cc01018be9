"""
The blobs that rows name: they go along with the rows, as they are stored.

A manifest names each blob of its entity, so that no model is needed. The name of a blob is never written twice, so what
is there with the same length need not be copied again. A blob is in the target before the row that names it.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import attrs

from ..connection.blob_fields import ask_for_blobs
from ..connection.blobs import NO_BLOB, make_container, require_blobs
from ..connection.connection import Connection
from ..connection.tasks import map_together
from ..connection.translate import translate
from ..errors import DecodeError, TableOrmError
from ..jobs.counts import JobCounts
from ..models.manifest import UploadEntry, manifest_of
from ..models.reserved import BLOB_FIELDS, MANIFEST
from ..protocol.codes import Code, Fault
from ..shapes.blob import add_to_hash
from ..stores import BlobInfo, BlobStore, Row, single_try

T = TypeVar("T")

_LABEL = "copy of blobs"
_PATIENCE = 5.0  # seconds of waiting for blobs of the source, of which there may be none


async def prepare_blobs(db: Connection, target: Connection, tables: Iterable[str]) -> bool:
    """
    Make the target ready for the blobs of some tables, before anything is written. Return whether it has blobs already.

    Raises:
        NotSupported: There are such blobs, and the target has no place for them.
        TableOrmError: The target cannot be reached, or refuses blobs.
    """
    if not await _has_blobs(db, ""):
        return True
    for table in tables:
        if not await _has_blobs(db, f"{table}/"):
            continue
        what = f"copy_rows() wrote nothing: entities of table {table} have blobs, which the target must take"
        await require_blobs(target, what)
        try:
            await make_container(target, _LABEL, BLOB_FIELDS)
        except Fault as fault:
            raise translate(fault, what, "") from None
        return await _has_blobs(target, "")
    return True


async def _has_blobs(db: Connection, prefix: str) -> bool:
    """Return whether blobs have such names; False if nobody can tell, as rows that name blobs say so later."""

    async def find(store: BlobStore) -> bool:
        return bool((await store.list_blobs(BLOB_FIELDS, prefix, limit=1)).blobs)

    with suppress(Fault, TableOrmError, TimeoutError), single_try():
        async with asyncio.timeout(_PATIENCE):
            return await ask_for_blobs(db, _LABEL, find)
    return False


@attrs.frozen(eq=False)
class BlobTransfer:
    """
    Copies the blobs of rows from one database to another, or compares them.

    Args:
        db: The source.
        target: The target.
        turns: Limits how many blobs are read at the same time.
        looks: Whether to look for a blob in the target before it is sent.
    """

    db: Connection
    target: Connection
    turns: asyncio.Semaphore
    looks: bool = True

    async def copy(self, rows: Iterable[Row], counts: JobCounts) -> None:
        """
        Copy the blobs that rows name. A blob that the source does not have is a failure of its row, and so is one of
        another length in the target.

        Raises:
            TableOrmError: A side does not take or give blobs.
        """
        await map_together(partial(self._copy, counts), _named(rows))

    async def _copy(self, counts: JobCounts, named: tuple[Row, UploadEntry]) -> None:
        row, address = named
        async with self.turns:
            there = await self._ask(self.target, address, _read_info) if self.looks else None
            if there is None:
                copied = await self._ask(self.target, address, self._put)
                counts.count("blobs", copied is not None)
            else:
                copied = await self._ask(self.db, address, _read_info)
        if copied is None:
            counts.fail(row, f"names the blob {address.name!r}, which the source does not have")
        elif there is not None and there.length != copied.length:
            counts.fail(row, f"names the blob {address.name!r}, which is in the target with another length")

    async def _put(self, target: BlobStore, name: str) -> BlobInfo:
        self.db.sending("get-blob", _LABEL)
        async with self.db.blobs.get(BLOB_FIELDS, name) as stream:
            try:
                await target.put(BLOB_FIELDS, name, stream.chunks, if_none_match=True, metadata=stream.info.metadata)
            except Fault as fault:
                if fault.code == Code.CONTAINER_NOT_FOUND:
                    await make_container(self.target, _LABEL, BLOB_FIELDS)
                    return await self._put(target, name)
                if fault.code != Code.BLOB_EXISTS:  # another process has copied it meanwhile
                    raise
            return stream.info

    async def compare(self, rows: Iterable[Row], counts: JobCounts) -> None:
        """Compare the blobs that rows name, byte for byte; one that differs or is missing is a failure of its row."""
        await map_together(partial(self._compare, counts), _named(rows))

    async def _compare(self, counts: JobCounts, named: tuple[Row, UploadEntry]) -> None:
        row, address = named
        async with self.turns:
            ours, theirs = [await self._ask(side, address, _read_digest) for side in (self.db, self.target)]
        if ours != theirs:
            problem = "is missing in" if theirs is None else "differs in"
            counts.fail(row, f"its blob {address.name!r} {problem} the target")
        else:
            counts.count("blobs", ours is not None)

    async def _ask(
        self, side: Connection, address: UploadEntry, request: Callable[[BlobStore, str], Awaitable[T]]
    ) -> T | None:
        """Send a request for a blob; return None if there is none."""
        await require_blobs(self.db, f"{address.name} is a blob")
        try:
            return await ask_for_blobs(side, _LABEL, lambda store: request(store, address.name))
        except Fault as fault:
            if fault.code in NO_BLOB:
                return None
            raise translate(fault, f"transfer of the blob {address.name!r}", "") from None


def _read_info(store: BlobStore, name: str) -> Awaitable[BlobInfo]:
    return store.info(BLOB_FIELDS, name)


async def _read_digest(store: BlobStore, name: str) -> bytes:
    """Return the hash of the bytes of a blob."""
    digest = hashlib.sha256()
    async with store.get(BLOB_FIELDS, name) as stream:
        async for chunk in stream.chunks:
            await add_to_hash(digest, chunk)
    return digest.digest()


def _named(rows: Iterable[Row]) -> list[tuple[Row, UploadEntry]]:
    """Return the blobs that rows name, each with its row. What is no manifest names none."""
    found: list[tuple[Row, UploadEntry]] = []
    for row in rows:
        if '"up"' not in str(row.get(MANIFEST, "")):
            continue
        with suppress(DecodeError):
            entries = manifest_of(row).values()
            found += [(row, each) for each in entries if isinstance(each, UploadEntry)]
    return found
