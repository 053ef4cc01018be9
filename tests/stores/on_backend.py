"""
Fixtures of a contract's subclass whose stores are those of a backend.
"""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Literal

import pytest


class OnBackend:
    """A part of a contract's subclass, which gives the fixture `backend` and says which of its stores is meant."""

    kind: ClassVar[Literal["tables", "queues", "blobs"]]

    def store_of(self, backend: Any) -> Any:
        return getattr(backend, self.kind)

    @pytest.fixture
    def store(self, backend: Any) -> Any:
        return self.store_of(backend)

    @pytest.fixture
    def reopen(self, backend: Any) -> Callable[[], Awaitable[Any]]:
        async def reopen() -> Any:
            await backend.close()
            await backend.open()
            return self.store_of(backend)

        return reopen
