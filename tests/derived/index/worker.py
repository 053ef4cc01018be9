"""
What writes and reads in the concurrent tests: random steps of every verb on the players and squads of a club.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from tableorm import (
    Database,
    Entity,
    Key,
    OutcomeUnknown,
    TableOrmError,
    Transaction,
    TransactionFailed,
    Unavailable,
)
from tableorm.models.property_bag import bag_of_row
from tests.derived.index.oracle import Table
from tests.derived.index.test_verbs import OF_ANY_KEY, VERBS
from tests.derived.patterns.club import CLUB, Player, Squad, check
from tests.derived.two_clients import ALLOWED

PEOPLE = range(1, 51)
COUNTERS = range(46, 51)
"""People whose points are only ever raised by one, and who are never deleted."""
NICKS = [None, *(f"n{number}" for number in range(20))]
SQUADS = ["x", "y", "z"]
_verbs: dict[str, Any] = {**VERBS}


async def prepare(db: Database) -> None:
    """The tables, the teams, and those whose points are counted."""
    await db.create_tables(Player)
    for name in SQUADS:
        await db.insert(Squad(name=name))
    for number in COUNTERS:
        await db.insert(Player(id=number, squad="x", points=0))


def look(path: Path) -> Table:
    """All rows of a file of the embedded engine at one moment, by one statement of SQLite."""
    connection: Any = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        (number,) = connection.execute("SELECT id FROM catalog WHERE name = 'Club'").fetchone()
        bodies = [body for (body,) in connection.execute(f"SELECT body FROM t{number}")]  # a number
    finally:
        connection.close()
    bags = [bag_of_row("Club", msgspec.json.decode(body)) for body in bodies]
    return {(bag.partition_key, bag.row_key): bag for bag in bags}


async def read_partition(db: Database) -> Table:
    """All rows, in one page; pages are no snapshots."""
    page = await db.select_raw("Club").where("PartitionKey eq {}", CLUB).page(1000)
    assert page.cursor is None
    return {(bag.partition_key, bag.row_key): bag for bag in page.items}


async def audited(db: Database, *more: type[Entity]) -> list[str]:
    """What an audit finds at rest: a witness of its own beside `check`."""
    report = await db.audit(Player, *more)
    assert not report.undecided, str(report)
    assert report.entities >= len(SQUADS)
    return [str(each) for each in report.findings]


class Writer:
    """
    Random steps.

    Args:
        db: Where.
        seed: Of the steps.

    Attributes:
        told: How often raising the points of each was acknowledged.
        unknown: How often nobody knows whether they were raised.
        done: Steps that succeeded.
    """

    def __init__(self, db: Database, seed: int) -> None:
        self._db, self._random = db, random.Random(seed)
        self.told, self.unknown = Counter[int](), Counter[int]()
        self.done = Counter[str]()
        self._steps: list[Callable[[], Awaitable[str]]] = [
            *[self._write] * 11,
            self._by_rank,
            self._swap,
            self._lead,
            *[self._raise] * 2,
        ]

    async def run(self, steps: int) -> None:
        """So many steps; what loses a race, or finds nothing, is no fault."""
        for _ in range(steps):
            await self.step()

    async def step(self) -> None:
        """One of them."""
        step = self._random.choice(self._steps)
        try:
            done = await step()
        except TransactionFailed as error:
            if not isinstance(error.__cause__, ALLOWED):
                raise
        except (*ALLOWED, Unavailable):
            pass
        else:
            self.done[done] += 1

    def _id(self) -> int:
        return self._random.choice(PEOPLE[: -len(COUNTERS)])

    def _key(self) -> Key[Player]:
        return Player.key(club=CLUB, id=self._id())

    def _values(self, least: int = 1) -> dict[str, Any]:
        """Other values of at least so many fields of a player."""
        draw = self._random
        values = {
            "nick": draw.choice(NICKS),
            "name": draw.choice("ab"),
            "points": draw.randrange(6),
            "squad": draw.choice([None, *SQUADS]),
            "active": draw.choice([True, False]),
        }
        return {name: values[name] for name in draw.sample([*values], draw.randint(least, 5))}

    async def _write(self) -> str:
        """Any verb, on a player that was not read, or by its key or a nick; one that is not there is inserted."""
        verb, player = self._random.choice(OF_ANY_KEY), Player(id=self._id(), **self._values(5))
        match self._random.randrange(5):
            case 0:
                found = await self._db.get_or_none(Player.by_nick, club=CLUB, nick=self._random.choice(NICKS[1:]))
            case 1:
                found = player
            case _:
                found = await self._db.get_or_none(player.key)
        if found is None:
            await self._db.insert(player)
            return "insert"
        await _verbs[verb](self._db, found, self._values())
        return verb

    async def _by_rank(self) -> str:
        ranked = self._db.select(Player.by_rank).where(Player.club == CLUB, Player.points < 5)
        for player in await ranked.limit(2).all():
            if player.id not in COUNTERS:
                await _verbs["save"](self._db, player, self._values())
        return "by rank"

    async def _swap(self) -> str:
        """Two players exchange their nicks and squads."""
        first, second = self._key(), self._key()

        async def swap(tx: Transaction) -> None:
            one, two = await tx.get(first), await tx.get(second)
            if first != second:
                one.nick, two.nick, one.squad, two.squad = two.nick, one.nick, two.squad, one.squad
                tx.save(one)
                tx.save(two)

        await self._db.run_transaction(swap, attempts=3)
        return "swap"

    async def _lead(self) -> str:
        captain = self._random.choice([None, self._id()])

        def lead(squad: Squad) -> None:
            squad.captain = captain

        await self._db.modify(Squad, lead, club=CLUB, name=self._random.choice(SQUADS))
        return "lead"

    async def _raise(self) -> str:
        number = self._random.choice(COUNTERS)

        def one_more(player: Player) -> None:
            player.points = (player.points or 0) + 1

        try:
            await self._db.modify(Player, one_more, club=CLUB, id=number)
        except OutcomeUnknown:
            self.unknown[number] += 1
            raise
        self.told[number] += 1
        return "raise"


class Reader:
    """
    Looks while others write.

    Args:
        db: Where.
        seed: Of what it looks at.
        path: Of the file, if it is one of the embedded engine: all of it can be looked at.

    Attributes:
        looks: How often it has compared something.
    """

    def __init__(self, db: Database, seed: int, path: Path | None = None) -> None:
        self._db, self._random, self._path = db, random.Random(seed), path
        self.looks = 0

    async def run(self, writers: "Sequence[asyncio.Task[None]]") -> None:
        """Until the writers are done."""
        while not all(writer.done() for writer in writers):
            await self._look_at_one()
            await self._look_at_name()
            if self._path is not None:
                wrong = check(await asyncio.to_thread(look, self._path))
                assert not wrong, wrong
                self.looks += 1

    async def _look_at_one(self) -> None:
        """Between two looks at an entity that find the same version, its copy is as that."""
        number = self._random.choice(PEOPLE)
        before = await self._db.get_or_none(Player, club=CLUB, id=number)
        if before is None:
            return
        held = None
        if before.nick is not None:
            copy = await self._db.get_or_none(Player.by_nick, club=CLUB, nick=before.nick)
            held = None if copy is None else (copy.id, copy.points)
        found = await self._db.get_or_none(Player.by_rank, club=CLUB, points=before.points or 0, id=number)
        after = await self._db.get_or_none(Player, club=CLUB, id=number)
        if after is None or after.etag != before.etag:
            return
        assert held == (None if before.nick is None else (number, before.points)), (held, before)
        assert found == (before if (before.points or 0) > 2 else None), (found, before)
        self.looks += 1

    async def _look_at_name(self) -> None:
        """Whoever is looked up is there."""
        with contextlib.suppress(TableOrmError):
            found = await self._db.lookup(Player.by_name, club=CLUB, name="a")
            assert {player.name for player in found} <= {"a"}


class Auditor:
    """
    Audits while others write: nothing that they do is damage.

    Args:
        db: Where.
        repair: Whether every other audit repairs; it must find nothing to be repaired.

    Attributes:
        audits: How often it has come to the end.
        looked: How many entities it has looked at.
    """

    def __init__(self, db: Database, *, repair: bool = True) -> None:
        self._db, self._repair = db, repair
        self.audits = self.looked = 0

    async def run(self, writers: "Sequence[asyncio.Task[None]]") -> None:
        """Until the writers are done."""
        while not all(writer.done() for writer in writers):
            report = await self._db.audit(Player, repair=self._repair and self.audits % 2 == 1)
            assert [str(each) for each in report.findings] == []
            self.audits += 1
            self.looked += report.entities


def raised(writers: list[Writer], number: int) -> tuple[int, int]:
    """How many points somebody has at least, and at most."""
    told = sum(writer.told[number] for writer in writers)
    return told, told + sum(writer.unknown[number] for writer in writers)
