"""
What every part of the blob contract uses: the fixtures that a backend overrides, and data to store.
"""

import random
from collections.abc import AsyncIterator

import pytest

from ...protocol.limits import MAX_BLOB_NAME
from ...stores import BlobInfo, BlobStore
from .base import new_dns_name

# Larger than any chunk of a store, and not a multiple of one.
LARGE = random.Random(0).randbytes(5_000_001)
NAMES = ["x", "a/b/c", "größe 😀.txt", "%41+&=?#'\"<>;:@", "back\\slash", "UPPER", "upper", "z" * MAX_BLOB_NAME]


async def pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    """Yield the data in pieces of `size` bytes, and then an empty piece."""
    for at in range(0, len(data), size):
        yield data[at : at + size]
    yield b""


async def ranges_of(store: BlobStore, container: str, name: str, *ranges: tuple[int, int | None]) -> list[bytes]:
    """Read each range, given as (offset, length)."""
    return [await store.read(container, name, offset, length) for offset, length in ranges]


async def listed(store: BlobStore, container: str, prefix: str = "", limit: int = 5000) -> list[BlobInfo]:
    """List the blobs of all pages."""
    found: list[BlobInfo] = []
    continuation: str | None = None
    while True:
        page = await store.list_blobs(container, prefix, continuation, limit)
        assert len(page.blobs) <= limit
        found += page.blobs
        continuation = page.continuation
        if continuation is None:
            return found


class BlobTests:
    """
    The base of all parts of the contract. A backend overrides the fixture `store`.
    """

    @pytest.fixture
    def store(self) -> BlobStore:
        """An open store. Tests make containers of their own and remove them: it may be shared and need not be empty."""
        raise NotImplementedError(f"{type(self).__name__} must override the fixture `store`")

    @pytest.fixture
    async def container(self, store: BlobStore) -> AsyncIterator[str]:
        """The name of a new, empty container."""
        name = new_dns_name()
        await store.create_container(name)
        yield name
        await store.delete_container(name)
