"""
Reading a change feed: in order, from a cursor on, and never past what is missing without saying so.
"""

import asyncio
import datetime as dt
from contextlib import aclosing
from typing import Any, cast

import pytest

from tableorm import (
    AccessDenied,
    CursorError,
    Database,
    DecodeError,
    Entity,
    Mapped,
    ModelError,
    PropertyBag,
    TableNotFound,
    TemplateError,
)
from tableorm.queries import changes
from tableorm.stores import Row
from tests.derived.feed.staff import Desk, Employee, Visitor, change_row, changes_of, insert, remove
from tests.rows import insert_row

SOON = dt.timedelta(milliseconds=1)


@pytest.mark.parametrize("db", ["memory", "azurite"], indirect=True)
async def test_reading_goes_on_behind_a_cursor(db: Database) -> None:
    """Each change has a cursor, which is good in another process too; the newest one is also the end."""
    assert await db.changes(Employee, department="Sales").end() is None
    await insert(db, 1, 2, 3)
    first, second, third = await changes_of(db)

    assert [change.number for change in await changes_of(db, after=first.cursor)] == [2, 3]
    assert await changes_of(db, after=third.cursor) == []
    assert await db.changes(Desk, department="Sales").end() == third.cursor
    await insert(db, 4)
    assert [change.number for change in await changes_of(db, after=third.cursor)] == [4]
    assert [change.number for change in await changes_of(db, after=second.cursor)] == [3, 4]


async def test_models_with_a_table_for_each_period_beside_it(db: Database) -> None:
    """A program that also has a model with a table for each period reads changes all the same."""

    class Badge(Entity, table="FeedBadges{day:%Y%m}", partition_key="{owner}", row_key="{day}"):
        owner: Mapped[str]
        day: Mapped[dt.date]

    await db.insert(Badge(owner="a", day=dt.date(2024, 5, 1)))
    await insert(db, 1)
    assert len(await changes_of(db)) == 1


async def test_long_feeds_are_read_by_pages(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request asks for as many changes as a page holds."""
    monkeypatch.setattr(changes, "MAX_PAGE", 3)
    await insert(db, *range(10))
    with db.observe() as seen:
        found = await changes_of(db)
    assert [change.number for change in found] == [*range(1, 11)]
    assert [request.operation for request in seen.requests] == ["get", *["query"] * 4]


async def test_who_is_at_the_end_asks_for_one_row(db: Database) -> None:
    """A poll that finds nothing reads the counter alone."""
    await insert(db, 1)
    (change,) = await changes_of(db)
    with db.observe() as seen:
        assert await changes_of(db, after=change.cursor) == []
    assert [request.operation for request in seen.requests] == ["get"]


async def test_following_waits_for_changes(db: Database) -> None:
    """What is committed later is given too, also in a partition without any change yet."""
    found = list[int]()

    async def follow() -> None:
        async with aclosing(db.changes(Employee, department="Sales").follow(pause=SOON)) as stream:
            async for change in stream:
                found.append(change.number)
                if len(found) == 4:
                    return

    task = asyncio.create_task(follow())
    await asyncio.sleep(0.01)
    await insert(db, 1, 2)
    await asyncio.sleep(0.01)
    await insert(db, 3, 4)
    await asyncio.wait_for(task, 20)
    assert found == [1, 2, 3, 4]


async def test_cursors_of_other_feeds_are_refused(db: Database) -> None:
    """That of another partition, that of a table which was dropped since, and what is no cursor."""
    await insert(db, 1)
    await db.insert(Employee(department="Law", id=1))
    (change,) = await changes_of(db)

    with pytest.raises(CursorError, match=r"changes\(Employee\) of partition 'Law': .* belongs to another change feed"):
        await changes_of(db, "Law", after=change.cursor)
    with pytest.raises(CursorError, match="belongs to another change feed"):
        await changes_of(db, "None", after=change.cursor)
    with pytest.raises(CursorError, match="belongs to another change feed"):
        await changes_of(db, after=change.cursor.replace(".1", ".2"))
    for wrong in ("", "1", "x.y", change.cursor + "\n", cast("Any", 1)):
        with pytest.raises(CursorError, match=r"is not a cursor; pass change\.cursor unchanged"):
            db.changes(Employee, department="Sales", after=wrong)
    await db.drop_table(Employee)
    with pytest.raises(TableNotFound):
        await changes_of(db, after=change.cursor)
    await db.create_tables(Employee)
    await insert(db, 1)
    with pytest.raises(CursorError, match="belongs to another change feed"):
        await changes_of(db, after=change.cursor)


async def test_arguments_are_checked(db: Database) -> None:
    """A partition is named by all of its fields, and by nothing else; its model has a feed."""
    with pytest.raises(TemplateError, match="needs department, because each partition has a separate change feed"):
        db.changes(Employee)
    with pytest.raises(TemplateError, match="has no field 'id'; the field is department"):
        db.changes(Employee, department="Sales", id=1)
    with pytest.raises(ModelError, match=r"changes\(Visitor\) is rejected: the model has no change feed; declare one"):
        db.changes(Visitor, department="Sales")
    with pytest.raises(ModelError, match=r"follow\(pause=3\) is rejected: give a timedelta above 0"):
        await anext(db.changes(Employee, department="Sales").follow(pause=cast("Any", 3)))


async def test_a_scope_reads_its_own_partitions(db: Database) -> None:
    """A scope that holds the whole partition reads and writes the feed; any other does neither."""
    scope = db.scope(Employee, Desk, department="Sales")
    await scope.insert(Employee(id=1))
    found = [change async for change in scope.changes(Employee)]
    assert [change.number for change in found] == [1]
    with pytest.raises(AccessDenied):
        scope.changes(Employee, department="Law")

    narrow = db.scope(Employee, id=1)
    with pytest.raises(ModelError):
        narrow.changes(Employee, department="Sales")
    with pytest.raises(ModelError, match="'~f_counter'"):
        await narrow.modify(Employee, lambda each: each.evolve(count=1), department="Sales")


async def test_a_change_that_is_missing_is_told(db: Database) -> None:
    """Those before it are given, then the error; behind it a reader goes on."""
    await insert(db, 1, 2, 3, 4)
    last = (await changes_of(db))[2].cursor
    await remove(db, "~f_000000000000003")
    found = list[int]()
    with pytest.raises(DecodeError, match=r"'~f_000000000000003'\) is missing in the change feed of table FedStaff"):
        async for change in db.changes(Employee, department="Sales"):
            found.append(change.number)
    assert found == [1, 2]
    assert [change.number for change in await changes_of(db, after=last)] == [4]


async def test_a_change_that_is_damaged_is_told(db: Database) -> None:
    """What another program has written there is no change."""
    await insert(db, 1)
    for wrong in ("[[1]]", "no JSON"):
        await change_row(db, "~f_000000000000001", Changes=wrong)
        with pytest.raises(DecodeError, match="is not a change of a change feed"):
            await changes_of(db)


async def test_a_kind_without_a_model_is_given_as_a_bag(db: Database) -> None:
    """Another program may note entities of models that this one does not declare."""
    await insert(db, 1)
    await change_row(db, "~f_000000000000001", Changes='[["insert","Robot","robot_1"]]')

    (change,) = await changes_of(db)
    assert [(each.kind, each.key) for each in change.entities] == [
        ("Robot", PropertyBag.key("FedStaff", "Sales", "robot_1"))
    ]


async def test_rows_beside_the_feed_are_not_taken_for_changes(db: Database) -> None:
    """A RowKey that begins as those of changes do has a number of fifteen digits."""
    await insert(db, 1, 2)
    row: Row = {"PartitionKey": "Sales", "RowKey": "~f_0000000000000015", "EntityType": "Odd"}
    await insert_row(db, "FedStaff", row)
    assert [change.number for change in await changes_of(db)] == [1, 2]
