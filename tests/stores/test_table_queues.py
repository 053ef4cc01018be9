"""
Queues in a table against the shipped contract, on the tables of each backend.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tableorm.outbox.table_queue import TableQueueStore
from tableorm.stores import QueueStore
from tableorm.testing import MemoryStore, QueueStoreContract, ReopenQueues
from tableorm_azure import AzureBackend
from tableorm_local import Account, LocalBackend, serve
from tests.azure.cosmos import URL, CosmosStub
from tests.azure.stub import Stub
from tests.azurite import KEY, Azurite
from tests.stores.passing_time import PassingTime


class TestMemory(PassingTime, QueueStoreContract):
    @pytest.fixture
    def store(self) -> QueueStore:
        return TableQueueStore(MemoryStore())


@pytest.mark.one_of(5, group="queues in tables")
class TestFile(PassingTime, QueueStoreContract):
    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[LocalBackend]:
        async with LocalBackend(tmp_path / "data") as backend:
            yield backend

    @pytest.fixture
    def store(self, backend: LocalBackend) -> QueueStore:
        return TableQueueStore(backend.tables)

    @pytest.fixture
    def reopen(self, backend: LocalBackend) -> ReopenQueues:
        async def reopen() -> QueueStore:
            await backend.close()
            await backend.open()
            return TableQueueStore(backend.tables)

        return reopen


@pytest.mark.one_of(5, group="queues in tables")
class AzureQueuesContract(PassingTime, QueueStoreContract):
    """A subclass gives the fixture `backend`."""

    @pytest.fixture
    def store(self, backend: AzureBackend) -> QueueStore:
        return TableQueueStore(backend.tables)

    @pytest.fixture
    def reopen(self, backend: AzureBackend) -> ReopenQueues:
        async def reopen() -> QueueStore:
            await backend.close()
            await backend.open()
            return TableQueueStore(backend.tables)

        return reopen


class TestServer(AzureQueuesContract):
    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[AzureBackend]:
        async with (
            serve(tmp_path / "served.tables", port=0, accounts=[Account(name="contoso", keys=(KEY,))]) as server,
            AzureBackend.from_url(server.url, timeout=30.0, options={"key": KEY}) as backend,
        ):
            yield backend


class TestCosmosStub(AzureQueuesContract):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[AzureBackend]:
        async with Stub() as stub:
            stub.handler = CosmosStub().answer
            options = {"key": KEY, "proxies": {"http": f"http://127.0.0.1:{stub.port}"}}
            async with AzureBackend.from_url(URL, timeout=30.0, options=options) as backend:
                yield backend


class TestAzurite(AzureQueuesContract):
    @pytest.fixture
    async def backend(self, azurite: Azurite) -> AsyncIterator[AzureBackend]:
        async with AzureBackend.from_url(azurite.connection_string, timeout=30.0, options={}) as backend:
            yield backend
