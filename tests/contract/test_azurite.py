"""
The Azure backend against the shipped contract, on Azurite.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm.stores import TableStore
from tableorm.testing import Reopen, TableStoreContract
from tableorm_azure import AzureBackend
from tests.azurite import KEY, Azurite


class TestAzurite(TableStoreContract):
    @pytest.fixture
    async def backend(self, azurite: Azurite) -> AsyncIterator[AzureBackend]:
        async with AzureBackend.from_url(azurite.table, timeout=30.0, options={"key": KEY}) as backend:
            yield backend

    @pytest.fixture
    def store(self, backend: AzureBackend) -> TableStore:
        return backend.tables

    @pytest.fixture
    def reopen(self, backend: AzureBackend) -> Reopen:
        async def reopen() -> TableStore:
            await backend.close()
            await backend.open()
            return backend.tables

        return reopen
