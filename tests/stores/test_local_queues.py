"""
The embedded engine's queues against the shipped contract: in a file, and in memory.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tableorm.stores import QueueStore
from tableorm.testing import QueueStoreContract, ReopenQueues
from tableorm_local import LocalBackend
from tests.stores.passing_time import PassingTime


class TestFile(PassingTime, QueueStoreContract):
    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[LocalBackend]:
        async with LocalBackend(tmp_path / "data") as backend:
            yield backend

    @pytest.fixture
    def store(self, backend: LocalBackend) -> QueueStore:
        return backend.queues

    @pytest.fixture
    def reopen(self, backend: LocalBackend) -> ReopenQueues:
        async def reopen() -> QueueStore:
            await backend.close()
            await backend.open()
            return backend.queues

        return reopen


@pytest.mark.one_of(3, group="queues in memory")
class TestMemory(PassingTime, QueueStoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[QueueStore]:
        async with LocalBackend(None) as backend:
            yield backend.queues
