"""
Entities get their newer keys: the mover, live writers beside it, what is refused, the end and the way back.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from tableorm import (
    Database,
    Entity,
    EntityExists,
    EntityNotFound,
    Index,
    LostRace,
    Mapped,
    NotSupported,
    PreconditionFailed,
    PropertyBag,
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
from tableorm.writes.rekey.finalize import finalize_window
from tableorm.writes.rekey.report import WindowReport
from tableorm.writes.rekey.rollback import roll_back_window
from tableorm.writes.rekey.window import move_window
from tests.azurite import Azurite
from tests.faults import Fate, FaultyStore
from tests.rekeys import finalize, kinds_of, move, rekeying_of, roll_back, rows_of, set_phase
from tests.unfinished_moves import FORWARD as MOVED_AWAY
from tests.unfinished_moves import HOUR, MARK, TENTATIVE, database_on, move_half

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


class Stop(Entity, table="RekeyedStops", tracked=True, partition_key="{day}", row_key="stop_{id}"):
    day: Mapped[str]
    id: Mapped[int]
    text: Mapped[str] = field(default="")


class NewStop(Entity, table="RekeyedStops", partition_key="{id}", row_key="day_{day}", moved_from=Stop):
    day: Mapped[str]
    id: Mapped[int]
    text: Mapped[str] = field(default="")


@pytest.fixture
def network() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
async def db(network: FaultyStore) -> AsyncIterator[Database]:
    """Trip 1 of monday has its older key; the phase is *move*."""
    async with database_on(network, Trip, NewTrip) as db:
        await db.insert(Trip(day="mon", id=1, text="t"))
        set_phase(db, NewTrip, Phase.MOVE)
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


async def test_a_scope_waits_for_the_end(db: Database) -> None:
    """It cannot tell whether an older key is within it."""
    scope = db.scope(day="mon")
    with pytest.raises(NotSupported, match="re-key of Trip to NewTrip is in phase 'move': a scope does not tell"):
        await scope.insert(NewTrip(day="mon", id=7))
    set_phase(db, NewTrip, Phase.SEALED)
    await scope.insert(NewTrip(day="mon", id=7))


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


async def test_a_bag_that_is_merged_over_whatever_is_there(db: Database) -> None:
    """Beside an entity that has come home, a bag of another one changes what it has, and nothing that others wrote."""
    await db.create_tables(Stop, NewStop)
    set_phase(db, NewStop, Phase.MOVE)
    for day in ("mon", "tue"):
        await db.insert(Stop(day=day, id=1))
    await move(db, NewStop)
    bag = await db.get(PropertyBag.key("RekeyedStops", "1", "day_mon"))
    other = await db.get(NewStop, day="mon", id=1)
    other.text = "of others"
    await db.save(other)
    stop = await db.get(NewStop, day="tue", id=1)
    async with db.transaction() as tx:
        bag["Note"] = "new"
        tx.merge(bag, ["Note"], if_match="*")
        stop.text = "new"
        tx.save(stop)

    found = await db.get(NewStop, day="mon", id=1)
    assert (found.text, found.extra["Note"]) == ("of others", "new")


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


async def test_a_forward_that_is_settled_or_gone_since_it_was_read(db: Database) -> None:
    """It is deleted as it is then; one that somebody else has deleted counts too."""
    await db.insert(NewTrip(day="mon", id=2))
    await db.insert(NewTrip(day="mon", id=3))
    await move(db, NewTrip)
    rows = await rows_of(connection_of(db), "Rekeyed", "Trip#_forward")
    await db.modify(NewTrip, change, day="mon", id=1)
    gone = {"PartitionKey": "mon", "RowKey": "trip_2"}
    await connection_of(db).store.write("Rekeyed", Operation(Verb.DELETE, gone, "*"))
    set_phase(db, NewTrip, Phase.SEALED)
    report = await finalize_window(connection_of(db), rekeying_of(NewTrip), rows, confirmed=True)

    assert (report.moved, report.failures) == (3, [])
    assert not await rows_of(connection_of(db), "Rekeyed", "Trip#_forward")


class Restless(FaultyStore):
    """A store in which somebody else writes a row each time before it is written as it was read, from some time on."""

    begun = False

    async def _send(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        for row in [each.row for each in operations if self.begun and each.if_match]:
            keys = {name: row[name] for name in ("PartitionKey", "RowKey")}
            await self.store.write(table, Operation(Verb.MERGE, keys, "*"))
        return await super()._send(table, operations, transaction=transaction)


@pytest.mark.parametrize(
    ("phase", "step", "message"),
    [
        (Phase.MOVE, move, "of ('mon', 'stop_1') in table RekeyedStops: others wrote its rows first, 50 times"),
        (Phase.BACK, roll_back, "back, of ('1', 'day_mon') in table RekeyedStops: others wrote its rows first, 50"),
        (Phase.SEALED, finalize, "('mon', 'stop_1') in table RekeyedStops cannot be deleted; try it again"),
    ],
)
async def test_rows_that_others_write_again_and_again(
    phase: Phase, step: Callable[[Database, type[Entity]], Awaitable[WindowReport]], message: str
) -> None:
    """The entity is reported as a failure, and is what it was."""
    network = Restless(MemoryStore())
    async with database_on(network, Stop, NewStop) as db:
        await db.insert(Stop(day="mon", id=1, text="t"))
        set_phase(db, NewStop, Phase.MOVE)
        if phase is not Phase.MOVE:
            await move(db, NewStop)
        set_phase(db, NewStop, phase)
        network.begun = True
        report = await step(db, NewStop)

        (failure,) = report.failures
        assert isinstance(failure.error, LostRace) and message in str(failure.error)
        assert report.moved == 0 and (await db.get(NewStop, day="mon", id=1)).text == "t"


class Overtaken(FaultyStore):
    """A store in which somebody else does something once, before a row is written as it was read."""

    others: Callable[[], Awaitable[object]] | None = None
    happened = False

    async def _send(self, table: str, operations: tuple[Operation, ...], *, transaction: bool) -> list[str | None]:
        others = self.others if any(each.if_match for each in operations) else None
        if others is not None:
            self.others = None
            await others()
            self.happened = True
        return await super()._send(table, operations, transaction=transaction)


@pytest.mark.parametrize("verb", ["modify", "delete"])
@pytest.mark.parametrize("others", ["change", "delete"])
async def test_others_write_a_row_at_its_older_key_first(verb: str, others: str) -> None:
    """What is written by its newer key is read again, and done to what is there then."""
    network = Overtaken(MemoryStore())
    async with database_on(network, Stop, NewStop) as db:
        await db.insert(Stop(day="mon", id=1, text="t"))
        set_phase(db, NewStop, Phase.EXPAND)
        key = NewStop.key(day="mon", id=1)
        network.others = (
            partial(db.delete, Stop, day="mon", id=1, if_match="*")
            if others == "delete"
            else partial(db.upsert, Stop(day="mon", id=1, text="new"))
        )
        done = (
            db.delete(key, if_match="*")
            if verb == "delete"
            else db.modify(key, lambda stop: stop.evolve(text=stop.text + "!"))
        )
        if others == "delete":
            with pytest.raises(EntityNotFound, match="NewStop"):
                await done
        else:
            await done

        assert network.happened
        found = await db.get_or_none(key)
        assert (None if found is None else found.text) == ("new!" if (verb, others) == ("modify", "change") else None)


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


@pytest.mark.parametrize("verb", ["mover", "modify"])
@pytest.mark.parametrize("writes", [MARK, TENTATIVE, MOVED_AWAY, MOVED_AWAY + 1])
async def test_a_move_by_the_older_model_that_died(db: Database, network: FaultyStore, writes: int, verb: str) -> None:
    """It is completed, or never happens; then the entity gets its newer key from where it is."""
    await move_half(db, network, await db.get(Trip, day="mon", id=1), writes, day="tue")
    day = "tue" if writes >= MOVED_AWAY else "mon"
    if verb == "mover":
        await move(db, NewTrip)
    else:
        await db.modify(NewTrip, change, day=day, id=1)
        await move(db, NewTrip)

    assert [trip.day for trip in await db.select(NewTrip).allow_scan().all()] == [day]
    assert await db.select(Trip).allow_scan().all() == []
    assert [each for each in await kinds_of(db, NewTrip) if "_tentative" in each] == []
