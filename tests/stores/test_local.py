"""
The embedded engine against the shipped contract: in a file, and in memory.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tableorm.stores import BlobStore, QueueStore, TableStore
from tableorm.testing import BlobStoreContract, QueueStoreContract, TableStoreContract
from tableorm_local import LocalBackend
from tests.stores.on_backend import OnBackend
from tests.stores.passing_time import PassingTime


class OnFile(OnBackend):
    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[LocalBackend]:
        async with LocalBackend(tmp_path / "data") as backend:
            yield backend


class TestTablesInFile(OnFile, TableStoreContract):
    kind = "tables"


class TestQueuesInFile(OnFile, PassingTime, QueueStoreContract):
    kind = "queues"


class TestBlobsInFile(OnFile, BlobStoreContract):
    kind = "blobs"


@pytest.fixture
async def memory() -> AsyncIterator[LocalBackend]:
    async with LocalBackend(None) as backend:
        yield backend


@pytest.mark.one_of(7, group="tables in memory")
class TestTablesInMemory(TableStoreContract):
    @pytest.fixture
    def store(self, memory: LocalBackend) -> TableStore:
        return memory.tables


@pytest.mark.one_of(3, group="queues in memory")
class TestQueuesInMemory(PassingTime, QueueStoreContract):
    @pytest.fixture
    def store(self, memory: LocalBackend) -> QueueStore:
        return memory.queues


@pytest.mark.one_of(3, group="blobs in memory")
class TestBlobsInMemory(BlobStoreContract):
    @pytest.fixture
    def store(self, memory: LocalBackend) -> BlobStore:
        return memory.blobs
