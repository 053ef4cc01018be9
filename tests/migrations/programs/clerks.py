"""
Clerks who sit at desks. Old programs knew no index of the desks, nor lists; while one of both is built, others write
and read by it.
"""

import asyncio
import random
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

from tableorm import Database, Entity, Index, IndexList, Mapped, NotSupported
from tests.migrations.programs.journal import GONE, Journal, Pen

TABLE = "RunClerks"
OFFICES = 4
DESKS = 40
ANSWERS = 3
"""How often the reader has an answer at least, before it ends."""
LATE = 20
"""How often it asks at most when it shall end."""


class AnyClerk(Entity, table=TABLE, abstract=True, partition_key="office_{office:02d}", row_key="clerk_{id:05d}"):
    office: Mapped[int]
    id: Mapped[int]
    desk: Mapped[int]


class ClerkOfOld(AnyClerk, kind="Clerk"):
    pass


class Clerk(AnyClerk):
    by_desk = Index(row_key="desk_{desk:03d}_{id:05d}")
    at_desk = IndexList(row_key="at_{desk:03d}")


def office_of(number: int) -> int:
    """Return the office of a clerk; offices are far apart, so that each is in a range of its own."""
    return number % OFFICES * 25 + 5


async def hire(db: Database, journal: Path, count: int) -> None:
    """Make the table, with clerks who were there before the index."""
    pen = Pen(journal)
    await db.create_tables(ClerkOfOld)
    async with db.bulk(errors="report") as bulk:
        for number in range(count):
            pen.begin(number)
            await bulk.insert(ClerkOfOld(office=office_of(number), id=number, desk=number % DESKS))
    assert bulk.report.failures == 0
    for number in range(count):
        pen.confirm(number, number % DESKS)
    pen.close()


async def write_desks(
    db: Database, journal: Path, numbers: range, chance: random.Random, over: Callable[[], bool]
) -> int:
    """
    Insert, change and delete clerks that nobody else writes, until it is over; return how many writes that were.

    Args:
        db: The database.
        journal: Gets each write.
        numbers: The clerks.
        chance: Decides.
        over: Says whether it is over.
    """
    pen, view = Pen(journal), Journal(journal)
    view.catch_up()
    desks = {number: view.known[number].value if number in view.known else GONE for number in numbers}
    writes = 0
    while not over():
        number = chance.choice(numbers)
        desk = GONE if desks[number] != GONE and chance.random() < 0.3 else chance.randrange(DESKS)
        pen.begin(number)
        await _write(db, number, desks[number], desk)
        pen.confirm(number, desk)
        desks[number] = desk
        writes += 1
        await asyncio.sleep(0.002)
    pen.close()
    return writes


async def _write(db: Database, number: int, old: int, new: int) -> None:
    key = Clerk.key(office=office_of(number), id=number)

    def move(clerk: Clerk) -> None:
        clerk.desk = new

    if old == GONE:
        await db.insert(Clerk(office=office_of(number), id=number, desk=new))
    elif new == GONE:
        await db.delete(key, if_match="*")
    else:
        await db.modify(key, move, attempts=100)


async def _find_desks(db: Database, office: int, desks: range, *, listed: bool) -> dict[int, int]:
    """Return the desks of the clerks of an office, found by the lists of some desks, or by the index."""
    if listed:
        lookups = [db.lookup(Clerk.at_desk, office=office, desk=desk) for desk in desks]
        clerks = [*chain.from_iterable(await asyncio.gather(*lookups))]
    else:
        clerks = await db.select(Clerk.by_desk).where(Clerk.office == office).all()
    return {clerk.id: clerk.desk for clerk in clerks}


async def read_desks(
    connected: Callable[[], Any], journal: Path, over: Callable[[], bool], *, listed: bool
) -> dict[str, Any]:
    """
    Ask for the clerks of each office by their desks until it is over, and some answers have come.

    Args:
        connected: Opens the database, anew each time, so that nothing is known from earlier.
        journal: Says what has to be found.
        over: Says whether it is over.
        listed: Whether the lists are read, of some desks, and not the index.

    Returns:
        How often it was rejected and answered, and what was wrong with the answers.
    """
    view, desks = Journal(journal), range(0, DESKS, 8 if listed else 1)
    refused = answered = late = 0
    problems: list[str] = []
    while len(problems) < ANSWERS and not (over() and answered >= ANSWERS):
        late += over()
        if late > LATE:
            problems.append("it is rejected when all have ended")
            break
        async with connected() as db:
            for office in map(office_of, range(OFFICES)):
                view.catch_up()
                here = {number: known for number, known in view.settled().items() if office_of(number) == office}
                before = {number: known for number, known in here.items() if known.value in (GONE, *desks)}
                try:
                    found = await _find_desks(db, office, desks, listed=listed)
                except NotSupported:
                    refused += 1
                    if answered:
                        problems.append("it is rejected after it was answered")
                else:
                    answered += 1
                    problems += view.find_problems(before, found)
        await asyncio.sleep(0.02)
    return {"refused": refused, "answered": answered, "problems": problems[:ANSWERS]}


async def find_problems(db: Database, journal: Path, *, listed: bool) -> list[str]:
    """Return what is wrong when nobody writes any more; `listed` says that the lists were built, and not the index."""
    view = Journal(journal)
    view.catch_up()
    settled = view.settled()
    problems = [f"a write of {number} has not ended" for number in view.known.keys() - settled.keys()]
    clerks = {clerk.id: clerk.desk async for clerk in db.select(Clerk).allow_scan()}
    problems += [f"the entity: {each}" for each in view.find_problems(settled, clerks)]
    for office in map(office_of, range(OFFICES)):
        found = await _find_desks(db, office, range(DESKS), listed=listed)
        here = {number: known for number, known in settled.items() if office_of(number) == office}
        problems += [f"by {'the lists' if listed else 'the index'}: {each}" for each in view.find_problems(here, found)]
    audit = await db.audit(Clerk)
    return problems + ([] if audit.clean else [str(finding) for finding in audit.findings])
