"""
Benchmarks of change feeds: a `save` of a model that has one against a `save` of one that has none.
"""

import asyncio
import datetime as dt
from functools import partial
from pathlib import Path

from benchmarks.measure import compare, report
from tableorm import Database, Entity, Feed, Mapped, connect, field

_SAVES = 400


class Person(Entity, table="Fed", partition_key="{department}", abstract=True):
    department: Mapped[str]
    id: Mapped[int]
    age: Mapped[int] = field(default=0)


class Plain(Person, row_key="plain_{id:07d}"): ...


class Fed(Person, row_key="fed_{id:07d}"):
    changes = Feed(keep=dt.timedelta(days=7))


async def _save(db: Database, model: type[Plain | Fed], writers: int, saves: int) -> None:
    """Let each writer save an entity of its own, in one partition with the others."""
    entities = [model(department=f"{model.__name__}{writers}", id=number) for number in range(writers)]
    for entity in entities:
        await db.upsert(entity)

    async def write(entity: Plain | Fed) -> None:
        for _ in range(saves // writers):
            entity.age += 1
            await db.save(entity)

    await asyncio.gather(*map(write, entities))


async def bench_feeds(folder: Path, saves: int = _SAVES, rounds: int = 5) -> None:
    """One writer, and eight of one partition, with a change feed and without."""
    async with connect(f"local:{folder}/feeds.tables") as db:
        await db.create_tables(Plain, Fed)
        for writers in (1, 8):
            fed, plain = (partial(_save, db, model, writers, saves) for model in (Fed, Plain))
            ours, theirs, ratio = await compare(fed, plain, rounds)
            detail = f"{ours / saves * 1e3:.2f} ms / {theirs / saves * 1e3:.2f} ms"
            report(f"save with a change feed / without, {writers} at once", ratio, "", detail)
