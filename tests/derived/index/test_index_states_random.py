"""
Readers never see an incomplete index or list, whatever the order of what programs do at the same time.
"""

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

from tableorm import Conflict, Database, Entity, Index, IndexList, Mapped, NotSupported, connect, field
from tableorm.connection.connection import connection_of
from tests.torture import seeds


class Older(Entity, table="StatesCrew", kind="Crew", partition_key="{team}", row_key="c_{id:03d}"):
    team: Mapped[str]
    id: Mapped[int]
    age: Mapped[int] = field(default=0)


class Crew(Entity, table="StatesCrew", partition_key="{team}", row_key="c_{id:03d}"):
    team: Mapped[str]
    id: Mapped[int]
    age: Mapped[int] = field(default=0)

    by_age = Index(row_key="age_{age:03d}_{id:03d}")
    of_age = IndexList(row_key="aged_{age}")


WAYS = 5
"""How many ways there are to read by one of the two."""


class World:
    """
    Programs that write and read one table, and what has been written for certain.

    Args:
        chance: What decides the order.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.written: dict[int, tuple[int, int | None]] = {}
        """Of each entity how often a write of it has begun or ended, and its age; None if it is gone."""
        self.older_ended, self.ended = asyncio.Event(), asyncio.Event()
        self.reads = self.refused = 0

    async def pause(self) -> None:
        """Let others go on, for some turns."""
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)

    async def write(self, db: Database, model: Any, ids: range, count: int | None) -> None:
        """Insert, change and delete entities that nobody else writes, except who builds the index."""
        while not self.ended.is_set() and count != 0:
            count = None if count is None else count - 1
            number, age = self.chance.choice(ids), self.chance.randrange(3)
            turn, before = self.written.get(number, (0, None))
            gone = before is not None and self.chance.random() < 0.3
            self.written[number] = turn + 1, before
            while True:
                with suppress(Conflict):  # with the build: once more
                    if before is None:
                        await db.insert(model(team="a", id=number, age=age))
                    elif gone:
                        await db.delete(await db.get(model, team="a", id=number))
                    else:
                        entity = await db.get(model, team="a", id=number)
                        entity.age = age
                        await db.save(entity)
                    break
            self.written[number] = turn + 2, None if gone else age
            await self.pause()

    async def read(self, db: Database) -> None:
        """Read by the index or the list in some way; whoever is allowed to finds all that did not change meanwhile."""
        while not self.ended.is_set():
            await self.pause()
            known = connection_of(db).known_states
            if known.asked is not None and self.chance.random() < 0.3:
                known.asked -= 60
            await self.read_once(db, self.chance.randrange(WAYS))

    async def read_once(self, db: Database, way: int) -> None:
        before, age = dict(self.written), self.chance.randrange(3)
        by_age = db.select(Crew).where(Crew.team == "a", Crew.age == age)
        found: dict[int, int] = {}
        try:
            if way == 0:
                found = {each.id: each.age for each in await db.select(Crew.by_age).where(Crew.team == "a").all()}
            elif way == 1:
                found = {each.id: each.age for each in await by_age.all()}
            elif way == 2:
                async for page in by_age.pages(2):
                    found |= {each.id: each.age for each in page.items}
                    await self.pause()
            elif way == 3:
                found = {each.id: each.age for each in await db.lookup(Crew.of_age, team="a", age=age)}
            else:
                parts = by_age.split(3)
                self.chance.shuffle(parts)
                found = {each.id: each.age for part in parts for each in await part.all()}
        except NotSupported:
            self.refused += 1
            return
        self.reads += 1
        wanted = {
            number: stored
            for number, (turn, stored) in before.items()
            if turn % 2 == 0 and self.written[number][0] == turn and stored is not None and (way == 0 or stored == age)
        }
        assert wanted.items() <= found.items()

    async def operate(self, db: Database) -> None:
        """Build the index and the list, too early perhaps; then say that no older program writes."""
        while not self.older_ended.is_set():
            await self.pause()
            if self.chance.random() < 0.2:
                early = self.chance.choice([Crew.by_age, Crew.of_age])
                await db.build_index(early, parallel=self.chance.randrange(1, 4))
        for each in (Crew.by_age, Crew.of_age):
            while not (await db.build_index(each, no_older_writers=True)).readable:
                await self.pause()


@seeds(1, 300)
async def test_no_reader_sees_an_incomplete_index(seed: int, tmp_path: Path) -> None:
    """
    An older program writes for some time, newer ones write and read all the time, and the index and the list are built
    meanwhile. All have connections of their own. Every read that is allowed finds each entity that is there.
    """
    world = World(random.Random(seed))
    url = f"local:{tmp_path / 'crew.tables'}"
    async with (
        connect(url) as older,
        connect(url) as newer,
        connect(url) as builder,
        connect(url) as reader,
        connect(url) as other,
    ):
        await older.create_tables(Older)
        await world.write(older, Older, range(20), 15)
        if world.chance.random() < 0.5:
            await newer.create_tables(Crew)

        async def end_older() -> None:
            await world.write(older, Older, range(20), world.chance.randrange(20))
            world.older_ended.set()

        async with asyncio.TaskGroup() as tasks:
            for work in (
                end_older(),
                world.write(newer, Crew, range(20, 40), None),
                world.read(newer),
                world.read(reader),
                world.read(other),
            ):
                tasks.create_task(work)
            await world.operate(builder)
            for db in (newer, reader, other):
                connection_of(db).known_states.asked = None
            for _ in range(20):
                await world.pause()
            world.ended.set()

        for db in (newer, reader, other, builder):
            for way in range(WAYS):
                await world.read_once(db, way)
        assert world.reads >= 4 * WAYS
        assert (await builder.audit(Crew)).found == 0
        # Who reads goes on when the table is made anew.
        await builder.drop_table(Crew)
        world.written.clear()
        await newer.create_tables(Crew)
        world.ended.clear()
        await world.write(newer, Crew, range(20), 5)
        for db in (newer, reader, other, builder):
            await world.read_once(db, 0)
        assert set(await newer.index_states()) == set(await reader.index_states())
