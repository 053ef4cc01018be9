"""
Where there are thousands of tables, or of names of properties: to make, delete or list tables keeps the engine busy,
and others have most of the time; and what a server remembers of names is little.
"""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest

from tableorm.protocol import limits
from tableorm_local import serve
from tableorm_local.engine import Engine, catalog
from tableorm_local.engine.write_session import LongSteps, WriteSession
from tableorm_local.server.operations import table_changes
from tests.local.engine.conftest import opened
from tests.local.server.client import Api, root_of
from tests.security.world import serve_file


async def test_changes_of_tables_leave_time_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change that made the engine read names for a second, the next one waits for 19 seconds."""
    now, pauses = 0.0, list[float]()
    list_tables, sleep = Engine.list_tables, asyncio.sleep

    async def read_for_a_second(self: Engine, start: str = "", limit: int | None = None) -> list[str]:
        nonlocal now
        now += 1
        return await list_tables(self, start, limit)

    async def pause(seconds: float, result: object = None) -> object:
        pauses.append(seconds)
        return await sleep(0, result)

    async with serve(tmp_path / "data.tables", port=0) as server, aiohttp.ClientSession() as session:
        monkeypatch.setattr(Engine, "list_tables", read_for_a_second)
        monkeypatch.setattr(table_changes, "time", SimpleNamespace(monotonic=lambda: now))
        monkeypatch.setattr(asyncio, "sleep", pause)
        api = Api(session, root_of(server))
        assert (await api("POST", "/Tables", {"TableName": "Tab"})).status == 201
        assert 19 not in pauses
        assert (await api("DELETE", "/Tables('Tab')")).status == 204
    assert pauses.count(19) == 1


async def test_a_table_is_renamed_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite reads the statements of all tables to rename a deleted one, in another thread than other requests."""
    threads, drop = list[int](), catalog.drop_table

    def note_thread(session: WriteSession, name: str) -> LongSteps:
        steps = drop(session, name)
        yield next(steps)
        threads.append(threading.get_ident())
        yield from steps

    monkeypatch.setattr(catalog, "drop_table", note_thread)
    async with opened(tmp_path / "data.tables", "Tab") as engine:
        await engine.delete_table("Tab")
        assert await engine.list_tables() == []
    assert len(threads) == 1 and threads[0] != threading.get_ident()


async def test_many_settings_are_deleted_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So are its settings deleted, of which somebody else's file may have any number."""
    counts, drop = list[int](), catalog.drop_table

    def count(session: WriteSession, name: str) -> LongSteps:
        steps = drop(session, name)
        yield next(steps)
        counts.append(session.connection.execute("SELECT count(*) FROM settings").get)
        yield from steps
        counts.append(session.connection.execute("SELECT count(*) FROM settings").get)

    monkeypatch.setattr(catalog, "drop_table", count)
    async with opened(tmp_path / "data.tables", "Tab") as engine:
        for number in range(3):
            await engine.settings.change(f"s{number}", lambda _: b"x", "Tab")
        await engine.delete_table("Tab")
    assert counts == [3, 0]


NAMES = [f"T{number:04}" for number in range(2_500)]


@pytest.mark.parametrize(
    ("path", "query", "read"),
    [
        ("/Tables", "$top=1", [2]),
        ("/Tables('t2400')", "", [1]),
        ("/Tables('Missing')", "", [1]),
        ("/Tables", "$filter=TableName%20eq%20'x'", [1000, 1000, 500]),
        ("/Tables", "$filter=TableName%20ge%20'T'&$top=3", [1000]),
    ],
)
async def test_names_are_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, query: str, read: list[int]
) -> None:
    """No request reads more than 1,000 names at once, nor more than it answers unless it has a filter."""
    engine = Engine(tmp_path / "data.tables")
    await engine.open()
    await engine.create_table("Tab")
    await engine.close()
    counts = list[int]()

    def list_names(_: object, start: str = "", limit: int | None = None) -> list[str]:
        found = [name for name in NAMES if name.lower() >= start][:limit]
        counts.append(len(found))
        return found

    async with serve(tmp_path / "data.tables", port=0) as server, aiohttp.ClientSession() as session:
        monkeypatch.setattr(catalog, "list_names", list_names)
        assert (await Api(session, root_of(server))("GET", path, query=query)).status == (
            404 if "Missing" in path else 200
        )
    assert counts == read


async def test_names_of_properties_are_not_kept_at_any_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inserts with 252 names of 255 characters, by a token for one partition, leave little in the server."""
    shapes: dict[tuple[str, ...], object] = {}
    monkeypatch.setattr(limits, "_SHAPES", shapes)
    async with serve_file(tmp_path / "data.tables") as (owner, api):
        await owner.create_table("Tab")
        for number in range(20):
            row: dict[str, object] = {"PartitionKey": "p", "RowKey": str(number)}
            for name in range(252):
                long = f"n{number}_{name}_".ljust(255, "x")
                row |= {long: "1", long + "@odata.type": "Edm.Int64"}
            assert (await api("POST", "/Tab", row)).status in (201, 204)
    assert sum(len(name) for names in shapes for name in names) < 1_000_000  # of 5 million characters that were sent
