"""
Tests that wait for what never comes.
"""

import asyncio

import pytest

from tests.waiting import limit


async def test_waiting_has_an_end() -> None:
    """A test that waits for ever fails when its time is over."""

    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await limit(wait_for_ever, 0.01)()


@pytest.mark.limit(0.01)
@pytest.mark.xfail(raises=TimeoutError, reason="its time is over")
async def test_waiting_has_an_end_of_its_own() -> None:
    """The mark `limit` says how many seconds a test, or each test of a module, may take."""
    await asyncio.Event().wait()
