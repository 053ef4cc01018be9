"""
The clock that a test stops: what it shows, and everything that is by it.
"""

import datetime as dt
from pathlib import Path
from typing import Any, cast

import pytest

from tableorm import AccessDenied, Entity, Mapped, connect, field, utc_now
from tableorm.stores import Clock
from tableorm_local import serve
from tests.databases import memory_database

BEGIN = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


class Note(Entity, table="Timed", partition_key="notes", row_key="{id}"):
    id: Mapped[str]
    changed: Mapped[dt.datetime | None] = field(default=None, on_write=utc_now)


def test_it_shows_the_time() -> None:
    """It shows the time of the system, in UTC."""
    assert abs(utc_now() - dt.datetime.now(dt.UTC)) < HOUR
    assert utc_now().tzinfo is dt.UTC


def test_freezing_and_advancing(tableorm_clock: Clock) -> None:
    """Frozen it stands still; it is put forward and back whether it runs or not."""
    tableorm_clock.advance(HOUR)
    assert abs(utc_now() - dt.datetime.now(dt.UTC) - HOUR) < HOUR / 2
    tableorm_clock.freeze()
    assert utc_now() == utc_now() and abs(utc_now() - dt.datetime.now(dt.UTC) - HOUR) < HOUR / 2
    tableorm_clock.freeze(dt.datetime(2030, 1, 1, 3, 4, 5, 678901, tzinfo=dt.timezone(2 * HOUR)))
    assert utc_now() == dt.datetime(2030, 1, 1, 1, 4, 5, 678901, tzinfo=dt.UTC)
    tableorm_clock.advance(dt.timedelta(days=-1, microseconds=1))
    assert utc_now() == dt.datetime(2029, 12, 31, 1, 4, 5, 678902, tzinfo=dt.UTC)
    tableorm_clock.reset()
    assert utc_now().year < 2029


@pytest.mark.parametrize("frozen", [True, False])
def test_advancing_often(tableorm_clock: Clock, *, frozen: bool) -> None:
    """A loop of any length can put it forward, by the sum of the steps."""
    begin = BEGIN if frozen else utc_now()
    if frozen:
        tableorm_clock.freeze(begin)
    for _ in range(5000):
        tableorm_clock.advance(HOUR)

    assert dt.timedelta(0) <= utc_now() - begin - 5000 * HOUR < (dt.timedelta(microseconds=1) if frozen else HOUR)


def test_a_time_without_a_zone(tableorm_clock: Clock) -> None:
    """A time that could be any of several is rejected."""
    with pytest.raises(ValueError, match="naive; give it a time zone"):
        tableorm_clock.freeze(dt.datetime(2030, 1, 1))  # noqa: DTZ001


def test_what_is_no_time(tableorm_clock: Clock) -> None:
    """The error says what to give."""
    for at in ("2030-01-01", dt.date(2030, 1, 1), 5):
        with pytest.raises(TypeError, match=r"freeze\(.*\) is rejected: give a datetime with a time zone"):
            tableorm_clock.freeze(cast("Any", at))


async def test_values_and_timestamps(tableorm_clock: Clock) -> None:
    """Fields that a write fills, and timestamps of the embedded engine, are by it."""
    tableorm_clock.freeze(BEGIN)
    async with memory_database(Note) as db:
        await db.insert(Note(id="a"))
        tableorm_clock.advance(HOUR)
        await db.insert(Note(id="b"))
        notes = await db.select(Note).all()

    assert [note.changed for note in notes] == [BEGIN, BEGIN + HOUR]
    assert [note.timestamp for note in notes] == [BEGIN, BEGIN + HOUR]


@pytest.mark.parametrize("place", ["local", "server"])
async def test_tokens_expire_by_it(tmp_path: Path, tableorm_clock: Clock, place: str) -> None:
    """Tokens are made and judged by it, in the engine and in a server of the same process."""
    path = tmp_path / "notes.tables"
    async with connect(f"local:{path}") as db, serve(path, port=0) as server:
        await db.create_tables(Note)
        await db.insert(Note(id="a"))
        tableorm_clock.freeze(BEGIN)
        token = await db.grant(Note, "r", HOUR)
        assert token.expires_at == BEGIN + HOUR
        async with connect(server.url if place == "server" else f"local:{path}", sas=token) as mine:
            tableorm_clock.advance(0.9 * HOUR)
            await mine.get(Note, id="a")
            tableorm_clock.advance(0.2 * HOUR)
            with pytest.raises(AccessDenied):
                await mine.get(Note, id="a")


async def test_a_supplier_is_asked_again_by_it(tmp_path: Path, tableorm_clock: Clock) -> None:
    """A function that supplies tokens is asked again when one is about to expire by the clock."""
    asked: list[dt.datetime] = []
    async with connect(f"local:{tmp_path / 'notes.tables'}") as db:
        await db.create_tables(Note)
        await db.insert(Note(id="a"))

        async def supply() -> str:
            asked.append(utc_now())
            return await db.grant(Note, "r", HOUR)

        tableorm_clock.freeze(BEGIN)
        async with connect(f"local:{tmp_path / 'notes.tables'}", sas=supply) as mine:
            for _ in range(3):
                await mine.get(Note, id="a")
                tableorm_clock.advance(0.6 * HOUR)

    assert asked == [BEGIN, BEGIN + 1.2 * HOUR]
