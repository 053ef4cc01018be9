"""
The contract against the store in plain dictionaries, so that neither rests on the engine; with an order and without.
"""

import random

import attrs
import pytest

from tableorm.stores import Capabilities, RowPage, RowQuery, StoreLayer, TableStore
from tableorm.testing import MemoryStore, TableStoreContract


class TestMemoryStore(TableStoreContract):
    @pytest.fixture
    def store(self) -> TableStore:
        return MemoryStore()


class Unordered(StoreLayer):
    """A store that returns the rows of a page in another order each time."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self._random = random.Random(1)

    @property
    def capabilities(self) -> Capabilities:
        return attrs.evolve(self.below.capabilities, ordered=False)

    async def query(self, table: str, query: RowQuery, limit: int = 1000, continuation: str | None = None) -> RowPage:
        page = await super().query(table, query, limit, continuation)
        return RowPage(self._random.sample(page.rows, len(page.rows)), page.continuation)


class TestUnorderedStore(TableStoreContract):
    @pytest.fixture
    def store(self) -> TableStore:
        return Unordered()
