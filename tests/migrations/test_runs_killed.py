"""
Processes that share a run and are killed, while others write and read what it changes.
"""

import asyncio
from pathlib import Path

import pytest

from tests.azurite import Azurite
from tests.children import run_program
from tests.migrations.programs.kinds import RUNS
from tests.torture import Rounds
from tests.transfer.test_copy import served

__all__ = ["served"]

PROGRAMS = Path(__file__).with_name("programs")


def test_jobs_that_are_killed(tmp_path: Path, rounds: Rounds) -> None:
    """A process that does a job of any kind dies after any of its requests; others end the job, as if nobody had."""
    found = run_program(PROGRAMS / "killed_jobs.py", rounds(1, 0), tmp_path)

    assert {each[0] for each in found} == {run.__name__ for run in RUNS}
    assert sum(each[2] for each in found) > len(found) / 3
    assert [each for each in found if each[3]] == []


def kill_builders(url: str, count: int, folder: Path, seed: int) -> None:
    """Check that nothing is wrong after so many runs of builders of which some die; 0 for all."""
    found = run_program(PROGRAMS / "killed_builds.py", url, count, folder, seed)

    assert len(found) == (count or 340)
    assert [each for each in found if each[1]] == []


@pytest.mark.one_of(3, group="killed")
def test_builders_that_are_killed(tmp_path: Path, rounds: Rounds) -> None:
    """
    Two processes build one index, or one list, and die after any of their requests; the same call ends what they have
    begun. A reader is rejected, or finds each entity that a writer had confirmed; in the end an audit finds nothing.
    """
    kill_builders(f"local:{tmp_path}/test.tables", rounds(1, 0), tmp_path, 0)


@pytest.mark.one_of(9, group="elsewhere")
async def test_builders_that_are_killed_on_a_server(served: str, tmp_path: Path, rounds: Rounds) -> None:
    """The same through a server, whose clients share nothing but what it stores."""
    await asyncio.to_thread(kill_builders, served, rounds(1, 40), tmp_path, 1)


@pytest.mark.one_of(9, group="elsewhere")
def test_builders_that_are_killed_on_azurite(azurite: Azurite, tmp_path: Path, rounds: Rounds) -> None:
    """The same on another store."""
    kill_builders(azurite.connection_string, rounds(1, 40), tmp_path, 2)
