"""
The Azure backend against the shipped contract, on Azurite.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm_azure import AzureBackend
from tests.azurite import KEY, Azurite
from tests.stores.azure import AzureContract


@pytest.mark.one_of(4)
class TestAzurite(AzureContract):
    @pytest.fixture
    async def backend(self, azurite: Azurite) -> AsyncIterator[AzureBackend]:
        async with AzureBackend.from_url(azurite.table, timeout=30.0, options={"key": KEY}) as backend:
            yield backend
