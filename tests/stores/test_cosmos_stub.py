"""
The Azure backend against the shipped contract on an endpoint of Cosmos DB: a stub that shuffles, not the real one.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm.stores import RetryPolicy
from tableorm.testing import TableStoreContract
from tableorm_azure import AzureBackend
from tests.azure.cosmos import URL, CosmosStub
from tests.azure.stub import KEY, Stub
from tests.stores.on_backend import OnBackend


@pytest.mark.one_of(8, group="tables on Azure")
class TestCosmosStub(OnBackend, TableStoreContract):
    kind = "tables"

    @pytest.fixture
    async def backend(self) -> AsyncIterator[AzureBackend]:
        async with Stub() as stub:
            stub.handler = CosmosStub(throttle=7).answer
            # Many callers at once can each meet the throttle several times in a row.
            patience = RetryPolicy(attempts=50, base=0.0)
            options = {"key": KEY, "proxies": {"http": f"http://127.0.0.1:{stub.port}"}, "retry": patience}
            async with AzureBackend.from_url(URL, timeout=30.0, options=options) as backend:
                yield backend
