"""
Queues and blobs of a database: where they live, and what is said where there are none.
"""
# ruff: noqa: ASYNC240 - a test may look at its files

import datetime as dt
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tableorm import (
    Conflict,
    Database,
    EntityExists,
    EntityNotFound,
    LimitExceeded,
    NotSupported,
    OutcomeUnknown,
    PreconditionFailed,
    PropertyBag,
    TableOrmError,
    Throttled,
    Unavailable,
    connect,
)
from tableorm.database import connect as opening
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import Backend, BlobInfo, BlobStream, Operation, TableStore
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


class Busy(MemoryStore):
    """A store that repeats no request, and asks for a pause of two seconds."""

    asked = 0

    async def write(self, table: str, operation: Operation) -> str | None:
        self.asked += 1
        raise Fault(Code.SERVER_BUSY, "Later.", retry_after=2.0)


class Hesitant(TablesAlone):
    """A backend with this store."""

    store = Busy()

    @property
    def tables(self) -> TableStore:
        return self.store


async def test_where_requests_are_repeated_by_the_mapper(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause is begun that ends after the seconds that `connect` was given, which are those of all attempts."""

    def find(*given: str) -> type[Backend]:
        return Hesitant

    monkeypatch.setattr(opening, "find_backend", find)
    async with connect("hesitant:", timeout=1.0) as db:
        with pytest.raises(Throttled):
            await db.insert(PropertyBag("Things", "p", "r"))

    assert Hesitant.store.asked == 1


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


async def test_one_that_does_not_exist() -> None:
    """The message has the name that was given, without the prefix that it has in the account."""
    async with connect("local::memory:", prefix="dev") as db:
        with pytest.raises(
            TableOrmError, match=r"^queues.put\('nix'.*\): there is no such queue; create it with db.q"
        ) as caught:
            await db.queues.put("nix", b"x")
        with pytest.raises(
            TableOrmError, match=r"^blobs.put\('nix'.*\): there is no such container; create it"
        ) as blob:
            await db.blobs.put("nix", "x", b"x")

    assert "dev" not in f"{caught.value} {blob.value}"


async def test_a_backend_without_may_be_given_them() -> None:
    """Queues of another backend go with tables that have none."""
    async with Database(TablesAlone(), queues=LocalBackend(None)) as db:
        await db.queues.create_queue("some")

        assert await db.queues.list_queues() == ["some"]
        with pytest.raises(NotSupported, match="no blobs"):
            _ = db.blobs


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


async def test_what_queues_and_blobs_refuse() -> None:
    """Their errors are those of the one tree, with the service's code, and say what was attempted."""
    async with connect("local::memory:") as db:
        queues, blobs = db.queues, db.blobs
        await queues.create_queue("mail")
        await queues.put("mail", b"x")
        (message,) = await queues.take("mail", visibility_seconds=60)
        await queues.delete("mail", message)
        await blobs.create_container("files")
        await blobs.put("files", "a", b"x")
        attempts: list[tuple[Callable[[], Awaitable[object]], type[TableOrmError], str, str]] = [
            (lambda: queues.put("mail", b"x" * 50_000), LimitExceeded, "MessageTooLarge", "mail"),
            (lambda: queues.delete("mail", message), EntityNotFound, "MessageNotFound", "mail"),
            (lambda: queues.take("mail", 99), TableOrmError, "OutOfRangeQueryParameterValue", "mail"),
            (lambda: blobs.create_container("files"), Conflict, "ContainerAlreadyExists", "files"),
            (lambda: blobs.put("files", "a", b"", if_none_match=True), EntityExists, "BlobAlreadyExists", "files"),
            (lambda: blobs.put("files", "a", b"", if_match='"x"'), PreconditionFailed, "ConditionNotMet", "files"),
            (lambda: blobs.info("files", "b"), EntityNotFound, "BlobNotFound", r"^blobs.info\('files', 'b'\): "),
        ]
        for attempt, kind, code, message_part in attempts:
            with pytest.raises(kind, match=message_part) as caught:
                await attempt()
            assert (type(caught.value), caught.value.code) == (kind, code)
        with pytest.raises(EntityNotFound):
            async with blobs.get("files", "b"):
                pass


class BrokenBlobs:
    """Blobs whose reading ends in a fault, and whose writing may have happened."""

    @asynccontextmanager
    async def get(self, container: str, name: str) -> AsyncGenerator[BlobStream]:

        async def chunks() -> AsyncGenerator[bytes]:
            yield b"x"
            raise Fault(Code.CONDITION_NOT_MET, "It was replaced.")

        info = BlobInfo(name="a", etag='"1"', length=2, metadata={}, modified=dt.datetime.now(dt.UTC))
        yield BlobStream(info, chunks())

    async def put(self, container: str, name: str, data: bytes) -> None:
        raise Fault(Code.NO_ANSWER, "Nobody answered.", doubt=True)


async def test_faults_of_streams_and_lost_replies() -> None:
    """A chunk that cannot be read raises within the block; a write of which nobody knows raises OutcomeUnknown."""
    tables: Any = TablesAlone()
    tables.blobs = BrokenBlobs()
    async with Database(tables) as db:
        async with db.blobs.get("files", "a") as stream:
            with pytest.raises(PreconditionFailed, match="It was replaced") as replaced:
                _ = [chunk async for chunk in stream.chunks]
        assert replaced.value.__cause__ is None and replaced.value.fault is not None
        with pytest.raises(OutcomeUnknown, match=r"blobs.put.'files', 'a'.: Nobody answered") as caught:
            await db.blobs.put("files", "a", b"x")
        assert (caught.value.verb, caught.value.code) == ("blobs.put", "NoAnswer")
