"""
Benchmarks of change feeds: a `save` of a model that has one against a `save` of one that has none.
"""

import asyncio
import datetime as dt
from functools import partial
from pathlib import Path

from benchmarks.measure import compare, report
from tableorm import Database, Entity, Feed, Mapped, connect, field

__all__ = ["bench_feeds"]

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


async def bench_feeds(folder: Path, saves: int = _SAVES) -> None:
    """One writer, and eight of one partition, with a feed and without; then what reading the feed takes."""
    async with connect(f"local:{folder}/feeds.tables") as db:
        await db.create_tables(Plain, Fed)
        for writers in (1, 8):
            sides = [partial(_save, db, model, writers, saves) for model in (Fed, Plain)]
            ours, theirs, ratio = await compare(*sides)
            detail = f"{ours / saves * 1e3:.2f} ms / {theirs / saves * 1e3:.2f} ms"
            report(f"save with a change feed / without, {writers} at once", ratio, "", detail)
        stream = db.changes(Fed, department="Fed1")

        async def changes() -> None:
            assert [change.number async for change in stream]

        async def entities() -> None:
            assert await db.select(Fed).where(Fed.department == "Fed8").all()

        ours, theirs, ratio = await compare(changes, entities)
        report("reading the feed / reading eight entities", ratio, "", f"{ours * 1e3:.1f} ms / {theirs * 1e3:.1f} ms")
