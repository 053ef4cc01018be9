"""
The contract against the store in plain dictionaries, so that neither rests on the engine.
"""

import pytest

from tableorm.stores import TableStore
from tableorm.testing import MemoryStore, TableStoreContract


class TestMemoryStore(TableStoreContract):
    @pytest.fixture
    def store(self) -> TableStore:
        return MemoryStore()
