"""
Assertions about requests.
"""

import asyncio

import pytest

from tableorm import Entity, Mapped
from tableorm.testing import assert_requests, temporary_database


class Note(Entity, table="Counted", partition_key="notes", row_key="{id}"):
    id: Mapped[str]


async def test_so_many_requests() -> None:
    """Requests of the block count, a transaction as one, also those of its tasks and of scopes."""
    async with temporary_database("local::memory:", Note) as db:
        with assert_requests(db, 3) as seen:
            async with db.transaction() as tx:
                tx.insert(Note(id="a"))
                tx.insert(Note(id="b"))
            await asyncio.create_task(db.get(Note, id="a"))
            await db.scope(id="b").get(Note)
        with assert_requests(db, 0):
            db.explain_write("insert", Note(id="c"))

    assert [request.operation for request in seen.requests] == ["transaction", "get", "get"]


@pytest.mark.parametrize("count", [0, 2])
async def test_another_number(count: int) -> None:
    """The error says how many there were, and lists them."""
    async with temporary_database("local::memory:", Note) as db:
        with (
            pytest.raises(AssertionError, match=rf"^1 request instead of {count}:\nPOST Counted.* -> ok"),
            assert_requests(db, count),
        ):
            await db.insert(Note(id="a"))


async def test_an_error_of_the_block() -> None:
    """An error in the block is raised, whatever was sent."""
    async with temporary_database("local::memory:", Note) as db:
        with pytest.raises(ZeroDivisionError), assert_requests(db, 1):
            _ = 1 / 0
