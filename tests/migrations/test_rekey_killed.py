"""
Flights get other keys while processes are killed; what is stored in the end is compared row by row.
"""

from pathlib import Path

from benchmarks.flights import ALL
from tests.azurite import Azurite
from tests.migrations.test_runs_killed import run_program
from tests.torture import Rounds


def test_rekey_of_killed_processes(tmp_path: Path, rounds: Rounds) -> None:
    """
    Two processes copy, verify and finalize a re-key, and five of them are killed. In the end each flight is stored once
    under its newer key, with all that it had, and nothing is left at the older keys.
    """
    (found,) = run_program("killed_rekeys.py", f"local:{tmp_path}/test.tables", rounds(1_000, ALL))

    assert found["problems"] == []
    assert 0 < found["killed"] <= 5


def test_rekey_of_killed_processes_on_azurite(azurite: Azurite, rounds: Rounds) -> None:
    """The same on another store."""
    (found,) = run_program("killed_rekeys.py", azurite.connection_string, rounds(300, 2_000))

    assert found["problems"] == []
