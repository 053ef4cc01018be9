"""
The interface of a store of blobs.
"""

import datetime as dt
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import attrs

from .capabilities import Capabilities

__all__ = ["BlobInfo", "BlobPage", "BlobStore", "BlobStream"]


@attrs.frozen
class BlobInfo:
    """
    What is known of a blob without reading it.

    Args:
        name: Its name in the container.
        etag: Another after every write, and never one that was.
        length: Bytes.
        metadata: As it was put. Names ignore case, and some stores return them in lower case.
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
    Blobs in the order of their names, and where to go on: None after the last page.
    """

    blobs: list[BlobInfo]
    continuation: str | None


@attrs.frozen
class BlobStream:
    """
    A blob, or a range of it, being read.

    Args:
        info: The blob of which the bytes are, in full; `length` is the blob's, not the range's.
        chunks: The bytes in order, in chunks of the store's choice.
    """

    info: BlobInfo
    chunks: AsyncIterator[bytes]


class BlobStore(Protocol):
    """
    Containers of blobs: bytes under names, written in full or appended to.

    Every method raises `tableorm.protocol.codes.Fault` and nothing else (besides `asyncio.CancelledError`, and what the
    caller's own iterable raises); ContainerNotFound if there is no such container. A call that is cancelled happened in
    full or not at all.

    Source: Blob service REST.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do: `durable`, `exact_limits`."""
        ...

    async def create_container(self, container: str) -> None:
        """
        Create a container. Fault ContainerAlreadyExists; ContainerBeingDeleted, where a name is not free at once.
        """
        ...

    async def delete_container(self, container: str) -> None:
        """Delete a container and its blobs."""
        ...

    async def list_containers(self, prefix: str = "") -> list[str]:
        """Names of the containers that start with `prefix`, in order."""
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
        Write a blob in full, in place of what had the name. Durable when it returns, and not seen before.

        Args:
            container: Name of the container.
            name: Name of the blob, 1 to 1024 characters; `/` makes no folders.
            data: Its bytes; of an iterable, little is in memory at a time.
            if_none_match: Only if there is no blob of that name.
            if_match: Only if the blob has this ETag, or "*" for any.
            metadata: Names (C# identifiers) and values (printable ASCII), 8 KiB at most.

        Raises:
            Fault: BlobAlreadyExists under `if_none_match`; ConditionNotMet under `if_match`, also if there is no blob.
        """
        ...

    async def append(
        self, container: str, name: str, data: bytes, *, create: bool = True, if_position: int | None = None
    ) -> BlobInfo:
        """
        Write at the end of a blob that was made by appending. Durable when it returns.

        Args:
            container: Name of the container.
            name: Name of the blob.
            data: 1 byte to 4 MiB; 50,000 appends at most.
            create: Make the blob if there is none.
            if_position: Only if the blob has this length; 0 if there is none.

        Returns:
            The blob after it; the data starts at `length - len(data)`.

        Raises:
            Fault: AppendPositionConditionNotMet; BlobNotFound without `create`; InvalidBlobType if the blob was `put`;
                BlockCountExceedsLimit.
        """
        ...

    async def info(self, container: str, name: str) -> BlobInfo:
        """What is known of a blob. Fault BlobNotFound."""
        ...

    def get(
        self, container: str, name: str, offset: int = 0, length: int | None = None
    ) -> AbstractAsyncContextManager[BlobStream]:
        """
        Read a blob in chunks: `async with store.get(...) as stream: async for chunk in stream.chunks: ...`.

        All chunks are of the blob that `stream.info` describes. If it is replaced or deleted meanwhile, they go on with
        what it was, or end with a Fault: ConditionNotMet or BlobNotFound.

        Args:
            container: Name of the container.
            name: Name of the blob.
            offset: The first byte wanted.
            length: Bytes wanted, at least 1; fewer come if the blob ends before. None for all.

        Raises:
            Fault: BlobNotFound; InvalidRange if `offset` is at the end or beyond (0 is good for an empty blob).
        """
        ...

    async def read(self, container: str, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """All of what `get` streams, at once in memory."""
        ...

    async def delete(self, container: str, name: str, *, if_match: str | None = None) -> None:
        """Delete a blob, if it has this ETag. Fault BlobNotFound; ConditionNotMet."""
        ...

    async def list_blobs(
        self, container: str, prefix: str = "", continuation: str | None = None, limit: int = 5000
    ) -> BlobPage:
        """
        One page of at most `limit` (1 to 5000) blobs whose names start with `prefix`.

        Args:
            container: Name of the container.
            prefix: What names start with.
            continuation: Of the page before; opaque, valid after a restart and while blobs come and go.
            limit: Blobs at most; fewer, even none, may come and more still follow.
        """
        ...
