"""
A limit for tests that wait: one that waits for what never comes fails, and shows where it waited.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

_SECONDS = 60


def limit(test: Callable[..., Coroutine[Any, Any, None]], seconds: float) -> Callable[..., Coroutine[Any, Any, None]]:
    """Return the test, which raises TimeoutError where it waits when the time is over."""

    @functools.wraps(test)
    async def limited(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(seconds):
            await test(*args, **kwargs)

    return limited


def limit_all(items: Iterable[pytest.Item]) -> None:
    """
    Limit tests that wait, except those that explore at length: to the seconds of the mark `limit`, or many times what
    they take on a busy machine.
    """
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and inspect.iscoroutinefunction(item.obj)
            and not item.get_closest_marker("torture")
        ):
            mark = item.get_closest_marker("limit")
            item.obj = limit(item.obj, _SECONDS if mark is None else mark.args[0])
