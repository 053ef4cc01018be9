"""
The Azure backend against the shipped contract on an endpoint of Cosmos DB: a stub that shuffles, not the real one.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm.stores import RetryPolicy
from tableorm.testing import TableStoreContract
from tableorm_azure import AzureBackend
from tests.azure.cosmos import URL, serve_cosmos
from tests.stores.on_backend import OnBackend


@pytest.mark.one_of(8, group="tables on Azure")
class TestCosmosStub(OnBackend, TableStoreContract):
    kind = "tables"

    @pytest.fixture
    async def backend(self) -> AsyncIterator[AzureBackend]:
        async with serve_cosmos(throttle=7) as options:
            # Many callers at once can each meet the throttle several times in a row.
            patience = RetryPolicy(attempts=50, base=0.0)
            async with AzureBackend.from_url(URL, timeout=30.0, options={**options, "retry": patience}) as backend:
                yield backend
