"""
Moves of processes that are killed, and moves on each store.
"""

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tableorm import Database, EntityNotFound, connect
from tests.torture import Rounds
from tests.writes.child_move import Dept, Person


async def check(db: Database) -> list[str]:
    """Check that nothing is left of moves, and that the index and the counts are right; return where the entity is."""
    rows = await db.select_raw("Killed").allow_scan().all()
    kinds = Counter(str(row["EntityType"]) for row in rows)
    # The mark of a row that somebody was about to move means nothing once the message is lost.
    assert not [row for row in rows if "confirmed" in row.row.get("_mv", "") or "#_" in str(row["EntityType"])]
    homes = [dep for dep in "abc" if await db.get_or_none(Person, dep=dep) is not None]
    assert kinds["Person"] == kinds["Person#by_text"] == len(homes)
    assert [(await db.get(Dept, dep=dep)).size for dep in "abc"] == [int(dep in homes) for dep in "abc"]
    return homes


async def prepare(db: Database) -> Person:
    await db.create_tables(Dept, Person)
    for dep in "abc":
        await db.insert(Dept(dep=dep))
    person = Person(dep="a", text="t")
    await db.insert(person)
    return person


async def test_movers_and_workers_are_killed(tmp_path: Path, rounds: Rounds) -> None:
    """After each kill others go on; in the end the entity has one home, and nothing is left of its moves."""
    url, count = f"local:{tmp_path / 'moves.tables'}", rounds(30, 600)
    async with connect(url) as db:
        await prepare(db)
    script = Path(__file__).with_name("child_move.py")
    process = await asyncio.create_subprocess_exec(sys.executable, str(script), url, str(count), stdout=subprocess.PIPE)
    ended = (await process.communicate())[0].decode().split()

    assert len(ended) == count and ended.count("killed") > count // 4
    async with connect(url) as db:
        async with db.worker(Person, visibility=1) as worker:
            await worker.drain()
        assert len(await check(db)) == 1


async def test_a_move_on_each_store(db: Database) -> None:
    """There and back again, with a worker that finds nothing to do."""
    person = await prepare(db)
    await db.move(person, dep="b")
    assert await check(db) == ["b"]
    person.text = "u"
    await db.move(person, dep="a")
    assert (await db.get(Person.by_text, dep="a", text="u")) == person
    assert await check(db) == ["a"]
    with pytest.raises(EntityNotFound):
        await db.get(Person, dep="b")
