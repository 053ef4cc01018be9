"""
Shared runs of tests that begin many of them: without pauses to speak of, and with few ranges.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from tableorm.jobs import process
from tableorm.jobs.plan import plan_ranges
from tableorm.jobs.ranges import JobRange
from tableorm_migrations.rekey import sides


async def _plan_few(*args: Any, **options: Any) -> list[JobRange]:
    """Return a few ranges, whatever is asked for."""
    return await plan_ranges(*args, **{**options, "most": 3})


@contextmanager
def quick_runs() -> Generator[None]:
    """Let shared runs make no pauses to speak of, and have few ranges."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sides, "plan_ranges", _plan_few)
        patch.setattr(sides, "_PAUSE", 0.0)
        patch.setattr(process, "_SHORTEST_PAUSE", 0.001)
        yield
