"""
Copies of many rows whose process is killed again and again.
"""

import asyncio
import datetime as dt
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tableorm import Blob, Entity, Feed, Index, Mapped, connect, field
from tests.azurite import Azurite, running_azurite
from tests.children import environment
from tests.torture import choose_rounds
from tests.transfer.rows import content_of
from tests.transfer.test_blobs import blobs_of

KILLS = 5
TABLES, ENTITIES = 100, 1_000


def make_model(number: int) -> type[Any]:
    """Declare a model with an index, a feed and blobs, in a table of its own."""

    class Photo(Entity, table=f"KilledPhotos{number:03d}", partition_key="{album}", row_key="photo_{id:06d}"):
        album: Mapped[str]
        id: Mapped[int]
        name: Mapped[str]
        at: Mapped[dt.datetime]
        image: Mapped[Blob | None] = field(default=None)

        by_name = Index(row_key="name_{name}_{id:06d}")
        changes = Feed(keep=dt.timedelta(days=7))

    return Photo


async def fill(url: str, models: list[type[Any]]) -> None:
    """Insert entities, one of 20 with a blob."""
    first = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    async with connect(url) as db:
        await db.create_tables(*models)
        async with db.bulk() as bulk:
            for model in models:
                for number in range(ENTITIES):
                    at = first + dt.timedelta(seconds=number, microseconds=number)
                    image = Blob(number.to_bytes(2, "big") * number) if number % 20 == 1 else None
                    await bulk.insert(
                        model(album=f"a{number % 3}", id=number, name=f"n{number % 5}", at=at, image=image)
                    )


def copy(source: str, target: str, state: Path) -> "subprocess.Popen[bytes]":
    """Begin to copy by the command, as a process of its own."""
    command = [sys.executable, "-m", "tableorm.cli", "copy", source, target, "--state", str(state)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def copy_with_kills(source: str, target: str, state: Path, chance: random.Random) -> list[int]:
    """Copy until all is done, kill the process some seconds after it began to work, and return the statuses."""
    statuses: list[int] = []
    while len(statuses) < KILLS:
        process = copy(source, target, state)
        seen = state.stat().st_mtime_ns if state.exists() else 0
        while process.poll() is None and (not state.exists() or state.stat().st_mtime_ns == seen):
            time.sleep(0.01)
        time.sleep(4 * chance.random())
        process.kill()
        statuses.append(process.wait())
    return [*statuses, copy(source, target, state).wait()]


@pytest.fixture
def azurite() -> Iterator[Azurite]:
    """An emulator without the tables of other tests, since all tables are copied."""
    with running_azurite() as emulator:
        yield emulator


@pytest.mark.torture
@pytest.mark.limit(3600)
@pytest.mark.skipif(not choose_rounds(0, 1), reason="capability: few rows are copied before a process can be killed")
async def test_through_azurite_and_back(azurite: Azurite, tmp_path: Path) -> None:
    """
    100,000 entities with indexes, feeds and blobs, killed five times on each way: what comes back is what went.

    They are in a hundred tables, as the emulator looks at all rows of a table for each that it inserts.
    """
    there, back = f"local:{tmp_path}/from.tables", f"local:{tmp_path}/back.tables"
    models, chance = [make_model(number) for number in range(TABLES)], random.Random(7)
    await fill(there, models)

    for source, target in (there, azurite.connection_string), (azurite.connection_string, back):
        statuses = await asyncio.to_thread(copy_with_kills, source, target, tmp_path / target[:5], chance)
        assert statuses == [-9] * KILLS + [0]

    async with connect(there) as db, connect(back) as copied, connect(azurite.connection_string) as cloud:
        tables = await db.tables()
        assert set(tables) <= set(await copied.tables())
        for table in tables:
            went = await content_of(db, table, ordered=False)
            assert await content_of(copied, table, ordered=False) == went
            assert await content_of(cloud, table, ordered=False) == went
        assert await blobs_of(copied) == await blobs_of(db)
        assert (await copied.audit(*models)).clean
