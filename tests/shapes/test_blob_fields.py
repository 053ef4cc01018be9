"""
Blobs as fields of entities: what is sent, read and refused, and that no verb loses one or leaves one behind.
"""

import asyncio
import copy
import hashlib
import io
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import TypeAdapter

from tableorm import (
    Blob,
    BlobArchive,
    Count,
    Database,
    DecodeError,
    EncodeError,
    Encryption,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    InvalidInput,
    KeyRing,
    LimitExceeded,
    Mapped,
    ModelError,
    NotSupported,
    Observation,
    PreconditionFailed,
    PropertyBag,
    TransactionFailed,
    encrypted,
    field,
    from_dict,
    to_dict,
    upgrade,
)
from tableorm.connection.connection import connection_of
from tableorm.models.manifest import UploadEntry
from tableorm.models.reserved import BLOB_FIELDS
from tableorm.outbox.bell import OUTBOX, outbox_queues
from tableorm.protocol.codes import Code, Fault
from tableorm.stores import CLOCK, Backend, BlobStore, Capabilities
from tableorm.testing.contract.base import everything
from tableorm_migrations import run_rekey
from tableorm_migrations.snapshot import describe_models
from tests.children import environment
from tests.databases import memory_database
from tests.rows import insert_row, replace_row


class Team(Entity, table="Photos", partition_key="{team}", row_key="team"):
    team: Mapped[str]
    people: Mapped[int] = field(default=0, maintained=True)


class Person(Entity, table="Photos", partition_key="{team}", row_key="person_{id:03d}"):
    team: Mapped[str] = field(default="a")
    id: Mapped[int]
    name: Mapped[str] = field(default="")
    photo: Mapped[Blob | None] = field(default=None)
    voice: Mapped[Blob | None] = field(default=None, name="Sound")

    by_name = Index(row_key="name_{name}_{id:03d}")
    counted = Count(Team.people, team="{team}", where=lambda person: person.name != "nobody")


class Patient(Entity, table="Photos", partition_key="{team}", row_key="patient_{id:03d}"):
    team: Mapped[str] = field(default="a")
    id: Mapped[int]
    photo: Mapped[Blob | None] = encrypted(default=None)
    voice: Mapped[Blob | None] = encrypted(default=None, name="Sound")


KEYS = Encryption(KeyRing({"k": bytes(32)}, wrap_with="k"))


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with memory_database(Person, encryption=KEYS) as opened:
        await opened.insert(Team(team="a"))
        await outbox_queues(connection_of(opened)).create_queue(OUTBOX)
        yield opened


async def get(db: Database, number: int = 1) -> Person:
    return await db.get(Person, team="a", id=number)


async def insert_first(db: Database) -> Person:
    person = Person(id=1, photo=Blob(b"first"))
    await db.insert(person)
    return person


def present(blob: Blob | None) -> Blob:
    """Return a blob that is there."""
    assert blob is not None
    return blob


def operations(seen: Observation) -> list[str]:
    """Return what each request does."""
    return [each.operation for each in seen.requests]


async def is_at_work(db: Database) -> bool:
    decisions = [row for row in await everything(db.store, "Photos") if row["RowKey"].startswith("~o_")]
    return bool(decisions) or await outbox_queues(connection_of(db)).length(OUTBOX) > 0


async def names_of_blobs(db: Database) -> set[str]:
    """Return the names of all blobs, once what goes on behind the last write has ended."""
    async with asyncio.timeout(5):
        while await is_at_work(db):  # noqa: ASYNC110 - what nobody waits for
            await asyncio.sleep(0)
    return {each.name for each in (await db.blobs.list_blobs(BLOB_FIELDS)).blobs}


async def pieces(*given: bytes) -> AsyncIterator[bytes]:
    for each in given:
        yield each


async def check_rest(db: Database, wanted: dict[int, bytes | None]) -> None:
    """Check that these people are stored with these photos, and that nothing else is left of any."""
    people = await db.select(Person).allow_scan().all()
    assert {each.id: each.photo and await each.photo.read() for each in people} == wanted
    stored = await names_of_blobs(db)
    assert {name async for name in _held(db)} == stored
    assert len(stored) == sum(data is not None for data in wanted.values())
    assert (await db.audit(Person)).clean


async def _held(db: Database) -> AsyncIterator[str]:
    for row in await everything(db.store, "Photos"):
        if row["RowKey"].startswith("~"):
            assert (row["EntityType"], row["State"]) == ("#_blob", "held")
            yield UploadEntry("Photos", row["RowKey"][3:], row["PartitionKey"]).name


# What is sent


async def test_what_is_sent_for_a_blob(db: Database) -> None:
    """A message, the blob, and the transaction with its address and its row; a read of the entity asks for no bytes."""
    ann = Person(id=1, name="Ann", photo=Blob(b"first", "image/png"))
    with db.observe() as seen:
        await db.insert(ann)
    assert operations(seen)[:6] == ["put-message", "put-blob", "create-container", "put-blob", "get", "transaction"]
    row = await db.store.get("Photos", "a", "person_001")
    table, token, partition = row["photo"].split("/")
    assert (table, partition) == ("Photos", "a")
    assert (row["photo_length"], row["photo_length@odata.type"]) == ("5", "Edm.Int64")
    assert row["photo_sha256"] == "a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"
    assert row["photo_content_type"] == "image/png"

    with db.observe() as seen:
        ann = await get(db)
        photo = present(ann.photo)
        assert (photo.length, photo.content_type, len(seen.requests)) == (5, "image/png", 1)
        assert await photo.read() == b"first"
    assert operations(seen) == ["get", "get-blob"]

    ann.photo = Blob(b"second")
    with db.observe() as seen:
        await db.save(ann)
    wanted = ["put-message", "put-blob", "put-message", "transaction", "get", "delete-blob", "delete", "delete"]
    assert operations(seen)[:8] == wanted
    assert token not in str(await names_of_blobs(db))
    ann.photo = Blob(b"third")
    plan = db.explain_write("save", ann)
    paths = [step.path.rsplit("/", 1)[0] for step in plan.before]
    assert paths == ["/tableorm-outbox", "/tableorm-blobs/Photos", "/tableorm-outbox"]
    with db.observe() as seen:
        await db.save(ann)
        await names_of_blobs(db)
    assert len([each for each in operations(seen) if each != "queue-length"]) == plan.cost
    assert plan.bytes_sent > 0
    with db.observe() as seen:
        ann.name = "Anna"
        await db.save(ann)
    assert operations(seen) == ["transaction"]


@pytest.mark.parametrize("model", [Person, Patient])
@pytest.mark.parametrize("source", ["bytes", "stream", "file"])
async def test_a_blob_is_sent_and_read_in_pieces(db: Database, source: str, model: type[Person | Patient]) -> None:
    """Its bytes come from memory, a stream or a file, and are read at once, in chunks, and in part."""
    data = bytes(range(256)) * 20_000
    given: Any = {"bytes": data, "stream": pieces(data[:7], data[7:]), "file": io.BytesIO(b"skipped" + data)}[source]
    if source == "file":
        given.seek(7)
    ann = model(id=1, photo=Blob(given, "application/x"), voice=Blob(b""))
    await db.insert(ann)
    for person in (ann, await db.get(model, team="a", id=1)):
        photo = present(person.photo)
        assert (photo.length, await photo.read()) == (len(data), data)
        assert b"".join([chunk async for chunk in photo]) == data
        for start, length in ((5, 300), (70_000, 70_000), (len(data) - 2, None), (len(data), None), (3, 0)):
            assert await photo.read(start, length) == data[start:][:length]
        assert await present(person.voice).read() == b""
    assert repr(ann.photo) == "<Blob of 5,120,000 bytes, application/x>"


async def test_parts_in_conditions_and_projections(db: Database) -> None:
    """Conditions are about length, hash and type; a projection has all of a blob, and an index entry its address."""
    for number in range(3):
        await db.insert(Person(id=number, photo=Blob(b"x" * number, "image/png")))
    photo: Any = Person.photo
    inside = db.select(Person).where(Person.team == "a")
    assert [each.id for each in await inside.where(photo.length > 1).all()] == [2]
    assert [each.id for each in await inside.where(photo.content_type == "image/png", photo.length < 1).all()] == [0]
    assert await inside.where(Person.photo.is_none()).all() == []
    (found,) = await inside.where(Person.id == 2).only(Person.photo).all()
    assert await present(found.photo).read() == b"xx"
    for person in await db.select(Person.by_name).where(Person.team == "a").all():
        assert len(await present(person.photo).read()) == person.id


# Verbs: `oracle.py` compares all of them with plain Python


async def test_changes_that_are_joined(db: Database) -> None:
    """Of the blobs that calls of `modify`, or a transaction, give to one row the last is sent, and no other is left."""
    await insert_first(db)

    async def change(number: int) -> None:
        def set_one(person: Person) -> None:
            if number % 2:
                person.name = f"{number}"
            else:
                person.photo = Blob(b"%d" % number)

        await db.modify(Person, set_one, team="a", id=1)

    await asyncio.gather(*map(change, range(6)))
    person = await get(db)
    assert person.name == "5"
    await check_rest(db, {1: b"4"})
    async with db.transaction() as tx:
        other = Person(id=2, photo=Blob(b"never"))
        tx.insert(other)
        other.photo, other.voice = Blob(b"other"), Blob(b"voice")
        tx.save(other)
        other.voice = None
        tx.save(other)
        other.name = "Bo"
        tx.save(other)
    await check_rest(db, {1: b"4", 2: b"other"})


async def test_a_loser_leaves_nothing(db: Database) -> None:
    """Of two writers that replace a photo one is rejected, and what it has uploaded is deleted."""
    await insert_first(db)
    one, two = [await get(db) for _ in range(2)]
    one.photo, two.photo = Blob(b"one"), Blob(b"two")
    await db.replace(one)
    with pytest.raises(PreconditionFailed):
        await db.replace(two)
    assert two.photo.sha256 is None
    await check_rest(db, {1: b"one"})
    two = await get(db)
    two.photo = Blob(b"two")
    with pytest.raises(TransactionFailed):
        async with db.transaction() as tx:
            tx.save(two)
            tx.insert(Person(id=2, photo=Blob(b"three")))
            tx.insert(Person(id=2, photo=Blob(b"four")))
    await check_rest(db, {1: b"one"})
    with pytest.raises(EntityExists):
        await db.insert(Person(id=1, photo=Blob(b"five")))
    await check_rest(db, {1: b"one"})


class _LosesReplies:
    """Blobs of which the first put has its effect, and nobody hears of it; the store repeats nothing itself."""

    capabilities = Capabilities(durable=False)

    def __init__(self, store: object) -> None:
        self._store, self.lost = store, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def put(self, *given: Any, **named: Any) -> Any:
        found = await self.__getattr__("put")(*given, **named)
        if not self.lost:
            self.lost = True
            raise Fault(Code.NO_ANSWER, "Nobody answered.", doubt=True)
        return found


@pytest.mark.parametrize("model", [Person, Patient])
@pytest.mark.parametrize("source", ["bytes", "file"])
async def test_an_upload_whose_reply_is_lost(db: Database, source: str, model: type[Person | Patient]) -> None:
    """It is sent again, and found to be there; what the row says of it is so all the same."""
    connection_of(db).wrap_blobs(lambda store: cast("BlobStore", _LosesReplies(store)))
    await db.blobs.create_container(BLOB_FIELDS)
    ann = model(id=1, photo=Blob(b"first" if source == "bytes" else io.BytesIO(b"first")))
    await db.insert(ann)
    photo = present(ann.photo)
    assert (photo.length, await photo.read()) == (5, b"first")
    (name,) = await names_of_blobs(db)
    data = await db.blobs.read(BLOB_FIELDS, name)
    assert (data == b"first", photo.sha256) == (model is Person, hashlib.sha256(data).hexdigest())


async def test_a_worker_that_was_faster(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload that workers have given up is deleted, and its write is rejected: nothing of it is stored."""
    monkeypatch.setattr("tableorm.outbox.shared_bell.HIDDEN_SECONDS", 0)

    async def slow() -> AsyncIterator[bytes]:
        yield b"begin"
        async with db.worker(Person) as worker:
            await worker.drain()
        yield b"end"

    with pytest.raises(PreconditionFailed, match=r"upload of Person.photo was inactive .* nothing was written"):
        await db.insert(Person(id=1, photo=Blob(slow())))
    assert await names_of_blobs(db) == set()
    assert await db.get_or_none(Person, team="a", id=1) is None


# What is read when something is wrong


async def test_a_blob_that_was_replaced_or_is_gone(db: Database) -> None:
    """A handle of before reads what the entity has now; where that is gone, or damaged, the error says so."""
    ann = await insert_first(db)
    old = present((await get(db)).photo)
    ann.photo = Blob(b"second")
    await db.save(ann)
    assert await old.read() == b"second"

    (name,) = await names_of_blobs(db)
    await db.blobs.put(BLOB_FIELDS, name, b"damaged")
    with pytest.raises(DecodeError, match="whose bytes do not have the hash"):
        await ann.photo.read()
    await db.blobs.delete(BLOB_FIELDS, name)
    with pytest.raises(DecodeError, match=r"Person.*photo.*is not there"):
        await ann.photo.read()
    report = await db.audit(Person)
    assert [(each.damage, each.index) for each in report.findings] == [("dangling", "photo")]
    ann.photo = None
    await db.save(ann)
    with pytest.raises(EntityNotFound, match="it has none any more"):
        await old.read()
    assert (await db.audit(Person)).clean


async def test_handles_without_a_database(db: Database) -> None:
    """A pickled blob does not know its database, and says how to get one that does; bytes are pickled as they are."""
    ann = Person(id=1, photo=Blob(b"first", "text/plain"))
    assert (await pickle.loads(pickle.dumps(ann)).photo.read()) == b"first"
    with pytest.raises(TypeError, match="not pickled before it is sent"):
        pickle.dumps(Blob(pieces(b"")))
    await db.insert(ann)
    again = pickle.loads(pickle.dumps(ann))
    assert again == ann
    assert copy.deepcopy(ann) == ann
    with pytest.raises(NotSupported, match=r"does not know its database.*await db.refresh\(entity\)"):
        await again.photo.read()
    await db.refresh(again)
    assert await again.photo.read() == b"first"


# What is rejected


async def test_what_blobs_are_refused(db: Database) -> None:
    """A stream is sent once; a blob is of one entity; and anything else is no blob."""
    ann = Person(id=1, photo=Blob(pieces(b"first")))
    with pytest.raises(NotSupported, match="cannot be read before it is sent"):
        await present(ann.photo).read()
    await db.insert(ann)
    stream = Blob(pieces(b"second"))
    with pytest.raises(EntityExists):
        await db.insert(Person(id=1, photo=stream))
    same = Blob(b"same")
    refused: list[tuple[Any, str]] = [
        (ann.photo, r"is the blob of another entity.*db.move\(\) takes it along"),
        (stream, "comes from a stream, which was sent before and is gone"),
        (same, "same Blob as another field has"),
        (b"bytes", r"is a bytes, not a Blob; write Blob\(data\)"),
    ]
    for photo, problem in refused:
        with pytest.raises(EncodeError, match=problem):
            await db.insert(Person(id=2, photo=photo, voice=same))
    given: Any
    for given, problem in (
        ("text", "give bytes, an asynchronous iterable of bytes or a binary file"),
        (io.StringIO(), "it is a text file"),
    ):
        with pytest.raises(TypeError, match=problem):
            Blob(given)
    await check_rest(db, {1: b"first"})


def test_declarations_that_are_refused() -> None:
    """A blob has no default, is no part of keys, and does not leave the database."""

    def refuses(message: str, annotation: Any, declared: Any, **keys: Any) -> None:
        with pytest.raises(ModelError, match=message):

            class Refused(Entity, table="Refused", partition_key="p", row_key="{id}", **keys):  # pyright: ignore[reportUnusedClass]
                id: Mapped[int]
                photo: annotation = declared  # pyright: ignore[reportInvalidTypeForm]

    maybe = Mapped[Blob | None]
    refuses("has no default but None", Mapped[Blob], field(factory=lambda: Blob(b"")))
    refuses("needs a kind", maybe, field(), kind=None)
    message = r"accept_plain=True\) is rejected: no rewrite sends the bytes of blobs again"
    refuses(message, maybe, encrypted(default=None, accept_plain=True))
    with pytest.raises(ModelError, match="has blobs, photo, voice, which do not leave the database"):
        BlobArchive("old-people", Person)


class Blobless:
    """A backend without blobs, which has otherwise what another one has."""

    blobs = None

    def __init__(self, backend: object) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


async def test_the_other_fields_are_measured_before_the_row_is_sent(db: Database) -> None:
    """So that the error names the field, as without a blob."""

    class Noted(Entity, table="Photos", partition_key="{note}", row_key="noted"):
        note: Mapped[str] = field(default="a")
        text: Mapped[str]
        photo: Mapped[Blob]

    with db.observe() as seen, pytest.raises(LimitExceeded) as caught:
        await db.insert(Noted(text="n" * 40_000, photo=Blob(b"1")))
    assert (caught.value.model, caught.value.field) == ("Noted", "text")
    assert "transaction" not in operations(seen)


async def test_a_rekey_takes_no_blobs_along(db: Database) -> None:
    """A re-key while nobody writes is rejected, as it deletes what belongs to the older rows; a field is no index."""

    class New(Entity, table="NewPhotos", kind="Person", partition_key="{team}", row_key="p_{id:03d}"):
        team: Mapped[str]
        id: Mapped[int]
        name: Mapped[str]
        photo: Mapped[Blob | None]
        voice: Mapped[Blob | None] = field(name="Sound")

    with pytest.raises(NotSupported, match=r"Person.photo is a blob, which would be deleted .* by db.move\(\)"):
        await run_rekey(db, Person, New, writers_stopped=True)
    (layout,) = describe_models([New]).models
    assert layout.derived == {}
    assert "photo.sha256" in layout.fields


async def test_a_database_without_blobs(db: Database) -> None:
    """Only what touches a blob is rejected; other fields are read and saved."""
    await db.insert(Person(id=1, name="Ann", photo=Blob(b"first")))
    backend = Blobless(connection_of(db).backend)
    bare = Database(cast("Backend", backend))
    bare._connection._opened = connection_of(db)._opened  # pyright: ignore[reportPrivateUsage]
    ann = await bare.get(Person, team="a", id=1)
    ann.name = "Anna"
    await bare.save(ann)
    for action in (present(ann.photo).read(), bare.delete(ann), bare.insert(Person(id=2, photo=Blob(b"second")))):
        with pytest.raises(NotSupported, match=r"Person.photo is a blob: this database has no blobs"):
            await action
    await check_rest(db, {1: b"first"})


# Programs and clients


async def test_what_clients_are_shown(db: Database) -> None:
    """JSON has length, hash and type, which clients cannot set; the address is not shown."""
    ann = Person(id=1, photo=Blob(b"first", "text/plain"))
    await db.insert(ann)
    shown = to_dict(ann, mode="json")
    assert shown["photo"] == {"length": 5, "sha256": present(ann.photo).sha256, "content_type": "text/plain"}
    with pytest.raises(InvalidInput, match="is rejected: the field is read-only for clients"):
        from_dict(Person, shown)
    schema = TypeAdapter(Person).json_schema()
    assert schema["properties"]["photo"]["readOnly"] is True
    assert "Directory" not in str(schema)
    (part,) = [each for each in schema["$defs"].values() if "sha256" in each["properties"]]
    assert part["properties"].keys() == {"length", "sha256", "content_type"}


async def test_an_older_program_keeps_blobs(db: Database) -> None:
    """A program that does not declare the field leaves it in the row; when it deletes the entity, the blob goes too."""
    await db.insert(Person(id=1, name="Ann", photo=Blob(b"first")))
    bag = await db.get(PropertyBag.key("Photos", "a", "person_001"))
    assert str(bag["photo"]).startswith("Photos/a/") is False
    await db.delete(bag)
    await check_rest(db, {})


async def test_an_upgrade_keeps_blobs() -> None:
    """An entity of an older version keeps its blob, also under another property."""

    class Old(Entity, table="Upgraded", kind="Pic", partition_key="p", row_key="{id}"):
        id: Mapped[int]
        photo: Mapped[Blob | None]

    class New(Entity, table="Upgraded", kind="Pic", version=2, partition_key="p", row_key="{id}"):
        id: Mapped[int]
        size: Mapped[int] = field(default=0)
        photo: Mapped[Blob | None] = field(default=None)

    @upgrade(New, 1)
    def add_size(bag: PropertyBag) -> PropertyBag:
        bag["size"] = bag["photo_length"]
        return bag

    async with memory_database(New) as db:
        await db.insert(Old(id=1, photo=Blob(b"first")))
        new = await db.get(New, id=1)
        assert (new.size, await present(new.photo).read()) == (5, b"first")
        new.photo = Blob(b"second")
        await db.save(new)
        assert await present((await db.get(New, id=1)).photo).read() == b"second"
        assert len((await db.blobs.list_blobs(BLOB_FIELDS)).blobs) == 1


async def test_a_forged_address_deletes_no_blob_of_others(db: Database) -> None:
    """Who may write a row can name any blob in it; when that entity is deleted, the blob stays with whoever has it."""
    await insert_first(db)
    await db.insert(Person(id=2))
    theirs = await db.store.get("Photos", "a", "person_001")
    forged = await db.store.get("Photos", "a", "person_002")
    forged |= {name: value for name, value in theirs.items() if name.startswith("photo")}
    forged["_ix"] = theirs["_ix"].replace("name__001", "name__002")
    await replace_row(db, "Photos", forged)
    await db.delete(await get(db, 2))
    await check_rest(db, {1: b"first"})


@pytest.mark.usefixtures("stopped_clock")
async def test_a_forged_row_of_a_blob_deletes_no_blob_of_others(db: Database) -> None:
    """Who may write a partition can put a row there that says that a blob is void, or theirs; it is not in theirs."""
    await insert_first(db)
    (row,) = [row for row in await everything(db.store, "Photos") if "State" in row]
    void = {"PartitionKey": "b", "RowKey": row["RowKey"], "EntityType": row["EntityType"], "State": "void"}
    await insert_row(db, "Photos", void)
    CLOCK.advance(timedelta(days=2))
    await db.audit(Person, repair=True)
    await check_rest(db, {1: b"first"})


# The audit


@pytest.mark.usefixtures("stopped_clock")
async def test_an_audit_deletes_uploads_that_are_nobodys(db: Database) -> None:
    """A blob that no transaction has committed is found when it is an hour old, and deleted; then its void row."""
    await insert_first(db)
    lost = UploadEntry("Photos", "lostlostlost", "a").name
    await db.blobs.put(BLOB_FIELDS, lost, b"lost", metadata={"partition": "YQ=="})
    await db.blobs.put(BLOB_FIELDS, "Photos/of-others", b"lost")
    assert (await db.audit(Person)).clean
    CLOCK.advance(timedelta(hours=2))
    report = await db.audit(Person)
    assert [(each.damage, each.address, each.repaired) for each in report.findings] == [("orphan", lost, False)]
    assert "uploaded 2 hours ago, and no entity has it; repair deletes it" in str(report.findings[0])
    assert (await db.audit(Person, repair=True)).repaired == 1
    assert lost not in await names_of_blobs(db)
    states = sorted(row["State"] for row in await everything(db.store, "Photos") if "State" in row)
    assert states == ["held", "void"]  # in the order of their tokens, which are random
    CLOCK.advance(timedelta(days=2))
    assert (await db.audit(Person, repair=True)).clean
    await db.blobs.delete(BLOB_FIELDS, "Photos/of-others")
    await check_rest(db, {1: b"first"})


# Large blobs


_GROWTH = """
import asyncio, sys
from tableorm import Blob, Entity, Mapped, connect
from tableorm_local.engine import files

files.__dict__["_CACHE_KIB"] = 1024  # or the memory grows until the cache of SQLite is full

class Film(Entity, table="Films", partition_key="p", row_key="{id}"):
    id: Mapped[int]
    data: Mapped[Blob]

def used():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("RssAnon"))

async def pieces(count):
    for number in range(count):
        most.append(used())
        yield bytes([number]) * 1048576

most = []

async def main():
    async with connect(sys.argv[1]) as db:
        await db.create_tables(Film)
        await db.insert(Film(id=1, data=Blob(pieces(4))))
        before = used()
        most.clear()
        await db.insert(Film(id=2, data=Blob(pieces(48))))
        film = await db.get(Film, id=2)
        async for chunk in film.data:
            most.append(used())
        print(film.data.length, max(most) - before)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_large_blob_is_never_in_memory(tmp_path: Path) -> None:
    """To send and to read 48 MiB takes no more than 16 MiB of memory."""
    command = [sys.executable, "-c", _GROWTH, f"local:{tmp_path}/films.tables"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment(), check=True)
    length, growth = map(int, done.stdout.split())

    assert length == 48 * 1024 * 1024
    assert growth < 16
