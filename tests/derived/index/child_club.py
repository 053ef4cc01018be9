"""
What the test of killed processes runs: a program of every sort of write, killed at its n-th request, for each n.

    python child_club.py URL MOMENTS FIRST STEP      prints a line of JSON for each n, and each moment

Each time a child is forked that runs the program from the beginning and kills itself with SIGKILL: just before the
request is sent, while it is under way, or before anybody hears the answer. Another child then looks at all that is
stored, writes on, and looks again: by an oracle, and by an audit.
"""

import asyncio
import datetime as dt
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from enum import StrEnum
from itertools import cycle, islice
from typing import Any

from tableorm import Database, Entity, Feed, Key, Mapped, Transaction, connect, field
from tableorm.connection.connection import connection_of
from tableorm.stores import Operation, TableStore
from tests.derived.index.worker import SQUADS, Writer, audited, read_partition
from tests.derived.patterns.club import CLUB, Player, Squad, check
from tests.faults import QUICK, FaultyBackend, FaultyStore


class Note(Entity, table="Club", partition_key="{club}", row_key="note_{id}"):
    """What the change feed of the partition notes."""

    club: Mapped[str] = field(default=CLUB)
    id: Mapped[int]

    changes = Feed(keep=dt.timedelta(days=1))


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


def _player(number: int, **values: Any) -> Player:
    given: dict[str, Any] = {"id": number, "nick": f"n{number}", "squad": "x", "points": number % 6, **values}
    return Player(name=given.pop("name", "a"), **given)


def _key(number: int) -> Key[Player]:
    return Player.key(club=CLUB, id=number)


async def program(db: Database) -> None:
    """Every sort of write; the list of the name `a` is divided on the way."""
    for number in range(1, 12):
        await db.insert(_player(number))

    def move(player: Player) -> None:
        player.nick, player.name, player.squad, player.points = "moved", "b", "y", 5

    await db.modify(_key(3), move)
    await db.upsert(_player(4, nick=None, name="b"), mode="replace")
    await db.upsert(_player(40, nick="n4", squad=None))

    async def swap(tx: Transaction) -> None:
        one, two = await tx.get(_key(5)), await tx.get(_key(6))
        one.nick, two.nick, one.name = two.nick, one.nick, "b"
        tx.save(one)
        tx.save(two)

    await db.run_transaction(swap)

    def lead(squad: Squad) -> None:
        squad.captain = 7

    await db.modify(Squad, lead, club=CLUB, name="z")
    await db.modify(_key(7), move_of("led"))
    async with db.transaction() as tx:
        tx.delete(await db.get(_key(8)))
        tx.insert(_player(41, nick="n8", squad="z"))
    await db.merge(_player(9, name="c", points=1), only=[Player.name, Player.points], if_match="*")
    await db.delete(_key(10), if_match="*")
    async with db.bulk() as bulk:
        for number in range(20, 24):
            await bulk.upsert(_player(number, points=4, squad=SQUADS[number % 3]))

    def dismiss(squad: Squad) -> None:
        squad.captain = None

    await db.modify(Squad, dismiss, club=CLUB, name="z")
    await db.insert(Note(id=1))
    async with db.transaction() as tx:
        tx.delete(Note.key(club=CLUB, id=1), if_match="*")
        tx.insert(Note(id=2))


def move_of(nick: str) -> Callable[[Player], None]:
    """Gives a player another nick."""

    def move(player: Player) -> None:
        player.nick = nick

    return move


async def run(url: str, at: int, moment: Moment, pipe: int) -> None:
    """The program, on a table of its own, killed at a write."""
    async with connect(url, retry=QUICK) as real:
        if "Club" in await real.tables():
            await real.drop_table("Club")
        await real.create_tables(Player)
        for name in SQUADS:
            await real.insert(Squad(name=name))
        backend = FaultyBackend()
        backend.tables = Deadly(connection_of(real).backend.tables, at, moment, pipe)
        async with Database(backend, retry=QUICK) as db:
            await program(db)


async def look_and_go_on(url: str, pipe: int) -> None:
    """What is wrong now, and after somebody else has written on."""
    async with connect(url, retry=QUICK) as db:
        await _at_rest(db)
        before = [*check(await read_partition(db)), *await audited(db, Note), *await unnoted(db)]
        await Writer(db, 1).run(4)
        after = [*check(await read_partition(db)), *await audited(db)]
    os.write(pipe, json.dumps([before, after]).encode())


async def unnoted(db: Database) -> list[str]:
    """What the change feed does not say of the notes that are stored, or says of others."""
    noted = set[str]()
    async for change in db.changes(Note, club=CLUB):
        noted ^= {each.key.row_key for each in change.entities}  # what is inserted and deleted
    stored = {note.key.row_key for note in await db.select(Note).where(Note.club == CLUB).all()}
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
