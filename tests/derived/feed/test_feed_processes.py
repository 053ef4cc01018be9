"""
Writers and readers of a change feed that are killed, and go on: each reader sees each change once, in order.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tableorm import connect
from tests.children import environment
from tests.derived.feed.staff import Employee, changes_of
from tests.torture import Rounds

Process = subprocess.Popen[str]


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Starts a child with some arguments; all of them are killed at the end."""
    processes: list[Process] = []

    def begin(*arguments: object) -> Process:
        command = [sys.executable, str(Path(__file__).with_name("child_feed.py")), *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
        processes.append(process)
        return process

    yield begin
    for process in processes:
        kill(process)


def kill(process: Process) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def lines_of(path: Path) -> list[str]:
    text = path.read_text() if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def wait_for(path: Path, count: int) -> None:
    """Wait until a reader has noted so many changes."""
    end = time.monotonic() + 120
    while len(lines_of(path)) < count:
        assert time.monotonic() < end, f"{path.name} has {len(lines_of(path))} of {count} changes"
        time.sleep(0.02)


@pytest.mark.one_of(6, group="killed")
async def test_readers_that_are_killed_see_each_change_once(
    tmp_path: Path, start: Callable[..., Process], rounds: Rounds
) -> None:
    """At length eight writers and two readers, which are killed again and again, each at any moment."""
    writers, readers, kills, count = rounds(2, 8), rounds(1, 2), rounds(1, 12), rounds(25, 100)
    url, told = f"local:{tmp_path}/feed.tables", set[str]()
    async with connect(url) as db:
        await db.create_tables(Employee)
    files = [tmp_path / f"reader{number}.txt" for number in range(readers)]
    reading = [start("read", url, file) for file in files]
    writing = {first: start("write", url, first * 1000, count) for first in range(writers)}

    def hear(process: Process, lines: int | None = None) -> None:
        assert process.stdout is not None
        heard = list(process.stdout) if lines is None else [process.stdout.readline() for _ in range(lines)]
        told.update(line.strip() for line in heard if line.endswith("\n"))

    for turn in range(kills):
        victim = turn % writers
        hear(writing[victim], 5)
        kill(writing[victim])
        writing[victim] = start("write", url, victim * 1000, count)
        at = turn % readers
        wait_for(files[at], len(lines_of(files[at])) + 1)
        kill(reading[at])
        reading[at] = start("read", url, files[at])
    for process in writing.values():
        hear(process)
        assert process.wait() == 0

    async with connect(url) as db:
        found = await changes_of(db)
        audited = await db.audit(Employee)
    for file in files:
        wait_for(file, len(found))
        assert lines_of(file) == [f"{each.cursor} {each.entities[0].key.row_key}" for each in found]
    assert [change.number for change in found] == [*range(1, len(found) + 1)]
    ids = {int(each.entities[0].key.row_key.removeprefix("empid_")) for each in found}
    assert ids >= {int(each) for each in told}
    assert ids == {first * 1000 + number for first in range(writers) for number in range(count)}
    assert audited.found == 0, str(audited)
