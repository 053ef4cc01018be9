"""
How long the tests explore: a short slice, which is the same in each run, or at length.

Some tests find more the longer they run: random programs, processes that are killed, writers that race. `make test`
gives each of them a slice of a few rounds with fixed seeds; `make torture` runs these tests alone, and at length, where
hypothesis makes new examples in each run.

A test of hypothesis needs nothing for it: the profile says how many examples there are, so it has no `settings` of its
own, except to suppress a health check; only if each of its examples takes long it has the decorator `examples`. Any
other test takes the fixture `rounds` or is parametrized by `seeds`:

    async def test_killed_writers(path: Path, rounds: Rounds) -> None:
        for run in range(rounds(3, 100)): ...

    @seeds(3, 100)
    async def test_a_network_that_fails(seed: int) -> None: ...

Where the cases of a test are a product of lists, `every` takes a part of them, in which each pair still comes up; and
`on_stores` repeats only some of the cases on each store. A test of cases that take long each has the mark
`one_of(count)`; tests that belong together, such as those that do the same in several processes on another store, have
it with a `group`. Where a fixture goes through the stores, one of several tests is run on the emulator too.
`make torture` runs all of these cases, and `make test` the same ones in each run.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import hypothesis
import pytest

Rounds = Callable[[int, int], int]
"""The type of the fixture `rounds`: `rounds(few, many)` is `few` in `make test` and `many` in `make torture`."""

_TORTURE = os.environ.get("TORTURE") == "true"

_ONE_OF_AZURITE = 20
"""Of so many tests that a fixture runs on the emulator too, one is in `make test`."""


def choose_rounds(few: int, many: int) -> int:
    """Return how many rounds a test does in this run."""
    return many if _TORTURE else few


def seeds(few: int, many: int) -> pytest.MarkDecorator:
    """Return the decorator that runs a test with each `seed` of 0, 1, 2, ...; few of them or many."""
    return pytest.mark.parametrize("seed", [_param(seed) for seed in range(choose_rounds(few, many))])


def examples(few: int, many: int) -> hypothesis.settings:
    """Return the decorator of a test of hypothesis whose examples take long: few of them or many, not as usual."""
    return hypothesis.settings(max_examples=choose_rounds(few, many))


def every(step: int, cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """
    Return the arguments of every case in `make torture`, and of the first of every `step` cases in `make test`.

    Args:
        step: It has no divisor in common with the sizes of the lists that are multiplied, so that pairs come up.
        cases: Arguments of the test, for `pytest.mark.parametrize`.
    """
    return [_param(*case) for number, case in enumerate(cases) if number % choose_rounds(step, 1) == 0]


def on_stores(argument: str, cases: Iterable[Any], name: Callable[[Any], str]) -> pytest.MarkDecorator:
    """
    Return the decorator that runs a test with every case in memory, and with one of nine in a file and on Azurite.

    In `make torture` it runs every case on all three. The test takes the fixture `db`.

    Args:
        argument: The test's parameter that gets the case.
        cases: What it gets.
        name: Says what the case is called.
    """
    chosen = [
        _param(store, case, id=f"{store}-{name(case)}")
        for number, case in enumerate(cases)
        for store, turn in (("memory", number), ("file", 0), ("azurite", 4))
        if (number - turn) % choose_rounds(9, 1) == 0
    ]
    return pytest.mark.parametrize(("db", argument), chosen, indirect=["db"])


def _param(*values: Any, id: str | None = None) -> Any:  # noqa: A002 - as pytest calls it
    return pytest.param(*values, marks=pytest.mark.torture, id=id)


def choose_cases(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Mark the cases of which `make test` runs a part, and return those that are left out of this run."""
    seen, left = Counter[object](), list[pytest.Item]()
    for item in items:
        mark = item.get_closest_marker("one_of")
        if mark is not None:
            group, count = mark.kwargs.get("group", item.nodeid.partition("[")[0]), mark.args[0]
        elif isinstance(item, pytest.Function) and _runs_on_azurite(item):
            group, count = "azurite", _ONE_OF_AZURITE
        else:
            continue
        item.add_marker(pytest.mark.torture)
        if seen[group] % choose_rounds(count, 1):
            left.append(item)
        seen[group] += 1
    return left


def _runs_on_azurite(item: pytest.Function) -> bool:
    cases = item.callspec.params if hasattr(item, "callspec") else {}
    return "azurite" in cases.values() and not item.get_closest_marker("torture")


def load_profile() -> None:
    """Tell hypothesis how long to explore; on a loaded machine any example may be slow, so there is no deadline."""
    settings = hypothesis.settings
    settings.register_profile("slice", deadline=None, derandomize=True, max_examples=10, stateful_step_count=20)
    settings.register_profile("torture", deadline=None, print_blob=True, max_examples=1500, stateful_step_count=50)
    settings.load_profile("torture" if _TORTURE else "slice")
