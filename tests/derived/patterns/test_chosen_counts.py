"""
Maintained fields that a program sets: refused whatever was read of the entity, and never passed over in silence.
"""

import pytest

from tableorm import Count, Database, EncodeError, Entity, Index, Mapped, field
from tests.rows import replace_row


class Shelf(Entity, table="ChosenCounts", partition_key="{name}", row_key="shelf"):
    name: Mapped[str]
    books: Mapped[int] = field(default=0, maintained=True)
    room: Mapped[str] = field(default="hall")

    by_room = Index(row_key="room_{room}")


SHELF = Shelf.key(name="a")


class Book(Entity, table="ChosenCounts", partition_key="{shelf}", row_key="book_{id:03d}"):
    shelf: Mapped[str]
    id: Mapped[int]

    counted = Count(lambda: Shelf.books, name="{shelf}")


@pytest.fixture
async def shelves(db: Database) -> Database:
    """A shelf with a book."""
    await db.create_tables(Shelf, Book)
    await db.insert(Shelf(name="a"))
    await db.insert(Book(shelf="a", id=1))
    return db


@pytest.mark.parametrize("verb", ["save", "merge", "replace", "upsert"])
async def test_a_count_that_is_set_after_reading_by_an_index(shelves: Database, verb: str) -> None:
    """The entry has no counts, so the entity has none; one that the program gives it is rejected."""
    shelf = await shelves.get(Shelf.by_room, name="a", room="hall")
    shelf.books = 7
    with pytest.raises(EncodeError, match=r"Shelf.books: 7 is rejected: other entities maintain this field"):
        await getattr(shelves, verb)(shelf)

    assert (await shelves.get(SHELF)).books == 1


async def test_a_count_that_is_chosen_for_a_row_that_exists(shelves: Database) -> None:
    """An upsert with another value than the default is rejected; with the default it keeps what is stored."""
    with pytest.raises(EncodeError, match=r"Shelf.books: 7 is rejected"):
        await shelves.upsert(Shelf(name="a", books=7))
    await shelves.upsert(Shelf(name="a", room="loft"))

    assert (await shelves.get(SHELF)).books == 1


async def test_a_count_that_others_have_changed_since(shelves: Database) -> None:
    """What an entity was read with is no choice of the program: the upsert keeps what is stored."""
    shelf = await shelves.get(SHELF)
    await shelves.insert(Book(shelf="a", id=2))
    shelf.room = "loft"
    await shelves.upsert(shelf)

    assert (shelf.books, (await shelves.get(SHELF)).books) == (2, 2)


async def test_a_count_that_the_row_has_lost(shelves: Database) -> None:
    """Another program has replaced the row without it: what the entity was read with is no choice of the program."""
    shelf = await shelves.get(SHELF)
    row = await shelves.store.get("ChosenCounts", "a", "shelf")
    left = {name: value for name, value in row.items() if name.partition("@")[0] not in ("books", "odata.etag")}
    await replace_row(shelves, "ChosenCounts", left)
    shelf.room = "loft"
    await shelves.upsert(shelf)

    assert (await shelves.get(SHELF)).room == "loft"
