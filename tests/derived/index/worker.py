"""
What writes and reads in the concurrent tests: random steps of every verb on the people and teams of an office.
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
    EntityNotFound,
    OutcomeUnknown,
    TableOrmError,
    Transaction,
    TransactionFailed,
    Unavailable,
)
from tableorm.models.property_bag import bag_of_row
from tests.derived.index.office import PARTITION, Note, Person, Team, check
from tests.derived.index.oracle import Table

__all__ = [
    "COUNTERS",
    "MAILS",
    "PEOPLE",
    "TEAMS",
    "Auditor",
    "Reader",
    "Writer",
    "audited",
    "look",
    "prepare",
    "raised",
    "read_partition",
]

PEOPLE = range(1, 51)
COUNTERS = range(46, 51)
"""People whose points are only ever raised by one, and who are never deleted."""
MAILS = [None, *(f"m{number}" for number in range(20))]
TEAMS = ["x", "y", "z"]
_LOST = (Conflict, EntityNotFound)


async def prepare(db: Database) -> None:
    """The tables, the teams, and those whose points are counted."""
    await db.create_tables(Person)
    for name in TEAMS:
        await db.insert(Team(name=name))
    for number in COUNTERS:
        await db.insert(Person(id=number, team="x"))


def look(path: Path) -> Table:
    """All rows of a file of the embedded engine at one moment, by one statement of SQLite."""
    connection: Any = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        (number,) = connection.execute("SELECT id FROM catalog WHERE name = 'Office'").fetchone()
        bodies = [body for (body,) in connection.execute(f"SELECT body FROM t{number}")]  # a number
    finally:
        connection.close()
    bags = [bag_of_row("Office", msgspec.json.decode(body)) for body in bodies]
    return {(bag.partition_key, bag.row_key): bag for bag in bags}


async def read_partition(db: Database) -> Table:
    """All rows, in one page; pages are no snapshots."""
    page = await db.select_raw("Office").where("PartitionKey eq {}", PARTITION).page(1000)
    assert page.cursor is None
    return {(bag.partition_key, bag.row_key): bag for bag in page.items}


async def audited(db: Database) -> list[str]:
    """What an audit finds at rest: a witness of its own beside `check`."""
    report = await db.audit(Person, Note)
    assert not report.undecided, str(report)
    assert report.entities >= len(TEAMS)
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
            self._by_mail,
            self._by_points,
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

    def _person(self) -> Person:
        draw = self._random
        return Person(
            id=self._id(),
            mail=draw.choice(MAILS),
            city=draw.choice("ab"),
            points=draw.randrange(6),
            team=draw.choice([None, *TEAMS]),
        )

    def _change(self, person: Person) -> None:
        draw = self._random
        match draw.randrange(5):
            case 0:
                person.mail = draw.choice(MAILS)
            case 1:
                person.city = draw.choice("ab")
            case 2:
                person.points = draw.randrange(6)
            case 3:
                person.team = draw.choice([None, *TEAMS])
            case _:
                person.note = draw.choice([None, "n"])

    async def _insert(self) -> None:
        await self._db.insert(self._person())

    async def _modify(self) -> None:
        await self._db.modify(Person, self._change, id=self._id())

    async def _save(self) -> None:
        person = await self._db.get(Person, id=self._id())
        self._change(person)
        self._change(person)
        await self._db.save(person)

    async def _by_mail(self) -> None:
        person = await self._db.get(Person.by_mail, mail=self._random.choice(MAILS[1:]))
        self._change(person)
        await self._db.save(person)

    async def _by_points(self) -> None:
        for person in await self._db.select(Person.by_points).where(Person.points < 5).limit(2).all():
            if person.id not in COUNTERS:
                self._change(person)
                await self._db.save(person)

    async def _upsert(self) -> None:
        await self._db.upsert(self._person(), mode=self._random.choice(["merge", "replace"]))

    async def _replace(self) -> None:
        await self._db.replace(self._person(), if_match="*")

    async def _merge(self) -> None:
        await self._db.merge(self._person(), only=[Person.city, Person.points], if_match="*")

    async def _delete(self) -> None:
        await self._db.delete(Person, id=self._id(), if_match="*")

    async def _swap(self) -> None:
        """Two people exchange their addresses and teams."""
        first, second = self._id(), self._id()

        async def swap(tx: Transaction) -> None:
            one, two = await tx.get(Person, id=first), await tx.get(Person, id=second)
            if first != second:
                one.mail, two.mail, one.team, two.team = two.mail, one.mail, two.team, one.team
                tx.save(one)
                tx.save(two)

        await self._db.run_transaction(swap, attempts=3)

    async def _together(self) -> None:
        """One goes, and leaves the address to another who comes."""
        async with self._db.transaction() as tx:
            old = await tx.get(Person, id=self._id())
            new = self._person()
            tx.delete(old)
            if new.id != old.id:
                tx.insert(new.evolve(mail=old.mail))

    async def _lead(self) -> None:
        leader = self._random.choice([None, self._id()])

        def lead(team: Team) -> None:
            team.leader = leader

        await self._db.modify(Team, lead, name=self._random.choice(TEAMS))

    async def _raise(self) -> None:
        number = self._random.choice(COUNTERS)

        def one_more(person: Person) -> None:
            person.points += 1

        try:
            await self._db.modify(Person, one_more, id=number)
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
            await self._look_at_city()
            if self._path is not None:
                wrong = check(await asyncio.to_thread(look, self._path))
                assert not wrong, wrong
                self.looks += 1

    async def _look_at_one(self) -> None:
        """Between two looks at an entity that find the same version, its copy is as that."""
        number = self._random.choice(PEOPLE)
        before = await self._db.get_or_none(Person, id=number)
        if before is None:
            return
        copy = None if before.mail is None else await self._db.get_or_none(Person.by_mail, mail=before.mail)
        found = await self._db.get_or_none(Person.by_points, points=before.points, id=number)
        after = await self._db.get_or_none(Person, id=number)
        if after is None or after.etag != before.etag:
            return
        assert copy == (None if before.mail is None else before), (copy, before)
        assert found == (before if before.points > 2 else None), (found, before)
        self.looks += 1

    async def _look_at_city(self) -> None:
        """Whoever is looked up is there."""
        with contextlib.suppress(TableOrmError):
            found = await self._db.lookup(Person.by_city, city="a")
            assert {person.city for person in found} <= {"a"}


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
            report = await self._db.audit(Person, repair=self._repair and self.audits % 2 == 1)
            assert [str(each) for each in report.findings] == []
            self.audits += 1
            self.looked += report.entities


def raised(writers: list[Writer], number: int) -> tuple[int, int]:
    """How many points somebody has at least, and at most."""
    told = sum(writer.told[number] for writer in writers)
    return told, told + sum(writer.unknown[number] for writer in writers)
