"""
Benchmarks of indexes: what copies cost when an entity is written, and what they save when it is read.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import compare, report
from tableorm import Database, Entity, Index, IndexList, Mapped, connect, field

_COUNT = 400
_ROUNDS = 5
_MANY = 15  # of inserts by many tasks, where two threads share what other programs leave them


class Person(Entity, table="Indexed", partition_key="{department}", abstract=True):
    department: Mapped[str]
    id: Mapped[int]
    email: Mapped[str]
    last_name: Mapped[str]
    first_name: Mapped[str] = field(default="June")
    age: Mapped[int] = field(default=47)
    title: Mapped[str] = field(default="Senior engineer")
    active: Mapped[bool] = field(default=True)


class Plain(Person, row_key="plain_{id:07d}"): ...


class Indexed(Person, row_key="empid_{id:07d}"):
    by_email = Index(row_key="email_{email}", unique=True)
    by_name = Index(row_key="name_{last_name}_{id:07d}")


class Keyed(Person, row_key="mail_{email}"):
    """With the keys that copies have."""


class Listed(Entity, table="Indexed", partition_key="{department}", row_key="listed_{id:07d}"):
    department: Mapped[str]
    id: Mapped[int]
    last_name: Mapped[str]

    by_last_name = IndexList(row_key="lastname_{last_name}")


def _entity(model: type[Any], department: str, number: int) -> Any:
    return model(department=department, id=number, email=f"e{number}@contoso.com", last_name=f"Name{number % 100}")


async def bench_indexes(folder: Path) -> None:
    """Inserts with two indexes, reads by one, and lists of 10,000."""
    async with connect(f"local:{folder}/indexes.tables") as db:
        await db.create_tables(Plain, Indexed, Keyed, Listed)
        for tasks, target in ((1, "at most 1.4"), (32, "at most 2.2")):
            await _insert(db, tasks, target)
        await _get(db)
        await _lists(db)


async def _insert(db: Database, tasks: int, target: str) -> None:
    rounds = _ROUNDS if tasks == 1 else _MANY

    def batches(model: type[Any]) -> Iterator[list[Any]]:
        for number in range(rounds + 1):
            department = f"{model.__name__}{tasks}-{number}"
            yield [_entity(model, department, each) for each in range(_COUNT * min(tasks, 8))]

    indexed, plain = batches(Indexed), batches(Plain)

    async def run(source: Iterator[list[Any]]) -> None:
        entities = iter(next(source))

        async def work() -> None:
            for entity in entities:
                await db.insert(entity)

        await asyncio.gather(*(work() for _ in range(tasks)))

    a, b, ratio = await compare(lambda: run(indexed), lambda: run(plain), rounds)
    scale = 1e6 / (_COUNT * min(tasks, 8))
    report(f"insert with two indexes / plain, {tasks} tasks", ratio, target, f"{a * scale:.0f} us / {b * scale:.0f} us")


async def _get(db: Database) -> None:
    async with db.transaction() as tx:
        for number in range(20):
            tx.insert(_entity(Indexed, "Get", number))
            tx.insert(_entity(Keyed, "Get", number))

    async def by_email() -> None:
        for number in range(2000):
            await db.get(Indexed.by_email, department="Get", email=f"e{number % 20}@contoso.com")

    async def by_key() -> None:
        for number in range(2000):
            await db.get(Keyed, department="Get", email=f"e{number % 20}@contoso.com")

    a, b, ratio = await compare(by_email, by_key, _ROUNDS)
    report("get by index / by key", ratio, "at most 1.2", f"{a * 500:.0f} us / {b * 500:.0f} us")


async def _lists(db: Database) -> None:
    """A list of 10,000: one more, and all of them, against an index of as many copies."""
    for start in range(0, 10_000, 90):
        async with db.transaction() as tx:
            for number in range(start, min(start + 90, 10_000)):
                tx.insert(Listed(department="List", id=number, last_name="Jones"))
    numbers = iter(range(10_000, 20_000))

    async def into_long() -> None:
        for _ in range(30):
            await db.insert(Listed(department="List", id=next(numbers), last_name="Jones"))

    async def into_short() -> None:
        for _ in range(30):
            number = next(numbers)
            await db.insert(Listed(department="List", id=number, last_name=f"Jones{number}"))

    a, b, ratio = await compare(into_long, into_short, _ROUNDS)
    report("insert into a list of 10,000 / of one", ratio, "", f"{a / 30 * 1e6:.0f} us / {b / 30 * 1e6:.0f} us")

    async def lookup() -> None:
        assert len(await db.lookup(Listed.by_last_name, department="List", last_name="Jones")) > 10_000

    async def by_hand() -> None:
        keys = [Listed.key(department="List", id=number) for number in range(10_000)]
        assert len(await db.get_many(keys)) == 10_000

    a, b, ratio = await compare(lookup, by_hand, 3)
    report("lookup of 10,000 / get_many of their keys", ratio, "", f"{a * 1e3:.0f} ms / {b * 1e3:.0f} ms")
