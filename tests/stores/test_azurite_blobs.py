"""
The Azure backend's blobs against the shipped contract, on Azurite.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm.stores import BlobStore
from tableorm.testing import BlobStoreContract, ReopenBlobs
from tableorm_azure import AzureBackend
from tests.azurite import Azurite


@pytest.mark.one_of(2)
class TestAzurite(BlobStoreContract):
    @pytest.fixture
    async def backend(self, azurite: Azurite) -> AsyncIterator[AzureBackend]:
        async with AzureBackend.from_url(azurite.connection_string, timeout=30.0, options={}) as backend:
            yield backend

    @pytest.fixture
    def store(self, backend: AzureBackend) -> BlobStore:
        assert backend.blobs is not None
        return backend.blobs

    @pytest.fixture
    def reopen(self, backend: AzureBackend) -> ReopenBlobs:
        async def reopen() -> BlobStore:
            await backend.close()
            await backend.open()
            assert backend.blobs is not None
            return backend.blobs

        return reopen
