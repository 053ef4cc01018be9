"""
The Azure backend against the shipped contract, on our own server: two that were written apart agree in full.
"""

from collections.abc import AsyncIterator

import pytest

from tableorm.testing import TableStoreContract
from tableorm_azure import AzureBackend
from tableorm_local import Account, serve
from tests.azurite import KEY
from tests.stores.on_backend import OnBackend


@pytest.mark.one_of(8, group="tables on Azure")
class TestAzureBackendOnServer(OnBackend, TableStoreContract):
    kind = "tables"

    @pytest.fixture
    async def backend(self) -> AsyncIterator[AzureBackend]:
        # Not the development account, which the backend takes for an emulator with faults of its own.
        async with (
            serve(None, port=0, accounts=[Account(name="contoso", keys=(KEY,))]) as server,
            AzureBackend.from_url(server.url, timeout=30.0, options={"key": KEY}) as backend,
        ):
            yield backend
