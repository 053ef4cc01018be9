"""
Databases for one test: what they are called, and that nothing else is dropped.
"""

import asyncio
import re
from pathlib import Path

import pytest

from tableorm import Entity, Mapped, RetryPolicy, connect, field
from tableorm.connection.connection import connection_of
from tableorm.testing import temporary_database


class Note(Entity, table="Temporary", partition_key="notes", row_key="{id}"):
    id: Mapped[str]
    number: Mapped[int] = field(default=0)


async def test_nothing_else_is_dropped(tmp_path: Path) -> None:
    """Tables of a prefix that was given, and those without one, stay; so do those of another call at the same time."""
    url = f"local:{tmp_path / 'shared.tables'}"
    async with connect(url) as whole, connect(url, prefix="dev") as dev:
        await whole.create_tables(Note)
        await dev.create_tables(Note)
        async with temporary_database(url, Note, prefix="dev") as first:
            async with temporary_database(url, Note, prefix="dev") as second:
                assert (await first.tables(), await second.tables()) == (["Temporary"], ["Temporary"])
                assert len(await whole.tables()) == 4
            assert re.fullmatch("devtest[0-9a-f]{12}", first.prefix)
            assert await first.tables() == ["Temporary"]

        assert await whole.tables() == ["devTemporary", "Temporary"]


async def test_an_error_in_the_block(tmp_path: Path) -> None:
    """The tables are dropped whatever happens in the block."""
    url = f"local:{tmp_path / 'shared.tables'}"
    with pytest.raises(ZeroDivisionError):
        async with temporary_database(url, Note) as db:
            _ = len(await db.tables()) / 0

    async with connect(url) as whole:
        assert await whole.tables() == []


async def test_options_are_those_of_connect() -> None:
    """Options are given to `connect`, also those that have another default here."""
    async with temporary_database(retry=RetryPolicy(attempts=3), timeout=7.0) as db:
        assert connection_of(db).retry.attempts == 3
    async with temporary_database() as db:
        assert (connection_of(db).retry, db.prefix) == (RetryPolicy(), "")


async def test_writers_that_race_pause_as_in_the_program() -> None:
    """So none of them loses all its attempts, which without pauses some of a hundred do."""
    async with temporary_database("local::memory:", Note) as db:
        await db.insert(Note(id="x"))

        def count(note: Note) -> None:
            note.number += 1

        await asyncio.gather(*(db.modify(Note, count, id="x") for _ in range(120)))
        assert (await db.get(Note, id="x")).number == 120


@pytest.mark.parametrize("tables", ["memory", "file"])
async def test_queues_and_containers_are_dropped(tmp_path: Path, tables: str) -> None:
    """Those of the block are, wherever they are, and no others."""
    url, place = f"local:{tmp_path / 'shared.tables'}", {}
    if tables == "memory":
        url, place = "local::memory:", {"queues": url, "blobs": url}
    file = f"local:{tmp_path / 'shared.tables'}"
    async with connect(file) as whole:
        await whole.queues.create_queue("mail")
        await whole.blobs.create_container("files")
        async with temporary_database(url, Note, **place) as db:
            await db.queues.create_queue("mail")
            await db.blobs.create_container("files")
            assert len(await whole.queues.list_queues()) == len(await whole.blobs.list_containers()) == 2

        assert (await whole.queues.list_queues(), await whole.blobs.list_containers()) == (["mail"], ["files"])
