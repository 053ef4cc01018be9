"""
Benchmarks of relations: the children of 100 parents by one load, against a query for each parent, one after the other;
and the parents of all children from a cache, against reads.
"""

import asyncio
from pathlib import Path
from typing import Any

from benchmarks.measure import compare, report
from benchmarks.processes import serving
from tableorm import Database, Entity, Mapped, connect, many, one
from tableorm.connection.connection import connection_of
from tableorm.stores import StoreLayer, StoreRequest

PARENTS, CHILDREN = 100, 20
DELAY = 0.01


class Team(Entity, table="Teams", partition_key="{company}", row_key="team_{name:03d}"):
    """A team with its members in its partition, and its tasks in a partition of their own."""

    company: Mapped[str]
    name: Mapped[int]

    members = many(lambda: Member, company="{company}", team="{name}", on_delete="keep")
    tasks = many(lambda: Task, team="{name}", on_delete="keep")


class Member(Entity, table="Teams", partition_key="{company}", row_key="member_{team:03d}_{id:03d}"):
    """A member of a team."""

    company: Mapped[str]
    team: Mapped[int]
    id: Mapped[int]

    of = one(lambda: Team, company="{company}", name="{team}")


class Task(Entity, table="Tasks", partition_key="{team:03d}", row_key="{id:03d}"):
    """A task of a team."""

    team: Mapped[int]
    id: Mapped[int]


class _Late(StoreLayer):
    async def send(self, request: StoreRequest) -> Any:
        await asyncio.sleep(DELAY)
        return await super().send(request)


async def bench_relations(folder: Path, rounds: int = 5) -> None:
    """Through a server; and in partitions of their own with 10 ms more for each request."""
    async with serving(folder / "relations.tables") as url, connect(url) as db:
        await _fill(db)
        await _compare(db, "one partition, through a server", "at least 10", rounds, apart=False)
        await _compare(db, "partitions of their own, through a server", "at least 1.2", rounds, apart=True)
        await _compare_cached(db, rounds)
    async with connect("local::memory:") as db:
        await _fill(db)
        connection_of(db).wrap_store(_Late)
        await _compare(db, "partitions of their own, 10 ms away", "at least 8", rounds, apart=True)


async def _fill(db: Database) -> None:
    await db.create_tables(Team, Member, Task)
    async with db.bulk() as bulk:
        for name in range(PARENTS):
            await bulk.insert(Team(company="c", name=name))
            for number in range(CHILDREN):
                await bulk.insert(Member(company="c", team=name, id=number))
                await bulk.insert(Task(team=name, id=number))


async def _compare(db: Database, name: str, target: str, rounds: int, *, apart: bool) -> None:
    teams = await db.select(Team).where(Team.company == "c").all()
    relation: Any = Team.tasks if apart else Team.members

    async def load() -> None:
        await db.load(teams, relation)
        assert sum(len(team.tasks if apart else team.members) for team in teams) == PARENTS * CHILDREN

    async def loop() -> None:
        found = 0
        for team in teams:
            own = (Task.team == team.name,) if apart else (Member.company == "c", Member.team == team.name)
            found += len(await db.select(Task if apart else Member).where(*own).all())
        assert found == PARENTS * CHILDREN

    before = db.stats.requests
    await load()
    requests = db.stats.requests - before
    a, b, ratio = await compare(load, loop, rounds)
    detail = f"{a * 1e3:.0f} ms / {b * 1e3:.0f} ms; {requests} requests / {PARENTS}"
    report(f"queries / a load, {name}", 1 / ratio, target, detail)


async def _compare_cached(db: Database, rounds: int) -> None:
    members = await db.select(Member).where(Member.company == "c").all()
    teams = db.cached(Team, ttl=3600)

    async def cached() -> None:
        await db.load(members, Member.of, cache=teams)
        assert all(member.of is not None for member in members)

    async def uncached() -> None:
        await db.load(members, Member.of)
        assert all(member.of is not None for member in members)

    a, b, ratio = await compare(cached, uncached, rounds)
    detail = f"{a * 1e3:.1f} ms / {b * 1e3:.1f} ms for {PARENTS} teams of {PARENTS * CHILDREN} members"
    report("a load from a cache / by reads, through a server", ratio, "at most 1", detail)
