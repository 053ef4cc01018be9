"""
How long the tests explore: a short slice, the same in each run, or at length and anew each time.

Some tests find more the longer they run: random programs, processes that are killed, writers that race. `make test`
gives each of them a slice of a few rounds with fixed seeds; `make torture` runs these tests alone, and at length.

A test of hypothesis needs nothing for it: the profile says how many examples there are, so it has no `settings` of its
own, except to suppress a health check. Any other test takes the fixture `rounds` or is parametrized by `seeds`:

    async def test_killed_writers(path: Path, rounds: Rounds) -> None:
        for run in range(rounds(3, 100)): ...

    @seeds(3, 100)
    async def test_a_network_that_fails(seed: int) -> None: ...
"""

import os
from collections.abc import Callable

import hypothesis
import pytest

__all__ = ["TORTURE", "Rounds", "choose_rounds", "load_profile", "seeds"]

TORTURE = os.environ.get("TORTURE") == "true"
"""Whether this is `make torture`."""

Rounds = Callable[[int, int], int]
"""The type of the fixture `rounds`: `rounds(few, many)` is `few` in `make test` and `many` in `make torture`."""


def choose_rounds(few: int, many: int) -> int:
    """Return how many rounds a test does in this run."""
    return many if TORTURE else few


def seeds(few: int, many: int) -> pytest.MarkDecorator:
    """Return the decorator that runs a test with each `seed` of 0, 1, 2, ...; few of them or many."""
    return pytest.mark.parametrize(
        "seed", [pytest.param(n, marks=pytest.mark.torture) for n in range(choose_rounds(few, many))]
    )


def load_profile() -> None:
    """Tell hypothesis how long to explore; on a loaded machine any example may be slow, so there is no deadline."""
    settings = hypothesis.settings
    settings.register_profile("slice", deadline=None, derandomize=True, max_examples=60, stateful_step_count=25)
    settings.register_profile("torture", deadline=None, print_blob=True, max_examples=1500, stateful_step_count=50)
    settings.load_profile("torture" if TORTURE else "slice")
