"""
Queues and blobs of a database: where they live, and what is said where there are none.
"""
# ruff: noqa: ASYNC240 - a test may look at its files

from pathlib import Path
from typing import Any

import pytest

from tableorm import Database, NotSupported, Unavailable, connect
from tableorm.stores import Backend, TableStore
from tableorm.testing import MemoryStore
from tableorm_local import LocalBackend

pytestmark = pytest.mark.limit(10)  # what hangs shall fail soon


class TablesAlone:
    """A backend that has tables and nothing else."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @classmethod
    def handles(cls, url: str) -> bool:
        return url == "tables-alone:"

    @classmethod
    def from_url(cls, url: str, *, timeout: float, options: dict[str, Any]) -> Backend:
        return cls()

    @property
    def tables(self) -> TableStore:
        return MemoryStore()

    queues = None
    blobs = None

    async def open(self) -> None:
        self.events.append("open")

    async def close(self) -> None:
        self.events.append("close")


async def test_with_the_tables(tmp_path: Path) -> None:
    """A backend that has queues and blobs gives them, in the same file."""
    async with connect(f"local:{tmp_path}/all") as db:
        await db.queues.create_queue("some")
        await db.blobs.create_container("some")

    async with connect(f"local:{tmp_path}/all") as db:
        assert await db.queues.list_queues() == ["some"]
        assert await db.blobs.list_containers() == ["some"]


async def test_elsewhere(tmp_path: Path) -> None:
    """Queues and blobs live where their arguments say, each in a file of its own."""
    urls = {name: f"local:{tmp_path}/{name}" for name in ("tables", "queues", "blobs")}
    async with connect(urls["tables"], queues=urls["queues"], blobs=urls["blobs"]) as db:
        await db.queues.create_queue("some")
        await db.blobs.create_container("some")

    assert sorted(each.name for each in tmp_path.iterdir() if not each.name.endswith("-lock")) == sorted(urls)
    async with connect(urls["tables"]) as db:
        assert await db.queues.list_queues() == await db.blobs.list_containers() == []
    async with connect(urls["queues"]) as db:
        assert (await db.queues.list_queues(), await db.blobs.list_containers()) == (["some"], [])


async def test_where_there_are_none() -> None:
    """Asking for them names the argument that says where they are."""
    async with Database(TablesAlone()) as db:
        with pytest.raises(NotSupported, match=r"no queues; .* connect\(url, queues=\.\.\.\)"):
            _ = db.queues
        with pytest.raises(NotSupported, match=r"no blobs; .* connect\(url, blobs=\.\.\.\)"):
            _ = db.blobs


async def test_a_backend_without_may_be_given_them() -> None:
    """Queues of another backend go with tables that have none."""
    async with Database(TablesAlone(), queues=LocalBackend(None)) as db:
        await db.queues.create_queue("some")

        assert await db.queues.list_queues() == ["some"]
        with pytest.raises(NotSupported, match="no blobs"):
            _ = db.blobs


async def test_not_open() -> None:
    """Before it is opened and after it is closed there are neither."""
    db = connect("local::memory:")
    for problem in ("not open", "is closed"):
        with pytest.raises(NotSupported, match=problem):
            _ = db.queues
        with pytest.raises(NotSupported, match=problem):
            _ = db.blobs
        await db.open()
        await db.close()


async def test_opened_together_or_not_at_all(tmp_path: Path) -> None:
    """If one of them cannot be opened, those opened before are closed again."""
    tables = TablesAlone()
    missing = LocalBackend(tmp_path / "missing" / "queues")
    with pytest.raises(Unavailable, match="missing"):
        await Database(tables, queues=missing).open()

    assert tables.events == ["open", "close"]


async def test_one_backend_is_opened_once() -> None:
    """A backend that has all is opened and closed once."""
    tables = TablesAlone()
    async with Database(tables, blobs=tables):
        pass

    assert tables.events == ["open", "close"]


def test_unknown_url() -> None:
    """A URL that no backend opens is refused at once."""
    with pytest.raises(NotSupported, match="no installed backend opens 'nowhere:'"):
        connect("local::memory:", blobs="nowhere:x")
