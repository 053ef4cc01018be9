"""
What the test of killed writers runs: a program that writes with eventual indexes, killed after its n-th request.

    python child_staff.py URL FIRST STEP        prints a line of JSON for each n

Each time a child is forked that runs the program in a partition of its own, and kills itself with SIGKILL. Another one
then does what workers do, and looks at all that is stored.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from tableorm import Database, ObservedRequest, connect
from tableorm.connection.connection import connection_of
from tableorm.outbox import shared_bell
from tests.outbox.staff import Person, committed_decisions, extra_entries, recover, wrong_entries

shared_bell.HIDDEN_SECONDS = 0


async def write(url: str, number: int) -> None:
    """Insert, change, delete and insert again; then move within the partition, in a transaction with another insert."""
    count = 0

    def die(_: ObservedRequest) -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    async with connect(url, on_request=die) as db:
        team = f"team{number}"
        ann = Person(team=team, id=1, name="Ann", city="Oslo")
        await db.insert(ann)
        ann.name, ann.city = "Anna", "Rome"
        await db.save(ann)
        await db.delete(ann)
        await db.insert(ann)
        async with db.transaction() as tx:
            tx.move(ann, id=2)
            tx.insert(Person(team=team, id=3, city="Rome"))


async def look(url: str) -> None:
    """Print what is wrong after workers have done what was left."""
    async with connect(url) as db:
        await recover(db)
        say(await problems(db))


async def problems(db: Database) -> list[Any]:
    store = connection_of(db).store
    return [await committed_decisions(store), await wrong_entries(store), sorted(await extra_entries(store))]


def say(value: object) -> None:
    sys.stdout.write(f"{json.dumps(value)}\n")
    sys.stdout.flush()


def run_forked(work: Coroutine[Any, Any, None]) -> int:
    """Run something in a child, and return how that has ended."""
    pid = os.fork()
    if pid == 0:
        asyncio.run(work)
        os._exit(0)
    work.close()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def create(url: str) -> None:
    async with connect(url) as db:
        await db.create_tables(Person)


def main() -> None:
    """Kill the program after each request, until it has no more."""
    url, first, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    run_forked(create(url))
    number, ended = first, -signal.SIGKILL
    while ended == -signal.SIGKILL:
        ended = run_forked(write(url, number))
        run_forked(look(url))
        number += step
    say(ended)


main()
