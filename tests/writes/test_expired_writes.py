"""
Writes under the key of an entity that has expired: an insert takes the place of its row, other writes see the row.
"""

import datetime as dt
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tableorm import (
    Count,
    Database,
    EncodeError,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    IndexList,
    Mapped,
    PropertyBag,
    TransactionFailed,
    UniqueViolation,
    field,
    upgrade,
    utc_now,
)
from tableorm.stores import CLOCK
from tableorm.testing import assert_requests
from tests.database.between import Meanwhile
from tests.databases import database_fixture, memory_database
from tests.faults import FaultyBackend

pytestmark = pytest.mark.usefixtures("stopped_clock")

HOUR = dt.timedelta(hours=1)


class Passing(Entity, abstract=True):
    id: Mapped[int]
    expires: Mapped[dt.datetime | None] = field(default=None, expiry=True)


class Plain(Passing, table="LivesPlain", partition_key="p", row_key="{id:03d}"):
    note: Mapped[str | None] = field(default=None)


PLAIN = Plain.key(id=1)


class Booking(Passing, table="Lives", partition_key="{room}", row_key="booking_{id:03d}"):
    room: Mapped[str]
    guest: Mapped[str]
    email: Mapped[str | None] = field(default=None)
    phone: Mapped[str | None] = field(default=None)
    notes: Mapped[int] = field(default=0, maintained=True)

    by_guest = Index(row_key="guest_{guest}_{id:03d}")
    by_email = Index(row_key="email_{email}", unique=True)
    by_phone = Index(partition_key="phones", row_key="phone_{phone}", consistency="eventual", unique=True)
    of_guest = IndexList(row_key="list_{guest}")
    counted = Count(lambda: Room.bookings, create=True, room="{room}")


class Room(Entity, table="Lives", partition_key="{room}", row_key="room"):
    room: Mapped[str]
    bookings: Mapped[int] = field(default=0, maintained=True)


class Note(Entity, table="Lives", partition_key="{room}", row_key="note_{id:03d}"):
    room: Mapped[str]
    booking: Mapped[int]
    id: Mapped[int]

    counted = Count(lambda: Booking.notes, room="{room}", id="{booking}")


db = database_fixture(Plain, Booking, Room, Note)


async def insert_expired(db: Database, *numbers: int) -> None:
    """Insert plain entities that have expired, each with an unknown property."""
    for number in numbers:
        old = Plain(id=number, note="old", expires=utc_now())
        old.extra["left"] = "over"
        await db.insert(old)


async def test_an_insert_replaces_the_row(db: Database) -> None:
    """Nothing is left of the old entity. It takes two requests more; an insert where there is no row takes none."""
    await insert_expired(db, 1)
    new = Plain(id=1)

    with assert_requests(db, 3) as seen:
        await db.insert(new)
    with assert_requests(db, 1):
        await db.insert(Plain(id=2))

    assert [request.operation for request in seen.requests] == ["insert", "get", "replace"]
    found = await db.get(PLAIN)
    assert (found, dict(found.extra), found.etag) == (new, {}, new.etag)


@pytest.mark.parametrize("taken", [{"email": "a@x"}, {"phone": "1"}])
async def test_a_unique_value_is_free_when_it_is_swept(db: Database, taken: dict[str, Any]) -> None:
    """An entity that has expired keeps its unique values from others until it is deleted."""
    await db.insert(Booking(room="A", id=1, guest="ann", expires=utc_now(), **taken))

    with pytest.raises(UniqueViolation, match=r"it has expired, (and|it) keeps the value until db.sweep\(\) del"):
        await db.insert(Booking(room="A", id=2, guest="bo", **taken))
    await db.sweep(Booking)

    await db.insert(Booking(room="A", id=2, guest="bo", **taken))
    assert (await db.audit(Booking)).clean


async def test_transactions(db: Database) -> None:
    """Each insert of a transaction replaces its row or is an insert; a row that lives fails all of it."""
    await insert_expired(db, 1, 2)
    await db.insert(Plain(id=9, expires=utc_now() + HOUR))
    first = Plain(id=1)
    async with db.transaction() as tx:
        tx.insert(first)
        first.note = "later"
        tx.save(first)
        tx.insert(Plain(id=2))
        tx.insert(Plain(id=3))
    found = await db.select(Plain).all()
    assert [(each.id, each.note, dict(each.extra)) for each in found[:3]] == [
        (1, "later", {}),
        (2, None, {}),
        (3, None, {}),
    ]

    await insert_expired(db, 4)
    with pytest.raises(TransactionFailed) as failed:
        async with db.transaction() as tx:
            tx.insert(Plain(id=4))
            tx.insert(Plain(id=9))
    assert failed.value.index == 1 and isinstance(failed.value.__cause__, EntityExists)
    assert await db.get_or_none(Plain, id=4) is None


async def test_a_save_beside_an_insert_over_an_expired_row(db: Database) -> None:
    """Only inserts replace rows: who prolongs another life in the same transaction changes that field alone."""
    await insert_expired(db, 1)
    await db.insert(Plain(id=2, note="mine", expires=utc_now() + HOUR))
    bag = await db.get(PropertyBag.key("LivesPlain", "p", "002"))
    bag["More"] = 7
    await db.save(bag)
    kept = await db.get(Plain, id=2)
    CLOCK.advance(2 * HOUR)
    async with db.transaction() as tx:
        tx.insert(Plain(id=1))
        kept.expires = utc_now() + HOUR
        tx.save(kept)

    found = await db.get(Plain, id=2)
    assert (found.note, dict(found.extra)) == ("mine", {"More": 7})
    assert (await db.get(PLAIN)).note is None


async def by_get_or_insert(db: Database, new: Plain) -> None:
    assert await db.get_or_insert(new) == (new, True)


async def by_modify_in_a_transaction(db: Database, new: Plain) -> None:
    async with db.transaction() as tx:
        await tx.modify(Plain, lambda _: None, create=new, id=new.id)


async def by_move(db: Database, new: Plain) -> None:
    other = Plain(id=900, note=new.note)
    await db.insert(other)
    await db.move(other, id=new.id)


async def by_deleting_first(db: Database, new: Plain) -> None:
    await db.delete(Plain, id=new.id, if_match="*")
    await db.insert(new)


WAYS: dict[str, Callable[[Database, Plain], Awaitable[object]]] = {
    "get_or_insert": by_get_or_insert,
    "modify": lambda db, new: db.modify(Plain, lambda _: None, create=new, id=new.id),
    "tx.modify": by_modify_in_a_transaction,
    "move": by_move,
    "upsert": lambda db, new: db.upsert(new, "replace"),
    "delete": by_deleting_first,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_other_ways(db: Database, way: Callable[[Database, Plain], Awaitable[object]]) -> None:
    """Whatever inserts where a reader sees nothing makes a new entity."""
    await insert_expired(db, 1)

    await way(db, Plain(id=1, note="new"))

    found = await db.get(PLAIN)
    assert (found.note, found.expires, dict(found.extra)) == ("new", None, {})


async def test_an_upsert_that_merges(db: Database) -> None:
    """It merges into the row whatever that is, so that it must say until when the entity lives."""
    await insert_expired(db, 1)

    with pytest.raises(EncodeError, match=r"Plain.expires.*for never.*mode='replace'") as raised:
        await db.upsert(Plain(id=1))
    assert raised.value.misuse
    await db.upsert(Plain(id=1, expires=utc_now() + HOUR))

    found = await db.get(PLAIN)
    assert (found.note, dict(found.extra)) == ("old", {"left": "over"})


async def test_a_life_that_is_prolonged_meanwhile_wins() -> None:
    """The row is replaced under the ETag that it was read with."""
    backend = Meanwhile()
    async with Database(backend) as db:
        await db.create_tables(Plain)
        old = Plain(id=1, expires=utc_now())
        await db.insert(old)
        old.expires = utc_now() + HOUR
        backend.others = lambda: db.save(old)

        with pytest.raises(EntityExists):
            await db.insert(Plain(id=1))

        assert await db.get(PLAIN) == old


async def test_a_row_that_is_swept_meanwhile() -> None:
    """Then the insert is one again; and once more if somebody else's insert has expired at once."""
    backend = Meanwhile()
    async with Database(backend) as db:
        await db.create_tables(Plain)
        await insert_expired(db, 1)
        backend.others = lambda: db.sweep(Plain)
        await db.insert(Plain(id=1, note="first", expires=utc_now()))

        async def replace() -> None:
            await db.delete(PLAIN, if_match="*")
            await insert_expired(db, 1)

        backend.others = replace
        await db.insert(Plain(id=1, note="second"))

        assert (await db.get(PLAIN)).note == "second"


class Visit(Passing, table="LivesVisits", partition_key="p", row_key="{id:03d}", version=2):
    note: Mapped[str] = field(default="")

    by_note = Index(row_key="note_{note}_{id:03d}")


@upgrade(Visit, from_version=1)
def _rename(bag: PropertyBag) -> PropertyBag:
    bag["expires"] = bag.pop("ends", None)
    return bag


class FirstVisit(Entity, table="LivesVisits", kind="Visit", partition_key="p", row_key="{id:03d}"):
    id: Mapped[int]
    note: Mapped[str] = field(default="")
    ends: Mapped[dt.datetime | None] = field(default=None)

    by_note = Index(row_key="note_{note}_{id:03d}")


async def test_a_row_of_an_older_version() -> None:
    """It is replaced, with its index entries, if what it is upgraded to has expired."""
    backend = FaultyBackend()
    async with Database(backend) as db, Database(backend) as older:
        await older.create_tables(FirstVisit)
        await older.insert(FirstVisit(id=1, note="old", ends=utc_now()))

        await db.insert(Visit(id=1, note="new"))

        assert (await db.get(Visit, id=1)).note == "new"
        assert (await db.audit(Visit)).clean


class Place(Passing, table="LivesPlaces", partition_key="{town}", row_key="place_{id:03d}", tracked=True):
    town: Mapped[str]


async def test_moves_to_another_partition() -> None:
    """An entity that has expired is not moved, and a row at the new key stays until it is swept."""
    async with memory_database(Place) as db:
        here, there = Place(town="A", id=1), Place(town="B", id=1, expires=utc_now())
        await db.insert(here)
        await db.insert(there)

        with pytest.raises(EntityExists):
            await db.move(here, town="B")
        with pytest.raises(EntityNotFound, match="the entity has expired, and is not moved"):
            await db.move(there, town="C")
        await db.sweep(Place)
        await db.move(here, town="B")

        assert await db.get(Place, town="B", id=1) == here
