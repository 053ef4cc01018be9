"""
Writes that read their row first: they write over the row that they have read, and over no other.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tableorm import Database, Entity, EntityNotFound, Index, Mapped, PreconditionFailed, field
from tableorm.stores import Row
from tests.database.between import Between


class Book(Entity, table="BooksReadFirst", partition_key="g", row_key="book_{name}"):
    name: Mapped[str]
    number: Mapped[int] = field(default=0)
    text: Mapped[str] = field(default="")
    by_number = Index(row_key="number_{number:04d}_{name}")


class Meanwhile(Between):
    """A store in which somebody else does something once, after a row was read."""

    others: Callable[[], Awaitable[object]] | None = None
    happened = False

    async def get(self, table: str, partition_key: str, row_key: str, select: tuple[str, ...] | None = None) -> Row:
        row = await super().get(table, partition_key, row_key, select)
        others, self.others = self.others, None
        if others is not None:
            await others()
            self.happened = True
        return row


@pytest.fixture
def store() -> Meanwhile:
    return Meanwhile()


@pytest.fixture
async def books(store: Meanwhile) -> AsyncIterator[Database]:
    async with Database(store) as db:
        await db.create_tables(Book)
        yield db


WRITES: dict[str, Callable[[Database], Awaitable[object]]] = {
    "delete": lambda db: db.delete(Book, name="a", if_match="*"),
    "merge": lambda db: db.merge(Book(name="a", number=3), if_match="*"),
    "replace": lambda db: db.replace(Book(name="a", number=3), if_match="*"),
    "upsert": lambda db: db.upsert(Book(name="a", number=3)),
    "upsert_replace": lambda db: db.upsert(Book(name="a", number=3), mode="replace"),
}


@pytest.mark.parametrize("verb", WRITES)
async def test_a_row_that_changed_after_it_was_read_is_read_again(books: Database, store: Meanwhile, verb: str) -> None:
    """Whatever the entry was that the other write has made, no entry is left of it."""
    await books.insert(Book(name="a", number=1))
    store.others = lambda: books.upsert(Book(name="a", number=2))
    await WRITES[verb](books)

    assert store.happened
    found = [book.number async for book in books.select(Book)]
    assert found == ([] if verb == "delete" else [3])
    assert (await books.audit(Book)).clean


@pytest.mark.parametrize("verb", WRITES)
async def test_a_row_that_is_gone_after_it_was_read(books: Database, store: Meanwhile, verb: str) -> None:
    """An upsert inserts it; what needs a row says that there is none."""
    await books.insert(Book(name="a", number=1))
    store.others = lambda: books.delete(Book, name="a", if_match="*")
    if verb.startswith("upsert"):
        await WRITES[verb](books)
    else:
        with pytest.raises(EntityNotFound):
            await WRITES[verb](books)

    assert store.happened
    assert [book.number async for book in books.select(Book)] == ([3] if verb.startswith("upsert") else [])
    assert (await books.audit(Book)).clean


async def test_an_entity_read_from_an_index_entry_replaces_no_newer_row(books: Database, store: Meanwhile) -> None:
    """Whether the row is still what the entry says is decided by the row that is written over."""
    await books.insert(Book(name="a", number=1))
    book = await books.get(Book.by_number, number=1, name="a")
    book.text = "mine"
    store.others = lambda: books.upsert(Book(name="a", number=1, text="theirs"))
    with pytest.raises(PreconditionFailed, match="has changed since a copy of it was read"):
        await books.save(book)

    assert (await books.get(Book, name="a")).text == "theirs"
