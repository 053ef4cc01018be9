"""
Long values: what of them is sent, what is read of rows that others wrote, and what is rejected. What each verb leaves
is compared with plain Python in `test_oracle.py`.
"""

import json
import zlib
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from tableorm import (
    Database,
    DecodeError,
    EncodeError,
    Entity,
    Index,
    Int32,
    LimitExceeded,
    Mapped,
    ModelError,
    Series,
    field,
    from_dict,
    to_dict,
)
from tableorm.connection.connection import connection_of
from tableorm.shapes.chunked import MAX_EXPANDED_BYTES
from tableorm.stores import Row
from tests.databases import database_fixture, memory_database
from tests.faults import QUICK, Fate, FaultyStore
from tests.rows import put_row


class Note(Entity, table="Long", partition_key="p", row_key="note_{id}"):
    id: Mapped[int] = field(default=1)
    text: Mapped[str] = field(default="", chunked=True)
    scan: Mapped[bytes | None] = field(default=None, chunked=True)
    stars: Mapped[int] = field(default=0)


NOTE = Note.key(id=1)


class Document(Entity, table="Long", partition_key="p", row_key="document_{id}"):
    id: Mapped[int] = field(default=1)
    words: Mapped[list[str] | None] = field(default=None, chunked=True, compress=True)
    text: Mapped[str | None] = field(default=None, chunked=True, compress=True)
    plain: Mapped[dict[str, str] | None] = field(default=None, chunked=True)


class PlainNote(Entity, table="Long", partition_key="p", row_key="note_{id}", kind="Note"):
    id: Mapped[int] = field(default=1)
    text: Mapped[str] = field(default="")
    stars: Mapped[int] = field(default=0)


db = database_fixture(Note)


async def sizes(db: Database, row_key: str = "note_1") -> dict[str, int]:
    """Return how long the texts of a row are, and the numbers in it."""
    row = await db.store.get("Long", "p", row_key)
    names = ("odata.etag", "Timestamp", "PartitionKey", "RowKey", "EntityType", "stars")
    return {n: len(v) if isinstance(v, str) else v for n, v in row.items() if n not in names and "@" not in n}


async def write(db: Database, kind: str = "Note", **properties: Any) -> None:
    row: Row = {"PartitionKey": "p", "RowKey": f"{kind.lower()}_1", "EntityType": kind, **properties}
    await put_row(db, "Long", row)


def body(db: Database, verb: Any, entity: Entity, **arguments: Any) -> tuple[str, dict[str, Any]]:
    """Return the method and body of the only request of a write."""
    (step,) = db.explain_write(verb, entity, **arguments).steps
    return step.method, json.loads(step.body or b"")


async def test_a_long_value_is_divided(db: Database) -> None:
    """By the limit of a property, never a character; its length is stored too, in UTF-16 code units or bytes."""
    note = Note(text="a" + "\U0001f600" * 40_000, scan=bytes(65_537))
    await db.insert(note)
    row = await db.store.get("Long", "p", "note_1")
    assert [len(row[name].encode("utf-16-le")) for name in ("text", "text_1", "text_2")] == [65_534, 65_536, 28_932]
    assert (row["text_length"], row["scan_length"]) == (80_001, 65_537)
    assert (row["scan_1"], row["scan_1@odata.type"], "text_3" in row) == ("AA==", "Edm.Binary", False)
    assert await db.get(NOTE) == note
    assert await sizes(db) == {"text": 16384, "text_1": 16384, "text_2": 7233, "text_length": 80_001} | {
        "scan": 87384,
        "scan_1": 4,
        "scan_length": 65_537,
    }


async def test_a_shorter_value_leaves_nothing_of_a_longer_one(db: Database) -> None:
    """A save replaces the row; a merge stores empty chunks, which say nothing, and are not written again."""
    await db.insert(Note(text="a" * 70_000, scan=bytes(70_000)))
    note = await db.get(NOTE)
    note.text = "b"
    assert body(db, "save", note)[0] == "PUT"
    sent = {"text": "b", "text_1": "", "text_2": "", "text_length": 0}
    assert body(db, "merge", note, only=[Note.text]) == ("PATCH", sent)
    await db.merge(note, only=[Note.text])
    assert (await sizes(db))["text_2"] == 0
    read = await db.get(NOTE)
    assert (read, db.explain_write("save", read).steps) == (note, ())
    read.stars = 5
    assert body(db, "save", read) == ("PATCH", {"stars": "5", "stars@odata.type": "Edm.Int64"})
    await db.upsert(Note(text="cc", scan=b"c"))  # what was not read may have longer ones
    assert (await db.get(NOTE)).scan == b"c"
    note = await db.get(NOTE)
    note.scan = None
    await db.save(note)
    assert await sizes(db) == {"text": 2}


async def test_json_and_compressed_values(db: Database) -> None:
    """JSON may be as long as its field; what zlib makes of a value is stored as bytes."""
    document = Document(words=["again"] * 100_000, text="\U0001f600" * 500_000, plain={"a": "b" * 400_000})
    await db.insert(document)
    assert await db.get(Document, id=1) == document
    found = await sizes(db, "document_1")
    assert (found["plain_12"], found["plain_length"], found["words"] < 20_000) == (6792, 400_008, True)
    row = await db.store.get("Long", "p", "document_1")
    assert (row["words@odata.type"], row["plain"][:6]) == ("Edm.Binary", '{"a":"')
    document.words = ["again"]
    await db.merge(document, only=[Document.words])
    assert (await db.get(Document, id=1)).words == ["again"]


async def test_what_makes_no_value_is_never_read_as_one(db: Database) -> None:
    """Chunks without their length, or another one, chunks of another type, and what zlib did not make, or too much."""
    rows: list[tuple[dict[str, Any], str]] = [
        ({"text": "ab", "text_length": 3}, "parts of 2 in all, and their length is 3"),
        ({"text": "ab", "text_length": 1}, "length is 1"),
        ({"text": "ab", "text_length": -1}, "length is -1"),
        ({"text": "ab", "text_1": "", "text_2": "c", "text_length": 3}, "one is missing"),
        ({"text": "ab", "text_2": "c", "text_length": 3}, "one is missing"),
        ({"text": "ab", "text_1": "c", "text_length": 0}, "without their length"),
        ({"text": "ab", "text_1": "c"}, "without their length"),
        ({"text_1": "c"}, "one is missing"),
        ({"text_length": 3}, "one is missing"),
        ({"text": 5, "text_length": 1}, r"\[0\].*5, an Edm.Int32, where Edm.String"),
        ({"text": "a", "text_length": "x"}, r"\.length.*'x', an Edm.String"),
    ]
    for properties, problem in rows:
        await write(db, **properties)
        with pytest.raises(DecodeError, match=rf"Note\.text.*{problem}"):
            await db.get(NOTE)
    bomb = zlib.compress(b" " * (MAX_EXPANDED_BYTES + 1))
    for data, problem in (
        (b"abc", "not compressed by zlib"),
        (zlib.compress(b"abc")[:-1], "ends too early"),
        (zlib.compress(b"abc") + b"d", "after its end"),
        (bomb, "expand to more than 2,097,152 bytes"),
    ):
        text = b64encode(data).decode()
        await write(db, "Document", **{"text": text, "text@odata.type": "Edm.Binary", "text_length": len(data)})
        with pytest.raises(DecodeError, match=rf"Document\.text.*{problem}"):
            await db.get(Document, id=1)


async def test_a_field_can_become_chunked(db: Database) -> None:
    """A value that fits into one property is stored as that of a plain field, which both programs read and write."""
    await db.insert(PlainNote(text="old"))
    note = await db.get(NOTE)
    note.text = "newer"
    await db.save(note)
    plain = await db.get(PlainNote, id=1)
    assert (plain.text, await sizes(db)) == ("newer", {"text": 5})
    note.text = "a" * 40_000
    await db.save(note)
    await db.merge(PlainNote(text="b"), only=[PlainNote.text], if_match="*")
    with pytest.raises(DecodeError, match=r"Note\.text.*parts of 7,233 in all, and their length is 40,000"):
        await db.get(NOTE)


async def test_conditions_ask_whether_it_is_there(db: Database) -> None:
    """And nothing else; a projection has the whole of it."""
    await db.insert(Note(text="a" * 70_000))
    await db.insert(Note(id=2, scan=b""))
    query = db.select(Note).where(Note.id.in_([1, 2]))
    assert [each.id for each in await query.where(Note.scan.is_none()).all()] == [1]
    assert [each.id for each in await query.where(~Note.scan.is_none()).all()] == [2]
    long: Any = Note.text
    compared: list[Callable[[], object]] = [lambda: long == "a", lambda: long.startswith("a"), lambda: long.in_(["a"])]
    for refused in compared:
        with pytest.raises(EncodeError, match=r"Note\.text.*stored in parts.*short field beside it"):
            refused()
    note = await query.only(Note.text).where(Note.id == 1).one()
    assert note.text == "a" * 70_000
    note.text = "b"
    await db.save(note)
    assert await sizes(db) == {"text": 1}


async def test_what_is_too_long_is_refused(db: Database) -> None:
    """Before anything is sent: with what it has, and what there is room for; a plain field names the remedy."""
    requests = db.stats.requests
    with pytest.raises(
        EncodeError, match=r"Note\.text.*491,521 UTF-16 code units.*15 properties hold 491,520; .*declare a Blob"
    ):
        await db.insert(Note(text="a" * 491_521))
    with pytest.raises(EncodeError, match=r"Note\.scan.*has 983,041 bytes.*hold 983,040; add compress=True, or"):
        await db.insert(Note(scan=bytes(983_041)))
    with pytest.raises(EncodeError, match=r"Document\.text.*2,097,153 bytes, and 2,097,152 can be compressed"):
        await db.insert(Document(text="a" * (MAX_EXPANDED_BYTES + 1)))
    with pytest.raises(LimitExceeded, match="1048576 are allowed"):
        await db.insert(Note(text="a" * 400_000, scan=bytes(400_000)))
    with pytest.raises(LimitExceeded, match=r"40000 characters.* 80000 bytes.*chunked=True\) or Mapped\[Blob\]"):
        await db.insert(PlainNote(text="a" * 40_000))
    assert db.stats.requests == requests
    await db.insert(Note(text="a" * 491_520))


async def test_a_save_remembers_the_empty_chunks_that_it_leaves() -> None:
    """If its reply is lost, they are no sign of another writer, and the entity can be saved again."""

    class Letter(Entity, table="Long", partition_key="p", row_key="letter_{id}", write_token=True):
        id: Mapped[int] = field(default=1)
        text: Mapped[str] = field(default="", chunked=True)
        stars: Mapped[int] = field(default=0)

    async with memory_database(Letter, retry=QUICK) as db:
        await db.insert(letter := Letter(text="a" * 40_000))
        letter.text = "short"
        await db.merge(letter)
        letter = await db.get(Letter, id=1)
        connection_of(db).wrap_store(lambda store: FaultyStore(store, [Fate.LOST_REPLY]))
        letter.stars = 1
        await db.save(letter)
        letter.stars = 2
        await db.save(letter)

        assert await db.get(Letter, id=1) == letter


def test_json_is_that_of_the_value() -> None:
    """Clients see no chunks."""
    note = Note(text="a" * 40_000, scan=b"abc")
    assert from_dict(Note, to_dict(note, "json")) == note
    properties = TypeAdapter(Note).json_schema()["properties"]
    assert properties["text"] == {"type": "string", "default": ""}
    assert properties["scan"]["anyOf"][0] == {"type": "string", "contentEncoding": "base64", "format": "byte"}
    with pytest.raises(ValueError, match=r"Note\.text"):
        from_dict(Note, {"text": "a" * 500_000})


async def test_index_entries_hold_it(db: Database) -> None:
    """All of it, also where a merge has left empty chunks; an audit agrees."""

    class Found(Entity, table="Found", partition_key="p", row_key="found_{id}"):
        id: Mapped[int] = field(default=1)
        name: Mapped[str] = field(default="a")
        text: Mapped[str] = field(default="", chunked=True)

        by_name = Index(row_key="name_{name}_{id}", include=["text"])

    await db.create_tables(Found)
    found = Found(text="a" * 70_000)
    await db.insert(found)
    found.text = "b" * 40_000
    await db.merge(found, only=[Found.text])
    (entry,) = await db.select(Found.by_name).where(Found.name == "a").all()
    assert entry.text == found.text
    assert (await db.audit(Found)).clean


def test_what_is_declared_wrongly_is_refused() -> None:
    """When the class is made."""
    keys: dict[str, Any] = {"table": "Long2", "partition_key": "p"}
    for annotation in (Mapped[int], Mapped[Int32], Series[str]):
        with pytest.raises(ModelError, match=r"text = field\(chunked=True\) is declared as .*str, bytes and JSON"):

            class Typed(Entity, row_key="{id}", **keys):  # pyright: ignore[reportUnusedClass]
                id: Mapped[int]
                text: annotation = field(chunked=True)  # type: ignore[valid-type] # pyright: ignore[reportInvalidTypeForm]

    with pytest.raises(ModelError, match=r"compress=True\) is rejected.*add chunked=True"):
        field(compress=True)
