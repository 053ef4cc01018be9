"""
The interface of a store of blobs.
"""

import datetime as dt
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import attrs

from .capabilities import Capabilities


@attrs.frozen(kw_only=True)
class BlobInfo:
    """
    What is known of a blob without reading it.

    Args:
        name: Its name in the container.
        etag: It changes with every write, and no earlier one ever returns.
        length: Its size in bytes.
        metadata: What was put with it. Names ignore case, and some stores return them in lower case.
        modified: When it was last written, in UTC, by the store's clock.
    """

    name: str
    etag: str
    length: int
    metadata: Mapping[str, str]
    modified: dt.datetime


@attrs.frozen
class BlobPage:
    """
    A page of blobs in the order of their names. `continuation` leads to the next page; None after the last one.
    """

    blobs: list[BlobInfo]
    continuation: str | None


@attrs.frozen
class BlobStream:
    """
    A blob, or a range of it, being read.

    Args:
        info: The blob that the bytes belong to; its `length` is that of the whole blob, not of the range.
        chunks: The bytes in order, in chunks whose size the store chooses.
    """

    info: BlobInfo
    chunks: AsyncIterator[bytes]


class BlobStore(Protocol):
    """
    Containers of blobs: bytes under names, written in full or appended to.

    Every method raises `tableorm.protocol.codes.Fault` and nothing else (besides `asyncio.CancelledError`, and what the
    caller's own iterable raises). The Fault is ContainerNotFound if there is no such container. A call that is
    cancelled happened in full or not at all.
    `db.blobs` raises an error of `tableorm.errors` in place of each Fault, with the same code.

    Source: Blob service REST.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do: `durable`, `exact_limits`."""
        ...

    async def create_container(self, container: str) -> None:
        """
        Create a container.

            await db.blobs.create_container("photos")

        Raises:
            Fault: ContainerAlreadyExists; ContainerBeingDeleted where a deleted container's name is not free at once.
        """
        ...

    async def delete_container(self, container: str) -> None:
        """Delete a container and its blobs."""
        ...

    async def list_containers(self, prefix: str = "") -> list[str]:
        """List the names of the containers that start with `prefix`, in order."""
        ...

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
        Write a blob in full and replace the one that had the name. It is durable when the call returns, and no reader
        sees it earlier.

            await db.blobs.put("photos", "ken.jpg", data)

        Args:
            container: Name of the container.
            name: Name of the blob, 1 to 1024 characters; `/` makes no folders.
            data: Its bytes. Given as an iterable, only a few of them are in memory at a time.
            if_none_match: Write only if there is no blob of that name.
            if_match: Write only if the blob has this ETag; "*" stands for any.
            metadata: Names (C# identifiers) and values (printable ASCII), 8 KiB at most.

        Raises:
            Fault: BlobAlreadyExists with `if_none_match`; ConditionNotMet with `if_match`, also if there is no blob.
        """
        ...

    async def append(
        self, container: str, name: str, data: bytes, *, create: bool = True, if_position: int | None = None
    ) -> BlobInfo:
        """
        Write at the end of a blob that was made by appending. The data is durable when the call returns.

            info = await db.blobs.append("logs", "today.log", line)

        Args:
            container: Name of the container.
            name: Name of the blob.
            data: 1 byte to 4 MiB. A blob takes 50,000 appends at most.
            create: Make the blob if there is none.
            if_position: Append only if the blob has this length; 0 if there must be no blob.

        Returns:
            The blob after the append; the data starts at `length - len(data)`.

        Raises:
            Fault: AppendPositionConditionNotMet; BlobNotFound without `create`; InvalidBlobType if the blob was `put`;
                BlockCountExceedsLimit.
        """
        ...

    async def info(self, container: str, name: str) -> BlobInfo:
        """Return what is known of a blob. Fault BlobNotFound."""
        ...

    def get(
        self, container: str, name: str, offset: int = 0, length: int | None = None
    ) -> AbstractAsyncContextManager[BlobStream]:
        """
        Read a blob in chunks: `async with store.get(...) as stream: async for chunk in stream.chunks: ...`.

        All chunks belong to the blob that `stream.info` describes. If it is replaced or deleted in the meantime, the
        stream continues with the old bytes, or ends with a Fault: ConditionNotMet or BlobNotFound.

        Args:
            container: Name of the container.
            name: Name of the blob.
            offset: The first byte wanted.
            length: How many bytes are wanted, at least 1; fewer come if the blob ends before. None for all.

        Raises:
            Fault: BlobNotFound; InvalidRange if `offset` is at the end or beyond (an empty blob may be read from 0).
        """
        ...

    async def read(self, container: str, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """
        Read at once, into memory, what `get` streams.

            data = await db.blobs.read("photos", "ken.jpg")
        """
        ...

    async def delete(self, container: str, name: str, *, if_match: str | None = None) -> None:
        """
        Delete a blob, with `if_match` only if it has this ETag. Fault BlobNotFound; ConditionNotMet.

            await db.blobs.delete("photos", "ken.jpg")
        """
        ...

    async def list_blobs(
        self, container: str, prefix: str = "", continuation: str | None = None, limit: int = 5000
    ) -> BlobPage:
        """
        List one page of at most `limit` (1 to 5000) blobs whose names start with `prefix`.

            page = await db.blobs.list_blobs("photos", prefix="2026/")

        Args:
            container: Name of the container.
            prefix: What the names start with.
            continuation: The one of the page before. It is opaque, and valid after a restart and while blobs come and
                go.
            limit: How many blobs a page has at most; it may have fewer, even none, while more still follow.
        """
        ...
