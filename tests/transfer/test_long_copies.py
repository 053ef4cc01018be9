"""
Long copies by the command: from a file to the emulator and back, killed again and again, in bounded memory.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import attrs
import pytest

from tableorm import Database
from tests.azurite import running_azurite
from tests.children import environment
from tests.commandline import in_database, run_command
from tests.torture import Rounds
from tests.transfer.test_blobs import TABLE, fill

MOST_KIB = 16 * 1024

COMMAND = """
import sys, time
from tableorm.cli import main, progress
from tableorm.jobs import scan
from tableorm_local.engine import files

files.__dict__["_CACHE_KIB"] = 1024  # or the memory of SQLite grows until its cache is full
progress.__dict__["_SECONDS"] = 0.0
page, is_killed = int(sys.argv.pop(1)), sys.argv.pop(1) == "killed"
scan.__dict__["MAX_PAGE"] = page
status = main()
if is_killed:
    time.sleep(600)
sys.exit(status)
"""
"""
The command, which shows its progress at each page, not once a second. Its pages have so many rows, and if it is to be
killed, it does not end before.
"""


@attrs.frozen
class Copying:
    """
    Copies all tables by a command that is killed on its way.

    Args:
        page: How many rows it reads at a time.
        kills: How often it is killed, when it has read about as many rows each time.
        total: How many rows there are.
    """

    page: int
    kills: int
    total: int

    def copy(self, source: str, target: str, *options: str) -> None:
        """Copy, and compare both sides."""
        for number in range(self.kills):
            until = self.total * (number + 1) // (self.kills + 1)
            self._run("copy", source, target, *options, until=until, seconds=number / 20)
        copied, compared = self._run("copy", source, target, *options, "--verify", "--json")
        assert (copied["failed"], copied["pending"]) == (0, 0)
        assert (compared["failed"], compared["equal"]) == (0, self.total)

    def _run(self, *arguments: str, until: int | None = None, seconds: float = 0.0) -> list[dict[str, int]]:
        """Return what a command prints; or kill it so many seconds after it has read so many rows."""
        how = "whole" if until is None else "killed"
        command = [sys.executable, "-c", COMMAND, str(self.page), how, *arguments]
        memory, lines = list[int](), list[str]()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            status = Path(f"/proc/{process.pid}/status")
            for line in process.stderr:
                lines.append(line)
                memory += [int(text) for text in status.read_text().partition("RssAnon:")[2].split()[:1]]
                rows = line.partition("] ")[2].split()[1:2]  # behind the bar and the share
                if until is not None and rows and int(rows[0].replace(",", "")) >= until:
                    time.sleep(seconds)
                    process.kill()
                    break
            output = process.stdout.read()
        assert process.returncode == (0 if until is None else -signal.SIGKILL), lines[-3:]
        # Once all code has run, it grows no longer, however many rows follow.
        assert max(memory) - memory[0] < 2 * MOST_KIB
        assert max(memory) - memory[len(memory) // 2] < MOST_KIB
        return [] if until is not None else [json.loads(line) for line in output.splitlines()]


def export(url: str, folder: Path) -> dict[str, bytes]:
    """Return what an export writes of each table, without what a shared run keeps in the target."""
    folder.mkdir()
    for name in in_database(url, Database.tables):
        others = "PartitionKey lt 'run ' or PartitionKey ge 'run!'"
        done = run_command("export", url, name, str(folder / f"{name}.jsonl"), "--where", others)
        assert done.returncode == 0, done.stderr
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="capability: /proc tells the memory of a process")
def test_copies_that_are_killed(tmp_path: Path, rounds: Rounds) -> None:
    """
    Entities with an index, a feed and blobs are copied to the emulator and back by commands that are killed, one with a
    name and one with a file of its state. Both ends are the same byte for byte, and no process takes much more memory
    than after its first page.
    """
    count = rounds(300, 100_000)
    first, last = f"local:{tmp_path}/first.tables", f"local:{tmp_path}/last.tables"
    in_database(first, lambda db: fill(db, count, every=20, albums=19))
    exported = export(first, tmp_path / "first")
    kinds = [exported[f"{TABLE}.jsonl"].count(kind) for kind in (b'"Photo"', b'"Photo#by_name"')]
    assert kinds == [count, count]
    total = sum(text.count(b"\n") for text in exported.values())
    copying = Copying(rounds(50, 1_000), rounds(1, 5), total)

    with running_azurite() as azurite:  # one of its own, since all tables are copied back
        copying.copy(first, azurite.connection_string, "--name", "nightly", "--lease", "1")
        copying.copy(azurite.connection_string, last, "--state", str(tmp_path / "state"))

    assert export(last, tmp_path / "last") == exported
