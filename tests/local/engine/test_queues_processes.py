"""
Several processes on one queue: nothing is lost, and nothing is in two hands at once.
"""

import asyncio
import itertools
import random
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from tableorm_local.engine import Engine
from tableorm_local.engine.sqlite import Connection, connect
from tests.torture import seeds

Child = Callable[..., "subprocess.Popen[str]"]
SCRIPT = "child_stores.py"


def all_messages(connection: Connection) -> dict[str, bytes]:
    """Id and body of each message, hidden ones too."""
    return {str(number): body for number, body in connection.execute("SELECT id, body FROM messages")}


@pytest.mark.one_of(2, group="processes")
async def test_one_message_is_in_one_hand(engine: Engine, path: Path, child: Child) -> None:
    """Three processes take from one queue: while one holds a message, no other does; each is deleted once."""
    await engine.queues.create_queue("shared")
    put = await asyncio.gather(*(engine.queues.put("shared", b"x") for _ in range(150)))
    children = [child("take_turns", path, seed, 0, script=SCRIPT) for seed in range(3)]
    for process in children:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = await asyncio.gather(*(asyncio.to_thread(process.communicate) for process in children))
    lines = [line.split() for output, _ in outputs for line in output.splitlines()]

    assert sorted(number for verb, number, *_ in lines if verb == "deleted") == sorted(each.id for each in put)
    assert {verb for verb, *_ in lines} == {"deleted", "returned"}
    held: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for _, number, begin, end in lines:
        held[number].append((int(begin), int(end)))
    for times in held.values():
        times.sort()
        assert all(first[1] < second[0] for first, second in itertools.pairwise(times))
    assert await engine.queues.length("shared") == 0


@pytest.mark.one_of(3, group="killed")
@seeds(1, 40)
async def test_killed_processes_lose_nothing_acknowledged(path: Path, child: Child, seed: int) -> None:
    """After SIGKILL each message that was put is there, unless it was deleted; and none that was deleted."""
    chance = random.Random(seed)
    engine = Engine(path)
    await engine.open()
    await engine.queues.create_queue("shared")
    await engine.close()
    put: dict[str, str] = {}
    gone: dict[str, set[str]] = {"deleting": set(), "deleted": set()}
    for run in range(3):
        process = child("queue_for_ever", path, run, script=SCRIPT)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(chance.randrange(1, 500))]
        process.kill()
        lines += process.stdout.readlines()
        for line in lines:
            words = line.split()
            if not line.endswith("\n"):
                continue
            if words[0] == "put":
                put[words[1]] = words[2]
            else:
                gone[words[0]].add(words[1])
        await engine.open()
        stored = await engine.read(all_messages)
        length = await engine.queues.length("shared")
        await engine.close()

        kept = {number: body.encode() for number, body in put.items() if number not in gone["deleting"]}
        assert {number: stored.get(number) for number in kept} == kept
        assert gone["deleted"] & set(stored) == set()
        assert length == len(stored)
    assert len(put) >= 3
    assert connect(str(path), apsw.SQLITE_OPEN_READWRITE).execute("PRAGMA integrity_check").get == "ok"
