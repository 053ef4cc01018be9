"""
What a bulk reads: each stored row once, also where its operations do not fit into one transaction; and again if the
store refuses for now.
"""

from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from tableorm import Bulk, Count, Database, Entity, Index, Mapped, RetryPolicy, connect, field
from tableorm.testing import Faults


class Box(Entity, table="BoxesInChunks", partition_key="{store}", row_key="box"):
    store: Mapped[str]
    label: Mapped[str] = field(default="")
    parcels: Mapped[int] = field(default=0, maintained=True)
    by_label = Index(row_key="label_{label}", unique=True)


class Parcel(Entity, table="BoxesInChunks", partition_key="{store}", row_key="parcel_{id:04d}"):
    store: Mapped[str]
    id: Mapped[int]
    state: Mapped[str]
    by_state = Index(row_key="state_{state}_{id:04d}")
    counted = Count(lambda: Box.parcels, store="{store}", where=lambda parcel: parcel.state == "open")


def parcels(count: int, state: str) -> list[Parcel]:
    return [Parcel(store="a", id=number, state=state) for number in range(count)]


async def fill(db: Database, count: int) -> None:
    await db.create_tables(Parcel, Box)
    await db.insert(Box(store="a"))
    async with db.bulk() as bulk:
        for parcel in parcels(count, "open"):
            await bulk.insert(parcel)


async def assert_closed(db: Database, count: int) -> None:
    assert await db.select(Parcel.by_state).where(Parcel.store == "a", Parcel.state == "closed").count() == count
    assert (await db.get(Box, store="a")).parcels == 0
    assert (await db.audit(Parcel, Box)).clean


Write = Callable[[Bulk, Parcel], Awaitable[None]]
WRITES: dict[str, Write] = {
    "upsert": lambda bulk, each: bulk.upsert(Parcel(store="a", id=each.id, state="closed")),
    "save": lambda bulk, each: bulk.save(each),
    "delete": lambda bulk, each: bulk.delete(each.key, if_match="*"),
}


async def write_all(db: Database, count: int, write: Write) -> None:
    async with db.bulk(errors="report") as bulk:
        for parcel in await db.select(Parcel.by_state).where(Parcel.store == "a", Parcel.state == "open").all():
            parcel.state = "closed"
            await write(bulk, parcel)
    assert (bulk.report.written, bulk.report.failures) == (count, 0)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("count", [33, 34, 90])
async def test_each_row_is_read_once(write: str, count: int) -> None:
    """A chunk that is too large for a transaction is sent in parts, with the rows that were read for it."""
    async with connect("local::memory:") as db:
        await fill(db, count)
        with db.observe() as seen:
            await write_all(db, count, WRITES[write])

        sent = Counter(each.operation for each in seen.requests)
        # Each transaction reads the row of the count besides, also one that is then found too large.
        assert count <= sent["get"] <= count + 2 * sent["transaction"]


async def test_a_part_may_change_rows_that_were_read_for_the_next() -> None:
    """The count is in a row that the second part writes, as it was found by an index: that is no write of others."""
    async with connect("local::memory:") as db:
        await fill(db, 40)
        box = await db.get(Box.by_label, store="a", label="")
        box.label = "red"
        async with db.bulk(errors="report") as bulk:
            for parcel in parcels(40, "closed"):
                await bulk.upsert(parcel)
            await bulk.save(box)

        assert (bulk.report.written, bulk.report.failures) == (41, 0)
        assert (await db.get(Box, store="a")).label == "red"
        await assert_closed(db, 40)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("operation", ["get", "transaction"])
@pytest.mark.parametrize("write", ["upsert", "save"])
async def test_a_bulk_repeats_what_the_store_refuses_for_now(write: str, operation: str, times: int) -> None:
    """Whether it refuses to read the row of an entity or of a count, or to write: nothing fails."""
    async with connect("local::memory:", retry=RetryPolicy(base=0)) as db:
        await fill(db, 20)
        with Faults(db).fail_next(operation, with_="ServerBusy", times=times):
            await write_all(db, 20, WRITES[write])

        await assert_closed(db, 20)
