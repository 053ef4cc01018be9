"""
What is broken from outside: a stored row that is no JSON, a process that dies while its child lives on.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tableorm.protocol.codes import Code, Fault
from tableorm.stores import RowQuery
from tableorm_local.engine import Engine
from tests.local.engine.conftest import opened
from tests.local.engine.rows import change_file, row
from tests.rows import insert_row

FORKS_AND_DIES = """
import asyncio, os, signal, sys, time
from tableorm_local.engine import Engine

async def main():
    engine = Engine(sys.argv[1])
    await engine.open()
    engine._open.files.writer_lock.acquire()
    child = os.fork()
    if child == 0:
        os.write(1, b"forked\\n")
        time.sleep(60)
        os._exit(0)
    sys.stdin.read(1)
    os.write(1, b"%d\\n" % child)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def open_damaged(path: Path, statement: str) -> Engine:
    """Return an engine, open, of a file with two rows in which a statement was run."""
    async with opened(path, "Things") as engine:
        for name in ("a", "b"):
            await insert_row(engine, "Things", row(name))
    change_file(path, statement)
    await engine.open()
    return engine


async def test_a_damaged_row_is_named_as_damage(tmp_path: Path) -> None:
    """Reading it, alone or in a page, is a fault that names the file and says what to do; other rows are read."""
    engine = await open_damaged(tmp_path / "data.tables", "UPDATE t1 SET body = x'7b22' WHERE key = x'700061'")
    for read in (engine.get("Things", "p", "a"), engine.query("Things", RowQuery())):
        with pytest.raises(Fault, match=r"data\.tables.*is damaged.*restore a backup") as caught:
            await read
        assert caught.value.code == Code.INTERNAL_ERROR
    assert (await engine.get("Things", "p", "b"))["RowKey"] == "b"
    await engine.close()


def fork_and_die(path: Path) -> int:
    """The process id of a child whose parent was killed while it held the writer lock."""
    command = [sys.executable, "-c", FORKS_AND_DIES, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"forked\n"
        parent.stdin.write(b"x")
        parent.stdin.flush()
        child = int(parent.stdout.readline())
    assert parent.returncode == -signal.SIGKILL
    return child


@pytest.mark.skipif(not hasattr(os, "fork"), reason="capability: this system cannot fork")
async def test_a_forked_child_does_not_keep_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    """The parent forks and is killed while it holds the writers' lock; others write, though the child lives."""
    path = tmp_path / "data.tables"
    child = fork_and_die(path)
    try:
        async with opened(path, "Things", patience=5.0) as engine:
            assert await engine.list_tables() == ["Things"]
    finally:
        os.kill(child, signal.SIGKILL)
