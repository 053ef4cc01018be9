"""
Processes that share a run and are killed, while others write and read what it changes.
"""

import asyncio
from pathlib import Path

import pytest

from tableorm_local import Account, serve
from tests.azurite import KEY, Azurite
from tests.children import run_program
from tests.migrations.programs.kinds import RUNS
from tests.torture import Rounds

PROGRAMS = Path(__file__).with_name("programs")
BUILDS = PROGRAMS / "killed_builds.py"


def test_jobs_that_are_killed(tmp_path: Path, rounds: Rounds) -> None:
    """A process that does a job of any kind dies after any of its requests; others end the job, as if nobody had."""
    found = run_program(PROGRAMS / "killed_jobs.py", rounds(1, 0), tmp_path)

    assert {each[0] for each in found} == {run.__name__ for run in RUNS}
    assert sum(each[2] for each in found) > len(found) / 2
    assert [each for each in found if each[3]] == []


@pytest.mark.one_of(3, group="killed")
def test_builders_that_are_killed(tmp_path: Path, rounds: Rounds) -> None:
    """
    Two processes build one index, or one list, and die after any of their requests; the same call ends what they have
    begun. A reader is rejected, or finds each entity that a writer had confirmed; in the end an audit finds nothing.
    """
    found = run_program(BUILDS, f"local:{tmp_path}/test.tables", rounds(1, 0), tmp_path, "list")

    assert len(found) == 1 or rounds(0, len(found)) > 50
    assert [each for each in found if each[1]] == []


@pytest.mark.one_of(9, group="elsewhere")
async def test_builders_that_are_killed_on_a_server(tmp_path: Path, rounds: Rounds) -> None:
    """The same through a server, whose clients share nothing but what it stores."""
    async with serve(tmp_path / "test.tables", port=0, accounts=[Account(name="contoso", keys=(KEY,))]) as server:
        url = f"AccountName=contoso;AccountKey={KEY};TableEndpoint={server.url}"
        found = await asyncio.to_thread(run_program, BUILDS, url, rounds(1, 40), tmp_path)

    assert len(found) == rounds(1, 40)
    assert [each for each in found if each[1]] == []


@pytest.mark.one_of(9, group="elsewhere")
def test_builders_that_are_killed_on_azurite(azurite: Azurite, tmp_path: Path, rounds: Rounds) -> None:
    """The same on another store."""
    found = run_program(BUILDS, azurite.connection_string, rounds(1, 40), tmp_path)

    assert len(found) == rounds(1, 40)
    assert [each for each in found if each[1]] == []
