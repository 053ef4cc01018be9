"""
Benchmarks of logs: the newest entries of a long one, and partitions that are spread over hash buckets.
"""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import compare, report
from benchmarks.processes import serving
from tableorm import Database, Entity, Mapped, connect, field

_START = dt.datetime(2014, 7, 31, tzinfo=dt.UTC)


class Claim(Entity, table="Claims", partition_key="{employee}", row_key="{at:ticks_desc}_{n:03d}"):
    """An expense claim; a burst of claims has numbers."""

    employee: Mapped[str]
    at: Mapped[dt.datetime]
    n: Mapped[int] = field(default=0)
    amount: Mapped[float] = field(default=0.0)
    text: Mapped[str] = field(default="")


class Login(Entity, table="Logins", partition_key="{system}", row_key="{at:ticks_desc}_{user}"):
    """A login, in one partition for each system."""

    system: Mapped[str]
    user: Mapped[str]
    at: Mapped[dt.datetime]
    address: Mapped[str] = field(default="")


class SpreadLogin(
    Entity, table="SpreadLogins", partition_key="{system}_{user:spread(16)}", row_key="{at:ticks_desc}_{user}"
):
    """The same login, in 16 partitions for each system."""

    system: Mapped[str]
    user: Mapped[str]
    at: Mapped[dt.datetime]
    address: Mapped[str] = field(default="")


async def _fill(db: Database, entities: Sequence[Entity]) -> None:
    await db.create_tables(type(entities[0]))
    async with db.bulk() as bulk:
        for entity in entities:
            await bulk.insert(entity)


async def fill_tail(db: Database, count: int) -> list[dt.datetime]:
    """Insert so many claims, and return their moments."""
    moments = [_START + dt.timedelta(seconds=n) for n in range(count)]
    await _fill(db, [Claim(employee="e1", at=at, amount=9.5, text="taxi") for at in moments])
    return moments


async def compare_tail(db: Database, where: str, moments: Sequence[dt.datetime], times: int, target: str) -> None:
    """The newest ten of so many claims, against a point read of one."""
    newest = db.select(Claim).where(Claim.employee == "e1").limit(10)

    async def ours() -> None:
        for _ in range(times):
            assert len(await newest.all()) == 10

    async def theirs() -> None:
        for number in range(times):
            await db.get(Claim, employee="e1", at=moments[-1 - number % 10], n=0)

    a, b, ratio = await compare(ours, theirs, min(times, 7))
    detail = f"{a / times * 1e6:.0f} us / {b / times * 1e6:.0f} us"
    report(f"newest ten of {len(moments):,} / a point read, {where}", ratio, target, detail)


async def compare_spread(folder: Path, count: int, times: int) -> None:
    """Queries of 16 buckets against those of one partition that has the same rows."""
    async with connect(f"local:{folder}/spread.tables") as db:
        values: list[dict[str, Any]] = [
            {"system": "web", "user": f"u{n % 977}", "at": _START + dt.timedelta(seconds=n), "address": "10.0.0.1"}
            for n in range(count)
        ]
        for model in (Login, SpreadLogin):
            await _fill(db, [model(**each) for each in values])
        spread = db.select(SpreadLogin).where(SpreadLogin.system == "web")
        one = db.select(Login).where(Login.system == "web")
        for name, limit, often in (
            (f"all {count:,}", count, 1),
            ("the newest ten", 10, times),
            ("the newest 100", 100, times),
        ):

            async def ours(limit: int = limit, often: int = often) -> None:
                for _ in range(often):
                    assert len(await (spread if limit == count else spread.limit(limit)).all()) == limit

            async def theirs(limit: int = limit, often: int = often) -> None:
                for _ in range(often):
                    assert len(await (one if limit == count else one.limit(limit)).all()) == limit

            a, b, ratio = await compare(ours, theirs, min(times, 5))
            detail = f"{a * 1e3 / often:.2f} ms / {b * 1e3 / often:.2f} ms"
            report(f"{name}: 16 buckets / one partition", ratio, "", detail)


async def bench_tail(folder: Path) -> None:
    """The newest ten of 300,000 against a point read, in this process, and as a table server answers."""
    path = folder / "tail.tables"
    async with connect(f"local:{path}") as db:
        moments = await fill_tail(db, 300_000)
        await compare_tail(db, "in this process", moments, 200, "")
    async with serving(path) as url, connect(url) as db:
        await compare_tail(db, "from a server", moments, 200, "at most 2")


async def bench_spread(folder: Path) -> None:
    """A query of 16 buckets against one partition."""
    await compare_spread(folder, 32_000, 30)
