"""
The contract of tables on the Azure backend, wherever it is opened.
"""

import pytest

from tableorm.stores import TableStore
from tableorm.testing import Reopen, TableStoreContract
from tableorm_azure import AzureBackend

__all__ = ["AzureContract"]


class AzureContract(TableStoreContract):
    """A subclass gives the fixture `backend`."""

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
