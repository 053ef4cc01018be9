"""
The blobs that rows name: they go along with the rows, as they are stored.

A manifest names each blob of its entity, so that no model is needed. The name of a blob is never written twice, so what
is there with the same length need not be copied again. A blob is in the target before the row that names it.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import attrs
from msgspec import structs

from ..connection.blob_fields import ask_for_blobs
from ..connection.blobs import make_container, require_blobs
from ..connection.connection import Connection
from ..connection.tasks import map_together
from ..connection.translate import translate
from ..errors import DecodeError, TableOrmError
from ..jobs.counts import JobCounts
from ..models.manifest import UploadEntry, manifest_of
from ..models.reserved import BLOB_FIELDS, MANIFEST
from ..protocol.codes import Code, Fault
from ..shapes.blob import BlobAddress, add_to_hash
from ..stores import BlobInfo, BlobStore, Row, single_try

__all__ = ["BlobTransfer", "prepare_blobs"]

T = TypeVar("T")

_LABEL = "copy of blobs"
_ABSENT = (Code.BLOB_NOT_FOUND, Code.CONTAINER_NOT_FOUND)
_PATIENCE = 5.0  # seconds of waiting for blobs of the source, of which there may be none


async def prepare_blobs(db: Connection, target: Connection, tables: Iterable[str]) -> None:
    """
    Make the target ready for the blobs of some tables, before anything is written.

    Raises:
        NotSupported: There are such blobs, and the target has no place for them.
        TableOrmError: The target cannot be reached, or refuses blobs.
    """
    for table in tables:
        if not await _has_blobs(db, table):
            continue
        what = f"copy_rows() wrote nothing: entities of table {table} have blobs, which the target must take"
        await require_blobs(target, what)
        try:
            await make_container(target, _LABEL, BLOB_FIELDS)
        except Fault as fault:
            raise translate(fault, what, "") from fault
        return


async def _has_blobs(db: Connection, table: str) -> bool:
    """Return whether there are blobs for a table; False if nobody can tell, as rows that name blobs say so later."""

    async def find(store: BlobStore) -> bool:
        return bool((await store.list_blobs(BLOB_FIELDS, f"{table}/", limit=1)).blobs)

    with suppress(Fault, TableOrmError, TimeoutError), single_try():
        async with asyncio.timeout(_PATIENCE):
            return await ask_for_blobs(db, "list-blobs", _LABEL, find)
    return False


@attrs.frozen(eq=False)
class BlobTransfer:
    """
    Copies the blobs of rows from one database to another, or compares them.

    Args:
        db: The source.
        target: The target.
        turns: Limits how many blobs are read at the same time.
        replace: Whether a blob of the target that has another length is replaced.
    """

    db: Connection
    target: Connection
    turns: asyncio.Semaphore
    replace: bool = False

    async def copy(self, rows: Sequence[Row], counts: JobCounts) -> None:
        """
        Copy the blobs that rows name. One that the source does not have is a failure of its row.

        Raises:
            TableOrmError: A side does not take or give blobs.
        """
        await map_together(partial(self._copy, counts), _named(rows))

    async def _copy(self, counts: JobCounts, named: tuple[Row, BlobAddress]) -> None:
        row, address = named
        async with self.turns:
            there = await self._info(self.target, address)
            if there is not None:
                ours = await self._info(self.db, address)
                if ours is None or ours.length == there.length:
                    return
                if not self.replace:
                    counts.fail(row, f"names the blob {address.name!r}, which is in the target with another length")
                    return
            await require_blobs(self.db, f"{address.name} is a blob")
            try:
                await ask_for_blobs(self.target, "put-blob", _LABEL, partial(self._put, address, there))
            except Fault as fault:
                if fault.code in _ABSENT:
                    counts.fail(row, f"names the blob {address.name!r}, which the source does not have")
                    return
                if fault.code != Code.BLOB_EXISTS:  # another process has copied it meanwhile
                    raise translate(fault, f"copy of the blob {address.name!r}", "") from fault
            counts.count("blobs")

    async def _put(self, address: BlobAddress, there: BlobInfo | None, store: BlobStore) -> None:
        self.db.sending("get-blob", _LABEL)
        async with self.db.blobs.get(BLOB_FIELDS, address.name) as stream:
            condition = None if there is None else there.etag
            await store.put(
                BLOB_FIELDS,
                address.name,
                stream.chunks,
                if_none_match=there is None,
                if_match=condition,
                metadata=stream.info.metadata,
            )

    async def compare(self, rows: Sequence[Row], counts: JobCounts) -> None:
        """Compare the blobs that rows name, byte for byte; one that differs or is missing is a failure of its row."""
        await map_together(partial(self._compare, counts), _named(rows))

    async def _compare(self, counts: JobCounts, named: tuple[Row, BlobAddress]) -> None:
        row, address = named
        async with self.turns:
            ours, theirs = [await self._digest(side, address) for side in (self.db, self.target)]
        if ours != theirs:
            problem = "is missing in" if theirs is None else "differs in" if ours is not None else "is in"
            alone = " alone" if ours is None else ""
            counts.fail(row, f"the blob {address.name!r} of it {problem} the target{alone}")
        else:
            counts.count("blobs")

    async def _info(self, side: Connection, address: BlobAddress) -> BlobInfo | None:
        """Return what a side knows of a blob; None if it has none."""
        return await self._ask(side, address, lambda store: store.info(BLOB_FIELDS, address.name))

    async def _digest(self, side: Connection, address: BlobAddress) -> bytes | None:
        """Return the hash of the bytes of a blob; None if there is none."""

        async def read(store: BlobStore) -> bytes:
            digest = hashlib.sha256()
            async with store.get(BLOB_FIELDS, address.name) as stream:
                async for chunk in stream.chunks:
                    await add_to_hash(digest, chunk)
            return digest.digest()

        return await self._ask(side, address, read)

    async def _ask(
        self, side: Connection, address: BlobAddress, request: Callable[[BlobStore], Awaitable[T]]
    ) -> T | None:
        """Send a request for a blob; return None if there is none."""
        try:
            return await ask_for_blobs(side, "get-blob", _LABEL, request)
        except Fault as fault:
            if fault.code in _ABSENT:
                return None
            raise translate(fault, f"read of the blob {address.name!r}", "") from fault


def _named(rows: Iterable[Row]) -> list[tuple[Row, BlobAddress]]:
    """Return the blobs that rows name, each with its row. What is no manifest names none."""
    found: list[tuple[Row, BlobAddress]] = []
    for row in rows:
        if '"up"' not in str(row.get(MANIFEST, "")):
            continue
        with suppress(DecodeError):
            entries = manifest_of(row).values()
            found += [(row, BlobAddress(*structs.astuple(each))) for each in entries if isinstance(each, UploadEntry)]
    return found
