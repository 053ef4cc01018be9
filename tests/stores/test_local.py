"""
The embedded engine against the shipped contract: in a file, and in memory.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tableorm.stores import TableStore
from tableorm.testing import Reopen, TableStoreContract
from tableorm_local import LocalBackend


class TestFile(TableStoreContract):
    @pytest.fixture
    async def backend(self, tmp_path: Path) -> AsyncIterator[LocalBackend]:
        async with LocalBackend(tmp_path / "data") as backend:
            yield backend

    @pytest.fixture
    def store(self, backend: LocalBackend) -> TableStore:
        return backend.tables

    @pytest.fixture
    def reopen(self, backend: LocalBackend) -> Reopen:
        async def reopen() -> TableStore:
            await backend.close()
            await backend.open()
            return backend.tables

        return reopen


@pytest.mark.one_of(7, group="tables in memory")
class TestMemory(TableStoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[TableStore]:
        async with LocalBackend(None) as backend:
            yield backend.tables
