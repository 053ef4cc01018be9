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
    Conflict,
    Database,
    Entity,
    EntityNotFound,
    Key,
    OutcomeUnknown,
    TableOrmError,
    Transaction,
    TransactionFailed,
    Unavailable,
)
from tableorm.models.property_bag import bag_of_row
from tests.derived.index.oracle import Table
from tests.derived.patterns.club import CLUB, Player, Squad, check

PEOPLE = range(1, 51)
COUNTERS = range(46, 51)
"""People whose points are only ever raised by one, and who are never deleted."""
NICKS = [None, *(f"n{number}" for number in range(20))]
SQUADS = ["x", "y", "z"]
_LOST = (Conflict, EntityNotFound)


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
        self._steps: list[Callable[[], Awaitable[None]]] = [
            self._insert,
            self._insert,
            self._modify,
            self._modify,
            self._save,
            self._by_nick,
            self._by_rank,
            self._upsert,
            self._replace,
            self._merge,
            self._delete,
            self._swap,
            self._together,
            self._lead,
            self._raise,
            self._raise,
        ]

    async def run(self, steps: int) -> None:
        """So many steps; what loses a race, or finds nothing, is no fault."""
        for _ in range(steps):
            await self.step()

    async def step(self) -> None:
        """One of them."""
        step = self._random.choice(self._steps)
        try:
            await step()
        except TransactionFailed as error:
            if not isinstance(error.__cause__, _LOST):
                raise
        except (*_LOST, OutcomeUnknown, Unavailable):
            pass
        else:
            self.done[step.__name__] += 1

    def _id(self) -> int:
        return self._random.choice(PEOPLE[: -len(COUNTERS)])

    def _player(self) -> Player:
        draw = self._random
        return Player(
            id=self._id(),
            nick=draw.choice(NICKS),
            name=draw.choice("ab"),
            points=draw.randrange(6),
            squad=draw.choice([None, *SQUADS]),
        )

    def _key(self) -> Key[Player]:
        return Player.key(club=CLUB, id=self._id())

    def _change(self, player: Player) -> None:
        draw = self._random
        match draw.randrange(5):
            case 0:
                player.nick = draw.choice(NICKS)
            case 1:
                player.name = draw.choice("ab")
            case 2:
                player.points = draw.randrange(6)
            case 3:
                player.squad = draw.choice([None, *SQUADS])
            case _:
                player.active = draw.choice([True, False])

    async def _insert(self) -> None:
        await self._db.insert(self._player())

    async def _modify(self) -> None:
        await self._db.modify(self._key(), self._change)

    async def _save(self) -> None:
        player = await self._db.get(self._key())
        self._change(player)
        self._change(player)
        await self._db.save(player)

    async def _by_nick(self) -> None:
        player = await self._db.get(Player.by_nick, club=CLUB, nick=self._random.choice(NICKS[1:]))
        self._change(player)
        await self._db.save(player)

    async def _by_rank(self) -> None:
        ranked = self._db.select(Player.by_rank).where(Player.club == CLUB, Player.points < 5)
        for player in await ranked.limit(2).all():
            if player.id not in COUNTERS:
                self._change(player)
                await self._db.save(player)

    async def _upsert(self) -> None:
        await self._db.upsert(self._player(), mode=self._random.choice(["merge", "replace"]))

    async def _replace(self) -> None:
        await self._db.replace(self._player(), if_match="*")

    async def _merge(self) -> None:
        await self._db.merge(self._player(), only=[Player.name, Player.points], if_match="*")

    async def _delete(self) -> None:
        await self._db.delete(self._key(), if_match="*")

    async def _swap(self) -> None:
        """Two players exchange their nicks and squads."""
        first, second = self._key(), self._key()

        async def swap(tx: Transaction) -> None:
            one, two = await tx.get(first), await tx.get(second)
            if first != second:
                one.nick, two.nick, one.squad, two.squad = two.nick, one.nick, two.squad, one.squad
                tx.save(one)
                tx.save(two)

        await self._db.run_transaction(swap, attempts=3)

    async def _together(self) -> None:
        """One goes, and leaves the nick to another who comes."""
        async with self._db.transaction() as tx:
            old = await tx.get(self._key())
            new = self._player()
            tx.delete(old)
            if new.id != old.id:
                tx.insert(new.evolve(nick=old.nick))

    async def _lead(self) -> None:
        captain = self._random.choice([None, self._id()])

        def lead(squad: Squad) -> None:
            squad.captain = captain

        await self._db.modify(Squad, lead, club=CLUB, name=self._random.choice(SQUADS))

    async def _raise(self) -> None:
        number = self._random.choice(COUNTERS)

        def one_more(player: Player) -> None:
            player.points = (player.points or 0) + 1

        try:
            await self._db.modify(Player, one_more, club=CLUB, id=number)
        except OutcomeUnknown:
            self.unknown[number] += 1
            raise
        self.told[number] += 1


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
        found = await self._db.get_or_none(Player.by_rank, club=CLUB, points=before.points, id=number)
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
