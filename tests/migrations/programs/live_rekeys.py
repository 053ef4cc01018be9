"""
What the tests of re-keys beside a writer run: two processes move flights and are killed, while another process inserts,
changes and deletes flights through the newer model; then the re-key is verified, sealed and finalized beside it too.

    python live_rekeys.py URL COUNT    prints a line of JSON: how often a process was killed, and what is wrong

What is compared at the end are rows as the store has them, with the flights as they were made and what the writer was
told that it has done.
"""

import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.flights import TailFlight, fill_flights, make_flights, to_tail
from tableorm import Database, EntityExists, EntityNotFound, RunReport, TableOrmError, connect
from tableorm.jobs import plan
from tableorm.rekey import phases as rekey_phases
from tableorm_migrations import finalize_move, rekey_phase, run_move, seal_move, verify_move
from tableorm_migrations.rekey import phases
from tests.migrations.programs.processes import NEVER, Deadly, fork, wait_for_any

LEASE = 0.5
KILLED = 5

Keys = tuple[str, str]
Expected = dict[Keys, list[int | None]]
"""By key the delays that a flight may have, which are several if a reply was lost; None if it may be missing."""


def keys_of(flight: TailFlight) -> Keys:
    return flight.tail, f"{flight.day}_{flight.minute:04d}_{flight.carrier}_{flight.flight:04d}"


async def prepare(url: str, count: int) -> None:
    async with connect(url) as db:
        await fill_flights(db, count)


async def move(url: str, fatal: int) -> dict[str, Any]:
    async with connect(url, on_request=Deadly(fatal)) as db:
        report = await run_move(db, TailFlight, no_blind_writers=True, lease=LEASE)
    return {"step": "move", "complete": report.complete, "failures": [*report.failures]}


async def end(url: str) -> list[str]:
    """Verify, seal and finalize; return what is wrong."""
    steps: list[tuple[str, Callable[..., Coroutine[Any, Any, RunReport]]]] = [
        ("move", run_move),
        ("verify", verify_move),
        ("seal", partial(seal_move, no_old_programs=True)),
        ("finalize", finalize_move),
    ]
    async with connect(url) as db:
        for name, step in steps:
            report = await step(db, TailFlight, lease=LEASE)
            if not report.complete:
                return [f"{name}: {report.failures[:3]}"]
    return []


async def write(url: str, count: int, over: Path) -> dict[str, Any]:
    """Write flights until it is over; return what may be stored of them, and what was wrong."""
    chance, expected, problems, done = random.Random(count), Expected(), list[str](), 0
    flights = [to_tail(each) for each in make_flights(count)]
    async with connect(url) as db:
        while await rekey_phase(db, TailFlight) == "expand":  # noqa: ASYNC110 - another process ends it
            await asyncio.sleep(0.01)
        while not over.exists() and over.parent.exists():  # noqa: ASYNC240 - it takes no time
            await asyncio.sleep(0.005)
            verb, flight = chance.choice(["insert", "change", "change", "delete"]), chance.choice(flights)
            if verb == "insert" and chance.random() < 0.7:
                flight = flight.evolve(flight=9_100 + chance.randrange(800))
                flights.append(flight)
            keys = keys_of(flight)
            may_be = expected.get(keys, [0] if flight.flight <= 9_000 else [None])
            there = [each for each in may_be if each is not None]
            after: list[int | None] = [each + 1 for each in there] if verb == "change" else [None]
            after = [0] if verb == "insert" else after
            try:
                found = await _act(db, verb, flight)
            except TableOrmError:
                expected[keys] = [*dict.fromkeys([*may_be, *after])]
                continue
            done += found == (verb != "insert")
            now: list[int | None] = [*there] if found else [each for each in may_be if each is None]
            if not now:
                problems.append(f"{verb} of {keys} found it {'there' if found else 'missing'}, not {may_be}")
            expected[keys] = after if found == (verb != "insert") else now
    return {"expected": [*expected.items()], "problems": problems[:5], "done": done}


async def _act(db: Database, verb: str, flight: TailFlight) -> bool:
    """Do something with a flight; return whether it was there."""

    def add_delay(stored: TailFlight) -> None:
        stored.delay += 1

    try:
        if verb == "insert":
            await db.insert(flight.evolve())
            return False
        await (db.modify(flight.key, add_delay) if verb == "change" else db.delete(flight.key, if_match="*"))
    except EntityExists:
        return True
    except EntityNotFound:
        return False
    return True


async def find_problems(url: str, count: int, written: Expected) -> list[str]:
    """Compare what is stored with what was made and written."""
    made = {keys_of(flight): flight for flight in map(to_tail, make_flights(count))}
    async with connect(url) as db:
        left = [row.row async for row in db.select_raw("DayFlights").allow_scan()]
        rows = [row.row async for row in db.select_raw("TailFlights").allow_scan()]
    found = {(row["PartitionKey"], row["RowKey"]): row for row in rows}
    problems = [f"left: {len(left)}, such as {left[0]}"] if left else []
    for keys in made.keys() | written.keys() | found.keys():
        row = found.get(keys)
        if row is not None and row["EntityType"] != "TailFlight":
            problems.append(f"{row} is left")
        may_be = written.get(keys, [0] if keys in made else [None])
        if (None if row is None else row["delay"]) not in may_be:
            problems.append(f"{keys}: {row}, and {may_be} was expected")
        if row is not None and keys in made and row["distance"] != made[keys].distance:
            problems.append(f"{keys}: has the distance {row['distance']}")
    return problems[:10]


def run_live(url: str, count: int, over: Path) -> dict[str, Any]:
    """Move beside a writer, and kill processes; return how often, and what is wrong."""
    chance = random.Random(count)
    fork(partial(prepare, url, count)).result()
    most = max(120, count // 20)
    fatal = iter([*(chance.randint(20, most) for _ in range(KILLED)), NEVER, NEVER])
    running = [fork(partial(move, url, next(fatal)))]
    writer = fork(partial(write, url, count, over))
    running.append(fork(partial(move, url, next(fatal))))
    killed, problems = 0, list[str]()
    try:
        while running:
            ended = wait_for_any(running)
            running.remove(ended)
            report = ended.result()
            if report is None:
                killed += 1
                running.append(fork(partial(move, url, next(fatal))))
            elif not report["complete"]:
                problems.append(f"{report}")
        problems += fork(partial(end, url)).result()
    finally:
        over.touch()
    said = writer.result()
    written: Expected = {(keys[0], keys[1]): may_be for keys, may_be in said["expected"]}
    problems += said["problems"] + fork(partial(find_problems, url, count, written)).result()
    return {"killed": killed, "written": said["done"], "problems": problems}


if __name__ == "__main__":
    plan.__dict__["SMALL_PAGES"] = 0  # so that the processes have many ranges to share also of few flights
    # A program knows a phase soon here, so that the gates take seconds and not minutes.
    rekey_phases.__dict__["ASK_AGAIN"] = 0.25
    phases.__dict__["KNOWN_EVERYWHERE"] = 2.0
    connect(sys.argv[1])  # loads the backend, which the forked processes then have
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run_live(sys.argv[1], int(sys.argv[2]), Path(folder) / "over")))  # noqa: T201
