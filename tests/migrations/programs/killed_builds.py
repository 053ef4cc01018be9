"""
What the tests of killed processes run: two processes build one index, or one list, and kill themselves after one of
their requests, or stand still there for longer than the others wait for them.

    python killed_builds.py URL COUNT FOLDER SEED    prints a line of JSON for each run: who died, and what is wrong

Meanwhile a third process writes, and a fourth reads by the index or the list. When a builder has died, a last one goes
on. There is a run of each for each request of a builder; with a COUNT so many of them are chosen, by chance.
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
REQUESTS = {False: 120, True: 220}
"""About how many requests a builder of the index sends, and one of the list."""


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


async def build(scene: Scene, fatal: int = NEVER) -> list[str]:
    """Build the index or the list, together with others; return what is wrong with the report."""
    deadly, index = Deadly(fatal, 2 * LEASE), Clerk.at_desk if scene.listed else Clerk.by_desk
    async with connect(scene.url, prefix=scene.prefix, on_request=deadly) as db:
        report = await db.build_index(index, name=NAME, no_older_writers=True, parallel=2, lease=LEASE)
    return [] if report.complete else [str(report)]


async def look(scene: Scene) -> list[str]:
    """Return what is wrong when all have ended, and clear up."""
    async with scene.connect() as db:
        problems = await find_problems(db, scene.journal, listed=scene.listed)
        for table in await db.tables():
            await db.drop_table(table)
        return problems


def run_deaths(scene: Scene, deaths: tuple[int, ...], seed: int) -> list[str]:
    """Let builders die after these requests; return what is wrong in the end."""
    fork(partial(prepare, scene)).result()
    reading = partial(read_desks, scene.connect, scene.journal, scene.over, listed=scene.listed)
    writer, reader = fork(partial(write, scene, seed)), fork(reading)
    try:
        builders = [fork(partial(build, scene, fatal)) for fatal in deaths]
        ends = [each.result() for each in builders]
        if None in ends:
            ends.append(fork(partial(build, scene)).result())
    finally:
        scene.end()
    writes, said = writer.result(), reader.result()
    problems = [each for end in ends if end for each in end]
    problems += [f"a reader: {each}" for each in said["problems"]]
    problems += [] if writes else ["nobody has written"]
    problems += fork(partial(look, scene)).result()
    return problems


def main(url: str, count: int, folder: Path, seed: int) -> None:
    """Try some deaths."""
    scan.MAX_PAGE = PAGE  # type: ignore[attr-defined]
    plan.__dict__["SMALL_PAGES"] = 0  # so that the processes have many ranges to share
    connect(url)  # loads the backend, which the forked processes then have
    chance = random.Random(seed)
    cases = [(listed, fatal) for listed, most in REQUESTS.items() for fatal in range(1, most + 1)]
    for number, (listed, first) in enumerate(chance.sample(cases, count) if count else cases):
        # The second one lives, dies too, or stands still; and so does sometimes the first.
        other = chance.randint(1, REQUESTS[listed])
        second = chance.choice([NEVER, other, -other])
        deaths = (first if chance.random() < 0.8 else -first, second)
        scene = Scene(url, f"case{number}x", folder / f"journal{number}", listed)
        print(json.dumps([f"{listed=}: deaths after {deaths}", run_deaths(scene, deaths, number)]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
