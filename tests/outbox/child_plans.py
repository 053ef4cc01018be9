"""
What the tests of killed processes run: plans whose writers and workers kill themselves after one of their requests.

    python child_plans.py URL COUNT PLAN ...    prints a line of JSON for each run: what died, and what is wrong then

Each process is forked, which is quick. In every run one writer dies, and up to two workers after it; then a worker that
lives does what they have left. With a COUNT so many runs are chosen by chance; without, which is 0, a writer dies after
each of its requests, until one ends by itself. That a worker dies after each of its own, `test_plans` tries in memory.
"""

import datetime as dt
import itertools
import json
import random
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from tableorm import connect
from tableorm.connection.connection import connection_of
from tableorm.outbox import shared_bell
from tableorm.outbox import worker as worker_module
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.stores import CLOCK
from tableorm.writes import move_entity
from tests.migrations.programs.processes import NEVER, Deadly, fork
from tests.outbox.clean_run import CleanRun, run_plan
from tests.outbox.plans import PLANS, Plan, prepare
from tests.outbox.staff import TARGETS, content_of, find_problems

HOUR = dt.timedelta(hours=1)
MOST = 12
"""Writers and workers die after so many requests at most, if they send as many."""


async def write(url: str, prefix: str, plan: Plan, fatal: int) -> bool:
    """Follow a plan, in tables of its own; return that it has ended."""
    async with connect(url, prefix=prefix) as db:
        await prepare(db, plan)
    async with connect(url, prefix=prefix, on_request=Deadly(fatal)) as db:
        await plan.act(db)
    return True


async def work(url: str, prefix: str, fatal: int) -> None:
    """Work until nothing is left to do."""
    async with (
        connect(url, prefix=prefix, on_request=Deadly(fatal)) as db,
        db.worker(*TARGETS, visibility=1, tries=9) as worker,
    ):
        await worker.drain()


async def look(url: str, prefix: str, run: CleanRun, *, done: bool) -> list[str]:
    """Return what is wrong, and drop the tables, the queue and the containers."""
    async with connect(url, prefix=prefix) as db:
        problems = await find_problems(db)
        problems += run.find_loss(await content_of(db.store, connection_of(db).blobs), done=done)
        for table in await db.tables():
            await db.drop_table(table)
        await outbox_queues(connection_of(db)).delete_queue(OUTBOX)
        for container in await db.blobs.list_containers():
            await db.blobs.delete_container(container)
        return problems


def run_forked(work: Callable[[], Coroutine[Any, Any, Any]], hours: int = 0) -> Any:
    """
    Run something in another process, whose clock is ahead: what others have hidden is visible to it.

    Returns:
        What it has returned; None if it was killed.
    """

    async def work_ahead() -> Any:
        CLOCK.advance(hours * HOUR)
        return await work()

    return fork(work_ahead).result()


def run_deaths(url: str, prefix: str, run: CleanRun, deaths: list[int]) -> tuple[list[str], bool]:
    """
    Let a writer die after so many requests, and workers after it.

    Returns:
        What is wrong after the last worker, and whether the writer has ended by itself.
    """
    hour = int(url.startswith("local:"))  # another service has a clock of its own
    done = run_forked(partial(write, url, prefix, run.plan, deaths[0])) is not None
    for number, fatal in enumerate((*deaths[1:], NEVER), 1):
        run_forked(partial(work, url, prefix, fatal), number * hour)
    return run_forked(partial(look, url, prefix, run, done=done)), done


async def run_in_memory(plan: Plan) -> list[Any]:
    run = await run_plan(plan)
    return [run.contents, run.writes]


def main(url: str, count: int, names: list[str]) -> None:
    """Try some plans."""
    for module, name in ((shared_bell, "HIDDEN_SECONDS"), (move_entity, "_HIDDEN_SECONDS")):
        setattr(module, name, 0)
    if url.startswith("local:"):
        for name in ("_FIRST_PAUSE", "_LONGEST_PAUSE"):
            setattr(worker_module, name, 0)
    connect(url)  # loads the backend, which the forked processes then have
    chance = random.Random(count)
    runs = [CleanRun(plan, *run_forked(partial(run_in_memory, plan))) for plan in PLANS if plan.name in names]
    prefixes = map("case{}x".format, itertools.count())
    for run in chance.choices(runs, k=count) if count else runs:
        for first in [chance.randint(1, MOST)] if count else itertools.count(1):
            deaths = [first, *(chance.randint(1, MOST) for _ in range(chance.randrange(3)))]
            found, done = run_deaths(url, next(prefixes), run, deaths)
            print(json.dumps([f"{run.plan.name}: {deaths}", found]), flush=True)  # noqa: T201
            if done:
                break


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
