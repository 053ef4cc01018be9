"""
Trimming change feeds, and what an audit finds wrong with them.
"""

import asyncio
import datetime as dt
import re
from collections.abc import Awaitable, Callable

import pytest

from tableorm import CursorError, Damage, Database
from tableorm.connection.connection import connection_of
from tableorm.derived.feed.rows import trim_feed
from tableorm.stores import CLOCK
from tests.derived.feed.staff import COUNTER, KEEP, Employee, change_row, changes_of, insert, remove

DAY = dt.timedelta(days=1)


@pytest.fixture(autouse=True)
def clock(stopped_clock: None) -> None:
    """Time goes on only where a test says so."""


async def trim(db: Database) -> int:
    total = 0
    while deleted := await trim_feed(connection_of(db), "FedStaff", "Sales", KEEP):
        total += deleted
    return total


async def numbers(db: Database, after: str | None = None) -> list[int]:
    return [change.number for change in await changes_of(db, after=after)]


async def test_what_is_old_is_trimmed(db: Database) -> None:
    """From the oldest change on; numbers go on, and a reader behind what was trimmed is told."""
    await insert(db, 1, 2)
    CLOCK.advance(4 * DAY)
    await insert(db, 3)
    first, second, third = [change.cursor for change in await changes_of(db)]
    assert await trim(db) == 0
    CLOCK.advance(4 * DAY)

    assert await trim(db) == 2
    assert await trim(db) == 0
    assert await numbers(db) == [3]
    assert await numbers(db, second) == [3]
    with pytest.raises(CursorError, match=r"is too old: the changes up to 2 were trimmed"):
        await numbers(db, first)
    CLOCK.advance(4 * DAY)
    assert await trim(db) == 1
    assert await numbers(db) == await numbers(db, third) == []
    await insert(db, 4)
    assert await numbers(db) == await numbers(db, third) == [4]
    assert (await db.audit(Employee)).clean


async def test_a_long_feed_is_trimmed_by_transactions(db: Database) -> None:
    """Each deletes 99 changes; who trims beside it does no harm."""
    await insert(db, *range(250))
    CLOCK.advance(KEEP + DAY)
    await insert(db, 250)

    assert sum(await asyncio.gather(trim(db), trim(db))) == 250
    assert await numbers(db) == [251]
    assert (await db.audit(Employee)).clean


async def test_a_reader_is_told_while_it_reads(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is trimmed between two of its requests is not passed over; one that has read nothing yet begins later."""
    monkeypatch.setattr("tableorm.queries.changes.MAX_PAGE", 2)
    await insert(db, *range(6))
    stream = aiter(db.changes(Employee, department="Sales"))
    assert [(await anext(stream)).number for _ in range(2)] == [1, 2]
    CLOCK.advance(KEEP + DAY)
    await trim(db)
    with pytest.raises(CursorError, match="is too old: the changes up to 6 were trimmed"):
        await anext(stream)


# Audit


@pytest.fixture
async def filled(db: Database) -> Database:
    """A feed of ten changes, of which two are trimmed."""
    await insert(db, 1, 2)
    CLOCK.advance(KEEP + DAY)
    await insert(db, *range(3, 11))
    await trim(db)
    report = await db.audit(Employee)
    assert (report.found, report.derived_rows) == (0, 9)
    return db


FIFTH = "~f_000000000000005"
DAMAGES: list[tuple[Callable[[Database], Awaitable[None]], str, list[int]]] = [
    (lambda db: remove(db, FIFTH), "lacks the change 5", [6, 7, 8, 9, 10]),
    (lambda db: remove(db, "~f_000000000000010"), "lacks the change 10", []),
    (lambda db: change_row(db, FIFTH, Changes="?"), "the change 5 of the change feed is damaged", [6, 7, 8, 9, 10]),
    (lambda db: change_row(db, FIFTH, Feed="another"), "the change 5 .* damaged, or of another feed", [6, 7, 8, 9, 10]),
    (
        lambda db: change_row(db, COUNTER, Last=9),
        "has the change 10, and its counter says that it goes from 3 to 9",
        [*range(3, 11)],
    ),
    (
        lambda db: change_row(db, COUNTER, Trimmed=4),
        "has the change 3, and its counter says that it goes from 5 to 10",
        [*range(5, 11)],
    ),
    (lambda db: remove(db, COUNTER), "the counter of the change feed is missing, or damaged", [*range(3, 11)]),
    (lambda db: change_row(db, COUNTER, Last="x"), "the counter .* is missing, or damaged", [*range(3, 11)]),
]


@pytest.mark.one_of(3)
@pytest.mark.parametrize(("damage", "problem", "left"), DAMAGES)
async def test_an_audit_finds_and_repairs_it(
    filled: Database, damage: Callable[[Database], Awaitable[None]], problem: str, left: list[int]
) -> None:
    """The repair leaves a feed without a gap, and readers behind the gap are told."""
    db = filled
    await damage(db)

    report = await db.audit(Employee)
    assert [(finding.damage, finding.index) for finding in report.findings] == [(Damage.GAP, "changes")]
    assert re.search(problem, report.findings[0].problem)
    assert "repair trims the feed" in str(report.findings[0])
    report = await db.audit(Employee, repair=True)
    assert report.clean and report.repaired == 1
    assert (await db.audit(Employee)).found == 0
    assert await numbers(db) == left
    await insert(db, 99)
    assert (await numbers(db))[-1] == 11


async def test_many_rows_are_trimmed_by_a_repair(db: Database) -> None:
    """More than a transaction takes."""
    await insert(db, *range(250))
    await remove(db, "~f_000000000000240")

    assert (await db.audit(Employee, repair=True)).repaired == 1
    assert await numbers(db) == [*range(241, 251)]
    assert (await db.audit(Employee)).found == 0


async def test_a_forged_counter_ends_no_audit(db: Database) -> None:
    """However far it says that the feed goes."""
    await insert(db, 1, 2)
    await change_row(db, COUNTER, Last=99999999999999)

    (finding,) = (await db.audit(Employee)).findings
    assert "lacks the change 3" in finding.problem
