"""
Databases for one test: what they are called, and that nothing else is dropped.
"""

import re
from pathlib import Path

import pytest

from tableorm import Entity, Mapped, RetryPolicy, connect
from tableorm.connection.connection import connection_of
from tableorm.testing import temporary_database


class Note(Entity, table="Temporary", partition_key="notes", row_key="{id}"):
    id: Mapped[str]


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
        assert (connection_of(db).retry.base, db.prefix) == (0.0, "")
