"""
The Azure backend against the shipped contract, on Azurite.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm.testing import BlobStoreContract, QueueStoreContract, TableStoreContract
from tableorm_azure import AzureBackend
from tests.azurite import KEY, Azurite
from tests.stores.on_backend import OnBackend


@pytest.mark.one_of(4)
class TestTables(OnBackend, TableStoreContract):
    kind = "tables"

    @pytest.fixture
    async def backend(self, azurite: Azurite) -> AsyncIterator[AzureBackend]:
        async with AzureBackend.from_url(azurite.table, timeout=30.0, options={"key": KEY}) as backend:
            yield backend


class OnAzurite(OnBackend):
    @pytest.fixture
    async def backend(self, azurite: Azurite) -> AsyncIterator[AzureBackend]:
        async with AzureBackend.from_url(azurite.connection_string, timeout=30.0, options={}) as backend:
            yield backend


@pytest.mark.one_of(3)
class TestQueues(OnAzurite, QueueStoreContract):
    kind = "queues"


@pytest.mark.one_of(2)
class TestBlobs(OnAzurite, BlobStoreContract):
    kind = "blobs"
