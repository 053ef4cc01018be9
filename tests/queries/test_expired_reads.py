"""
Reads pass over entities that have expired, by whatever way they find them.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

import pytest

from tableorm import Database, Entity, EntityNotFound, Index, IndexList, Mapped, PropertyBag, field, upgrade, utc_now
from tableorm.testing import assert_requests
from tests.database.between import Recorded
from tests.databases import memory_database
from tests.queries.test_sweep import HOUR, Expiring
from tests.rows import insert_row

pytestmark = pytest.mark.usefixtures("stopped_clock")


class Session(Expiring, table="ReadSessions", partition_key="{user}", row_key="session_{id:03d}"):
    user: Mapped[str]
    place: Mapped[str] = field(default="x")
    size: Mapped[int] = field(default=0)
    note: Mapped[str] = field(default="")

    whole = Index(row_key="whole_{place}_{id:03d}")
    some = Index(row_key="some_{place}_{id:03d}", include=["size"])
    keys = Index(row_key="keys_{place}_{id:03d}", include="keys")
    eventual = Index(
        partition_key="at_{place}", row_key="far_{user}_{id:03d}", consistency="eventual", include=["size"]
    )
    listed = IndexList(row_key="list_{place}")


class Other(Entity, table="ReadSessions", partition_key="{user}", row_key="other_{id:03d}"):
    user: Mapped[str]
    id: Mapped[int]


LIVE = [1, 4, 5]


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    """Sessions of one user: without an end, some that have ended, the third at this moment, and some that have not."""
    async with memory_database(Session) as db:
        now = utc_now()
        for number, ends in enumerate([now - 2 * HOUR, None, now - HOUR, now, now + HOUR, now + 2 * HOUR]):
            await db.insert(Session(user="ann", id=number, expires=ends))
        async with db.worker(Session) as worker:
            await worker.drain()
        yield db


def ids(found: Iterable[Session | None]) -> list[int]:
    return [each.id for each in found if each is not None]


NUMBERS = range(6)


@pytest.mark.parametrize("name", ["whole", "some", "keys", "eventual"])
async def test_an_index_passes_over_expired_entities(db: Database, name: str) -> None:
    """By each way to read by it: an entity has expired from the moment that its field names, and None never comes."""
    index = getattr(Session, name)
    keys = {number: {"user": "ann", "place": "x", "id": number} for number in NUMBERS}
    query = db.select(index).where(Session.user == "ann", Session.place == "x")

    assert ids([await db.get_or_none(index, **each) for each in keys.values()]) == LIVE
    assert [number for number, each in keys.items() if await db.exists(index, **each)] == LIVE
    assert ids(await query.all()) == ids(await query.only(Session.size).all()) == LIVE
    assert await query.count() == len(LIVE)


async def test_reads_by_key_pass_over_expired_entities(db: Database) -> None:
    """One by one, together, in a transaction, and in queries of several models or of some fields."""
    await db.insert(Other(user="ann", id=9))
    first, *others = await db.select(Session, Other).where(Session.user == "ann").all()
    found: list[int] = []
    async with db.transaction() as tx:
        for number in NUMBERS:
            with suppress(EntityNotFound):
                found.append((await tx.get(Session, user="ann", id=number)).id)

    assert found == [number for number in NUMBERS if await db.exists(Session, user="ann", id=number)] == LIVE
    assert ids(await db.get_many([Session.key(user="ann", id=number) for number in NUMBERS])) == LIVE
    assert (type(first), [each.id for each in others]) == (Other, LIVE)
    assert ids(await db.select(Session).where(Session.user == "ann").only(Session.note).all()) == LIVE


async def test_entries_alone(db: Database) -> None:
    """Entries of an eventual index that are read without their entities tell the time too."""
    query = db.select(Session.eventual).where(Session.place == "x").verify(False)

    assert ids(await query.all()) == LIVE
    assert await query.count() == 3


async def test_bags_see_the_row(db: Database) -> None:
    """A bag is a row, and says nothing of entities: it is there until it is deleted."""
    assert await db.get(PropertyBag.key("ReadSessions", "ann", "session_000"))
    raw = db.select_raw("ReadSessions").where("PartitionKey eq 'ann' and EntityType eq 'Session'")

    assert len(await raw.all()) == await raw.count() == 6


async def test_projections_bring_the_field(db: Database) -> None:
    """The field is asked for and loaded, whatever else is wanted."""
    with assert_requests(db, 1) as seen:
        found = await db.select(Session).where(Session.user == "ann", Session.id == 4).only(Session.note).all()

    assert found[0].expires == utc_now() + HOUR
    request = seen.requests[0]
    assert "expires" in (request.select or ())


async def test_few_requests() -> None:
    """A limit asks for full pages as soon as rows were dropped, so that a thousand of them are two requests."""
    backend = Recorded()
    async with Database(backend) as db:
        await db.create_tables(Short)
        async with db.bulk() as bulk:
            for number in range(900):
                await bulk.insert(Short(id=number, expires=utc_now()))
            await bulk.insert(Short(id=900))
        backend.asked.clear()

        first = await db.select(Short).first()

    assert first is not None and first.id == 900
    assert len(backend.asked) == 2


class Short(Expiring, table="ReadShorts", partition_key="p", row_key="{id:06d}"): ...


class Visit(Expiring, table="ReadVisits", partition_key="p", row_key="{id:03d}", version=2):
    note: Mapped[str] = field(default="")


@upgrade(Visit, from_version=1)
def _rename(bag: PropertyBag) -> PropertyBag:
    bag["expires"] = bag.pop("ends", None)
    return bag


async def test_rows_of_older_versions() -> None:
    """A row of an older version has expired if the entity has that it is upgraded to."""
    async with memory_database(Visit) as db:
        for number, hours in enumerate([-1, 1]):
            ends = f"{utc_now() + hours * HOUR:%Y-%m-%dT%H:%M:%SZ}"
            row = {"PartitionKey": "p", "RowKey": f"{number:03d}", "EntityType": "Visit"}
            row |= {"ends": ends, "ends@odata.type": "Edm.DateTime"}
            await insert_row(db, "ReadVisits", row)
        query = db.select(Visit)

        assert [each.id for each in await query.all()] == [1]
        assert [each.id for each in await query.only(Visit.note).all()] == [1]
        assert await query.count() == 1
        assert [await db.exists(Visit, id=number) for number in range(2)] == [False, True]
        assert (await query.delete()).written == 1
        assert [each.row_key for each in await db.select_raw("ReadVisits").allow_scan().all()] == ["000"]
