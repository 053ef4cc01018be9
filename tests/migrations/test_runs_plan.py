"""
The ranges of shared runs: each holds rows, wherever keys are, and together they are all keys.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tableorm import Database, Entity, Mapped, ModelError, connect
from tableorm.connection.connection import connection_of
from tableorm.jobs import plan as module
from tableorm.jobs.plan import MOST_RANGES, plan_ranges
from tableorm.models.entity import schema_of
from tableorm.models.schema import Schema
from tableorm.stores import Bounds, StoreRequest
from tableorm.stores.intervals import overlaps
from tableorm_migrations import rewrite
from tests.database.between import Between
from tests.databases import memory_database


class Place(Entity, table="RunPlaces", partition_key="{name}", row_key="place"):
    name: Mapped[str]


class Numbered(Entity, table="RunNumbers", partition_key="n{number:010d}", row_key="number"):
    number: Mapped[int]


async def plan(names: Sequence[str], *, build: bool = False) -> tuple[list[Bounds], int]:
    """Return the ranges for some partitions, and how many of them hold one."""
    async with memory_database(Place) as db:
        for name in names:
            await db.insert(Place(name=name))
        tables = [("RunPlaces", [schema_of(Place)])]
        ranges = await plan_ranges(connection_of(db), "test", tables, build=build, many=True)
        bounds = [each.partitions for each in ranges]
    keys = [Place.key(name=name).partition_key for name in names]
    return bounds, sum(any(overlaps(each, Bounds.only(key)) for key in keys) for each in bounds)


@given(st.lists(st.text(min_size=1, max_size=12), unique=True, max_size=12))
async def test_together_they_are_all_keys(names: list[str]) -> None:
    """Each begins where the one before it ends, so rows that come later are in one of them."""
    bounds, _ = await plan(names)

    assert (bounds[0].lower, bounds[-1].upper) == (None, None)
    assert [each.lower for each in bounds[1:]] == [each.upper for each in bounds[:-1]]
    assert all(each.upper_open and not each.lower_open for each in bounds[:-1])
    assert len(bounds) <= MOST_RANGES


@pytest.mark.parametrize("schemas", [[schema_of(Numbered)], []], ids=["model", "rows of any form"])
async def test_a_large_table_is_not_read_to_be_divided(monkeypatch: pytest.MonkeyPatch, schemas: list[Schema]) -> None:
    """Where there are more keys than some pages, ranges are equal shares of the keys, even if no model is known."""
    monkeypatch.setattr(module, "SMALL_PAGES", 2)
    monkeypatch.setattr(module, "MAX_PAGE", 10)
    async with memory_database(Numbered) as db:
        for number in range(0, 5000, 100):
            await db.insert(Numbered(number=number))
        ranges = await plan_ranges(connection_of(db), "test", [("RunNumbers", schemas)])

    assert len(ranges) >= 24


async def test_too_many_tables() -> None:
    """One run has no more ranges than one transaction has room for."""
    async with connect("local::memory:") as db:
        with pytest.raises(ModelError, match=r"97 tables.*at most 96 ranges"):
            await plan_ranges(connection_of(db), "test", [(f"T{number}", []) for number in range(97)])


class Sized(Between):
    """Notes how many rows each query of places asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def send(self, request: StoreRequest) -> Any:
        if request.method == "query" and request.table == "RunPlaces":
            query, size, _ = request.arguments
            self.sizes += [size] if query.where is not None else []
        return await super().send(request)


@pytest.mark.parametrize(("rate", "size"), [(None, 1000), (5000, 100), (40, 40), (0.5, 1)])
async def test_a_rate_makes_pages_smaller(rate: float | None, size: int) -> None:
    """No more rows are read at once than may be read in a second."""
    store = Sized()
    async with Database(store) as db:
        await db.create_tables(Place)
        await db.insert(Place(name="a"))

        await rewrite(db, Place, rate=rate)

    assert set(store.sizes) == {size}
