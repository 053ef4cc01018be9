"""
Writes that read their row first: they write over the row that they have read, and over no other.
"""

from collections.abc import AsyncIterator
from contextlib import nullcontext

import pytest

from tableorm import Database, Entity, EntityNotFound, Index, Mapped, PreconditionFailed, WrongKind, field
from tests.database.between import Meanwhile
from tests.rows import merge_row
from tests.writes.verbs import write


class Book(Entity, table="BooksReadFirst", partition_key="g", row_key="book_{name}"):
    name: Mapped[str] = field(default="a")
    number: Mapped[int]
    text: Mapped[str] = field(default="")
    by_number = Index(row_key="number_{number:04d}_{name}")


@pytest.fixture
def store() -> Meanwhile:
    return Meanwhile()


@pytest.fixture
async def books(store: Meanwhile) -> AsyncIterator[Database]:
    async with Database(store) as db:
        await db.create_tables(Book)
        yield db


async def insert_and_find(books: Database) -> Book:
    """Insert a book, and return it as it is read from its index entry."""
    await books.insert(Book(number=1))
    return await books.get(Book.by_number, number=1, name="a")


VERBS = ["delete", "merge", "replace", "upsert", "upsert over"]


async def write_any(db: Database, verb: str, book: Book) -> None:
    """Write a book over any version of its row."""
    await write(db, verb, book, **({} if verb.startswith("upsert") else {"if_match": "*"}))


@pytest.mark.parametrize("verb", VERBS)
async def test_a_row_that_changed_after_it_was_read_is_read_again(books: Database, store: Meanwhile, verb: str) -> None:
    """Whatever the entry was that the other write has made, no entry is left of it."""
    await books.insert(Book(number=1))
    store.others = lambda: books.upsert(Book(number=2))
    await write_any(books, verb, Book(number=3))

    assert store.happened
    found = [book.number async for book in books.select(Book)]
    assert found == ([] if verb == "delete" else [3])
    assert (await books.audit(Book)).clean


@pytest.mark.parametrize("verb", VERBS)
async def test_a_row_that_is_gone_after_it_was_read(books: Database, store: Meanwhile, verb: str) -> None:
    """An upsert inserts it; what needs a row says that there is none."""
    await books.insert(Book(number=1))
    store.others = lambda: books.delete(Book, name="a", if_match="*")
    with nullcontext() if verb.startswith("upsert") else pytest.raises(EntityNotFound):
        await write_any(books, verb, Book(number=3))

    assert store.happened
    assert [book.number async for book in books.select(Book)] == ([3] if verb.startswith("upsert") else [])
    assert (await books.audit(Book)).clean


@pytest.mark.parametrize("verb", ["upsert", "upsert over"])
async def test_a_row_that_came_after_none_was_found(books: Database, store: Meanwhile, verb: str) -> None:
    """An upsert that was to insert it reads it, and writes over it."""
    store.others = lambda: books.insert(Book(number=2))
    await write_any(books, verb, Book(number=3))

    assert store.happened
    assert [book.number async for book in books.select(Book)] == [3]
    assert (await books.audit(Book)).clean


async def test_an_index_entry_of_a_row_of_another_kind(books: Database, store: Meanwhile) -> None:
    """The entity that was read from the entry is not written over that row; the error names both, and the remedy."""
    book = await insert_and_find(books)
    keys = {"PartitionKey": "g", "RowKey": "book_a"}
    await merge_row(store, "BooksReadFirst", {**keys, "EntityType": "Film"})
    book.text = "mine"
    with pytest.raises(WrongKind) as refused:
        await books.save(book)

    assert str(refused.value) == (
        "save of Book ('g', 'book_a'): it was read from an index entry, and the row with its key has kind 'Film'; "
        "delete the entry, and run `tableorm audit --repair`"
    )
    assert (refused.value.key, refused.value.found) == (("g", "book_a"), "Film")


async def test_an_entity_read_from_an_index_entry_replaces_no_newer_row(books: Database, store: Meanwhile) -> None:
    """Whether the row is still what the entry says is decided by the row that is written over."""
    book = await insert_and_find(books)
    book.text = "mine"
    store.others = lambda: books.upsert(Book(number=1, text="theirs"))
    with pytest.raises(PreconditionFailed, match="has changed since a copy of it was read"):
        await books.save(book)

    assert (await books.get(Book, name="a")).text == "theirs"


@pytest.mark.parametrize("verb", VERBS)
async def test_an_entity_read_from_an_index_entry_is_written_over_any_row_if_asked_to(
    books: Database, verb: str
) -> None:
    """By an upsert, or with `if_match="*"`: it matters no more what the entry said than what the ETag was."""
    book = await insert_and_find(books)
    await books.modify(Book, lambda fresh: fresh.evolve(number=2), name="a")
    book.text = "mine"
    await write_any(books, verb, book)

    found = [(each.number, each.text) async for each in books.select(Book)]
    assert found == ([] if verb == "delete" else [(1, "mine")])
    assert (await books.audit(Book)).clean
