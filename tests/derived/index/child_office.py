"""
What the test of killed processes runs: a program of every sort of write, killed at its n-th request, for each n.

    python child_office.py URL MOMENTS FIRST STEP      prints a line of JSON for each n, and each moment

Each time a child is forked that runs the program from the beginning and kills itself with SIGKILL: just before the
request is sent, while it is under way, or before anybody hears the answer. Another child then looks at all that is
stored, writes on, and looks again: by an oracle, and by an audit.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from enum import StrEnum
from itertools import cycle, islice
from typing import Any

from tableorm import Database, Transaction, connect
from tableorm.connection.connection import connection_of
from tableorm.stores import Operation, TableStore
from tests.derived.index.office import Note, Person, Team, check
from tests.derived.index.worker import TEAMS, Writer, audited, read_partition
from tests.faults import QUICK, FaultyBackend, FaultyStore


class Moment(StrEnum):
    """Of a request, when its sender is killed."""

    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


class Deadly(FaultyStore):
    """
    A store whose user is killed at a write.

    Args:
        store: The real store.
        at: Number of the write.
        moment: When.
        pipe: Where what is asked then is written.
    """

    def __init__(self, store: TableStore, at: int, moment: Moment, pipe: int) -> None:
        super().__init__(store)
        self._left, self._moment, self._pipe = at, moment, pipe

    async def _arrive(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        mine = self._left == 0
        self._left -= 1
        if mine:
            os.write(self._pipe, json.dumps([_said(each) for each in operations]).encode())
            if self._moment is Moment.BEFORE:
                _kill()
            if self._moment is Moment.DURING:
                threading.Timer(0.0005 * (len(operations) % 4), _kill).start()
        etags = await super()._arrive(table, operations, transaction=transaction)
        if mine:
            _kill()
        return etags


def _said(operation: Operation) -> str:
    """What an operation does to which kind of rows."""
    row = operation.row
    return f"{operation.verb} {row.get('EntityType', row['RowKey'].partition('_')[0])}"


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
    async with db.bulk() as bulk:
        for number in range(20, 24):
            await bulk.upsert(_person(number, points=4, team=TEAMS[number % 3]))

    def dismiss(team: Team) -> None:
        team.leader = None

    await db.modify(Team, dismiss, name="z")
    await db.insert(Note(id=1))
    async with db.transaction() as tx:
        tx.delete(Note.key(id=1), if_match="*")
        tx.insert(Note(id=2))


def move_of(mail: str) -> Callable[[Person], None]:
    """Gives a person another address."""

    def move(person: Person) -> None:
        person.mail = mail

    return move


async def run(url: str, at: int, moment: Moment, pipe: int) -> None:
    """The program, on a table of its own, killed at a write."""
    async with connect(url, retry=QUICK) as real:
        if "Office" in await real.tables():
            await real.drop_table("Office")
        await real.create_tables(Person)
        for name in TEAMS:
            await real.insert(Team(name=name))
        backend = FaultyBackend()
        backend.tables = Deadly(connection_of(real).backend.tables, at, moment, pipe)
        async with Database(backend, retry=QUICK) as db:
            await program(db)


async def look_and_go_on(url: str, pipe: int) -> None:
    """What is wrong now, and after somebody else has written on."""
    async with connect(url, retry=QUICK) as db:
        await _at_rest(db)
        before = [*check(await read_partition(db)), *await audited(db), *await unnoted(db)]
        await Writer(db, 1).run(4)
        after = [*check(await read_partition(db)), *await audited(db)]
    os.write(pipe, json.dumps([before, after]).encode())


async def unnoted(db: Database) -> list[str]:
    """What the change feed does not say of the notes that are stored, or says of others."""
    noted = set[str]()
    async for change in db.changes(Note):
        noted ^= {each.key.row_key for each in change.entities}  # what is inserted and deleted
    stored = {note.key.row_key for note in await db.select(Note).all()}
    return sorted(noted ^ stored)


async def _at_rest(db: Database) -> None:
    """A server may still be at work on what was sent by somebody who is dead."""
    before: set[str | None] | None = None
    while True:
        now = {bag.etag for bag in (await read_partition(db)).values()}
        if now == before:
            return
        before = now
        await asyncio.sleep(0.01)


def fork(work: Callable[[int], Coroutine[Any, Any, None]]) -> tuple[int, Any]:
    """Run it in a child; how that ended, as `os.waitpid` says, and what it wrote into the pipe that it was given."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            asyncio.run(work(writing))
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        text = said.read()
    return os.waitpid(pid, 0)[1], json.loads(text or b"null")


def main(url: str, moments: int, first: int, step: int) -> None:
    """
    One line for each write, and each moment, at which the program was killed; the last for one that is not there. Of
    each write so many moments come, in turn.
    """
    connect(url)  # not opened: what is imported for it need not be imported by each child
    at, turns = first, cycle(Moment)
    while True:
        for moment in islice(turns, moments):
            ended, asked = fork(lambda pipe, at=at, moment=moment: run(url, at, moment, pipe))  # type: ignore[misc]
            looked, wrong = fork(lambda pipe: look_and_go_on(url, pipe))
            line = {"at": at, "moment": moment, "ended": ended, "asked": asked, "looked": looked, "wrong": wrong}
            print(json.dumps(line), flush=True)  # noqa: T201
            if asked is None:
                return
        at += step


if __name__ == "__main__":
    main(sys.argv[1], *(int(each) for each in sys.argv[2:5]))
