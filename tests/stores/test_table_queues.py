"""
Queues in a table against the shipped contract, on the tables of each backend.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tableorm.outbox.table_queue import TableQueueStore
from tableorm.stores import QueueStore
from tableorm.testing import MemoryStore, QueueStoreContract, ReopenQueues
from tableorm_azure import AzureBackend
from tests.azure.cosmos import URL, serve_cosmos
from tests.azurite import Azurite
from tests.stores.passing_time import PassingTime


class TestMemory(PassingTime, QueueStoreContract):
    @pytest.fixture
    def store(self) -> QueueStore:
        return TableQueueStore(MemoryStore())


@pytest.mark.one_of(5, group="queues in tables")
class OnTables(PassingTime, QueueStoreContract):
    """A subclass gives the fixture `backend`."""

    @pytest.fixture
    def store(self, backend: Any) -> QueueStore:
        return TableQueueStore(backend.tables)

    @pytest.fixture
    def reopen(self, backend: Any) -> ReopenQueues:
        async def reopen() -> QueueStore:
            await backend.close()
            await backend.open()
            return TableQueueStore(backend.tables)

        return reopen


class TestCosmosStub(OnTables):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[AzureBackend]:
        async with (
            serve_cosmos() as options,
            AzureBackend.from_url(URL, timeout=30.0, options=options) as backend,
        ):
            yield backend


class TestAzurite(OnTables):
    @pytest.fixture
    async def backend(self, azurite: Azurite) -> AsyncIterator[AzureBackend]:
        async with AzureBackend.from_url(azurite.connection_string, timeout=30.0, options={}) as backend:
            yield backend
