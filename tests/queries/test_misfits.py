"""
Rows that do not fit their model: the entities before such a row are given, then its error; or it is left out.
"""

import datetime as dt
import pickle
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import (
    Database,
    DecodeError,
    Entity,
    Feed,
    Index,
    IndexList,
    Mapped,
    ModelError,
    MovedFrom,
    PropertyBag,
    Select,
    WrongKind,
    connect,
    field,
    upgrade,
)
from tableorm.connection.connection import connection_of
from tableorm.models.marker_rows import CHANGE_KIND
from tableorm.rekey.phases import RekeyPhase
from tableorm.stores import Row
from tests.databases import database_fixture, memory_database
from tests.rekeys import set_phase
from tests.rows import merge_row
from tests.torture import examples

pytestmark = pytest.mark.limit(20)  # what hangs shall fail soon

UTC = dt.UTC
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=UTC)


class Sized(Entity, abstract=True):
    """What all models have: a number of which other programs make a text."""

    id: Mapped[int]
    size: Mapped[int] = field(default=0)


class Plain(Sized, table="MisfitsPlain", partition_key="p", row_key="{id:03d}"):
    changes = Feed(keep=dt.timedelta(days=7))


class Spread(Sized, table="MisfitsSpread", partition_key="{id:spread(4)}", row_key="{id:03d}"): ...


class Found(Sized, table="MisfitsFound", partition_key="p", row_key="{id:03d}"):
    """Its index holds keys, so that the entities are read by them."""

    group: Mapped[str] = field(default="g")

    by_group = Index(row_key="group_{group}_{id:03d}", include="keys", building=False)


class Daily(Sized, table="MisfitsDaily{at:%Y%m%d}", partition_key="p", row_key="{at:ticks}_{id:03d}"):
    at: Mapped[dt.datetime]


class Log(Sized, table="MisfitsLog", partition_key="p", row_key="{at:ticks_desc}_{id:03d}"):
    at: Mapped[dt.datetime]


class Old(Sized, table="MisfitsRekeyed", tracked=True, partition_key="p", row_key="old_{id:03d}"): ...


class New(
    Sized,
    table="MisfitsRekeyed",
    tracked=True,
    partition_key="n",
    row_key="new_{id:03d}",
    moved_from=MovedFrom(Old),
): ...


class Raising(Sized, table="MisfitsRaising", partition_key="p", row_key="{id:03d}", version=2): ...


@upgrade(Raising, from_version=1)
def refuse_odd_sizes(bag: PropertyBag) -> PropertyBag:
    if bag["size"] == 13:
        raise ZeroDivisionError("thirteen")
    return bag


MADE: dict[str, tuple[Callable[[int], Any], Callable[[Database], Select[Any]]]] = {
    "partition": (lambda n: Plain(id=n), lambda db: db.select(Plain)),
    "some fields": (lambda n: Plain(id=n), lambda db: db.select(Plain).only(Plain.size)),
    "points": (lambda n: Plain(id=n), lambda db: db.select(Plain).where(Plain.id.in_(range(100)))),
    "parallel": (lambda n: Plain(id=n), lambda db: db.select(Plain).allow_scan(parallel=8)),
    "merged": (lambda n: Spread(id=n), lambda db: db.select(Spread)),
    "by an index": (lambda n: Found(id=n), lambda db: db.select(Found.by_group)),
    "periods": (
        lambda n: Daily(id=n, at=NOON + dt.timedelta(hours=9 * n)),
        lambda db: db.select(Daily).where(Daily.at >= NOON, Daily.at < NOON + dt.timedelta(days=12)),
    ),
}


memory = database_fixture()


async def spoil(db: Database, entity: Any) -> None:
    """Write a text where the model declares a number, as another program would."""
    key = entity.key
    await write_past(db, key.table, {"PartitionKey": key.partition_key, "RowKey": key.row_key, "size": "large"})


async def write_past(db: Database, table: str, row: Row) -> None:
    """Merge members into a row as a program does that does not know tableorm."""
    await merge_row(connection_of(db).require_open(), table, row)


async def fill(db: Database, make: Callable[[int], Any], fits: Sequence[bool]) -> None:
    first: Entity = make(0)
    await db.create_tables(type(first))
    for number, fit in enumerate(fits):
        entity = make(number)
        await db.insert(entity)
        if not fit:
            await spoil(db, entity)


Seen = list[int | str]


async def streamed(query: Select[Any], size: int, cursor: str | None = None) -> Seen:
    """What streams give, one after the other, each from the cursor of that before it on."""
    seen: Seen = []
    while True:
        async with query.stream(cursor) as stream:
            try:
                async for entity in stream:
                    seen.append(entity.id)
                return seen
            except DecodeError as error:
                seen.append(error.key[1])
                told = error.cursor
        cursor = stream.cursor
        assert cursor == told is not None


async def iterated(query: Select[Any], size: int) -> Seen:
    """What `async for` gives; the error has the cursor."""
    seen: Seen = []
    try:
        async for entity in query:
            seen.append(entity.id)
    except DecodeError as error:
        return [*seen, error.key[1], *await streamed(query, size, pickle.loads(pickle.dumps(error)).cursor)]
    return seen


async def listed(query: Select[Any], size: int) -> Seen:
    """What lists give, where the entities before a row that does not fit are not seen."""
    try:
        return [entity.id for entity in await query.all()]
    except DecodeError as error:
        return [error.key[1], *await streamed(query, size, error.cursor)]


async def paged(query: Select[Any], size: int) -> Seen:
    """What pages give."""
    seen: Seen = []
    cursor: str | None = None
    while True:
        try:
            page = await query.page(size, cursor)
        except DecodeError as error:
            seen.append(error.key[1])
            cursor = error.cursor
            continue
        assert len(page.items) <= size
        seen += [entity.id for entity in page.items]
        cursor = page.cursor
        if cursor is None:
            return seen


@pytest.mark.one_of(3)
@pytest.mark.parametrize("world", list(MADE))
@given(
    fits=st.lists(st.booleans(), max_size=8),
    size=st.integers(1, 5),
    limit=st.none() | st.integers(1, 8),
    ordered=st.booleans(),
)
@examples(2, 300)
async def test_nothing_is_hidden_and_nothing_twice(
    world: str, fits: list[bool], size: int, limit: int | None, *, ordered: bool
) -> None:
    """
    However a query is read, it gives each entity once, and the error of each row that does not fit in its place; with
    misfits("skip") or a function the entities alone, and the function gets each error up to the limit once.
    """
    make, select = MADE[world]
    fits = [*fits, True]
    async with connect("local::memory:") as db:
        await fill(db, make, fits)
        query = select(db) if limit is None else select(db).limit(limit)
        expected: Seen = []
        for number, fit in enumerate(fits):
            if limit is not None and sum(type(each) is int for each in expected) == limit:
                break
            expected.append(number if fit else make(number).key.row_key)
        entities = [each for each in expected if type(each) is int]
        unfit = [each for each in expected if type(each) is str]

        assert await streamed(query, size) == await iterated(query, size) == await paged(query, size) == expected
        first = next((at for at, each in enumerate(expected) if type(each) is str), None)
        assert await listed(query, size) == (expected if first is None else expected[first:])
        if not ordered:
            query = query.unordered()
        skipping = sorted([entity.id for entity in await query.misfits("skip").all()])
        if ordered or limit is None:
            assert skipping == entities
        for read in (streamed, iterated, listed, *[paged] * ordered):
            errors: list[DecodeError] = []
            seen = await read(query.misfits(errors.append), size)
            if ordered:
                assert seen == entities
                assert [error.key[1] for error in errors] == unfit
            elif limit is None:
                assert sorted(map(str, seen)) == sorted(map(str, entities))
                assert sorted(error.key[1] for error in errors) == unfit


async def test_parts_of_a_query_keep_it(memory: Database) -> None:
    """The parts of a query, also if they were pickled, leave out what the query leaves out."""
    await fill(memory, MADE["partition"][0], [True, False, True])
    parts = pickle.loads(pickle.dumps(memory.select(Plain).misfits("skip").split(3)))

    assert [e.id for part in parts for e in await part.bind(memory).all()] == [0, 2]


@pytest.mark.parametrize("policy", ["raise", "skip", "function"])
async def test_following_a_log(memory: Database, policy: str) -> None:
    """A log gives the entities of a poll, then the error; or goes on, and tells a function of the row once."""
    errors: list[DecodeError] = []
    made = [Log(id=n, at=NOON + dt.timedelta(seconds=n)) for n in range(4)]
    await fill(memory, made.__getitem__, [True, False, True])
    query, seen = memory.select(Log), list[int]()
    if policy != "raise":
        query = query.misfits("skip" if policy == "skip" else errors.append)
    log = query.follow(lag=dt.timedelta(days=20_000), since=NOON, pause=dt.timedelta(milliseconds=1))

    for _ in range(2):
        seen.append((await anext(log)).id)
    if policy == "raise":
        with pytest.raises(DecodeError, match="'large'"):
            await anext(log)
        return
    await memory.insert(made[3])
    seen.append((await anext(log)).id)
    await log.aclose()
    assert seen == [0, 2, 3]
    assert len(errors) == (policy == "function")


async def test_a_damaged_change_hides_no_change(memory: Database) -> None:
    """Of a change feed the changes before a damaged one are given; the error has the cursor behind it."""
    await memory.create_tables(Plain)
    for number in range(3):
        await memory.insert(Plain(id=number))
    rows = await memory.select_raw("MisfitsPlain").where("PartitionKey eq 'p'").all()
    changed = [row.row_key for row in rows if row["EntityType"] == CHANGE_KIND]
    await write_past(memory, "MisfitsPlain", {"PartitionKey": "p", "RowKey": changed[1], "EntityType": "Odd"})

    seen: list[int] = []
    with pytest.raises(DecodeError) as caught:
        async for change in memory.changes(Plain):
            seen += [change.number]
    assert seen == [1] and caught.value.cursor is not None
    assert [change.number async for change in memory.changes(Plain, after=caught.value.cursor)] == [3]


async def test_what_an_upgrade_raises(memory: Database) -> None:
    """The entities before it are given too, and it is never left out: the program is wrong, not the row."""
    await memory.create_tables(Raising)
    for number, size in enumerate([1, 2, 13, 4]):
        await memory.insert(
            PropertyBag("MisfitsRaising", "p", f"{number:03d}", {"EntityType": "Raising", "size": size})
        )
    seen: list[int] = []

    with pytest.raises(ZeroDivisionError):
        async for entity in memory.select(Raising).misfits("skip"):
            seen += [entity.id]
    assert seen == [0, 1]
    assert [entity.id for entity in (await memory.select(Raising).page()).items] == [0, 1]


@pytest.mark.parametrize("phase", [RekeyPhase.EXPAND, RekeyPhase.BACK])
async def test_while_entities_get_new_keys(memory: Database, phase: RekeyPhase) -> None:
    """All entities are given, at whichever key they are, before the error of the one that does not fit."""
    await memory.create_tables(Old, New)
    set_phase(memory, New, phase)
    for number in range(4):
        await memory.insert(New(id=number))
    where = "RowKey eq 'old_001' or RowKey eq 'new_001'"
    rows = await memory.select_raw("MisfitsRekeyed").where(where).allow_scan().all()
    (row,) = [row for row in rows if "size" in row]
    await write_past(
        memory, "MisfitsRekeyed", {"PartitionKey": row.partition_key, "RowKey": row.row_key, "size": "large"}
    )
    seen, errors = list[int](), list[DecodeError]()

    with pytest.raises(DecodeError, match="'large'") as caught:
        async for entity in memory.select(New).allow_scan():
            seen.append(entity.id)
    assert seen == [0, 2, 3] and caught.value.cursor is None
    assert [e.id for e in await memory.select(New).allow_scan().misfits(errors.append).all()] == seen
    assert len(errors) == 1


async def test_a_delete_reports_the_row(memory: Database) -> None:
    """What a query by an index finds is deleted, except for what does not fit, which is reported."""
    await fill(memory, MADE["by an index"][0], [True, False, True])
    report = await memory.select(Found.by_group).delete()

    assert report.written == 2
    assert ["'large'" in str(failure.error) for failure in report.failed] == [True]


class Listed(Sized, table="MisfitsListed", partition_key="p", row_key="row_{id:03d}"):
    all_of = IndexList(row_key="all")


async def test_reads_by_keys_name_the_row(memory: Database) -> None:
    """`get_many` and `lookup` give all or nothing: the error names the row."""
    await memory.create_tables(Listed)
    rows = [Listed(id=number) for number in range(3)]
    for each in rows:
        await memory.insert(each)
    await spoil(memory, rows[1])
    keys = [each.key for each in rows]

    for read in (memory.get_many(keys), memory.lookup(Listed.all_of)):
        with pytest.raises(DecodeError) as caught:
            await read
        assert caught.value.key == ("p", "row_001") and caught.value.field == "size"


@pytest.mark.parametrize("policy", ["ignore", None, ["skip"], 0])
def test_what_is_no_policy(policy: Any) -> None:
    """What is neither of the two words nor a function is rejected, with what to give."""
    with pytest.raises(ModelError, match=r"give 'raise', 'skip', or a function that takes each error"):
        connect("local::memory:").select(Plain).misfits(policy)


def test_a_query_shows_it() -> None:
    """The text of a query says what becomes of such rows, unless it is what always does."""
    query = connect("local::memory:").select(Plain)
    assert str(query.misfits("skip")) == "<select(Plain).misfits('skip')>"
    assert str(query.misfits("skip").misfits("raise")) == str(query)


async def test_one_bad_row_hides_no_other_of_many_keys(memory: Database) -> None:
    """`get_many` gives None for a row that does not fit, or is of another kind, and its error to who asks for it."""
    await memory.create_tables(Plain)
    for number in range(40):
        await memory.insert(Plain(id=number))
    await memory.merge(PropertyBag("MisfitsPlain", "p", "007", {"size": "seven"}), if_match="*")
    await memory.merge(PropertyBag("MisfitsPlain", "p", "009", {"EntityType": "Other"}), if_match="*")
    keys = [Plain.key(id=number) for number in (7, 9, *range(20, 40), 50)]
    errors: list[DecodeError | WrongKind] = []

    with pytest.raises((DecodeError, WrongKind)):
        await memory.get_many(keys)
    found = await memory.get_many(keys, misfits=errors.append)

    assert [each and each.id for each in found] == [None, None, *range(20, 40), None]
    assert {each.key for each in errors} == {("p", "007"), ("p", "009")}
    assert await memory.get_many(keys, misfits="skip") == found
    with pytest.raises(ModelError, match=r"get_many\(misfits='none'\) is rejected"):
        await memory.get_many(keys, misfits=cast("Any", "none"))


async def test_an_empty_partition_with_rows_of_no_kind_gives_a_hint(caplog: pytest.LogCaptureFixture) -> None:
    """With `echo` it costs one request for each model, after a query that found nothing; otherwise there is none."""
    async with memory_database(Plain, echo=True) as db:
        query = db.select(Plain).where(Plain.id >= 0)
        await db.insert(PropertyBag("MisfitsPlain", "p", "001", {"size": 5}))
        before = db.stats.requests
        assert await query.where(Plain.size > 7).all() == []
        assert (db.stats.requests - before, caplog.messages) == (1, [])

        assert await query.all() == []
        assert await query.all() == []

        assert db.stats.requests - before == 4
        (message,) = caplog.messages
        assert message == (
            "query of Plain found nothing in a partition of table MisfitsPlain, whose row ('p', '001') has no kind: "
            "rows without EntityType need a model with kind=None"
        )
    async with memory_database(Plain) as db:
        before = db.stats.requests
        assert await db.select(Plain).where(Plain.id >= 0).all() == []
        assert db.stats.requests - before == 1
