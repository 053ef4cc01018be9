"""
A database for each test of writes: in a file, in memory, and on the emulator of Azure. No test waits for ever.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import pytest

from tests.database.conftest import db

__all__ = ["db"]

_SECONDS = 20.0
"""Far more than any test takes; a write that waits for what nobody does, such as to wake it, fails after this time."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let an asynchronous test end, and name the line that it waits in, instead of hanging."""
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.obj = _bounded(item.obj)


def _bounded(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(_SECONDS):
            await test(*args, **kwargs)

    return run
