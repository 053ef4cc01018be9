"""
Blobs of entities in copies: they go along with the rows that name them, also when the copy dies, and are compared.
"""

import asyncio
import datetime as dt
from pathlib import Path
from typing import Any, cast

import pytest

from tableorm import (
    Blob,
    Database,
    Encryption,
    EncryptionError,
    Entity,
    Feed,
    Index,
    KeyRing,
    Mapped,
    NotSupported,
    PropertyBag,
    connect,
    encrypted,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.jobs import scan
from tests.azurite import Azurite
from tests.commandline import run_command
from tests.database.between import Between
from tests.databases import memory_database
from tests.transfer.rows import content_of

TABLE = "TransferPhotos"
CONTAINER = "tableorm-blobs"


class Photo(Entity, table=TABLE, partition_key="{album}", row_key="photo_{id:06d}"):
    album: Mapped[str]
    id: Mapped[int]
    name: Mapped[str]
    image: Mapped[Blob | None] = field(default=None)

    by_name = Index(row_key="name_{name}_{id:06d}")
    changes = Feed(keep=dt.timedelta(days=7))


async def fill(db: Database, count: int, every: int = 1, albums: int = 3) -> None:
    """
    Insert photos, some without an image, one with a large one and one with an empty one.

    Args:
        db: Where to.
        count: How many.
        every: Behind the first hundred, one of so many can have an image.
        albums: In how many albums, which are partitions.
    """
    await db.create_tables(Photo)
    async with db.bulk() as bulk:
        for number in range(count):
            data = bytes([number % 256]) * (5_000_000 if number == 1 else number % 7 * 100)
            plain = number % 3 == 0 or (number >= 100 and number % every)
            image = None if plain else Blob(data, "image/x" if number % 2 else None)
            await bulk.insert(Photo(album=f"a{number % albums}", id=number, name=f"n{number % 5}", image=image))


async def blobs_of(db: Database) -> dict[str, tuple[bytes, dict[str, str]]]:
    """Return the blobs of a database, by name, with what was put with them."""
    found = (await db.blobs.list_blobs(CONTAINER, "Transfer")).blobs
    return {each.name: (await db.blobs.read(CONTAINER, each.name), dict(each.metadata)) for each in found}


class Dying:
    """A store of blobs whose program dies when it has begun to send the blob of a number."""

    def __init__(self, store: Any, at: int) -> None:
        self._store, self._left = store, at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put(self, *arguments: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise asyncio.CancelledError
        return await self._store.put(*arguments, **options)


async def test_through_azurite_and_back(azurite: Azurite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies that die twice leave no row without its blob, send no blob twice, and end with all as it was."""
    monkeypatch.setattr(scan, "MAX_PAGE", 10)
    async with connect(f"local:{tmp_path}/from.tables") as db, connect(azurite.connection_string) as cloud:
        await fill(db, 30)
        sent = 0
        for _ in range(2):
            async with connect(azurite.connection_string) as dying:
                connection_of(dying).wrap_blobs(lambda store: cast("Any", Dying(store, 6)))
                with pytest.raises(asyncio.CancelledError):
                    await db.copy_rows(dying, parallel=1)
            there = await blobs_of(cloud)
            assert len(there) == sent + 6
            sent += 6
            for photo in await cloud.select(Photo).allow_scan().all():
                assert photo.image is None or await photo.image.read() is not None

        report = await db.copy_rows(cloud)

        assert (report.complete, report.blobs, report.pending) == (True, 20 - sent, 0)
        async with connect("local::memory:") as back:
            assert (await cloud.copy_rows(back, TABLE)).blobs == 20
            assert await content_of(back, TABLE) == await content_of(db, TABLE)
            assert await blobs_of(back) == await blobs_of(db) == await blobs_of(cloud)
            compared = await db.compare_rows(back, TABLE)
            assert (compared.complete, compared.blobs) == (True, 20)
            assert (await back.audit(Photo)).clean
        await cloud.drop_table(TABLE)


async def test_a_comparison_reads_blobs() -> None:
    """A blob that is missing, or has other bytes of the same length, is a failure of its row."""
    async with memory_database() as db, memory_database() as target:
        await fill(db, 6)
        await db.copy_rows(target)
        first, second, *_ = names = sorted(await blobs_of(db))
        await target.blobs.delete(CONTAINER, first)
        length = len(await db.blobs.read(CONTAINER, second))
        await target.blobs.put(CONTAINER, second, b"!" * length)

        report = await db.compare_rows(target)

        assert (report.failed, report.blobs) == (2, len(names) - 2)
        assert sorted(text.split(": ", 1)[1] for text in report.failures) == sorted(
            [f"its blob {first!r} is missing in the target", f"its blob {second!r} differs in the target"]
        )


async def test_a_blob_that_is_missing_or_other() -> None:
    """The row is copied, and its blob reported; a blob of another length is never replaced."""
    async with memory_database() as db, memory_database() as target:
        await fill(db, 6)
        first, second, *_ = sorted(await blobs_of(db))
        await db.blobs.delete(CONTAINER, first)
        await target.blobs.create_container(CONTAINER)
        await target.blobs.put(CONTAINER, second, b"of somebody else, with another length")

        report = await db.copy_rows(target)

        assert (report.failed, report.blobs) == (2, 2)
        assert {text.split(", which ")[1] for text in report.failures} == {
            "the source does not have",
            "is in the target with another length",
        }
        assert await content_of(target, TABLE) == await content_of(db, TABLE)
        await target.blobs.delete(CONTAINER, second)
        assert (await db.copy_rows(target)).failed == 1
        assert (await blobs_of(target))[second] == (await blobs_of(db))[second]


async def test_a_target_without_blobs_gets_nothing() -> None:
    """It is rejected before anything is written, with what to give; tables without blobs are copied."""
    async with connect("local::memory:") as db, Database(Between()) as target:
        await fill(db, 6)
        await db.create_tables("Others")
        await db.insert(PropertyBag("Others", "p", "r"))

        with pytest.raises(NotSupported, match=r"wrote nothing: .*TransferPhotos.*blobs=\.\.\."):
            await db.copy_rows(target)

        assert await target.tables() == []
        assert (await db.copy_rows(target, "Others")).written == 1


async def test_what_workers_have_not_completed(tmp_path: Path) -> None:
    """A copy counts the decision rows of writes that are not completed, and the command says what to do."""
    url = f"local:{tmp_path}/from.tables"
    async with connect(url) as db:
        await db.create_tables(TABLE)
        row = {"EntityType": "#_decision", "State": "committed", "Work": "[]"}
        await db.insert(PropertyBag(TABLE, "p", "~o_AAAAAAAAAAAA", row))
        await db.insert(PropertyBag(TABLE, "p", "~o_BBBBBBBBBBBB", row | {"State": "void"}))
        async with connect("local::memory:") as target:
            assert (await db.copy_rows(target)).pending == 1

    done = await asyncio.to_thread(run_command, "copy", url, f"local:{tmp_path}/to.tables")
    assert "workers have not completed 1 writes of FROM" in done.stderr


class Scan(Entity, table="TransferScans", partition_key="{ward}", row_key="{id:06d}"):
    ward: Mapped[str]
    id: Mapped[int]
    image: Mapped[Blob] = encrypted()


async def test_encrypted_blobs_are_copied_as_they_are() -> None:
    """A copy knows no keys: the stored bytes go along, and whoever has the keys reads them in the target."""
    keys = KeyRing({"k1": bytes(range(32))}, wrap_with="k1")
    async with memory_database(Scan, encryption=Encryption(keys)) as db, memory_database() as target:
        await db.insert(Scan(ward="b", id=1, image=Blob(b"an image" * 50_000)))

        assert (await db.copy_rows(target)).blobs == 1

        assert await blobs_of(target) == await blobs_of(db)
        assert await content_of(target, "TransferScans") == await content_of(db, "TransferScans")
        with pytest.raises(EncryptionError):
            await target.get(Scan, ward="b", id=1)
        assert (await db.compare_rows(target)).complete
        async with connect("local::memory:", encryption=Encryption(keys)) as back:
            assert (await target.copy_rows(back)).complete
            assert await (await back.get(Scan, ward="b", id=1)).image.read() == b"an image" * 50_000


async def test_the_command_takes_blobs_that_are_elsewhere(tmp_path: Path) -> None:
    """`--blobs` and `--to-blobs` say where the blobs of either side are."""
    places = {name: f"local:{tmp_path}/{name}.tables" for name in ("from", "to", "old", "new")}
    async with connect(places["from"], blobs=places["old"]) as db:
        await fill(db, 3)

    options = ("--blobs", places["old"], "--to-blobs", places["new"], "--verify")
    done = await asyncio.to_thread(run_command, "copy", places["from"], places["to"], *options)

    assert (done.returncode, done.stdout.count(", 2 blobs")) == (0, 2)
    async with connect(places["to"], blobs=places["new"]) as target:
        image = (await target.get(Photo, album="a2", id=2)).image
        assert image is not None
        assert await image.read() == bytes([2]) * 200
