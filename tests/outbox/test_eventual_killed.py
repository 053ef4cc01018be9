"""
Processes that are killed while they write entities with eventual indexes.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tableorm import connect
from tests.azurite import Azurite
from tests.torture import Rounds, seeds

_ROOT = Path(__file__).parents[2]


def killed(url: str, first: int, step: int) -> list[Any]:
    """Return what was found after each death, and at last how the program ended when it was not killed."""
    command = [sys.executable, str(Path(__file__).with_name("child_staff.py")), url, str(first), str(step)]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@seeds(1, 1)
def test_a_writer_killed_after_any_request(tmp_path: Path, seed: int, rounds: Rounds) -> None:
    """What it has committed is carried out, and of what it has not committed there is nothing."""
    # A process that is killed loses nothing that it has given to the kernel: a disk is not needed.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        *found, ended = killed(f"local:{folder}/test.tables", first=1 + seed, step=rounds(13, 1))

    assert [each for each in found if each != [[], [], []]] == []
    assert len(found) > rounds(2, 40) and ended == 0


@seeds(1, 3)
def test_a_writer_killed_on_azurite(azurite: Azurite, seed: int, rounds: Rounds) -> None:
    """The same on another store, whose queues are real ones."""
    *found, ended = killed(azurite.connection_string, first=1 + seed, step=rounds(29, 3))

    assert [each for each in found if each != [[], [], []]] == []
    assert ended == 0

    async def drop() -> None:
        # The emulator outlives the test, and the next one begins with nothing.
        async with connect(azurite.connection_string) as db:
            for table in ("Crew", "Cities"):
                await db.drop_table(table)
            await db.queues.delete_queue("tableorm-outbox")

    asyncio.run(drop())
