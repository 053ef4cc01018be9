"""
The Azure backend against the shipped contract, on our own server: two that were written apart agree in full.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tableorm_azure import AzureBackend
from tableorm_local import Account, serve
from tests.azurite import KEY
from tests.stores.azure import AzureContract


class TestAzureBackendOnServer(AzureContract):
    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[AzureBackend]:
        # Not the development account, which the backend takes for an emulator with faults of its own.
        async with (
            serve(tmp_path / "served.tables", port=0, accounts=[Account(name="contoso", keys=(KEY,))]) as server,
            AzureBackend.from_url(server.url, timeout=30.0, options={"key": KEY}) as backend,
        ):
            yield backend
