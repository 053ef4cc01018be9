"""
What the test of killed jobs runs: a process does a job and kills itself after one of its requests. Another process,
which works on it too or comes when the first is dead, ends it.

    python killed_jobs.py COUNT FOLDER    prints a line of JSON for each try: the job, the request, whether somebody
                                          died there, and what is wrong in the end

Of the requests of each kind of jobs so many are chosen by chance; with 0 a process dies after each.
"""

import json
import random
import shutil
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from tableorm import connect
from tableorm.jobs import plan, scan
from tableorm_migrations.rekey import phases
from tests.migrations.programs.kinds import COUNT, LEASE, RUNS, UNCOUNTED, Run, find_problems, prepare
from tests.migrations.programs.processes import NEVER, Deadly, fork


async def call(path: Path, function: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
    """Call a function with a database, and return what it returns."""
    async with connect(f"local:{path}") as db:
        return await function(db, *arguments)


async def work(path: Path, run: Run, fatal: int = NEVER) -> list[Any]:
    """Do a job; return how many requests that took, and what was reported."""
    deadly = Deadly(fatal)
    async with connect(f"local:{path}", on_request=deadly) as db:
        report = await run(db, LEASE)
    return [deadly.count, report.state, COUNT if run in UNCOUNTED else report.entities, report.failed]


def main(count: int, folder: Path) -> None:
    """Let each kind of jobs die."""
    scan.MAX_PAGE = 10  # type: ignore[attr-defined]
    plan.__dict__["SMALL_PAGES"] = 0  # so that there are many ranges to share
    phases.__dict__["KNOWN_EVERYWHERE"] = 0.0
    connect("local::memory:")  # loads the backend, which the forked processes then have
    path = folder / "killed"
    for run in RUNS:
        chance, first, journal = random.Random(run.__name__), folder / run.__name__, folder / f"{run.__name__} journal"
        fork(partial(call, first, prepare, journal, run)).result()
        shutil.copy(first, path)
        requests = range(1, fork(partial(work, path, run)).result()[0] + 1)
        for fatal in chance.sample(requests, count or len(requests)):
            shutil.copy(first, path)
            mortal = fork(partial(work, path, run, fatal))
            ends = [mortal.result()] if chance.random() < 0.5 else []
            last = fork(partial(work, path, run))
            ends += [last.result()] if ends else [last.result(), mortal.result()]
            wrong = [each for each in ends if each is not None and each[1:] != ["done", COUNT, 0]]
            wrong += fork(partial(call, path, find_problems, journal, run)).result()
            print(json.dumps([run.__name__, fatal, None in ends, wrong]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
