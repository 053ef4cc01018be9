"""
A manifest of many levels: a client that may write one row stops nobody else's writes, and no audit.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from tableorm import Database, TableOrmError, connect
from tableorm.stores import Operation, Verb
from tests.security.test_manifests import MEMBER, Member

LEVELS = 15_000


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with connect("local::memory:") as db:
        await db.create_tables(Member)
        await db.insert(Member(country="SE", tenant="other", id=1, mail="other@x"))
        row = {"PartitionKey": "SE", "RowKey": "member_acme_9", "EntityType": "Member", "name": "planted"}
        manifest = '{"gone":' + "[" * LEVELS + "]" * LEVELS + "}"
        await db.store.write("Manifests", Operation(Verb.INSERT, {**row, "_ix": manifest}))
        yield db


async def delete(db: Database) -> None:
    await db.delete(Member, **MEMBER, if_match="*")


async def save(db: Database) -> None:
    entity = await db.get(Member, **MEMBER)
    entity.name = "changed"
    await db.save(entity)


async def upsert(db: Database) -> None:
    await db.upsert(Member(**MEMBER, name="changed"))


async def look_up(db: Database) -> None:
    await db.exists(Member.by_mail, country="SE", mail="other@x")
    await db.select(Member).where(Member.country == "SE").all()


@pytest.mark.parametrize("write", [delete, save, upsert, look_up], ids=lambda each: each.__name__)
async def test_a_write_is_refused_as_by_any_damage(db: Database, write: Callable[[Database], Awaitable[None]]) -> None:
    """A write of the row fails with an error of this package, or not at all."""
    with suppress(TableOrmError):
        await write(db)


async def test_an_audit_goes_on(db: Database) -> None:
    """An audit reports the manifest, checks all other rows, and repairs it."""
    report = await db.audit(Member, repair=True)
    assert report.found
    assert report.entities == 2
    await delete(db)


async def test_bulk_goes_on(db: Database) -> None:
    """In bulk, and in a query that deletes, the one row fails, and all others are written."""
    async with db.bulk(errors="report") as bulk:
        for number in range(2, 6):
            await bulk.upsert(Member(country="SE", tenant="other", id=number))
        await bulk.upsert(Member(**MEMBER, name="changed"))
    assert (bulk.report.written, len(bulk.report.failed)) == (4, 1)
    report = await db.select(Member).where(Member.country == "SE").delete()
    assert (report.written, len(report.failed)) == (5, 1)
