"""
Index lists in blobs: their names, what is sent, and what refuses a write before anything of it is.
"""

import asyncio
import datetime as dt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import (
    AccessDenied,
    Damage,
    Database,
    DecodeError,
    Entity,
    IndexList,
    LimitExceeded,
    Mapped,
    ModelError,
    NotSupported,
    TemplateError,
    TransactionFailed,
    connect,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.derived.index_list import blobs
from tableorm.models.manifest import BlobListEntry, manifest_text
from tableorm.models.reserved import BLOB_LISTS
from tableorm.stores import CLOCK, RowAddress
from tableorm.testing import MemoryStore, assert_requests, temporary_database
from tableorm.testing.contract.base import everything
from tableorm.writes import deferred
from tableorm.writes.maintainer import deferred_rules
from tableorm_local.server import DEVELOPMENT_KEY
from tests.azurite import Azurite
from tests.database.between import Between
from tests.databases import database_fixture, memory_database
from tests.outbox.network import LateWrite, connected, drain
from tests.rows import insert_row


class AnyBook(Entity, table="BlobBooks", partition_key="{shelf}", row_key="book_{id:03d}", abstract=True):
    shelf: Mapped[str]
    id: Mapped[int]
    tag: Mapped[str | None]
    title: Mapped[str] = field(default="")


class Book(AnyBook):
    tagged = IndexList(partition_key="tags", row_key="tag_{tag}", consistency="eventual", blob=True)


BOOK = Book.key(shelf="a", id=1)


class KnownBook(AnyBook, kind="Book"):
    """A book whose lists are looked up without asking the store."""

    tagged = IndexList(partition_key="tags", row_key="tag_{tag}", consistency="eventual", blob=True, building=False)


class Note(Entity, table="BlobNotes", partition_key="{tenant}", row_key="note_{id}"):
    tenant: Mapped[str]
    id: Mapped[str]
    tag: Mapped[str | None] = field(default=None)
    word: Mapped[str | None] = field(default=None)

    tagged = IndexList(row_key="tag_{tag}", consistency="eventual", blob=True)
    beside = IndexList(partition_key="all", row_key="{tenant}_{tag}", consistency="eventual", blob=True)
    shared = IndexList(partition_key="all", row_key="any_{word}", consistency="eventual", blob=True)


db = database_fixture(Book)


def book(number: int, tag: str | None = "new", shelf: str = "a") -> Book:
    return Book(shelf=shelf, id=number, tag=tag)


async def ids(db: Database, tag: str = "new") -> list[int]:
    return [each.id for each in await db.lookup(Book.tagged, tag=tag)]


async def contents(db: Database, tag: str = "new") -> str:
    return (await db.blobs.read(BLOB_LISTS, f"blobbooks/Book=23tagged/tags/tag_{tag}")).decode()


async def test_what_a_blob_holds(db: Database) -> None:
    """Each entity is a line, with its keys and the write token of the version that came into the list."""
    one = book(1)
    await db.insert(one)
    await db.insert(book(2, shelf="b"))
    row = await db.store.get("BlobBooks", "a", "book_001")
    head, first, second, end = (await contents(db)).split("\n")
    assert (head, end) == ("tableorm index list 1", "")
    assert first == f"a\tbook_001\t{row['_w']}"
    assert second.startswith("b\tbook_002\t")
    await db.delete(one)
    await db.delete(Book.key(shelf="b", id=2), if_match="*")
    assert await contents(db) == "tableorm index list 1\n"


async def test_the_requests_of_a_write_and_of_a_lookup(db: Database) -> None:
    """A write asks whether there is room, then reads and writes the blob once; a lookup reads it, and each entity."""
    await db.insert(book(1))
    two = book(2)
    with db.observe() as seen:
        await db.insert(two)
    assert [(each.operation, each.table) for each in seen.requests][:7] == [
        ("blob-info", BLOB_LISTS),
        ("put-message", "tableorm-outbox"),
        ("transaction", "BlobBooks"),
        ("get-blob", BLOB_LISTS),
        ("get", "BlobBooks"),
        ("put-blob", BLOB_LISTS),
        ("get", "BlobBooks"),
    ]
    assert [each.line for each in seen.requests if each.table == BLOB_LISTS] == [
        "HEAD tableorm-lists/BLOB",
        "GET tableorm-lists/BLOB",
        "PUT tableorm-lists/BLOB",
    ]
    two.title = "Two"
    with assert_requests(db, 1):
        await db.save(two)
    with assert_requests(db, 3):
        assert await ids(db) == [1, 2]


KEYS = st.text("ab\u00fc|", max_size=3)


@given(st.lists(st.tuples(KEYS, KEYS, st.none() | st.text("vw", min_size=1, max_size=2)), max_size=12))
def test_contents_are_those_of_a_dictionary(changes: list[tuple[str, str, str | None]]) -> None:
    """Whatever comes, changes and goes, each entity has one line, and no other line changes."""
    data, wanted = bytearray(b"tableorm index list 1\n"), dict[tuple[str, str], str | None]()
    for partition_key, row_key, version in changes:
        before = bytes(data)
        changed = asyncio.run(blobs._set_member(data, RowAddress("T", partition_key, row_key), version))  # pyright: ignore[reportPrivateUsage]
        assert changed == (data != before)
        wanted[partition_key, row_key] = version
    lines = data.decode().split("\n")
    found = [line.split("\t") for line in lines[1:-1]]
    assert (lines[0], lines[-1]) == ("tableorm index list 1", "")
    assert sorted(found) == sorted([*keys, version] for keys, version in wanted.items() if version is not None)


VALUES = [".", "..", "a.", "=", "=2E", "%2E", " ", "\u00fc", "\U0001f600", "a|b", "a b", "A", "\ufffe", "x" * 400]


async def test_each_value_has_a_blob_of_its_own(db: Database) -> None:
    """Whatever characters a value has, its list is told from those of all others, by a name of plain characters."""
    for number, value in enumerate(VALUES):
        await db.insert(book(number, value))
    for number, value in enumerate(VALUES):
        assert await ids(db, value) == [number]
    page = await db.blobs.list_blobs(BLOB_LISTS)
    assert len(page.blobs) == len(VALUES)
    assert all(set(each.name) <= {*"/=-_~", *map(chr, range(128))} for each in page.blobs)
    found = [place async for place in blobs.lists_of(connection_of(db), "BlobBooks", "Book#tagged")]
    assert sorted(place.list_key for place in found) == sorted(f"tag_{value}" for value in VALUES)
    assert (await db.audit(Book)).found == 0


def test_an_empty_key_has_a_name() -> None:
    """No part of a blob's name is empty."""
    assert BlobListEntry("", "", "T", "K#a/b").blob_name == "t/K=23a=2Fb/=/="


async def test_a_name_that_is_too_long(db: Database) -> None:
    """The write is rejected by name before anything is sent, and so is the lookup."""
    before = db.stats.requests
    with pytest.raises(
        TemplateError, match=r"Book\.tagged.*name of 3\d+ characters, and 1024 are allowed; shorten tag"
    ):
        await db.insert(book(1, "\u5149" * 400))
    with pytest.raises(TemplateError, match="1024 are allowed"):
        await ids(db, "\u5149" * 400)
    assert db.stats.requests == before


# A list that is full


@pytest.fixture
async def full(db: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database in which the list of "new" books has two, and is full."""
    for number in (1, 2):
        await db.insert(book(number))
    monkeypatch.setattr(blobs, "MOST_BYTES", 64)
    return db


async def test_a_list_that_is_full_takes_no_more(full: Database) -> None:
    """The write of an entity that would come into it is rejected, and nothing of it is sent; the list stays right."""
    with pytest.raises(LimitExceeded, match=r"Book\.tagged: the list 'tag_new' .* is full: .* of 64; declare an Index"):
        await full.insert(book(3))
    with pytest.raises(TransactionFailed, match=r"operation 1: .* is full"):
        async with full.transaction() as tx:
            tx.insert(book(4, None))
            tx.insert(book(3))
    async with full.bulk(errors="report") as bulk:
        await bulk.insert(book(3))
        await bulk.insert(book(5, "old"))
    assert await full.get_or_none(Book, shelf="a", id=3) is None
    assert await full.get_or_none(Book, shelf="a", id=4) is None
    assert await ids(full) == [1, 2]
    assert await ids(full, "old") == [5]
    assert not [row for row in await everything(full.store, "BlobBooks") if row.get("State") == "committed"]


@pytest.mark.parametrize("verb", ["replace", "save", "move"])
async def test_a_change_that_comes_into_a_full_list_is_refused(full: Database, verb: str) -> None:
    """As an insert is; nothing of the entity has changed."""
    await full.insert(book(3, "old"))
    changed = await full.get(Book, shelf="a", id=3)
    changed.tag = "new"
    with pytest.raises(LimitExceeded, match=r"the list 'tag_new' .* is full"):
        await (full.move(changed, id=4) if verb == "move" else getattr(full, verb)(changed))
    assert (await full.get(Book, shelf="a", id=3)).tag == "old"
    assert await ids(full, "old") == [3]


async def test_a_full_list_is_not_built(full: Database) -> None:
    """`build_index` goes on with other lists, and reports the entities for which there is no room."""
    for number, tag in ((3, "new"), (4, "old")):
        old = {"PartitionKey": "a", "RowKey": f"book_{number:03d}", "EntityType": "Book", "title": "", "tag": tag}
        await insert_row(full, "BlobBooks", old)
    report = await full.build_index(Book.tagged)
    assert not report.complete and len(report.failures) == 1
    assert "'book_003'): missing" in report.failures[0] and "is full" in report.failures[0]
    assert await ids(full, "old") == [4]


async def test_what_is_in_a_full_list_can_be_written(full: Database) -> None:
    """Entities change and leave it; once it is shorter, others come in."""
    one = await full.get(BOOK)
    one.title = "One"
    await full.save(one)
    await full.move(one, shelf="b")
    assert [each.shelf for each in await full.lookup(Book.tagged, tag="new")] == ["a", "b"]
    async with full.transaction() as tx:
        tx.delete(await full.get(Book, shelf="a", id=2))
        tx.insert(book(6))
    assert await ids(full) == [6, 1]
    await full.delete(Book.key(shelf="a", id=6), if_match="*")
    await full.delete(Book.key(shelf="b", id=1), if_match="*")
    await full.insert(book(7))
    assert await ids(full) == [7]


class Draft(AnyBook, table="BlobDrafts", row_key="draft_{id:03d}", tracked=True): ...


async def test_an_archive_into_a_full_list(full: Database) -> None:
    """It is rejected before the entity leaves the place where it is."""
    await full.create_tables(Draft)
    draft = Draft(shelf="a", id=3, tag="new")
    await full.insert(draft)
    with pytest.raises(LimitExceeded, match="is full"):
        await full.archive(draft, to=Book)
    assert (await full.get(Draft, shelf="a", id=3)).etag == draft.etag


@pytest.mark.parametrize(("entity", "asked"), [(book(1), 0), (Note(tenant="a", id="1", tag="x"), 2)])
async def test_what_a_move_asks(db: Database, entity: Book | Note, asked: int) -> None:
    """A move to another partition asks for room in each list that the entity is not in yet, as `explain_write` says."""
    await db.create_tables(Note)
    await db.insert(entity)
    fields = {"shelf": "b"} if isinstance(entity, Book) else {"tenant": "b"}
    plan = db.explain_write("move", entity, **fields)
    assert [step.method for step in (*plan.before, *plan.steps, *plan.after)].count("HEAD") == asked
    with db.observe() as seen:
        await db.move(entity, **fields)
    assert [each.operation for each in seen.requests].count("blob-info") == asked
    assert (await db.audit(Book, Note)).found == 0


# Where there are no blobs


async def test_a_database_without_blobs() -> None:
    """Writes that concern the list, and lookups, are rejected by name before anything is sent; all else is not."""
    async with Database(Between()) as db:
        await db.create_tables(Book)
        before = db.stats.requests
        remedy = r"Book\.tagged keeps its lists in blobs: this database has no blobs; .* connect\(url, blobs=...\)"
        with pytest.raises(NotSupported, match=remedy):
            await db.insert(book(1))
        with pytest.raises(NotSupported, match=remedy):
            await ids(db)
        assert db.stats.requests == before
        await db.insert(book(1, None))


async def test_a_token_for_one_table(tmp_path: Path) -> None:
    """It opens no blobs: a lookup is rejected by name, and what needs no list is not."""
    url = f"local:{tmp_path}/a.tables"
    async with connect(url, key=DEVELOPMENT_KEY) as db:
        await db.create_tables(Book)
        await db.insert(book(1))
        token = await db.grant(Book, "raud", dt.timedelta(hours=1))
    assert any("lists Book.tagged" in each for each in token.not_covered)
    async with connect(url, key=DEVELOPMENT_KEY, sas=token) as db:
        with pytest.raises(AccessDenied, match="keeps its lists in blobs, and the token of this database"):
            await ids(db)
        with pytest.raises(AccessDenied, match="follow it, by tagged, and the token"):
            await db.insert(book(2))
        assert db.stats.requests == 0
        await db.insert(book(2, None))
    async with connect(url, key=DEVELOPMENT_KEY, sas=token, blobs=url) as db:
        with pytest.raises(NotSupported, match=r"Book\.tagged is not read: .* building=False if it is complete"):
            await ids(db)
        assert [each.id for each in await db.lookup(KnownBook.tagged, tag="new")] == [1]


async def test_blobs_elsewhere(tmp_path: Path) -> None:
    """Lists lie where `blobs=` says, in a container with the prefix of the database, which the first write makes."""
    place = f"local:{tmp_path}/blobs.tables"
    async with memory_database(Book, blobs=place, prefix="T1") as db:
        await db.insert(book(1))
        assert await ids(db) == [1]
    async with connect(place) as db:
        assert await db.blobs.list_containers() == ["t1tableorm-lists"]


# Blobs that others have written


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mine", "is no index list: .* delete the blob, then run db.build_index"),
        ("tableorm index list 1\na\tb\n", "is no index list"),
        ("tableorm index list 1\na\tb\tc", "is no index list"),
        ("tableorm index list 2\n", "is of a newer program; update this one"),
    ],
)
async def test_a_blob_that_is_no_list(db: Database, text: str, message: str) -> None:
    """The lookup says so; it is never overwritten, and a write that has committed is left to workers."""
    await db.blobs.create_container(BLOB_LISTS)
    await db.blobs.put(BLOB_LISTS, "blobbooks/Book=23tagged/tags/tag_new", text.encode())
    with pytest.raises(DecodeError, match=message):
        await ids(db)
    await db.insert(book(1))
    assert await db.exists(BOOK)
    assert (await contents(db)).startswith(text.rstrip("\n"))


async def test_an_audit_reads_a_list_once(db: Database) -> None:
    """It keeps what it has read of a list for further entities, and once more looks at what the list holds."""
    for number in range(5):
        await db.insert(book(number))
    with db.observe() as seen:
        assert (await db.audit(Book, parallel=1)).found == 0
    assert [each.operation for each in seen.requests].count("get-blob") == 2


async def test_an_audit_of_a_damaged_list(db: Database) -> None:
    """It is named, and left to people; who deletes the blob gets the list back by `build_index`."""
    await db.insert(book(1))
    name = "blobbooks/Book=23tagged/tags/tag_new"
    await db.blobs.put(BLOB_LISTS, name, b"mine")
    report = await db.audit(Book, repair=True)
    assert {each.damage for each in report.findings} == {Damage.FOREIGN}
    assert report.repaired == 0
    await db.blobs.delete(BLOB_LISTS, name)
    assert [each.damage for each in (await db.audit(Book)).findings] == [Damage.MISSING]
    await db.build_index(Book.tagged)
    assert await ids(db) == [1]


async def test_a_manifest_that_names_what_is_no_list(db: Database) -> None:
    """An audit goes on, and corrects the manifest; so does the next write."""
    await db.insert(book(1))
    for number, partition_key in ((2, "\u5149" * 400), (3, "tags")):
        manifest = manifest_text({"tagged": BlobListEntry(partition_key, "tag_new", "BlobBooks", "Book#tagged")})
        row = {"PartitionKey": "a", "RowKey": f"book_{number:03d}", "EntityType": "Book", "title": "", "_ix": manifest}
        await insert_row(db, "BlobBooks", row)
    report = await db.audit(Book, repair=True)
    assert [(each.row_key, each.damage) for each in report.findings] == [
        ("book_002", Damage.MANIFEST),
        ("book_003", Damage.MANIFEST),
    ]
    assert report.repaired == 2
    assert (await db.audit(Book)).found == 0
    assert await ids(db) == [1]


async def test_what_lies_beside_lists_is_left_alone(db: Database) -> None:
    """Blobs with names that no list has are no lists."""
    await db.insert(book(1))
    for name in ("blobbooks/Book=23tagged/tags", "blobbooks/Book=23tagged/a=2e/b", "blobbooks/Book=23tagged/a/b/c"):
        await db.blobs.put(BLOB_LISTS, name, b"mine")
    report = await db.audit(Book, repair=True)
    assert (report.found, report.derived_rows) == (0, 1)


# Other declarations


async def test_a_list_that_was_in_rows_comes_into_blobs(db: Database) -> None:
    """`build_index` moves it; entities that are written before leave the rows and come into the blob."""

    class Shelved(AnyBook, kind="Book"):
        tagged = IndexList(partition_key="tags", row_key="tag_{tag}", consistency="eventual", building=False)

    for number in (1, 2, 3):
        await db.insert(Shelved(shelf="a", id=number, tag="new"))
    one = await db.get(BOOK)
    one.title = "One"
    await db.save(one)
    assert await ids(db) == [1]
    await db.build_index(Book.tagged)
    assert await ids(db) == [1, 2, 3]
    assert await db.lookup(Shelved.tagged, tag="new") == []
    assert (await db.audit(Book)).found == 0


async def test_a_scope_and_lists_in_blobs() -> None:
    """A scope writes lists whose keys tell that they are of it; others are rejected, and looked up for its own."""
    async with memory_database(Note) as db:
        for tenant in ("acme", "other"):
            await db.insert(Note(tenant=tenant, id="1", tag="x", word="w"))
        acme = db.scope(tenant="acme")
        await acme.insert(Note(tenant="acme", id="2", tag="x"))
        assert [note.id for note in await acme.lookup(Note.tagged, tag="x")] == ["1", "2"]
        assert [note.id for note in await acme.lookup(Note.beside, tag="x")] == ["1", "2"]
        assert [note.tenant for note in await acme.lookup(Note.shared, word="w")] == ["acme"]
        with pytest.raises(AccessDenied):
            await acme.lookup(Note.tagged, tag="x", tenant="other")
        before = db.stats.requests
        with pytest.raises(ModelError, match=r"what shared has elsewhere, .* cannot be shown to belong to the scope"):
            await acme.insert(Note(tenant="acme", id="3", word="w"))
        assert db.stats.requests == before


async def test_a_manifest_that_names_a_list_of_others(db: Database) -> None:
    """Who writes a row of another table with the keys of a book takes that out of no list."""
    await db.insert(book(1))
    await db.create_tables(Draft)
    forged = BlobListEntry("tags", "tag_new", "BlobBooks", "Book#tagged")
    row = {"PartitionKey": "a", "RowKey": "book_001", "EntityType": "Draft"}
    await insert_row(db, "BlobDrafts", row)
    source = RowAddress("BlobDrafts", "a", "book_001")
    await deferred_rules("tagged", forged).remove(connection_of(db), source, "tagged", [forged])
    assert await ids(db) == [1]


async def test_dropped_tables_leave_lists(db: Database) -> None:
    """A lookup returns none of the entities that are gone, and an audit takes them out of the lists."""
    await db.insert(book(1))
    await db.drop_table(Book)
    await db.create_tables(Book)
    assert await ids(db) == []
    assert (await db.audit(Book, repair=True)).repaired == 1
    assert await contents(db) == "tableorm index list 1\n"


@pytest.mark.usefixtures("quick_workers", "stopped_clock")
async def test_a_blob_that_comes_too_late() -> None:
    """After its entity was deleted nobody looks at it again: no lookup returns it, and an audit takes it out."""
    store = MemoryStore()
    network = LateWrite(store, lambda table, _: table == BLOB_LISTS.replace("-", ""))
    async with connected(store) as db:
        await db.create_tables(Book)
        await db.blobs.create_container(BLOB_LISTS)
    async with connected(network) as db:
        await db.insert(book(1))
    async with connected(store) as db:
        await db.delete(await db.get(BOOK))
        CLOCK.advance(dt.timedelta(hours=1))
        await drain(db, Book)
        await network.deliver()

        assert (await contents(db)).count("\n") == 2
        assert await ids(db) == []
        assert [each.damage for each in (await db.audit(Book)).findings] == [Damage.ORPHAN]
        assert (await db.audit(Book, repair=True)).clean
        assert await contents(db) == "tableorm index list 1\n"


# Azurite


async def test_lists_on_azurite(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists follow all verbs there, and workers do what writers have left."""

    async def die(self: deferred.Deferral) -> None: ...

    async with temporary_database(azurite.connection_string, Book) as db:
        one = book(1, "\u00fc.. /".replace("/", "="))
        await db.insert(one)
        one.tag = "new"
        await db.save(one)
        await db.insert(book(2))
        monkeypatch.setattr("tableorm.outbox.shared_bell.HIDDEN_SECONDS", 0)
        monkeypatch.setattr(deferred.Deferral, "finish", die)
        await db.insert(book(3))
        await db.delete(Book.key(shelf="a", id=2), if_match="*")
        monkeypatch.undo()
        assert await ids(db) == [1]
        await drain(db, Book)
        assert await ids(db) == [1, 3]
        assert len((await contents(db)).split("\n")) == 4
        report = await db.audit(Book)
        assert (report.found, report.derived_rows) == (0, 2)
