"""
`modify` from several processes on one file, also when one of them is killed.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tableorm import connect
from tests.writes.child_modify import Counter

Start = Callable[[int, int], "subprocess.Popen[str]"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shared.tables"


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    """Starts a process of so many tasks that add so many times; it waits for a line. Killed at the end."""
    processes: list[subprocess.Popen[str]] = []

    def begin(tasks: int, times: int) -> "subprocess.Popen[str]":
        script = Path(__file__).with_name("child_modify.py")
        command = [sys.executable, str(script), str(path), str(tasks), str(times)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("\n")
    process.stdin.flush()


async def prepare(path: Path) -> None:
    async with connect(f"local:{path}") as db:
        await db.create_tables(Counter)
        await db.insert(Counter(name="shared"))


async def count(path: Path) -> int:
    async with connect(f"local:{path}") as db:
        return (await db.get(Counter, name="shared")).count


@pytest.mark.one_of(2, group="processes")
async def test_no_update_is_lost_among_processes(path: Path, start: Start) -> None:
    """Three processes of eight tasks each."""
    await prepare(path)
    processes = [start(8, 4) for _ in range(3)]
    for process in processes:
        go(process)

    added = [process.communicate()[0].count("added") for process in processes]
    assert added == [32] * 3
    assert await count(path) == 96
