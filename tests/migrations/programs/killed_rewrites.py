"""
What the tests of killed processes run: two processes rewrite accounts, and three times one of them is killed.

    python killed_rewrites.py URL COUNT    prints a line of JSON: what was done, and what is wrong

Meanwhile an old program and a new one write the same accounts.
"""

import json
import random
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from tableorm import connect
from tableorm_migrations import rewrite
from tests.migrations.programs.accounts import (
    CLOSED,
    Account,
    Visits,
    change_of_old,
    find_problems,
    open_accounts,
    visit,
)
from tests.migrations.programs.processes import NEVER, Deadly, fork, wait_for_any

LEASE = 0.5
NAME = "cents"
KILLED = 3


async def prepare(url: str, count: int) -> None:
    async with connect(url) as db:
        await open_accounts(db, count)


async def rewrite_all(url: str, fatal: int) -> dict[str, Any]:
    """Rewrite, together with others; return what was reported."""
    async with connect(url, on_request=Deadly(fatal)) as db:
        report = await rewrite(db, Account, name=NAME, parallel=4, lease=LEASE)
    return {name: getattr(report, name) for name in ("complete", "state", "entities", "written", "failed")}


async def write(url: str, count: int, over: Path, *, old: bool) -> list[tuple[int, int]]:
    """Visit accounts until it is over, or nobody looks any more."""
    program = change_of_old if old else visit
    async with connect(url) as db:
        visits = await program(
            db, range(count), random.Random(count), lambda: over.exists() or not over.parent.exists()
        )
    return [*visits.items()]


async def look(url: str, count: int, writers: list[Visits]) -> list[str]:
    async with connect(url) as db:
        return (await find_problems(db, count, writers))[:10]


def run_killed(url: str, count: int, over: Path) -> dict[str, Any]:
    """Let two processes rewrite, and one of them die three times; return what was done, and what is wrong."""
    chance = random.Random(count)
    fork(partial(prepare, url, count)).result()
    writers = [fork(partial(write, url, count, over, old=old)) for old in (True, False)]
    # Each dies in the first part, so that there is work for those that come after it.
    most = max(20, count // 500)
    fatal = iter([*(chance.randint(3, most) for _ in range(KILLED)), NEVER, NEVER])
    running = [fork(partial(rewrite_all, url, next(fatal))) for _ in range(2)]
    reports, killed = list[dict[str, Any]](), 0
    try:
        while running:
            ended = wait_for_any(running)
            running.remove(ended)
            report = ended.result()
            if report is None:
                killed += 1
                running.append(fork(partial(rewrite_all, url, next(fatal))))
            else:
                reports.append(report)
    finally:
        over.touch()
    visits = [dict[int, int](each.result()) for each in writers]
    problems = [f"{each}" for each in reports if not each["complete"] or each["state"] != "done" or each["failed"]]
    problems += [] if all(visits) else ["a writer has written nothing"]
    # What is taken over is counted once; an account that is closed is counted if it was read before.
    least = count - sum([*each.values()].count(CLOSED) for each in visits)
    problems += [f"{each} of {least} to {count}" for each in reports if not least <= each["entities"] <= count]
    problems += fork(partial(look, url, count, visits)).result()
    return {"killed": killed, "reports": reports, "problems": problems}


if __name__ == "__main__":
    connect(sys.argv[1])  # loads the backend, which the forked processes then have
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run_killed(sys.argv[1], int(sys.argv[2]), Path(folder) / "over")))  # noqa: T201
