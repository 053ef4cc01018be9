"""
Processes that are killed at a write: before it is sent, while it is under way, and with others that go on.
"""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tableorm import connect
from tests.azurite import Azurite
from tests.children import environment
from tests.torture import Rounds, seeds


def killed(url: str, moments: int, first: int = 0, step: int = 1) -> list[dict[str, Any]]:
    """What was found after each."""
    child = Path(__file__).with_name("child_club.py")
    command = [sys.executable, *map(str, (child, url, moments, first, step))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(lines: list[dict[str, Any]]) -> None:
    """Nothing was wrong, and the program was killed at moments of its writes, each in turn, up to one it has not."""
    assert [line for line in lines if line["wrong"] != [[], []] or line["looked"] != 0] == []
    *deaths, last = lines
    assert {line["ended"] for line in deaths} == {signal.SIGKILL}
    assert (last["ended"], last["asked"]) == (0, None)  # every write was reached
    moments = ["before", "during", "after"]
    assert [line["moment"] for line in deaths] == [moments[number % 3] for number in range(len(deaths))]


def asked(lines: list[dict[str, Any]]) -> set[str]:
    """What the requests did at which it was killed."""
    return {each for line in lines for each in line["asked"] or ()}


EVERYTHING = {
    *("insert Player", "merge player", "replace Player", "delete player"),
    *("insert Player#by_nick", "insert-or-replace Player#by_nick", "delete nick"),
    *("insert Player#by_rank", "delete rank"),
    *("insert Player#by_name", "replace Player#by_name", "insert Player#by_points", "replace Player#by_points"),
    *("merge squad", "replace Squad", "insert Total", "merge total"),
    *("insert Note", "delete note", "insert #_feed", "replace #_feed", "insert #_change"),
}
"""
The program has writes of every sort that there are for these models: a copy, a list, a count, copies held, and a change
that is noted.
"""

DIVISION = ["replace Player#by_name", "insert Player#by_name", "insert Player#by_name"]


@pytest.mark.one_of(6, group="killed")
def test_a_process_killed_at_any_write(tmp_path: Path, rounds: Rounds) -> None:
    """
    The file holds all of a write or nothing of it, and who writes on meets nothing that is in the way; at length it is
    killed before, during and after each write, and otherwise in one of these moments.
    """
    lines = killed(f"local:{tmp_path}/test.tables", rounds(1, 3))
    check(lines)
    assert asked(lines) == EVERYTHING
    assert DIVISION in [line["asked"] for line in lines]


@pytest.mark.one_of(9, group="elsewhere")
@seeds(1, 3)
def test_a_process_killed_at_any_write_to_azurite(azurite: Azurite, seed: int, rounds: Rounds) -> None:
    """The same on another store; three tests at length reach every write, the short one reaches one of twelve."""
    check(killed(azurite.connection_string, 3, first=seed, step=rounds(12, 3)))

    async def drop() -> None:
        # The emulator outlives the test, and the next one begins with nothing.
        async with connect(azurite.connection_string) as db:
            await db.drop_table("Club")

    asyncio.run(drop())
