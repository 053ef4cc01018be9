"""
Flights get other keys while processes are killed; what is stored in the end is compared row by row.
"""

from pathlib import Path

import pytest

from benchmarks.flights import ALL
from tests.azurite import Azurite
from tests.migrations.test_runs_killed import run_program
from tests.torture import Rounds


@pytest.mark.one_of(3, group="long runs")
def test_rekey_beside_a_writer(tmp_path: Path, rounds: Rounds) -> None:
    """
    Two processes move flights, and five of them are killed, while a writer inserts, changes and deletes flights through
    the newer model, also while the re-key is sealed and finalized. In the end each flight is stored once under its
    newer key, as the writer has left it, and nothing is left at the older keys.
    """
    (found,) = run_program("live_rekeys.py", f"local:{tmp_path}/test.tables", rounds(600, ALL))

    assert found["problems"] == []
    assert found["killed"] == 5
    assert found["written"] > 0


@pytest.mark.one_of(9, group="elsewhere")
def test_rekey_beside_a_writer_on_azurite(azurite: Azurite, rounds: Rounds) -> None:
    """The same on another store."""
    (found,) = run_program("live_rekeys.py", azurite.connection_string, rounds(60, 2_000))

    assert found["problems"] == []
