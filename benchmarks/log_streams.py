"""
Benchmarks of logs in blobs: lines of a log against the same lines as entities, and a writer that comes late to an hour
in which others have written many segments.
"""

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.measure import compare, report
from tableorm import Database, Entity, Mapped, connect
from tableorm.logs import LogStream

_NOON = dt.datetime(2014, 7, 31, 12, tzinfo=dt.UTC)
_TASKS = 32


class Line(Entity, table="Lines", partition_key="{log}", row_key="line_{number:09d}"):
    """A line of a log, as an entity."""

    log: Mapped[str]
    number: Mapped[int]
    at: Mapped[dt.datetime]
    operation: Mapped[str]
    status: Mapped[int]


def _record(number: int) -> dict[str, object]:
    return {"number": number, "operation": "PutMessage", "status": 201}


def _entity(log: str, number: int) -> Line:
    return Line(log=log, number=number, at=_NOON, operation="PutMessage", status=201)


async def _divide(count: int, write: Callable[[int], Awaitable[None]]) -> None:
    """Let some tasks write lines, each one after the other."""

    async def work(task: int) -> None:
        for number in range(task, count, _TASKS):
            await write(number)

    await asyncio.gather(*map(work, range(_TASKS)))


async def compare_lines(folder: Path, buffered: int, durable: int, rounds: int = 5) -> None:
    """Lines that are gathered, against a bulk; and lines that are durable, by 32 tasks, against inserts by them."""
    async with connect(f"local:{folder}/lines.tables") as db:
        await db.create_tables(Line)
        turn = iter(range(1_000_000))

        async def gather() -> None:
            async with LogStream(db, f"log{next(turn)}") as log:
                for number in range(buffered):
                    await log.write(_record(number), at=_NOON)

        async def insert_bulk() -> None:
            name = f"log{next(turn)}"
            async with db.bulk() as bulk:
                for number in range(buffered):
                    await bulk.insert(_entity(name, number))

        async def write_durably() -> None:
            async with LogStream(db, f"log{next(turn)}", durable=True) as log:
                await _divide(durable, lambda number: log.write(_record(number), at=_NOON))

        async def insert() -> None:
            name = f"log{next(turn)}"

            async def insert_line(number: int) -> None:
                await db.insert(_entity(name, number))

            await _divide(durable, insert_line)

        for what, count, ours, theirs in (
            (f"{buffered:,} lines of a LogStream / bulk of as many", buffered, gather, insert_bulk),
            (f"{durable:,} durable lines by {_TASKS} tasks / inserts", durable, write_durably, insert),
        ):
            a, b, ratio = await compare(ours, theirs, rounds)
            report(what, ratio, "", f"{count / a:,.0f}/s / {count / b:,.0f}/s")


async def _fill_hour(db: Database, name: str, segments: int) -> None:
    """Write segments of one line each."""
    for number in range(1, segments + 1):
        await db.blobs.put("logs", f"{name}/2014/07/31/1200/{number:06d}.log", b"", metadata={"id": "another"})


async def compare_late_writers(folder: Path, few: int, many: int, rounds: int = 5) -> None:
    """The first line of a writer in an hour that has many segments of others, against one that has few."""
    async with connect(f"local:{folder}/late.tables") as db:
        await db.blobs.create_container("logs")
        await _fill_hour(db, "few", few)
        await _fill_hour(db, "many", many)

        def come_late(name: str) -> Callable[[], Awaitable[None]]:
            async def write() -> None:
                for number in range(5):
                    async with LogStream(db, name, durable=True) as log:
                        await log.write(_record(number), at=_NOON)

            return write

        a, b, ratio = await compare(come_late("many"), come_late("few"), rounds)
        detail = f"{a * 200:.2f} ms / {b * 200:.2f} ms"
        report(f"first line in an hour of {many:,} segments / of {few:,}", ratio, "", detail)


async def bench_logs(folder: Path) -> None:
    """Lines of a log against entities, and late writers."""
    await compare_lines(folder, 20_000, 5_000)
    await compare_late_writers(folder, 10, 5_000)
