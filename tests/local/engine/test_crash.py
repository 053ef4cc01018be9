"""
What a killed process leaves behind: every acknowledged write, whole transactions, a sound file.
"""

import asyncio
import random
from pathlib import Path

import apsw
import pytest

from tableorm.testing.contract.base import everything
from tableorm_local.engine.sqlite import connect
from tests.local.engine.conftest import Child, opened
from tests.torture import seeds


@pytest.mark.one_of(3, group="killed")
@seeds(1, 40)
async def test_killed_writers_lose_nothing_acknowledged(path: Path, child: Child, seed: int) -> None:
    """After SIGKILL at random moments each acknowledged write is there with its ETag, and each transaction is whole."""
    async with opened(path, "Shared") as engine:
        pass
    chance = random.Random(seed)
    acknowledged: dict[tuple[str, str], str] = {}
    for run in range(3):
        process = child("write_for_ever", path, run)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(chance.randrange(1, 150))]
        await asyncio.sleep(chance.random() * 0.02)
        process.kill()
        lines += process.stdout.readlines()
        for line in lines:
            words = line.split()
            if len(words) == 3 and line.endswith("\n"):
                key = ("single", words[1]) if words[0] == "single" else (words[1], "4")
                acknowledged[key] = words[2]
        await engine.open()
        stored = {
            (each["PartitionKey"], each["RowKey"]): each["odata.etag"] for each in await everything(engine, "Shared")
        }
        await engine.close()

        assert {key: stored.get(key) for key in acknowledged} == acknowledged
        partitions = {first for first, _ in stored if first != "single"}
        assert {(first, str(number)) for first in partitions for number in range(5)} <= set(stored)
    assert len(acknowledged) >= 3
    assert connect(str(path), apsw.SQLITE_OPEN_READWRITE).execute("PRAGMA integrity_check").get == "ok"
