"""
Queues in a table against the shipped contract, on the tables of each backend.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tableorm.outbox.table_queue import TableQueueStore
from tableorm.stores import QueueStore
from tableorm.testing import MemoryStore, QueueStoreContract
from tableorm_azure import AzureBackend
from tests.azure.cosmos import URL, serve_cosmos
from tests.stores.on_backend import OnBackend
from tests.stores.passing_time import PassingTime
from tests.stores.test_azurite import OnAzurite


class TestMemory(PassingTime, QueueStoreContract):
    @pytest.fixture
    def store(self) -> QueueStore:
        return TableQueueStore(MemoryStore())


@pytest.mark.one_of(5, group="queues in tables")
class OnTables(OnBackend, PassingTime, QueueStoreContract):
    def store_of(self, backend: Any) -> QueueStore:
        return TableQueueStore(backend.tables)


class TestCosmosStub(OnTables):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[AzureBackend]:
        async with (
            serve_cosmos() as options,
            AzureBackend.from_url(URL, timeout=30.0, options=options) as backend,
        ):
            yield backend


class TestAzurite(OnTables, OnAzurite):
    pass
