"""
Rows of a change feed, forged by a token that may write them. What they stop goes on after an audit has repaired them.
"""

import datetime as dt
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tableorm import Database, DecodeError, Entity, Feed, Mapped
from tableorm.derived.feed.rows import COUNTER_KEY, MOST_CHANGES, MOST_COUNTED, change_key
from tableorm.stores import Row, Verb
from tableorm.testing import temporary_database
from tests.rows import put_row
from tests.security.world import write_row


class Employee(Entity, table="ForgedFeeds", partition_key="{department}", row_key="empid_{id:06d}"):
    department: Mapped[str]
    id: Mapped[int]

    changes = Feed(keep=dt.timedelta(hours=1))


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with temporary_database("local::memory:", Employee) as database:
        await database.insert(Employee(department="Sales", id=1))
        yield database


async def read(db: Database, row_key: str) -> Row:
    return await db.store.get("ForgedFeeds", "Sales", row_key)


async def put(db: Database, row: Row, **properties: Any) -> None:
    await put_row(db, "ForgedFeeds", row | properties)


async def heal(db: Database) -> None:
    """Audit twice: the first repairs, and the second finds nothing. Then writes and their readers go on."""
    assert (await db.audit(Employee, parallel=1, repair=True)).counts == {"gap": 1}
    for number in range(5):
        await db.insert(Employee(department="Sales", id=100 + number))
    report = await db.audit(Employee, parallel=1)
    assert report.counts == {}, report.findings
    found = [change.entities[0].key.row_key async for change in db.changes(Employee, department="Sales")]
    assert found[-5:] == [f"empid_{100 + number:06d}" for number in range(5)]


@pytest.mark.parametrize("number", [MOST_CHANGES, MOST_CHANGES - 1, MOST_COUNTED, MOST_COUNTED - 1])
async def test_a_change_with_a_large_number_uses_no_numbers_up(db: Database, number: int) -> None:
    """An audit does not count up to a row that somebody made up, so that numbers are left for changes."""
    await put(db, await read(db, change_key(1)), RowKey=change_key(number))
    await heal(db)


@pytest.mark.parametrize("last", [MOST_CHANGES - 1, MOST_COUNTED - 1, MOST_COUNTED - 2])
async def test_a_counter_with_a_large_number_is_repaired(db: Database, last: int) -> None:
    """Neither before nor after the last number was given does a counter that somebody made up stop writers for good."""
    await put(db, await read(db, COUNTER_KEY), Last=str(last))
    for number in (2, 3):
        try:
            await db.insert(Employee(department="Sales", id=number))
        except DecodeError:
            break
    await heal(db)


async def test_a_damaged_counter_of_a_feed_without_changes_is_repaired(db: Database) -> None:
    """Where all changes were trimmed, nothing but the counter is left to tell that there is a feed."""
    await write_row(db, "ForgedFeeds", "Sales", change_key(1), Verb.DELETE)
    await put(db, await read(db, COUNTER_KEY), Last="-1")
    await heal(db)


@pytest.mark.parametrize("feed", [5, "", "a.b", "x" * 65])
async def test_what_no_cursor_can_hold_tells_no_feed(db: Database, feed: object) -> None:
    """A counter with such a text is damaged: no change gets it, and no reader a cursor that is none."""
    await put(db, await read(db, COUNTER_KEY), Feed=feed)
    with pytest.raises(DecodeError, match="is not the counter of a change feed"):
        await db.insert(Employee(department="Sales", id=2))
    with pytest.raises(DecodeError, match="is not the counter of a change feed"):
        await db.changes(Employee, department="Sales").end()
    await heal(db)


async def test_a_change_of_another_verb_is_damaged(db: Database) -> None:
    """A program that follows the feed meets the three verbs alone."""
    await put(db, await read(db, change_key(1)), Changes=json.dumps([["drop", "Employee", "empid_000001"]]))
    with pytest.raises(DecodeError, match="is not a change of a change feed"):
        _ = [change async for change in db.changes(Employee, department="Sales")]
    await heal(db)
