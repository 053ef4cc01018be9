"""
The process of a worker is killed, again and again, at any moment; other processes go on.
"""

import asyncio
import json
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tableorm import Database, Entity, EntityExists, Mapped, Workflow, connect, field, workflow
from tableorm.outbox import shared_bell
from tableorm.testing.contract.base import everything
from tableorm.writes import deferred
from tests.outbox.staff import Person, committed_decisions, extra_entries, wrong_entries
from tests.torture import seeds

COMMAND = str(Path(sys.executable).with_name("tableorm"))
CLASSES = ("tests.outbox.staff:Person", "tests.outbox.test_worker_killed:TakeNote")
ROOT = Path(__file__).parents[2]  # modules of the working directory are found
CHANGES = 24


class Note(Entity, table="Notes", partition_key="{token}", row_key="note"):
    token: Mapped[str]
    done: Mapped[bool] = field(default=False)


@workflow("note")
class TakeNote(Workflow[Person]):
    async def write(self, db: Database) -> str:
        with suppress(EntityExists):
            await db.insert(Note(token=self.token))
        return self.token

    async def finish(self, db: Database) -> None:
        note = await db.get(Note, token=self.arguments)
        note.done = True
        await db.save(note)


async def write(db: Database, chance: random.Random) -> int:
    """Write people, as a program that dies after each commit; return how many notes are to be taken."""
    started = 0
    for _ in range(CHANGES):
        number = chance.randrange(20)
        name, city = chance.choice("ab"), chance.choice(["Rome", "Oslo", None])
        person = await db.get_or_none(Person, team="red", id=number)
        if person is None:
            person = Person(team="red", id=number, name=name, city=city)
            async with db.transaction() as tx:
                tx.insert(person)
                tx.start(TakeNote, person)
            started += 1
        elif chance.random() < 0.3:
            await db.delete(person)
        else:
            person.name, person.city = name, city
            await db.save(person)
    return started


def start_worker(url: str, *arguments: str) -> "subprocess.Popen[str]":
    arguments = ("worker", url, *CLASSES, "--visibility", "1", "--concurrency", "3", *arguments)
    return subprocess.Popen([COMMAND, *arguments], cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8")


@seeds(1, 30)
async def test_a_worker_that_is_killed(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any number of kills, a worker that is let go on makes all entries right, and ends all workflows."""

    async def die(self: deferred.Deferral) -> None: ...

    monkeypatch.setattr(shared_bell, "HIDDEN_SECONDS", 0)
    monkeypatch.setattr(deferred.Deferral, "finish", die)
    chance = random.Random(seed)
    url = f"local:{tmp_path / 'staff.tables'}"
    async with connect(url) as db:
        await db.create_tables(Person, Note)
        started = await write(db, chance)
        left = len(await committed_decisions(db.store))
        assert left > CHANGES / 2
        while left > CHANGES / 4:
            worker = start_worker(url)
            goal = max(0, left - chance.randint(1, 20))
            while left > goal and worker.poll() is None:
                await asyncio.sleep(0.002)
                left = len(await committed_decisions(db.store))
            worker.kill()
            await asyncio.to_thread(worker.communicate)
        worker = start_worker(url, "--drain")
        output, _ = await asyncio.to_thread(worker.communicate)

        # Void is what was left by a worker that was killed between deleting the decision row and the message.
        assert json.loads(output).keys() <= {"done", "void"}
        assert await committed_decisions(db.store) == []
        assert await wrong_entries(db.store) == []
        assert await extra_entries(db.store) == set()
        assert [note["done"] for note in await everything(db.store, "Notes")] == [True] * started
