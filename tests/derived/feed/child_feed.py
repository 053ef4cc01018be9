"""
What the test of killed processes runs: one that writes entities, or one that follows the change feed into a file.

    python child_feed.py write URL FIRST COUNT   inserts so many employees and prints the id of each
    python child_feed.py read URL FILE           appends a line for each change, from the last whole line of the file on
"""

import asyncio
import datetime as dt
import sys
from pathlib import Path

from tableorm import connect
from tests.derived.feed.staff import Employee


async def write(url: str, first: int, count: int) -> None:
    async with connect(url) as db:
        for number in range(first, first + count):
            await db.upsert(Employee(id=number))
            print(number, flush=True)  # noqa: T201


def last_cursor(path: Path) -> str | None:
    """Return where the reader before has got to, and cut off what it could not write to the end."""
    text = path.read_text() if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    path.write_text(whole)
    return whole.splitlines()[-1].split()[0] if whole else None


async def read(url: str, path: Path) -> None:
    cursor = last_cursor(path)
    with path.open("a") as file:
        async with connect(url) as db:
            stream = db.changes(Employee, department="Sales", after=cursor)
            async for change in stream.follow(pause=dt.timedelta(milliseconds=20)):
                ids = " ".join(each.key.row_key for each in change.entities)
                file.write(f"{change.cursor} {ids}\n")
                file.flush()


if __name__ == "__main__":
    if sys.argv[1] == "write":
        asyncio.run(write(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    else:
        asyncio.run(read(sys.argv[2], Path(sys.argv[3])))
