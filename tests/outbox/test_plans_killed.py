"""
Processes that are killed while they follow a plan, and workers that are killed while they finish it.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.azurite import Azurite
from tests.children import run_program
from tests.outbox.plans import PLANS
from tests.torture import Rounds, choose_rounds

NAMES = [plan.name for plan in PLANS]


def killed(url: str, count: int, names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return of each run what has died, and what was wrong in the end."""
    return run_program(Path(__file__).with_name("child_plans.py"), url, count, *names)


SOME = pytest.param(NAMES[::3], id="some")


@pytest.mark.one_of(6, group="killed")
@pytest.mark.parametrize("names", [SOME] if choose_rounds(1, 0) else [[name] for name in NAMES], ids="-".join)
def test_writers_and_workers_that_are_killed(tmp_path: Path, names: list[str], rounds: Rounds) -> None:
    """
    After each request of a writer, and each of a worker after it: another worker finishes what was committed, and of
    what was not there is nothing. Without torture these are 4 deaths of every third plan.
    """
    found = killed(f"local:{tmp_path}/test.tables", rounds(4, 0), names)

    assert len(found) == 4 or rounds(0, len(found)) > 4
    assert [each for each in found if each[1]] == []


@pytest.mark.one_of(9, group="elsewhere")
def test_writers_and_workers_that_are_killed_on_azurite(azurite: Azurite, rounds: Rounds) -> None:
    """The same on another store, whose queues are real ones."""
    count = rounds(2, 100)
    found = killed(azurite.connection_string, count, NAMES if rounds(0, 1) else ["insert", "welcome"])

    assert len(found) == count
    assert [each for each in found if each[1]] == []
