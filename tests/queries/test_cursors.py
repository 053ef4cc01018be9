"""
Cursors: text that goes on where a query stopped, in another process, and never outside of its query.
"""

import re
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import CursorError, Database, Entity, Index, Mapped, ModelError, Page, Select, connect, field
from tableorm.models.kinds import KindSet
from tableorm.queries.cursors import MAX_CURSOR, write_cursor
from tableorm.queries.execution import Position
from tableorm.queries.planning.planner import planner_of
from tableorm.queries.query import start_query
from tests.database.between import Awkward, Recorded
from tests.databases import memory_database


class Item(Entity, table="Items", partition_key="{group}", row_key="{label}_{number:03d}"):
    group: Mapped[str]
    label: Mapped[str]
    number: Mapped[int]
    text: Mapped[str | None] = field(default=None)


class Other(Entity, table="Items", partition_key="{group}", row_key="other_{number:03d}"):
    group: Mapped[str]
    number: Mapped[int]


ITEMS = [Item(group=group, label=label, number=n) for group in "abc" for label in "xyz" for n in range(3)]


async def fill(db: Database, items: list[Item] = ITEMS) -> None:
    await db.create_tables(Item)
    for item in items:
        await db.insert(item)


def base(db: Database) -> Select[Item]:
    return db.select(Item).where(Item.group.in_(["a", "b"]), Item.label >= "x")


async def test_a_cursor_may_stand_in_a_url(db: Database) -> None:
    """Letters, digits, hyphen and underscore; the last page has none."""
    await fill(db)
    pages = [page async for page in base(db).pages(5)]

    assert [len(page.items) for page in pages] == [5, 5, 5, 3]
    assert pages[-1].cursor is None
    for page in pages[:-1]:
        assert page.cursor is not None and re.fullmatch("[A-Za-z0-9_-]+", page.cursor)


@pytest.mark.parametrize("char", ["a", "é", "日", "\U0001f600", "\uffff"])
async def test_the_longest_keys_fit(db: Database, char: str) -> None:
    """Keys of 1 KiB in UTF-16, where UTF-8 takes up to half as much again."""
    units = len(char.encode("utf-16-le")) // 2
    longest = char * (512 // units)
    await fill(db, [Item(group=longest, label=longest[: (508 // units)], number=n) for n in range(3)])
    query = db.select(Item).where(Item.group == longest)
    first = await query.limit(3).page(1)

    assert first.cursor is not None and len(first.cursor) <= MAX_CURSOR
    assert [item.number for item in (await query.limit(3).page(5, first.cursor)).items] == [1, 2]


async def test_a_cursor_is_of_its_very_query(db: Database) -> None:
    """Other conditions, values, fields, limits or kinds: refused, saying so."""
    await fill(db)
    cursor = (await base(db).page(2)).cursor
    others: list[Select[Any]] = [
        db.select(Item).where(Item.group.in_(["a", "c"]), Item.label >= "x"),
        db.select(Item).where(Item.group.in_(["a", "b"])),
        base(db).where(Item.text.is_none()),
        base(db).only(Item.text),
        base(db).limit(10),
        db.select(Item).allow_scan(),
        db.select(Item, Other).where(Item.group.in_(["a", "b"])),
        base(db).split(2)[0],
    ]

    assert cursor is not None
    for query in others:
        with pytest.raises(CursorError, match=r"another query|outside"):
            await query.page(2, cursor)
        with pytest.raises(CursorError):
            async with query.stream(cursor) as stream:
                await anext(aiter(stream))
    # Neither the size of a page nor the concurrency is part of a query.
    assert len((await base(db).concurrency(1).page(100, cursor)).items) == 16


async def test_a_cursor_is_of_its_very_limit(db: Database) -> None:
    """A larger limit would give more than either, a smaller one than itself."""
    await fill(db)
    cursor = (await base(db).limit(6).page(2)).cursor

    assert cursor is not None
    for query in (base(db), base(db).limit(5), base(db).limit(7), base(db).limit(3)):
        with pytest.raises(CursorError, match="limit"):
            await query.page(2, cursor)
    assert len((await base(db).limit(6).page(100, cursor)).items) == 4


@pytest.mark.parametrize(
    "garbage", ["", "x", "AAAA", "é", "\x00", "A" * 5000, "====", "a b", "AQ" * 20, "../../etc", "%20", 5]
)
async def test_garbage_is_refused(db: Database, garbage: Any) -> None:
    """As a CursorError, whatever it is."""
    await fill(db)
    with pytest.raises(CursorError, match="is not a cursor"):
        await base(db).page(2, garbage)


async def test_damage_is_found(db: Database) -> None:
    """Every truncation, every changed character, and what a lenient reader would skip."""
    await fill(db)
    cursor = (await base(db).page(2)).cursor
    assert cursor is not None

    for end in range(len(cursor)):
        with pytest.raises(CursorError):
            await base(db).page(2, cursor[:end])
    for at in range(len(cursor)):
        for char in "A_z":
            if char == cursor[at]:
                continue
            with pytest.raises(CursorError):
                await base(db).page(2, cursor[:at] + char + cursor[at + 1 :])
    for added in ("AAAA", "=", "====", "\n", "====AAAA", "!!!!"):
        for at in (0, 5, len(cursor)):
            with pytest.raises(CursorError):
                await base(db).page(2, cursor[:at] + added + cursor[at:])


async def test_an_unordered_query_has_none(db: Database) -> None:
    """Neither by pages nor by a stream, which is said when it is asked for."""
    await fill(db)
    query = base(db).unordered()
    cursor = (await base(db).page(2)).cursor

    with pytest.raises(CursorError, match=r"have no order; remove \.unordered\(\)"):
        await query.page(2)
    with pytest.raises(CursorError, match="no order"):
        async with query.stream(cursor) as stream:
            await anext(aiter(stream))
    async with query.stream() as stream:
        await anext(aiter(stream))
        with pytest.raises(CursorError, match="no order"):
            _ = stream.cursor


async def test_empty_pages_make_progress() -> None:
    """A page that is still short after ten requests is given as it is, and the next one goes on behind it."""
    async with Database(Awkward(3, most=1, empty=0.9)) as db:
        await fill(db)
        sizes: list[int] = []
        found: list[Item] = []
        cursor: str | None = None
        while True:
            before = db.stats.requests
            page = await base(db).concurrency(1).page(100, cursor)
            assert db.stats.requests - before <= 12
            sizes.append(len(page.items))
            found += page.items
            cursor = page.cursor
            if cursor is None:
                break

    assert 0 in sizes
    assert [item.key for item in found] == [item.key for item in ITEMS if item.group in "ab"]


POSITIONS = st.builds(
    Position,
    after=st.none()
    | st.tuples(st.sampled_from(["", "a", "b", "c", "aa", "B", "\uffff"]), st.text(st.sampled_from("xyz_019~"))),
    skip=st.integers(-2, 5),
    continuation=st.none() | st.sampled_from(["", "x", "1.2", "empty:", "ff" * 8]) | st.text(string.printable),
    wanted=st.none() | st.integers(-3, 30),
)


@given(POSITIONS, st.none() | st.just(4))
async def test_a_forged_position_never_widens_a_query(position: Position, limit: int | None) -> None:
    """Whatever a client writes into a cursor, no row outside of the query is read, and no more than its limit."""
    async with Database(Recorded()) as db:
        await fill(db)
        query = db.select(Item).where(Item.group.in_(["a", "b"]), Item.label.in_(["x", "y"]), Item.number >= 1)
        query = query if limit is None else query.limit(limit)
        inside = {item.key for item in ITEMS if item.group in "ab" and item.label in "xy" and item.number >= 1}
        cursor = await forged(query, position, limit)
        try:
            page = await query.page(1000, cursor)
        except CursorError:
            return
        assert {item.key for item in page.items} <= inside
        assert limit is None or len(page.items) <= limit
        assert db.stats.rows <= len(inside)


async def forged(query: Select[Item], position: Position, limit: int | None) -> str | None:
    """What someone who knows how cursors are made can make for a query."""
    return write_cursor((await start_query(query))[0].plan, position, limit)


async def test_a_place_of_another_plan_is_refused(db: Database) -> None:
    """A cursor of the whole table is none of a partition."""
    await fill(db)
    whole = planner_of(KindSet.of([Item])).plan([], allow_scan=True)

    for position in (Position(("c", "x_001")), Position(("a", "x_001")), Position(skip=1), Position()):
        with pytest.raises(CursorError, match="another query"):
            await base(db).page(2, write_cursor(whole, position, None))


async def test_a_place_outside_is_refused(db: Database) -> None:
    """Also if the cursor says that it is of this query."""
    await fill(db)
    query = base(db)

    keys = (Position(("c", "x_001")), Position(("a", "w")))
    for position in (*keys, Position(skip=9), Position(skip=-1), Position(wanted=3)):
        with pytest.raises(CursorError, match="outside"):
            await query.page(2, await forged(query, position, None))


async def test_a_query_that_finds_nothing_has_one_page(db: Database) -> None:
    """Empty, and without a cursor; nothing is sent where nothing can be found."""
    await fill(db)
    before = db.stats.requests
    nothing = await db.select(Item).where(Item.group == "a", Item.number.in_([])).page(5)

    assert (nothing.items, nothing.cursor, db.stats.requests - before) == ([], None, 0)
    assert (await db.select(Item).where(Item.group == "q").page(5)).cursor is None
    assert (await db.select(Item).where(Item.group == "a").limit(0).page(5)).cursor is None


async def test_a_cursor_in_the_middle_of_several_requests() -> None:
    """What lies before it is not asked again."""
    backend = Recorded()
    async with Database(backend) as db:
        await fill(db)
        query = db.select(Item).where(Item.group.in_(["a", "b", "c"])).concurrency(1)
        page = await query.page(12)
        backend.asked.clear()
        rest = await query.page(100, page.cursor)

    assert backend.asked == ["b", "c"]
    assert [item.key for item in page.items + rest.items] == [item.key for item in ITEMS]


async def test_sizes_are_checked() -> None:
    """1 to 1000."""
    async with connect("local::memory:") as db:
        await fill(db)
        for size in (0, -1, 1001, True):
            with pytest.raises(ModelError, match="1 to 1000"):
                await base(db).page(size)


class AnyLog(Entity, table="LogsWithCursors", partition_key="{day}", row_key="log_{number:03d}", abstract=True):
    """What programs with other indexes declare alike."""

    day: Mapped[str]
    number: Mapped[int]
    level: Mapped[str] = field(default="info")


class Log(AnyLog): ...


class IndexedLog(AnyLog, kind="Log"):
    by_level = Index(row_key="level_{level}_log_{number:03d}")


class AlwaysIndexedLog(AnyLog, kind="Log"):
    by_level = Index(row_key="level_{level}_log_{number:03d}", building=False)


async def _page(model: Any, cursor: str | None) -> Page[Any]:
    async with memory_database(model) as db:
        for number in range(3):
            await db.insert(model(day="a", number=number))
        query = db.select(model).where(model.day == "a", model.level == "info")
        assert ("index" in query.explain().path) is (model is not Log)
        return await query.page(1, cursor)


async def test_cursors_go_on_when_a_query_uses_an_index_from_now_on() -> None:
    """The program reads on without the index, which other programs may not use yet."""
    first = await _page(Log, None)
    second = await _page(IndexedLog, first.cursor)

    assert [log.number for page in (first, second) for log in page.items] == [0, 1]


async def test_cursors_end_when_a_query_loses_its_index() -> None:
    """
    Entries have other keys than entities, so the place that the cursor names is not there; the error says so. The same
    holds for an index that is always read.
    """
    first = await _page(IndexedLog, None)
    plain = await _page(Log, None)
    for model, cursor in ((Log, first.cursor), (AlwaysIndexedLog, plain.cursor)):
        with pytest.raises(CursorError, match="until the keys or indexes of the model change"):
            await _page(model, cursor)
