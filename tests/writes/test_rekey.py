"""
Entities get their newer keys: the mover, live writers beside it, what is refused, the end and the way back.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest

from tableorm import (
    Database,
    EncodeError,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    Mapped,
    ModelError,
    MovedFrom,
    NotSupported,
    PreconditionFailed,
    TransactionFailed,
    connect,
    field,
)
from tableorm.connection.connection import connection_of
from tableorm.connection.rekey_phases import Phase
from tableorm.connection.rows import read_row
from tableorm.models.marker_rows import MoveState, mark_of, row_of_marker
from tableorm.models.rekeyed_rows import entity_of_old
from tableorm.stores import CLOCK, Operation, Verb
from tableorm.testing import MemoryStore
from tableorm.writes.rekey.rollback import roll_back_window
from tableorm.writes.rekey.window import move_window
from tests.azurite import Azurite
from tests.faults import Fate, FaultyStore
from tests.rekeys import finalize, kinds_of, move, rekeying_of, roll_back, rows_of, set_phase
from tests.unfinished_moves import HOUR, database_on

CONFIRMED, SETTLED, FORWARD = MoveState.CONFIRMED, MoveState.SETTLED, MoveState.FORWARD


class Trip(Entity, table="Rekeyed", partition_key="{day}", row_key="trip_{id}"):
    day: Mapped[str]
    id: Mapped[int]
    text: Mapped[str] = field(default="")

    by_text = Index(row_key="text_{text}_{id}")


class NewTrip(Entity, table="Rekeyed", partition_key="{id}", row_key="day_{day}", moved_from=Trip):
    day: Mapped[str]
    id: Mapped[int]
    text: Mapped[str] = field(default="")

    by_text = Index(row_key="newtext_{text}_{day}")


class Note(Entity, table="RekeyedNotes", partition_key="{owner}", row_key="{id}"):
    owner: Mapped[str]
    id: Mapped[int]


def keys_of_note(id: int) -> list[dict[str, Any]]:  # noqa: A002
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


@pytest.fixture
def network() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
async def db(network: FaultyStore) -> AsyncIterator[Database]:
    """Trip 1 of monday has its older key; the phase is *move*."""
    async with database_on(network, Trip, NewTrip, Note, NewNote) as db:
        await db.insert(Trip(day="mon", id=1, text="t"))
        for model in (NewTrip, NewNote):
            set_phase(db, model, Phase.MOVE)
        yield db


async def marks(db: Database) -> list[MoveState | None]:
    """Return what the rows of trip 1 say at its older and at its newer key; "absent" if there is none."""
    rows = [await read_row(connection_of(db), "Rekeyed", *keys) for keys in (("mon", "trip_1"), ("1", "day_mon"))]
    found = [mark_of(row) for row in rows]
    return [None if mark is None else mark.state for mark in found]


async def read_old(db: Database) -> NewTrip:
    """Read trip 1 by its older key, as the newer model."""
    row = await read_row(connection_of(db), "Rekeyed", "mon", "trip_1")
    assert row is not None
    entity = entity_of_old(rekeying_of(NewTrip), row)
    assert isinstance(entity, NewTrip)
    return entity


MOVED = ["1 NewTrip", "1 NewTrip#by_text", "mon Trip#_forward"]


async def test_the_writes_of_a_mover(db: Database, network: FaultyStore) -> None:
    """
    A tentative row, a forward, and a confirmed row, each with its index entries. The forward keeps what the row had,
    with its ETag.
    """
    (before,) = await rows_of(connection_of(db), "Rekeyed", "Trip")
    network.plan()
    report = await move(db, NewTrip)

    assert (report.moved, report.collisions, report.failures) == (1, [], [])
    assert [len(operations) for operations in network.sent] == [2, 2, 2]
    assert await kinds_of(db, NewTrip) == MOVED
    (forward,) = await rows_of(connection_of(db), "Rekeyed", "Trip#_forward")
    mark = mark_of(forward)
    assert mark is not None and mark.etag == before["odata.etag"] and mark.stays
    kept = row_of_marker(Trip.__schema__, forward)
    members = ("PartitionKey", "RowKey", "EntityType", "text")
    assert {name: kept[name] for name in members} == {name: before[name] for name in members}
    assert (await db.get(NewTrip, day="mon", id=1)).text == "t"
    assert (await move(db, NewTrip)).moved == 0


async def test_rows_that_share_a_partition_are_moved_in_transactions(db: Database, network: FaultyStore) -> None:
    """Of 120 entities without derived rows each step is two transactions; a row that has changed is moved by itself."""
    for number in range(120):
        await db.insert(Note(owner="ann", id=number))
    rows = await rows_of(connection_of(db), "RekeyedNotes")
    late = await db.get(Note, owner="ann", id=7)
    await db.replace(late)
    network.plan()
    report = await move_window(connection_of(db), rekeying_of(NewNote), rows)

    assert report.moved == 120 and not report.failures
    assert (report.transactions, report.operations) == (5, 100 + 20 + 20 + 100 + 19)
    assert len(await db.select(NewNote).allow_scan().all()) == 120
    assert not await db.select(Note).allow_scan().all()


def change(trip: NewTrip) -> None:
    trip.text = "new"


async def read_change_and(db: Database, write: Callable[[Any], Awaitable[Any]]) -> None:
    trip = await read_old(db)
    trip.text = "new"
    await write(trip)


async def in_transaction(db: Database) -> None:
    trip = await read_old(db)
    trip.text = "new"
    async with db.transaction() as tx:
        tx.save(trip)


async def in_bulk(db: Database) -> None:
    trip = await read_old(db)
    trip.text = "new"
    async with db.bulk() as bulk:
        await bulk.save(trip)


WRITES: dict[str, Callable[[Database], Awaitable[Any]]] = {
    "modify": lambda db: db.modify(NewTrip, change, day="mon", id=1),
    "save": lambda db: read_change_and(db, db.save),
    "replace": lambda db: read_change_and(db, db.replace),
    "merge": lambda db: read_change_and(db, db.merge),
    "upsert": lambda db: db.upsert(NewTrip(day="mon", id=1, text="new")),
    "transaction": in_transaction,
    "bulk": in_bulk,
}


@pytest.mark.parametrize("verb", WRITES)
async def test_a_verb_brings_an_entity_home(db: Database, verb: str) -> None:
    """An entity that has its older key gets the newer one, and is written there; its forward is settled by that."""
    await WRITES[verb](db)

    assert (await db.get(NewTrip, day="mon", id=1)).text == "new"
    assert await db.get_or_none(Trip, day="mon", id=1) is None
    assert await marks(db) == [SETTLED, None]
    assert await kinds_of(db, NewTrip) == MOVED
    assert (await db.get(NewTrip.by_text, id=1, text="new", day="mon")).text == "new"


async def test_a_delete_brings_an_entity_home(db: Database) -> None:
    """Nothing is left but a settled forward: the older key stays taken for those who know the older model alone."""
    await db.delete(await read_old(db))
    assert await kinds_of(db, NewTrip) == ["mon Trip#_forward"]
    with pytest.raises(EntityExists):
        await db.insert(Trip(day="mon", id=1))
    with pytest.raises(EntityNotFound):
        await db.delete(NewTrip, day="mon", id=1, if_match="*")


async def test_a_delete_by_key_brings_an_entity_home(db: Database) -> None:
    """Also if it was not read."""
    await db.delete(NewTrip, day="mon", id=1, if_match="*")
    assert await kinds_of(db, NewTrip) == ["mon Trip#_forward"]


@pytest.mark.parametrize("others", ["nothing", "moved", "moved and changed", "changed", "deleted"])
async def test_what_happened_since_an_entity_was_read_at_its_older_key(db: Database, others: str) -> None:
    """A move is no change. Whatever else was done since it was read makes the write fail."""
    trip = await read_old(db)
    trip.text = "mine"
    old = await db.get(Trip, day="mon", id=1)
    if others.startswith("moved"):
        await move(db, NewTrip)
    if others == "moved and changed":
        await db.modify(NewTrip, change, day="mon", id=1)
    elif others == "changed":
        old.text = "theirs"
        await db.save(old)
    elif others == "deleted":
        await db.delete(old)
    if others in ("nothing", "moved"):
        await db.save(trip)
        assert (await db.get(NewTrip, day="mon", id=1)).text == "mine"
        trip.text = "again"
        await db.save(trip)
        assert await marks(db) == [SETTLED, None]
    else:
        with pytest.raises((PreconditionFailed, EntityNotFound)):
            await db.save(trip)


async def test_an_insert_takes_the_older_key(db: Database) -> None:
    """A forward that names no move says to older programs that the key is taken; after a delete the insert works."""
    await db.insert(NewTrip(day="tue", id=2, text="x"))
    assert [each for each in await kinds_of(db, NewTrip) if each[:3] in ("2 N", "tue")] == [
        "2 NewTrip",
        "2 NewTrip#by_text",
        "tue Trip#_forward",
    ]
    with pytest.raises(EntityExists):
        await db.insert(Trip(day="tue", id=2))
    await db.delete(NewTrip, day="tue", id=2, if_match="*")
    await db.insert(NewTrip(day="tue", id=2, text="y"))
    assert (await db.get(NewTrip, day="tue", id=2)).text == "y"


@pytest.mark.parametrize("verb", ["insert", "transaction", "bulk"])
async def test_an_insert_of_an_entity_that_has_its_older_key(db: Database, verb: str) -> None:
    """The entity comes home, and the insert fails as any other."""
    new = NewTrip(day="mon", id=1, text="other")
    if verb == "insert":
        with pytest.raises(EntityExists):
            await db.insert(new)
    elif verb == "transaction":
        with pytest.raises(Exception, match="row with this key already"):
            async with db.transaction() as tx:
                tx.insert(new)
    else:
        async with db.bulk() as bulk:
            await bulk.insert(new)
        assert [type(each.error) for each in bulk.report.failed] == [EntityExists]

    assert (await db.get(NewTrip, day="mon", id=1)).text == "t"


async def test_a_bulk_goes_on_after_an_insert_that_fails(db: Database) -> None:
    """What fails before a transaction is sent concerns one write of it alone."""
    await db.insert(Note(owner="ann", id=1))
    async with db.bulk() as bulk:
        for number in range(4):
            await bulk.insert(NewNote(owner="eve" if number == 2 else "ann", id=number))

    assert {type(each.error): each.entity.__dict__["id"] for each in bulk.report.failed} == {
        EntityExists: 1,
        ModelError: 2,
    }
    assert len(await db.select(NewNote).allow_scan().all()) == 3


async def test_a_scope_waits_for_the_end(db: Database) -> None:
    """It cannot tell whether an older key is within it."""
    scope = db.scope(day="mon")
    with pytest.raises(NotSupported, match="re-key of Trip to NewTrip is in phase 'move': a scope does not tell"):
        await scope.insert(NewTrip(day="mon", id=7))
    set_phase(db, NewTrip, Phase.SEALED)
    await scope.insert(NewTrip(day="mon", id=7))


class Old(Entity, table="RekeyedByKeys", partition_key="{a}", row_key="old_{b}", discriminator="row_key", version=2):
    a: Mapped[str]
    b: Mapped[str]


class New(
    Entity, table="RekeyedByKeys", partition_key="{b}", row_key="new_{a}", discriminator="row_key", moved_from=Old
):
    a: Mapped[str]
    b: Mapped[str]


async def test_models_whose_kind_is_told_by_the_key(db: Database) -> None:
    """Their rows have a kind while they are marker rows; after the way back they are as they were."""
    await db.create_tables(Old, New)
    await db.insert(Old(a="x", b="y"))
    (before,) = await rows_of(connection_of(db), "RekeyedByKeys")
    set_phase(db, New, Phase.MOVE)
    assert (await move(db, New)).moved == 1
    assert await db.get(New, a="x", b="y") == New(a="x", b="y")
    assert not await db.select(Old).where(Old.a == "x").all()
    set_phase(db, New, Phase.BACK)
    assert (await roll_back(db, New)).moved == 1

    (after,) = await rows_of(connection_of(db), "RekeyedByKeys")
    for row in (before, after):
        row.pop("odata.etag")
        row.pop("Timestamp")
    assert before == after


async def test_two_older_entities_with_one_newer_key(db: Database) -> None:
    """The second is a collision: it stays where it is, and neither a mover nor an insert takes the newer key."""
    await db.insert(Note(owner="ann", id=1))
    await db.insert(Note(owner="ben", id=1))
    report = await move(db, NewNote)

    assert report.moved == 1 and not report.failures
    (collision,) = report.collisions
    assert isinstance(collision.error, EntityExists) and collision.place.table == "RekeyedNotes"
    kept = await db.select(Note).allow_scan().one()
    assert {kept.owner, (await db.get(NewNote, id=1)).owner} == {"ann", "ben"}
    with pytest.raises(EntityExists):
        await db.insert(NewNote(owner=kept.owner, id=1))


async def test_a_change_of_the_older_key_is_refused(db: Database) -> None:
    """Until the re-key is sealed: programs of the older model, and the way back, would lose the entity."""
    await db.insert(Note(owner="ann", id=1))
    await move(db, NewNote)
    note = await db.get(NewNote, id=1)
    note.owner = "ben"
    with pytest.raises(
        EncodeError, match=r"would have another key by Note, Note \('ben', '1'\).* in place of Note \('ann'"
    ):
        await db.save(note)
    set_phase(db, NewNote, Phase.SEALED)
    await db.save(note)


async def test_functions_that_disagree(db: Database) -> None:
    """An entity whose newer key does not lead back to its older one would be lost: it is a failure, and stays."""
    await db.insert(Note(owner="eve", id=1))
    report = await move(db, NewNote)
    ((failure,), moved) = report.failures, report.moved

    assert moved == 0 and isinstance(failure.error, ModelError)
    assert "old_keys does not return the key of Note(owner='eve', id=1)" in str(failure.error)
    with pytest.raises(ModelError, match="old_keys does not return Note"):
        await db.insert(NewNote(owner="eve", id=2))
    assert (await db.get(Note, owner="eve", id=1)).owner == "eve"


async def test_no_insert_at_the_newer_key_before_and_after(db: Database) -> None:
    """While entities have their older keys, nothing in a transaction or a bulk is inserted at the newer key."""
    for phase in (Phase.EXPAND, Phase.BACK):
        set_phase(db, NewTrip, phase)
        with pytest.raises(TransactionFailed, match=f"have their older keys in phase '{phase}'"):
            async with db.transaction() as tx:
                tx.insert(NewTrip(day="tue", id=5))


async def test_a_move_by_other_fields_is_refused(db: Database) -> None:
    """Both rows of such a move would be in the way of the re-key."""
    await move(db, NewTrip)
    with pytest.raises(NotSupported, match="NewTrip cannot be moved to another partition while it takes"):
        await db.move(await db.get(NewTrip, day="mon", id=1), id=2)


async def test_a_late_tentative_row_brings_nothing_back(db: Database, network: FaultyStore) -> None:
    """The first write at the newer key settles the forward, so that nothing makes a repeated insert come true."""
    network.plan(Fate.TWICE)
    await move(db, NewTrip)
    late, network.late = network.late, []
    await db.delete(NewTrip, day="mon", id=1, if_match="*")
    network.late = late
    await network.deliver()

    assert "1 NewTrip#_tentative" in await kinds_of(db, NewTrip)
    assert await db.get_or_none(NewTrip, day="mon", id=1) is None
    await db.insert(NewTrip(day="mon", id=1, text="new"))
    assert await kinds_of(db, NewTrip) == MOVED


async def die_after(network: FaultyStore, writes: int, work: Coroutine[Any, Any, object]) -> None:
    """Run something that dies after some writes."""
    task = asyncio.create_task(work)
    network.plan()

    async def die() -> None:
        network.meanwhile = die
        if len(network.sent) == writes:
            task.cancel()
            network.meanwhile = None
            await asyncio.sleep(0)

    network.meanwhile = die
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("writes", [1, 2])
async def test_who_meets_the_rows_of_a_mover_that_died(db: Database, network: FaultyStore, writes: int) -> None:
    """A tentative row that is no entity is deleted, and its move never happens; one that is an entity is confirmed."""
    rows = await rows_of(connection_of(db), "Rekeyed", "Trip")
    await die_after(network, writes, move_window(connection_of(db), rekeying_of(NewTrip), rows))
    assert (await db.get(NewTrip, day="mon", id=1)).text == "t"
    await db.modify(NewTrip, change, day="mon", id=1)

    assert await kinds_of(db, NewTrip) == MOVED
    assert await marks(db) == [SETTLED, None]


async def test_the_end(db: Database) -> None:
    """Forwards go; the entity keeps its mark until it is written, which costs one look at the older key."""
    await move(db, NewTrip)
    set_phase(db, NewTrip, Phase.SEALED)
    report = await finalize(db, NewTrip)

    assert (report.moved, report.failures) == (1, [])
    assert await kinds_of(db, NewTrip) == ["1 NewTrip", "1 NewTrip#by_text"]
    assert await marks(db) == [None, CONFIRMED]
    await db.modify(NewTrip, change, day="mon", id=1)
    assert await marks(db) == [None, None]
    await db.insert(NewTrip(day="tue", id=2))
    assert "tue Trip#_forward" not in await kinds_of(db, NewTrip)


async def test_the_way_back(db: Database) -> None:
    """Entities have their older keys again, with what was written meanwhile; what was deleted is free."""
    await db.modify(NewTrip, change, day="mon", id=1)
    await db.insert(NewTrip(day="tue", id=2, text="x"))
    await db.insert(NewTrip(day="wed", id=3))
    await db.delete(NewTrip, day="wed", id=3, if_match="*")
    set_phase(db, NewTrip, Phase.BACK)
    report = await roll_back(db, NewTrip)

    assert (report.moved, report.failures, report.collisions) == (2, [], [])
    assert await kinds_of(db, NewTrip) == ["mon Trip", "mon Trip#by_text", "tue Trip", "tue Trip#by_text"]
    assert (await db.get(Trip, day="mon", id=1)).text == "new"
    assert (await db.get(Trip.by_text, day="tue", text="x", id=2)).id == 2


async def test_the_way_back_to_a_key_that_is_taken(db: Database) -> None:
    """The entity keeps its newer key, and is reported: two newer entities can have had one older key."""
    await db.insert(Note(owner="ann", id=1))
    await move(db, NewNote)
    row = {"PartitionKey": "ann", "RowKey": "1", "EntityType": "Note"}  # as a program of another kind may do
    await connection_of(db).store.write("RekeyedNotes", Operation(Verb.REPLACE, row, "*"))
    set_phase(db, NewNote, Phase.BACK)
    report = await roll_back(db, NewNote)

    (collision,) = report.collisions
    assert "cannot get its older key ('ann', '1') in table RekeyedNotes, which another entity has" in str(
        collision.error
    )
    assert await db.get_or_none(NewNote, id=1) is not None


async def test_there_and_back_on_azurite(azurite: Azurite) -> None:
    """A slice of all of it on the emulator of the service."""
    async with connect(azurite.connection_string, prefix="rekey") as db:
        await db.create_tables(Trip, NewTrip)
        for number in range(1, 4):
            await db.insert(Trip(day="mon", id=number, text="t"))
        set_phase(db, NewTrip, Phase.MOVE)
        await db.modify(NewTrip, change, day="mon", id=1)
        assert (await move(db, NewTrip)).moved == 2
        await db.delete(await db.get(NewTrip, day="mon", id=2))
        await db.insert(NewTrip(day="tue", id=4))
        set_phase(db, NewTrip, Phase.BACK)
        assert not (await roll_back(db, NewTrip)).failures
        assert {trip.id: trip.text for trip in await db.select(Trip).allow_scan().all()} == {1: "new", 3: "t", 4: ""}
        set_phase(db, NewTrip, Phase.MOVE)
        assert (await move(db, NewTrip)).moved == 3
        set_phase(db, NewTrip, Phase.SEALED)
        assert (await finalize(db, NewTrip)).moved == 3
        assert sorted({each.partition(" ")[2] for each in await kinds_of(db, NewTrip)}) == [
            "NewTrip",
            "NewTrip#by_text",
        ]


@pytest.mark.usefixtures("stopped_clock")
async def test_the_audit_leaves_rows_of_a_re_key_alone(db: Database) -> None:
    """Forwards stay for long; those who run the re-key look at them. What is derived is checked as ever."""
    await db.insert(NewTrip(day="tue", id=2, text="x"))
    await move(db, NewTrip)
    CLOCK.advance(2 * HOUR)
    for model in (Trip, NewTrip):
        assert (await db.audit(model, repair=True)).clean


async def test_a_row_that_was_read_before_the_entity_came_again(db: Database, network: FaultyStore) -> None:
    """The way back goes by the newer row as it is after the forward was read: a later move may not be confirmed yet."""
    await move(db, NewTrip)
    (stale,) = await rows_of(connection_of(db), "Rekeyed", "NewTrip")
    for place, row_key in (("mon", "trip_1"), ("1", "day_mon"), ("1", "newtext_t_mon")):
        keys = {"PartitionKey": place, "RowKey": row_key}
        await connection_of(db).store.write("Rekeyed", Operation(Verb.DELETE, keys, "*"))
    await db.insert(Trip(day="mon", id=1, text="again"))
    rows = await rows_of(connection_of(db), "Rekeyed", "Trip")
    await die_after(network, 2, move_window(connection_of(db), rekeying_of(NewTrip), rows))
    assert "1 NewTrip#_tentative" in await kinds_of(db, NewTrip)
    set_phase(db, NewTrip, Phase.BACK)
    report = await roll_back_window(connection_of(db), rekeying_of(NewTrip), [stale])

    assert (report.moved, report.failures) == (1, [])
    assert (await db.get(Trip, day="mon", id=1)).text == "again"
    assert await kinds_of(db, NewTrip) == ["mon Trip", "mon Trip#by_text"]


class Neighbour(Entity, table="Rekeyed", partition_key="{day}", row_key="trip_{id}"):
    day: Mapped[str]
    id: Mapped[int]


async def test_a_row_of_another_kind_at_the_older_key(db: Database) -> None:
    """It is no entity of the older model: nobody moves it, and an insert by the newer model finds its key taken."""
    await db.insert(Neighbour(day="tue", id=2))
    with pytest.raises(EntityNotFound):
        await db.modify(NewTrip, change, day="tue", id=2)
    with pytest.raises(EntityExists, match=r"another entity with its key by Trip, \('tue', 'trip_2'\)"):
        await db.insert(NewTrip(day="tue", id=2))
    assert (await move(db, NewTrip)).moved == 1
    assert await db.get(Neighbour, day="tue", id=2) == Neighbour(day="tue", id=2)


class Plane(Entity, table="RekeyedPlanes", partition_key="{day}", row_key="{flight}"):
    day: Mapped[str]
    flight: Mapped[str]
    tail: Mapped[str]


def keys_of_plane(day: str, flight: str, tail: str) -> list[dict[str, Any]]:
    del tail
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


async def test_two_newer_entities_with_one_older_key(db: Database) -> None:
    """The second is refused as long as the first one is there, whoever has made that; after its delete it is not."""
    await db.create_tables(Plane, NewPlane)
    set_phase(db, NewPlane, Phase.MOVE)
    await db.insert(Plane(day="mon", flight="AA1", tail="x"))
    for tail, other in (("y", "x"), ("z", "y")):
        with pytest.raises(EntityExists, match=r"another entity with its key by Plane, \('mon', 'AA1'\)"):
            await db.insert(NewPlane(day="mon", flight="AA1", tail=tail))
        await db.delete(NewPlane, day="mon", flight="AA1", tail=other, if_match="*")
        await db.insert(NewPlane(day="mon", flight="AA1", tail=tail))
        await move(db, NewPlane)
    set_phase(db, NewPlane, Phase.BACK)
    report = await roll_back(db, NewPlane)

    assert (report.moved, report.failures, report.collisions) == (1, [], [])
    assert (await db.get(Plane, day="mon", flight="AA1")).tail == "z"
    assert await kinds_of(db, NewPlane) == ["mon Plane"]


@pytest.mark.parametrize("writes", [1, 2])
async def test_older_programs_beside_the_way_back(db: Database, network: FaultyStore, writes: int) -> None:
    """The older key stays taken, whatever somebody who died has left there; another one goes back all the way."""
    await move(db, NewTrip)
    set_phase(db, NewTrip, Phase.BACK)
    await die_after(network, writes, roll_back(db, NewTrip))
    with pytest.raises(EntityExists):
        await db.insert(Trip(day="mon", id=1, text="other"))
    assert not (await roll_back(db, NewTrip)).failures

    assert (await db.get(Trip, day="mon", id=1)).text == "t"
    assert await kinds_of(db, NewTrip) == ["mon Trip", "mon Trip#by_text"]


async def test_the_older_key_of_another_newer_entity_is_left_alone(db: Database) -> None:
    """Whoever has made two newer entities of one older key: the forward of one is not replaced for the other."""
    await db.create_tables(Plane, NewPlane)
    await db.insert(Plane(day="mon", flight="AA1", tail="x"))
    await move(db, NewPlane)
    row = {"PartitionKey": "y", "RowKey": "mon_AA1", "EntityType": "NewPlane"}
    await connection_of(db).store.write("RekeyedNewPlanes", Operation(Verb.INSERT, row))
    rows = await rows_of(connection_of(db), "RekeyedNewPlanes")
    set_phase(db, NewPlane, Phase.BACK)
    report = await roll_back_window(
        connection_of(db), rekeying_of(NewPlane), [each for each in rows if each["PartitionKey"] == "y"]
    )

    assert (report.moved, [type(each.error) for each in report.collisions]) == (0, [EntityExists])
    assert (await roll_back(db, NewPlane)).moved == 1
    assert (await db.get(Plane, day="mon", flight="AA1")).tail == "x"


async def test_unknown_properties_go_along(db: Database) -> None:
    """Those that neither model knows, there and back, in rows that are moved together and alone."""
    for model, keys in ((Note, {"owner": "ann"}), (Trip, {"day": "tue"})):
        for number in (1, 2):
            entity = cast(Any, model)(id=number, **keys)
            entity.extra["Gate"] = f"B{number}"
            await db.insert(entity)
    for newer in (NewNote, NewTrip):
        await move(db, newer)
    note, trip = await db.get(NewNote, id=2), await db.get(NewTrip, day="tue", id=2)
    assert dict(note.extra) == dict(trip.extra) == {"Gate": "B2"}
    for newer in (NewNote, NewTrip):
        set_phase(db, newer, Phase.BACK)
        await roll_back(db, newer)

    older = await db.get(Note, owner="ann", id=1), await db.get(Trip, day="tue", id=1)
    assert [dict(each.extra) for each in older] == [{"Gate": "B1"}, {"Gate": "B1"}]
