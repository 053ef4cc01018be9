"""
What the test of killed processes runs: a program of every sort of write, killed at its n-th request, for each n.

    python child_office.py URL FIRST LAST STEP        prints a line of JSON for each n

Each time a child is forked that runs the program from the beginning and kills itself with SIGKILL, either just before
the request is sent, or while it is under way. Another child then looks at all that is stored, writes on, and looks
again.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tableorm import Database, Transaction, connect
from tableorm.stores import Operation, TableStore
from tests.faults import QUICK, FaultyBackend, FaultyStore
from tests.indexes.office import Person, Team, check
from tests.indexes.worker import TEAMS, Writer, read_partition


class Deadly(FaultyStore):
    """
    A store whose user is killed at a write.

    Args:
        store: The real store.
        at: Number of the write.
        during: Whether the write is under way then.
    """

    def __init__(self, store: TableStore, at: int, *, during: bool) -> None:
        super().__init__(store)
        self._left, self._during = at, during

    async def _arrive(self, table: str, operations: Sequence[Operation], *, transaction: bool) -> list[str | None]:
        if self._left == 0:
            if not self._during:
                _kill()
            threading.Timer(0.0005 * (len(operations) % 4), _kill).start()
        self._left -= 1
        return await super()._arrive(table, tuple(operations), transaction=transaction)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _person(number: int, **values: Any) -> Person:
    given: dict[str, Any] = {"id": number, "mail": f"m{number}", "team": "x", "points": number % 6, **values}
    return Person(**given)


async def program(db: Database) -> None:
    """Every sort of write; the list of the city `a` is divided on the way."""
    for number in range(1, 12):
        await db.insert(_person(number))

    def move(person: Person) -> None:
        person.mail, person.city, person.team, person.points = "moved", "b", "y", 5

    await db.modify(Person, move, id=3)
    await db.upsert(_person(4, mail=None, city="b"), mode="replace")
    await db.upsert(_person(40, mail="m4", team=None))

    async def swap(tx: Transaction) -> None:
        one, two = await tx.get(Person, id=5), await tx.get(Person, id=6)
        one.mail, two.mail, one.city = two.mail, one.mail, "b"
        tx.save(one)
        tx.save(two)

    await db.run_transaction(swap)

    def lead(team: Team) -> None:
        team.leader = 7

    await db.modify(Team, lead, name="z")
    await db.modify(Person, move_of("led"), id=7)
    async with db.transaction() as tx:
        tx.delete(await db.get(Person, id=8))
        tx.insert(_person(41, mail="m8", team="z"))
    await db.merge(_person(9, city="c", points=1), only=[Person.city, Person.points], if_match="*")
    await db.delete(Person, id=10, if_match="*")


def move_of(mail: str) -> Callable[[Person], None]:
    """Gives a person another address."""

    def move(person: Person) -> None:
        person.mail = mail

    return move


async def run(url: str, at: int, *, during: bool) -> None:
    """The program, on a table of its own, killed at a write."""
    async with connect(url, retry=QUICK) as real:
        if "Office" in await real.tables():
            await real.drop_table("Office")
        await real.create_tables(Person)
        for name in TEAMS:
            await real.insert(Team(name=name))
        backend = FaultyBackend()
        backend.tables = Deadly(real.backend.tables, at, during=during)
        async with Database(backend, retry=QUICK) as db:
            await program(db)


async def look_and_go_on(url: str, pipe: int) -> None:
    """What is wrong now, and after somebody else has written on."""
    async with connect(url, retry=QUICK) as db:
        before = check(await read_partition(db))
        await Writer(db, 1).run(4)
        after = check(await read_partition(db))
    os.write(pipe, json.dumps([before, after]).encode())


def fork(work: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run it in a child; how that ended, as `os.waitpid` says."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(work())
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def main(url: str, first: int, last: int, step: int) -> None:
    """One line for each write at which the program was killed; the last for the first that it does not reach."""
    for at in range(first, last, step):
        ended: list[int] = []
        for during in (False, True) if at % 3 == 0 else (False,):
            ended.append(fork(lambda at=at, during=during: run(url, at, during=during)))  # type: ignore[misc]
            reading, writing = os.pipe()
            looked = fork(lambda pipe=writing: look_and_go_on(url, pipe))  # type: ignore[misc]
            os.close(writing)
            with os.fdopen(reading, "rb") as found:
                wrong = json.loads(found.read() or b"[]")
            line = {"at": at, "during": during, "ended": ended[-1], "looked": looked, "wrong": wrong}
            print(json.dumps(line), flush=True)  # noqa: T201
        if ended[0] == 0:
            return


if __name__ == "__main__":
    main(sys.argv[1], *(int(each) for each in sys.argv[2:5]))
