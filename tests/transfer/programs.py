"""
A program of the tests: it copies, exports and imports many rows, and prints how much memory each of these took.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from tableorm import TransferReport, connect
from tableorm_local.engine import files
from tests.transfer.rows import TABLE, fill, make_rows

FIRST = 5_000
files.__dict__["_CACHE_KIB"] = 1024  # or the memory of SQLite grows until its cache is full


def anonymous_kib() -> int:
    """The memory of this process that is not of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def watch() -> tuple[Callable[[TransferReport], None], Callable[[], int]]:
    """Return what takes note of the memory, and what returns how much it grew after the first rows."""
    first, most = 0, 0

    def note(report: TransferReport) -> None:
        nonlocal first, most
        if report.entities <= FIRST:
            first = max(first, anonymous_kib())
        most = max(most, anonymous_kib())

    return note, lambda: most - first


async def main(folder: str, count: int, name: str) -> None:
    async with connect(f"local:{folder}/from.tables") as db, connect(f"local:{folder}/to.tables") as target:
        await fill(db.store, make_rows(count, partitions=50, text="x" * 200))
        note, grown = watch()
        if name == "copy":
            report = await db.copy_rows(target, on_progress=note)
        else:
            await db.export_rows(TABLE, f"{folder}/rows.{name}", on_progress=note)
            report = await target.import_rows(f"{folder}/rows.{name}", TABLE, on_progress=note)
        assert report.written == count
        sys.stdout.write(str(grown()))


asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
