"""
States of indexes: an index is read when the store says that it is complete, by any program that declares it.
"""

import datetime as dt
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from tableorm import (
    AccessDenied,
    CursorError,
    Database,
    Entity,
    Index,
    Int32,
    Mapped,
    NotSupported,
    PropertyBag,
    RetryPolicy,
    Throttled,
    connect,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.models.reserved import UPKEEP_TABLE
from tableorm.testing import Faults, assert_requests
from tests.database.between import Awkward
from tests.databases import memory_database
from tests.derived.index.programs import db, other

__all__ = ["db", "other"]  # fixtures


class AnyStaff(Entity, table="StatesStaff", partition_key="{team}", row_key="s_{id:03d}", abstract=True):
    team: Mapped[str] = field(default="a")
    id: Mapped[int] = field(default=1)
    age: Mapped[Int32] = field(default=0)


class Older(AnyStaff, kind="Staff"):
    """What a program declared before there was an index."""


class Staff(AnyStaff):
    """The index by age serves queries that name an age, since it keeps the order of the keys."""

    by_age = Index(row_key="age_{age:03d}_{id:03d}")


class StaffByTable(AnyStaff, kind="Staff"):
    """Its index has entries in another table."""

    of_age = Index(table="StatesAges", row_key="{age:03d}_{id:03d}", partition_key="{team}", consistency="eventual")


class Changed(AnyStaff, kind="Staff"):
    """Its index has the name of another one, and other keys."""

    by_age = Index(row_key="years_{age:03d}_{id:03d}")


class Being(AnyStaff, kind="Staff"):
    """Its index is written and not read, whatever the store says."""

    by_age = Index(row_key="age_{age:03d}_{id:03d}", building=True)


class Known(AnyStaff, kind="Staff"):
    """Its index is read, whatever the store says."""

    by_age = Index(row_key="age_{age:03d}_{id:03d}", building=False)


def by_age(db: Database, age: int = 30) -> Any:
    """A query that the index by age serves."""
    return db.select(Staff).where(Staff.team == "a", Staff.age == age)


async def begin(db: Database) -> None:
    """Make the table, with an entity."""
    await db.create_tables(Staff)
    await db.insert(Staff(age=30))


def find(db: Database) -> Awaitable[Staff]:
    """Read an entity by the index by age."""
    return db.get(Staff.by_age, team="a", age=30, id=1)


async def assert_not_read(db: Database) -> None:
    with pytest.raises(NotSupported, match="is not read"):
        await find(db)


def wait_a_minute(db: Database) -> None:
    """Let a minute pass since the store was asked for states."""
    known = connection_of(db).known_states
    assert known.asked is not None
    known.asked -= 60


async def make_filled(db: Database) -> None:
    """Make the table, with a row of another team."""
    await db.create_tables(Older)
    await db.insert(Older(team="b"))


async def states_of(db: Database) -> dict[str, str]:
    return {state.declaration: state.state for state in await db.index_states()}


# Who asks


async def test_who_made_the_table_asks_nothing(db: Database, other: Database) -> None:
    """The program that makes a table knows that its indexes are complete; another one asks once."""
    with assert_requests(db, 3):  # two tables, and the state
        await db.create_tables(Staff)
    await db.insert(Staff(age=30))

    with assert_requests(db, 1):
        assert (await find(db)).id == 1
    with assert_requests(other, 2):
        assert [each.id for each in await by_age(other).all()] == [1]
    with assert_requests(other, 2):
        await by_age(other).all()
        await find(other)


async def test_models_without_such_indexes_ask_nothing(db: Database) -> None:
    """No state is kept or read of a plain model, nor of an index whose declaration says whether it is read."""
    with assert_requests(db, 3):
        await db.create_tables(Known)
        await db.insert(Known(age=30))
        assert len(await db.select(Known.by_age).where(Known.team == "a").all()) == 1
    assert await db.tables() == ["StatesStaff"]


# Who may read


async def fill(db: Database, count: int = 3) -> None:
    """Entities of the older program, and one of the newer."""
    await make_filled(db)
    for number in range(count):
        await db.insert(Older(id=number, age=30))
    await db.insert(Staff(id=900, age=30))


async def _stream(query: Any) -> list[Any]:
    async with query.stream() as stream:
        return [each async for each in stream]


async def test_entries_of_an_incomplete_index_are_not_read(db: Database) -> None:
    """Every way to read by it is rejected, and the remedy is named."""
    await fill(db)
    query = db.select(Staff.by_age).where(Staff.team == "a")
    reads: list[Awaitable[Any]] = [query.all(), query.first(), query.count(), query.exists(), query.page(2)]
    reads += [anext(query.pages(2)), _stream(query), query.delete(), query.split(3)[0].all()]

    for read in reads:
        with pytest.raises(
            NotSupported, match=r"Staff\.by_age is not read: .* run db\.build_index\(Staff\.by_age, no_olde"
        ):
            await read
    with pytest.raises(NotSupported, match="building=False if it is complete"):
        await db.union(query).all()
    for point in (db.get, db.get_or_none, db.exists):
        with pytest.raises(NotSupported, match="is not read"):
            await point(Staff.by_age, team="a", age=30, id=900)


async def test_explain_sends_nothing(db: Database) -> None:
    """It takes an index for complete until the store was asked; what it shows is not what decides."""
    await fill(db)
    query = by_age(db)

    with assert_requests(db, 0):
        assert "by index Staff.by_age" in str(query.explain())
    assert len(await query.all()) == 4
    assert "by primary key" in str(query.explain())


async def test_a_cursor_goes_on_when_the_index_is_complete(db: Database, other: Database) -> None:
    """Pages that were begun by the entities' own keys, or by the index in another program, go on where they were."""
    await fill(db, 9)
    page = await by_age(db).page(4)
    await by_age(other).all()
    await db.build_index(Staff.by_age, no_older_writers=True)

    after = await by_age(db).page(4, page.cursor)
    ahead = await by_age(db).page(4)
    behind = await by_age(other).page(4, ahead.cursor)

    assert [each.id for each in page.items + after.items] == [*range(8)]
    assert [each.id for each in ahead.items + behind.items] == [*range(8)]
    with pytest.raises(CursorError, match="another query"):
        await by_age(db, 31).page(4, page.cursor)


# How it becomes readable


async def test_other_programs_learn_of_it_within_a_minute(db: Database, other: Database) -> None:
    """They ask for the states once a minute as long as the index is not complete."""
    await fill(db)
    await by_age(other).all()
    await db.build_index(Staff.by_age, no_older_writers=True)

    with assert_requests(other, 1):
        assert len(await by_age(other).all()) == 4
    with pytest.raises(NotSupported, match="is not read"):  # a part has no other keys
        await by_age(db).split(3)[0].bind(other).all()
    wait_a_minute(other)
    with assert_requests(other, 3):  # the states, then each time by the index
        assert len(await by_age(other).all()) == 4
        assert len(await by_age(other).all()) == 4
    assert "by index Staff.by_age" in str(by_age(other).explain())


async def test_a_build_that_is_not_complete_makes_nothing_readable(db: Database) -> None:
    """A row in the way of an entry leaves the index incomplete, whatever the operator says."""
    await fill(db)
    await db.insert(PropertyBag("StatesStaff", "a", "age_030_001", {"Text": "mine"}))

    report = await db.build_index(Staff.by_age, no_older_writers=True)

    assert (report.complete, report.readable) == (False, False)
    await assert_not_read(db)


async def test_a_declaration_can_say_it_itself(db: Database) -> None:
    """`building=True` forbids reading what the store says is complete; `building=False` allows what it does not say."""
    await begin(db)

    with pytest.raises(NotSupported, match="is being built"):
        db.select(Being.by_age)
    with assert_requests(db, 1):
        assert len(await db.select(Being).where(Being.team == "a", Being.age == 30).all()) == 1
    await db.drop_table(UPKEEP_TABLE)
    assert len(await db.select(Known.by_age).where(Known.team == "a").all()) == 1


async def test_what_was_built_behind_the_flag_is_readable_without_it(db: Database) -> None:
    """An index that is declared with `building=True` gets its state too: the declarations keep equal entries."""
    await fill(db)

    assert (await db.build_index(Being.by_age, no_older_writers=True)).readable

    assert len(await db.select(Staff.by_age).where(Staff.team == "a").all()) == 4


async def test_a_changed_declaration_begins_anew(db: Database) -> None:
    """Its state is another row; the former one stays as it is."""
    await begin(db)

    with pytest.raises(NotSupported, match=r"Changed\.by_age is not read"):
        await db.get(Changed.by_age, team="a", age=30, id=1)
    await db.create_tables(Changed)

    assert sorted(state.state for state in await db.index_states()) == ["readable", "write-only"]
    assert (await db.build_index(Changed.by_age, no_older_writers=True)).readable
    assert (await db.get(Changed.by_age, team="a", age=30, id=1)).id == 1


# Tables


async def test_states_are_listed(db: Database) -> None:
    """With their model, name and tables; those of tables that were there are not complete."""
    await make_filled(db)
    before = dt.datetime.now(dt.UTC)
    await db.create_tables(StaffByTable)
    await db.create_tables(Staff)

    listed = await db.index_states()

    assert [(s.model, s.declaration, s.table, s.entry_table, s.state) for s in listed] == [
        ("Staff", "by_age", "StatesStaff", "StatesStaff", "write-only"),
        ("StaffByTable", "of_age", "StatesStaff", "StatesAges", "write-only"),
    ]
    assert all(before - dt.timedelta(minutes=1) < s.since for s in listed)
    assert str(listed[0]).startswith("Staff.by_age of table StatesStaff: write-only since 20")


async def test_an_index_needs_both_of_its_tables_new(db: Database, other: Database) -> None:
    """Entities, or entries, may have been there before."""
    await other.create_tables("StatesAges")
    await db.create_tables(StaffByTable)
    assert await states_of(db) == {"of_age": "write-only"}
    for table in ("StatesStaff", "StatesAges"):
        await db.drop_table(table)
    assert await states_of(db) == {}

    await db.create_tables(StaffByTable)

    assert await states_of(db) == {"of_age": "readable"}


@pytest.mark.parametrize("table", ["StatesStaff", "statesages"])
async def test_a_table_takes_its_states_with_it(db: Database, other: Database, table: str) -> None:
    """Be it that of the entities or that of the entries, in any spelling: made anew by others, it is not complete."""
    await db.create_tables(StaffByTable)
    assert await states_of(other) == {"of_age": "readable"}

    await db.drop_table(table)
    await other.create_tables(Older, "StatesAges")

    assert await states_of(other) == {}
    with pytest.raises(NotSupported, match="is not read"):
        await db.select(StaffByTable.of_age).where(StaffByTable.team == "a").all()


async def test_programs_that_begin_together(db: Database, other: Database) -> None:
    """One finds rows in the table that the other one has just made, and not yet noted the states of: it asks again."""
    await make_filled(db)  # as far as the first program got
    await other.create_tables(Staff)
    await db.build_index(Staff.by_age, no_older_writers=True)  # the state comes a moment later

    await other.insert(Staff(age=30))
    assert (await find(other)).id == 1


async def test_a_table_stays_new_for_who_made_it(db: Database, other: Database) -> None:
    """By name, or for another model; not if the model has entities in it, nor when it was dropped by then."""
    await db.create_tables("StatesStaff")
    await db.insert(PropertyBag("StatesStaff", "a", "x"))

    with assert_requests(db, 4):  # the table, a row of the model, the table of states, the state
        await db.create_tables(Staff)
    assert await states_of(db) == {"by_age": "readable"}

    await db.insert(Older())
    await db.create_tables(StaffByTable)
    assert await states_of(db) == {"by_age": "readable", "of_age": "write-only"}
    await db.drop_table("statesstaff")
    await other.create_tables(Older)
    await db.create_tables(Staff)
    assert await states_of(db) == {"by_age": "write-only"}


async def test_a_page_without_rows_is_not_the_end() -> None:
    """The service may give an empty page before the first row, of the table and of the states."""
    async with Database(Awkward(1, most=1, empty=0.9)) as db:
        await fill(db)
        await db.create_tables(Staff)
        await db.create_tables(Changed)

        assert len(await db.index_states()) == 2
        assert {state.state for state in await db.index_states()} == {"write-only"}


async def test_a_state_never_goes_back(db: Database, other: Database) -> None:
    """A program that finds the table, and no state yet, leaves the state that another one wrote meanwhile."""
    await make_filled(db)
    faults = Faults(other)
    with faults.fail_next("query", with_="TableNotFound", table=UPKEEP_TABLE):
        await db.build_index(Staff.by_age, no_older_writers=True)
        await other.create_tables(Staff)

    assert await states_of(other) == {"by_age": "readable"}


async def test_a_lost_reply_is_made_good() -> None:
    """The state is written again where nobody knows whether it was."""
    async with connect("local::memory:", retry=RetryPolicy(base=0.0)) as db:
        faults = Faults(db)
        with faults.lose_reply("insert-or-replace", table=UPKEEP_TABLE, times=2):
            await db.create_tables(Staff)
        assert await states_of(db) == {"by_age": "readable"}
        with faults.lose_reply("delete", table=UPKEEP_TABLE):
            await db.drop_table(Staff)
        assert await states_of(db) == {}


async def test_a_refusal_is_told() -> None:
    """What the store refuses for good is an error of the call."""
    async with connect("local::memory:", retry=RetryPolicy(attempts=1)) as db:
        faults = Faults(db)
        for operation in ("create-table", "insert-or-replace"):
            with (
                faults.fail_next(operation, table=UPKEEP_TABLE, with_=429),
                pytest.raises(Throttled, match=r"TableormUpkeep|states of indexes"),
            ):
                await db.create_tables(Staff)
            await db.create_tables(Staff)  # which goes on where the former call has ended
            assert await states_of(db) == {"by_age": "readable"}
            await db.drop_table(Staff)
            await db.drop_table(UPKEEP_TABLE)


async def test_states_go_before_their_table() -> None:
    """A table whose states could not be deleted, or which then was not deleted itself, has no state that is wrong."""
    async with memory_database(Staff) as db:
        with Faults(db).fail_next("delete", table=UPKEEP_TABLE, with_=403), pytest.raises(AccessDenied):
            await db.drop_table(Staff)
        assert (await db.tables(), await states_of(db)) == (["StatesStaff", UPKEEP_TABLE], {"by_age": "readable"})
        with Faults(db).fail_next("delete-table", with_=403), pytest.raises(AccessDenied):
            await db.drop_table(Staff)

        assert await states_of(db) == {}
        await assert_not_read(db)


async def test_who_may_not_note_states_still_begins() -> None:
    """A program without the right to write states can use tables that are there."""
    async with connect("local::memory:") as db:
        await make_filled(db)
        with Faults(db).fail_next("query", table=UPKEEP_TABLE, with_=403):
            await db.create_tables(Staff)
        assert await states_of(db) == {}


# Where


async def test_a_token_for_one_table_hides_the_states(db: Database, tmp_path: Path) -> None:
    """Its holder reads by the index only if the declaration says that it is complete, and asks once a minute."""
    await begin(db)
    token = await db.grant(Staff, "r", dt.timedelta(hours=1))

    async with connect(f"local:{tmp_path / 'states.tables'}", sas=str(token)) as mine:
        with pytest.raises(
            NotSupported, match=r"TableormUpkeep records whether .* the token .* with building=False if it is complete"
        ):
            await find(mine)
        with assert_requests(mine, 1):
            assert (await mine.get(Known.by_age, team="a", age=30, id=1)).id == 1
        with assert_requests(mine, 1):
            assert [each.id for each in await by_age(mine).all()] == [1]
        with assert_requests(mine, 0), pytest.raises(NotSupported, match="is not read"):
            await find(mine)
        with pytest.raises(AccessDenied):
            await mine.index_states()


async def test_a_scope_reads_by_the_index(db: Database, other: Database) -> None:
    """States are the mapper's own: a scope uses them, and does not list them."""
    await other.create_tables(Staff)
    await db.insert(Staff(age=30))
    mine = db.scope(team="a")

    with assert_requests(db, 2):
        assert (await mine.get(Staff.by_age, age=30, id=1)).id == 1
    assert [each.id for each in await mine.select(Staff).where(Staff.age == 30).all()] == [1]
    with pytest.raises(AccessDenied, match=r"index_states\(\)"):
        await mine.index_states()


async def test_databases_with_prefixes_have_states_of_their_own(tmp_path: Path) -> None:
    """The prefix stands before the name of the table of states too."""
    url = f"local:{tmp_path / 'states.tables'}"
    async with connect(url, prefix="one") as one, connect(url, prefix="two") as two, connect(url) as whole:
        await one.create_tables(Staff)
        await two.create_tables(Older)

        assert (await states_of(one), await states_of(two)) == ({"by_age": "readable"}, {})
        assert await whole.tables() == ["oneStatesStaff", "oneTableormUpkeep", "twoStatesStaff"]
        await assert_not_read(two)


async def test_a_database_that_is_opened_again_knows_nothing() -> None:
    """What it knew was of other tables: those in memory are gone."""
    db = connect("local::memory:")
    async with db:
        await db.create_tables(Staff)
    async with db:
        await db.create_tables(Older)
        await assert_not_read(db)
