"""
A benchmark of indexes of lists: a save that changes five elements, against the same rows written by hand.
"""

import itertools
from pathlib import Path

from benchmarks.measure import compare, report
from benchmarks.processes import serving
from tableorm import Entity, Index, Mapped, connect

SAVES, CHANGED = 200, 5


class Tagged(Entity, table="Elements", partition_key="{department}", row_key="tagged_{id:06d}"):
    """An entity with an index of its tags."""

    department: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]
    tags: Mapped[list[str]]

    by_tag = Index(row_key="tag_{tags:each}_{id:06d}", include=["name"])


class Plain(Entity, table="Elements", partition_key="{department}", row_key="plain_{id:06d}"):
    """The same without an index."""

    department: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]
    tags: Mapped[list[str]]


class Entry(Entity, table="Elements", partition_key="{department}", row_key="entry_{tag}_{id:06d}"):
    """An entry that is written by hand."""

    department: Mapped[str]
    tag: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]


async def bench_elements(folder: Path) -> None:
    """Of ten tags five go and five come, in one transaction of eleven rows; in a file, and through a server."""
    await _compare(f"local:{folder / 'elements.tables'}", "")
    async with serving(folder / "served.tables") as url:
        await _compare(url, ", through a server")


async def _compare(url: str, how: str) -> None:
    async with connect(url) as db:
        await db.create_tables(Tagged)
        numbers = itertools.count()
        kept = [f"kept{number}" for number in range(CHANGED)]
        tagged = Tagged(department="Sales", id=1, name="Ann", tags=[*kept])
        plain = Plain(department="Sales", id=1, name="Ann", tags=[*kept])
        await db.insert(tagged)
        await db.insert(plain)

        async def by_index() -> None:
            for _ in range(SAVES):
                tagged.tags = [*kept, *(f"tag{next(numbers)}" for _ in range(CHANGED))]
                await db.save(tagged)

        async def by_hand() -> None:
            for _ in range(SAVES):
                before = plain.tags[CHANGED:]
                plain.tags = [*kept, *(f"tag{next(numbers)}" for _ in range(CHANGED))]
                async with db.transaction() as tx:
                    tx.save(plain)
                    for tag in before:
                        tx.delete(Entry.key(department="Sales", tag=tag, id=1), if_match="*")
                    for tag in plain.tags[CHANGED:]:
                        tx.insert(Entry(department="Sales", tag=tag, id=1, name=plain.name))

        ours, theirs, ratio = await compare(by_index, by_hand)
    detail = f"{ours / SAVES * 1000:.2f} ms against {theirs / SAVES * 1000:.2f} ms"
    report(f"a save of {CHANGED} other elements, against rows by hand{how}", ratio, "at most 1.3", detail)
