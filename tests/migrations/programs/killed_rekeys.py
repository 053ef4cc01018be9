"""
What the tests of killed re-keys run: two processes re-key flights while nobody writes, give that up, and do
it again; each step is killed.

    python killed_rekeys.py URL COUNT    prints a line of JSON: how often a process was killed, and what is wrong

What is compared at the end are rows as the store has them, with the flights as they were made.
"""

import json
import random
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from benchmarks.flights import DayFlight, TailFlight, fill_flights, make_flights
from tableorm import connect
from tableorm.jobs import plan
from tableorm_migrations import finalize_rekey, roll_back_rekey, run_rekey, verify_rekey
from tests.migrations.programs.processes import NEVER, Deadly, fork, wait_for_any

LEASE = 0.5

Step = Callable[[str, int], Coroutine[Any, Any, dict[str, Any]]]


async def prepare(url: str, count: int) -> None:
    async with connect(url) as db:
        await fill_flights(db, count)


async def copy(url: str, fatal: int) -> dict[str, Any]:
    async with connect(url, on_request=Deadly(fatal)) as db:
        report = await run_rekey(db, DayFlight, TailFlight, writers_stopped=True, lease=LEASE)
    return {"step": "copy", "complete": report.complete, "entities": report.entities}


async def verify(url: str, fatal: int) -> dict[str, Any]:
    async with connect(url, on_request=Deadly(fatal)) as db:
        report = await verify_rekey(db, DayFlight, TailFlight, lease=LEASE)
    return {"step": "verify", "complete": report.complete, "entities": report.entities}


async def roll_back(url: str, fatal: int) -> dict[str, Any]:
    async with connect(url, on_request=Deadly(fatal)) as db:
        report = await roll_back_rekey(db, DayFlight, TailFlight, no_new_programs=True, lease=LEASE)
    return {"step": "roll back", "complete": report.complete, "entities": report.entities}


async def finalize(url: str, fatal: int) -> dict[str, Any]:
    async with connect(url, on_request=Deadly(fatal)) as db:
        report = await finalize_rekey(db, DayFlight, TailFlight, lease=LEASE)
    return {"step": "finalize", "complete": report.complete, "entities": report.entities}


async def find_problems(url: str, count: int) -> list[str]:
    """Compare what is stored after the re-key with what was made."""
    expected = {
        (each.tail or "unknown", f"{each.day}_{each.minute:04d}_{each.carrier}_{each.flight:04d}"): (
            each.origin,
            each.distance,
        )
        for each in make_flights(count)
    }
    async with connect(url) as db:
        left = [row.row async for row in db.select_raw("DayFlights").allow_scan()]
        rows = [row.row async for row in db.select_raw("TailFlights").allow_scan()]
    found = {(row["PartitionKey"], row["RowKey"]): (row["origin"], row["distance"]) for row in rows}
    problems = [f"left: {len(left)}"] if left else []
    problems += [f"{len(expected)} expected, {len(found)} found"] if len(expected) != len(found) else []
    return problems + [f"{key}: {found.get(key)}" for key in expected if found.get(key) != expected[key]][:5]


async def find_rest(url: str, count: int) -> list[str]:
    """Compare what is stored after a copy was given up with what was made."""
    expected = {
        (each.origin, each.distance, each.tail, each.flight, each.minute, each.day) for each in make_flights(count)
    }
    async with connect(url) as db:
        copied = [row async for row in db.select_raw("TailFlights").allow_scan()]
        flights = await db.select(DayFlight).allow_scan().all()
    found = {(each.origin, each.distance, each.tail, each.flight, each.minute, each.day) for each in flights}
    problems = [f"copied: {len(copied)}"] if copied else []
    return problems + ([f"{len(found ^ expected)} older ones differ"] if found != expected else [])


def share_step(url: str, step: Step, fatal: list[int]) -> tuple[int, list[str]]:
    """Let two processes do a step together, of which some are killed; return how often, and what is wrong."""
    left = iter([*fatal, NEVER, NEVER])
    running = [fork(partial(step, url, next(left))) for _ in range(2)]
    killed, problems = 0, list[str]()
    while running:
        ended = wait_for_any(running)
        running.remove(ended)
        report = ended.result()
        if report is None:
            killed += 1
            running.append(fork(partial(step, url, next(left))))
        elif not report["complete"]:
            problems.append(f"{report}")
    return killed, problems


def run_killed(url: str, count: int) -> dict[str, Any]:
    """Copy, roll back, copy again, verify and finalize, and kill processes in each step."""
    chance = random.Random(count)
    fork(partial(prepare, url, count)).result()
    killed, problems = 0, list[str]()
    for step, deaths in ((copy, 1), (roll_back, 1), (copy, 2), (verify, 1), (finalize, 1)):
        fatal = [chance.randint(150, 400) for _ in range(deaths)]
        more, wrong = share_step(url, step, fatal)
        killed, problems = killed + more, problems + wrong
        if step is roll_back:
            problems += fork(partial(find_rest, url, count)).result()
    return {"killed": killed, "problems": problems + fork(partial(find_problems, url, count)).result()}


if __name__ == "__main__":
    plan.__dict__["SMALL_PAGES"] = 0  # so that the processes have many ranges to share also of few flights
    connect(sys.argv[1])  # loads the backend, which the forked processes then have
    print(json.dumps(run_killed(sys.argv[1], int(sys.argv[2]))))  # noqa: T201
