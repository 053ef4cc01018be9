"""
The embedded engine's blobs against the shipped contract: in a file, and in memory.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tableorm.stores import BlobStore
from tableorm.testing import BlobStoreContract, ReopenBlobs
from tableorm_local import LocalBackend


class TestFile(BlobStoreContract):
    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[LocalBackend]:
        async with LocalBackend(tmp_path / "data") as backend:
            yield backend

    @pytest.fixture
    def store(self, backend: LocalBackend) -> BlobStore:
        return backend.blobs

    @pytest.fixture
    def reopen(self, backend: LocalBackend) -> ReopenBlobs:
        async def reopen() -> BlobStore:
            await backend.close()
            await backend.open()
            return backend.blobs

        return reopen


@pytest.mark.one_of(3, group="blobs in memory")
class TestMemory(BlobStoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[BlobStore]:
        async with LocalBackend(None) as backend:
            yield backend.blobs
