"""
Several processes on one queue: nothing is in two hands at once.
"""

import asyncio
import itertools
from collections import defaultdict
from pathlib import Path

import pytest

from tableorm_local.engine import Engine
from tests.local.engine.conftest import Child

SCRIPT = "child_stores.py"


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
