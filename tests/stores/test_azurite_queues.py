"""
The Azure backend's queues against the shipped contract, on Azurite.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm.stores import QueueStore
from tableorm.testing import QueueStoreContract, ReopenQueues
from tableorm_azure import AzureBackend
from tests.azurite import Azurite


@pytest.mark.one_of(3)
class TestAzurite(QueueStoreContract):
    @pytest.fixture
    async def backend(self, azurite: Azurite) -> AsyncIterator[AzureBackend]:
        async with AzureBackend.from_url(azurite.connection_string, timeout=30.0, options={}) as backend:
            yield backend

    @pytest.fixture
    def store(self, backend: AzureBackend) -> QueueStore:
        assert backend.queues is not None
        return backend.queues

    @pytest.fixture
    def reopen(self, backend: AzureBackend) -> ReopenQueues:
        async def reopen() -> QueueStore:
            await backend.close()
            await backend.open()
            assert backend.queues is not None
            return backend.queues

        return reopen
