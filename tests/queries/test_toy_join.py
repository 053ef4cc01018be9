"""
A way to join queries that the program knows nothing of, written here alone: boxes in the order in which they are given.

It has the parts and their explanation; all that queries can do with parts is written elsewhere, once.
"""

from typing import Any

import attrs
import pytest

from tableorm import CursorError, Database, Entity, Explanation, Mapped
from tableorm.queries.explain import explain_together
from tableorm.queries.select import Select
from tests.databases import database_fixture

ORDER = ["c", "a", "d"]


class Item(Entity, table="ToyItems", partition_key="{box}", row_key="item_{id:03d}"):
    box: Mapped[str]
    id: Mapped[int]


class InOrder(Select[Item]):
    def _of(self, box: str) -> Select[Item]:
        return attrs.evolve(self._as(Select[Item]), where=(*self._where, Item.box == box), part=box)

    async def _parts(self, cursor: str | None) -> tuple[list[Any], str | None]:
        box, _, inner = (cursor or f"{ORDER[0]}.").partition(".")
        if box not in ORDER:
            raise CursorError(f"there is no box {box!r}")
        return [self._of(each) for each in ORDER[ORDER.index(box) :]], inner or None

    def explain(self) -> Explanation:
        found = [self._of(box).explain() for box in ORDER]
        return explain_together(found[0], found)


db = database_fixture(Item)


async def test_it_can_do_what_every_query_can(db: Database) -> None:
    """Read, count, limit, page by page, explain, be one of several, and delete; cursors say in which part they are."""
    async with db.bulk() as bulk:
        for number in range(40):
            await bulk.insert(Item(box="abcd"[number % 4], id=number))
    query = db.select(Item)._as(InOrder)  # pyright: ignore[reportPrivateUsage]
    expected = [number for box in ORDER for number in range("abcd".index(box), 40, 4)]

    assert [each.id for each in await query.all()] == expected
    assert [each.id for each in await query.where(Item.id >= 20).limit(7).all()] == [22, 26, 30, 34, 38, 20, 24]
    assert (await query.count(), len(query.explain().requests)) == (30, 3)
    pages, cursor = list[list[int]](), None
    while not pages or cursor is not None:
        page = await query.page(4, cursor)
        pages, cursor = [*pages, [each.id for each in page.items]], page.cursor
    assert ([each for page in pages for each in page], len(pages)) == (expected, 8)
    both = await db.union(query.limit(2), db.select(Item).where(Item.box == "b").limit(1)).all()
    assert [each.id for each in both] == [2, 6, 1]
    assert (await query.where(Item.id < 8).delete()).written == 6
    with pytest.raises(CursorError, match="no box 'b'"):
        await query.page(4, "b.x")
