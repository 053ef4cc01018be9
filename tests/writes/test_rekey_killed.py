"""
Processes that are killed in the steps of a re-key.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.children import environment
from tests.torture import Rounds

MOVED = {"texts": {"1": "t", "2": "t"}, "kinds": ["New", "New#by_text"]}
OUTCOMES = {
    "move": [MOVED],
    "modify": [MOVED, {**MOVED, "texts": {"1": "new", "2": "t"}}],
    "delete": [MOVED, {**MOVED, "texts": {"2": "t"}}],
    "insert": [MOVED, {**MOVED, "texts": {"1": "t", "2": "t", "3": "new"}}],
    "back": [{"texts": {"1": "t", "2": "new"}, "kinds": ["Old", "Old#by_text"]}],
    "finalize": [{"texts": {"1": "t", "2": "new"}, "kinds": ["New", "New#by_text"]}],
}
"""What may be there in the end of each."""


def test_processes_that_are_killed(tmp_path: Path, rounds: Rounds) -> None:
    """After any request another process finishes the re-key: each entity is there once, and the write or none of it."""
    command = [sys.executable, str(Path(__file__).with_name("child_rekey.py")), str(tmp_path), str(rounds(8, 0))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment(), check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]

    assert len(found) >= 8
    assert [each for each in found if each[2] not in OUTCOMES[each[0]]] == []
