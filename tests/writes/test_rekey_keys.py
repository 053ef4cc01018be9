"""
Keys of re-keyed models: several older ones for a newer one and the other way round, kinds told by keys, many rows.
"""

import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tableorm import (
    Conflict,
    Database,
    EncodeError,
    Entity,
    EntityExists,
    Mapped,
    ModelError,
    MovedFrom,
    Transaction,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.models.marker_rows import MoveMark, MoveState
from tableorm.models.reserved import MOVE
from tableorm.rekey.phases import RekeyPhase
from tableorm.rekey.rollback import roll_back_window
from tableorm.rekey.window import move_window
from tableorm.stores import RowAddress, Verb
from tests.faults import FaultyStore
from tests.rekeys import kinds_of, move, rekeying_of, roll_back, rows_of, set_phase
from tests.rows import insert_row, replace_row
from tests.unfinished_moves import database_on


class Note(Entity, table="RekeyedNotes", tracked=True, partition_key="{owner}", row_key="{id}"):
    owner: Mapped[str] = field(default="ann")
    id: Mapped[int] = field(default=1)


def keys_of_note(id: int) -> list[dict[str, Any]]:  # noqa: A002
    if id == 404:
        raise LookupError("no such note")
    return [{"owner": owner, "id": id} for owner in ("ann", "ben")]


class NewNote(
    Entity,
    table="RekeyedNewNotes",
    partition_key="notes",
    row_key="{id}",
    moved_from=MovedFrom(Note, old_keys=keys_of_note),
):
    owner: Mapped[str]
    id: Mapped[int]


class Ticket(Entity, table="RekeyedTickets", tracked=True, partition_key="{shop}", row_key="{number:03d}"):
    shop: Mapped[str]
    number: Mapped[int]
    customer: Mapped[str]


def keys_of_ticket(customer: str, number: int) -> list[dict[str, Any]]:
    return [{"shop": shop, "number": number} for shop in ("north", "south")]


class NewTicket(
    Entity,
    table="RekeyedNewTickets",
    partition_key="{customer}",
    row_key="{number:03d}",
    moved_from=MovedFrom(Ticket, old_keys=keys_of_ticket),
):
    customer: Mapped[str]
    number: Mapped[int]
    shop: Mapped[str]


NEW_TICKET = NewTicket.key(customer="ann", number=1)


class Plane(Entity, table="RekeyedPlanes", tracked=True, partition_key="{day}", row_key="{flight}"):
    day: Mapped[str]
    flight: Mapped[str]
    tail: Mapped[str]


def keys_of_plane(day: str, flight: str, tail: str) -> list[dict[str, Any]]:
    return [{"day": day, "flight": flight}]


class NewPlane(
    Entity,
    table="RekeyedNewPlanes",
    partition_key="{tail}",
    row_key="{day}_{flight}",
    moved_from=MovedFrom(Plane, old_keys=keys_of_plane),
):
    day: Mapped[str]
    flight: Mapped[str]
    tail: Mapped[str]


class Staying(Entity, abstract=True):
    guest: Mapped[str]
    day: Mapped[dt.date]
    nights: Mapped[int] = field(default=1)


class Stay(Staying, table="RekeyedStays", tracked=True, partition_key="{guest}", row_key="{day:%Y%m%d}"):
    pass


class NewStay(
    Staying,
    table="RekeyedNewStays",
    partition_key="{day:%Y%m}",
    row_key="{guest:lower}_{day:%Y%m%d}",
    moved_from=MovedFrom(Stay),
):
    pass


class Pair(Entity, table="RekeyedPairs", tracked=True, partition_key="{a}", row_key="{b}"):
    a: Mapped[str]
    b: Mapped[str]


class NewPair(
    Entity,
    table="RekeyedPairs",
    partition_key="{b}",
    row_key="{a}",
    moved_from=MovedFrom(Pair, to_new=lambda pair: None if pair.a == "none" else NewPair(a=pair.a, b=pair.b)),
):
    a: Mapped[str]
    b: Mapped[str]


@pytest.fixture
async def db(network: FaultyStore) -> AsyncIterator[Database]:
    """Nothing is there; the phase is *move*."""
    async with database_on(network, Note, NewNote, Ticket, NewTicket, Plane, NewPlane, Stay, NewStay, Pair) as db:
        for model in (NewNote, NewTicket, NewPlane, NewStay, NewPair):
            set_phase(db, model, RekeyPhase.MOVE)
        yield db


async def test_rows_that_share_a_partition_are_moved_in_transactions(db: Database, network: FaultyStore) -> None:
    """Of 120 entities without derived rows each step is two transactions; a row that has changed is moved by itself."""
    for number in range(120):
        await db.insert(Note(id=number))
    rows = await rows_of(connection_of(db), "RekeyedNotes")
    late = await db.get(Note, owner="ann", id=7)
    await db.replace(late)
    network.plan()
    report = await move_window(connection_of(db), rekeying_of(NewNote), rows)

    assert report.moved == 120 and not report.failures
    assert (report.transactions, report.operations) == (5, 100 + 20 + 20 + 100 + 19)
    assert len(await db.select(NewNote).allow_scan().all()) == 120
    assert not await db.select(Note).allow_scan().all()


async def test_forwards_and_confirmed_rows_are_merged(db: Database, network: FaultyStore) -> None:
    """
    Only what changes is sent, under the ETags of the rows. Rows are stored as if they were replaced: with what programs
    have added too.
    """
    keys = {"PartitionKey": "ann", "RowKey": "1"}
    added = {"seen": True, "size": "7", "size@odata.type": "Edm.Int64", "EntityType": "Note", "owner": "ann", "id": 1}
    before = await insert_row(db, "RekeyedNotes", {**keys, **added, "_w": "earlier"})
    network.plan()
    report = await move(db, NewNote)

    assert report.moved == 1
    assert [each.verb for operations in network.sent for each in operations] == [Verb.INSERT, Verb.MERGE, Verb.MERGE]
    assert all("size" not in each.row for operations in network.sent[1:] for each in operations)
    etags = [each.if_match for operations in network.sent for each in operations]
    assert etags[:2] == [None, before] and etags[2] not in (None, "*")
    (old,) = await rows_of(connection_of(db), "RekeyedNotes")
    (new,) = await rows_of(connection_of(db), "RekeyedNewNotes")
    own = ("EntityType", "PartitionKey", "RowKey", "Timestamp", "odata.etag", "_mv", "_w")
    values = {name: value for name, value in added.items() if name not in own}
    assert {name: value for name, value in old.items() if name not in own} == values
    assert {name: value for name, value in new.items() if name not in own} == values
    assert (old["EntityType"], new["EntityType"]) == ("Note#_forward", "NewNote")
    assert old["_w"].endswith(",earlier") and old["_w"].split(",")[0] == new["_w"].split(",")[0]


async def test_a_manifest_of_nothing_that_is_declared_stays_in_no_forward(db: Database) -> None:
    """A merge could not remove it."""
    keys = {"PartitionKey": "ann", "RowKey": "1"}
    row = {**keys, "EntityType": "Note", "owner": "ann", "id": 1, "_w": b"".hex(), "_w@odata.type": "Edm.Binary"}
    await insert_row(db, "RekeyedNotes", row)
    report = await move(db, NewNote)

    assert (report.moved, report.failures) == (1, [])
    (old,) = await rows_of(connection_of(db), "RekeyedNotes")
    assert "_w@odata.type" not in old and old["_w"]


async def test_two_older_entities_with_one_newer_key(db: Database, network: FaultyStore) -> None:
    """The second is a collision: it stays where it is, and neither a mover nor an insert takes the newer key."""
    await db.insert(Note())
    await db.insert(Note(owner="ben"))
    network.plan()
    report = await move(db, NewNote)

    assert len(network.sent) == 4
    assert report.moved == 1 and not report.failures
    (collision,) = report.collisions
    assert isinstance(collision.error, EntityExists) and collision.place.table == "RekeyedNotes"
    kept = await db.select(Note).allow_scan().one()
    assert {kept.owner, (await db.get(NewNote, id=1)).owner} == {"ann", "ben"}
    with pytest.raises(EntityExists):
        await db.insert(NewNote(owner=kept.owner, id=1))


async def test_a_bulk_goes_on_after_an_insert_that_fails(db: Database) -> None:
    """What fails before a transaction is sent concerns one write of it alone."""
    await db.insert(Note())
    async with db.bulk(errors="report") as bulk:
        for number in range(4):
            await bulk.insert(NewNote(owner="eve" if number == 2 else "ann", id=number))

    assert {type(each.error): each.entity.__dict__["id"] for each in bulk.report.failed} == {
        EntityExists: 1,
        ModelError: 2,
    }
    assert len(await db.select(NewNote).allow_scan().all()) == 3


async def test_a_change_of_the_older_key_is_refused(db: Database) -> None:
    """Until the re-key is sealed: programs of the older model, and the way back, would lose the entity."""
    await db.insert(Note())
    await move(db, NewNote)
    note = await db.get(NewNote, id=1)
    note.owner = "ben"
    with pytest.raises(
        EncodeError,
        match=r"moved_from: (?!None).* would have another key by Note, Note \('ben', '1'\).* in place of Note \('ann'",
    ):
        await db.save(note)
    set_phase(db, NewNote, RekeyPhase.SEALED)
    await db.save(note)


async def test_functions_that_disagree(db: Database) -> None:
    """An entity whose newer key does not lead back to its older one would be lost: it is a failure, and stays."""
    await db.insert(Note(owner="eve"))
    report = await move(db, NewNote)
    ((failure,), moved) = report.failures, report.moved

    assert moved == 0 and isinstance(failure.error, ModelError)
    assert "old_keys does not return the key of Note(owner='eve', id=1)" in str(failure.error)
    with pytest.raises(ModelError, match="old_keys does not return Note"):
        await db.insert(NewNote(owner="eve", id=2))
    assert (await db.get(Note, owner="eve", id=1)).owner == "eve"


async def test_entities_that_cannot_be_moved(db: Database) -> None:
    """Each is a failure that says what to do, and stays; others get their newer keys."""
    for a, b in (("a", "b"), ("none", "b"), ("x", "x")):
        await db.insert(Pair(a=a, b=b))
    report = await move(db, NewPair)

    assert report.moved == 1 and {type(each.error) for each in report.failures} == {ModelError}
    dropped, same = sorted((str(each.error) for each in report.failures), reverse=True)
    assert same == (
        "re-key of Pair to NewPair: an entity has the same key ('x', 'x') in table RekeyedPairs by both models; let "
        "the templates of NewPair make keys that no entity has by the older model, or put it into another table"
    )
    assert dropped == (
        "re-key of Pair to NewPair: to_new returned None for Pair(a='none', b='b'); entities are dropped only while "
        "nobody writes: stop all writers and re-key offline, or delete them first"
    )
    assert await kinds_of(db, NewPair) == ["a Pair#_forward", "b NewPair", "none Pair", "x Pair"]


async def test_the_way_back_passes_over_rows_of_others(db: Database) -> None:
    """It reports what has the form of a row of its own, and is none."""
    set_phase(db, NewNote, RekeyPhase.BACK)
    mark = MoveMark(state=MoveState.FORWARD, move="m", other=RowAddress("RekeyedNotes", "ann", "3"), stays=True)
    marker = {"PartitionKey": "notes", "RowKey": "4", "EntityType": "Other#_forward", MOVE: mark.to_text()}
    for row in (
        {"PartitionKey": "notes", "RowKey": "1"},
        {"PartitionKey": "notes", "RowKey": "2", "EntityType": "Other"},
        {**marker, "RowKey": "3", "EntityType": "NewNote#_forward"},
        marker,
    ):
        await insert_row(db, "RekeyedNewNotes", row)
    await insert_row(db, "RekeyedNotes", marker)
    rows = [row for table in ("RekeyedNewNotes", "RekeyedNotes") for row in await rows_of(connection_of(db), table)]
    report = await roll_back_window(connection_of(db), rekeying_of(NewNote), rows)

    assert len(await rows_of(connection_of(db), "RekeyedNotes")) == 1
    assert (report.moved, report.collisions) == (0, [])
    (failure,) = report.failures
    assert failure.place.row_key == "3" and type(failure.error) is Conflict
    assert "is a marker row, and the row that it names is not of its entity" in str(failure.error)


@pytest.mark.parametrize("marked", [False, True])
async def test_the_way_back_to_a_key_that_is_taken(db: Database, marked: bool) -> None:
    """
    The entity keeps its newer key, and is reported: two newer entities can have had one older key. A mark in the row of
    the other entity, which only another program can have written, makes no forward of it.
    """
    await db.insert(Note())
    await move(db, NewNote)
    mark = MoveMark(state=MoveState.SETTLED, move="", other=RowAddress("RekeyedNewNotes", "notes", "1"), stays=True)
    row = {"PartitionKey": "ann", "RowKey": "1", "EntityType": "Note"}  # as a program of another kind may do
    row |= {MOVE: mark.to_text()} if marked else {}
    await replace_row(db, "RekeyedNotes", row)
    set_phase(db, NewNote, RekeyPhase.BACK)
    report = await roll_back(db, NewNote)

    (collision,) = report.collisions
    assert "cannot get its older key ('ann', '1') in table RekeyedNotes, which another entity has" in str(
        collision.error
    )
    assert await db.get_or_none(NewNote, id=1) is not None


async def test_two_newer_entities_with_one_older_key(db: Database) -> None:
    """The second is rejected as long as the first one is there, whoever has made that; after its delete it is not."""
    await db.insert(Plane(day="mon", flight="AA1", tail="x"))
    for tail, other in (("y", "x"), ("z", "y")):
        with pytest.raises(EntityExists, match=r"another entity with its key by Plane, \('mon', 'AA1'\)"):
            await db.insert(NewPlane(day="mon", flight="AA1", tail=tail))
        await db.delete(NewPlane, day="mon", flight="AA1", tail=other, if_match="*")
        await db.insert(NewPlane(day="mon", flight="AA1", tail=tail))
        await move(db, NewPlane)
    set_phase(db, NewPlane, RekeyPhase.BACK)
    report = await roll_back(db, NewPlane)

    assert (report.moved, report.failures, report.collisions) == (1, [], [])
    assert (await db.get(Plane, day="mon", flight="AA1")).tail == "z"
    assert await kinds_of(db, NewPlane) == ["mon Plane"]


async def test_the_older_key_of_an_entity_whose_newer_key_has_a_row_of_another_kind(db: Database) -> None:
    """It is free: another program has deleted the entity, and put a row of its own there."""
    await db.insert(NewPlane(day="mon", flight="AA1", tail="x"))
    row = {"PartitionKey": "x", "RowKey": "mon_AA1", "EntityType": "Crew"}
    await replace_row(db, "RekeyedNewPlanes", row)
    await db.insert(NewPlane(day="mon", flight="AA1", tail="y"))

    assert (await db.get(NewPlane, day="mon", flight="AA1", tail="y")).tail == "y"


@pytest.mark.parametrize("model", [Plane, NewPlane])
async def test_the_older_key_of_another_newer_entity_is_left_alone(db: Database, model: Any) -> None:
    """Whoever has made two newer entities of one older key: the forward of one is not replaced for the other."""
    await db.insert(model(day="mon", flight="AA1", tail="x"))
    await move(db, NewPlane)
    row = {"PartitionKey": "y", "RowKey": "mon_AA1", "EntityType": "NewPlane"}
    await insert_row(db, "RekeyedNewPlanes", row)
    rows = await rows_of(connection_of(db), "RekeyedNewPlanes")
    set_phase(db, NewPlane, RekeyPhase.BACK)
    report = await roll_back_window(
        connection_of(db), rekeying_of(NewPlane), [each for each in rows if each["PartitionKey"] == "y"]
    )

    assert (report.moved, [type(each.error) for each in report.collisions]) == (0, [EntityExists])
    assert (await roll_back(db, NewPlane)).moved == 1
    assert (await db.get(Plane, day="mon", flight="AA1")).tail == "x"


@pytest.mark.parametrize("phase", [RekeyPhase.EXPAND, RekeyPhase.MOVE, RekeyPhase.BACK])
async def test_a_newer_key_that_does_not_tell_its_fields(db: Database, phase: RekeyPhase) -> None:
    """The fields of the entity, or those that were given, tell its older key wherever it is read to be changed."""

    def stay_longer(stay: NewStay) -> None:
        stay.nights += 1

    async def modify(tx: Transaction) -> None:
        await tx.modify(stay, stay_longer)

    set_phase(db, NewStay, phase)
    key: Any = {"guest": "Ann", "day": dt.date(2024, 2, 29)}
    await db.insert(Stay(**key))
    stay = await db.get(NewStay, **key)
    await db.refresh(stay)
    await db.modify(stay, stay_longer)
    await db.modify(NewStay, stay_longer, **key)
    if phase is RekeyPhase.MOVE:
        await db.run_transaction(modify)

    assert (await db.get(NewStay, **key)).nights == (4 if phase is RekeyPhase.MOVE else 3)


async def test_an_entity_that_went_back_since_its_row_was_read(db: Database) -> None:
    """Another mover was first: that is no collision of two entities, of which one would have to be deleted."""
    await db.insert(Note())
    await move(db, NewNote)
    set_phase(db, NewNote, RekeyPhase.BACK)
    rows = await rows_of(connection_of(db), "RekeyedNewNotes")
    reports = [await roll_back_window(connection_of(db), rekeying_of(NewNote), rows) for _ in range(2)]

    assert [(each.moved, each.collisions, each.failures) for each in reports] == [(1, [], []), (0, [], [])]
    assert await kinds_of(db, NewNote) == ["ann Note"]


# A newer key that entities of several older keys have, one after the other


@pytest.fixture
async def reused(db: Database) -> Database:
    """A ticket of ann that had its key in the north is deleted; a program of the older model makes one in the south."""
    await db.insert(Ticket(shop="north", number=1, customer="ann"))
    await db.delete(await db.get(NEW_TICKET))
    await db.insert(Ticket(shop="south", number=1, customer="ann"))
    return db


@pytest.mark.parametrize("verb", ["save", "modify", "delete", "refresh", "upsert", "get_or_insert"])
async def test_what_a_deleted_entity_has_left_hides_no_other_one(reused: Database, verb: str) -> None:
    """Each verb finds the entity that lies at another one of the older keys of its key."""
    db = reused
    ticket = await db.get(NEW_TICKET)
    if verb == "get_or_insert":
        found, made = await db.get_or_insert(NewTicket(customer="ann", number=1, shop="north"))
        assert (found.shop, made) == ("south", False)
    elif verb == "modify":

        def seat(each: NewTicket) -> None:
            each.extra["Seat"] = "5A"

        await db.modify(ticket.key, seat)
    else:
        ticket.extra["Seat"] = "5A"
        await getattr(db, verb)(ticket)
    assert await db.exists(NEW_TICKET) == (verb != "delete")
    assert await db.get_or_none(Ticket, shop="south", number=1) is None


async def test_an_entity_with_the_newer_key_of_a_deleted_one_takes_its_own_older_key(db: Database) -> None:
    """Programs of the older model insert no entity with the older key of one that was inserted by its newer key."""
    await db.insert(Ticket(shop="north", number=1, customer="ann"))
    await db.delete(await db.get(NEW_TICKET))
    await db.insert(NewTicket(customer="ann", number=1, shop="south"))
    with pytest.raises(EntityExists):
        await db.insert(Ticket(shop="south", number=1, customer="ben"))
    with pytest.raises(EntityExists, match="another entity with its key by Ticket"):
        await db.insert(NewTicket(customer="ben", number=1, shop="south"))


async def test_the_older_key_of_a_deleted_entity_is_free(db: Database) -> None:
    """It is free also if its newer key is that of another entity by now, which has another older key."""
    await db.insert(NewTicket(customer="ann", number=1, shop="north"))
    await db.delete(await db.get(NEW_TICKET))
    await db.insert(NewTicket(customer="ann", number=1, shop="south"))
    await db.insert(NewTicket(customer="ben", number=1, shop="north"))
    found = await db.select(NewTicket).allow_scan().all()
    assert [(each.customer, each.shop) for each in found] == [("ann", "south"), ("ben", "north")]
