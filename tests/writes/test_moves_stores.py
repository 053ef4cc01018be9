"""
Moves on each store.
"""

from collections import Counter

import pytest

from tableorm import Count, Database, Entity, EntityNotFound, Index, Mapped, field


class Dept(Entity, table="MovedOnStores", partition_key="{dep}", row_key="dept"):
    dep: Mapped[str]
    size: Mapped[int] = field(default=0, maintained=True)


class Person(Entity, table="MovedOnStores", partition_key="{dep}", row_key="person"):
    dep: Mapped[str]
    text: Mapped[str] = field(default="")

    by_text = Index(row_key="text_{text}", unique=True)
    counted = Count(lambda: Dept.size, dep="{dep}")


async def check(db: Database) -> list[str]:
    """Check that nothing is left of moves, and that the index and the counts are right; return where the entity is."""
    rows = await db.select_raw("MovedOnStores").allow_scan().all()
    kinds = Counter(str(row["EntityType"]) for row in rows)
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
