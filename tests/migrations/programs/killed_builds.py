"""
What the tests of killed processes run: two processes build one index, or one list, and kill themselves after one of
their requests, or stand still there for longer than the others wait for them.

    python killed_builds.py URL COUNT FOLDER [list]    prints a line of JSON for each run: who died, and what is wrong

Meanwhile a third process writes, and a fourth reads by the index or the list. When a builder has died, a last one goes
on. With a COUNT so many runs are chosen by chance, of an index and of a list in turn, first of a list if that is said;
without, which is 0, there is one of each for each request of a builder.
"""

import asyncio
import json
import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from tableorm import connect
from tableorm.jobs import plan, scan
from tests.migrations.programs.clerks import Clerk, find_problems, hire, read_desks, write_desks
from tests.migrations.programs.processes import NEVER, Deadly, fork

LEASE = 0.4
CLERKS = 120
PAGE = 10
NAME = "desks"
ABOUT = 120
"""How many requests a builder sends at least."""


@attrs.frozen
class Scene:
    """
    A database in which runs are tried.

    Args:
        url: What opens it.
        prefix: What its tables begin with: of each run others.
        journal: The journal of its writers.
        listed: Whether the lists are built and read, and not the index.
    """

    url: str
    prefix: str
    journal: Path
    listed: bool

    def over(self) -> bool:
        """Whether writers and readers shall end; they do also when nobody looks at them any more."""
        return self.journal.with_suffix(".over").exists() or not self.journal.exists()

    def end(self) -> None:
        """Let writers and readers end."""
        self.journal.with_suffix(".over").touch()

    def connect(self) -> Any:
        return connect(self.url, prefix=self.prefix)


async def prepare(scene: Scene) -> None:
    async with scene.connect() as db:
        await hire(db, scene.journal, CLERKS)


async def write(scene: Scene, seed: int) -> int:
    """Write half of the clerks, and as many new ones, in two tasks."""
    chance = random.Random(seed)
    async with scene.connect() as db:
        shares = [range(first, 2 * CLERKS, 4) for first in (0, 1)]
        return sum(
            await asyncio.gather(*(write_desks(db, scene.journal, share, chance, scene.over) for share in shares))
        )


async def read(scene: Scene) -> dict[str, Any]:
    return await read_desks(scene.connect, scene.journal, scene.over, listed=scene.listed)


async def build(scene: Scene, fatal: int = NEVER) -> dict[str, Any]:
    """Build the index or the list, together with others; return what was reported, and how many requests that were."""
    deadly, index = Deadly(fatal, 2 * LEASE), Clerk.at_desk if scene.listed else Clerk.by_desk
    async with connect(scene.url, prefix=scene.prefix, on_request=deadly) as db:
        report = await db.build_index(index, name=NAME, no_older_writers=True, parallel=2, lease=LEASE)
    return {"complete": report.complete, "state": report.state, "text": str(report), "requests": deadly.count}


async def look(scene: Scene) -> list[str]:
    """Return what is wrong when all have ended, and clear up."""
    async with scene.connect() as db:
        problems = await find_problems(db, scene.journal, listed=scene.listed)
        for table in await db.tables():
            await db.drop_table(table)
        return problems


def run_deaths(scene: Scene, deaths: tuple[int, ...], seed: int) -> tuple[list[str], int]:
    """Let builders die after these requests; return what is wrong in the end, and the requests of the last builder."""
    fork(partial(prepare, scene)).result()
    writer, reader = fork(partial(write, scene, seed)), fork(partial(read, scene))
    try:
        builders = [fork(partial(build, scene, fatal)) for fatal in deaths]
        reports = [report for each in builders if (report := each.result()) is not None]
        if len(reports) < len(builders):
            reports.append(fork(partial(build, scene)).result())
    finally:
        scene.end()
    writes, said = writer.result(), reader.result()
    problems = [f"{report}" for report in reports if not report["complete"] or report["state"] != "done"]
    problems += [f"a reader: {each}" for each in said["problems"]]
    problems += [] if writes else ["nobody has written"]
    return problems + fork(partial(look, scene)).result(), reports[-1]["requests"]


def main(url: str, count: int, folder: Path, *, list_first: bool) -> None:
    """Try some deaths."""
    scan.MAX_PAGE = PAGE  # type: ignore[attr-defined]
    plan.__dict__["SMALL_PAGES"] = 0  # so that the processes have many ranges to share
    connect(url)  # loads the backend, which the forked processes then have
    chance = random.Random(count)

    def scene(number: int, *, listed: bool) -> Scene:
        return Scene(url, f"case{number}x", folder / f"journal{number}", listed)

    cases = [((number % 2 == 0) is list_first, chance.randint(1, ABOUT)) for number in range(count)]
    for listed in () if count else (False, True):
        found, requests = run_deaths(scene(int(listed), listed=listed), (NEVER,), 0)
        print(json.dumps([f"{listed=}: of {requests} requests none is fatal", found]), flush=True)  # noqa: T201
        cases += [(listed, fatal) for fatal in range(1, requests + 1)]
    for number, (listed, first) in enumerate(cases, 2):
        # The second one lives, dies too, or stands still; and so does sometimes the first.
        second = chance.choice([NEVER, chance.randint(1, ABOUT), -chance.randint(1, ABOUT)])
        deaths = (first if chance.random() < 0.8 else -first, second)
        found, _ = run_deaths(scene(number, listed=listed), deaths, number)
        print(json.dumps([f"{listed=}: deaths after {deaths}", found]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), list_first=sys.argv[4:] == ["list"])
