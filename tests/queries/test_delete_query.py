"""
Deleting what a query finds: in transactions, with a report, and nothing that it does not find any more.
"""

import asyncio

import pytest

from tableorm import (
    BulkReport,
    Database,
    DecodeError,
    EncodeError,
    Entity,
    EntityNotFound,
    Mapped,
    PreconditionFailed,
    PropertyBag,
    ScanRefused,
)
from tableorm.connection.connection import connection_of


class Item(Entity, table="Items", partition_key="{group}", row_key="item_{number:04d}"):
    group: Mapped[str]
    number: Mapped[int]
    old: Mapped[bool]


class Note(Entity, table="Items", partition_key="{group}", row_key="item_{number:04d}_note"):
    group: Mapped[str]
    number: Mapped[int]


@pytest.fixture
async def items(db: Database) -> Database:
    await db.create_tables(Item)
    async with db.bulk() as bulk:
        for group in ("a", "b", "c"):
            for number in range(250):
                await bulk.insert(Item(group=group, number=number, old=number % 2 == 0))
            await bulk.insert(Note(group=group, number=7))
    return db


async def left(db: Database) -> int:
    return await db.select(Item).allow_scan().count()


async def test_what_is_found_is_deleted_in_transactions(items: Database) -> None:
    """Rows of other kinds, and those that do not satisfy the conditions, stay."""
    report = await items.select(Item).where(Item.group.in_(["a", "b"]), Item.old == True).delete()  # noqa: E712

    assert (report.written, report.failures) == (250, 0)
    assert report.requests <= 8
    assert await left(items) == 500 and await items.select(Note).allow_scan().count() == 3


async def test_a_row_that_changed_stays(items: Database) -> None:
    """It may satisfy the conditions no more: it is reported, and all others are deleted. With "*" it goes too."""
    query = items.select(Item).where(Item.group == "a", Item.number < 150)
    seen: list[BulkReport] = []
    real = items.store.query

    async def change_behind(*args: object) -> object:
        page = await real(*args)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        if page.rows:
            await items.modify(Item.key(group="a", number=3), touch)
            await items.delete(Item.key(group="a", number=5), if_match="*", missing_ok=True)
        return page

    setattr(connection_of(items).backend.tables, "query", change_behind)  # noqa: B010
    report = await query.delete(on_progress=seen.append)
    setattr(connection_of(items).backend.tables, "query", real)  # noqa: B010

    errors = {type(failure.error) for failure in report.failed}
    assert (report.written, report.failures, errors) == (148, 2, {PreconditionFailed, EntityNotFound})
    assert seen and seen[-1].written == 148
    assert [item.number for item in await query.all()] == [3]
    assert (await query.delete(if_match="*")).written == 1


def touch(item: Item) -> None:
    item.old = not item.old


async def test_rows_of_every_kind_go_as_bags(items: Database) -> None:
    """A query for bags deletes whatever is there."""
    report = await items.select(Item, PropertyBag).where(Item.group == "a").delete()

    assert report.written == 251
    assert await items.select_raw("Items").where("PartitionKey eq 'a'").count() == 0


async def test_nothing_found_is_no_request(items: Database) -> None:
    """The report is empty; a scan has to be asked for, and an ETag of one row is none of all."""
    report = await items.select(Item).where(Item.group == "nobody").delete()

    assert (report.written, report.failures, report.requests) == (0, 0, 0)
    with pytest.raises(ScanRefused):
        await items.select(Item).delete()
    with pytest.raises(EncodeError, match=r"delete of select\(Item\)\.if_match: 'W/1'"):
        await items.select(Item).where(Item.group == "a").delete(if_match="W/1")
    assert await left(items) == 750


async def test_deletion_can_be_cancelled(items: Database) -> None:
    """Between transactions; what was deleted is gone, and nothing runs on."""
    started = asyncio.Event()

    def progress(report: BulkReport) -> None:
        started.set()

    task = asyncio.create_task(items.select(Item).allow_scan().delete(concurrency=1, rate=200, on_progress=progress))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert 0 < await left(items) < 750
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Parcel(Entity, table="ContradictingParcels", partition_key="{country}_{tenant}", row_key="{tenant}_{id:03d}"):
    country: Mapped[str]
    tenant: Mapped[str]
    id: Mapped[int]


@pytest.mark.parametrize(
    ("row_key", "words"), [("acme_007", "and row_key 'acme_007' tenant='acme'"), ("x", "'x' does not match")]
)
@pytest.mark.parametrize("if_match", [None, "*"])
async def test_rows_stay_whose_keys_are_not_those_of_the_model(
    db: Database, row_key: str, words: str, if_match: str | None
) -> None:
    """Whatever their kind says: conditions are about keys, and a query that loads such a row raises an error."""
    await db.create_tables(Parcel)
    await db.insert(Parcel(country="no", tenant="other", id=1))
    await db.insert(PropertyBag("ContradictingParcels", "no_other", row_key, {"EntityType": "Parcel"}))
    query = db.select(Parcel).where(Parcel.country == "no").allow_scan()
    with pytest.raises(DecodeError):
        await query.all()

    report = await query.delete(if_match=if_match)

    assert (report.written, report.failures) == (1, 1)
    assert words in str(report.failed[0].error)
    assert await db.exists(PropertyBag.key("ContradictingParcels", "no_other", row_key))
