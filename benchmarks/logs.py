"""
Benchmarks of logs: the newest entries of a long one, and partitions that are spread over hash buckets.
"""

import datetime as dt
from pathlib import Path
from typing import Any

from benchmarks.measure import compare, report
from tableorm import Database, Entity, Mapped, connect, field

__all__ = ["Claim", "Login", "SpreadLogin", "bench_spread", "bench_tail", "compare_spread", "compare_tail"]

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


async def _fill(db: Database, entities: list[Any]) -> None:
    await db.create_tables(type(entities[0]))
    async with db.bulk() as bulk:
        for entity in entities:
            await bulk.insert(entity)


async def compare_tail(folder: Path, count: int) -> None:
    """The newest ten of so many claims, against a point read of one."""
    async with connect(f"local:{folder}/tail.tables") as db:
        moments = [_START + dt.timedelta(seconds=n) for n in range(count)]
        await _fill(db, [Claim(employee="e1", at=at, amount=9.5, text="taxi") for at in moments])
        newest = db.select(Claim).where(Claim.employee == "e1").limit(10)

        async def ours() -> None:
            for _ in range(200):
                assert len(await newest.all()) == 10

        async def theirs() -> None:
            for at in moments[::-1][:10] * 20:
                await db.get(Claim, employee="e1", at=at, n=0)

        a, b, ratio = await compare(ours, theirs, 7)
        detail = f"{a * 5e3:.0f} us / {b * 5e3:.0f} us"
        report(f"the newest ten of {count:,} / a point read", ratio, "at most 2", detail)


async def compare_spread(folder: Path, count: int) -> None:
    """Queries of 16 buckets against those of one partition that has the same rows."""
    async with connect(f"local:{folder}/spread.tables") as db:
        values = [
            {"system": "web", "user": f"u{n % 977}", "at": _START + dt.timedelta(seconds=n), "address": "10.0.0.1"}
            for n in range(count)
        ]
        for model in (Login, SpreadLogin):
            await _fill(db, [model(**each) for each in values])
        spread = db.select(SpreadLogin).where(SpreadLogin.system == "web")
        one = db.select(Login).where(Login.system == "web")
        for name, limit, times in (
            (f"all {count:,}", count, 1),
            ("the newest ten", 10, 50),
            ("a page of 100", 100, 20),
        ):

            async def ours(limit: int = limit, times: int = times) -> None:
                for _ in range(times):
                    assert len(await (spread if limit == count else spread.limit(limit)).all()) == limit

            async def theirs(limit: int = limit, times: int = times) -> None:
                for _ in range(times):
                    assert len(await (one if limit == count else one.limit(limit)).all()) == limit

            a, b, ratio = await compare(ours, theirs, 5)
            report(
                f"{name}: 16 buckets / one partition", ratio, "", f"{a * 1e3 / times:.2f} ms / {b * 1e3 / times:.2f} ms"
            )


async def bench_tail(folder: Path) -> None:
    """The newest ten of 300,000 against a point read."""
    await compare_tail(folder, 300_000)


async def bench_spread(folder: Path) -> None:
    """A query of 16 buckets against one partition."""
    await compare_spread(folder, 32_000)
