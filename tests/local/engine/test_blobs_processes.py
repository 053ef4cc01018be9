"""
What killed writers of blobs leave behind: every acknowledged byte, no mixture, and nothing that stays for ever.
"""

import asyncio
import datetime as dt
import importlib.util
import random
from pathlib import Path
from typing import Any

import apsw
import pytest

from tableorm.stores import Clock
from tableorm_local.engine.sqlite import connect
from tests.local.engine.conftest import Child, opened
from tests.torture import seeds

SCRIPT = "child_stores.py"


def child_module() -> Any:
    """The script of the other processes, for the data that they write."""
    spec = importlib.util.spec_from_file_location("child_stores", Path(__file__).with_name(SCRIPT))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.one_of(3, group="killed")
@seeds(1, 40)
async def test_killed_writers_lose_nothing_acknowledged(
    path: Path, child: Child, tableorm_clock: Clock, seed: int
) -> None:
    """After SIGKILL each blob is a whole version, none older than acknowledged; what was half-way is given back."""
    chance, script = random.Random(seed), child_module()
    async with opened(path) as engine:
        await engine.blobs.create_container("shared")
    for run in range(3):
        process = child("blobs_for_ever", path, run, script=SCRIPT)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(chance.randrange(1, 60))]
        await asyncio.sleep(chance.random() * 0.05)
        process.kill()
        lines += process.stdout.readlines()
        words = [line.split() for line in lines if line.endswith("\n")]
        await engine.open()
        blobs = engine.blobs
        for _, name, number, tag in (each for each in words if each[0] == "put"):
            assert (await blobs.info("shared", name)).etag == tag
            assert await blobs.read("shared", name) == script.version(int(number))
        replaced = max((int(each[1]) for each in words if each[0] == "replaced"), default=-1)
        if replaced >= 0:
            assert await blobs.read("shared", f"same-{run}") in {script.version(replaced), script.version(replaced + 1)}
        appended = max((int(each[1]) for each in words if each[0] == "appended"), default=-1)
        if appended >= 0:
            log = await blobs.read("shared", f"log-{run}")
            count = len(log) // script.RECORD
            assert count in {appended + 1, appended + 2}
            assert log == b"".join(bytes([number % 256]) * script.RECORD for number in range(count))
        await engine.close()

    tableorm_clock.advance(dt.timedelta(days=2))
    await engine.open()
    live = "SELECT (SELECT count(*) FROM contents) - (SELECT count(*) FROM blobs)"
    async with asyncio.timeout(60):
        while await engine.read(lambda connection: connection.execute(live).get):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    stray = "SELECT count(*) FROM chunks WHERE content NOT IN (SELECT content FROM blobs)"
    assert await engine.read(lambda connection: connection.execute(stray).get) == 0
    await engine.close()
    assert connect(str(path), apsw.SQLITE_OPEN_READWRITE).execute("PRAGMA integrity_check").get == "ok"
