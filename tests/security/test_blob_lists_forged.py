"""
Blobs of index lists, replaced by somebody who may write into their container.
"""

import pytest

from tableorm import DecodeError, Entity, IndexList, Mapped, connect
from tableorm.models.reserved import BLOB_LISTS


class Book(Entity, table="ForgedBooks", partition_key="{shelf}", row_key="book_{id:03d}"):
    shelf: Mapped[str]
    id: Mapped[int]
    tag: Mapped[str]

    tagged = IndexList(partition_key="tags", row_key="tag_{tag}", consistency="eventual", blob=True)


async def test_a_list_that_does_not_fit_into_memory_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blob far beyond the limit of a list is damaged, and is replaced by an audit as any other damaged one."""
    async with connect("local::memory:") as db:
        await db.create_tables(Book)
        await db.insert(Book(shelf="a", id=1, tag="new"))
        name = "forgedbooks/Book=23tagged/tags/tag_new"
        data = await db.blobs.read(BLOB_LISTS, name)
        monkeypatch.setattr("tableorm.derived.index_list.blobs.MOST_BYTES", 500)
        await db.blobs.put(BLOB_LISTS, name, data + b"a\tbook_001\t\n" * 100)
        with pytest.raises(DecodeError, match="is no index list"):
            await db.lookup(Book.tagged, tag="new")
        await db.blobs.put(BLOB_LISTS, name, data + b"a\tbook_002\t\n" * 50)
        assert [book.id for book in await db.lookup(Book.tagged, tag="new")] == [1]
