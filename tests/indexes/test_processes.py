"""
Processes that are killed at a write: before it is sent, while it is under way, and with others that go on.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.azurite import Azurite

_ROOT = Path(__file__).parents[2]


def killed(url: str, first: int, last: int, step: int = 1) -> list[dict[str, Any]]:
    """What was found after each."""
    command = [sys.executable, str(Path(__file__).with_name("child_office.py")), url, str(first), str(last), str(step)]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(lines: list[dict[str, Any]]) -> None:
    """Nothing was wrong, and those that were to be killed before a write were."""
    assert [line for line in lines if line["wrong"] != [[], []] or line["looked"] != 0] == []
    assert all(
        line["ended"] == signal.SIGKILL for line in lines if line["at"] != lines[-1]["at"] and not line["during"]
    )
    assert all(line["ended"] in (0, signal.SIGKILL) for line in lines)


def test_a_process_killed_at_any_write(tmp_path: Path) -> None:
    """The file holds all of a write or nothing of it, and who writes on meets nothing that is in the way."""
    # A process that is killed loses nothing that it has given to the kernel: a disk is not needed.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        lines = killed(f"local:{folder}/test.tables", 0, 100)
    check(lines)
    assert lines[-1]["ended"] == 0  # every write was reached
    assert len(lines) > 25


def test_a_process_killed_at_some_writes_to_azurite(azurite: Azurite) -> None:
    """The same on another store, at each kind of write."""
    lines = killed(azurite.connection_string, 4, 22, 6)
    check(lines)
    assert len(lines) == 3
