"""
What the tests of killed processes run: plans whose writers and workers kill themselves after one of their requests.

    python child_plans.py URL COUNT PLAN ...    prints a line of JSON for each run: what died, and what is wrong then

Each process is forked, which is quick. In every run one writer dies, and up to two workers after it; then a worker that
lives does what they have left. With a COUNT so many runs are chosen by chance; without, which is 0, all are tried.
"""

import datetime as dt
import json
import random
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import attrs

from tableorm import ObservedRequest, connect
from tableorm.connection.connection import connection_of
from tableorm.outbox import shared_bell
from tableorm.outbox import worker as worker_module
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.stores import CLOCK, Verb
from tableorm.writes import move_entity
from tests.migrations.programs.processes import NEVER, Deadly, fork
from tests.outbox.clean_run import CleanRun, run_plan
from tests.outbox.plans import PLANS, Plan, prepare
from tests.outbox.staff import TARGETS, content_of, find_problems

HOUR = dt.timedelta(hours=1)
WRITES = frozenset({*Verb, "transaction", "put-message", "put-blob"})
"""What a commit consists of; a request of another sort may come between."""


@attrs.frozen
class Deaths:
    """
    Who dies when in a run.

    Args:
        writer: The number of the request after which the writer dies, from 1; `NEVER` if it ends by itself.
        workers: The same of each worker.
        after_commit: Whether the writer dies at its first commit instead.
    """

    writer: int
    workers: tuple[int, ...] = ()
    after_commit: bool = False


class DeadlyWrites(Deadly):
    """Counts writes alone."""

    def __call__(self, request: ObservedRequest) -> None:
        if request.operation in WRITES:
            super().__call__(request)


async def write(url: str, prefix: str, plan: Plan, deaths: Deaths) -> int:
    """Follow a plan, in tables of its own; return how many requests that were."""
    async with connect(url, prefix=prefix) as db:
        await prepare(db, plan)
    counter = DeadlyWrites(plan.commit) if deaths.after_commit else Deadly(deaths.writer)
    async with connect(url, prefix=prefix, on_request=counter) as db:
        await plan.act(db)
    return counter.count


async def work(url: str, prefix: str, fatal: int = NEVER) -> int:
    """Work until nothing is left to do; return how many requests that were."""
    counter = Deadly(fatal)
    async with (
        connect(url, prefix=prefix, on_request=counter) as db,
        db.worker(*TARGETS, visibility=1, tries=9) as worker,
    ):
        await worker.drain()
    return counter.count


async def look(url: str, prefix: str, run: CleanRun, deaths: Deaths) -> list[str]:
    """Return what is wrong, and clear up."""
    async with connect(url, prefix=prefix) as db:
        problems = await find_problems(db)
        content = await content_of(db.store, connection_of(db).blobs)
        begun = deaths.after_commit and not run.plan.by_team  # of which another message may come first
        problems += run.find_loss(content, begun=begun, done=deaths == Deaths(NEVER))
        await clear(url, prefix)
        return problems


async def clear(url: str, prefix: str) -> None:
    """Drop the tables, the queue and the containers."""
    async with connect(url, prefix=prefix) as db:
        for table in await db.tables():
            await db.drop_table(table)
        await outbox_queues(connection_of(db)).delete_queue(OUTBOX)
        for container in await db.blobs.list_containers():
            await db.blobs.delete_container(container)


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


def run_deaths(url: str, prefix: str, run: CleanRun, deaths: Deaths) -> list[str]:
    """Let all of them die; return what is wrong after the last worker."""
    hour = int(url.startswith("local:"))  # another service has a clock of its own
    run_forked(partial(write, url, prefix, run.plan, deaths))
    for number, fatal in enumerate((*deaths.workers, NEVER), 1):
        run_forked(partial(work, url, prefix, fatal), number * hour)
    found: list[str] = run_forked(partial(look, url, prefix, run, deaths))
    return found


async def run_in_memory(plan: Plan) -> list[Any]:
    run = await run_plan(plan)
    return [run.contents, run.writes]


def all_deaths(url: str, run: CleanRun, chance: random.Random) -> list[Deaths]:
    """Return a death after each request of the writer, alone and with workers that die; and after each of a worker."""
    prefix, hour = f"count{run.plan.name.replace('_', '')}", int(url.startswith("local:"))
    requests: int = run_forked(partial(write, url, f"{prefix}a", run.plan, Deaths(NEVER)))
    committed = Deaths(NEVER, after_commit=True)
    run_forked(partial(write, url, f"{prefix}b", run.plan, committed))
    of_worker: int = run_forked(partial(work, url, f"{prefix}b"), hour)
    for each in "ab":
        run_forked(partial(clear, url, prefix + each))
    numbers = range(1, of_worker + 1)
    return [
        Deaths(NEVER),
        *(Deaths(fatal) for fatal in range(1, requests + 1)),
        *(attrs.evolve(committed, workers=(fatal,)) for fatal in numbers),
        *(Deaths(fatal, tuple(chance.choices(numbers, k=2))) for fatal in range(1, requests + 1)),
    ]


def main(url: str, count: int, names: list[str]) -> None:
    """Try some plans."""
    for module, name in ((shared_bell, "HIDDEN_SECONDS"), (move_entity, "_HIDDEN_SECONDS")):
        setattr(module, name, 0)
    if url.startswith("local:"):
        for name in ("_FIRST_PAUSE", "_LONGEST_PAUSE"):
            setattr(worker_module, name, 0)
    connect(url)  # loads the backend, which the forked processes then have
    chance = random.Random(count)
    cases: list[tuple[CleanRun, Deaths]] = []
    for plan in PLANS:
        if plan.name in names:
            run = CleanRun(plan, *run_forked(partial(run_in_memory, plan)))
            cases += [(run, deaths) for deaths in all_deaths(url, run, chance)]
    for number, (run, deaths) in enumerate(chance.sample(cases, count) if count else cases):
        found = run_deaths(url, f"case{number}x", run, deaths)
        line = json.dumps([f"{run.plan.name}: {deaths}", found])
        print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
