"""
Blobs of index lists, replaced by somebody who may write into their container.
"""

from collections.abc import Sequence

import pytest

from tableorm import Database, DecodeError, Entity, IndexList, Mapped, connect
from tableorm.connection.connection import TURN, Connection, connection_of
from tableorm.connection.rows import read_row
from tableorm.derived.index_list import blobs, lookup
from tableorm.keys.ranges import KeyPosition, key_order
from tableorm.models.manifest import BlobListEntry
from tableorm.models.reserved import BLOB_LISTS
from tableorm.stores import Row, RowAddress
from tests.security.world import Turns


class Book(Entity, table="ForgedBooks", partition_key="{shelf}", row_key="book_{id:03d}"):
    shelf: Mapped[str]
    id: Mapped[int]
    tag: Mapped[str]

    tagged = IndexList(partition_key="tags", row_key="tag_{tag}", consistency="eventual", blob=True)


async def ids(db: Database) -> list[int]:
    return [book.id for book in await db.lookup(Book.tagged, tag="new")]


async def test_a_list_that_does_not_fit_into_memory_is_not_read(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blob far beyond the limit of a list is damaged, and is replaced by an audit as any other damaged one."""
    await db.create_tables(Book)
    await db.insert(Book(shelf="a", id=1, tag="new"))
    data = await db.blobs.read(BLOB_LISTS, LIST)
    monkeypatch.setattr("tableorm.derived.index_list.blobs.MOST_BYTES", 500)
    await db.blobs.put(BLOB_LISTS, LIST, data + b"a\tbook_001\t\n" * 100)
    with pytest.raises(DecodeError, match="is no index list"):
        await ids(db)
    await db.blobs.put(BLOB_LISTS, LIST, data + b"a\tbook_002\twritten_once\n" * 30)
    assert await ids(db) == [1]


LIST = "forgedbooks/Book=23tagged/tags/tag_new"


async def make_list(db: Database, lines: Sequence[bytes]) -> bytes:
    """Make a list of one book, to which somebody adds lines; return what the blob holds then."""
    await db.create_tables(Book)
    await db.insert(Book(shelf="a", id=1, tag="new"))
    data = await db.blobs.read(BLOB_LISTS, LIST) + b"".join(lines)
    await db.blobs.put(BLOB_LISTS, LIST, data)
    return data


def short_lines(count: int) -> list[bytes]:
    return [b"\t%04x\t\n" % number for number in range(count)]


@pytest.mark.parametrize("shelf", [None, "a"])
async def test_a_list_of_very_many_short_lines_is_read_in_slices(
    monkeypatch: pytest.MonkeyPatch, shelf: str | None
) -> None:
    """Other tasks get a turn while a long list is read and sorted, also in a scope; then the entity is found."""
    turns, before_entities = Turns(), list[int]()

    async def read_none(db: Connection, address: RowAddress, name: str) -> Row | None:
        before_entities.append(turns.count)
        return await read_row(db, address, name=name) if address.partition_key else None

    def count(position: KeyPosition) -> tuple[bytes, bytes]:
        turns.add()
        return key_order(position)

    async with connect("local::memory:") as db:
        data = await make_list(db, short_lines(20_000))
        monkeypatch.setattr(lookup, "read_row", read_none)
        monkeypatch.setattr(lookup, "key_order", count)
        async with turns.watched():
            found = await (db if shelf is None else db.scope(shelf=shelf)).lookup(Book.tagged, tag="new")

    assert [book.id for book in found] == [1]
    assert before_entities[0] >= len(data) // 16_384
    assert turns.most < 10_000


async def test_a_write_into_a_long_list_looks_for_its_entities_in_slices(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tasks get a turn while a worker puts entities into a long list, and takes others out of it."""
    turns, written = Turns(), list[bytes]()

    async def write(db: Connection, place: BlobListEntry, blob: object, data: bytes) -> bool:
        written.append(data)
        return True

    wanted = {RowAddress("ForgedBooks", "a", f"book_{number:03d}"): "v" * number or None for number in range(20)}
    data = await make_list(db, short_lines(100_000))
    place = BlobListEntry("tags", "tag_new", "ForgedBooks", "Book#tagged")
    lists = blobs.BlobList(connection_of(db), place)
    part = (await lists.find_parts(list(wanted)))[next(iter(wanted))]
    monkeypatch.setattr(blobs, "_write", write)
    async with turns.watched():
        assert await lists.correct_part(part, wanted)

    lines = data.decode().split("\n")[2:-1]
    assert written[0].decode().split("\n")[1:-1] == [
        "a\tbook_001\tv",
        *lines,
        *(f"a\tbook_{number:03d}\t{'v' * number}" for number in range(2, 20)),
    ]
    assert turns.count > 20 * len(data) // 262_144


async def test_no_list_has_more_members_than_fit_into_a_full_one(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blob with more lines than a full list of the shortest keys has is damaged, although it is not too large."""
    monkeypatch.setattr(blobs, "MOST_BYTES", 1600)
    data = await make_list(db, short_lines(99))
    assert await ids(db) == [1]
    await db.blobs.put(BLOB_LISTS, LIST, data + b"\tx\t\n")
    with pytest.raises(DecodeError, match="is no index list"):
        await ids(db)


async def test_a_line_without_an_end_is_no_line_of_a_list(db: Database) -> None:
    """A line that is longer than two keys and a token is damage; it is not decoded."""
    await make_list(db, [b"a\t" + b"x" * 20_000 + b"\t\n"])
    with pytest.raises(DecodeError, match="is no index list"):
        await ids(db)


@pytest.mark.parametrize("key", ["a/b", "x" * 3000, "\1", "b\0"])
async def test_a_key_that_no_row_can_have_is_nobody_and_is_taken_out(db: Database, key: str) -> None:
    """Such a line ends no lookup, and an audit takes it out of the list."""
    await make_list(db, [f"{key}\tbook_001\t\na\t{key}\t\n".encode()])
    assert await ids(db) == [1]
    report = await db.audit(Book, repair=True)
    assert (report.counts, report.repaired) == ({"orphan": 2}, 2)
    assert key.encode() not in await db.blobs.read(BLOB_LISTS, LIST)


async def test_blobs_that_are_no_lists_are_passed_over_in_slices(db: Database) -> None:
    """Other tasks get a turn while an audit passes over blobs beside the lists whose names no list has."""
    turns = Turns()
    await make_list(db, [])
    for number in range(1000):
        await db.blobs.put(BLOB_LISTS, f"forgedbooks/Book=23tagged/tags/=41{number}", b"")
    async with turns.watched():
        places = [place async for place in blobs.lists_of(connection_of(db), "ForgedBooks", "Book#tagged")]

    assert [place.blob_name for place in places] == [LIST]
    assert turns.count > 1000 // TURN
