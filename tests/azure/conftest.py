"""
A loopback server that answers as a test says, and the Azure backend on it.
"""

from collections.abc import AsyncIterator

import pytest

from tests.azure.stub import Stub


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    """Listens; its `answers` are given in order, the last one for ever."""
    async with Stub() as server:
        yield server
