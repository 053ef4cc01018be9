"""
Time that passes without waiting, for stores that go by the clock of this process.
"""

import asyncio
import datetime as dt

import pytest

from tableorm.stores import CLOCK
from tableorm.testing import Wait


class PassingTime:
    """A part of a contract's subclass: it puts the clock forward where others wait."""

    @pytest.fixture
    def wait(self, stopped_clock: None) -> Wait:
        async def wait(seconds: float) -> None:
            CLOCK.advance(dt.timedelta(seconds=seconds))
            await asyncio.sleep(0)

        return wait
