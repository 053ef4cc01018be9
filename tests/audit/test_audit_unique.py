"""
Audits and builds of unique indexes in other partitions: rows that reserve values, and the claims of entities.
"""

import datetime as dt
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tableorm import Damage, Database, Entity, Index, Mapped, field
from tableorm.stores import CLOCK, Row, Verb
from tableorm.testing.contract.base import everything
from tests.audit.foreign import send
from tests.databases import memory_database
from tests.outbox.members import Member, extra_reservations, wrong_reservations
from tests.rows import insert_row

HOUR = dt.timedelta(hours=1)


@pytest.fixture
async def db(stopped_clock: None) -> AsyncIterator[Database]:
    async with memory_database(Member) as db:
        await db.insert(Member(town="Bern", id=1, email="ann@x"))
        await db.insert(Member(town="Bern", id=2))
        await db.insert(Member(town="Rome", id=1, email="bo@x"))
        CLOCK.advance(2 * HOUR)
        yield db


ANN: Row = {"PartitionKey": "Bern", "RowKey": "member_001"}
TAKEN: Row = {"PartitionKey": "email_ann@x", "RowKey": "taken"}
OTHER: Row = {"PartitionKey": "email_zoe@x", "RowKey": "taken", "EntityType": "Member#by_email"}
TOKEN = "x" * 12
NOBODY: Row = {**OTHER, "_of": '["Guild","Bern","member_009"]', "_v": TOKEN}
"""A value that is reserved for an entity that is not there."""


async def test_what_is_right(db: Database) -> None:
    """Each entity with a value and each reservation is looked at, and nothing is found."""
    report = await db.audit(Member)

    assert (report.entities, report.derived_rows, report.found) == (3, 2, 0) and report.clean


DAMAGES: dict[str, tuple[str, Verb, Row, Damage]] = {
    "a reservation has another token": ("GuildEmails", Verb.MERGE, {**TAKEN, "_v": TOKEN}, Damage.STALE),
    "a reservation is that of nobody who holds it": (
        "GuildEmails",
        Verb.MERGE,
        {**TAKEN, "_v": TOKEN, "_of": '["Guild","Bern","member_002"]'},
        Damage.STALE,
    ),
    "a value is reserved for nobody": (
        "GuildEmails",
        Verb.INSERT,
        NOBODY,
        Damage.ORPHAN,
    ),
    "a value is reserved for an entity that has another": (
        "GuildEmails",
        Verb.INSERT,
        {**OTHER, "_of": '["Guild","Bern","member_001"]', "_v": TOKEN},
        Damage.ORPHAN,
    ),
    "an entity was changed by others": ("Guild", Verb.MERGE, {**ANN, "email": "anna@x"}, Damage.MISSING),
    "an entity lost its manifest": ("Guild", Verb.MERGE, {**ANN, "_ix": "{}"}, Damage.MANIFEST),
    "an entity was deleted by others": ("Guild", Verb.DELETE, ANN, Damage.ORPHAN),
    "another row is there": ("GuildEmails", Verb.MERGE, {**TAKEN, "EntityType": "Letter"}, Damage.BLOCKED),
    "a reservation names nobody": ("GuildEmails", Verb.INSERT, {**OTHER, "_of": "member_009"}, Damage.FOREIGN),
}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("what", DAMAGES)
async def test_damage(db: Database, what: str) -> None:
    """It is found, repaired and then gone; what is no reservation of an entity is left to people."""
    table, verb, row, damage = DAMAGES[what]
    await send(db, table, verb, row)
    CLOCK.advance(2 * HOUR)
    found = await db.audit(Member)
    assert damage in {each.damage for each in found.findings} and not found.clean
    assert {each.model for each in found.findings} == {"Member"}

    repaired = await db.audit(Member, repair=True)
    assert repaired.counts.keys() <= found.counts.keys()
    left = await db.audit(Member)

    if damage in (Damage.BLOCKED, Damage.FOREIGN):
        assert left.counts == found.counts
    else:
        assert left.clean and all(each.repaired for each in repaired.findings)
        assert await wrong_reservations(db.store) == []
        assert await extra_reservations(db.store) == set()


async def test_a_value_that_two_entities_have(db: Database) -> None:
    """It is reported, with both entities, and left to people: who reserved it keeps it."""
    await send(db, "Guild", Verb.MERGE, {**ANN, "email": "bo@x"})

    report = await db.audit(Member, repair=True)

    (finding,) = [each for each in report.findings if each.damage is Damage.TAKEN]
    assert (finding.partition_key, finding.row_key, finding.repaired) == ("Bern", "member_001", False)
    assert "('Rome', 'member_001') in table Guild holds its value" in finding.problem
    rows = {row["PartitionKey"]: json.loads(row["_of"]) for row in await everything(db.store, "GuildEmails")}
    assert rows["email_bo@x"] == ["Guild", "Rome", "member_001"]


async def test_a_claim_under_way_is_left_alone(db: Database) -> None:
    """Within an hour a reservation that nobody holds may be that of a write that has still to commit."""
    await send(db, "GuildEmails", Verb.INSERT, NOBODY)

    assert (await db.audit(Member, repair=True)).clean
    assert await extra_reservations(db.store) == {"zoe@x"}


async def test_a_reservation_is_removed_the_safe_way(db: Database) -> None:
    """Before it is deleted, the claim is made void, so that whoever has made it cannot commit any more."""
    await send(db, "GuildEmails", Verb.INSERT, NOBODY)
    CLOCK.advance(2 * HOUR)
    await db.audit(Member)
    rows = [row["RowKey"] for row in await everything(db.store, "Guild")]
    assert f"~o_{TOKEN}" not in rows

    report = await db.audit(Member, repair=True)

    assert [each.damage for each in report.findings] == [Damage.ORPHAN]
    assert (await db.store.get("Guild", "Bern", f"~o_{TOKEN}"))["State"] == "void"
    assert await extra_reservations(db.store) == set()


# Building


class Guest(Entity, table="UniqueGuestList", kind="Guest", partition_key="{hotel}", row_key="guest_{id:03d}"):
    hotel: Mapped[str]
    id: Mapped[int]
    room: Mapped[int | None] = field(default=None)

    by_room = Index(
        table="UniqueRooms", partition_key="rooms", row_key="room_{room:03d}", unique=True, consistency="eventual"
    )


async def test_build_index(db: Database) -> None:
    """Entities that were there before claim their values; a value that two have is reported, and one keeps it."""
    await db.create_tables(Guest)
    for hotel, number in ((hotel, number) for hotel in ("x", "y") for number in range(30)):
        await store_guest(db, hotel, number, number + (100 if hotel == "x" else 129))
    await store_guest(db, "x", 77, None)

    report = await db.build_index(Guest.by_room)

    assert (report.entities, report.written) == (61, 59)
    assert len(report.failures) == 1 and ": taken: " in report.failures[0]
    rooms = await everything(db.store, "UniqueRooms")
    assert sorted(row["RowKey"] for row in rooms) == [f"room_{number}" for number in range(100, 159)]
    found: Any = await db.get(Guest.by_room, room=100)
    assert (found.hotel, found.id) == ("x", 0)
    again = await db.build_index(Guest.by_room)
    assert again.written == 0


async def store_guest(db: Database, hotel: str, number: int, room: int | None) -> None:
    """Write a guest as the program without the index does."""
    row: Row = {"PartitionKey": hotel, "RowKey": f"guest_{number:03d}", "EntityType": "Guest"}
    row |= {} if room is None else {"room": room}
    await insert_row(db, "UniqueGuestList", row)
