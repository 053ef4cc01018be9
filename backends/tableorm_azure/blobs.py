"""
Blobs of an account as a `BlobStore`: azure-storage-blob, with blocks of our own.

The SDK names the blocks of a large upload by their place, so that two writers of one name could mix them up. Here
blocks have unique names, and data that fits into one request is sent in one.
"""

import datetime as dt
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from azure.core import MatchConditions
from azure.storage.blob import BlobBlock
from azure.storage.blob.aio import BlobServiceClient

from tableorm.protocol.codes import Code, Fault
from tableorm.protocol.limits import (
    check_append,
    check_blob_list,
    check_blob_name,
    check_blob_range,
    check_container_name,
    check_metadata,
)
from tableorm.stores import BlobInfo, BlobPage, BlobStream, Capabilities

from .faults import translated
from .lists import LIST_PAGE, list_names

BLOCK_BYTES = 4 * 1024 * 1024  # of a part of an upload, and of a chunk that is read
# The service takes 5000 MiB at once, but larger uploads than this are better repeated in parts.
# Source: Blob service REST, "Put Blob".
MAX_SINGLE_PUT_BYTES = 256 * 1024 * 1024


class AzureBlobs:
    """
    The blobs of one account.

    Args:
        service: The SDK's client, set to `BLOCK_BYTES` and `MAX_SINGLE_PUT_BYTES`.
        capabilities: The capabilities of the service.
    """

    def __init__(self, service: BlobServiceClient, capabilities: Capabilities) -> None:
        self._service: Any = service  # its own types are incomplete
        self.capabilities = capabilities

    async def create_container(self, container: str) -> None:
        """See `BlobStore`."""
        with translated(write=True):
            await self._container(container).create_container()

    async def delete_container(self, container: str) -> None:
        """See `BlobStore`."""
        with translated(write=True):
            await self._container(container).delete_container()

    async def list_containers(self, prefix: str = "") -> list[str]:
        """See `BlobStore`."""
        with translated(write=False):
            listing = self._service.list_containers(name_starts_with=prefix or None, results_per_page=LIST_PAGE)
            return sorted(await list_names(listing))

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
        See `BlobStore`.

        An iterable of more than `BLOCK_BYTES` is uploaded in blocks. If another writer writes the blob meanwhile, the
        service deletes them: Fault InvalidBlockList. Blocks cannot replace a blob that was appended to: Fault
        InvalidBlobType; delete that blob first.
        """
        blob = self._blob(container, name)
        kept = dict(metadata or {})
        check_metadata(kept)
        condition = _make_condition(if_match, if_none_match=if_none_match)
        try:
            if isinstance(data, bytes) and len(data) <= MAX_SINGLE_PUT_BYTES:
                return await _upload(blob, name, data, kept, condition)
            return await _upload_parts(blob, name, _split_blocks(data), kept, condition)
        except Fault as fault:
            if if_none_match and fault.code == Code.CONDITION_NOT_MET:
                raise Fault(Code.BLOB_EXISTS, f"The specified blob already exists: {name!r}.") from fault
            raise

    async def append(
        self, container: str, name: str, data: bytes, *, create: bool = True, if_position: int | None = None
    ) -> BlobInfo:
        """See `BlobStore`. Cancelled between its two requests, the first append leaves an empty blob."""
        check_append(data)
        blob = self._blob(container, name)
        try:
            return await _append(blob, name, data, if_position)
        except Fault as fault:
            if fault.code != Code.BLOB_NOT_FOUND or not create:
                raise
        if if_position:
            raise Fault(
                Code.APPEND_POSITION_NOT_MET, f"The blob {name!r} does not exist, so it does not end at {if_position}."
            )
        try:
            with translated(write=True):
                await blob.create_append_blob(match_condition=MatchConditions.IfMissing)
        except Fault as fault:  # someone else was quicker
            if fault.code not in (Code.BLOB_EXISTS, Code.CONDITION_NOT_MET):
                raise
        return await _append(blob, name, data, if_position)

    async def info(self, container: str, name: str) -> BlobInfo:
        """See `BlobStore`."""
        with translated(write=False):
            properties = await self._blob(container, name).get_blob_properties()
            return _read_info(name, properties, properties.size)

    @asynccontextmanager
    async def get(
        self, container: str, name: str, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[BlobStream]:
        """See `BlobStore`."""
        check_blob_range(offset, length)
        blob = self._blob(container, name)
        whole = offset == 0 and length is None
        try:
            with translated(write=False):
                found = await (blob.download_blob() if whole else blob.download_blob(offset, length))
        except Fault as fault:
            if fault.code != Code.INVALID_RANGE or offset:
                raise
            info = await self.info(container, name)
            if info.length:
                raise
            yield BlobStream(info, _iterate_chunks(None))
            return
        with translated(write=False):
            # The SDK puts the range's size into the properties; the blob's size is after the slash.
            total = str(found.properties.content_range or "").rpartition("/")[2]
            size = int(total) if total.isdigit() else found.properties.size
            if offset >= max(size, 1):
                raise Fault(Code.INVALID_RANGE, f"The blob {name!r} has {size} bytes; there is no byte {offset}.")
            info = _read_info(name, found.properties, size)
        yield BlobStream(info, _iterate_chunks(found))

    async def read(self, container: str, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """See `BlobStore`."""
        async with self.get(container, name, offset, length) as stream:
            return b"".join([chunk async for chunk in stream.chunks])

    async def delete(self, container: str, name: str, *, if_match: str | None = None) -> None:
        """See `BlobStore`."""
        blob = self._blob(container, name)
        try:
            with translated(write=True):
                await blob.delete_blob(**_make_condition(if_match))
        except Fault as fault:
            if fault.code == Code.CONDITION_NOT_MET:
                await self.info(container, name)  # some servers say so of a blob that does not exist
            raise

    async def list_blobs(
        self, container: str, prefix: str = "", continuation: str | None = None, limit: int = 5000
    ) -> BlobPage:
        """See `BlobStore`."""
        check_blob_list(limit, prefix, continuation)
        with translated(write=False):
            size = min(limit, LIST_PAGE)
            pages = (
                self._container(container)
                .list_blobs(name_starts_with=prefix or None, include=["metadata"], results_per_page=size)
                .by_page(continuation)
            )
            async for page in pages:
                found = [_read_info(each.name, each, each.size) async for each in page]
                if continuation is not None and pages.continuation_token == continuation:
                    raise Fault(Code.INTERNAL_ERROR, "The answer goes on where it began, so the list would never end.")
                return BlobPage(found, pages.continuation_token or None)
            return BlobPage([], None)

    def _container(self, container: str) -> Any:
        check_container_name(container)
        return self._service.get_container_client(container)

    def _blob(self, container: str, name: str) -> Any:
        check_container_name(container)
        check_blob_name(name)
        return self._service.get_blob_client(container, name)


def _make_condition(if_match: str | None, *, if_none_match: bool = False) -> dict[str, Any]:
    """Return a condition in the form of the SDK."""
    if if_none_match:
        return {"match_condition": MatchConditions.IfMissing}
    if if_match == "*":
        return {"match_condition": MatchConditions.IfPresent}
    return {} if if_match is None else {"etag": if_match, "match_condition": MatchConditions.IfNotModified}


async def _upload(blob: Any, name: str, data: bytes, metadata: dict[str, str], condition: dict[str, Any]) -> BlobInfo:
    with translated(write=True):
        done = await blob.upload_blob(data, length=len(data), overwrite=True, metadata=metadata, **condition)
        return _written_info(name, done, len(data), metadata)


async def _upload_parts(
    blob: Any, name: str, parts: AsyncIterator[bytes], metadata: dict[str, str], condition: dict[str, Any]
) -> BlobInfo:
    first = await anext(parts, b"")
    if len(first) < BLOCK_BYTES:
        return await _upload(blob, name, first, metadata, condition)
    unique, blocks, length, part = uuid4().hex, list[BlobBlock](), 0, first
    while part:
        block = f"{unique}{len(blocks):06d}"
        with translated(write=True):
            await blob.stage_block(block, part, length=len(part))
        blocks.append(BlobBlock(block_id=block))
        length += len(part)
        part = await anext(parts, b"")
    with translated(write=True):
        done = await blob.commit_block_list(blocks, metadata=metadata, **condition)
        return _written_info(name, done, length, metadata)


async def _split_blocks(data: bytes | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Split the data into parts of `BLOCK_BYTES`; the last one is smaller, and may be empty."""
    waiting = bytearray()
    if isinstance(data, bytes):
        for start in range(0, len(data), BLOCK_BYTES):
            yield data[start : start + BLOCK_BYTES]
        return
    async for piece in data:
        waiting += piece
        while len(waiting) >= BLOCK_BYTES:
            yield bytes(waiting[:BLOCK_BYTES])
            del waiting[:BLOCK_BYTES]
    yield bytes(waiting)


async def _append(blob: Any, name: str, data: bytes, position: int | None) -> BlobInfo:
    condition: dict[str, Any] = {} if position is None else {"appendpos_condition": position}
    with translated(write=True):
        done = await blob.append_block(data, length=len(data), **condition)
        length = int(done["blob_append_offset"]) + len(data)
        return _written_info(name, done, length, {})


async def _iterate_chunks(found: Any) -> AsyncIterator[bytes]:
    if found is None:
        return
    with translated(write=False):
        async for chunk in found.chunks():
            if chunk:
                yield bytes(chunk)


def _read_info(name: str, properties: Any, length: int) -> BlobInfo:
    return BlobInfo(
        name=name,
        etag=_quote_etag(properties.etag),
        length=length,
        metadata=dict(properties.metadata or {}),
        modified=_to_utc(properties.last_modified),
    )


def _written_info(name: str, done: Any, length: int, metadata: dict[str, str]) -> BlobInfo:
    """Return what is known of a blob after the service answered `done` to a write."""
    etag, modified = _quote_etag(done["etag"]), _to_utc(done["last_modified"])
    return BlobInfo(name=name, etag=etag, length=length, metadata=metadata, modified=modified)


def _quote_etag(etag: str) -> str:
    """Return an ETag with its quotes, which it lacks in a list."""
    return etag if etag.startswith(('"', "W/")) else f'"{etag}"'


def _to_utc(moment: dt.datetime) -> dt.datetime:
    return moment.astimezone(dt.UTC)
