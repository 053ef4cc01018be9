"""
A benchmark of series: 24 values in the slots of one entity, against 24 entities, through a server.
"""

from pathlib import Path

from benchmarks.measure import compare, report
from benchmarks.processes import serving
from tableorm import Entity, Mapped, Series, connect, field, series

HOURS = 24


class Day(Entity, table="Days", partition_key="{user}", row_key="day_{day:03d}"):
    """The counts of a day."""

    user: Mapped[str]
    day: Mapped[int]
    sent: Series[int] = series(HOURS, default=0)


class Hour(Entity, table="Days", partition_key="{user}", row_key="hour_{day:03d}_{hour:02d}"):
    """The count of an hour."""

    user: Mapped[str]
    day: Mapped[int]
    hour: Mapped[int]
    sent: Mapped[int] = field(default=0)


async def bench_series(folder: Path, days: int = 50, rounds: int = 5) -> None:
    """One point read for a day, against one for each of its hours."""
    async with serving(folder / "series.tables") as url, connect(url) as db:
        await db.create_tables(Day)
        async with db.bulk() as bulk:
            for day in range(days):
                await bulk.insert(Day(user="ken", day=day, sent=[*range(HOURS)]))
                for hour in range(HOURS):
                    await bulk.insert(Hour(user="ken", day=day, hour=hour, sent=hour))

        async def one() -> None:
            for day in range(days):
                assert sum((await db.get(Day, user="ken", day=day)).sent) == sum(range(HOURS))

        async def many() -> None:
            for day in range(days):
                hours = [await db.get(Hour, user="ken", day=day, hour=hour) for hour in range(HOURS)]
                assert sum(hour.sent for hour in hours) == sum(range(HOURS))

        before = db.stats.requests
        await one()
        requests = (db.stats.requests - before) / days
        a, b, ratio = await compare(one, many, rounds)
        detail = f"{a / days * 1e3:.2f} ms / {b / days * 1e3:.2f} ms a day; {requests:g} request for a series"
        report("24 slots of a series / 24 entities, through a server", ratio, "at most 0.1", detail)
